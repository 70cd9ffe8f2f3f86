//! The options of each verb, from the query or the body, checked in Kubernetes' words.

use api::{FieldError, GroupKind, Status};
use value::{Path, Value};

use crate::request_info::Query;

/// What to do with fields that a kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and say so.
    Warn,
    /// Refuse the request.
    Strict,
}

/// The options of create, update and patch.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    pub kind: &'static str,
    /// Nothing is stored.
    pub dry_run: bool,
    /// See [`FieldValidation`].
    pub field_validation: FieldValidation,
    /// Whether the request says how fields are validated; admission is not told what it left to the server.
    pub says_field_validation: bool,
    /// Who manages the fields that are set.
    pub field_manager: String,
    /// Take over fields of other managers; only apply has it.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Reads and checks the options.
    pub fn parse(kind: &'static str, query: &Query) -> Result<Self, Status> {
        Self::parse_any(kind, query, false)
    }

    /// Reads and checks the options of an apply.
    pub fn parse_apply(query: &Query) -> Result<Self, Status> {
        Self::parse_any("PatchOptions", query, true)
    }

    fn parse_any(kind: &'static str, query: &Query, apply: bool) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let force = query.get("force").map(|_| query.is_true("force"));
        let field_manager = query.get("fieldManager").unwrap_or_default().to_owned();
        if apply {
            if field_manager.is_empty() {
                let path = Path::root().field("fieldManager");
                errors.push(FieldError::required(&path, "is required for apply patch"));
            }
        } else if kind == "PatchOptions" && force.is_some() {
            errors.push(FieldError::forbidden(
                &Path::root().field("force"),
                "may not be specified for non-apply patch",
            ));
        }
        check_field_manager(&field_manager, &mut errors);
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let field_validation = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let path = Path::root().field("fieldValidation");
                errors.push(FieldError::not_supported(&path, other, &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Strict
            }
        };
        invalid(kind, &errors)?;
        let says_field_validation = query.get("fieldValidation").is_some_and(|text| !text.is_empty());
        Ok(WriteOptions { kind, dry_run, field_validation, says_field_validation, field_manager, force })
    }

    /// As admission sees them: a patch of an existing object shows `UpdateOptions`.
    pub fn to_value(&self, kind: &str) -> Value {
        let mut out = Value::map([("kind", kind), ("apiVersion", "meta.k8s.io/v1")]);
        if self.dry_run {
            out.set_at(&["dryRun"], Value::list(["All"]));
        }
        if !self.field_manager.is_empty() {
            out.set_at(&["fieldManager"], self.field_manager.as_str());
        }
        if self.says_field_validation {
            let word = match self.field_validation {
                FieldValidation::Ignore => "Ignore",
                FieldValidation::Warn => "Warn",
                FieldValidation::Strict => "Strict",
            };
            out.set_at(&["fieldValidation"], word);
        }
        out
    }
}

fn check_field_manager(manager: &str, errors: &mut Vec<FieldError>) {
    const MAX: usize = 128;
    let path = Path::root().field("fieldManager");
    if manager.len() > MAX {
        errors.push(FieldError::too_long(&path, MAX));
    }
    // Every error quotes the whole name, so one that is too long is told of one character only.
    let most = if manager.len() > MAX { 1 } else { MAX };
    let unprintable = manager.char_indices().filter(|(_, c)| !api::field::is_printable(*c));
    for (at, c) in unprintable.take(most) {
        let detail = format!("invalid character U+{:04X} (at position {at})", c as u32);
        errors.push(FieldError::invalid(&path, manager, detail));
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|v| *v != "All") {
        let path = Path::root().field("dryRun");
        errors.push(FieldError::not_supported(&path, Value::list(values.iter().copied()), &["All"]));
    }
    !values.is_empty()
}

fn invalid(kind: &str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&GroupKind::new("meta.k8s.io", kind), "", errors))
    }
}

