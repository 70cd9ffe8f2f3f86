//! The words of both dialects, each declared once.
//!
//! KEP-6060 names fields and claims one way, Kubernetes 1.37 another. A token may carry the claims of either, or of both.

/// The claim that holds everything Kubernetes says beyond a plain JWT.
pub const KUBERNETES: &str = "kubernetes.io";

/// The value that stands for every API group.
pub const EVERY_GROUP: &str = "*";

/// The most that a token for a webhook lives, in seconds: what the API server shortens longer requests to.
pub const LIFETIME_SECONDS: u64 = 600;

/// How the fields of a request and the claims of a token are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Kubernetes 1.37's: `attestations` with the key `admissionReviewAPIGroups`.
    Attestations,
    /// KEP-6060's: `attestationClaims` with the key `webhook-authentication.k8s.io/allowedAPIGroup`.
    AttestationClaims,
}

impl Dialect {
    /// The field of a TokenRequest's `spec`, and the claim.
    pub const fn field(self) -> &'static str {
        match self {
            Dialect::Attestations => "attestations",
            Dialect::AttestationClaims => "attestationClaims",
        }
    }

    /// The key below it whose one value is the API group.
    pub const fn group_key(self) -> &'static str {
        match self {
            Dialect::Attestations => "admissionReviewAPIGroups",
            Dialect::AttestationClaims => "webhook-authentication.k8s.io/allowedAPIGroup",
        }
    }

    /// Whether the core group, `""`, can be attested in it.
    pub const fn has_core_group(self) -> bool {
        matches!(self, Dialect::AttestationClaims)
    }
}

/// The two kinds of configuration that a token for a webhook can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigurationKind {
    /// `ValidatingWebhookConfiguration`.
    Validating,
    /// `MutatingWebhookConfiguration`.
    Mutating,
}

impl ConfigurationKind {
    /// Its kind.
    pub const fn kind(self) -> &'static str {
        match self {
            ConfigurationKind::Validating => "ValidatingWebhookConfiguration",
            ConfigurationKind::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// The API version of both.
    pub const fn api_version(self) -> &'static str {
        "admissionregistration.k8s.io/v1"
    }

    /// The claim that names the configuration a token is bound to.
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
