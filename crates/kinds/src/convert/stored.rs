//! Versions that are not served any more, but in which older Kubernetes releases stored objects.
//!
//! Their protobuf messages have the layout of the version they are read as, except for those with types of their own in
//! `crates/schema/data/unpublished_schema.txt`.

mod old_fields;
#[cfg(test)]
mod tests;

use api::groups::{ADMISSION_REGISTRATION, CERTIFICATES, FLOW_CONTROL, RBAC};
use value::Value;

pub(super) use self::old_fields::missing_parameters_deny;

/// A version in which an object may be stored, and the version that it is read as.
#[derive(Debug)]
pub struct StoredVersion {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// The group and the version of the current type with the same fields, after `convert`.
    pub read_as: (&'static str, &'static str),
    /// Its messages and fields differ from the current type's: the schema has its own.
    pub has_own_schema: bool,
    convert: fn(&mut Value),
}

impl StoredVersion {
    const fn equal(group: &'static str, version: &'static str, kind: &'static str) -> Self {
        StoredVersion { group, version, kind, read_as: (group, "v1"), has_own_schema: false, convert: |_| {} }
    }

    const fn converted(self, convert: fn(&mut Value)) -> Self {
        StoredVersion { convert, ..self }
    }

    const fn moved_from(self, group: &'static str) -> Self {
        StoredVersion { group, ..self }
    }

    const fn with_own_schema(self) -> Self {
        StoredVersion { has_own_schema: true, ..self }
    }

    /// Changes an object in this version to the version it is read as.
    pub fn convert(&self, object: &mut Value) {
        (self.convert)(object);
        let (group, version) = self.read_as;
        let api_version = api::GroupVersion::new(group, version).to_string();
        object.set_at(&["apiVersion"], api_version);
    }
}

/// Finds a version in which objects of a kind may be stored although it is not in the table of kinds.
pub fn stored_version(group: &str, version: &str, kind: &str) -> Option<&'static StoredVersion> {
    STORED_VERSIONS
        .iter()
        .find(|stored| stored.version == version && stored.kind == kind && stored.group == group)
}

const NETWORKING: &str = "networking.k8s.io";
const STORAGE: &str = "storage.k8s.io";

