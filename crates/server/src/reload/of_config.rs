//! The files behind a configuration, and what becomes of them when they change.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use authn::{Authenticator, StaticTokens};
use rustls::ServerConfig;
use tokio::sync::Notify;

use super::Watched;
use crate::config::FollowedFiles;
use crate::outbound;
use crate::pki;
use crate::state::State;
use crate::tls::{self, TlsOptions};
use crate::trust::{Authority, Trust};

/// What files held when the server started.
pub(crate) struct Originals<'a> {
    /// The serving certificate.
    pub(crate) serving: &'a pki::Identity,
    /// The authorities of clients.
    pub(crate) client_ca: Option<Vec<u8>>,
    /// The authorities of front proxies.
    pub(crate) proxy_ca: Option<Vec<u8>>,
    /// The certificate shown to API servers behind this one.
    pub(crate) proxy_client: Option<pki::Identity>,
}

/// The files that are read again when they change, and what becomes of them then.
pub(crate) fn of_config(
    files: FollowedFiles,
    originals: Originals<'_>,
    state: &Arc<State>,
    trust_changed: &Arc<Notify>,
    (tls_config, options): (&Arc<ArcSwap<ServerConfig>>, TlsOptions),
) -> Vec<Watched> {
    let FollowedFiles { serving, client_ca, proxy_ca, proxy_client, static_tokens } = files;
    let Originals { serving: identity, client_ca: clients, proxy_ca: proxies, proxy_client: client } =
        originals;
    let mut followed = Vec::new();
    if let Some((cert, key)) = serving {
        let config = Arc::clone(tls_config);
        let held = vec![identity.cert_pem.clone().into_bytes(), identity.key_pem.clone().into_bytes()];
        followed.push(Watched::new("tls-cert-file", vec![cert, key], held, move |contents| {
            let [cert, key] = contents else { return Err("a certificate and a key are wanted".to_owned()) };
            let chain = tls::certificates(cert)?;
            let key = tls::private_key(key)?;
            let made = tls::server_config(chain, key, &options).map_err(|e| e.to_string())?;
            config.store(Arc::new(made));
            Ok(())
        }));
    }
    if let (Some((cert, key)), Some(held)) = (proxy_client, client) {
        let state = Arc::clone(state);
        let held = vec![held.cert_pem.into_bytes(), held.key_pem.into_bytes()];
        followed.push(Watched::new("proxy-client-cert-file", vec![cert, key], held, move |contents| {
            let [cert, key] = contents else { return Err("a certificate and a key are wanted".to_owned()) };
            state
                .apis
                .aggregation
                .prove_with(outbound::Identity { certificate: cert.clone(), key: key.clone() })
        }));
    }
    let mut authority = |flag: &'static str,
                         path: Option<PathBuf>,
                         held: Option<Vec<u8>>,
                         place: fn(&mut Trust, Authority)| {
        let Some(path) = path else { return };
        let (state, changed) = (Arc::clone(state), Arc::clone(trust_changed));
        let apply = move |contents: &[Vec<u8>]| {
            let made = Authority::from_pem(&contents.concat())?;
            let now = state.authentication.trust.load_full();
            let mut trust = Trust { clients: now.clients.clone(), proxies: now.proxies.clone() };
            place(&mut trust, made);
            let proxy = &state.authentication.authenticator.load().front_proxy;
            trust.check(proxy.as_ref().is_some_and(|proxy| proxy.allowed_names.is_empty()))?;
            state.authentication.trust.store(Arc::new(trust));
            changed.notify_one();
            Ok(())
        };
        followed.push(Watched::new(flag, vec![path], vec![held.unwrap_or_default()], apply));
    };
    authority("client-ca-file", client_ca, clients, |trust, made| trust.clients = Some(made));
    authority("requestheader-client-ca-file", proxy_ca, proxies, |trust, made| trust.proxies = Some(made));
    if let Some((path, held)) = static_tokens {
        let state = Arc::clone(state);
        let shown = path.display().to_string();
        followed.push(Watched::new("token-auth-file", vec![path], vec![held], move |contents| {
            let text = String::from_utf8(contents.concat()).map_err(|_| "not UTF-8".to_owned())?;
            let (tokens, warnings) = StaticTokens::parse(&shown, &text).map_err(|e| e.to_string())?;
            for warning in &warnings {
                tracing::warn!("--token-auth-file: {warning}");
            }
            let now = state.authentication.authenticator.load_full();
            let made = Authenticator { static_tokens: Some(Arc::new(tokens)), ..Authenticator::clone(&now) };
            state.authentication.authenticator.store(Arc::new(made));
            Ok(())
        }));
    }
    followed
}
