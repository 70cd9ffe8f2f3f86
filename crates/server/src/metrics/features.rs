//! `kubernetes_feature_enabled`: the state of all feature gates.

use super::Metrics;
use crate::config::FeatureGate;

impl Metrics {
    /// Registers the metric and sets it per feature gate. Call it once at startup.
    pub fn record_feature_gates(&self, gates: &[FeatureGate]) -> Result<(), prometheus::Error> {
        let help = "[BETA] This metric records the data about the stage and enablement of a k8s feature.";
        let metric = self.registry.gauge_vec("kubernetes_feature_enabled", help, &["name", "stage"])?;
        for FeatureGate { name, stage, enabled } in gates {
            metric.with_label_values(&[name, stage]).set(i64::from(*enabled));
        }
        Ok(())
    }
}
