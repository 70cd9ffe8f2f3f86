//! What flags and the configuration file say to the built-in plugins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::PodTolerationRestriction;
use super::event_rate_limit::{Clock, Limit};
use super::pod_security::{Configuration, Counter};

/// One value for all of them; each takes what is its own.
#[derive(Clone)]
pub struct Settings {
    /// Five random letters, where a plugin names something.
    pub suffix: fn() -> String,
    /// `--default-not-ready-toleration-seconds`.
    pub not_ready_toleration_seconds: i64,
    /// `--default-unreachable-toleration-seconds`.
    pub unreachable_toleration_seconds: i64,
    /// The configuration of `PodSecurity`.
    pub pod_security: Configuration,
    /// Who counts the decisions of `PodSecurity`.
    pub pod_security_counter: Option<Arc<dyn Counter>>,
    /// The configuration of `PodNodeSelector`.
    pub node_selectors: BTreeMap<String, String>,
    /// `PodTolerationRestriction`, with its configuration.
    pub tolerations: PodTolerationRestriction,
    /// The configuration of `EventRateLimit`.
    pub event_limits: Vec<Limit>,
    /// The time, as far as limits per second go.
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            suffix: || "xxxxx".to_owned(),
            not_ready_toleration_seconds: 300,
            unreachable_toleration_seconds: 300,
            pod_security: Configuration::default(),
            pod_security_counter: None,
            node_selectors: BTreeMap::new(),
            tolerations: PodTolerationRestriction::default(),
            event_limits: Vec::new(),
            clock: Arc::new(|| Duration::ZERO),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("not_ready_toleration_seconds", &self.not_ready_toleration_seconds)
            .field("unreachable_toleration_seconds", &self.unreachable_toleration_seconds)
            .field("pod_security", &self.pod_security)
            .finish_non_exhaustive()
    }
}
