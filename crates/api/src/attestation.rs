//! The words of tokens for admission webhooks (KEP-6060): what such a token is bound to, what it attests, and whom it is for.
//!
//! There are two sets of names for the same thing, the KEP's and those of Kubernetes 1.37. A request speaks one of them; a token
//! carries both. Both are declared here and nowhere else.

use value::{Str, Value, format_smolstr};

/// The feature gate.
pub const GATE: &str = "APIServerWebhookAuthenticationToken";
/// How long such a token lives, in seconds; nobody may ask for less, and whoever asks for more gets this.
pub const LIFETIME: i64 = 600;
/// Stands for every API group, and is a name of its own where permissions are asked for.
pub const EVERY_GROUP: &str = "*";
/// The namespace of the account in whose name the server itself asks for such tokens.
pub const ACCOUNT_NAMESPACE: &str = "kube-system";
/// The name of that account.
pub const ACCOUNT_NAME: &str = "webhook-auth";
/// The verb that an account needs for what it has attested.
pub const VERB: &str = "attest";

/// What the core group is called where permissions are asked for: an empty name would mean every name.
const CORE_NAME: &str = "core";
/// The group and version of what a token can be bound to.
const CONFIGURATION_VERSION: &str = "admissionregistration.k8s.io/v1";
/// The port of a service reference that names none.
const DEFAULT_PORT: i64 = 443;

/// A set of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttestationDialect {
    /// Kubernetes 1.37: `attestations`.
    Kubernetes,
    /// The KEP: `attestationClaims`.
    Kep,
}

impl AttestationDialect {
    /// Both.
    pub const ALL: [AttestationDialect; 2] = [AttestationDialect::Kubernetes, AttestationDialect::Kep];

    /// The one that a request with this `spec` speaks, by the field that is filled in or, if none is, by the field that is there;
    /// with neither field it is Kubernetes'.
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

    /// The field of a request's `spec`, and the claim of a token.
    pub fn field(self) -> &'static str {
        match self {
            AttestationDialect::Kubernetes => "attestations",
            AttestationDialect::Kep => "attestationClaims",
        }
    }

    /// The one key in it.
    pub fn key(self) -> &'static str {
        match self {
            AttestationDialect::Kubernetes => "admissionReviewAPIGroups",
            AttestationDialect::Kep => "webhook-authentication.k8s.io/allowedAPIGroup",
        }
    }

    /// Group and resource that permission to attest is asked for on.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            AttestationDialect::Kubernetes => ("authentication.k8s.io", "admissionReviewAPIGroups"),
            AttestationDialect::Kep => ("webhook-authentication.k8s.io", "apigroups"),
        }
    }

    /// The name on that resource that stands for an API group.
    pub fn name_of(self, group: &str) -> &str {
        if group.is_empty() { CORE_NAME } else { group }
    }

    /// Whether a group cannot be asked for, because its name already stands for another one's permission.
    pub fn is_reserved(self, group: &str) -> bool {
        self == AttestationDialect::Kep && group == CORE_NAME
    }
}

/// What a token for webhooks is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookConfigurationKind {
    /// A `ValidatingWebhookConfiguration`.
    Validating,
    /// A `MutatingWebhookConfiguration`.
    Mutating,
}

impl WebhookConfigurationKind {
    /// Both.
    pub const ALL: [WebhookConfigurationKind; 2] =
        [WebhookConfigurationKind::Validating, WebhookConfigurationKind::Mutating];

    /// The kind of this name.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.kind() == kind)
    }

    /// The kind that a `boundObjectRef` is to, if to one of them.
    pub fn of_reference(reference: &Value) -> Option<Self> {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        Self::of_kind(text("kind")).filter(|_| text("apiVersion") == CONFIGURATION_VERSION)
    }

    /// The kind.
    pub fn kind(self) -> &'static str {
        match self {
            WebhookConfigurationKind::Validating => "ValidatingWebhookConfiguration",
            WebhookConfigurationKind::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// The group and version of the kind.
    pub fn api_version(self) -> &'static str {
        CONFIGURATION_VERSION
    }

    /// The claim of a token.
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

/// Whom a token for a webhook is for, from its `clientConfig`: the URL as it stands, or one made of the service reference with its
/// port and path.
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
