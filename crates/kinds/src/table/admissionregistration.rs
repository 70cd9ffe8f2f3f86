//! `admissionregistration.k8s.io`.

use super::{Resource, SubresourceRow, Version};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "MutatingAdmissionPolicy",
        plural: "mutatingadmissionpolicies",
        singular: "mutatingadmissionpolicy",
        versions: &[
            Version::new("v1"),
            Version::deprecated(
                "v1beta1",
                "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicy is deprecated in v1.37+, unavailable in v1.40+; \
                 use admissionregistration.k8s.io/v1 MutatingAdmissionPolicy",
            ),
        ],
        ..POLICY
    },
    Resource {
        kind: "MutatingAdmissionPolicyBinding",
        plural: "mutatingadmissionpolicybindings",
        singular: "mutatingadmissionpolicybinding",
        versions: &[
            Version::new("v1"),
            Version::deprecated(
                "v1beta1",
                "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicyBinding is deprecated in v1.37+, unavailable in \
                 v1.40+; use admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding",
            ),
        ],
        ..POLICY
    },
    Resource {
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        singular: "mutatingwebhookconfiguration",
        ..POLICY
    },
    Resource {
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        singular: "validatingadmissionpolicy",
        subresources: &[SubresourceRow::status("ValidatingAdmissionPolicy")],
        ..POLICY
    },
    Resource {
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        singular: "validatingadmissionpolicybinding",
        ..POLICY
    },
    Resource {
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        singular: "validatingwebhookconfiguration",
        ..POLICY
    },
];

const POLICY: Resource =
    Resource { group: "admissionregistration.k8s.io", categories: &["api-extensions"], ..Resource::CLUSTER };
