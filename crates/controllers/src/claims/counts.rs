//! Counts resource claims and their creation for pods, for the `resourceclaim_controller_*` metrics.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use value::{Str, Value};

use super::{POD_CLAIM, is_allocated};

/// Annotation of a claim that a scheduler created for the extended resources of a pod.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// The label values by which claims are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimLabels {
    /// The claim has an allocation.
    pub allocated: bool,
    /// At least one request asks for admin access.
    pub admin_access: bool,
    /// `resource_claim_template`, `extended_resource`, or empty for claims created by users.
    pub source: &'static str,
}

/// Receives changes of the claim counts.
pub trait ClaimObserver: Send + Sync {
    /// Reports an attempt to create a claim from a template for a pod.
    fn created(&self, admin_access: bool, succeeded: bool);

    /// Adds `change` to the number of claims with these labels.
    fn counted(&self, labels: ClaimLabels, change: i64);
}

/// A [`ClaimObserver`] that can be part of [`crate::Options`].
#[derive(Clone)]
pub struct ObserveClaims(pub Arc<dyn ClaimObserver>);

impl fmt::Debug for ObserveClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObserveClaims")
    }
}

/// The labels under which each claim is counted, by namespace and name.
pub(super) struct Counts {
    observer: Option<ObserveClaims>,
    known: HashMap<(Str, Str), ClaimLabels>,
}

impl Counts {
    pub(super) fn new(observer: Option<ObserveClaims>) -> Self {
        Counts { observer, known: HashMap::new() }
    }

    /// Subtracts all counted claims, because the watch lists everything again.
    pub(super) fn restart(&mut self) {
        let known = std::mem::take(&mut self.known);
        for labels in known.into_values() {
            self.tell(labels, -1);
        }
    }

    /// Updates the counts for the current state of a claim, or for its deletion.
    pub(super) fn saw(&mut self, at: (Str, Str), claim: &Value, deleted: bool) {
        let now = labels(claim);
        let before = if deleted { self.known.remove(&at) } else { self.known.insert(at, now) };
        if !deleted && before == Some(now) {
            return;
        }
        if let Some(before) = before {
            self.tell(before, -1);
        }
        if !deleted {
            self.tell(now, 1);
        }
    }

    fn tell(&self, labels: ClaimLabels, change: i64) {
        if let Some(ObserveClaims(observer)) = &self.observer {
            observer.counted(labels, change);
        }
    }
}

fn labels(claim: &Value) -> ClaimLabels {
    let annotation = |name| claim.str_at(&["metadata", "annotations", name]).unwrap_or_default();
    let source = if annotation(EXTENDED) == "true" {
        "extended_resource"
    } else if annotation(POD_CLAIM).is_empty() {
        ""
    } else {
        "resource_claim_template"
    };
    let requests = claim.list_at(&["spec", "devices", "requests"]);
    let admin_access = api::admin_access::first_asking(requests).is_some();
    ClaimLabels { allocated: is_allocated(claim), admin_access, source }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{ClaimLabels, ClaimObserver, Counts, ObserveClaims};
    use crate::fake::parse;

    #[derive(Default)]
    struct RecordingObserver(Mutex<Vec<(bool, bool, &'static str, i64)>>);

    impl ClaimObserver for RecordingObserver {
        fn created(&self, _: bool, _: bool) {}

        fn counted(&self, labels: ClaimLabels, change: i64) {
            self.0.lock().unwrap().push((labels.allocated, labels.admin_access, labels.source, change));
        }
    }

    #[test]
    fn a_claim_is_counted_once_as_what_it_is_now() {
        let recorded = Arc::new(RecordingObserver::default());
        let mut counts = Counts::new(Some(ObserveClaims(recorded.clone())));
        let at = || ("ns".into(), "c".into());
        let take = || std::mem::take(&mut *recorded.0.lock().unwrap());
        let plain = parse("{}");
        let admin = parse(
            r#"{"metadata":{"annotations":{"resource.kubernetes.io/pod-claim-name":"gpu"}},"spec":{"devices":{"requests":[{"exactly":{"adminAccess":true}}]}},"status":{"allocation":{}}}"#,
        );
        counts.saw(at(), &plain, false);
        counts.saw(at(), &plain, false);
        assert_eq!(take(), [(false, false, "", 1)]);
        counts.saw(at(), &admin, false);
        assert_eq!(take(), [(false, false, "", -1), (true, true, "resource_claim_template", 1)]);
        counts.restart();
        counts.saw(at(), &admin, true);
        assert_eq!(take(), [(true, true, "resource_claim_template", -1)]);
    }
}
