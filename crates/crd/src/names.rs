//! Computes the accepted names and the status conditions of a CRD.

use std::collections::HashSet;

use api::field::quote;
use api::validation::fields::Read;
use value::{Map, Str, Value};

use super::OverlappingBuiltIn;
use super::crd::CrdNames;

/// The finalizer that keeps a CRD until all its objects are deleted.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Reason and message for a CRD whose objects would be stored among those of a built-in resource.
pub const OVERLAPPING: (&str, &str) =
    ("OverlappingBuiltInResource", "instances overlap with built-in resources in storage");

/// The accepted names of the other CRDs in a group.
#[derive(Debug, Default)]
pub struct NamesInUse {
    resources: HashSet<String>,
    kinds: HashSet<String>,
    /// The name of a stored CRD that cannot be read, so that its names are unknown.
    unreadable: Option<Str>,
}

impl NamesInUse {
    pub fn add(&mut self, names: &CrdNames) {
        let short = names.short_names.iter();
        let resources = [&names.plural, &names.singular].into_iter().chain(short);
        self.resources.extend(resources.map(ToString::to_string));
        self.kinds.extend([&names.kind, &names.list_kind].map(ToString::to_string));
    }

    /// Adds a CRD of the group that cannot be read. It may have any name, so other CRDs are not granted new names.
    pub fn add_unreadable(&mut self, name: &Str) {
        self.unreadable = Some(name.clone());
    }

    /// Reason and message if no CRD can be granted new names.
    fn refusal(&self) -> Option<(&'static str, String)> {
        let name = self.unreadable.as_ref()?;
        let message = format!(
            "the stored CustomResourceDefinition {} cannot be read: the names it has are not known",
            quote(name)
        );
        Some(("UnreadableDefinition", message))
    }
}

/// The status that a CRD should have; `None` if it already has it. `lost_kind` means that its status claims a kind that belongs to
/// another CRD, which is possible because clients can write the status. `now` is formatted as in conditions.
pub fn status(
    crd: &Value,
    lost_kind: bool,
    in_use: impl FnOnce() -> NamesInUse,
    overlapping: OverlappingBuiltIn,
    now: &str,
) -> Option<Value> {
    let mut status = crd.get("status").cloned().unwrap_or_default();
    let before = status.clone();
    let requested = CrdNames::read(crd.part("spec").part("names"));
    let mut accepted = CrdNames::read(status.part("acceptedNames"));
    if lost_kind {
        (accepted.kind, accepted.list_kind) = (Str::default(), Str::default());
    }
    if requested != accepted || find(&status, "NamesAccepted").is_none() {
        let in_use = in_use();
        let (names, why) = match in_use.refusal() {
            Some(why) => (accepted, Some(why)),
            None => accept_names(&requested, &accepted, &in_use),
        };
        status.set_at(&["acceptedNames"], to_value(&names));
        let condition = match &why {
            Some((reason, message)) => ("False", *reason, message.as_str()),
            None => ("True", "NoConflicts", "no conflicts found"),
        };
        set(&mut status, "NamesAccepted", condition, now);
        if why.is_some() && (lost_kind || find(&status, "Established").is_none()) {
            set(&mut status, "Established", ("False", "NotAccepted", "not all names are accepted"), now);
        }
    }
    let is_true = |status: &Value, name: &str| find(status, name).is_some_and(|c| c.text("status") == "True");
    if overlapping(crd.part("spec").text("group"), &requested.plural).is_some() {
        // The CRD was stored before this check existed.
        set(&mut status, "Established", ("False", OVERLAPPING.0, OVERLAPPING.1), now);
    } else if is_true(&status, "NamesAccepted") && !is_true(&status, "Established") {
        let condition = ("True", "InitialNamesAccepted", "the initial names have been accepted");
        set(&mut status, "Established", condition, now);
    }
    approval(crd, &mut status, now);
    match crate::validation::non_structural(crd) {
        Some((reason, message)) => {
            let truth = if reason == "Violations" { "True" } else { "Unknown" };
            set(&mut status, "NonStructuralSchema", (truth, reason, &message), now);
        }
        None if find(&status, "NonStructuralSchema").is_some() => {
            let mut conditions = status.list_at(&["conditions"]).to_vec();
            conditions.retain(|condition| condition.text("type") != "NonStructuralSchema");
            status.set_at(&["conditions"], Value::List(conditions));
        }
        None => {}
    }
    (status != before).then_some(status)
}

