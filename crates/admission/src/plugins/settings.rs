//! Settings of the built-in plugins from flags and the configuration file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::features::Features;

use super::PodTolerationRestriction;
use super::event_rate_limit::{EventLimit, MonotonicClock};
use super::pod_security::{PodSecurityConfiguration, PodSecurityMetrics};

#[derive(Clone)]
pub struct PluginSettings {
    /// Returns five random letters, for generated names.
    pub suffix: fn() -> String,
    pub features: Features,
    pub not_ready_toleration_seconds: i64,
    pub unreachable_toleration_seconds: i64,
    pub pod_security: PodSecurityConfiguration,
    pub pod_security_metrics: Option<Arc<dyn PodSecurityMetrics>>,
    /// By namespace, with the cluster default.
    pub node_selectors: BTreeMap<String, String>,
    pub tolerations: PodTolerationRestriction,
    pub event_limits: Vec<EventLimit>,
    /// The clock of `EventRateLimit`.
    pub clock: MonotonicClock,
}

impl Default for PluginSettings {
    fn default() -> Self {
        PluginSettings {
            suffix: || "xxxxx".to_owned(),
            features: Features::default(),
            not_ready_toleration_seconds: 300,
            unreachable_toleration_seconds: 300,
            pod_security: PodSecurityConfiguration::default(),
            pod_security_metrics: None,
            node_selectors: BTreeMap::new(),
            tolerations: PodTolerationRestriction::default(),
            event_limits: Vec::new(),
            clock: Arc::new(|| Duration::ZERO),
        }
    }
}

impl std::fmt::Debug for PluginSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("not_ready_toleration_seconds", &self.not_ready_toleration_seconds)
            .field("unreachable_toleration_seconds", &self.unreachable_toleration_seconds)
            .field("pod_security", &self.pod_security)
            .finish_non_exhaustive()
    }
}
