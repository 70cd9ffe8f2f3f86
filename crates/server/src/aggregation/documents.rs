//! Discovery documents of aggregated API servers, and their part of the aggregated discovery and OpenAPI documents.
//!
//! Fetched in the background with a time and a size limit; requests read the last result. A version whose server cannot be
//! reached stays listed and is marked stale, so that clients know discovery is incomplete.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use authn::User;
use bytes::Bytes;
use documents::discovery::{self, Registration, RemoteVersion};
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Uri};
use tokio::sync::Notify;
use tracing::debug;
use value::{Backoff, Str, Value, json, write};

use super::{ApiAggregation, ApiService, CORE, availability, forward};
use crate::state::State;

/// Interval between fetches from a server that responds, and the upper limit of the retry backoff.
pub(super) const REFRESH: Duration = Duration::from_mins(1);
/// Backoff after a failed fetch; doubles each time.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(500);
/// Time limit of one discovery fetch.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Size limit of a discovery document, in bytes.
const MAX_DISCOVERY: usize = 8 << 20;
/// Size limit of what it says about one group version, in bytes of JSON: every answer at `/apis` repeats it.
const MAX_ENTRY: usize = 1 << 20;

/// Limit of the memory in bytes of all OpenAPI v2 documents: every answer at `/openapi/v2` repeats them.
const MAX_V2_MEMORY: usize = 64 << 20;

/// Fetched documents by name of the APIService.
#[derive(Default)]
pub(crate) struct Documents {
    by_service: Mutex<BTreeMap<Str, RemoteDocuments>>,
}

/// Documents of one aggregated API server. A field stays empty until its first successful fetch.
#[derive(Clone, Default)]
pub(super) struct RemoteDocuments {
    /// Its version entry in the aggregated discovery document, marked stale if the last fetch failed.
    pub(super) entry: Option<Arc<Value>>,
    /// Its OpenAPI v3 documents: path in the index, and server-relative URL.
    pub(super) v3: Vec<(String, String)>,
    /// Its OpenAPI v2 document, reduced to the paths of its own group and version.
    pub(super) v2: Option<Arc<Value>>,
}

impl Documents {
    pub(super) fn update(&self, name: &Str, change: impl FnOnce(&mut RemoteDocuments)) {
        let mut all = self.by_service.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(name.clone()).or_default());
    }

    /// Replaces the v2 document of an APIService. Returns whether it has changed; fails, and removes the former one, if all v2 documents together
    /// would take more than [`MAX_V2_MEMORY`].
    pub(super) fn replace_v2(&self, name: &Str, document: Value) -> Result<bool, String> {
        let mut all = self.by_service.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get_mut(name).and_then(|documents| documents.v2.take());
        if before.as_deref() == Some(&document) {
            all.entry(name.clone()).or_default().v2 = before;
            return Ok(false);
        }
        let others =
            all.values().filter_map(|documents| documents.v2.as_deref()).map(Value::memory).sum::<usize>();
        if others.saturating_add(document.memory()) > MAX_V2_MEMORY {
            return Err(format!(
                "the OpenAPI v2 documents of all servers take more than {MAX_V2_MEMORY} bytes"
            ));
        }
        all.entry(name.clone()).or_default().v2 = Some(Arc::new(document));
        Ok(true)
    }

    /// Removes the documents of the APIServices that `keep` rejects. Returns whether any were removed.
    pub(super) fn retain(&self, keep: impl Fn(&Str) -> bool) -> bool {
        let mut all = self.by_service.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.len();
        all.retain(|name, _| keep(name));
        all.len() < before
    }

    fn entry(&self, name: &str) -> Option<Arc<Value>> {
        self.by_service.lock().unwrap_or_else(PoisonError::into_inner).get(name)?.entry.clone()
    }

    pub(super) fn get(&self, name: &str) -> RemoteDocuments {
        self.by_service.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned().unwrap_or_default()
    }
}

