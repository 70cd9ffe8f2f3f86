//! Metrics about unavailable APIServices, named as in kube-aggregator.

use prometheus::{IntCounterVec, IntGaugeVec};
use runtime::MetricRegistry;

pub(super) struct AvailabilityMetrics {
    unavailable: IntGaugeVec,
    became_unavailable: IntCounterVec,
}

impl AvailabilityMetrics {
    pub(super) fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let unavailable = registry.gauge_vec(
            "aggregator_unavailable_apiservice",
            "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.",
            &["name"],
        )?;
        let became_unavailable = registry.counter_vec(
            "aggregator_unavailable_apiservice_total",
            "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
            &["name", "reason"],
        )?;
        Ok(AvailabilityMetrics { unavailable, became_unavailable })
    }

    /// Sets the gauge of an APIService.
    pub(super) fn is(&self, name: &str, available: bool) {
        self.unavailable.with_label_values(&[name]).set(i64::from(!available));
    }

    /// Counts a transition from available to unavailable.
    pub(super) fn became_unavailable(&self, name: &str, reason: &str) {
        self.became_unavailable.with_label_values(&[name, reason]).inc();
    }

    /// Drops the gauge of a deleted APIService.
    pub(super) fn forget(&self, name: &str) {
        let _ = self.unavailable.remove_label_values(&[name]);
    }
}
