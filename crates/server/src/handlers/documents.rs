//! The paths that name no resource: discovery, OpenAPI, version, health, metrics.

use std::sync::Arc;

use api::Status;
use authn::tokens;
use http::HeaderMap;
use http::header::IF_NONE_MATCH;
use resources::discovery;
use resources::openapi::{Document, V2_PROTOBUF};
use value::Value;

use crate::body::Body;
use crate::call::{Answer, Call};
use crate::negotiate;
use crate::state::State;

/// The paths listed at `/`.
const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

/// Whether something is at a path that names no resource.
pub fn is_path(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        ["apis", group] | ["apis", group, _] => {
            resources::table::group(group).is_some_and(|g| !g.name.is_empty())
        }
        ["healthz" | "livez" | "readyz", check @ ..] => crate::health::is_check(&check.join("/")),
        []
        | ["api" | "apis" | "version" | "metrics"]
        | ["api", _]
        | [".well-known", "openid-configuration"]
        | ["openid", "v1", "jwks"]
        | ["openapi", "v2"]
        | ["openapi", "v3", ..] => true,
        _ => false,
    }
}

/// Answers a path that names no resource.
pub async fn handle(state: &Arc<State>, call: &mut Call) -> Result<Answer, Status> {
    let path = call.info.path.trim_end_matches('/').to_owned();
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').filter(|s| !s.is_empty()).collect();
    // What Kubernetes' router serves is there for GET alone; the other pages answer HEAD too.
    let routed = matches!(segments.first(), Some(&("api" | "apis" | "version" | ".well-known" | "openid")));
    if !matches!((call.info.verb.as_str(), routed), ("get", _) | ("head", false)) {
        return Err(Status::method_not_allowed());
    }
    let served = state.catalog.served();
    let not_found = Status::no_such_resource;
    let text = |(code, text): (u16, String)| Answer::Raw(code, "text/plain; charset=utf-8", Body::from(text));
    match segments.as_slice() {
        [] => Ok(Answer::Object(200, Value::map([("paths", Value::list(paths(state)))]))),
        ["api"] => match aggregated(&call.headers) {
            Some(_) => Ok(aggregated_answer(&discovery::aggregated_core(served))),
            None => Ok(Answer::Object(200, discovery::core_versions(&state.advertised))),
        },
        ["apis"] => match aggregated(&call.headers) {
            Some(_) => Ok(aggregated_answer(&discovery::aggregated_groups(served, &[]))),
            None => Ok(Answer::Object(200, discovery::groups(served, &[]))),
        },
        ["api", version] => discovery::resources(served, &[], "", version)
            .map(|d| Answer::Object(200, d))
            .ok_or_else(not_found),
        ["apis", group] => {
            discovery::group(served, &[], group).map(|d| Answer::Object(200, d)).ok_or_else(not_found)
        }
        ["apis", group, version] => discovery::resources(served, &[], group, version)
            .map(|d| Answer::Object(200, d))
            .ok_or_else(not_found),
        [".well-known", "openid-configuration"] => {
            let document =
                state.tokens.as_ref().and_then(|t| t.configuration.clone()).ok_or_else(not_found)?;
            published(call, "json", "application/json", document)
        }
        ["openid", "v1", "jwks"] => {
            let keys = state.tokens.as_ref().map(|t| t.key_set.clone()).ok_or_else(not_found)?;
            published(call, "jwk-set+json", "application/jwk-set+json", keys)
        }
        ["version"] => Ok(Answer::Object(200, crate::version::document())),
        ["healthz" | "livez" | "readyz", ..] => {
            state.health.page(&path, &call.query).map(text).ok_or_else(not_found)
        }
        ["metrics"] => {
            let objects: Vec<(String, usize)> = state
                .catalog
                .stored_kinds()
                .map(|kind| (kind.resource.to_string(), state.store.count(&kind.scope(""))))
                .collect();
            let page = state.metrics.page(state.seats.taken(), &objects);
            Ok(Answer::Raw(
                200,
                "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
                Body::from(page),
            ))
        }
        ["openapi", "v3"] => {
            document(state, call, "text/plain; charset=utf-8", |state| Some(state.openapi.v3_index())).await
        }
        ["openapi", "v3", rest @ ..] => {
            let path = rest.join("/");
            document(state, call, "application/json", move |state| state.openapi.v3(&path)).await
        }
        ["openapi", "v2"] => {
            let protobuf = negotiate::clauses(&call.headers)
                .first()
                .is_some_and(|clause| clause.subtype.starts_with("com.github.proto-openapi.spec.v2"));
            if protobuf {
                document(state, call, V2_PROTOBUF, |state| Some(state.openapi.v2_protobuf())).await
            } else {
                document(state, call, "application/json", |state| Some(state.openapi.v2_json())).await
            }
        }
        _ => Err(not_found()),
    }
}

/// What relying parties may read and keep for a while.
fn published(
    call: &Call,
    subtype: &str,
    content_type: &'static str,
    page: Vec<u8>,
) -> Result<Answer, Status> {
    if !negotiate::clauses(&call.headers).iter().any(|c| c.covers("application", subtype)) {
        return Err(Status::no_representation(&[content_type]));
    }
    Ok(Answer::Public(200, content_type, tokens::discovery::MAX_AGE, Body::from(page)))
}

fn paths(state: &State) -> Vec<String> {
    let mut paths: Vec<String> = PATHS.iter().map(|p| (*p).to_owned()).collect();
    for group in resources::table::GROUPS.iter().filter(|g| !g.name.is_empty()) {
        let versions: Vec<&&str> =
            group.versions.iter().filter(|v| state.catalog.served().is_served(group.name, v)).collect();
        if !versions.is_empty() {
            paths.push(format!("/apis/{}", group.name));
            paths.extend(versions.iter().map(|v| format!("/apis/{}/{v}", group.name)));
        }
    }
    paths.sort();
    paths
}

/// The version of aggregated discovery that the client prefers to the plain documents.
fn aggregated(headers: &HeaderMap) -> Option<&'static str> {
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

fn aggregated_answer(document: &Value) -> Answer {
    let mut body = value::write::to_vec(document);
    body.push(b'\n');
    Answer::Raw(200, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", Body::from(body))
}

/// An OpenAPI document. Making one takes a while, so it is done where it holds nobody up; a client that has it already is
/// told so.
async fn document(
    state: &Arc<State>,
    call: &Call,
    content_type: &'static str,
    make: impl FnOnce(&State) -> Option<Arc<Document>> + Send + 'static,
) -> Result<Answer, Status> {
    let maker = Arc::clone(state);
    let document = tokio::task::spawn_blocking(move || make(&maker))
        .await
        .map_err(|_| Status::internal("the document could not be made"))?;
    let Some(document) = document else { return Ok(Answer::Raw(404, "", Body::empty())) };
    let tag = format!("\"{}\"", document.hash);
    let has = call.headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()) == Some(tag.as_str());
    let body = if has { Body::empty() } else { Body::from(document.body.clone()) };
    Ok(Answer::Tagged(if has { 304 } else { 200 }, content_type, tag, body))
}
