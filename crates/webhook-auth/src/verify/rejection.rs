//! [`Rejection`]: why a caller is not believed.

use std::fmt;

/// Why a caller is not believed, as one of a fixed list: what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// There is no bearer token.
    Missing,
    /// The token is longer than any token of an API server.
    Oversize,
    /// It is no JWT, or one that two readers could read differently.
    Malformed,
    /// Its algorithm is not on the list, or is not that of the key.
    Algorithm,
    /// Its header asks for something that must be understood and is not, or says that it is no plain JWT.
    Header,
    /// It names no key, or one that the issuer does not publish.
    UnknownKey,
    /// The signature is not that of the key.
    Signature,
    /// Another issuer made it.
    Issuer,
    /// It is for another webhook, or for several.
    Audience,
    /// It says not when it ends, or it has ended.
    Expired,
    /// It may not be used yet.
    NotYetValid,
    /// It was issued in the future, or lives longer than tokens for webhooks do.
    Lifetime,
    /// Its subject is no service account, or not the one it names.
    Subject,
    /// The subject is not one of those that are let in.
    OtherSubject,
    /// It is bound to no webhook configuration.
    NotBound,
    /// It is bound to more than one object.
    BoundTwice,
    /// It is bound to a configuration of the other kind.
    WrongKind,
    /// It is bound to another configuration, or to an earlier one of the same name.
    WrongConfiguration,
    /// It says not for which API group it is, or not in the way that is asked for.
    NoGroup,
    /// Its two sets of claims say different things.
    Disagreement,
    /// It is not for the API group of the request.
    Group,
    /// The API server no longer stands by it.
    Reviewed,
    /// There are no keys to verify it with.
    KeysUnavailable,
    /// The API server could not be asked about it.
    ReviewUnavailable,
    /// The webhook answered without comparing the token with the request.
    Unchecked,
    /// The webhook answered although the token does not fit the request.
    Disregarded,
}

impl Reason {
    /// All of them, in the order a token is looked at.
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

    /// Its name in metrics and logs.
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

    /// The HTTP status that says so: 403 for a caller who is believed and asks about what is not its own, 503 where the
    /// webhook itself lacks what it needs to decide, 401 for all others.
    pub const fn status(self) -> u16 {
        match self {
            Reason::Group => 403,
            Reason::KeysUnavailable | Reason::ReviewUnavailable => 503,
            Reason::Unchecked | Reason::Disregarded => 500,
            _ => 401,
        }
    }
}

/// Why a caller is not believed.
///
/// Its text is for the webhook's own log. A caller is told the [status](Reason::status) and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    reason: Reason,
    detail: String,
}

impl Rejection {
    /// A reason, with what the log should say about it.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Rejection { reason, detail: detail.into() }
    }

    /// The reason.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// What was found, for the log. What came from the token is quoted. Of a token whose signature was not verified, only the
    /// beginning of its issuer is shown.
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

/// The beginning of a text that anybody may have written.
pub(super) fn excerpt(text: &str) -> &str {
    text.char_indices().nth(256).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}
