//! The built-in plugins. [`crate::PluginChain`] determines their order and which are enabled.

mod always_admit;
mod always_deny;
mod always_pull_images;
mod bound_pod;
mod certificate_approval;
mod certificate_signing;
mod certificate_subject_restriction;
mod certificates;
mod cluster_trust_bundle_attest;
mod default_class;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
pub mod event_rate_limit;
mod extended_resource_toleration;
pub mod image_policy;
mod limit_pod_hard_anti_affinity_topology;
mod limit_ranger;
mod namespace_exists;
mod namespace_lifecycle;
mod node_declared_feature_validator;
mod node_restriction;
mod owner_references;
mod persistent_volume_claim_resize;
mod pod_group_protection;
mod pod_node_selector;
mod pod_resize_validator;
mod pod_secrets;
pub mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
mod priority;
mod protection;
pub mod resource_quota;
mod runtime_class;
mod service_account;
mod settings;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
mod tolerations;

pub use always_admit::AlwaysAdmit;
pub use always_deny::AlwaysDeny;
pub use always_pull_images::AlwaysPullImages;
pub use certificate_approval::CertificateApproval;
pub use certificate_signing::CertificateSigning;
pub use certificate_subject_restriction::CertificateSubjectRestriction;
pub use certificates::may_use_signer;
pub use cluster_trust_bundle_attest::ClusterTrustBundleAttest;
pub use default_ingress_class::DefaultIngressClass;
pub use default_storage_class::DefaultStorageClass;
pub use default_toleration_seconds::DefaultTolerationSeconds;
pub use deny_service_external_ips::DenyServiceExternalIPs;
pub use event_rate_limit::EventRateLimit;
pub use extended_resource_toleration::ExtendedResourceToleration;
pub use image_policy::ImagePolicyWebhook;
pub use limit_pod_hard_anti_affinity_topology::LimitPodHardAntiAffinityTopology;
pub use limit_ranger::LimitRanger;
pub use namespace_exists::NamespaceExists;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use node_declared_feature_validator::NodeDeclaredFeatureValidator;
pub use node_restriction::NodeRestriction;
pub use owner_references::OwnerReferencesPermissionEnforcement;
pub use persistent_volume_claim_resize::PersistentVolumeClaimResize;
pub use pod_group_protection::PodGroupProtection;
pub use pod_node_selector::PodNodeSelector;
pub use pod_resize_validator::PodResizeValidator;
pub use pod_security::PodSecurity;
pub use pod_toleration_restriction::PodTolerationRestriction;
pub use pod_topology_labels::PodTopologyLabels;
pub use priority::Priority;
pub use runtime_class::RuntimeClass;
pub use service_account::ServiceAccount;
pub use settings::PluginSettings;
pub use storage_object_in_use_protection::StorageObjectInUseProtection;
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
