//! Aggregated discovery: the document at `/apis` is built again only when what it lists has changed.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use api::Status;
use bytes::Bytes;
use catalog::CustomKinds;
use data_encoding::HEXUPPER;
use documents::discovery::{self, RemoteVersion};
use http::HeaderMap;
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, VARY};
use requests::negotiate;
use sha2::{Digest as _, Sha512};
use value::Value;

use super::custom_entries;
use crate::body::Body;
use crate::call::{Call, HandlerResponse};
use crate::state::State;

/// Work on one resource in a discovery document costs about as much as processing this many bytes of an object.
const BYTES_OF_RESOURCE: usize = 1024;

/// The document at `/apis` that was built last.
#[derive(Debug, Default)]
pub struct AggregatedDiscovery {
    last: Mutex<Option<BuiltDiscovery>>,
}

/// A document, and what it was built from. It does not keep deleted CRDs in memory.
#[derive(Debug)]
struct BuiltDiscovery {
    custom: Weak<CustomKinds>,
    remote: Vec<RemoteVersion>,
    document: DiscoveryDocument,
}

#[derive(Clone, Debug)]
pub(super) struct DiscoveryDocument {
    body: Bytes,
    /// The value of `ETag`.
    tag: String,
}

impl AggregatedDiscovery {
    fn find(&self, custom: &Arc<CustomKinds>, remote: &[RemoteVersion]) -> Option<DiscoveryDocument> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let built = last.as_ref()?;
        let is_current = built.custom.upgrade().is_some_and(|known| Arc::ptr_eq(&known, custom))
            && built.remote.len() == remote.len()
            && built.remote.iter().zip(remote).all(|(known, new)| is_same(known, new));
        is_current.then(|| built.document.clone())
    }

    fn set(&self, custom: &Arc<CustomKinds>, remote: Vec<RemoteVersion>, document: DiscoveryDocument) {
        let built = BuiltDiscovery { custom: Arc::downgrade(custom), remote, document };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(built);
    }
}

/// Compares entries by reference, because they may be large; only those without resources by content.
fn is_same(known: &RemoteVersion, new: &RemoteVersion) -> bool {
    let is_small = |entry: &Value| entry.get("resources").is_none();
    known.registration == new.registration
        && (Arc::ptr_eq(&known.entry, &new.entry)
            || (is_small(&known.entry) && is_small(&new.entry) && known.entry == new.entry))
}

impl DiscoveryDocument {
    pub(super) fn of(document: &Value) -> Self {
        let mut body = Vec::new();
        api::order::of(document).write(&mut body, document);
        body.push(b'\n');
        let tag = format!("\"{}\"", HEXUPPER.encode(&Sha512::digest(&body)));
        DiscoveryDocument { body: body.into(), tag }
    }

    pub(super) fn answer(self, call: &Call) -> HandlerResponse {
        let DiscoveryDocument { body, tag } = self;
        let known = call.headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
        // Shared caches may store it if they respect `Vary` and revalidate.
        let shared = [(ETAG, tag), (CACHE_CONTROL, "public".to_owned()), (VARY, "Accept".to_owned())];
        if known {
            return HandlerResponse::With(304, "", shared.into(), Body::empty());
        }
        HandlerResponse::With(200, discovery::AGGREGATED, shared.into(), Body::shared(body))
    }
}

/// The groups at `/apis` with all their resources.
pub(super) async fn groups(state: &State, call: &Call) -> Result<HandlerResponse, Status> {
    let custom = state.apis.catalog.custom();
    let remote = state.apis.aggregation.remote_versions();
    if let Some(document) = state.apis.aggregated_discovery.find(&custom, &remote) {
        return Ok(document.answer(call));
    }
    let versions = custom.crds().map(|crd| crd.versions.len().max(1));
    let resources = remote.iter().map(|version| version.entry.list_at(&["resources"]).len());
    let size = versions.chain(resources).sum::<usize>().saturating_mul(BYTES_OF_RESOURCE);
    call.effort.enter_lane(size).await;
    let entries = custom_entries(&custom);
    let groups = discovery::aggregated_groups(state.apis.catalog.served(), &entries, &remote);
    let document = DiscoveryDocument::of(&groups);
    state.apis.aggregated_discovery.set(&custom, remote, document.clone());
    Ok(document.answer(call))
}

/// The version of aggregated discovery that the client prefers; `None` if it prefers the plain documents.
pub(super) fn preferred(headers: &HeaderMap) -> Option<&'static str> {
    for clause in negotiate::clauses(headers) {
        if !clause.covers("application", "json") {
            continue;
        }
        match (clause.param("g"), clause.param("v"), clause.param("as")) {
            (Some("apidiscovery.k8s.io"), Some("v2"), Some("APIGroupDiscoveryList")) => return Some("v2"),
            (None, None, None) => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests;
