//! Publishes `kube-system/extension-apiserver-authentication`, with which aggregated API servers authenticate this server's callers.
//!
//! Written as `system:apiserver`, and written again when the CAs change or the ConfigMap is modified. Existing certificates that have
//! not expired and existing names are preserved, because another server may have published them.

use std::sync::Arc;

use api::{Status, meta};
use authn::{FrontProxy, InternalIdentity};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::{Notify, watch};
use tracing::warn;
use value::{Str, Value, json, write};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::bootstrap::{Hook, LONGEST_PAUSE, PAUSE};
use crate::client::Client;
use crate::informer::{Notes, start_informer};
use crate::keys;
use crate::state::State;
use crate::tls;

const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Publishes the ConfigMap and updates it until the server stops. `changed` signals that the CAs have changed.
pub(crate) fn publish(state: &Arc<State>, changed: Arc<Notify>, mut stopped: watch::Receiver<bool>) {
    let client = Client::new(Arc::clone(state), InternalIdentity::ApiServer);
    let path = format!("{CONFIG_MAPS}/{NAME}");
    state.bootstrap.begin(Hook::ClusterAuthentication, &path);
    let hint = Arc::clone(&changed);
    let key = keys::namespaced(keys::CONFIG_MAPS, NAMESPACE, NAME);
    start_informer(&state.storage.store, &key, Notes::hints(&state.storage.unreadable), move |_, _| {
        hint.notify_one();
    });
    let state = Arc::clone(state);
    tokio::spawn(async move {
        loop {
            let mut pause = PAUSE;
            while let Err(error) = sync(&state, &client).await {
                warn!(object = path, error = error.message(), "cannot write the ConfigMap; retrying");
                state.bootstrap.refused(&path, &error);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = stopped.wait_for(|s| *s) => return,
                }
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
            state.bootstrap.done(&path);
            tokio::select! {
                () = changed.notified() => {}
                _ = stopped.wait_for(|s| *s) => return,
            }
        }
    });
}

async fn sync(state: &State, client: &Client) -> Result<(), Status> {
    let path = format!("{CONFIG_MAPS}/{NAME}");
    let stored = match client.get(&path).await {
        Ok(stored) => Some(stored),
        Err(status) if status.code() == 404 => None,
        Err(status) => return Err(status),
    };
    let data = data(state, stored.as_ref());
    let held = stored.as_ref().and_then(|s| s.at(&["data"])).cloned().unwrap_or(Value::map::<Str, Value>([]));
    if data == held {
        return Ok(());
    }
    let mut object = stored.clone().unwrap_or_else(|| {
        let mut object = Value::map([("apiVersion", "v1"), ("kind", "ConfigMap")]);
        meta::set(&mut object, "name", NAME);
        meta::set(&mut object, "namespace", "kube-system");
        object
    });
    object.set_at(&["data"], data);
    let written = match stored {
        Some(_) => client.update(&path, &object).await,
        None => client.create(CONFIG_MAPS, &object).await,
    };
    match written {
        // On a conflict, the informer reports the other write, and `sync` runs again.
        Err(status) if status.code() != 409 => Err(status),
        _ => Ok(()),
    }
}

/// The wanted data of the ConfigMap: this server's values merged with the stored ones.
fn data(state: &State, stored: Option<&Value>) -> Value {
    let trust = state.authentication.trust.load_full();
    let there = |key: &str| stored.and_then(|s| s.str_at(&["data", key])).unwrap_or_default();
    let now = state.now();
    let bundle = |key: &str, own: Option<&[u8]>| combined(there(key), own.unwrap_or_default(), now);
    let mut data = value::Map::new();
    let clients = bundle("client-ca-file", trust.clients.as_ref().map(|a| &*a.pem));
    if !clients.is_empty() {
        data.insert("client-ca-file", clients);
    }
    let proxies = bundle("requestheader-client-ca-file", trust.proxies.as_ref().map(|a| &*a.pem));
    if !proxies.is_empty() {
        let authenticator = state.authentication.authenticator.load_full();
        let none = FrontProxy::default();
        let proxy = authenticator.front_proxy.as_ref().unwrap_or(&none);
        let mut list = |key: &str, own: &[Str], always: bool| {
            let mut names: Vec<Value> = Vec::new();
            let existing = json::parse(there(key).as_bytes()).unwrap_or_default();
            let own = own.iter().cloned().map(Value::String);
            for name in existing.as_list().unwrap_or_default().iter().cloned().chain(own) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            if always || !names.is_empty() {
                data.insert(key, write::to_string(&Value::List(names)));
            }
        };
        list("requestheader-username-headers", &proxy.username_headers, true);
        list("requestheader-uid-headers", &proxy.uid_headers, false);
        list("requestheader-group-headers", &proxy.group_headers, true);
        list("requestheader-extra-headers-prefix", &proxy.extra_header_prefixes, true);
        list("requestheader-allowed-names", &proxy.allowed_names, true);
        data.insert("requestheader-client-ca-file", proxies);
    }
    Value::Map(data)
}

/// The certificates of both bundles without duplicates and without expired ones.
fn combined(there: &str, own: &[u8], now: i64) -> String {
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut out = String::new();
    let both = [there.as_bytes(), own];
    for der in both.iter().flat_map(|pem| tls::certificates(pem).unwrap_or_default()) {
        let lives = X509Certificate::from_der(&der)
            .is_ok_and(|(_, certificate)| certificate.validity().not_after.timestamp() > now);
        if lives && !seen.iter().any(|known| known.as_slice() == &*der) {
            out.push_str(&pem(&der));
            seen.push(der.to_vec());
        }
    }
    out
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}
