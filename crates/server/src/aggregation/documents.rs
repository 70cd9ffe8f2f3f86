//! What other servers serve, as they say it: their parts of the discovery and OpenAPI documents.
//!
//! Fetched in the background, each with a time limit and a size limit; a reader takes what there is. A version whose server
//! cannot be asked stays listed and is marked stale, so that clients know that something is missing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use authn::User;
use bytes::Bytes;
use documents::discovery::{self, RemoteVersion};
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method, Uri};
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::Notify;
use tracing::debug;
use value::{Str, Value, json};

use super::{Aggregation, ApiService, CORE, availability, forward};
use crate::state::State;

/// How often a server that answers is asked again; one that does not is no later than that.
pub(super) const REFRESH: Duration = Duration::from_mins(1);
/// How soon one that does not is: twice as long each time.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(500);
/// How long it has to say what it serves.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest list of resources.
const MAX_DISCOVERY: usize = 8 << 20;

/// What is asked for: the aggregated form, as Kubernetes asks.
const ACCEPTED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// As whom.
const ASKING: &str = "system:kube-aggregator";

/// What other servers said, by APIService.
#[derive(Default)]
pub(crate) struct Documents {
    by_service: Mutex<BTreeMap<Str, Said>>,
}

/// What one server said.
#[derive(Clone, Default)]
pub(super) struct Said {
    /// Its entry in the aggregated document.
    pub(super) entry: Option<Value>,
    /// Where its OpenAPI v3 documents are: paths in the index, and the URLs that it shows.
    pub(super) v3: Vec<(String, String)>,
    /// Its OpenAPI v2 document, of what is below its own path.
    pub(super) v2: Option<Arc<Value>>,
}

impl Documents {
    /// Changes what is known of an APIService.
    pub(super) fn hear(&self, name: &Str, change: impl FnOnce(&mut Said)) {
        let mut all = self.by_service.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(name.clone()).or_default());
    }

    /// Forgets what is not kept; whether anything was.
    pub(super) fn retain(&self, keep: impl Fn(&Str) -> bool) -> bool {
        let mut all = self.by_service.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.len();
        all.retain(|name, _| keep(name));
        all.len() < before
    }

    pub(super) fn said(&self, name: &str) -> Said {
        self.by_service.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned().unwrap_or_default()
    }
}

impl Aggregation {
    /// The parts of other servers in the aggregated document.
    pub(crate) fn remote_versions(&self) -> Vec<RemoteVersion> {
        let services = self.remotes();
        // The core group has a document of its own.
        let services = services.iter().filter(|service| service.name != CORE);
        services
            .map(|service| {
                let registration = service.registration.clone();
                let said = self.documents().said(&service.name).entry;
                let entry = said.unwrap_or_else(|| discovery::stale_version(&registration.version));
                RemoteVersion { registration, entry }
            })
            .collect()
    }

    /// The OpenAPI v3 documents of other servers: the path in the index, and the URL.
    pub(crate) fn remote_v3(&self) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for service in self.remotes() {
            for (path, url) in self.documents_of(&service) {
                // The servers of a group may each have a document of it; one is enough.
                if found.iter().all(|(known, _)| *known != path) {
                    found.push((path, url));
                }
            }
        }
        found
    }

    /// Those of one server. The document of a group that is also served here is the one made here.
    pub(super) fn documents_of(&self, service: &ApiService) -> Vec<(String, String)> {
        let mut documents = self.documents().said(&service.name).v3;
        if self.serves_itself(&service.registration.group) {
            documents.retain(|(path, _)| *path == v3_path(service));
        }
        documents
    }

    /// The OpenAPI v2 documents of other servers, those with the highest priority first.
    pub(crate) fn remote_v2(&self) -> Vec<Arc<Value>> {
        let mut services = self.remotes();
        services.sort_by(|a, b| {
            let rank = |s: &ApiService| std::cmp::Reverse(s.registration.group_priority);
            (rank(a), &a.name).cmp(&(rank(b), &b.name))
        });
        services.iter().filter_map(|service| self.documents().said(&service.name).v2).collect()
    }

    /// The OpenAPI v2 documents of other servers that have no v3 document: the path in the index, and the document.
    pub(crate) fn only_v2(&self) -> Vec<(String, Arc<Value>)> {
        let services = self.remotes();
        let found = services.iter().filter_map(|service| {
            let said = self.documents().said(&service.name);
            said.v2.filter(|_| said.v3.is_empty()).map(|document| (v3_path(service), document))
        });
        found.collect()
    }
}

