//! Counts resource claims and their creation for pods, for the `resourceclaim_controller_*` metrics.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use value::{Str, Value};

use super::creation::POD_CLAIM;
use super::objects::is_allocated;

/// The label values by which claims are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimLabels {
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
    fn add_claims(&self, labels: ClaimLabels, change: i64);
}

/// A [`ClaimObserver`] that can be part of [`crate::ControllerOptions`].
#[derive(Clone)]
pub struct ObserveClaims(pub Arc<dyn ClaimObserver>);

impl fmt::Debug for ObserveClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObserveClaims")
    }
}

/// The labels under which each claim is counted, by namespace and name.
pub(super) struct ClaimCounts {
    observer: Option<ObserveClaims>,
    labels_by_claim: HashMap<(Str, Str), ClaimLabels>,
}

impl ClaimCounts {
    pub(super) fn new(observer: Option<ObserveClaims>) -> Self {
        ClaimCounts { observer, labels_by_claim: HashMap::new() }
    }

    /// Subtracts all counted claims, because the watch lists everything again.
    pub(super) fn restart(&mut self) {
        let labels_by_claim = std::mem::take(&mut self.labels_by_claim);
        for labels in labels_by_claim.into_values() {
            self.report_change(labels, -1);
        }
    }

    /// Updates the counts for the current state of a claim, or for its deletion.
    pub(super) fn observe(&mut self, at: (Str, Str), claim: &Value, deleted: bool) {
        let now = labels(claim);
        let before =
            if deleted { self.labels_by_claim.remove(&at) } else { self.labels_by_claim.insert(at, now) };
        if !deleted && before == Some(now) {
            return;
        }
        if let Some(before) = before {
            self.report_change(before, -1);
        }
        if !deleted {
            self.report_change(now, 1);
        }
    }

    fn report_change(&self, labels: ClaimLabels, change: i64) {
        if let Some(ObserveClaims(observer)) = &self.observer {
            observer.add_claims(labels, change);
        }
    }
}

fn labels(claim: &Value) -> ClaimLabels {
    let annotation = |name| claim.str_at(&["metadata", "annotations", name]).unwrap_or_default();
    let source = if annotation(api::labels::EXTENDED_RESOURCE_CLAIM) == "true" {
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

    use super::{ClaimCounts, ClaimLabels, ClaimObserver, ObserveClaims};
    use crate::fake::parse;

    #[derive(Default)]
    struct RecordingObserver(Mutex<Vec<(bool, bool, &'static str, i64)>>);

    impl ClaimObserver for RecordingObserver {
        fn created(&self, _: bool, _: bool) {}

        fn add_claims(&self, labels: ClaimLabels, change: i64) {
            self.0.lock().unwrap().push((labels.allocated, labels.admin_access, labels.source, change));
        }
    }

    #[test]
    fn a_resource_claim_is_counted_once_by_its_current_state() {
        let recorded = Arc::new(RecordingObserver::default());
        let mut counts = ClaimCounts::new(Some(ObserveClaims(recorded.clone())));
        let at = || ("ns".into(), "c".into());
        let take = || std::mem::take(&mut *recorded.0.lock().unwrap());
        let plain = parse("{}");
        let admin = parse(
            r#"{"metadata":{"annotations":{"resource.kubernetes.io/pod-claim-name":"gpu"}},"spec":{"devices":{"requests":[{"exactly":{"adminAccess":true}}]}},"status":{"allocation":{}}}"#,
        );
        counts.observe(at(), &plain, false);
        counts.observe(at(), &plain, false);
        assert_eq!(take(), [(false, false, "", 1)]);
        counts.observe(at(), &admin, false);
        assert_eq!(take(), [(false, false, "", -1), (true, true, "resource_claim_template", 1)]);
        counts.restart();
        counts.observe(at(), &admin, true);
        assert_eq!(take(), [(true, true, "resource_claim_template", -1)]);
    }
}
