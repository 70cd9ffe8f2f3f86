//! The paths that name no resource: discovery, OpenAPI, version, health, metrics.

mod path;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use api::Status;
use authn::tokens;
use bytes::Bytes;
use crd::CustomResourceDefinition;
use documents::discovery::{self, Registration, SubEntry};
use documents::openapi::{Current, Document, OpenApi, V2_PROTOBUF};
use http::header::{CACHE_CONTROL, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderName};
use kinds::table::{Verb, verbs};
use sha2::{Digest as _, Sha512};
use tokio::sync::Semaphore;
use value::{Str, Value};

pub use path::is_path;

use super::zpages;
use crate::body::Body;
use crate::call::{Answer, Call};
use crate::catalog::CustomKinds;
use crate::encode;
use crate::negotiate;
use crate::state::State;

/// The paths listed at `/` besides those of health and of the groups.
const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/flagz",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/statusz",
    "/version",
];

/// How metrics are written.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// By which methods a page can be asked for.
#[derive(Clone, Copy, PartialEq)]
enum Methods {
    Get,
    Reading,
    Any,
}

/// Whether a caller may know why a check fails. That names objects, policies and webhooks, so it takes the right to read the page
/// that lists those; everybody else is told, as in Kubernetes, that the reason is withheld.
async fn may_see_reasons(state: &State, call: &Call) -> bool {
    let asked = authz::Attributes::path("get", "/debug/admission");
    let answer = state.chain_for(call.caller()).decide(call.user(), &asked).await;
    answer.decision == authz::Decision::Allow
}

