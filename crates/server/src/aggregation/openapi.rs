//! Fetches OpenAPI documents of aggregated API servers: the index of v3 documents, and the v2 document.

use std::sync::Arc;
use std::time::Duration;

use authn::User;
use documents::openapi;
use http::HeaderMap;
use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use tokio::sync::Notify;
use tracing::debug;
use value::{Backoff, Str, Value, json};

use super::documents::{FIRST_RETRY, REFRESH, get, v3_path};
use super::{ApiService, CORE};
use crate::state::State;

/// Time limit of each fetch.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Size limits of the v3 index and of the v2 document, in bytes.
const MAX_INDEX: usize = 1 << 20;
const MAX_DOCUMENT: usize = 8 << 20;
/// Limits of the memory in bytes of a v2 document, as fetched and reduced to its group version.
const MAX_FETCHED_MEMORY: usize = 256 << 20;
const MAX_MEMORY: usize = 16 << 20;
/// The user in the front-proxy headers of these requests. kube-aggregator uses another one than for availability and discovery.
const OPENAPI_USER: &str = "system:aggregator";

/// Refetches the OpenAPI documents of an APIService until the APIService is deleted.
pub(super) async fn refresh_openapi(state: Arc<State>, name: Str, refresh: Arc<Notify>) {
    let mut backoff = Backoff::new(FIRST_RETRY, REFRESH);
    let mut tag = None;
    loop {
        let Some(service) = state.apis.aggregation.registry.services.load().all.get(&name).cloned() else {
            return;
        };
        // The OpenAPI document of the core group is always the local one.
        if service.name == CORE {
            return;
        }
        let v3 = limited(v3(&state, &service)).await;
        let mut v2 = limited(v2(&state, &service, &mut tag)).await;
        let failed = [v3.as_ref().err(), v2.as_ref().err()].into_iter().flatten().next();
        let wait = match failed {
            None => {
                backoff.reset();
                REFRESH
            }
            Some(why) => {
                debug!(api_service = %name, error = why, "cannot fetch the OpenAPI documents of an aggregated API server; retrying");
                backoff.fail()
            }
        };
        let mut news = false;
        if let Ok(Some(Fetched::Document(document))) = v2 {
            match state.apis.aggregation.documents().replace_v2(&name, document) {
                Ok(is_news) => news = is_news,
                Err(why) => {
                    (tag, news) = (None, true);
                    debug!(api_service = %name, error = why, "dropping the OpenAPI v2 document of an aggregated API server");
                }
            }
            v2 = Ok(Some(Fetched::Same));
        }
        state.apis.aggregation.documents().update(&name, |fetched| {
            // A failed fetch keeps the documents of the previous one.
            if let Ok(v3) = v3
                && fetched.v3 != v3
            {
                fetched.v3 = v3;
                news = true;
            }
            if let Ok(None) = v2 {
                news |= fetched.v2.take().is_some();
            }
        });
        if news {
            state.apis.openapi.forget_custom();
        }
        tokio::select! {
            () = refresh.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn limited<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| Err("request timed out".to_owned()))
}

/// The documents of the service's version and group that the server's v3 index lists.
async fn v3(state: &State, service: &ApiService) -> Result<Vec<(String, String)>, String> {
    let answer =
        get(state, service, "/openapi/v3", &User::named(OPENAPI_USER), HeaderMap::new(), MAX_INDEX).await?;
    match answer.status {
        200 => {}
        404 => return Ok(Vec::new()),
        code => return Err(format!("/openapi/v3 returned {code}")),
    }
    let index = json::parse(&answer.body).map_err(|error| error.to_string())?;
    let own = [v3_path(service), format!("apis/{}", service.registration.group)];
    let listed = own.into_iter().filter_map(|path| {
        let url = index.str_at(&["paths", path.as_str(), "serverRelativeURL"])?;
        // Reject URLs other than the expected path, so that the server cannot direct clients elsewhere.
        let is_there = url.split('?').next() == Some(&format!("/openapi/v3/{path}"));
        is_there.then(|| (path, url.to_owned()))
    });
    Ok(listed.collect())
}

/// Result of a conditional fetch: a new v2 document, or that the known one is still current.
enum Fetched {
    Document(Value),
    Same,
}

async fn v2(
    state: &State,
    service: &ApiService,
    tag: &mut Option<HeaderValue>,
) -> Result<Option<Fetched>, String> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(tag) = tag {
        headers.insert(IF_NONE_MATCH, tag.clone());
    }
    let answer =
        get(state, service, "/openapi/v2", &User::named(OPENAPI_USER), headers, MAX_DOCUMENT).await?;
    match answer.status {
        200 => {}
        304 if tag.is_some() => return Ok(Some(Fetched::Same)),
        404 => return Ok(None),
        code => return Err(format!("/openapi/v2 returned {code}")),
    }
    let (group, version) = (service.registration.group.clone(), service.registration.version.clone());
    let body = answer.body;
    let size = body.len();
    let read = move || {
        if json::max_memory(&body) > MAX_FETCHED_MEMORY {
            return Err("the document has too many parts".to_owned());
        }
        let document = json::parse(&body).map_err(|error| error.to_string())?;
        drop(body);
        bounded(openapi::below(document, &format!("/apis/{group}/{version}/")))
    };
    let document = state.serving.heavy.run(size, read).await;
    let document = document.unwrap_or_else(|| Err("the server is stopping".to_owned()))?;
    // Remember the `ETag` only after the document was parsed successfully.
    *tag = answer.headers.get(ETAG).cloned();
    Ok(Some(Fetched::Document(document)))
}

/// Refuses a document that is too large.
fn bounded(document: Value) -> Result<Value, String> {
    let memory = document.memory();
    if memory > MAX_MEMORY {
        return Err(format!(
            "its part for the group version takes {memory} bytes of memory, more than {MAX_MEMORY}"
        ));
    }
    Ok(document)
}

#[cfg(test)]
mod tests;
