//! [`Authenticator`]: an ordered list of authentication methods.

use std::sync::Arc;
use std::time::SystemTime;

use api::bootstrap_token::BootstrapToken;
use value::Str;

use crate::bearer::{self, BearerHeader};
use crate::bootstrap_tokens::BootstrapTokens;
use crate::caller::{AuthenticationMethod, Caller};
use crate::front_proxy::FrontProxy;
use crate::headers::{self, Headers, UnreadableHeader};
use crate::observe::{OptionalObserver, TokenEvent};
use crate::static_tokens::StaticTokens;
use crate::tokens::{TokenVerifier, VerifiedToken, VerifiedTokenCache};
use crate::x509::ClientCertificate;

/// The credentials of a request.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// The client certificate of the connection, verified with the client CA.
    pub certificate: Option<&'a ClientCertificate>,
    /// The client certificate of the connection, verified with the front proxy CA.
    pub proxy_certificate: Option<&'a ClientCertificate>,
    pub headers: &'a dyn Headers,
    /// The path of the request: anonymous access may be limited to some paths.
    pub path: &'a str,
    pub now: SystemTime,
}

/// The reason why credentials were rejected. For logs only: clients get a plain 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("x509: {0}")]
    Certificate(&'static str),
    /// The common name is not in `--requestheader-allowed-names`.
    #[error("x509: subject with cn={0} is not in the allowed list")]
    ProxyName(Str),
    /// No authenticator recognizes the token.
    #[error("invalid bearer token")]
    InvalidToken,
    /// The token was recognized but is invalid.
    #[error("{0}")]
    Token(String),
    /// The Secret of a bootstrap token does not exist or does not allow its use.
    #[error("{0}")]
    BootstrapToken(String),
    #[error("multiple base64.bearer.authorization tokens specified")]
    SeveralProtocolTokens,
    #[error("invalid base64.bearer.authorization token encoding")]
    ProtocolTokenEncoding,
    /// The subprotocol with the token is not accompanied by another one.
    #[error("missing additional subprotocol")]
    NoOtherProtocol,
    #[error(transparent)]
    Header(#[from] UnreadableHeader),
    #[error("{}", api::field::aggregate(.0))]
    Several(Vec<Error>),
}

impl Error {
    /// The error in the status of a TokenReview, which does not say why a bootstrap token is invalid.
    pub fn text_for_review(&self) -> String {
        match self {
            Error::BootstrapToken(_) => Error::InvalidToken.to_string(),
            other => other.to_string(),
        }
    }
}

#[derive(Debug)]
pub struct AuthenticationResult {
    /// `Ok(None)` if there are no credentials and anonymous access is off, `Err` if credentials were
    /// rejected. Both are answered with 401.
    pub result: Result<Option<Caller>, Error>,
    pub warnings: Vec<Str>,
    /// Annotations for the audit event.
    pub annotations: Vec<(&'static str, String)>,
}

/// Whether requests without credentials are authenticated as `system:anonymous`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    #[default]
    Off,
    On,
    /// Only for these paths.
    Paths(Vec<Str>),
}

/// The authentication methods, in the order of the fields. The first that recognizes the user decides.
/// Rejected credentials do not stop later methods, but disable anonymous access. Only an unreadable header of a front
/// proxy rejects the request at once.
#[derive(Clone, Debug, Default)]
pub struct Authenticator {
    pub front_proxy: Option<FrontProxy>,
    /// Whether client certificates are accepted.
    pub client_certificates: bool,
    pub static_tokens: Option<Arc<StaticTokens>>,
    pub service_accounts: Option<TokenVerifier>,
    pub bootstrap_tokens: Option<BootstrapTokens>,
    /// Recently verified service account tokens.
    pub verified: Arc<VerifiedTokenCache>,
    pub anonymous: Anonymous,
    /// Receives token events for metrics.
    pub observer: OptionalObserver,
}

impl Authenticator {
    pub async fn authenticate(&self, evidence: &Evidence<'_>) -> AuthenticationResult {
        let mut attempt =
            AuthenticationResult { result: Ok(None), warnings: Vec::new(), annotations: Vec::new() };
        let mut errors = Vec::new();

        if let (Some(proxy), Some(certificate)) = (&self.front_proxy, evidence.proxy_certificate) {
            let user =
                certificate.check_time(evidence.now).and_then(|()| proxy.user(certificate, evidence.headers));
            match user {
                Ok(Some(user)) => {
                    return attempt.with(Caller::authenticated(user, AuthenticationMethod::FrontProxy));
                }
                Ok(None) => {}
                // A verified proxy acts for another user. Continuing would run the request as the proxy
                // itself.
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
        if self.accepts_tokens() {
            match headers::first(evidence.headers, "authorization").map(bearer::from_header) {
                Err(error) => errors.push(error.into()),
                Ok(BearerHeader::None) => {}
                Ok(BearerHeader::Ignored(why)) => attempt.warnings.push(Str::new_static(why)),
                Ok(BearerHeader::Token(token)) => match self.caller_of_token(token, None, evidence.now).await
                {
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

    /// Authenticates a token for a TokenReview. `audiences` defaults to those of the API server.
    pub async fn review(
        &self,
        token: &str,
        audiences: Option<&[Str]>,
        now: SystemTime,
    ) -> Result<TokenCaller, Error> {
        self.caller_of_token(token, audiences, now).await
    }

    fn accepts_tokens(&self) -> bool {
        self.static_tokens.is_some() || self.service_accounts.is_some() || self.bootstrap_tokens.is_some()
    }

    async fn caller_of_token(
        &self,
        token: &str,
        wanted: Option<&[Str]>,
        now: SystemTime,
    ) -> Result<TokenCaller, Error> {
        if let Some(caller) = self.static_tokens.as_ref().and_then(|tokens| tokens.caller(token)) {
            return self.for_own_audiences(caller, wanted);
        }
        // No service account token has this form.
        if let (Some(tokens), Some(token)) = (&self.bootstrap_tokens, BootstrapToken::parse(token)) {
            let user = tokens.user(token, now).map_err(Error::BootstrapToken)?;
            let caller = Caller::authenticated(user, AuthenticationMethod::BootstrapToken);
            return self.for_own_audiences(caller, wanted);
        }
        let Some(accounts) = &self.service_accounts else { return Err(Error::InvalidToken) };
        if let Some(found) = self.verified.get(token, wanted, now) {
            self.observer.notify(TokenEvent::Cached(true));
            return Ok(found);
        }
        self.observer.notify(TokenEvent::Cached(false));
        let verified = accounts.verify(token, wanted, now).await;
        self.observer.notify(TokenEvent::Verified(matches!(verified, Ok(Some(_)))));
        let verified = verified.map_err(Error::Token)?.ok_or(Error::InvalidToken)?;
        for used in &verified.used {
            self.observer.notify(TokenEvent::Used(*used));
        }
        let found = TokenCaller::from(verified);
        self.verified.put(token, wanted, now, found.clone());
        Ok(found)
    }

    /// The result for a token that has no audiences of its own: it is valid for those of the API server.
    fn for_own_audiences(&self, caller: Caller, wanted: Option<&[Str]>) -> Result<TokenCaller, Error> {
        let own = self.service_accounts.as_ref().map(TokenVerifier::audiences).unwrap_or_default();
        let is_wanted = |audience: &&Str| wanted.is_none_or(|wanted| wanted.contains(audience));
        let audiences: Vec<Str> = own.iter().filter(is_wanted).cloned().collect();
        if audiences.is_empty() && !own.is_empty() {
            return Err(Error::InvalidToken);
        }
        Ok(TokenCaller { caller, audiences, warnings: Vec::new(), annotations: Vec::new() })
    }
}

#[derive(Clone, Debug)]
pub struct TokenCaller {
    pub caller: Caller,
    /// The requested audiences that the token is valid for.
    pub audiences: Vec<Str>,
    warnings: Vec<Str>,
    annotations: Vec<(&'static str, String)>,
}

impl From<VerifiedToken> for TokenCaller {
    fn from(verified: VerifiedToken) -> Self {
        let VerifiedToken { user, audiences, annotations, warnings, secret: _, used: _ } = verified;
        TokenCaller {
            caller: Caller::authenticated(user, AuthenticationMethod::ServiceAccountToken),
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

impl AuthenticationResult {
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