/// Answers a path that names no resource.
pub async fn handle(state: &Arc<State>, call: &mut Call) -> Result<Answer, Status> {
    let path = call.info.path.clone();
    let segments = path::segments(&path).ok_or_else(Status::no_such_resource)?;
    // What Kubernetes' router serves is there for GET alone; the other pages answer whatever they are asked.
    let methods = match segments.as_slice() {
        ["apis"] | ["apis", _] => Methods::Any,
        ["debug", "admission"] => Methods::Reading,
        ["api" | "apis" | "version" | ".well-known" | "openid", ..] => Methods::Get,
        _ => Methods::Any,
    };
    let served = state.catalog.served();
    let crds = state.catalog.custom();
    let allowed = match call.info.verb.as_str() {
        "get" => true,
        "head" => methods != Methods::Get,
        _ => methods == Methods::Any,
    };
    // Discovery says some hundred bytes of every version of a CRD.
    if matches!(segments.as_slice(), [] | ["api" | "apis", ..]) {
        let versions = crds.crds().map(|crd| crd.versions.len().max(1));
        call.effort.enter_lane(versions.sum::<usize>().saturating_mul(1024)).await;
    }
    if !allowed {
        let is_there = match segments.as_slice() {
            ["api", version] => discovery::resources(served, &[], "", version).is_some(),
            ["apis", group, version] => {
                discovery::resources(served, &custom_entries(&crds), group, version).is_some()
            }
            _ => true,
        };
        return Err(if is_there { Status::method_not_allowed() } else { Status::no_such_resource() });
    }
    let custom = || custom_entries(&crds);
    let not_found = Status::no_such_resource;
    match segments.as_slice() {
        [] => Ok(indented(&Value::map([("paths", Value::list(paths(state)))]))),
        ["api"] => match aggregated(&call.headers) {
            Some(_) => Ok(aggregated_answer(call, &discovery::aggregated_core(served))),
            None => Ok(Answer::Object(200, discovery::core_versions(&state.advertised))),
        },
        ["apis"] => match aggregated(&call.headers).filter(|_| !path.ends_with('/')) {
            Some(_) => {
                let remote = state.aggregation.remote_versions();
                Ok(aggregated_answer(call, &discovery::aggregated_groups(served, &custom(), &remote)))
            }
            None => Ok(Answer::Object(200, discovery::registered_groups(&registrations(state)))),
        },
        ["api", version] => discovery::resources(served, &[], "", version)
            .map(|d| Answer::Object(200, d))
            .ok_or_else(not_found),
        ["apis", group] => discovery::registered_group(&registrations(state), group)
            .or_else(|| discovery::group(served, &custom(), group))
            .map(|d| Answer::Object(200, d))
            .ok_or_else(not_found),
        ["apis", group, version] => discovery::resources(served, &custom(), group, version)
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
        ["version"] => {
            negotiate::accept_page(&call.headers, &call.query, &path)?;
            Ok(indented(&crate::version::document(state.emulated_minor)))
        }
        ["healthz" | "livez" | "readyz", ..] => {
            let reasons = call.query.get("verbose").is_some() && may_see_reasons(state, call).await;
            let (code, text) = state.health.page(&path, &call.query, reasons).ok_or_else(not_found)?;
            // The page of a single check says nothing that a browser could take for something else.
            let content_type = "text/plain; charset=utf-8";
            Ok(match segments.len() {
                1 => Answer::Plain(code, Body::from(text)),
                _ => Answer::Raw(code, content_type, Body::from(text)),
            })
        }
        ["metrics"] => {
            let state = Arc::clone(state);
            // Thousands of series are put together where they hold nobody up.
            let page = tokio::task::spawn_blocking(move || metrics_page(&state)).await;
            let page = page.map_err(|_| Status::internal("the page could not be made"))?;
            Ok(Answer::Raw(200, METRICS, Body::from(page)))
        }
        ["metrics", "slis"] => {
            let page = Body::from(state.health.results());
            Ok(Answer::Raw(200, METRICS, page))
        }
        ["statusz"] => zpages::handle(state, call, zpages::Page::Status),
        ["flagz"] => zpages::handle(state, call, zpages::Page::Flags),
        ["debug", "admission"] => crate::admission::inventory::page(state, call).await,
        ["debug", "api_priority_and_fairness", name] => match &state.flow_control {
            Some((control, _)) => crate::flow_control::dump_page(control, call, name),
            None => Err(not_found()),
        },
        ["openapi", "v3"] => {
            let index =
                make(state, &state.openapi_builders.v3, |openapi, current| Some(openapi.v3_index(current)))
                    .await?;
            Ok(index
                .map_or_else(missing, |index| Answer::Raw(200, "text/plain; charset=utf-8", shared(&index))))
        }
        ["openapi", "v3", name] => {
            let wanted = (*name).to_owned();
            let made =
                make(state, &state.openapi_builders.v3, move |openapi, current| openapi.v3(&wanted, current))
                    .await?;
            Ok(made.map_or_else(missing, |document| version_3(call, name, &document)))
        }
        ["openapi", "v2"] => {
            let Some(protobuf) = wants_protobuf(&call.headers) else {
                return Ok(Answer::With(406, "", vary_2(), Body::empty()));
            };
            let made = make(state, &state.openapi_builders.v2, move |openapi, current| {
                Some(if protobuf {
                    openapi.v2_protobuf(current, report_left_out)
                } else {
                    openapi.v2_json(current, report_left_out)
                })
            });
            let content_type = if protobuf { V2_PROTOBUF } else { "application/json" };
            Ok(made.await?.map_or_else(missing, |document| tagged(call, content_type, vary_2(), &document)))
        }
        _ => Err(not_found()),
    }
}

/// All metrics, as they are now.
fn metrics_page(state: &State) -> Vec<u8> {
    let objects: Vec<(String, usize)> = state
        .catalog
        .stored_kinds()
        .iter()
        .map(|kind| (kind.resource.to_string(), state.store.count(&kind.scope(""))))
        .collect();
    state.metrics.storage.show(&state.store.space());
    let (in_flight, in_queue) = match &state.flow_control {
        Some((control, _)) => (control.executing(), Some(control.waiting())),
        None => (state.seats.taken(), None),
    };
    state.metrics.page(in_flight, in_queue, &objects)
}

