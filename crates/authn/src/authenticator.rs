//! [`Authenticator`]: one ordered list of ways to recognise a caller.

use std::sync::Arc;
use std::time::SystemTime;

use value::Str;

use crate::bearer::{self, Bearer};
use crate::caller::{Caller, Via};
use crate::front_proxy::FrontProxy;
use crate::headers::{self, Headers, UnreadableHeader};
use crate::observe::{Observed, TokenEvent};
use crate::static_tokens::StaticTokens;
use crate::tokens::{TokenCache, Verified, Verifier};
use crate::x509::ClientCertificate;

/// What a request brings to prove who is calling.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// The certificate the connection proved, verified against the clients' authority.
    pub certificate: Option<&'a ClientCertificate>,
    /// The certificate the connection proved, verified against the front proxies' authority.
    pub proxy_certificate: Option<&'a ClientCertificate>,
    /// The headers.
    pub headers: &'a dyn Headers,
    /// The path asked for: anonymous access may be limited to some.
    pub path: &'a str,
    /// The time of the request.
    pub now: SystemTime,
}

/// Why evidence was not believed. For the log alone: the client hears 401 and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The certificate cannot stand for a client.
    #[error("x509: {0}")]
    Certificate(&'static str),
    /// The certificate is not one of the allowed proxies'.
    #[error("x509: subject with cn={0} is not in the allowed list")]
    ProxyName(Str),
    /// Nobody knows the token.
    #[error("invalid bearer token")]
    InvalidToken,
    /// A token that was understood is not good.
    #[error("{0}")]
    Token(String),
    /// More than one token in the WebSocket subprotocols.
    #[error("multiple base64.bearer.authorization tokens specified")]
    SeveralProtocolTokens,
    /// A WebSocket subprotocol that is not base64 of text.
    #[error("invalid base64.bearer.authorization token encoding")]
    ProtocolTokenEncoding,
    /// No subprotocol besides the token's.
    #[error("missing additional subprotocol")]
    NoOtherProtocol,
    /// A header that says who is calling cannot be read.
    #[error(transparent)]
    Header(#[from] UnreadableHeader),
    /// Several of these.
    #[error("{}", api::field::aggregate(.0))]
    Several(Vec<Error>),
}

/// What came of trying to recognise a caller.
#[derive(Debug)]
pub struct Attempt {
    /// A caller; or `None`, nobody tried to say who they are and anonymous callers are not admitted; or evidence that was not
    /// believed. Both of the last are 401.
    pub result: Result<Option<Caller>, Error>,
    /// Warnings for the client.
    pub warnings: Vec<Str>,
    /// Annotations for the audit event.
    pub annotations: Vec<(&'static str, String)>,
}

/// Whether requests without credentials are admitted, as `system:anonymous`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// No.
    #[default]
    Off,
    /// Yes.
    On,
    /// Only to these paths.
    Paths(Vec<Str>),
}

/// All ways to recognise a caller, tried from top to bottom. The first that recognises somebody decides; evidence that is not
/// believed stops nobody after it, but ends anonymous access.
#[derive(Clone, Debug, Default)]
pub struct Authenticator {
    /// Headers of a front proxy.
    pub front_proxy: Option<FrontProxy>,
    /// Client certificates, if there is an authority for them.
    pub client_certificates: bool,
    /// The static token file.
    pub static_tokens: Option<Arc<StaticTokens>>,
    /// Service-account tokens.
    pub service_accounts: Option<Verifier>,
    /// Service-account tokens that were verified a moment ago.
    pub verified: Arc<TokenCache>,
    /// Requests without credentials.
    pub anonymous: Anonymous,
    /// Hears how tokens fare.
    pub observer: Observed,
}

impl Authenticator {
    /// Recognises the caller of a request.
    pub async fn authenticate(&self, evidence: &Evidence<'_>) -> Attempt {
        let mut attempt = Attempt { result: Ok(None), warnings: Vec::new(), annotations: Vec::new() };
        let mut errors = Vec::new();

        if let (Some(proxy), Some(certificate)) = (&self.front_proxy, evidence.proxy_certificate) {
            let user =
                certificate.check_time(evidence.now).and_then(|()| proxy.user(certificate, evidence.headers));
            match user {
                Ok(Some(user)) => return attempt.with(Caller::authenticated(user, Via::FrontProxy)),
                Ok(None) => {}
                // A proven proxy speaks for somebody else. Going on would run the request as the proxy itself.
                Err(error @ Error::Header(_)) => {
                    attempt.result = Err(error);
                    return attempt;
                }
                Err(error) => errors.push(error),
            }
        }
        if self.client_certificates
            && let Some(certificate) = evidence.certificate
        {
            match certificate.holder(evidence.now) {
                Ok(Some(caller)) => return attempt.with(caller),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        if self.takes_tokens() {
            match headers::first(evidence.headers, "authorization").map(bearer::from_header) {
                Err(error) => errors.push(error.into()),
                Ok(Bearer::None) => {}
                Ok(Bearer::Ignored(why)) => attempt.warnings.push(Str::new_static(why)),
                Ok(Bearer::Token(token)) => match self.caller_of_token(token, None, evidence.now).await {
                    Ok(found) => return attempt.with_token(found),
                    Err(error) => errors.push(error),
                },
            }
            match bearer::from_websocket(evidence.headers) {
                Ok(None) => {}
                Ok(Some(token)) => match self.caller_of_token(&token, None, evidence.now).await {
                    Ok(found) => return attempt.with_token(found),
                    Err(error) => errors.push(error),
                },
                Err(error) => errors.push(error),
            }
        }

        attempt.result = match errors.len() {
            0 => Ok(self.anonymous.admits(evidence.path).then(Caller::anonymous)),
            1 => Err(errors.swap_remove(0)),
            _ => Err(Error::Several(errors)),
        };
        attempt
    }

    /// Recognises a token by itself, as a TokenReview asks, for the wanted audiences or the server's own.
    pub async fn review(
        &self,
        token: &str,
        audiences: Option<&[Str]>,
        now: SystemTime,
    ) -> Result<TokenCaller, Error> {
        self.caller_of_token(token, audiences, now).await
    }

    fn takes_tokens(&self) -> bool {
        self.static_tokens.is_some() || self.service_accounts.is_some()
    }

    async fn caller_of_token(
        &self,
        token: &str,
        wanted: Option<&[Str]>,
        now: SystemTime,
    ) -> Result<TokenCaller, Error> {
        if let Some(caller) = self.static_tokens.as_ref().and_then(|tokens| tokens.caller(token)) {
            // A static token is for the API server and nobody else.
            let own = self.service_accounts.as_ref().map(Verifier::audiences).unwrap_or_default();
            let audiences: Vec<Str> =
                own.iter().filter(|audience| wanted.is_none_or(|w| w.contains(audience))).cloned().collect();
            if audiences.is_empty() && !own.is_empty() {
                return Err(Error::InvalidToken);
            }
            return Ok(TokenCaller { caller, audiences, warnings: Vec::new(), annotations: Vec::new() });
        }
        let Some(accounts) = &self.service_accounts else { return Err(Error::InvalidToken) };
        if let Some(found) = self.verified.get(token, wanted, now) {
            self.observer.tell(TokenEvent::Cached(true));
            return Ok(found);
        }
        self.observer.tell(TokenEvent::Cached(false));
        let verified = accounts.verify(token, wanted, now).await;
        self.observer.tell(TokenEvent::Looked(matches!(verified, Ok(Some(_)))));
        let verified = verified.map_err(Error::Token)?.ok_or(Error::InvalidToken)?;
        for used in &verified.used {
            self.observer.tell(TokenEvent::Used(*used));
        }
        let found = TokenCaller::from(verified);
        self.verified.put(token, wanted, now, found.clone());
        Ok(found)
    }
}

/// Whose token something is.
#[derive(Clone, Debug)]
pub struct TokenCaller {
    /// Whose.
    pub caller: Caller,
    /// Which of the wanted audiences the token is for.
    pub audiences: Vec<Str>,
    warnings: Vec<Str>,
    annotations: Vec<(&'static str, String)>,
}

impl From<Verified> for TokenCaller {
    fn from(verified: Verified) -> Self {
        let Verified { user, audiences, annotations, warnings, secret: _, used: _ } = verified;
        TokenCaller {
            caller: Caller::authenticated(user, Via::ServiceAccountToken),
            audiences,
            warnings,
            annotations,
        }
    }
}

impl Anonymous {
    fn admits(&self, path: &str) -> bool {
        match self {
            Anonymous::Off => false,
            Anonymous::On => true,
            Anonymous::Paths(paths) => paths.iter().any(|p| p == path),
        }
    }
}

impl Attempt {
    fn with_token(mut self, found: TokenCaller) -> Self {
        self.warnings.extend(found.warnings);
        self.annotations.extend(found.annotations);
        self.with(found.caller)
    }

    fn with(mut self, caller: Caller) -> Self {
        self.result = Ok(Some(caller));
        self
    }
}
