//! Admission: the ordered chain of plugins that every write passes before it is stored, first mutating, then validating.
//!
//! [`PluginChain`] runs the enabled plugins. They are declared in one list in `chain.rs`; plugins do not register themselves. A
//! plugin implements [`Plugin`], or [`AsyncPlugin`] if it has to wait. Plugins do no I/O themselves: they read the cluster
//! through [`ClusterView`], which answers from memory, and webhooks are called through [`webhook::Transport`].
//!
//! ```
//! use admission::{ChainConfig, PluginChain};
//!
//! // As with --enable-admission-plugins and --disable-admission-plugins. The plugins that need the server, such as
//! // webhooks, are absent from this configuration and therefore from the chain.
//! let (enable, disable) = (["AlwaysPullImages".to_owned()], ["PodSecurity".to_owned()]);
//! let chain = PluginChain::new(&enable, &disable, &ChainConfig::default())?;
//! let names: Vec<&str> = chain.plugins().collect();
//! assert!(names.contains(&"AlwaysPullImages") && names.contains(&"LimitRanger"));
//! assert!(!names.contains(&"PodSecurity") && !names.contains(&"ValidatingAdmissionWebhook"));
//! # Ok::<(), admission::ChainError>(())
//! ```

mod admission_snapshot;
mod attributes;
mod chain;
mod cluster;
pub mod configuration;
pub mod expression;
mod handles;
pub mod inventory;
pub mod manifests;
pub mod matching;
mod metrics;
mod notes;
mod patched;
mod plugin;
pub mod plugins;
pub mod policy;
mod reinvocation;
pub mod webhook;

pub use admission_snapshot::AdmissionSnapshot;
pub use attributes::{AdmissionAttributes, Operation, VersionedObject};
pub use chain::{ChainConfig, ChainError, PluginChain, PluginName, PluginSelection};
pub use cluster::{AdmissionFuture, ClusterView, ParamError, RestMapping, UndecodedObject};
pub use metrics::{
    AdmissionMetrics, AdmissionPhase, MatchConditionLabels, NoMetrics, PluginId, PolicyErrorType,
    WebhookLabels, WebhookRejection,
};
pub use notes::{AdmissionNotes, AuditAnnotation, AuditLevel, EvaluatedManifests, WriteFence, WriteGuard};
pub use plugin::{AsyncPlugin, MutatingRequest, Plugin};
pub use reinvocation::{Reinvocation, ReinvocationState};

#[cfg(test)]
extern crate self as admission;
#[cfg(test)]
#[path = "../tests/cluster/mod.rs"]
mod fake_cluster;
#[cfg(test)]
mod tests;
