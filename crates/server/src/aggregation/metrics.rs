//! What is counted about APIServices that cannot be used.

use prometheus::{IntCounterVec, IntGaugeVec, Opts};

use crate::metrics::MetricRegistry;

/// Kubernetes' two families.
pub(super) struct AvailabilityMetrics {
    unavailable: IntGaugeVec,
    became_unavailable: IntCounterVec,
}

impl AvailabilityMetrics {
    /// Registers the families.
    pub(super) fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let unavailable = IntGaugeVec::new(
            Opts::new(
                "aggregator_unavailable_apiservice",
                "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.",
            ),
            &["name"],
        )?;
        let became_unavailable = IntCounterVec::new(
            Opts::new(
                "aggregator_unavailable_apiservice_total",
                "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
            ),
            &["name", "reason"],
        )?;
        registry.register(Box::new(unavailable.clone()))?;
        registry.register(Box::new(became_unavailable.clone()))?;
        Ok(AvailabilityMetrics { unavailable, became_unavailable })
    }

    /// What an APIService is now.
    pub(super) fn is(&self, name: &str, available: bool) {
        self.unavailable.with_label_values(&[name]).set(i64::from(!available));
    }

    /// An APIService that could be used no longer can.
    pub(super) fn became_unavailable(&self, name: &str, reason: &str) {
        self.became_unavailable.with_label_values(&[name, reason]).inc();
    }

    /// An APIService is gone.
    pub(super) fn forget(&self, name: &str) {
        let _ = self.unavailable.remove_label_values(&[name]);
    }
}
