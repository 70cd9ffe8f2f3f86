//! [`Verifier`]: a token and a request → who is calling, or why nobody is believed. No I/O, no clock.

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
pub use request::{AdmissionRequest, Kind, Resource, ReviewError};
pub use token::MAX_TOKEN;

use claims::{NumericDate, Payload};
use keys::Checked;
use token::Parts;

/// The most that clocks may be said to differ.
pub const MAX_SKEW: Duration = Duration::from_mins(5);

/// What a webhook expects of the tokens it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Who issues them, exactly as in the tokens: the API server's `--service-account-issuer`, or several while that changes.
    pub issuers: Vec<String>,
    /// Whom they are for: what [`ClientConfig::audience`] makes of the webhook's `clientConfig`, or several if several entries
    /// lead to the same webhook.
    pub audiences: Vec<String>,
    /// The kind of configuration that the webhook is in.
    pub kind: ConfigurationKind,
    /// Its name, if tokens bound to others are to be refused although they are for the same audience.
    pub name: Option<String>,
    /// Its uid, if tokens bound to an earlier one of that name are to be refused at once rather than when they end.
    pub uid: Option<String>,
    /// Subjects that are let in, as `system:serviceaccount:kube-system:webhook-auth`; all if there are none.
    pub subjects: Vec<String>,
    /// How far clocks may differ. At most [`MAX_SKEW`].
    pub skew: Duration,
    /// The longest life of a token that is believed.
    pub max_lifetime: Duration,
}

impl Expected {
    /// Tokens of one issuer for one webhook, with a minute for clocks that differ, as Kubernetes allows itself.
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

/// Why a verifier cannot be made: it would let in more than was meant, or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectedError {
    /// No issuer, or an empty one.
    #[error("no issuer is expected")]
    Issuer,
    /// No audience, or an empty one.
    #[error("no audience is expected")]
    Audience,
    /// An empty name, uid or subject.
    #[error("an empty name, uid or subject is expected")]
    Empty,
    /// Clocks that differ more than [`MAX_SKEW`].
    #[error("clocks may differ by at most 300 seconds")]
    Skew,
}

/// Verifies the tokens that one webhook is sent.
#[derive(Clone, Debug)]
pub struct Verifier {
    expected: Expected,
    keys: Keys,
}

/// Whose token it is and what for: everything about it but whether it fits a request.
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

/// A caller whose token was verified and fits the request. Only [`Identity::permits`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    identity: Identity,
}

impl Verifier {
    /// A verifier for what is expected, with keys that may be replaced while it is used.
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

    /// What is expected.
    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    /// The keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Whether this token is good, at this time, for this request.
    pub fn verify(
        &self,
        token: &str,
        now: SystemTime,
        request: &AdmissionRequest,
    ) -> Result<Verified, Rejection> {
        self.authenticate(token, now)?.permits(request)
    }

    /// Whether this token is good, at this time, for some request: all that can be said before the request was read. What it is
    /// good for, [`Identity::permits`] says.
    pub fn authenticate(&self, token: &str, now: SystemTime) -> Result<Identity, Rejection> {
        let Parts { algorithm, key, payload, signature, signed } = Parts::of(token)?;
        // A token of somebody else's is no reason to look for new keys. It is only refused for that here, and never believed.
        let issuer = payload.iss.clone().unwrap_or_default();
        if !self.expected.issuers.contains(&issuer) {
            let (found, expected) = (rejection::excerpt(&issuer), &self.expected.issuers);
            let detail = format!("the token's issuer is {found:?}, but {expected:?} is expected");
            return Err(Rejection::new(Reason::Issuer, detail));
        }
        // INVARIANT: nothing else of the payload counts before the signature is verified.
        match self.keys.current().check(&key, algorithm, signed.as_bytes(), &signature) {
            Checked::Good => {}
            Checked::UnknownKey => {
                return Err(Rejection::new(Reason::UnknownKey, "a key that the issuer does not publish"));
            }
            Checked::OtherAlgorithm => {
                return Err(Rejection::new(Reason::Algorithm, "not the algorithm of the key"));
            }
            Checked::Bad => return Err(Rejection::new(Reason::Signature, "the signature does not match")),
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
    /// Whether the token is for the API group that the request is about.
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

    /// The service account, as the API server calls it: `system:serviceaccount:NAMESPACE:NAME`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The namespace of the service account.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The service account.
    pub fn service_account(&self) -> &Reference {
        &self.account
    }

    /// Who issued the token.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whom it is for.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// The token's own id, which audit logs of the API server have too.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The configuration it is bound to.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The API groups it is for.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// When it ends.
    pub fn expires(&self) -> SystemTime {
        self.expires
    }
}

impl Verified {
    /// Whose token it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}