/// The option to delete what cannot be read.
pub const UNREADABLE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeleteOptions {
    /// How long the object may take to go; `None` is the kind's default.
    pub grace_period_seconds: Option<i64>,
    /// The uid the object must have.
    pub uid: Option<String>,
    /// The revision the object must have.
    pub resource_version: Option<String>,
    /// The old spelling of the propagation policy.
    pub orphan_dependents: Option<bool>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<String>,
    /// Nothing is stored.
    pub dry_run: bool,
    /// Only an object that cannot be read is to go, with nothing looked at.
    pub unreadable: bool,
}

impl DeleteOptions {
    /// From the query, when there is no body.
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let options = DeleteOptions {
            grace_period_seconds: integer(query, "gracePeriodSeconds")?,
            uid: None,
            resource_version: None,
            orphan_dependents: query.get("orphanDependents").map(|_| query.is_true("orphanDependents")),
            propagation_policy: query.get("propagationPolicy").filter(|p| !p.is_empty()).map(str::to_owned),
            dry_run: dry_run(query.all("dryRun"), &mut errors),
            unreadable: query.is_true(UNREADABLE),
        };
        options.check(errors)
    }

    /// From a decoded body.
    pub fn from_body(body: &Value) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let text = |keys: &[&str]| body.str_at(keys).map(str::to_owned);
        let options = DeleteOptions {
            grace_period_seconds: body.int_at(&["gracePeriodSeconds"]),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            orphan_dependents: body.bool_at(&["orphanDependents"]),
            propagation_policy: text(&["propagationPolicy"]),
            dry_run: dry_run(body.list_at(&["dryRun"]).iter().filter_map(Value::as_str), &mut errors),
            unreadable: body.bool_at(&[UNREADABLE]).unwrap_or_default(),
        };
        options.check(errors)
    }

    fn check(self, dry_run_errors: Vec<FieldError>) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let path = Path::root().field("propagationPolicy");
        if let Some(policy) = &self.propagation_policy {
            if self.orphan_dependents.is_some() {
                errors.push(FieldError::invalid(
                    &path,
                    policy.as_str(),
                    "orphanDependents and deletionPropagation cannot be both set",
                ));
            }
            if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
                let supported = &["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(&path, policy.as_str(), supported));
            }
        }
        errors.extend(dry_run_errors);
        let path = Path::root().field(UNREADABLE);
        let beside = [
            (self.propagation_policy.is_some(), "propagationPolicy"),
            (self.orphan_dependents.is_some(), "orphanDependents"),
            (self.grace_period_seconds.is_some(), "gracePeriodSeconds"),
            (self.uid.is_some() || self.resource_version.is_some(), "preconditions"),
        ];
        for (_, field) in beside.iter().filter(|(set, _)| *set && self.unreadable) {
            let why = format!("cannot be set together with .{field}");
            errors.push(FieldError::invalid(&path, true, why));
        }
        invalid("DeleteOptions", &errors)?;
        Ok(self)
    }

    /// The rule for collections: what cannot be read is not in one.
    pub fn for_collection(self) -> Result<Self, Status> {
        if self.unreadable {
            let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
            invalid("DeleteOptions", &[FieldError::invalid(&Path::root().field(UNREADABLE), true, why)])?;
        }
        Ok(self)
    }

    /// As admission sees them.
    pub fn to_value(&self) -> Value {
        let mut out = Value::map([("kind", "DeleteOptions"), ("apiVersion", "meta.k8s.io/v1")]);
        if let Some(seconds) = self.grace_period_seconds {
            out.set_at(&["gracePeriodSeconds"], seconds);
        }
        if let Some(uid) = &self.uid {
            out.set_at(&["preconditions", "uid"], uid.as_str());
        }
        if let Some(version) = &self.resource_version {
            out.set_at(&["preconditions", "resourceVersion"], version.as_str());
        }
        if let Some(orphan) = self.orphan_dependents {
            out.set_at(&["orphanDependents"], orphan);
        }
        if let Some(policy) = &self.propagation_policy {
            out.set_at(&["propagationPolicy"], policy.as_str());
        }
        if self.dry_run {
            out.set_at(&["dryRun"], Value::list(["All"]));
        }
        out
    }
}