static STORED_VERSIONS: &[StoredVersion] = &[
    StoredVersion::equal(ADMISSION_REGISTRATION, "v1beta1", "ValidatingAdmissionPolicy"),
    StoredVersion::equal(ADMISSION_REGISTRATION, "v1alpha1", "ValidatingAdmissionPolicy"),
    StoredVersion::equal(ADMISSION_REGISTRATION, "v1beta1", "ValidatingAdmissionPolicyBinding"),
    StoredVersion::equal(ADMISSION_REGISTRATION, "v1alpha1", "ValidatingAdmissionPolicyBinding")
        .converted(old_fields::missing_parameters_deny),
    StoredVersion::equal(ADMISSION_REGISTRATION, "v1beta1", "ValidatingWebhookConfiguration")
        .converted(old_fields::old_webhooks),
    StoredVersion::equal(ADMISSION_REGISTRATION, "v1beta1", "MutatingWebhookConfiguration")
        .converted(old_fields::old_webhooks),
    StoredVersion::equal("apiregistration.k8s.io", "v1beta1", "APIService"),
    StoredVersion::equal("apps", "v1beta2", "ControllerRevision"),
    StoredVersion::equal("apps", "v1beta2", "DaemonSet"),
    StoredVersion::equal("apps", "v1beta2", "Deployment"),
    StoredVersion::equal("apps", "v1beta2", "ReplicaSet"),
    StoredVersion::equal("apps", "v1beta2", "StatefulSet"),
    StoredVersion::equal("apps", "v1beta1", "ControllerRevision"),
    StoredVersion::equal("apps", "v1beta1", "Deployment")
        .with_own_schema()
        .converted(old_fields::apps_v1beta1_deployment),
    StoredVersion::equal("apps", "v1beta1", "StatefulSet").converted(old_fields::apps_v1beta1_stateful_set),
    StoredVersion::equal("apps", "v1beta1", "DaemonSet")
        .moved_from("extensions")
        .with_own_schema()
        .converted(old_fields::extensions_daemon_set),
    StoredVersion::equal("apps", "v1beta1", "Deployment")
        .moved_from("extensions")
        .with_own_schema()
        .converted(old_fields::extensions_deployment),
    StoredVersion::equal("apps", "v1beta1", "ReplicaSet")
        .moved_from("extensions")
        .converted(old_fields::labels_of_template),
    StoredVersion::equal("batch", "v1beta1", "CronJob"),
    StoredVersion::equal(CERTIFICATES, "v1beta1", "CertificateSigningRequest")
        .converted(old_fields::old_certificate_request),
    StoredVersion::equal(CERTIFICATES, "v1alpha1", "ClusterTrustBundle"),
    StoredVersion::equal("coordination.k8s.io", "v1beta1", "Lease"),
    StoredVersion::equal("discovery.k8s.io", "v1beta1", "EndpointSlice")
        .with_own_schema()
        .converted(old_fields::old_endpoint_slice),
    StoredVersion::equal("events.k8s.io", "v1beta1", "Event"),
    StoredVersion::equal(FLOW_CONTROL, "v1beta3", "FlowSchema"),
    StoredVersion::equal(FLOW_CONTROL, "v1beta2", "FlowSchema"),
    StoredVersion::equal(FLOW_CONTROL, "v1beta1", "FlowSchema"),
    StoredVersion::equal(FLOW_CONTROL, "v1beta3", "PriorityLevelConfiguration")
        .converted(old_fields::zero_shares),
    StoredVersion::equal(FLOW_CONTROL, "v1beta2", "PriorityLevelConfiguration")
        .converted(old_fields::assured_shares),
    StoredVersion::equal(FLOW_CONTROL, "v1beta1", "PriorityLevelConfiguration")
        .converted(old_fields::assured_shares),
    StoredVersion::equal(NETWORKING, "v1beta1", "IPAddress"),
    StoredVersion::equal(NETWORKING, "v1beta1", "Ingress")
        .with_own_schema()
        .converted(old_fields::old_ingress),
    StoredVersion::equal(NETWORKING, "v1beta1", "Ingress")
        .moved_from("extensions")
        .with_own_schema()
        .converted(old_fields::old_ingress),
    StoredVersion::equal(NETWORKING, "v1beta1", "IngressClass"),
    StoredVersion::equal(NETWORKING, "v1beta1", "ServiceCIDR"),
    StoredVersion::equal(NETWORKING, "v1beta1", "NetworkPolicy").moved_from("extensions"),
    StoredVersion::equal("node.k8s.io", "v1beta1", "RuntimeClass"),
    StoredVersion::equal("node.k8s.io", "v1alpha1", "RuntimeClass")
        .with_own_schema()
        .converted(old_fields::nested_runtime_class),
    StoredVersion::equal("policy", "v1beta1", "PodDisruptionBudget")
        .converted(old_fields::old_budget_selector),
    StoredVersion::equal(RBAC, "v1beta1", "ClusterRole"),
    StoredVersion::equal(RBAC, "v1beta1", "ClusterRoleBinding"),
    StoredVersion::equal(RBAC, "v1beta1", "Role"),
    StoredVersion::equal(RBAC, "v1beta1", "RoleBinding"),
    StoredVersion::equal(RBAC, "v1alpha1", "ClusterRole").with_own_schema(),
    StoredVersion::equal(RBAC, "v1alpha1", "ClusterRoleBinding")
        .with_own_schema()
        .converted(old_fields::subjects_with_versions),
    StoredVersion::equal(RBAC, "v1alpha1", "Role").with_own_schema(),
    StoredVersion::equal(RBAC, "v1alpha1", "RoleBinding")
        .with_own_schema()
        .converted(old_fields::subjects_with_versions),
    StoredVersion::equal("scheduling.k8s.io", "v1beta1", "PriorityClass"),
    StoredVersion::equal("scheduling.k8s.io", "v1alpha1", "PriorityClass"),
    StoredVersion::equal(STORAGE, "v1beta1", "CSIDriver"),
    StoredVersion::equal(STORAGE, "v1beta1", "CSINode"),
    StoredVersion::equal(STORAGE, "v1beta1", "CSIStorageCapacity"),
    StoredVersion::equal(STORAGE, "v1alpha1", "CSIStorageCapacity"),
    StoredVersion::equal(STORAGE, "v1beta1", "StorageClass"),
    StoredVersion::equal(STORAGE, "v1beta1", "VolumeAttachment"),
    StoredVersion::equal(STORAGE, "v1alpha1", "VolumeAttachment"),
    StoredVersion::equal(STORAGE, "v1beta1", "VolumeAttributesClass"),
    StoredVersion::equal(STORAGE, "v1alpha1", "VolumeAttributesClass"),
];
