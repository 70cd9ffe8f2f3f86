//! Defaults: what an object that leaves a field out means.
//!
//! One ordered table, one function per kind. A function changes the decoded object in place and is idempotent.

pub mod admissionregistration;
pub mod apiextensions;
pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod cluster;
pub mod core;
pub(crate) mod fields;
pub(crate) mod image;
pub mod networking;
pub mod pod;
pub(crate) mod quantities;

use api::GroupKind;
use value::Value;

/// Fills in the defaults of one kind.
pub type Defaults = fn(&mut Value);

/// Every kind with defaults, at the version it is stored in.
const TABLE: &[(&str, &str, Defaults)] = &[
    ("", "Endpoints", core::endpoints),
    ("", "LimitRange", core::limit_range),
    ("", "Namespace", core::namespace),
    ("", "Node", core::node),
    ("", "PersistentVolume", core::persistent_volume),
    ("", "PersistentVolumeClaim", core::persistent_volume_claim),
    ("", "Pod", pod::pod),
    ("", "PodTemplate", pod::pod_template),
    ("", "ReplicationController", apps::replication_controller),
    ("", "ResourceQuota", core::resource_quota),
    ("", "Secret", core::secret),
    ("", "Service", core::service),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", admissionregistration::policy),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", admissionregistration::binding),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        admissionregistration::mutating_webhooks,
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", admissionregistration::policy),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", admissionregistration::binding),
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        admissionregistration::validating_webhooks,
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition", apiextensions::custom_resource_definition),
    ("apiregistration.k8s.io", "APIService", apiextensions::api_service),
    ("apps", "DaemonSet", apps::daemon_set),
    ("apps", "Deployment", apps::deployment),
    ("apps", "ReplicaSet", apps::replica_set),
    ("apps", "StatefulSet", apps::stateful_set),
    ("authentication.k8s.io", "TokenRequest", cluster::token_request),
    ("autoscaling", "HorizontalPodAutoscaler", autoscaling::horizontal_pod_autoscaler),
    ("batch", "CronJob", batch::cron_job),
    ("batch", "Job", batch::job),
    ("certificates.k8s.io", "PodCertificateRequest", cluster::pod_certificate_request),
    ("discovery.k8s.io", "EndpointSlice", networking::endpoint_slice),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", cluster::flow_schema),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", cluster::priority_level),
    ("networking.k8s.io", "IngressClass", networking::ingress_class),
    ("networking.k8s.io", "NetworkPolicy", networking::network_policy),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", cluster::role_binding),
    ("rbac.authorization.k8s.io", "RoleBinding", cluster::role_binding),
    ("resource.k8s.io", "ResourceClaim", cluster::resource_claim),
    ("resource.k8s.io", "ResourceClaimTemplate", cluster::resource_claim_template),
    ("scheduling.k8s.io", "PriorityClass", cluster::priority_class),
    ("storage.k8s.io", "CSIDriver", cluster::csi_driver),
    ("storage.k8s.io", "StorageClass", cluster::storage_class),
    ("storage.k8s.io", "VolumeAttachment", cluster::volume_attachment),
];

/// Fills in the defaults of `object`, which is of `kind` at its stored version.
pub fn apply(kind: &GroupKind, object: &mut Value) {
    if let Some((_, _, defaults)) = TABLE.iter().find(|(g, k, _)| *g == kind.group && *k == kind.kind) {
        defaults(object);
    }
}