/// The options of list, watch and deletecollection, but for the selectors.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Whether to watch.
    pub watch: bool,
    /// At most this many; 0 is all.
    pub limit: u64,
    /// Where the last page ended.
    pub continue_token: String,
    /// The revision asked for, as sent.
    pub resource_version: String,
    /// `Exact`, `NotOlderThan` or empty.
    pub resource_version_match: String,
    /// Whether a watch wants bookmarks.
    pub bookmarks: bool,
    /// Whether a watch begins with what there is.
    pub send_initial_events: Option<bool>,
    /// When a watch ends.
    pub timeout_seconds: Option<i64>,
}

impl ListOptions {
    /// Reads and checks the options.
    pub fn parse(query: &Query, watch: bool) -> Result<Self, Status> {
        let text = |key: &str| query.get(key).unwrap_or_default().to_owned();
        let options = ListOptions {
            watch,
            limit: integer(query, "limit")?.and_then(|i| u64::try_from(i).ok()).unwrap_or(0),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            resource_version_match: text("resourceVersionMatch"),
            bookmarks: query.is_true("allowWatchBookmarks"),
            send_initial_events: query.get("sendInitialEvents").map(|_| query.is_true("sendInitialEvents")),
            timeout_seconds: integer(query, "timeoutSeconds")?,
        };
        let mut errors = Vec::new();
        if watch {
            options.check_watch(&mut errors);
        } else {
            options.check_list(&mut errors);
        }
        invalid("ListOptions", &errors)?;
        Ok(options)
    }

    fn check_list(&self, errors: &mut Vec<FieldError>) {
        let path = Path::root().field("resourceVersionMatch");
        let mut forbid = |detail: &str| errors.push(FieldError::forbidden(&path, detail));
        let wanted = self.resource_version_match.as_str();
        if !wanted.is_empty() {
            if self.resource_version.is_empty() {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !self.continue_token.is_empty() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if !matches!(wanted, "Exact" | "NotOlderThan") {
                errors.push(FieldError::not_supported(&path, wanted, &["Exact", "NotOlderThan", ""]));
            }
            if wanted == "Exact" && self.resource_version == "0" {
                let detail = r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
                errors.push(FieldError::forbidden(&path, detail));
            }
        }
        if self.send_initial_events.is_some() {
            let path = Path::root().field("sendInitialEvents");
            errors.push(FieldError::forbidden(&path, "sendInitialEvents is forbidden for list"));
        }
    }

    fn check_watch(&self, errors: &mut Vec<FieldError>) {
        let path = Path::root().field("resourceVersionMatch");
        let mut wanted = self.resource_version_match.as_str();
        // A watch from no revision begins with what there is, as if that had been asked for.
        let begins = wanted.is_empty()
            && self.send_initial_events.is_none()
            && matches!(self.resource_version.as_str(), "" | "0");
        if begins {
            wanted = "NotOlderThan";
        }
        if self.send_initial_events.is_some() && wanted != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&path, detail));
        }
        if wanted.is_empty() {
            return;
        }
        if self.send_initial_events.is_none() && !begins {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(&path, detail));
        }
        if wanted != "NotOlderThan" {
            errors.push(FieldError::not_supported(&path, wanted, &["NotOlderThan"]));
        }
        if !self.continue_token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(&path, detail));
        }
    }
}

/// An integer parameter, with Go's words for one that is none.
fn integer(query: &Query, key: &str) -> Result<Option<i64>, Status> {
    let Some(text) = query.get(key) else { return Ok(None) };
    text.parse::<i64>().map(Some).map_err(|_| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let range = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let why = if range { "value out of range" } else { "invalid syntax" };
        Status::bad_request(format!("strconv.ParseInt: parsing {}: {why}", api::field::quote(text)))
    })
}

/// A revision that a client sent; empty and `0` are `None`. The error is Kubernetes' text; what status carries it depends on
/// the verb.
pub fn revision(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    // A sign is none of Go's unsigned numbers.
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    text.parse::<u64>().ok().filter(|_| is_number).map(Some).ok_or_else(|| {
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        let quoted = api::field::quote(text);
        format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {why}")
    })
}

#[cfg(test)]
mod tests;
