//! Rows of the `admissionregistration.k8s.io` group.

use super::{KindBehavior, Resource, SubresourceRow, VersionRow};
use crate::strategy::table as strategy;
use crate::{convert, defaults, print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "MutatingAdmissionPolicy",
        plural: "mutatingadmissionpolicies",
        singular: "mutatingadmissionpolicy",
        versions: &[
            VersionRow::new("v1"),
            VersionRow::deprecated(
                "v1beta1",
                "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicy is deprecated in v1.37+, unavailable in v1.40+; \
                 use admissionregistration.k8s.io/v1 MutatingAdmissionPolicy",
            ),
            VersionRow::deprecated(
                "v1alpha1",
                "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicy is deprecated in v1.35+, unavailable in v1.38+",
            ),
        ],
        ..policy(KindBehavior {
            defaults: Some(defaults::admissionregistration::policy),
            rules: Some(validation::admission_policy::MUTATING_POLICY),
            strategy: Some(strategy::MUTATING_ADMISSION_POLICY),
            warnings: Some(warnings::admission_policy),
            status_warnings: None,
            columns: Some(print::admissionregistration::MUTATING_ADMISSION_POLICY),
        })
    },
    Resource {
        kind: "MutatingAdmissionPolicyBinding",
        plural: "mutatingadmissionpolicybindings",
        singular: "mutatingadmissionpolicybinding",
        versions: &[
            VersionRow::new("v1"),
            VersionRow::deprecated(
                "v1beta1",
                "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicyBinding is deprecated in v1.37+, unavailable in \
                 v1.40+; use admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding",
            ),
            VersionRow::deprecated(
                "v1alpha1",
                "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicyBinding is deprecated in v1.35+, unavailable in \
                 v1.38+",
            )
            .converted(convert::admissionregistration::binding_from_v1alpha1, Clone::clone),
        ],
        ..policy(KindBehavior {
            defaults: Some(defaults::admissionregistration::binding),
            rules: Some(validation::admission_policy::MUTATING_BINDING),
            strategy: Some(strategy::MUTATING_ADMISSION_POLICY_BINDING),
            warnings: Some(warnings::admission_policy),
            status_warnings: None,
            columns: Some(print::admissionregistration::MUTATING_ADMISSION_POLICY_BINDING),
        })
    },
    Resource {
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        singular: "mutatingwebhookconfiguration",
        ..policy(KindBehavior {
            defaults: Some(defaults::admissionregistration::mutating_webhooks),
            rules: Some(validation::admissionregistration::MUTATING_WEBHOOKS),
            strategy: Some(strategy::MUTATING_WEBHOOK_CONFIGURATION),
            warnings: Some(warnings::webhook_configuration),
            status_warnings: None,
            columns: Some(print::admissionregistration::MUTATING_WEBHOOK_CONFIGURATION),
        })
    },
    Resource {
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        singular: "validatingadmissionpolicy",
        subresources: &[SubresourceRow::status("ValidatingAdmissionPolicy")],
        ..policy(KindBehavior {
            defaults: Some(defaults::admissionregistration::policy),
            rules: Some(validation::admission_policy::VALIDATING_POLICY),
            strategy: Some(strategy::VALIDATING_ADMISSION_POLICY),
            warnings: Some(warnings::admission_policy),
            status_warnings: None,
            columns: Some(print::admissionregistration::VALIDATING_ADMISSION_POLICY),
        })
    },
    Resource {
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        singular: "validatingadmissionpolicybinding",
        ..policy(KindBehavior {
            defaults: Some(defaults::admissionregistration::binding),
            rules: Some(validation::admission_policy::VALIDATING_BINDING),
            strategy: Some(strategy::VALIDATING_ADMISSION_POLICY_BINDING),
            warnings: Some(warnings::admission_policy),
            status_warnings: None,
            columns: Some(print::admissionregistration::VALIDATING_ADMISSION_POLICY_BINDING),
        })
    },
    Resource {
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        singular: "validatingwebhookconfiguration",
        ..policy(KindBehavior {
            defaults: Some(defaults::admissionregistration::validating_webhooks),
            rules: Some(validation::admissionregistration::VALIDATING_WEBHOOKS),
            strategy: Some(strategy::VALIDATING_WEBHOOK_CONFIGURATION),
            warnings: Some(warnings::webhook_configuration),
            status_warnings: None,
            columns: Some(print::admissionregistration::VALIDATING_WEBHOOK_CONFIGURATION),
        })
    },
];

const fn policy(behavior: KindBehavior) -> Resource {
    Resource {
        group: "admissionregistration.k8s.io",
        categories: &["api-extensions"],
        ..Resource::cluster(behavior)
    }
}
