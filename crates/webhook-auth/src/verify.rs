//! [`Verifier`]: verifies a token for a request. No I/O, no clock.

mod audience;
mod claims;
mod discovery;
mod json;
mod keys;
mod names;
mod refresh;
mod rejection;
mod request;
mod token;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use audience::{ClientConfig, ServiceReference};
pub use claims::{Configuration, Groups, Reference};
pub use discovery::{JWKS_PATH, JWKS_TYPE, PROVIDER_PATH, Provider, ProviderError};
#[cfg(feature = "keys")]
pub(crate) use keys::MAX_DOCUMENT;
pub use keys::{Algorithm, KeyError, KeySet, Keys};
pub use names::{ConfigurationKind, Dialect, EVERY_GROUP, KUBERNETES, LIFETIME_SECONDS};
pub use refresh::{Action, Need, Refresh, Refreshed};
pub use rejection::{Reason, Rejection};
pub use request::{AdmissionRequest, Kind, ReviewError, ReviewedResource};
pub use token::MAX_TOKEN;

use claims::{NumericDate, Payload};
use keys::CheckedJwk;
use token::DecodedToken;

/// Upper limit of [`Expected::skew`].
pub const MAX_SKEW: Duration = Duration::from_mins(5);

/// The properties that a webhook's tokens must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Accepted issuers, exactly as in the tokens: the API server's `--service-account-issuer`, or several
    /// during a change.
    pub issuers: Vec<String>,
    /// Accepted audiences: the result of [`ClientConfig::audience`] for the webhook's `clientConfig`, or
    /// several if several entries lead to the same webhook.
    pub audiences: Vec<String>,
    /// The kind of the webhook's configuration.
    pub kind: ConfigurationKind,
    /// If set, tokens bound to other configurations are rejected, even with the right audience.
    pub name: Option<String>,
    /// If set, tokens bound to an earlier configuration of that name are rejected at once, not only when they
    /// expire.
    pub uid: Option<String>,
    /// Accepted subjects, for example `system:serviceaccount:kube-system:webhook-auth`; empty accepts all.
    pub subjects: Vec<String>,
    /// The tolerated clock skew. At most [`MAX_SKEW`].
    pub skew: Duration,
    /// Tokens with a longer lifetime are rejected.
    pub max_lifetime: Duration,
}

impl Expected {
    /// Tokens of one issuer for one webhook, with one minute of clock skew, as in Kubernetes.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>, kind: ConfigurationKind) -> Self {
        Expected {
            issuers: vec![issuer.into()],
            audiences: vec![audience.into()],
            kind,
            name: None,
            uid: None,
            subjects: Vec::new(),
            skew: Duration::from_mins(1),
            max_lifetime: Duration::from_secs(LIFETIME_SECONDS),
        }
    }
}

/// The expectations would accept too much, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectedError {
    /// No issuer, or an empty one.
    #[error("the expected issuer is missing or empty")]
    Issuer,
    /// No audience, or an empty one.
    #[error("the expected audience is missing or empty")]
    Audience,
    /// An empty name, uid or subject.
    #[error("the expected name, uid or subject is empty")]
    Empty,
    /// The skew exceeds [`MAX_SKEW`].
    #[error("clocks may differ by at most 300 seconds")]
    Skew,
}

/// Verifies the tokens of one webhook.
#[derive(Clone, Debug)]
pub struct Verifier {
    expected: Expected,
    keys: Keys,
}

/// The content of a valid token. Whether it is valid for a request is checked by [`Identity::permits`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    subject: String,
    namespace: String,
    account: Reference,
    issuer: String,
    audience: String,
    id: Option<String>,
    configuration: Configuration,
    groups: Groups,
    expires: SystemTime,
}

/// A caller whose token is valid for the request. Only [`Identity::permits`] creates one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    identity: Identity,
}

impl Verifier {
    /// `keys` can be replaced while the verifier is in use.
    pub fn new(expected: Expected, keys: Keys) -> Result<Self, ExpectedError> {
        let none_or_empty = |list: &[String]| list.is_empty() || list.iter().any(String::is_empty);
        if none_or_empty(&expected.issuers) {
            return Err(ExpectedError::Issuer);
        }
        if none_or_empty(&expected.audiences) {
            return Err(ExpectedError::Audience);
        }
        let mut texts = expected.name.iter().chain(&expected.uid).chain(&expected.subjects);
        if texts.any(String::is_empty) {
            return Err(ExpectedError::Empty);
        }
        if expected.skew > MAX_SKEW {
            return Err(ExpectedError::Skew);
        }
        Ok(Verifier { expected, keys })
    }

    /// The expected properties of tokens.
    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    /// The shared keys; replacing them affects this verifier.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Verifies that the token is valid at this time for this request.
    pub fn verify(
        &self,
        token: &str,
        now: SystemTime,
        request: &AdmissionRequest,
    ) -> Result<Verified, Rejection> {
        self.authenticate(token, now)?.permits(request)
    }

