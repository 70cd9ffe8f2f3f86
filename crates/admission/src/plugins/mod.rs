//! The built-in plugins. [`crate::PluginChain`] determines their order and which are enabled.

mod certificates;
mod default_class;
mod default_toleration_seconds;
pub mod event_rate_limit;
pub mod image_policy;
mod limit_ranger;
mod namespace_lifecycle;
mod node_fit;
mod node_restriction;
mod owner_references;
mod persistent_volume_claim_resize;
mod pod_placement;
mod pod_secrets;
pub mod pod_security;
mod priority;
mod protection;
pub mod resource_quota;
mod runtime_class;
mod service_account;
mod settings;
mod small_plugins;
mod taint_nodes_by_condition;
mod tolerations;

pub use certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
    may_use_signer,
};
pub use default_class::{DefaultIngressClass, DefaultStorageClass};
pub use default_toleration_seconds::DefaultTolerationSeconds;
pub use event_rate_limit::EventRateLimit;
pub use image_policy::ImagePolicyWebhook;
pub use limit_ranger::LimitRanger;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use node_fit::{NodeDeclaredFeatureValidator, PodResizeValidator, PodTopologyLabels};
pub use node_restriction::NodeRestriction;
pub use owner_references::OwnerReferencesPermissionEnforcement;
pub use persistent_volume_claim_resize::PersistentVolumeClaimResize;
pub use pod_placement::{PodNodeSelector, PodTolerationRestriction};
pub use pod_security::PodSecurity;
pub use priority::Priority;
pub use protection::{PodGroupProtection, StorageObjectInUseProtection};
pub use runtime_class::RuntimeClass;
pub use service_account::ServiceAccount;
pub use settings::PluginSettings;
pub use small_plugins::{
    AlwaysAdmit, AlwaysDeny, AlwaysPullImages, DenyServiceExternalIPs, ExtendedResourceToleration,
    LimitPodHardAntiAffinityTopology, NamespaceExists,
};
pub use taint_nodes_by_condition::TaintNodesByCondition;

use std::sync::Arc;

use api::{GroupResource, Status};
use value::Value;

use crate::{AdmissionAttributes, ClusterView};

/// Appends to the list at `keys`, which is created if absent.
fn append(object: &mut Value, keys: &[&str], item: Value) {
    if let Some(list) = object.at_mut(keys).and_then(Value::as_list_mut) {
        list.push(item);
    } else {
        object.set_at(keys, vec![item]);
    }
}

/// The namespace of the request; 404 if it does not exist.
fn namespace(attributes: &AdmissionAttributes<'_>, cluster: &dyn ClusterView) -> Result<Arc<Value>, Status> {
    let name = attributes.namespace.as_str();
    let found = cluster.object("", "namespaces", "", name);
    found.ok_or_else(|| Status::not_found(&GroupResource::new("", "namespaces"), name))
}
