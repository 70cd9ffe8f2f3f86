//! Publishes `kube-system/extension-apiserver-authentication`, with which aggregated API servers authenticate this server's callers.
//!
//! Written as `system:apiserver`, and checked again when the CAs change, when the ConfigMap is created or deleted, and every minute.
//! Existing certificates that have not expired and existing names are preserved, because another server may have published them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::{Status, meta};
use authn::{FrontProxy, InternalIdentity};
use catalog::keys;
use tokio::sync::{Notify, watch};
use tracing::warn;
use transport::tls;
use value::{Str, Value, json, write};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::bootstrap::{PostStartHook, RETRY};
use crate::client::LoopbackClient;
use crate::informer::{UnreadableConcern, start_informer};
use crate::state::State;

const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAMESPACE: &str = api::namespaces::SYSTEM;
const NAME: &str = "extension-apiserver-authentication";

/// The ConfigMap is checked this often, and when it is created or deleted. Updates by others do not wake this task: two servers that
/// disagree must not answer each other's writes.
const CHECK_EVERY: Duration = Duration::from_mins(1);

/// A certificate stays published for this long after it has expired, in seconds: the clocks of servers differ.
const EXPIRY_SLACK: i64 = 300;

/// Publishes the ConfigMap and updates it until the server stops. `changed` signals that the CAs have changed.
pub(crate) fn publish(state: &Arc<State>, changed: Arc<Notify>, mut stopped: watch::Receiver<bool>) {
    let client = LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer);
    let path = format!("{CONFIG_MAPS}/{NAME}");
    state.bootstrap.begin(PostStartHook::ClusterAuthentication, &path);
    let hint = Arc::clone(&changed);
    let key = keys::namespaced(keys::CONFIG_MAPS, NAMESPACE, NAME);
    start_informer(
        &state.storage.store,
        &key,
        UnreadableConcern::without_concern(&state.storage.unreadable),
        move |old, new| {
            if old.is_none() || new.is_none() {
                hint.notify_one();
            }
        },
    );
    let state = Arc::clone(state);
    tokio::spawn(async move {
        loop {
            let mut pause = RETRY;
            while let Err(error) = sync(&state, &client).await {
                match error {
                    SyncError::Conflict => {}
                    SyncError::Unreadable(why) => {
                        warn!(
                            object = path,
                            error = why,
                            "cannot add the CA certificates to the ConfigMap because its present data is invalid; correct or delete the ConfigMap"
                        );
                        // The values of other servers stay published, and nothing that this server does would help.
                        state.bootstrap.done(&path);
                    }
                    SyncError::Refused(status) => {
                        warn!(
                            object = path,
                            error = status.message(),
                            "cannot write the ConfigMap; retrying"
                        );
                        state.bootstrap.refused(&path, &status);
                    }
                }
                if !pause.wait(&mut stopped).await {
                    return;
                }
            }
            state.bootstrap.done(&path);
            tokio::select! {
                () = changed.notified() => {}
                () = tokio::time::sleep(CHECK_EVERY) => {}
                _ = stopped.wait_for(|s| *s) => return,
            }
        }
    });
}

/// Why the ConfigMap is not up to date.
enum SyncError {
    /// Another server wrote it at the same time.
    Conflict,
    /// The stored data cannot be parsed. It is not overwritten, because it may contain what other servers need.
    Unreadable(String),
    Refused(Status),
}

impl From<Status> for SyncError {
    fn from(status: Status) -> Self {
        if status.code() == 409 { SyncError::Conflict } else { SyncError::Refused(status) }
    }
}

async fn sync(state: &State, client: &LoopbackClient) -> Result<(), SyncError> {
    let path = format!("{CONFIG_MAPS}/{NAME}");
    let stored = client.get_if_exists(&path).await?;
    let held = stored.as_ref().and_then(|s| s.at(&["data"])).cloned().unwrap_or(Value::map::<Str, Value>([]));
    let data = merged(&held, &PublishedTrust::of(state), state.now()).map_err(SyncError::Unreadable)?;
    if data == held {
        return Ok(());
    }
    let mut object = stored.clone().unwrap_or_else(|| {
        let mut object = Value::map([("apiVersion", "v1"), ("kind", "ConfigMap")]);
        meta::set(&mut object, "name", NAME);
        meta::set(&mut object, "namespace", NAMESPACE);
        object
    });
    object.set_at(&["data"], data);
    let written = match stored {
        Some(_) => client.update(&path, &object).await,
        None => client.create(CONFIG_MAPS, &object).await,
    };
    let Err(status) = written else { return Ok(()) };
    if status.code() == 413 || (status.code() == 422 && status.message().contains("Too long")) {
        // Every server adds its own values again.
        let options = Value::map([("apiVersion", "v1"), ("kind", "DeleteOptions")]);
        client.delete(&path, &options).await?;
    }
    Err(status.into())
}