    /// Verifies that the token is valid at this time. [`Identity::permits`] then checks it against the
    /// request.
    pub fn authenticate(&self, token: &str, now: SystemTime) -> Result<Identity, Rejection> {
        let DecodedToken { algorithm, key, payload, signature, signed } = DecodedToken::of(token)?;
        // Checked first, so that tokens of other issuers do not cause a fetch of keys.
        let issuer = payload.iss.clone().unwrap_or_default();
        if !self.expected.issuers.contains(&issuer) {
            let (found, expected) = (rejection::excerpt(&issuer), &self.expected.issuers);
            let detail = format!("the token's issuer is {found:?}, but {expected:?} is expected");
            return Err(Rejection::new(Reason::Issuer, detail));
        }
        // INVARIANT: nothing else is read from the payload before the signature is verified.
        match self.keys.current().check(&key, algorithm, signed.as_bytes(), &signature) {
            CheckedJwk::Good => {}
            CheckedJwk::UnknownKey => {
                return Err(Rejection::new(Reason::UnknownKey, "a key that the issuer does not publish"));
            }
            CheckedJwk::OtherAlgorithm => {
                return Err(Rejection::new(Reason::Algorithm, "not the algorithm of the key"));
            }
            CheckedJwk::Bad => return Err(Rejection::new(Reason::Signature, "the signature does not match")),
        }
        let audience = self.audience(&payload)?;
        let expires = self.times(&payload, now)?;
        let Some(kubernetes) = &payload.kubernetes else {
            return Err(Rejection::new(Reason::Subject, format!("no claim `{KUBERNETES}`")));
        };
        let account = kubernetes.serviceaccount.clone().unwrap_or_default();
        let namespace = kubernetes.namespace.clone();
        let subject = payload.sub.clone().unwrap_or_default();
        self.subject(&subject, &namespace, &account)?;
        let configuration = kubernetes.configuration()?;
        self.configuration(&configuration)?;
        let groups = kubernetes.groups()?;
        let id = payload.jti.clone();
        Ok(Identity { subject, namespace, account, issuer, audience, id, configuration, groups, expires })
    }

    fn audience(&self, payload: &Payload) -> Result<String, Rejection> {
        match payload.audience() {
            Some(audience) if self.expected.audiences.iter().any(|own| own == audience) => {
                Ok(audience.to_owned())
            }
            Some(other) => Err(Rejection::new(Reason::Audience, format!("for {other:?}"))),
            None => Err(Rejection::new(Reason::Audience, "not for exactly one audience")),
        }
    }

    fn times(&self, payload: &Payload, now: SystemTime) -> Result<SystemTime, Rejection> {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| seconds(since.as_secs()));
        let skew = seconds(self.expected.skew.as_secs());
        let Some(NumericDate(ends)) = payload.exp else {
            return Err(Rejection::new(Reason::Expired, "no end"));
        };
        if now.saturating_sub(skew) >= ends {
            return Err(Rejection::new(Reason::Expired, format!("ended {} s ago", now.saturating_sub(ends))));
        }
        if let Some(NumericDate(begins)) = payload.nbf
            && now.saturating_add(skew) < begins
        {
            return Err(Rejection::new(Reason::NotYetValid, format!("begins in {} s", begins - now)));
        }
        let Some(NumericDate(issued)) = payload.iat else {
            return Err(Rejection::new(Reason::Lifetime, "not said when it was issued"));
        };
        if now.saturating_add(skew) < issued {
            return Err(Rejection::new(Reason::Lifetime, "issued in the future"));
        }
        if ends.saturating_sub(issued) > seconds(self.expected.max_lifetime.as_secs()) {
            return Err(Rejection::new(Reason::Lifetime, format!("lives {} s", ends - issued)));
        }
        let ends =
            u64::try_from(ends).ok().and_then(|ends| UNIX_EPOCH.checked_add(Duration::from_secs(ends)));
        ends.ok_or_else(|| Rejection::new(Reason::Expired, "no end that means anything"))
    }

    fn subject(&self, subject: &str, namespace: &str, account: &Reference) -> Result<(), Rejection> {
        let named = !namespace.is_empty() && !account.name.is_empty();
        if !named || subject != format!("system:serviceaccount:{namespace}:{}", account.name) {
            let detail = format!("{subject:?} is not the service account of the token");
            return Err(Rejection::new(Reason::Subject, detail));
        }
        let expected = &self.expected.subjects;
        if !expected.is_empty() && !expected.iter().any(|own| own == subject) {
            return Err(Rejection::new(Reason::OtherSubject, format!("{subject:?} is not let in")));
        }
        Ok(())
    }

    fn configuration(&self, bound: &Configuration) -> Result<(), Rejection> {
        let Configuration { kind, name, uid } = bound;
        if *kind != self.expected.kind {
            return Err(Rejection::new(Reason::WrongKind, format!("bound to a {kind}")));
        }
        let other =
            |expected: &Option<String>, bound: &str| expected.as_deref().is_some_and(|own| own != bound);
        if other(&self.expected.name, name) || other(&self.expected.uid, uid) {
            return Err(Rejection::new(Reason::WrongConfiguration, format!("bound to {name:?} ({uid:?})")));
        }
        Ok(())
    }
}

fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

impl Identity {
    /// Checks that the token is valid for the request's API group.
    pub fn permits(&self, request: &AdmissionRequest) -> Result<Verified, Rejection> {
        let permitted = match &self.groups {
            Groups::Every => true,
            groups @ Groups::One(_) => request.group().is_some_and(|group| groups.include(group)),
        };
        if permitted {
            return Ok(Verified { identity: self.clone() });
        }
        let detail = format!(
            "the token of {:?} is for {:?}, the request is about resource {:?} and kind {:?}",
            self.subject, self.groups, request.resource.group, request.kind.group
        );
        Err(Rejection::new(Reason::Group, detail))
    }

    /// The username of the service account, `system:serviceaccount:NAMESPACE:NAME`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The namespace of the service account.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name and uid of the service account.
    pub fn service_account(&self) -> &Reference {
        &self.account
    }

    /// The issuer of the token.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The audience of the token.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// The `jti`, which also appears in the API server's audit log.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The configuration that the token is bound to.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The API groups that the token is valid for.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The expiration time of the token.
    pub fn expires(&self) -> SystemTime {
        self.expires
    }
}

impl Verified {
    /// The identity in the caller's token.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}
