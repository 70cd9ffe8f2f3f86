//! [`Rejection`]: why a caller is rejected.

use std::fmt;

/// The reasons for rejecting a caller, as counted in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// There is no bearer token.
    Missing,
    /// The token is longer than [`MAX_TOKEN`](super::MAX_TOKEN).
    Oversize,
    /// The token is not a JWT, or its JSON is ambiguous.
    Malformed,
    /// The algorithm is not supported, or not that of the key.
    Algorithm,
    /// The header has a critical extension that is not supported, or a type other than JWT.
    Header,
    /// The token names no key, or one that the issuer does not publish.
    UnknownKey,
    /// The signature is invalid.
    Signature,
    /// The token has another issuer.
    Issuer,
    /// The token is for another webhook, or for several.
    Audience,
    /// The token has expired or has no expiration.
    Expired,
    /// The token is not valid yet.
    NotYetValid,
    /// The token was issued in the future, or its lifetime is too long.
    Lifetime,
    /// The subject is not a service account, or does not match the other claims.
    Subject,
    /// The subject is not accepted.
    OtherSubject,
    /// The token is not bound to a webhook configuration.
    NotBound,
    /// The token is bound to more than one object.
    BoundTwice,
    /// The token is bound to a configuration of the other kind.
    WrongKind,
    /// The token is bound to another configuration, or to an earlier one of the same name.
    WrongConfiguration,
    /// The token names no API group, or in an invalid form.
    NoGroup,
    /// The claims of the two dialects differ.
    Disagreement,
    /// The token is not valid for the request's API group.
    Group,
    /// The TokenReview rejected the token.
    Reviewed,
    /// There are no keys to verify the token with.
    KeysUnavailable,
    /// The TokenReview failed.
    ReviewUnavailable,
    /// The webhook responded without comparing the token with the request.
    Unchecked,
    /// The webhook responded although the token does not match the request.
    Disregarded,
}

impl Reason {
    /// All reasons, in the order of the checks.
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

    /// The HTTP status: 403 for a token that is valid for another API group, 503 if the webhook lacks what it
    /// needs to decide, otherwise 401.
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
