//! Request options of each verb, read from the query or the body; errors have kube-apiserver's text.

use api::{FieldError, GroupKind, Status};
use value::{Path, Value};

use crate::request_info::Query;

/// Treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drops them without a warning.
    Ignore,
    /// Drops them and warns the client.
    Warn,
    /// Refuses the request if there are any.
    Strict,
}

#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    pub kind: &'static str,
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    /// Set if the request itself specifies `fieldValidation`; admission does not see the server's default.
    pub says_field_validation: bool,
    /// As named in the query; empty if it names none.
    pub field_manager: String,
    /// Takes over fields of other managers; only for server-side apply.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Options of any write except server-side apply.
    pub fn parse(kind: &'static str, query: &Query) -> Result<Self, Status> {
        Self::parse_any(kind, query, false)
    }

    /// Options of a server-side apply, which requires a field manager.
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

    /// The options in the shape that admission sees. `kind` may differ from the parsed kind: a patch of an existing object has
    /// `UpdateOptions`.
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
    // Each error quotes the whole name, so report only one character of a name that is too long.
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

/// Name of the option that deletes an object that cannot be read.
pub const UNREADABLE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeleteOptions {
    /// `None` means the default of the kind.
    pub grace_period_seconds: Option<i64>,
    /// Precondition: the uid of the object.
    pub uid: Option<String>,
    /// Precondition: the resource version of the object.
    pub resource_version: Option<String>,
    /// Deprecated form of the propagation policy.
    pub orphan_dependents: Option<bool>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<String>,
    pub dry_run: bool,
    /// Deletes an object only if it cannot be read, without admission or finalizers.
    pub unreadable: bool,
}

impl DeleteOptions {
    /// Reads the options from the query, for a request without a body.
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

    /// Refuses [`UNREADABLE`] for `deletecollection`, which cannot select unreadable objects.
    pub fn for_collection(self) -> Result<Self, Status> {
        if self.unreadable {
            let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
            invalid("DeleteOptions", &[FieldError::invalid(&Path::root().field(UNREADABLE), true, why)])?;
        }
        Ok(self)
    }

    /// The options in the shape that admission sees.
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

/// The options of list, watch and deletecollection, without selectors.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub watch: bool,
    /// Maximum number of objects; 0 means no limit.
    pub limit: u64,
    /// Token of the previous page; empty for the first.
    pub continue_token: String,
    /// As sent by the client, not parsed.
    pub resource_version: String,
    /// `Exact`, `NotOlderThan` or empty.
    pub resource_version_match: String,
    /// The watch wants bookmark events (`allowWatchBookmarks`).
    pub bookmarks: bool,
    /// The watch starts with the existing objects.
    pub send_initial_events: Option<bool>,
    /// Duration after which the server ends a watch.
    pub timeout_seconds: Option<i64>,
}

impl ListOptions {
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
        // A watch without a revision starts with the existing objects, as if the client had requested them.
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

/// Parses an integer parameter; errors have the text of Go's `strconv`.
fn integer(query: &Query, key: &str) -> Result<Option<i64>, Status> {
    let Some(text) = query.get(key) else { return Ok(None) };
    text.parse::<i64>().map(Some).map_err(|_| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let range = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let why = if range { "value out of range" } else { "invalid syntax" };
        Status::bad_request(format!("strconv.ParseInt: parsing {}: {why}", api::field::quote(text)))
    })
}

/// Parses a resource version from a client; empty and `0` are `None`. The error is Kubernetes' text; its status code depends on the verb.
pub fn revision(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    // Unlike Rust, Go does not accept a sign in unsigned numbers.
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    text.parse::<u64>().ok().filter(|_| is_number).map(Some).ok_or_else(|| {
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        let quoted = api::field::quote(text);
        format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {why}")
    })
}

#[cfg(test)]
mod tests;
