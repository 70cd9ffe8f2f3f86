//! The OpenAPI documents of other servers: where the v3 documents are, and the v2 document of what is theirs.

use std::sync::Arc;
use std::time::Duration;

use authn::User;
use documents::openapi;
use http::HeaderMap;
use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use tokio::sync::Notify;
use tracing::debug;
use value::{Str, Value, json};

use super::documents::{FIRST_RETRY, REFRESH, get, v3_path};
use super::{ApiService, CORE};
use crate::state::State;

/// How long a server has for each document.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The longest documents.
const MAX_INDEX: usize = 1 << 20;
const MAX_DOCUMENT: usize = 16 << 20;
/// As whom it is asked.
const ASKING: &str = "system:aggregator";

/// Keeps the documents of an APIService until it is told to end.
pub(super) async fn keep(state: Arc<State>, name: Str, refresh: Arc<Notify>) {
    let mut retry = FIRST_RETRY;
    let mut tag = None;
    loop {
        let Some(service) = state.aggregation.registry.services.load().all.get(&name).cloned() else {
            return;
        };
        // Everything of the core group is in one document with what is served here.
        if service.name == CORE {
            return;
        }
        let v3 = limited(v3(&state, &service)).await;
        let v2 = limited(v2(&state, &service, &mut tag)).await;
        let failed = [v3.as_ref().err(), v2.as_ref().err()].into_iter().flatten().next();
        let wait = match failed {
            None => {
                retry = FIRST_RETRY;
                REFRESH
            }
            Some(why) => {
                debug!(api_service = %name, why, "an API server does not say how it is used");
                let wait = retry;
                retry = (retry * 2).min(REFRESH);
                wait
            }
        };
        let mut news = false;
        state.aggregation.documents().hear(&name, |said| {
            // What was known stays until something else is.
            if let Ok(v3) = v3
                && said.v3 != v3
            {
                said.v3 = v3;
                news = true;
            }
            match v2 {
                Ok(Some(Fetched::Document(document))) if said.v2.as_deref() != Some(&document) => {
                    said.v2 = Some(Arc::new(document));
                    news = true;
                }
                Ok(None) => news |= said.v2.take().is_some(),
                Ok(Some(_)) | Err(_) => {}
            }
        });
        if news {
            state.openapi.forget_custom();
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

/// The v3 documents in the server's index: of its version, and of its group.
async fn v3(state: &State, service: &ApiService) -> Result<Vec<(String, String)>, String> {
    let answer =
        get(state, service, "/openapi/v3", &User::named(ASKING), HeaderMap::new(), MAX_INDEX).await?;
    match answer.status {
        200 => {}
        404 => return Ok(Vec::new()),
        code => return Err(format!("/openapi/v3 returned {code}")),
    }
    let index = json::parse(&answer.body).map_err(|error| error.to_string())?;
    let own = [v3_path(service), format!("apis/{}", service.registration.group)];
    let listed = own.into_iter().filter_map(|path| {
        let url = index.str_at(&["paths", path.as_str(), "serverRelativeURL"])?;
        // Nobody is sent anywhere else.
        let is_there = url.split('?').next() == Some(&format!("/openapi/v3/{path}"));
        is_there.then(|| (path, url.to_owned()))
    });
    Ok(listed.collect())
}

/// A v2 document, or that it is the one that is known.
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
    let answer = get(state, service, "/openapi/v2", &User::named(ASKING), headers, MAX_DOCUMENT).await?;
    match answer.status {
        200 => {}
        304 if tag.is_some() => return Ok(Some(Fetched::Same)),
        404 => return Ok(None),
        code => return Err(format!("/openapi/v2 returned {code}")),
    }
    let (group, version) = (service.registration.group.clone(), service.registration.version.clone());
    let body = answer.body;
    let read = move || {
        let document = json::parse(&body).map_err(|error| error.to_string())?;
        Ok(openapi::below(document, &format!("/apis/{group}/{version}/")))
    };
    // A document may be long: nobody else waits for it.
    let document: Result<Value, String> =
        tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
    let document = document?;
    // Only what was read is known by its tag.
    *tag = answer.headers.get(ETAG).cloned();
    Ok(Some(Fetched::Document(document)))
}
