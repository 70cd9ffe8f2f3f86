//! Authentication: client certificates, tokens, the front proxy, impersonation, and the issuer of service account tokens.

use std::sync::Arc;

use arc_swap::ArcSwap;
use authn::impersonation::LastModes;
use authn::{Authenticator, BootstrapTokens, OptionalObserver, TokenObserver};
use transport::trust::{Authority, ClientTrust};

use super::Storage;
use crate::bootstrap_tokens::StoredBootstrapTokens;
use crate::config::{AuthenticationConfig, ConfigError};
use crate::metrics::Metrics;
use crate::tokens::Tokens;

/// The authentication subsystem. Its swappable parts are replaced when the files behind them change.
pub struct Authenticators {
    pub authenticator: ArcSwap<Authenticator>,
    /// The CAs of client certificates and of front proxies.
    pub trust: ArcSwap<ClientTrust>,
    /// Remembers by which mode each caller was last allowed to impersonate, to try that one first.
    pub impersonations: LastModes,
    /// The issuer of service account tokens, if there is one.
    pub tokens: Option<Tokens>,
}

impl Authenticators {
    /// Whether the OpenID discovery document of the token issuer is served.
    pub(crate) fn has_issuer_discovery(&self) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.configuration.is_some())
    }
}

/// Facts about other subsystems that authentication depends on.
pub(crate) struct AuthenticationContext<'a> {
    /// `host:port` in the OpenID discovery document.
    pub(crate) advertised: &'a str,
    /// Tokens can be bound to webhook configurations.
    pub(crate) webhook_tokens: bool,
}

impl AuthenticationConfig {
    /// Parses the CAs of client certificates and front proxies.
    pub(crate) fn trust(&self) -> Result<ClientTrust, ConfigError> {
        let authority = |flag: &str, pem: Option<&Vec<u8>>| {
            pem.map(|pem| Authority::from_pem(pem)).transpose().map_err(|e| ConfigError::flag(flag, e))
        };
        Ok(ClientTrust {
            clients: authority("client-ca-file", self.client_ca.as_ref())?,
            proxies: authority(
                "requestheader-client-ca-file",
                self.front_proxy.as_ref().map(|(authorities, _)| authorities),
            )?,
        })
    }

    /// `trust` is the result of [`AuthenticationConfig::trust`].
    pub(crate) fn build(
        self,
        trust: ClientTrust,
        storage: &Storage,
        metrics: &Metrics,
        context: &AuthenticationContext<'_>,
    ) -> Result<Authenticators, ConfigError> {
        let AuthenticationConfig {
            client_ca: _,
            front_proxy,
            static_tokens,
            tokens,
            bootstrap_tokens,
            anonymous,
        } = self;
        let (tokens, verifier) = tokens
            .map(|config| Tokens::new(config, &storage.store, context.advertised, context.webhook_tokens))
            .transpose()?
            .unzip();
        let authenticator = Authenticator {
            front_proxy: front_proxy.map(|(_, headers)| headers),
            client_certificates: trust.clients.is_some(),
            static_tokens: static_tokens.map(Arc::new),
            service_accounts: verifier,
            bootstrap_tokens: bootstrap_tokens
                .then(|| BootstrapTokens::new(Arc::new(StoredBootstrapTokens::new(storage.store.clone())))),
            anonymous,
            observer: OptionalObserver::by(Arc::clone(&metrics.authentication) as Arc<dyn TokenObserver>),
            ..Authenticator::default()
        };
        Ok(Authenticators {
            authenticator: ArcSwap::from_pointee(authenticator),
            trust: ArcSwap::from_pointee(trust),
            impersonations: LastModes::default(),
            tokens,
        })
    }
}
