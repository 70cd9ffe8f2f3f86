//! Which kinds are out of reach.

use api::GroupResource;

use crate::{Attributes, Cluster};

/// The API group of webhook configurations and policies.
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Who may intercept requests for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exempt {
    /// Everybody.
    No,
    /// Webhook configurations: not webhooks that are registered through the API.
    FromWebhooks,
    /// Policies and bindings: not what is registered through the API, which would let it lock itself in.
    FromAll,
    /// Reviews: nobody. Nothing is stored, and what intercepted them could break authentication and authorization.
    Always,
}

/// Who may intercept a request. Custom resources are never exempt, whatever their group and name are.
pub fn exempt(attributes: &Attributes<'_>, cluster: &dyn Cluster) -> Exempt {
    match of_built_in(&attributes.resource) {
        Exempt::No => Exempt::No,
        _ if cluster.is_custom(&attributes.resource, &attributes.version) => Exempt::No,
        exempt => exempt,
    }
}

pub(super) fn of_built_in(resource: &GroupResource) -> Exempt {
    match (resource.group.as_str(), resource.resource.as_str()) {
        (ADMISSION, "validatingwebhookconfigurations" | "mutatingwebhookconfigurations") => {
            Exempt::FromWebhooks
        }
        (
            ADMISSION,
            "validatingadmissionpolicies"
            | "validatingadmissionpolicybindings"
            | "mutatingadmissionpolicies"
            | "mutatingadmissionpolicybindings",
        ) => Exempt::FromAll,
        ("authentication.k8s.io", "selfsubjectreviews" | "tokenreviews")
        | (
            "authorization.k8s.io",
            "localsubjectaccessreviews"
            | "selfsubjectaccessreviews"
            | "selfsubjectrulesreviews"
            | "subjectaccessreviews",
        ) => Exempt::Always,
        _ => Exempt::No,
    }
}
