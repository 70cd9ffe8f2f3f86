//! Validation: which objects are refused, with Kubernetes' field paths and words.
//!
//! Objects arrive decoded and type-checked against their schema ([`schema`]) and with defaults applied, so rules look at
//! meaning, not shape; a rule that meets an unexpected shape skips it and never panics. `Rules` of a kind run after
//! the metadata rules that all kinds share.

pub mod admin_access;
mod admission_expression;
mod admission_policy;
pub mod admissionregistration;
mod apiextensions;
mod apps;
mod autoscaling;
pub(crate) mod batch;
pub mod certificates;
mod cluster;
pub mod core;
mod cron;
mod endpoint_slice;
mod event;
mod flowcontrol;
mod internal_json;
mod job_status;
mod label_match;
mod networking;
mod node;
mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub mod pod;
mod pod_certificate_request;
mod policy;
mod quota;
mod rbac;
mod resource;
mod resource_capacity;
mod resource_claim;
mod resource_declared;
mod resource_slice;
pub mod reviews;
pub(crate) mod service;
mod stateful_set;
mod storage;
mod storagemigration;
mod template;
mod unified_diff;

use api::{FieldErrors, GroupKind};
use value::Value;

/// What rules may know besides the object.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// `--allow-privileged`.
    pub allow_privileged: bool,
    /// Seconds since the epoch.
    pub now: i64,
    /// Whether the names that are reserved for static manifests may be used: in those files, and where there are none.
    pub static_names: bool,
    /// The version of the request, where rules speak of it.
    pub version: value::Str,
    /// Who is told how long expressions take.
    pub stopwatch: Option<std::sync::Arc<dyn crd::Stopwatch>>,
    /// The steps that are left for the request.
    pub budget: value::Budget,
}

impl Context {
    /// What validating a custom resource may use.
    pub fn bounds(&self) -> crd::Bounds<'_> {
        crd::Bounds { watch: self.stopwatch.as_deref(), budget: &self.budget }
    }
}

/// The rules of one kind.
#[derive(Clone, Copy)]
pub struct Rules {
    /// A new object.
    pub create: fn(&Value, &Context) -> FieldErrors,
    /// `(new, old)`: a changed object.
    pub update: fn(&Value, &Value, &Context) -> FieldErrors,
    /// `(new, old)`: a change through the `status` subresource.
    pub update_status: fn(&Value, &Value, &Context) -> FieldErrors,
}