impl ApiAggregation {
    /// Entries of remote versions in the aggregated discovery document.
    pub(crate) fn remote_versions(&self) -> Vec<RemoteVersion> {
        let services = self.remotes();
        // The core group has a discovery document of its own.
        let services = services.iter().filter(|service| service.name != CORE);
        services
            .map(|service| {
                let registration = service.registration.clone();
                let fetched = self.documents().entry(&service.name);
                let entry =
                    fetched.unwrap_or_else(|| Arc::new(discovery::stale_version(&registration.version)));
                RemoteVersion { registration, entry }
            })
            .collect()
    }

    /// The OpenAPI v3 documents of aggregated API servers: path in the index, and URL.
    pub(crate) fn remote_v3(&self) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for service in self.remotes() {
            for (path, url) in self.documents_of(&service) {
                // Several servers of a group may publish a document for the group; the first one is listed.
                if found.iter().all(|(known, _)| *known != path) {
                    found.push((path, url));
                }
            }
        }
        found
    }

    /// The OpenAPI v3 documents of one server. If the group is also served locally, its group document is the local one.
    pub(super) fn documents_of(&self, service: &ApiService) -> Vec<(String, String)> {
        let mut documents = self.documents().get(&service.name).v3;
        if self.serves_itself(&service.registration.group) {
            documents.retain(|(path, _)| *path == v3_path(service));
        }
        documents
    }

    /// The OpenAPI v2 documents of aggregated API servers, highest group priority first.
    pub(crate) fn remote_v2(&self) -> Vec<Arc<Value>> {
        let mut services = self.remotes();
        services.sort_by(|a, b| {
            let rank = |s: &ApiService| std::cmp::Reverse(s.registration.group_priority);
            (rank(a), &a.name).cmp(&(rank(b), &b.name))
        });
        services.iter().filter_map(|service| self.documents().get(&service.name).v2).collect()
    }

    /// The OpenAPI v2 documents of aggregated API servers without OpenAPI v3, by path in the v3 index.
    pub(crate) fn only_v2(&self) -> Vec<(String, Arc<Value>)> {
        let services = self.remotes();
        let found = services.iter().filter_map(|service| {
            let documents = self.documents().get(&service.name);
            documents.v2.filter(|_| documents.v3.is_empty()).map(|document| (v3_path(service), document))
        });
        found.collect()
    }
}

/// The path of the document of the service's group and version in the OpenAPI v3 index.
pub(super) fn v3_path(service: &ApiService) -> String {
    format!("apis/{}/{}", service.registration.group, service.registration.version)
}