/// The accepted names, and the reason and message if some requested names are in use.
fn accept_names(
    requested: &CrdNames,
    accepted: &CrdNames,
    in_use: &NamesInUse,
) -> (CrdNames, Option<(&'static str, String)>) {
    let mut names = accepted.clone();
    let mut why = None;
    let conflict_message = |name: &str| format!("{} is already in use", quote(name));
    let mut accept = |requested: &Str, accepted: &mut Str, used: &HashSet<String>, reason| {
        if requested != accepted && used.contains(requested.as_str()) {
            why = Some((reason, conflict_message(requested)));
        } else {
            accepted.clone_from(requested);
        }
    };
    accept(&requested.plural, &mut names.plural, &in_use.resources, "PluralConflict");
    accept(&requested.singular, &mut names.singular, &in_use.resources, "SingularConflict");
    if requested.short_names != accepted.short_names {
        let own: HashSet<&str> = accepted.short_names.iter().map(Str::as_str).collect();
        let conflicts: Vec<String> = requested
            .short_names
            .iter()
            .filter(|name| !own.contains(name.as_str()) && in_use.resources.contains(name.as_str()))
            .map(|name| conflict_message(name))
            .collect();
        if conflicts.is_empty() {
            names.short_names.clone_from(&requested.short_names);
        } else {
            why = Some(("ShortNamesConflict", api::field::aggregate(conflicts)));
        }
    }
    let mut accept = |requested: &Str, accepted: &mut Str, reason| {
        if requested != accepted && in_use.kinds.contains(requested.as_str()) {
            why = Some((reason, conflict_message(requested)));
        } else {
            accepted.clone_from(requested);
        }
    };
    accept(&requested.kind, &mut names.kind, "KindConflict");
    accept(&requested.list_kind, &mut names.list_kind, "ListKindConflict");
    names.categories.clone_from(&requested.categories);
    (names, why)
}

fn to_value(names: &CrdNames) -> Value {
    let mut map = Map::new();
    // These two are required fields and are written even when empty.
    map.insert("plural", names.plural.clone());
    map.insert("kind", names.kind.clone());
    for (field, name) in [("singular", &names.singular), ("listKind", &names.list_kind)] {
        if !name.is_empty() {
            map.insert(field, name.clone());
        }
    }
    for (field, list) in [("shortNames", &names.short_names), ("categories", &names.categories)] {
        if !list.is_empty() {
            map.insert(field, Value::list(list.iter().cloned()));
        }
    }
    Value::Map(map)
}

fn find<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status.list_at(&["conditions"]).iter().find(|condition| condition.text("type") == name)
}

/// Sets a condition. `lastTransitionTime` changes only when its status does.
pub fn set(status: &mut Value, name: &str, (truth, reason, message): (&str, &str, &str), now: &str) {
    let since = match find(status, name) {
        Some(old) if old.text("status") == truth => old.text("lastTransitionTime").to_owned(),
        _ => now.to_owned(),
    };
    let condition = Value::map([
        ("type", Value::from(name)),
        ("status", truth.into()),
        ("reason", reason.into()),
        ("message", message.into()),
        ("lastTransitionTime", since.into()),
    ]);
    let mut conditions: Vec<Value> = status.list_at(&["conditions"]).to_vec();
    match conditions.iter_mut().find(|condition| condition.text("type") == name) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
    status.set_at(&["conditions"], Value::List(conditions));
}

/// The annotation that approves an API in a protected group.
pub const APPROVED: &str = "api-approved.kubernetes.io";

/// Whether a group is reserved for the Kubernetes project.
pub fn is_protected(group: &str) -> bool {
    group == "k8s.io"
        || group == "kubernetes.io"
        || group.ends_with(".k8s.io")
        || group.ends_with(".kubernetes.io")
}

/// State of the approval annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// The annotation is a URL.
    Approved,
    /// The annotation starts with `unapproved`.
    Bypassed,
    /// The annotation has another value.
    Invalid,
    /// The CRD does not have the annotation.
    Missing,
}

/// The approval state of a CRD and the message that explains it.
pub fn approved(crd: &Value) -> (Approval, String) {
    let annotation = crd.part("metadata").part("annotations").text(APPROVED);
    if annotation.is_empty() {
        let why = format!(
            "protected groups must have approval annotation {}, see https://github.com/kubernetes/enhancements/pull/1111",
            quote(APPROVED)
        );
        return (Approval::Missing, why);
    }
    if annotation.starts_with("unapproved") {
        let why = format!("not approved: {}", quote(annotation));
        return (Approval::Bypassed, why);
    }
    let is_url = annotation.split_once("://").is_some_and(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        !scheme.is_empty()
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
            && !host.is_empty()
    });
    if is_url {
        return (Approval::Approved, format!("approved in {annotation}"));
    }
    let why = format!(
        "protected groups must have approval annotation {} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
        quote(APPROVED)
    );
    (Approval::Invalid, why)
}

fn approval(crd: &Value, status: &mut Value, now: &str) {
    if !is_protected(crd.part("spec").text("group")) {
        return;
    }
    let (approval, why) = approved(crd);
    let condition = match approval {
        Approval::Invalid => ("False", "InvalidAnnotation", why.as_str()),
        Approval::Missing => ("False", "MissingAnnotation", why.as_str()),
        Approval::Bypassed => ("False", "UnapprovedAnnotation", why.as_str()),
        Approval::Approved => ("True", "ApprovedAnnotation", why.as_str()),
    };
    set(status, "KubernetesAPIApprovalPolicyConformant", condition, now);
}