/// Every kind with rules of its own, at the version it is stored in.
const TABLE: &[(&str, &str, Rules)] = &[
    ("", "Binding", pod::BINDING),
    ("", "ConfigMap", core::CONFIG_MAP),
    ("", "Endpoints", core::ENDPOINTS),
    ("", "Event", event::CORE_EVENT),
    ("", "LimitRange", quota::LIMIT_RANGE),
    ("", "Namespace", core::NAMESPACE),
    ("", "Node", node::NODE),
    ("", "PersistentVolume", persistent_volume::PERSISTENT_VOLUME),
    ("", "PersistentVolumeClaim", persistent_volume_claim::PERSISTENT_VOLUME_CLAIM),
    ("", "Pod", pod::POD),
    ("", "PodTemplate", template::POD_TEMPLATE),
    ("", "ReplicationController", apps::REPLICATION_CONTROLLER),
    ("", "ResourceQuota", quota::RESOURCE_QUOTA),
    ("", "Secret", core::SECRET),
    ("", "Service", service::SERVICE),
    ("", "ServiceAccount", core::SERVICE_ACCOUNT),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", admission_policy::MUTATING_POLICY),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", admission_policy::MUTATING_BINDING),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        admissionregistration::MUTATING_WEBHOOKS,
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", admission_policy::VALIDATING_POLICY),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        admission_policy::VALIDATING_BINDING,
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        admissionregistration::VALIDATING_WEBHOOKS,
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition", apiextensions::CUSTOM_RESOURCE_DEFINITION),
    ("apiregistration.k8s.io", "APIService", apiextensions::API_SERVICE),
    ("apps", "ControllerRevision", apps::CONTROLLER_REVISION),
    ("apps", "DaemonSet", apps::DAEMON_SET),
    ("apps", "Deployment", apps::DEPLOYMENT),
    ("apps", "ReplicaSet", apps::REPLICA_SET),
    ("apps", "StatefulSet", stateful_set::STATEFUL_SET),
    ("authentication.k8s.io", "TokenRequest", reviews::TOKEN_REQUEST),
    ("authorization.k8s.io", "LocalSubjectAccessReview", reviews::LOCAL_SUBJECT_ACCESS_REVIEW),
    ("authorization.k8s.io", "SelfSubjectAccessReview", reviews::SELF_SUBJECT_ACCESS_REVIEW),
    ("authorization.k8s.io", "SubjectAccessReview", reviews::SUBJECT_ACCESS_REVIEW),
    ("autoscaling", "HorizontalPodAutoscaler", autoscaling::HORIZONTAL_POD_AUTOSCALER),
    ("batch", "CronJob", batch::CRON_JOB),
    ("batch", "Job", batch::JOB),
    ("certificates.k8s.io", "CertificateSigningRequest", certificates::SIGNING_REQUEST),
    ("certificates.k8s.io", "ClusterTrustBundle", certificates::TRUST_BUNDLE),
    ("certificates.k8s.io", "PodCertificateRequest", pod_certificate_request::POD_CERTIFICATE_REQUEST),
    ("coordination.k8s.io", "Lease", cluster::LEASE),
    ("discovery.k8s.io", "EndpointSlice", endpoint_slice::ENDPOINT_SLICE),
    ("events.k8s.io", "Event", event::EVENT),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", flowcontrol::FLOW_SCHEMA),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", flowcontrol::PRIORITY_LEVEL),
    ("networking.k8s.io", "IPAddress", networking::IP_ADDRESS),
    ("networking.k8s.io", "Ingress", networking::INGRESS),
    ("networking.k8s.io", "IngressClass", networking::INGRESS_CLASS),
    ("networking.k8s.io", "NetworkPolicy", networking::NETWORK_POLICY),
    ("networking.k8s.io", "ServiceCIDR", networking::SERVICE_CIDR),
    ("node.k8s.io", "RuntimeClass", cluster::RUNTIME_CLASS),
    ("policy", "Eviction", policy::EVICTION),
    ("policy", "PodDisruptionBudget", policy::POD_DISRUPTION_BUDGET),
    ("rbac.authorization.k8s.io", "ClusterRole", rbac::CLUSTER_ROLE),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", rbac::CLUSTER_ROLE_BINDING),
    ("rbac.authorization.k8s.io", "Role", rbac::ROLE),
    ("rbac.authorization.k8s.io", "RoleBinding", rbac::ROLE_BINDING),
    ("resource.k8s.io", "DeviceClass", resource::DEVICE_CLASS),
    ("resource.k8s.io", "DeviceTaintRule", resource::DEVICE_TAINT_RULE),
    ("resource.k8s.io", "ResourceClaim", resource_claim::CLAIM),
    ("resource.k8s.io", "ResourceClaimTemplate", resource_claim::TEMPLATE),
    ("resource.k8s.io", "ResourceSlice", resource_slice::SLICE),
    ("scheduling.k8s.io", "PriorityClass", cluster::PRIORITY_CLASS),
    ("storage.k8s.io", "CSIDriver", storage::CSI_DRIVER),
    ("storage.k8s.io", "CSINode", storage::CSI_NODE),
    ("storage.k8s.io", "CSIStorageCapacity", storage::CSI_STORAGE_CAPACITY),
    ("storage.k8s.io", "StorageClass", storage::STORAGE_CLASS),
    ("storage.k8s.io", "VolumeAttachment", storage::VOLUME_ATTACHMENT),
    ("storage.k8s.io", "VolumeAttributesClass", storage::VOLUME_ATTRIBUTES_CLASS),
    ("storagemigration.k8s.io", "StorageVersionMigration", storagemigration::MIGRATION),
];

/// The rules of `kind`, if it has any besides those for metadata.
pub fn rules(kind: &GroupKind) -> Option<&'static Rules> {
    TABLE.iter().find(|(g, k, _)| *g == kind.group && *k == kind.kind).map(|(_, _, rules)| rules)
}

/// Runs the rules of an object within what they may do besides steps: compiling the regular expressions of its CEL expressions and
/// schemas.
pub fn bounded<T>(rules: impl FnOnce() -> T) -> T {
    cel::pattern::within(cel::pattern::PER_OBJECT, rules)
}

/// What is wrong with a text.
type TextRule = fn(&str) -> Vec<String>;

/// The rules of tolerations that stand in no pod.
pub fn tolerations(list: &[Value], at: &api::validation::fields::At<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    pod::scheduling::toleration_list(list, &pod::options::Options::default(), at, &mut errors);
    errors
}

fn no_rules(_: &Value, _: &Value, _: &Context) -> FieldErrors {
    FieldErrors::new()
}
