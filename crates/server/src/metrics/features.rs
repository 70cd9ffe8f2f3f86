//! `kubernetes_feature_enabled`: the state of all feature gates.

use prometheus::{IntGaugeVec, Opts};

use super::Metrics;
use crate::config::FeatureGate;

impl Metrics {
    /// Registers the metric and sets it per feature gate. Call it once at startup.
    pub fn record_feature_gates(&self, gates: &[FeatureGate]) -> Result<(), prometheus::Error> {
        let help = "[BETA] This metric records the data about the stage and enablement of a k8s feature.";
        let metric = IntGaugeVec::new(Opts::new("kubernetes_feature_enabled", help), &["name", "stage"])?;
        self.registry.register(Box::new(metric.clone()))?;
        for FeatureGate { name, stage, enabled } in gates {
            metric.with_label_values(&[name, stage]).set(i64::from(*enabled));
        }
        Ok(())
    }
}
