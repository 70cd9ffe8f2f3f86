//! Kinds that are exempt from webhooks and policies.

use api::GroupResource;
use api::groups::ADMISSION_REGISTRATION;

use crate::{AdmissionAttributes, ClusterView};

/// Which webhooks and policies must not intercept a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exemption {
    None,
    /// Webhook configurations are exempt from webhooks that are registered through the API.
    FromApiWebhooks,
    /// Policies and bindings are exempt from webhooks and policies of the API, which could otherwise prevent
    /// their own removal.
    FromApi,
    /// Reviews are exempt from everything. They are not stored, and intercepting them could break
    /// authentication and authorization.
    Total,
}

/// Custom resources are never exempt, whatever their group and name.
pub fn exemption(attributes: &AdmissionAttributes<'_>, cluster: &dyn ClusterView) -> Exemption {
    match exemption_of_built_in(&attributes.resource) {
        Exemption::None => Exemption::None,
        _ if cluster.is_custom(&attributes.resource, &attributes.version) => Exemption::None,
        exemption => exemption,
    }
}

pub(super) fn exemption_of_built_in(resource: &GroupResource) -> Exemption {
    match (resource.group.as_str(), resource.resource.as_str()) {
        (ADMISSION_REGISTRATION, "validatingwebhookconfigurations" | "mutatingwebhookconfigurations") => {
            Exemption::FromApiWebhooks
        }
        (
            ADMISSION_REGISTRATION,
            "validatingadmissionpolicies"
            | "validatingadmissionpolicybindings"
            | "mutatingadmissionpolicies"
            | "mutatingadmissionpolicybindings",
        ) => Exemption::FromApi,
        ("authentication.k8s.io", "selfsubjectreviews" | "tokenreviews")
        | (
            "authorization.k8s.io",
            "localsubjectaccessreviews"
            | "selfsubjectaccessreviews"
            | "selfsubjectrulesreviews"
            | "subjectaccessreviews",
        ) => Exemption::Total,
        _ => Exemption::None,
    }
}
