//! The OpenAPI documents: `/openapi/v2` and `/openapi/v3`.

use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use crd::CustomResourceDefinition;
use documents::openapi::{OpenApi, OpenApiDocument, OpenApiInputs, V2_PROTOBUF};
use http::header::{CACHE_CONTROL, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderName};
use requests::negotiate;
use tokio::sync::Semaphore;
use value::Str;

use crate::body::Body;
use crate::call::{Call, HandlerResponse};
use crate::handlers::zpages;
use crate::state::State;

/// Serves an OpenAPI document. `path` has the segments after `/openapi`.
pub(super) async fn handle(
    state: &Arc<State>,
    call: &Call,
    path: &[&str],
) -> Result<HandlerResponse, Status> {
    let builders = &state.apis.openapi_builders;
    match path {
        ["v3"] => {
            let index =
                build(state, &builders.v3, |openapi, current| Some(openapi.v3_index(current))).await?;
            Ok(index.map_or_else(missing, |index| {
                HandlerResponse::Raw(200, "text/plain; charset=utf-8", shared(&index))
            }))
        }
        ["v3", name] => {
            let wanted = (*name).to_owned();
            let document =
                build(state, &builders.v3, move |openapi, current| openapi.v3(&wanted, current)).await?;
            Ok(document.map_or_else(missing, |document| version_3(call, name, &document)))
        }
        ["v2"] => {
            let Some(protobuf) = wants_protobuf(&call.headers) else {
                return Ok(HandlerResponse::With(406, "", vary_2(), Body::empty()));
            };
            let document = build(state, &builders.v2, move |openapi, current| {
                Some(if protobuf {
                    openapi.v2_protobuf(current, report_left_out)
                } else {
                    openapi.v2_json(current, report_left_out)
                })
            });
            let content_type = if protobuf { V2_PROTOBUF } else { "application/json" };
            Ok(document
                .await?
                .map_or_else(missing, |document| tagged(call, content_type, vary_2(), &document)))
        }
        _ => Err(Status::no_such_resource()),
    }
}

/// Builds an OpenAPI document on a blocking thread, because it may take seconds.
async fn build(
    state: &Arc<State>,
    builder: &Arc<Semaphore>,
    build: impl FnOnce(&OpenApi, OpenApiInputs<'_>) -> Option<Arc<OpenApiDocument>> + Send + 'static,
) -> Result<Option<Arc<OpenApiDocument>>, Status> {
    // One at a time: the next request finds the cached document.
    let turn = Arc::clone(builder).acquire_owned().await;
    let maker = Arc::clone(state);
    let work = move || {
        // Held until the end, even if the client has disconnected.
        let _turn = turn;
        let generation = maker.apis.openapi.generation();
        let custom: Vec<Arc<CustomResourceDefinition>> =
            maker.apis.catalog.custom().crds().cloned().collect();
        let (remote_v3, remote_v2) = (maker.apis.aggregation.remote_v3(), maker.apis.aggregation.remote_v2());
        let only_v2 = maker.apis.aggregation.only_v2();
        let current = OpenApiInputs {
            generation,
            custom: &custom,
            remote_v3: &remote_v3,
            remote_v2: &remote_v2,
            only_v2: &only_v2,
        };
        build(&maker.apis.openapi, current)
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Status::internal("building the OpenAPI document failed"))
}

/// Limits concurrency to one OpenAPI document per version, because building one may take seconds and much memory. The large documents of
/// version 2 do not block those of version 3.
pub struct OpenApiBuilders {
    v2: Arc<Semaphore>,
    v3: Arc<Semaphore>,
}

impl Default for OpenApiBuilders {
    fn default() -> Self {
        OpenApiBuilders { v2: Arc::new(Semaphore::new(1)), v3: Arc::new(Semaphore::new(1)) }
    }
}

/// Logs the CRDs that `/openapi/v2` omits.
fn report_left_out(crds: &[Str]) {
    const NAMED: usize = 10;
    let named: Vec<&str> = crds.iter().take(NAMED).map(Str::as_str).collect();
    tracing::warn!(
        count = crds.len(),
        crds = named.join(","),
        "CustomResourceDefinitions are left out of /openapi/v2 because it would be too large; /openapi/v3 has all of them"
    );
}

/// A body that shares the bytes of the document with other responses.
fn shared(document: &Arc<OpenApiDocument>) -> Body {
    struct CachedBody(Arc<OpenApiDocument>);
    impl AsRef<[u8]> for CachedBody {
        fn as_ref(&self) -> &[u8] {
            &self.0.body
        }
    }
    Body::shared(Bytes::from_owner(CachedBody(Arc::clone(document))))
}

fn missing() -> HandlerResponse {
    HandlerResponse::Raw(404, "", Body::empty())
}

type ResponseHeaders = Vec<(HeaderName, String)>;

fn vary_2() -> ResponseHeaders {
    vec![(VARY, "Accept-Encoding".to_owned()), (VARY, "Accept".to_owned())]
}

/// Reports whether the client prefers protobuf to JSON; `None` if it accepts neither.
fn wants_protobuf(headers: &HeaderMap) -> Option<bool> {
    negotiate::clauses(headers).iter().find_map(|clause| {
        let protobuf =
            clause.kind == "application" && clause.subtype.starts_with("com.github.proto-openapi.spec.v2");
        if clause.covers("application", "json") { Some(false) } else { protobuf.then_some(true) }
    })
}

/// A document with its entity tag, or 304 if the client already has it.
fn tagged(
    call: &Call,
    content_type: &'static str,
    mut headers: ResponseHeaders,
    document: &Arc<OpenApiDocument>,
) -> HandlerResponse {
    let tag = format!("\"{}\"", document.hash);
    let has = call.headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()) == Some(tag.as_str());
    headers.push((ETAG, tag));
    let body = if has { Body::empty() } else { shared(document) };
    HandlerResponse::With(if has { 304 } else { 200 }, content_type, headers, body)
}

/// A document of version 3. A request with its current hash may be cached for a year; another hash is redirected to the current one.
fn version_3(call: &Call, path: &str, document: &Arc<OpenApiDocument>) -> HandlerResponse {
    const YEAR: i64 = 365 * 24 * 3600;
    let json = "application/json";
    let mut headers = vec![(VARY, "Accept".to_owned())];
    if !negotiate::clauses(&call.headers).iter().any(|clause| clause.covers("application", "json")) {
        return HandlerResponse::With(406, "", headers, Body::empty());
    }
    match call.query.get("hash").filter(|hash| !hash.is_empty()) {
        Some(hash) if hash == document.hash => {
            headers.push((CACHE_CONTROL, "public, immutable".to_owned()));
            headers.push((EXPIRES, zpages::date(call.now.saturating_add(YEAR))));
        }
        Some(_) => {
            headers.push((ETAG, format!("\"{}\"", document.hash)));
            headers.push((LOCATION, format!("/openapi/v3/{path}?hash={}", document.hash)));
            return HandlerResponse::With(301, json, headers, Body::empty());
        }
        None => {}
    }
    tagged(call, json, headers, document)
}
