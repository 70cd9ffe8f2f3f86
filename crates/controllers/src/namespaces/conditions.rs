//! What the conditions of a terminating namespace say.

use std::collections::BTreeMap;

use api::time::Timestamp;
use value::{Str, Value};

use super::Leftover;
use crate::api::{Kind, Unknown};

/// What one round of emptying found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// How many objects are left, whatever the conditions say.
    pub(super) left: usize,
    /// By resource, as the message names it.
    remaining: BTreeMap<String, usize>,
    finalizers: BTreeMap<Str, usize>,
    /// What went wrong.
    pub(super) errors: Vec<String>,
    /// The versions of groups of which it is not known what is in them.
    unknown: Vec<Unknown>,
}

impl Findings {
    /// Nothing yet, but what is not known.
    pub(super) fn undiscovered_in(mut unknown: Vec<Unknown>) -> Self {
        unknown.sort();
        Findings { unknown, ..Findings::default() }
    }

    /// What is wrong if anything is not known.
    pub(super) fn undiscovered(&self) -> Option<String> {
        let texts = self.unknown.iter().map(|Unknown { version, why }| format!("{version}: {why}"));
        let texts: Vec<String> = texts.collect();
        let listed = || format!("unable to retrieve the complete list of server APIs: {}", texts.join(", "));
        (!texts.is_empty()).then(listed)
    }

    pub(super) fn add(&mut self, kind: &Kind, leftover: Leftover) {
        let Leftover { count, finalizers, error } = leftover;
        if count > 0 {
            self.left += count;
            self.remaining.insert(format!("{}.{}", kind.plural, kind.group), count);
        }
        for (finalizer, count) in finalizers {
            *self.finalizers.entry(finalizer).or_default() += count;
        }
        self.errors.extend(error);
    }

    /// While pods are left, Kubernetes' conditions do not count what remains.
    pub(super) fn forget_totals(&mut self) {
        self.remaining.clear();
        self.finalizers.clear();
    }
}

/// A condition: its type, and reason and message when all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    (DISCOVERY_FAILURE, "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (CONTENT_FAILURE, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    (CONTENT_REMAINING, "ContentRemoved", "All content successfully removed"),
    (FINALIZERS_REMAINING, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];
const DISCOVERY_FAILURE: &str = "NamespaceDeletionDiscoveryFailure";
const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";
const CONTENT_REMAINING: &str = "NamespaceContentRemaining";
const FINALIZERS_REMAINING: &str = "NamespaceFinalizersRemaining";

/// The conditions as they should be, or nothing if they are. Conditions of others stay.
pub(super) fn updated(stored: &[Value], findings: &Findings, now: i64) -> Option<Vec<Value>> {
    let mut conditions = stored.to_vec();
    for (kind, reason, message) in CONDITIONS {
        let (status, reason, message) = match problem(kind, findings) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        let mut condition = Value::map([
            ("type", kind),
            ("status", status),
            ("reason", reason),
            ("message", message.as_str()),
        ]);
        let old = conditions.iter_mut().find(|old| old.str_at(&["type"]) == Some(kind));
        let transition = old.as_ref().filter(|old| old.str_at(&["status"]) == Some(status));
        let since = transition.and_then(|old| old.at(&["lastTransitionTime"]).cloned());
        let since = since.unwrap_or_else(|| Timestamp::from_seconds(now).time().into());
        condition.set_at(&["lastTransitionTime"], since);
        match old {
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
    }
    (conditions != stored).then_some(conditions)
}

/// What is wrong about one aspect: reason and message.
fn problem(kind: &str, findings: &Findings) -> Option<(&'static str, String)> {
    let listed = |texts: Vec<String>| {
        let mut texts = texts;
        texts.sort();
        texts.join(", ")
    };
    match kind {
        DISCOVERY_FAILURE => findings.undiscovered().map(|error| {
            let failing = findings.unknown.len();
            ("DiscoveryFailed", format!("Discovery failed for some groups, {failing} failing: {error}"))
        }),
        CONTENT_FAILURE if !findings.errors.is_empty() => Some((
            "ContentDeletionFailed",
            format!(
                "Failed to delete all resource types, {} remaining: {}",
                findings.errors.len(),
                listed(findings.errors.clone())
            ),
        )),
        CONTENT_REMAINING if !findings.remaining.is_empty() => {
            let texts =
                findings.remaining.iter().map(|(of, count)| format!("{of} has {count} resource instances"));
            Some((
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", listed(texts.collect())),
            ))
        }
        FINALIZERS_REMAINING if !findings.finalizers.is_empty() => {
            let texts =
                findings.finalizers.iter().map(|(of, count)| format!("{of} in {count} resource instances"));
            Some((
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    listed(texts.collect())
                ),
            ))
        }
        _ => None,
    }
}