/// Refetches the discovery document of an APIService until the APIService is deleted.
pub(super) async fn refresh_discovery(state: Arc<State>, name: Str, refresh: Arc<Notify>) {
    let mut backoff = Backoff::new(FIRST_RETRY, REFRESH);
    let mut last = None;
    loop {
        let Some(service) = state.apis.aggregation.registry.services.load().all.get(&name).cloned() else {
            return;
        };
        let registration = &service.registration;
        let fetched = match tokio::time::timeout(TIMEOUT, fetch(&state, &service, &mut last)).await {
            Ok(fetched) => fetched,
            Err(_) => Err("request timed out".to_owned()),
        };
        let wait = match &fetched {
            Ok(_) => {
                backoff.reset();
                REFRESH
            }
            Err(why) => {
                debug!(api_service = %name, error = why, "cannot fetch the discovery document of an aggregated API server; retrying");
                last = None;
                backoff.fail()
            }
        };
        let entry = fetched.unwrap_or_else(|_| Arc::new(discovery::stale_version(&registration.version)));
        state.apis.aggregation.documents().update(&name, |documents| documents.entry = Some(entry));
        tokio::select! {
            () = refresh.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// The last response with its `ETag`, for conditional requests.
type EtaggedVersion = Option<(HeaderValue, Arc<Value>)>;

async fn fetch(state: &State, service: &ApiService, last: &mut EtaggedVersion) -> Result<Arc<Value>, String> {
    let registration = &service.registration;
    let user = User::named(authn::names::AGGREGATOR).in_groups([authn::names::MASTERS]);
    let mut headers = HeaderMap::new();
    // As kube-aggregator asks.
    headers.insert(ACCEPT, HeaderValue::from_static(discovery::AGGREGATED));
    if let Some((tag, _)) = &last {
        headers.insert(IF_NONE_MATCH, tag.clone());
    }
    let answer = get(state, service, "/apis", &user, headers, MAX_DISCOVERY).await?;
    let aggregated =
        answer.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(is_aggregated);
    match (answer.status, last.as_ref()) {
        (304, Some((_, entry))) => return Ok(Arc::clone(entry)),
        (200, _) if aggregated => {
            let Registration { group, version, .. } = registration.clone();
            let read = move |list: &Value| discovery::aggregated_versions(list, &group, &version);
            let entry = read_entry(state, answer.body, read).await?;
            *last = answer.headers.get(ETAG).map(|tag| (tag.clone(), Arc::clone(&entry)));
            return Ok(entry);
        }
        (503, _) => return Err("the service returned 503".to_owned()),
        _ => {}
    }
    let path = format!("/apis/{}/{}", registration.group, registration.version);
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let answer =
        get(state, service, &path, &User::named(authn::names::AGGREGATOR), headers, MAX_DISCOVERY).await?;
    if answer.status != 200 {
        return Err(format!("{path} returned {}", answer.status));
    }
    let version = registration.version.clone();
    read_entry(state, answer.body, move |list| discovery::legacy_version(list, &version)).await
}

/// Reads the entry of a version from a discovery document, in the heavy lane if that is large.
async fn read_entry(
    state: &State,
    document: Bytes,
    read: impl FnOnce(&Value) -> Result<Value, String> + Send + 'static,
) -> Result<Arc<Value>, String> {
    let size = document.len();
    let work = move || {
        let entry = read(&json::parse(&document).map_err(|error| error.to_string())?)?;
        bounded(entry).map(Arc::new)
    };
    state.serving.heavy.run(size, work).await.unwrap_or_else(|| Err("the server is stopping".to_owned()))
}

/// Refuses an entry that is too large.
fn bounded(entry: Value) -> Result<Value, String> {
    let size = write::to_vec(&entry).len();
    if size > MAX_ENTRY {
        return Err(format!("the discovery document of the version has {size} bytes, more than {MAX_ENTRY}"));
    }
    Ok(entry)
}

/// Whether the content type is that of aggregated discovery v2. Older servers ignore the `Accept` parameters.
fn is_aggregated(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let json = parts.next() == Some("application/json");
    let params: Vec<&str> = parts.collect();
    let has = |wanted: &str| params.contains(&wanted);
    json && has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
}

/// A response whose body was read completely.
pub(super) struct FetchedDocument {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Sends a GET request to the aggregated API server as `user`. Fails if the body exceeds `limit` bytes.
pub(super) async fn get(
    state: &State,
    service: &ApiService,
    path: &str,
    user: &User,
    headers: HeaderMap,
    limit: usize,
) -> Result<FetchedDocument, String> {
    let remote = service.remote.as_ref().ok_or("the APIService is local")?;
    let transport = (*remote.transport).as_ref().map_err(Clone::clone)?;
    let host = availability::locate(&state.storage.store, remote)?;
    let uri: Uri = format!("https://{host}{path}")
        .parse()
        .map_err(|_| "the address of the Service is not a valid URL".to_owned())?;
    let mut request = forward::own_request(&state.apis.aggregation.registry, &service.name, uri, user)?;
    request.headers_mut().extend(headers);
    let response = transport.send(request).await.map_err(|failure| failure.message)?;
    let (parts, body) = response.into_parts();
    let answers = &state.apis.aggregation.registry.answers;
    let body = answers.read(body, limit).await.map_err(|error| error.to_string())?;
    Ok(FetchedDocument { status: parts.status.as_u16(), headers: parts.headers, body })
}

#[cfg(test)]
mod tests;
