//! Names and constants of service account tokens for admission webhooks (KEP-6060): the objects they are bound to,
//! their attestations and their audience.
//!
//! The KEP and Kubernetes 1.37 use different names. A request uses one set, a token carries both. Both sets are
//! declared only here.

use value::{Str, Value, format_smolstr};

use crate::namespaces;

/// Name of the feature gate.
pub const GATE: &str = "APIServerWebhookAuthenticationToken";
/// Lifetime of a token in seconds. A request for a shorter one is refused, a request for a longer one gets this.
pub const LIFETIME: i64 = 600;
/// Stands for all API groups, both in requests and in authorization checks.
pub const EVERY_GROUP: &str = "*";
/// Namespace of the service account with which the server requests tokens.
pub const ACCOUNT_NAMESPACE: &str = namespaces::SYSTEM;
/// Name of the service account with which the server requests tokens.
pub const ACCOUNT_NAME: &str = "webhook-auth";
/// Verb that a service account needs for the groups it requests attestations for.
pub const VERB: &str = "attest";

/// Name of the core group in authorization checks, where an empty name would mean all names.
const CORE_NAME: &str = "core";
/// API version of the objects that a token can be bound to.
const CONFIGURATION_VERSION: &str = "admissionregistration.k8s.io/v1";
/// Port of a service reference without a port.
const DEFAULT_PORT: i64 = 443;

/// The set of names that a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttestationDialect {
    /// Kubernetes 1.37: the field `attestations`.
    Kubernetes,
    /// The KEP: the field `attestationClaims`.
    Kep,
}

impl AttestationDialect {
    /// Both sets of names.
    pub const ALL: [AttestationDialect; 2] = [AttestationDialect::Kubernetes, AttestationDialect::Kep];

    /// Detects the dialect of a TokenRequest's `spec`: by the field that is not empty, else by the field that is
    /// present, else Kubernetes'.
    pub fn of(spec: Option<&Value>) -> Self {
        let given = |dialect: AttestationDialect| spec.and_then(|spec| spec.get(dialect.field()));
        let filled = |dialect| given(dialect).and_then(Value::as_map).is_some_and(|map| !map.is_empty());
        let only_kep =
            given(AttestationDialect::Kep).is_some() && given(AttestationDialect::Kubernetes).is_none();
        if !filled(AttestationDialect::Kubernetes) && (filled(AttestationDialect::Kep) || only_kep) {
            AttestationDialect::Kep
        } else {
            AttestationDialect::Kubernetes
        }
    }

    /// Field of the request's `spec`, and claim of the token.
    pub fn field(self) -> &'static str {
        match self {
            AttestationDialect::Kubernetes => "attestations",
            AttestationDialect::Kep => "attestationClaims",
        }
    }

    /// The single key inside that field.
    pub fn key(self) -> &'static str {
        match self {
            AttestationDialect::Kubernetes => "admissionReviewAPIGroups",
            AttestationDialect::Kep => "webhook-authentication.k8s.io/allowedAPIGroup",
        }
    }

    /// API group and resource of the authorization check for attesting.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            AttestationDialect::Kubernetes => ("authentication.k8s.io", "admissionReviewAPIGroups"),
            AttestationDialect::Kep => ("webhook-authentication.k8s.io", "apigroups"),
        }
    }

    /// Resource name that stands for an API group in the authorization check.
    pub fn name_of(self, group: &str) -> &str {
        if group.is_empty() { CORE_NAME } else { group }
    }

    /// True if a group cannot be requested, because its name stands for another group in the authorization check.
    pub fn is_reserved(self, group: &str) -> bool {
        self == AttestationDialect::Kep && group == CORE_NAME
    }
}

/// Kinds of webhook configurations that a token can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookConfigurationKind {
    Validating,
    Mutating,
}

impl WebhookConfigurationKind {
    pub const ALL: [WebhookConfigurationKind; 2] =
        [WebhookConfigurationKind::Validating, WebhookConfigurationKind::Mutating];

    /// Looks up a kind by its name.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.kind() == kind)
    }

    /// The kind that a `boundObjectRef` refers to; `None` if it is not a webhook configuration of v1.
    pub fn of_reference(reference: &Value) -> Option<Self> {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        Self::of_kind(text("kind")).filter(|_| text("apiVersion") == CONFIGURATION_VERSION)
    }

    pub fn kind(self) -> &'static str {
        match self {
            WebhookConfigurationKind::Validating => "ValidatingWebhookConfiguration",
            WebhookConfigurationKind::Mutating => "MutatingWebhookConfiguration",
        }
    }

    pub fn api_version(self) -> &'static str {
        CONFIGURATION_VERSION
    }

    /// Name of the claim that binds a token to this kind.
    pub fn claim(self, dialect: AttestationDialect) -> &'static str {
        match (self, dialect) {
            (WebhookConfigurationKind::Validating, AttestationDialect::Kubernetes) => {
                "validatingwebhookconfiguration"
            }
            (WebhookConfigurationKind::Validating, AttestationDialect::Kep) => {
                "validatingWebhookConfiguration"
            }
            (WebhookConfigurationKind::Mutating, AttestationDialect::Kubernetes) => {
                "mutatingwebhookconfiguration"
            }
            (WebhookConfigurationKind::Mutating, AttestationDialect::Kep) => "mutatingWebhookConfiguration",
        }
    }
}

/// Audience of a webhook's tokens, from its `clientConfig`: the URL unchanged, or a URL built from the service
/// reference with port and path.
pub fn audience(client_config: &Value) -> Option<Str> {
    let text = |keys: &[&str]| client_config.str_at(keys);
    if let Some(url) = text(&["url"]) {
        return Some(url.into());
    }
    let service = client_config.get("service").filter(|service| service.as_map().is_some())?;
    let (name, namespace) = (text(&["service", "name"])?, text(&["service", "namespace"])?);
    let port = service.int_at(&["port"]).unwrap_or(DEFAULT_PORT);
    let path = service.str_at(&["path"]).unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some(format_smolstr!("https://{name}.{namespace}.svc:{port}{slash}{path}"))
}

#[cfg(test)]
mod tests;
