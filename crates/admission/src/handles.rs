//! The phases and operations that each of Kubernetes' plugins handles. A plugin appears in metrics only
//! there.

use crate::AdmissionPhase;
use crate::Operation::{self, Connect, Create, Delete, Update};

const MUTATES: &[AdmissionPhase] = &[AdmissionPhase::Mutating];
const VALIDATES: &[AdmissionPhase] = &[AdmissionPhase::Validating];
const BOTH: &[AdmissionPhase] = &[AdmissionPhase::Mutating, AdmissionPhase::Validating];

const ALL: &[Operation] = &[Create, Update, Delete, Connect];

/// By plugin name. A plugin that is not listed handles everything.
const TABLE: &[(&str, &[AdmissionPhase], &[Operation])] = &[
    ("AlwaysPullImages", BOTH, &[Create, Update]),
    ("CertificateApproval", VALIDATES, &[Update]),
    ("CertificateSigning", VALIDATES, &[Update]),
    ("CertificateSubjectRestriction", VALIDATES, &[Create]),
    ("ClusterTrustBundleAttest", VALIDATES, &[Create, Update]),
    ("DefaultIngressClass", MUTATES, &[Create]),
    ("DefaultStorageClass", MUTATES, &[Create]),
    ("DefaultTolerationSeconds", MUTATES, &[Create, Update]),
    ("DenyServiceExternalIPs", VALIDATES, &[Create, Update]),
    ("EventRateLimit", VALIDATES, &[Create, Update]),
    ("ExtendedResourceToleration", MUTATES, &[Create, Update]),
    ("ImagePolicyWebhook", VALIDATES, &[Create, Update]),
    ("LimitPodHardAntiAffinityTopology", VALIDATES, &[Create, Update]),
    ("LimitRanger", BOTH, &[Create, Update]),
    ("MutatingAdmissionPolicy", MUTATES, &[Create, Update, Connect]),
    ("MutatingAdmissionWebhook", MUTATES, ALL),
    ("NamespaceAutoProvision", MUTATES, &[Create]),
    ("NamespaceExists", VALIDATES, &[Create, Update, Delete]),
    ("NamespaceLifecycle", MUTATES, &[Create, Update, Delete]),
    ("NodeDeclaredFeatureValidator", VALIDATES, &[Create, Update]),
    ("NodeRestriction", MUTATES, &[Create, Update, Delete]),
    ("OwnerReferencesPermissionEnforcement", VALIDATES, &[Create, Update]),
    ("PersistentVolumeClaimResize", VALIDATES, &[Update]),
    ("PodGroupProtection", MUTATES, &[Create]),
    ("PodNodeSelector", BOTH, &[Create]),
    ("PodResizeValidator", VALIDATES, &[Update]),
    ("PodSecurity", VALIDATES, &[Create, Update]),
    ("PodTolerationRestriction", BOTH, &[Create, Update]),
    ("PodTopologyLabels", MUTATES, &[Create]),
    ("Priority", BOTH, &[Create, Update, Delete]),
    ("ResourceQuota", VALIDATES, &[Create, Update]),
    ("RuntimeClass", BOTH, &[Create]),
    ("ServiceAccount", BOTH, &[Create, Update]),
    ("StorageObjectInUseProtection", MUTATES, &[Create]),
    ("TaintNodesByCondition", MUTATES, &[Create]),
    ("ValidatingAdmissionPolicy", VALIDATES, ALL),
    ("ValidatingAdmissionWebhook", VALIDATES, ALL),
];

pub(crate) fn handles(name: &str, phase: AdmissionPhase, operation: Operation) -> bool {
    TABLE
        .iter()
        .find(|(known, ..)| *known == name)
        .is_none_or(|(_, phases, operations)| phases.contains(&phase) && operations.contains(&operation))
}
