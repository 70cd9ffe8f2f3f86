//! The chain: which plugins there are, which are on, and how they run.

use std::sync::Arc;

use api::Status;
use value::Value;

use crate::{Attributes, NamespaceLifecycle};

/// What plugins may know of the cluster, answered from memory.
pub trait Cluster: Send + Sync {
    /// An object as it is now; `None` if there is none.
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
}

/// One built-in admission plugin.
pub trait Plugin: Send + Sync {
    /// May change the object, or refuse.
    fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        cluster: &dyn Cluster,
    ) -> Result<(), Status> {
        let _ = (attributes, object, cluster);
        Ok(())
    }

    /// May refuse. `object` is absent when something is deleted.
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        cluster: &dyn Cluster,
    ) -> Result<(), Status> {
        let _ = (attributes, object, cluster);
        Ok(())
    }
}

/// A plugin's name, as the flags spell it.
pub type PluginName = &'static str;

/// One row of the chain: name, whether it is on unless a flag says otherwise, and how it is made.
type Row = (PluginName, bool, fn() -> Box<dyn Plugin>);

/// Every plugin, in the order in which they run.
const PLUGINS: &[Row] = &[("NamespaceLifecycle", true, || Box::new(NamespaceLifecycle))];

/// Kubernetes' plugins that this chain does not have yet. Naming one in a flag is an error that says so, because leaving a
/// check out silently would be the wrong answer.
const NOT_YET: &[&str] = &[
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "PodNodeSelector",
    "PodSecurity",
    "PodTolerationRestriction",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// Why a chain cannot be built from the flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// No such plugin.
    #[error("admission plugin `{0}` is unknown")]
    Unknown(String),
    /// A plugin of Kubernetes that is not built in.
    #[error("admission plugin `{0}` is not implemented yet, so it cannot be enabled")]
    NotYet(String),
    /// Named in both flags.
    #[error("`{0}` in enable-admission-plugins and disable-admission-plugins overlapped")]
    Both(String),
}

/// The plugins that are on, in order.
pub struct Chain {
    plugins: Vec<(PluginName, Box<dyn Plugin>)>,
}

impl Chain {
    /// The chain with the default plugins, those of `enable` added and those of `disable` taken out.
    pub fn new(enable: &[String], disable: &[String]) -> Result<Self, ChainError> {
        for name in enable.iter().chain(disable) {
            let known = PLUGINS.iter().any(|(n, ..)| n == name);
            let not_yet = NOT_YET.contains(&name.as_str());
            if !known && !not_yet {
                return Err(ChainError::Unknown(name.clone()));
            }
            if not_yet && enable.contains(name) {
                return Err(ChainError::NotYet(name.clone()));
            }
        }
        if let Some(both) = enable.iter().find(|name| disable.contains(name)) {
            return Err(ChainError::Both(both.clone()));
        }
        let plugins = PLUGINS
            .iter()
            .filter(|(name, default, _)| {
                let named = |list: &[String]| list.iter().any(|n| n == name);
                (*default || named(enable)) && !named(disable)
            })
            .map(|(name, _, make)| (*name, make()))
            .collect();
        Ok(Chain { plugins })
    }

    /// The names of the plugins that are on, in order.
    pub fn plugins(&self) -> impl Iterator<Item = PluginName> {
        self.plugins.iter().map(|(name, _)| *name)
    }

    /// The mutating phase: each plugin in order, the first refusal ends it.
    pub fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        cluster: &dyn Cluster,
    ) -> Result<(), Status> {
        self.plugins.iter().try_for_each(|(_, plugin)| plugin.mutate(attributes, object, cluster))
    }

    /// The validating phase: each plugin in order, the first refusal ends it.
    pub fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        cluster: &dyn Cluster,
    ) -> Result<(), Status> {
        self.plugins.iter().try_for_each(|(_, plugin)| plugin.validate(attributes, object, cluster))
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.plugins()).finish()
    }
}