/// The path of a service's document in the index of OpenAPI v3.
pub(super) fn v3_path(service: &ApiService) -> String {
    format!("apis/{}/{}", service.registration.group, service.registration.version)
}

/// Keeps what an APIService serves until it is told to end.
pub(super) async fn keep(state: Arc<State>, name: Str, refresh: Arc<Notify>) {
    let mut retry = FIRST_RETRY;
    let mut known = None;
    loop {
        let Some(service) = state.aggregation.registry.services.load().all.get(&name).cloned() else {
            return;
        };
        let registration = &service.registration;
        let fetched = match tokio::time::timeout(TIMEOUT, fetch(&state, &service, &mut known)).await {
            Ok(fetched) => fetched,
            Err(_) => Err("request timed out".to_owned()),
        };
        let wait = match &fetched {
            Ok(_) => {
                retry = FIRST_RETRY;
                REFRESH
            }
            Err(why) => {
                debug!(api_service = %name, why, "an API server does not say what it serves");
                known = None;
                let wait = retry;
                retry = (retry * 2).min(REFRESH);
                wait
            }
        };
        let entry = fetched.unwrap_or_else(|_| discovery::stale_version(&registration.version));
        state.aggregation.documents().hear(&name, |said| said.entry = Some(entry));
        tokio::select! {
            () = refresh.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// What was heard last, with the tag by which the server knows it.
type Known = Option<(HeaderValue, Value)>;

async fn fetch(state: &State, service: &ApiService, known: &mut Known) -> Result<Value, String> {
    let registration = &service.registration;
    let user = User::named(ASKING).in_groups([authn::names::MASTERS]);
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
    if let Some((tag, _)) = &known {
        headers.insert(IF_NONE_MATCH, tag.clone());
    }
    let answer = get(state, service, "/apis", &user, headers, MAX_DISCOVERY).await?;
    let aggregated =
        answer.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(is_aggregated);
    match (answer.status, known.as_ref()) {
        (304, Some((_, entry))) => return Ok(entry.clone()),
        (200, _) if aggregated => {
            let list = json::parse(&answer.body).map_err(|error| error.to_string())?;
            let entry = discovery::aggregated_versions(&list, &registration.group, &registration.version)?;
            *known = answer.headers.get(ETAG).map(|tag| (tag.clone(), entry.clone()));
            return Ok(entry);
        }
        (503, _) => return Err("the service returned 503".to_owned()),
        _ => {}
    }
    let path = format!("/apis/{}/{}", registration.group, registration.version);
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let answer = get(state, service, &path, &User::named(ASKING), headers, MAX_DISCOVERY).await?;
    if answer.status != 200 {
        return Err(format!("{path} returned {}", answer.status));
    }
    let list = json::parse(&answer.body).map_err(|error| error.to_string())?;
    discovery::legacy_version(&list, &registration.version)
}

/// Whether a content type says that the aggregated form was understood.
fn is_aggregated(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let json = parts.next() == Some("application/json");
    let params: Vec<&str> = parts.collect();
    let has = |wanted: &str| params.contains(&wanted);
    json && has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
}

/// An answer, read to its end.
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Asks a server for something of its own.
pub(super) async fn get(
    state: &State,
    service: &ApiService,
    path: &str,
    user: &User,
    headers: HeaderMap,
    limit: usize,
) -> Result<Got, String> {
    let remote = service.remote.as_ref().ok_or("it is served here")?;
    let transport = (*remote.transport).as_ref().map_err(Clone::clone)?;
    let place = availability::locate(&state.store, remote)?;
    let uri: Uri = format!("https://{place}{path}").parse().map_err(|_| "it is at no URL".to_owned())?;
    let mut request = forward::own_request(Method::GET, uri, user)?;
    request.headers_mut().extend(headers);
    let response = transport.send(request).await.map_err(|failure| failure.message)?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, limit).collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok(Got { status: parts.status.as_u16(), headers: parts.headers, body })
}
