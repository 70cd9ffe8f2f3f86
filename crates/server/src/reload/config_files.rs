//! The files of a configuration that are reloaded, and how a change of each is applied.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use authn::{Authenticator, StaticTokens, TokenFileWarning};
use rustls::ServerConfig;
use tokio::sync::Notify;
use transport::pki;
use transport::tls::{self, TlsOptions};
use transport::trust::{Authority, ClientTrust};

use super::Watched;
use crate::config::{Config, FollowedFiles};
use crate::state::State;

/// The files of a configuration, with the contents that the server started with: only different contents are applied.
pub(crate) struct ConfigFiles {
    files: FollowedFiles,
    serving: pki::TlsIdentity,
    client_ca: Option<Vec<u8>>,
    proxy_ca: Option<Vec<u8>>,
    proxy_client: Option<pki::TlsIdentity>,
    tls: TlsOptions,
}

impl ConfigFiles {
    pub(crate) fn of(config: &Config) -> Self {
        ConfigFiles {
            files: config.files.clone(),
            serving: config.serving.identity.clone(),
            client_ca: config.authentication.client_ca.clone(),
            proxy_ca: config.authentication.front_proxy.as_ref().map(|(authorities, _)| authorities.clone()),
            proxy_client: config.apis.proxy_client.clone(),
            tls: config.serving.tls.clone(),
        }
    }

    /// The files to watch, each with the function that applies new contents. `trust_changed` is notified when the CAs of clients or of
    /// front proxies change.
    pub(crate) fn watched(
        self,
        state: &Arc<State>,
        trust_changed: &Arc<Notify>,
        tls_config: &Arc<ArcSwap<ServerConfig>>,
    ) -> Vec<Watched> {
        let FollowedFiles { serving, client_ca, proxy_ca, proxy_client, static_tokens } = self.files;
        let mut watched = Vec::new();
        if let Some(files) = serving {
            watched.push(serving_certificate(files, &self.serving, self.tls, Arc::clone(tls_config)));
        }
        if let (Some(files), Some(identity)) = (proxy_client, self.proxy_client) {
            watched.push(proxy_client_certificate(files, identity, Arc::clone(state)));
        }
        let authority = |flag, path: Option<PathBuf>, content: Option<Vec<u8>>, set| {
            let (state, changed) = (Arc::clone(state), Arc::clone(trust_changed));
            path.map(|path| authorities(flag, path, content.unwrap_or_default(), set, state, changed))
        };
        watched.extend(authority("client-ca-file", client_ca, self.client_ca, |trust, new| {
            trust.clients = Some(new);
        }));
        watched.extend(authority("requestheader-client-ca-file", proxy_ca, self.proxy_ca, |trust, new| {
            trust.proxies = Some(new);
        }));
        watched.extend(static_tokens.map(|file| static_token_file(file, Arc::clone(state))));
        watched
    }
}

fn serving_certificate(
    (cert, key): (PathBuf, PathBuf),
    identity: &pki::TlsIdentity,
    options: TlsOptions,
    config: Arc<ArcSwap<ServerConfig>>,
) -> Watched {
    let content = vec![identity.cert_pem.clone().into_bytes(), identity.key_pem.clone().into_bytes()];
    Watched::new("tls-cert-file", vec![cert, key], content, move |contents| {
        let [cert, key] = contents else { return Err("a certificate and a key are required".to_owned()) };
        let chain = tls::certificates(cert)?;
        let key = tls::private_key(key)?;
        let new = tls::server_config(chain, key, &options).map_err(|e| e.to_string())?;
        config.store(Arc::new(new));
        Ok(())
    })
}

fn proxy_client_certificate(
    (cert, key): (PathBuf, PathBuf),
    identity: pki::TlsIdentity,
    state: Arc<State>,
) -> Watched {
    let content = vec![identity.cert_pem.into_bytes(), identity.key_pem.into_bytes()];
    Watched::new("proxy-client-cert-file", vec![cert, key], content, move |contents| {
        let [cert, key] = contents else { return Err("a certificate and a key are required".to_owned()) };
        let identity = outbound::ClientIdentity { certificate: cert.clone(), key: key.clone() };
        state.apis.aggregation.prove_with(identity)
    })
}

fn authorities(
    flag: &'static str,
    path: PathBuf,
    content: Vec<u8>,
    set: fn(&mut ClientTrust, Authority),
    state: Arc<State>,
    changed: Arc<Notify>,
) -> Watched {
    Watched::new(flag, vec![path], vec![content], move |contents| {
        let new = Authority::from_pem(&contents.concat())?;
        let now = state.authentication.trust.load_full();
        let mut trust = ClientTrust { clients: now.clients.clone(), proxies: now.proxies.clone() };
        set(&mut trust, new);
        let proxy = &state.authentication.authenticator.load().front_proxy;
        trust.check(proxy.as_ref().is_some_and(|proxy| proxy.allowed_names.is_empty()))?;
        state.authentication.trust.store(Arc::new(trust));
        changed.notify_one();
        Ok(())
    })
}

/// Logs the records of a token file that are valid but probably not intended.
pub fn log_token_file_warnings(warnings: &[TokenFileWarning]) {
    for warning in warnings {
        let effect = match warning {
            TokenFileWarning::Empty { .. } => "the record is ignored",
            TokenFileWarning::Duplicate { .. } => "the last record of the token is in force",
        };
        tracing::warn!(
            flag = "--token-auth-file",
            reason = %warning,
            effect,
            "a record of the token file is probably a mistake; correct or remove it"
        );
    }
}

fn static_token_file((path, content): (PathBuf, Vec<u8>), state: Arc<State>) -> Watched {
    let shown = path.display().to_string();
    Watched::new("token-auth-file", vec![path], vec![content], move |contents| {
        let text = String::from_utf8(contents.concat()).map_err(|_| "not UTF-8".to_owned())?;
        let (tokens, warnings) = StaticTokens::parse(&shown, &text).map_err(|e| e.to_string())?;
        log_token_file_warnings(&warnings);
        let now = state.authentication.authenticator.load_full();
        let new = Authenticator { static_tokens: Some(Arc::new(tokens)), ..Authenticator::clone(&now) };
        state.authentication.authenticator.store(Arc::new(new));
        Ok(())
    })
}
