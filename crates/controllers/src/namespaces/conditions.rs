//! The conditions of a terminating namespace, with the reasons and messages of Kubernetes.

use std::collections::BTreeMap;

use api::time::Timestamp;
use value::{Str, Value};

use super::Leftover;
use crate::api::{FailedDiscovery, ResourceKind};

/// The result of one attempt to empty a namespace.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// Total number of remaining objects, including those that the conditions do not count.
    pub(super) left: usize,
    /// Remaining objects by resource (`plural.group`).
    remaining: BTreeMap<String, usize>,
    finalizers: BTreeMap<Str, usize>,
    /// Errors of deletions and lists.
    pub(super) errors: Vec<String>,
    /// Group versions whose discovery failed.
    unknown: Vec<FailedDiscovery>,
}

impl Findings {
    /// Starts with the group versions whose discovery failed.
    pub(super) fn undiscovered_in(mut unknown: Vec<FailedDiscovery>) -> Self {
        unknown.sort();
        Findings { unknown, ..Findings::default() }
    }

    /// The discovery error, if discovery failed for any group version.
    pub(super) fn undiscovered(&self) -> Option<String> {
        let texts = self.unknown.iter().map(|FailedDiscovery { version, why }| format!("{version}: {why}"));
        let texts: Vec<String> = texts.collect();
        let listed = || format!("unable to retrieve the complete list of server APIs: {}", texts.join(", "));
        (!texts.is_empty()).then(listed)
    }

    pub(super) fn add(&mut self, kind: &ResourceKind, leftover: Leftover) {
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

    /// Clears the counts: while pods remain, Kubernetes' conditions do not report them.
    pub(super) fn forget_totals(&mut self) {
        self.remaining.clear();
        self.finalizers.clear();
    }
}

/// Each condition's type, with its reason and message when there is no problem.
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

/// The updated conditions, or `None` if they are up to date. Conditions of other types are preserved.
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

/// The problem that a condition reports: reason and message.
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