/// What is registered. What CRDs serve is, whether or not that has been written already.
fn registrations(state: &State) -> Vec<Registration> {
    let mut registered = state.aggregation.registrations();
    let mut known: HashSet<(Str, Str)> =
        registered.iter().map(|found| (found.group.clone(), found.version.clone())).collect();
    for crd in state.catalog.custom().crds() {
        for version in crd.versions.iter().filter(|version| version.served) {
            if known.insert((crd.group.clone(), version.name.clone())) {
                registered.push(discovery::of_custom_version(&crd.group, &version.name));
            }
        }
    }
    registered
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

/// What discovery lists of the served CRDs.
fn custom_entries(custom: &CustomKinds) -> Vec<discovery::Entry<'_>> {
    let crds = custom.crds();
    crds.flat_map(|crd| {
        let stored = crd.stored().filter(|stored| stored.served);
        let hash = stored.map(|s| discovery::hash(&crd.group, &s.name, &crd.names.kind));
        let served = crd.versions.iter().filter(|version| version.served);
        served.map(move |version| (crd, version, hash.clone()))
    })
    .map(|(crd, version, storage_hash)| {
        let names = &crd.names;
        let mut subresources = Vec::new();
        if version.status {
            subresources.push(SubEntry {
                name: "status",
                kind: &names.kind,
                group_version: None,
                verbs: verbs::GET_PATCH_UPDATE,
            });
        }
        if version.scale.is_some() {
            subresources.push(SubEntry {
                name: "scale",
                kind: "Scale",
                group_version: Some(("autoscaling", "v1")),
                verbs: verbs::GET_PATCH_UPDATE,
            });
        }
        discovery::Entry {
            group: &crd.group,
            version: &version.name,
            kind: &names.kind,
            plural: &names.plural,
            singular: &names.singular,
            short_names: names.short_names.iter().map(Str::as_str).collect(),
            categories: names.categories.iter().map(Str::as_str).collect(),
            namespaced: crd.namespaced,
            verbs: if crd.terminating { TERMINATING } else { CUSTOM },
            subresources,
            storage_hash,
            custom: true,
        }
    })
    .collect()
}

/// The verbs of a custom resource, in the order Kubernetes lists them.
const CUSTOM: &[Verb] = &[
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];
/// What is left of them while the CRD goes.
const TERMINATING: &[Verb] = &[Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Watch];

