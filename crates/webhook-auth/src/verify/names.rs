//! The names of both dialects, each declared once.
//!
//! KEP-6060 and Kubernetes 1.37 use different names for fields and claims. A token may carry the claims of
//! either, or of both.

/// The claim with everything that Kubernetes adds to a JWT.
pub const KUBERNETES: &str = "kubernetes.io";

/// The group value of tokens that are valid for all API groups.
pub const EVERY_GROUP: &str = "*";

/// The maximum lifetime of a token for a webhook, in seconds. The API server shortens longer requests to it.
pub const LIFETIME_SECONDS: u64 = 600;

/// The names of request fields and token claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Kubernetes 1.37: `attestations` with the key `admissionReviewAPIGroups`.
    Attestations,
    /// KEP-6060: `attestationClaims` with the key `webhook-authentication.k8s.io/allowedAPIGroup`.
    AttestationClaims,
}

impl Dialect {
    /// The name of the TokenRequest's `spec` field and of the claim.
    pub const fn field(self) -> &'static str {
        match self {
            Dialect::Attestations => "attestations",
            Dialect::AttestationClaims => "attestationClaims",
        }
    }

    /// The key in this field whose single value is the API group.
    pub const fn group_key(self) -> &'static str {
        match self {
            Dialect::Attestations => "admissionReviewAPIGroups",
            Dialect::AttestationClaims => "webhook-authentication.k8s.io/allowedAPIGroup",
        }
    }

    /// Whether the dialect supports the core group, `""`.
    pub const fn has_core_group(self) -> bool {
        matches!(self, Dialect::AttestationClaims)
    }
}

/// The kinds of webhook configurations that a token can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigurationKind {
    /// The token is bound to a `ValidatingWebhookConfiguration`.
    Validating,
    /// The token is bound to a `MutatingWebhookConfiguration`.
    Mutating,
}

impl ConfigurationKind {
    /// The kind's name as in manifests.
    pub const fn kind(self) -> &'static str {
        match self {
            ConfigurationKind::Validating => "ValidatingWebhookConfiguration",
            ConfigurationKind::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// The API version of both kinds.
    pub const fn api_version(self) -> &'static str {
        "admissionregistration.k8s.io/v1"
    }

    /// The claim with the configuration that a token is bound to.
    pub const fn claim(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (ConfigurationKind::Validating, Dialect::Attestations) => "validatingwebhookconfiguration",
            (ConfigurationKind::Validating, Dialect::AttestationClaims) => "validatingWebhookConfiguration",
            (ConfigurationKind::Mutating, Dialect::Attestations) => "mutatingwebhookconfiguration",
            (ConfigurationKind::Mutating, Dialect::AttestationClaims) => "mutatingWebhookConfiguration",
        }
    }
}

impl std::fmt::Display for ConfigurationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}
