//! `admissionregistration.k8s.io`.

use super::{Generation, Resource, Subresource, Version};

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
        ..WEBHOOKS
    },
    Resource {
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        singular: "validatingadmissionpolicy",
        subresources: &[Subresource::status("ValidatingAdmissionPolicy")],
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
        ..WEBHOOKS
    },
];

const POLICY: Resource = Resource {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    generation: Generation::Fields(&["spec"]),
    unconditional_update: false,
    ..Resource::CLUSTER
};
const WEBHOOKS: Resource = Resource { generation: Generation::Fields(&["webhooks"]), ..POLICY };