/// The paths listed at `/`.
pub fn paths(state: &State) -> Vec<String> {
    let mut paths: Vec<String> = PATHS.iter().map(|p| (*p).to_owned()).collect();
    paths.extend(state.health.paths());
    for group in kinds::table::GROUPS.iter().filter(|g| !g.name.is_empty()) {
        let versions: Vec<&&str> =
            group.versions.iter().filter(|v| state.catalog.served().is_served(group.name, v)).collect();
        if !versions.is_empty() {
            paths.push(format!("/apis/{}", group.name));
            paths.extend(versions.iter().map(|v| format!("/apis/{}/{v}", group.name)));
        }
    }
    for crd in state.catalog.custom().crds() {
        paths.push(format!("/apis/{}", crd.group));
        let served = crd.versions.iter().filter(|version| version.served);
        paths.extend(served.map(|version| format!("/apis/{}/{}", crd.group, version.name)));
    }
    for service in state.aggregation.remotes() {
        let Registration { group, version, .. } = &service.registration;
        paths.push(format!("/apis/{group}"));
        paths.push(format!("/apis/{group}/{version}"));
    }
    paths.sort();
    paths.dedup();
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

fn aggregated_answer(call: &Call, document: &Value) -> Answer {
    let mut body = Vec::new();
    api::order::of(document).write(&mut body, document);
    body.push(b'\n');
    let mut tag = String::with_capacity(130);
    tag.push('"');
    for byte in Sha512::digest(&body) {
        let _ = write!(tag, "{byte:02X}");
    }
    tag.push('"');
    let known = call.headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    // Any cache may keep it that tells forms apart and asks whether it is still good.
    let shared = [(ETAG, tag), (CACHE_CONTROL, "public".to_owned()), (VARY, "Accept".to_owned())];
    if known {
        return Answer::With(304, "", shared.into(), Body::empty());
    }
    let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    Answer::With(200, content_type, shared.into(), Body::from(body))
}

/// Makes an OpenAPI document. That takes a while, so it is done where it holds nobody up.
async fn make(
    state: &Arc<State>,
    builder: &Arc<Semaphore>,
    make: impl FnOnce(&OpenApi, Current<'_>) -> Option<Arc<Document>> + Send + 'static,
) -> Result<Option<Arc<Document>>, Status> {
    // One at a time: the next one finds what this one made.
    let turn = Arc::clone(builder).acquire_owned().await;
    let maker = Arc::clone(state);
    let work = move || {
        // Held to the end, whether or not the client waits for it.
        let _turn = turn;
        let generation = maker.openapi.generation();
        let custom: Vec<Arc<CustomResourceDefinition>> = maker.catalog.custom().crds().cloned().collect();
        let (remote_v3, remote_v2) = (maker.aggregation.remote_v3(), maker.aggregation.remote_v2());
        let only_v2 = maker.aggregation.only_v2();
        let current = Current {
            generation,
            custom: &custom,
            remote_v3: &remote_v3,
            remote_v2: &remote_v2,
            only_v2: &only_v2,
        };
        make(&maker.openapi, current)
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| Status::internal("the document could not be made"))
}

/// Lets one OpenAPI document of each version be built at a time, because that may take seconds and much memory. The large documents of
/// version 2 do not hold up those of version 3.
pub struct OpenApiBuilders {
    v2: Arc<Semaphore>,
    v3: Arc<Semaphore>,
}

impl Default for OpenApiBuilders {
    fn default() -> Self {
        OpenApiBuilders { v2: Arc::new(Semaphore::new(1)), v3: Arc::new(Semaphore::new(1)) }
    }
}

/// Says which CRDs are not in the document of version 2.
fn report_left_out(crds: &[Str]) {
    const NAMED: usize = 10;
    let named: Vec<&str> = crds.iter().take(NAMED).map(Str::as_str).collect();
    tracing::warn!(
        count = crds.len(),
        crds = named.join(","),
        "CustomResourceDefinitions are left out of /openapi/v2 because it would be too large; /openapi/v3 has all of them"
    );
}

/// A document as a body: all answers have the same bytes.
fn shared(document: &Arc<Document>) -> Body {
    struct Made(Arc<Document>);
    impl AsRef<[u8]> for Made {
        fn as_ref(&self) -> &[u8] {
            &self.0.body
        }
    }
    Body::shared(Bytes::from_owner(Made(Arc::clone(document))))
}

fn missing() -> Answer {
    Answer::Raw(404, "", Body::empty())
}

type Headers = Vec<(HeaderName, String)>;

fn vary_2() -> Headers {
    vec![(VARY, "Accept-Encoding".to_owned()), (VARY, "Accept".to_owned())]
}

/// Whether the client prefers the protobuf form of version 2; nothing if it takes neither.
fn wants_protobuf(headers: &HeaderMap) -> Option<bool> {
    negotiate::clauses(headers).iter().find_map(|clause| {
        let protobuf =
            clause.kind == "application" && clause.subtype.starts_with("com.github.proto-openapi.spec.v2");
        if clause.covers("application", "json") { Some(false) } else { protobuf.then_some(true) }
    })
}

/// A document with its tag. A client that has it already is told so.
fn tagged(call: &Call, content_type: &'static str, mut headers: Headers, document: &Arc<Document>) -> Answer {
    let tag = format!("\"{}\"", document.hash);
    let has = call.headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()) == Some(tag.as_str());
    headers.push((ETAG, tag));
    let body = if has { Body::empty() } else { shared(document) };
    Answer::With(if has { 304 } else { 200 }, content_type, headers, body)
}

/// A document of version 3. What is asked for by its hash never changes and may be kept; another hash leads to the one of now.
fn version_3(call: &Call, path: &str, document: &Arc<Document>) -> Answer {
    const YEAR: i64 = 365 * 24 * 3600;
    let json = "application/json";
    let mut headers = vec![(VARY, "Accept".to_owned())];
    if !negotiate::clauses(&call.headers).iter().any(|clause| clause.covers("application", "json")) {
        return Answer::With(406, "", headers, Body::empty());
    }
    match call.query.get("hash").filter(|hash| !hash.is_empty()) {
        Some(hash) if hash == document.hash => {
            headers.push((CACHE_CONTROL, "public, immutable".to_owned()));
            headers.push((EXPIRES, zpages::date(call.now.saturating_add(YEAR))));
        }
        Some(_) => {
            headers.push((ETAG, format!("\"{}\"", document.hash)));
            headers.push((LOCATION, format!("/openapi/v3/{path}?hash={}", document.hash)));
            return Answer::With(301, json, headers, Body::empty());
        }
        None => {}
    }
    tagged(call, json, headers, document)
}

/// What is written for people to read, whatever they say.
fn indented(value: &Value) -> Answer {
    let mut out = Vec::new();
    api::order::of(value).write(&mut out, value);
    Answer::Raw(200, "application/json", Body::from(encode::indent(&out)))
}
