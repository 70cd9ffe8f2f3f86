//! [`Payload`]: the claims of a token, in one or both dialects.
//!
//! A claim of the wrong type invalidates the token. If it counted as absent, a token with an invalid `exp`
//! would never expire.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::names::{ConfigurationKind, Dialect, EVERY_GROUP};
use super::rejection::{Reason, Rejection};

/// An object by name and uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Reference {
    /// Empty if the claim has no name.
    #[serde(default)]
    pub name: String,
    /// Empty if the claim has no uid.
    #[serde(default)]
    pub uid: String,
}

/// A webhook configuration that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Whether the configuration is validating or mutating.
    pub kind: ConfigurationKind,
    /// The name of the configuration object.
    pub name: String,
    /// Changes if the configuration is deleted and recreated.
    pub uid: String,
}

/// The API groups about which a token's bearer may call webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// All groups, for kube-apiserver itself.
    Every,
    /// One group; `""` is the core group.
    One(String),
}

impl Groups {
    /// Whether the group is included.
    pub fn include(&self, group: &str) -> bool {
        match self {
            Groups::Every => true,
            Groups::One(own) => own == group,
        }
    }
}

/// Seconds since the Unix epoch. Fractions are truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NumericDate(pub(super) i64);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        let whole = number.as_i64().or_else(|| {
            #[expect(clippy::cast_possible_truncation, reason = "within what an f64 holds exactly")]
            number.as_f64().filter(|seconds| seconds.abs() < 9e15).map(|seconds| seconds as i64)
        });
        // Larger values are not meaningful dates, and sums of them could overflow.
        whole
            .filter(|seconds| seconds.unsigned_abs() < 9_000_000_000_000_000)
            .map(NumericDate)
            .ok_or_else(|| serde::de::Error::custom("not a date"))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Several(Vec<String>),
}

type Attestations = BTreeMap<String, Vec<String>>;

/// The claims that are checked.
#[derive(Deserialize)]
pub(super) struct Payload {
    pub(super) iss: Option<String>,
    pub(super) sub: Option<String>,
    pub(super) jti: Option<String>,
    aud: Option<Audiences>,
    pub(super) exp: Option<NumericDate>,
    pub(super) nbf: Option<NumericDate>,
    pub(super) iat: Option<NumericDate>,
    // The name is `names::KUBERNETES`; an attribute cannot use a constant.
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Option<Kubernetes>,
}

impl Payload {
    /// The audience, if there is exactly one: each recipient of a token with several could replay it to the
    /// others.
    pub(super) fn audience(&self) -> Option<&str> {
        match self.aud.as_ref()? {
            Audiences::One(one) => Some(one),
            Audiences::Several(list) => match list.as_slice() {
                [one] => Some(one),
                _ => None,
            },
        }
    }
}

/// The fields of the claim `kubernetes.io` that are checked, in the names of both dialects.
#[derive(Deserialize)]
pub(super) struct Kubernetes {
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) serviceaccount: Option<Reference>,
    pod: Option<IgnoredAny>,
    secret: Option<IgnoredAny>,
    node: Option<IgnoredAny>,
    validatingwebhookconfiguration: Option<Reference>,
    #[serde(rename = "validatingWebhookConfiguration")]
    kep_validating: Option<Reference>,
    mutatingwebhookconfiguration: Option<Reference>,
    #[serde(rename = "mutatingWebhookConfiguration")]
    kep_mutating: Option<Reference>,
    attestations: Option<Attestations>,
    #[serde(rename = "attestationClaims")]
    attestation_claims: Option<Attestations>,
}

impl Kubernetes {
    /// The single configuration that the token is bound to.
    pub(super) fn configuration(&self) -> Result<Configuration, Rejection> {
        let of = |kind: ConfigurationKind| {
            let (one, other) = match kind {
                ConfigurationKind::Validating => (&self.validatingwebhookconfiguration, &self.kep_validating),
                ConfigurationKind::Mutating => (&self.mutatingwebhookconfiguration, &self.kep_mutating),
            };
            agreed(one.as_ref(), other.as_ref())
        };
        let (validating, mutating) = (of(ConfigurationKind::Validating)?, of(ConfigurationKind::Mutating)?);
        if self.pod.is_some() || self.secret.is_some() || self.node.is_some() {
            return Err(Rejection::new(Reason::BoundTwice, "bound to a pod, a secret or a node"));
        }
        let (kind, reference) = match (validating, mutating) {
            (Some(reference), None) => (ConfigurationKind::Validating, reference),
            (None, Some(reference)) => (ConfigurationKind::Mutating, reference),
            (None, None) => return Err(Rejection::new(Reason::NotBound, "bound to no configuration")),
            (Some(_), Some(_)) => {
                return Err(Rejection::new(Reason::BoundTwice, "bound to configurations of both kinds"));
            }
        };
        if reference.name.is_empty() || reference.uid.is_empty() {
            return Err(Rejection::new(Reason::NotBound, "bound to a configuration without name or uid"));
        }
        Ok(Configuration { kind, name: reference.name.clone(), uid: reference.uid.clone() })
    }

    /// The groups that the token is valid for.
    pub(super) fn groups(&self) -> Result<Groups, Rejection> {
        let of = |dialect: Dialect| {
            let claims = match dialect {
                Dialect::Attestations => self.attestations.as_ref(),
                Dialect::AttestationClaims => self.attestation_claims.as_ref(),
            };
            let Some(claims) = claims else { return Ok(None) };
            match claims.get(dialect.group_key()).map(Vec::as_slice) {
                Some([one]) => Ok(Some(one)),
                _ => {
                    let detail = format!("`{}` does not name exactly one group", dialect.field());
                    Err(Rejection::new(Reason::NoGroup, detail))
                }
            }
        };
        let (ours, kep) = (of(Dialect::Attestations)?, of(Dialect::AttestationClaims)?);
        let Some(group) = agreed(ours, kep)? else {
            return Err(Rejection::new(Reason::NoGroup, "no group is attested"));
        };
        if group.is_empty() && kep.is_none() {
            return Err(Rejection::new(Reason::NoGroup, "the core group cannot be attested in this dialect"));
        }
        Ok(if group == EVERY_GROUP { Groups::Every } else { Groups::One(group.clone()) })
    }
}

/// The value in one dialect, or in both if they agree.
fn agreed<T: PartialEq>(one: Option<T>, other: Option<T>) -> Result<Option<T>, Rejection> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => {
            Err(Rejection::new(Reason::Disagreement, "the two sets of claims differ"))
        }
        (one, other) => Ok(one.or(other)),
    }
}