/// The data that this server publishes.
#[derive(Clone, Debug, Default)]
struct PublishedTrust {
    /// PEM of the CAs of clients; may be empty.
    clients: Vec<u8>,
    /// PEM of the CAs of front proxies; may be empty.
    proxies: Vec<u8>,
    proxy: FrontProxy,
}

impl PublishedTrust {
    fn of(state: &State) -> Self {
        let trust = state.authentication.trust.load_full();
        let authenticator = state.authentication.authenticator.load_full();
        PublishedTrust {
            clients: trust.clients.as_ref().map(|a| a.pem.to_vec()).unwrap_or_default(),
            proxies: trust.proxies.as_ref().map(|a| a.pem.to_vec()).unwrap_or_default(),
            proxy: authenticator.front_proxy.clone().unwrap_or_default(),
        }
    }
}

/// The wanted data of the ConfigMap: the stored values, then those of this server that are new. Fails if a stored value cannot be
/// parsed. `now` is in seconds since the epoch.
fn merged(stored: &Value, own: &PublishedTrust, now: i64) -> Result<Value, String> {
    let there = |key: &str| stored.str_at(&[key]).unwrap_or_default();
    let bundle = |key: &str, own: &[u8]| {
        combined(there(key), own, now)
            .map_err(|why| format!("the value of `{key}` is not a CA bundle: {why}"))
    };
    let list = |key: &str, own: &[Str]| {
        let stored =
            strings(there(key)).map_err(|why| format!("the value of `{key}` is not a list: {why}"))?;
        let mut seen = HashSet::new();
        let names = stored.iter().chain(own).filter(|name| seen.insert(*name));
        Ok::<_, String>(names.cloned().map(Value::String).collect::<Vec<_>>())
    };
    let mut lists = Vec::new();
    for (key, own) in [
        ("requestheader-username-headers", &own.proxy.username_headers),
        (UID_HEADERS, &own.proxy.uid_headers),
        ("requestheader-group-headers", &own.proxy.group_headers),
        ("requestheader-extra-headers-prefix", &own.proxy.extra_header_prefixes),
        ("requestheader-allowed-names", &own.proxy.allowed_names),
    ] {
        let names = list(key, own)?;
        // This key is newer than the others, and left out if it is empty.
        if key != UID_HEADERS || !names.is_empty() {
            lists.push((key, write::to_string(&Value::List(names))));
        }
    }
    let clients = bundle("client-ca-file", &own.clients)?;
    let proxies = bundle("requestheader-client-ca-file", &own.proxies)?;
    let mut data = value::Map::new();
    if !clients.is_empty() {
        data.insert("client-ca-file", clients);
    }
    if !proxies.is_empty() {
        for (key, names) in lists {
            data.insert(key, names);
        }
        data.insert("requestheader-client-ca-file", proxies);
    }
    Ok(Value::Map(data))
}

const UID_HEADERS: &str = "requestheader-uid-headers";

/// Parses a JSON list of strings; the empty text is an empty list.
fn strings(text: &str) -> Result<Vec<Str>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let list = json::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let names = list.as_list().ok_or("it is another type")?;
    names
        .iter()
        .map(|name| name.as_str().map(Str::from).ok_or_else(|| "an item is not a string".to_owned()))
        .collect()
}

/// The certificates of both bundles without duplicates and without those that expired more than [`EXPIRY_SLACK`] ago.
fn combined(there: &str, own: &[u8], now: i64) -> Result<String, String> {
    let stored = if there.is_empty() { Vec::new() } else { tls::certificates(there.as_bytes())? };
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    let mut out = String::new();
    for der in stored.into_iter().chain(tls::certificates(own).unwrap_or_default()) {
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|error| error.to_string())?;
        let is_current = certificate.validity().not_after.timestamp() > now.saturating_sub(EXPIRY_SLACK);
        if is_current && seen.insert(der.to_vec()) {
            out.push_str(&x509::pem::encode("CERTIFICATE", &der));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
