//! [`Rejection`]: why a caller is rejected.

use std::fmt;

/// The reasons for rejecting a caller, as counted in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The request has no bearer token.
    Missing,
    /// The token is longer than [`MAX_TOKEN`](super::MAX_TOKEN).
    Oversize,
    /// The token is not a JWT, its JSON has duplicate keys, or the request has several `Authorization` headers.
    Malformed,
    /// The algorithm is not supported, or not that of the key.
    Algorithm,
    /// The JWT header contains `crit`, `b64` or `zip`, or a `typ` other than `JWT`.
    Header,
    /// The token names no key, or one that the issuer does not publish.
    UnknownKey,
    /// The signature is invalid.
    Signature,
    /// The token has another issuer.
    Issuer,
    /// The token has no audience, several, or that of another webhook.
    Audience,
    /// The token has expired or has no expiration.
    Expired,
    /// The token is not valid yet.
    NotYetValid,
    /// The token has no `iat`, was issued in the future, or exceeds [`Expected::max_lifetime`](super::Expected::max_lifetime).
    Lifetime,
    /// The claim `kubernetes.io` is missing, or the subject is not the service account that it names.
    Subject,
    /// The subject is not in [`Expected::subjects`](super::Expected::subjects).
    OtherSubject,
    /// The token is not bound to a webhook configuration, or the bound reference lacks a name or uid.
    NotBound,
    /// The token is bound to configurations of both kinds, or to a pod, secret or node.
    BoundTwice,
    /// The token is bound to a configuration of the other kind.
    WrongKind,
    /// The token is bound to another configuration, or to an earlier one of the same name.
    WrongConfiguration,
    /// The token does not name exactly one API group, or names the core group in a dialect that does not support it.
    NoGroup,
    /// The claims of the two dialects differ.
    Disagreement,
    /// The token is not valid for the request's API group.
    Group,
    /// The TokenReview rejected the token.
    Reviewed,
    /// No keys are known to verify the token with.
    KeysUnavailable,
    /// The TokenReview failed or timed out.
    ReviewUnavailable,
    /// The webhook responded without comparing the token with the request: an error in the webhook, not of the caller.
    Unchecked,
    /// The webhook responded although the token does not match the request: an error in the webhook, not of the caller.
    Disregarded,
}

impl Reason {
    /// All reasons, in the order in which [`Counts::to_prometheus`](crate::Counts::to_prometheus) lists them.
    pub const ALL: [Reason; 26] = [
        Reason::Missing,
        Reason::Oversize,
        Reason::Malformed,
        Reason::Algorithm,
        Reason::Header,
        Reason::UnknownKey,
        Reason::Signature,
        Reason::Issuer,
        Reason::Audience,
        Reason::Expired,
        Reason::NotYetValid,
        Reason::Lifetime,
        Reason::Subject,
        Reason::OtherSubject,
        Reason::NotBound,
        Reason::BoundTwice,
        Reason::WrongKind,
        Reason::WrongConfiguration,
        Reason::NoGroup,
        Reason::Disagreement,
        Reason::Group,
        Reason::Reviewed,
        Reason::KeysUnavailable,
        Reason::ReviewUnavailable,
        Reason::Unchecked,
        Reason::Disregarded,
    ];

    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Missing => "missing",
            Reason::Oversize => "oversize",
            Reason::Malformed => "malformed",
            Reason::Algorithm => "algorithm",
            Reason::Header => "header",
            Reason::UnknownKey => "unknown_key",
            Reason::Signature => "signature",
            Reason::Issuer => "issuer",
            Reason::Audience => "audience",
            Reason::Expired => "expired",
            Reason::NotYetValid => "not_yet_valid",
            Reason::Lifetime => "lifetime",
            Reason::Subject => "subject",
            Reason::OtherSubject => "other_subject",
            Reason::NotBound => "not_bound",
            Reason::BoundTwice => "bound_twice",
            Reason::WrongKind => "wrong_kind",
            Reason::WrongConfiguration => "wrong_configuration",
            Reason::NoGroup => "no_group",
            Reason::Disagreement => "disagreement",
            Reason::Group => "group",
            Reason::Reviewed => "reviewed",
            Reason::KeysUnavailable => "keys_unavailable",
            Reason::ReviewUnavailable => "review_unavailable",
            Reason::Unchecked => "unchecked",
            Reason::Disregarded => "disregarded",
        }
    }

    /// The HTTP status: 403 for a token that is valid for another API group, 503 if keys or the TokenReview are unavailable,
    /// 500 if the webhook's handler ignored the authentication result, otherwise 401.
    pub const fn status(self) -> u16 {
        match self {
            Reason::Group => 403,
            Reason::KeysUnavailable | Reason::ReviewUnavailable => 503,
            Reason::Unchecked | Reason::Disregarded => 500,
            _ => 401,
        }
    }
}

/// Why a caller is rejected.
///
/// The text is for the webhook's own log. Callers get only the [status](Reason::status).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    reason: Reason,
    detail: String,
}

impl Rejection {
    /// `detail` is for the log.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Rejection { reason, detail: detail.into() }
    }

    /// The reason, as counted in metrics.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Details for the log. Values from the token are quoted. Of a token with an unverified signature, only
    /// the beginning of the issuer is included.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.detail)
    }
}

impl std::error::Error for Rejection {}

/// The first 256 characters of untrusted text.
pub(super) fn excerpt(text: &str) -> &str {
    text.char_indices().nth(256).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}
