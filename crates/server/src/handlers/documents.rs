//! Documents outside any resource: discovery, OpenAPI, version, health, metrics.

mod aggregated;
mod openapi;
mod path;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use authn::tokens;
use catalog::CustomKinds;
use catalog::encode;
use documents::discovery::{self, DiscoverySubresource, Registration};
use kinds::table::{Verb, verbs};
use requests::negotiate;
use value::{Str, Value};

pub use aggregated::AggregatedDiscovery;
pub use openapi::OpenApiBuilders;
pub use path::is_path;

use super::{snapshot, zpages};
use crate::body::Body;
use crate::call::{Call, HandlerResponse};
use crate::state::{State, Storage};
use aggregated::DiscoveryDocument;

/// Paths listed at `/` besides those of health checks and API groups.
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

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// HTTP methods that a document accepts.
#[derive(Clone, Copy, PartialEq)]
enum Methods {
    Get,
    Reading,
    Any,
}

/// Decides whether the caller sees why a health check fails. The reasons name objects, policies and webhooks, so they require access to
/// `/debug/admission`, which lists them. Others see "reason withheld", as in Kubernetes.
async fn may_see_reasons(state: &State, call: &Call) -> bool {
    let asked = authz::AuthorizationAttributes::path("get", "/debug/admission");
    let answer = state.authorization.chain_for(call.caller()).decide(call.user(), &asked).await;
    answer.decision == authz::Decision::Allow
}

pub async fn handle(state: &Arc<State>, call: &mut Call) -> Result<HandlerResponse, Status> {
    let path = call.info.path.clone();
    let segments = path::segments(&path).ok_or_else(Status::no_such_resource)?;
    let is_aggregated =
        segments == ["apis"] && !path.ends_with('/') && aggregated::preferred(&call.headers).is_some();
    // Discovery documents grow by some hundred bytes with every version of a CRD.
    if !is_aggregated && matches!(segments.as_slice(), [] | ["api" | "apis", ..]) {
        let crds = state.apis.catalog.custom();
        let versions = crds.crds().map(|crd| crd.versions.len().max(1));
        call.effort.enter_lane(versions.sum::<usize>().saturating_mul(1024)).await;
    }
    if !allows_method(&segments, &call.info.verb) {
        let exists = match segments.as_slice() {
            ["api", _] | ["apis", _, _] => discovery_document(state, call, &segments).is_ok(),
            _ => true,
        };
        return Err(if exists { Status::method_not_allowed() } else { Status::no_such_resource() });
    }
    match segments.as_slice() {
        ["apis"] if is_aggregated => aggregated::groups(state, call).await,
        [] => Ok(indented(&Value::map([("paths", Value::list(paths(state)))]))),
        ["api" | "apis", ..] => discovery_document(state, call, &segments),
        [".well-known" | "openid", ..] => issuer_document(state, call, &segments),
        ["openapi", rest @ ..] => openapi::handle(state, call, rest).await,
        ["version"] => {
            negotiate::accept_page(&call.headers, &call.query, &path)?;
            Ok(indented(&runtime::version::document(state.info.emulated_minor)))
        }
        ["healthz" | "livez" | "readyz", ..] => health_page(state, call, segments.len() == 1).await,
        ["metrics"] => {
            let state = Arc::clone(state);
            let sizes = database_sizes(&state.storage).await;
            // Formatting thousands of series must not block the other requests of this thread.
            let page = tokio::task::spawn_blocking(move || metrics_page(&state, &sizes)).await;
            let page = page.map_err(|_| Status::internal("building the metrics page failed"))?;
            Ok(HandlerResponse::Raw(200, METRICS, Body::from(page)))
        }
        ["metrics", "slis"] => {
            let page = Body::from(state.serving.health.results());
            Ok(HandlerResponse::Raw(200, METRICS, page))
        }
        ["statusz"] => zpages::handle(state, call, zpages::Zpage::Status),
        ["flagz"] => zpages::handle(state, call, zpages::Zpage::Flags),
        ["debug", "admission"] => crate::admission::inventory::page(state, call).await,
        ["portcullis", "snapshot"] => snapshot::save(state, call).await,
        ["debug", "api_priority_and_fairness", name] => match &state.serving.flow_control {
            Some((control, _)) => crate::flow_control::dump_page(control, call, name),
            None => Err(Status::no_such_resource()),
        },
        _ => Err(Status::no_such_resource()),
    }
}

/// Paths of kube-apiserver's API router accept only GET; the others accept every method.
fn allows_method(segments: &[&str], verb: &str) -> bool {
    let methods = match segments {
        ["portcullis", "snapshot"] => return verb == "post",
        ["apis"] | ["apis", _] => Methods::Any,
        ["debug", "admission"] => Methods::Reading,
        ["api" | "apis" | "version" | ".well-known" | "openid", ..] => Methods::Get,
        _ => Methods::Any,
    };
    match verb {
        "get" => true,
        "head" => methods != Methods::Get,
        _ => methods == Methods::Any,
    }
}

/// Discovery documents at and below `/api` and `/apis`.
fn discovery_document(state: &State, call: &Call, segments: &[&str]) -> Result<HandlerResponse, Status> {
    let served = state.apis.catalog.served();
    let crds = state.apis.catalog.custom();
    let custom = || custom_entries(&crds);
    let document = match segments {
        ["api"] => {
            if aggregated::preferred(&call.headers).is_some() {
                return Ok(DiscoveryDocument::of(&discovery::aggregated_core(served)).answer(call));
            }
            Some(discovery::core_versions(&state.info.advertised))
        }
        ["apis"] => Some(discovery::registered_groups(&registrations(state))),
        ["api", version] => discovery::resources(served, &[], "", version),
        ["apis", group] => discovery::registered_group(&registrations(state), group)
            .or_else(|| discovery::group(served, &custom(), group)),
        ["apis", group, version] => discovery::resources(served, &custom(), group, version),
        _ => None,
    };
    document.map(|document| HandlerResponse::Object(200, document)).ok_or_else(Status::no_such_resource)
}

/// Documents with which relying parties verify service account tokens.
fn issuer_document(state: &State, call: &Call, segments: &[&str]) -> Result<HandlerResponse, Status> {
    let tokens = state.authentication.tokens.as_ref();
    match segments {
        [".well-known", "openid-configuration"] => {
            let document = tokens.and_then(|tokens| tokens.configuration.clone());
            published(call, "json", "application/json", document.ok_or_else(Status::no_such_resource)?)
        }
        ["openid", "v1", "jwks"] => {
            let keys = tokens.map(|tokens| tokens.key_set.clone());
            published(
                call,
                "jwk-set+json",
                "application/jwk-set+json",
                keys.ok_or_else(Status::no_such_resource)?,
            )
        }
        _ => Err(Status::no_such_resource()),
    }
}

/// `whole` is true for the page of all checks and false for a single check.
async fn health_page(state: &State, call: &Call, whole: bool) -> Result<HandlerResponse, Status> {
    let reasons = call.query.get("verbose").is_some() && may_see_reasons(state, call).await;
    state.serving.health.probe_store(&call.info.path).await;
    let page = state.serving.health.page(&call.info.path, &call.query, reasons);
    let (code, text) = page.ok_or_else(Status::no_such_resource)?;
    Ok(if whole {
        HandlerResponse::Plain(code, Body::from(text))
    } else {
        HandlerResponse::Raw(code, "text/plain; charset=utf-8", Body::from(text))
    })
}

/// How long the page of metrics waits for the sizes of databases, as in kube-apiserver.
const SIZE_TIMEOUT: Duration = Duration::from_secs(1);

/// The size of the database of each cluster; `None` where it is not known. Empty if `--etcd-db-metric-poll-interval` is zero.
async fn database_sizes(storage: &Storage) -> Vec<Option<u64>> {
    let mut sizes = Vec::new();
    for store in storage.store.clusters().filter(|_| storage.measures_database) {
        sizes.push(match store.database_bytes() {
            Some(size) => tokio::time::timeout(SIZE_TIMEOUT, size).await.ok().and_then(Result::ok),
            None => Some(store.space().file),
        });
    }
    sizes
}

/// All metrics in the Prometheus text format.
fn metrics_page(state: &State, sizes: &[Option<u64>]) -> Vec<u8> {
    let kinds = if state.storage.counts_objects {
        state.apis.catalog.stored_in_preferred_version()
    } else {
        Vec::new()
    };
    let objects: Vec<(String, usize)> = kinds
        .iter()
        .map(|kind| (kind.resource.to_string(), state.storage.store.count(&kind.scope(""))))
        .collect();
    state.metrics.storage.show(&state.storage.store.space(), sizes);
    state.addresses.show_metrics();
    let (in_flight, in_queue) = match &state.serving.flow_control {
        Some((control, _)) => (control.executing(), Some(control.waiting())),
        None => (state.serving.seats.in_use(), None),
    };
    state.metrics.page(in_flight, in_queue, &objects)
}

/// The registered APIs, including served CRD versions whose APIService does not exist yet.
fn registrations(state: &State) -> Vec<Registration> {
    let mut registered = state.apis.aggregation.registrations();
    let mut known: HashSet<(Str, Str)> =
        registered.iter().map(|found| (found.group.clone(), found.version.clone())).collect();
    for crd in state.apis.catalog.custom().crds() {
        for version in crd.versions.iter().filter(|version| version.served) {
            if known.insert((crd.group.clone(), version.name.clone())) {
                registered.push(discovery::of_custom_version(&crd.group, &version.name));
            }
        }
    }
    registered
}

/// A document that everyone may read and cache.
fn published(
    call: &Call,
    subtype: &str,
    content_type: &'static str,
    page: Vec<u8>,
) -> Result<HandlerResponse, Status> {
    if !negotiate::clauses(&call.headers).iter().any(|c| c.covers("application", subtype)) {
        return Err(Status::no_representation(&[content_type]));
    }
    Ok(HandlerResponse::Public(200, content_type, tokens::discovery::MAX_AGE, Body::from(page)))
}

/// The discovery entries of the served versions of CRDs.
fn custom_entries(custom: &CustomKinds) -> Vec<discovery::DiscoveryResource<'_>> {
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
            subresources.push(DiscoverySubresource {
                name: "status",
                kind: &names.kind,
                group_version: None,
                verbs: verbs::GET_PATCH_UPDATE,
            });
        }
        if version.scale.is_some() {
            subresources.push(DiscoverySubresource {
                name: "scale",
                kind: "Scale",
                group_version: Some(("autoscaling", "v1")),
                verbs: verbs::GET_PATCH_UPDATE,
            });
        }
        discovery::DiscoveryResource {
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

/// Verbs of a custom resource, in the order of kube-apiserver's discovery.
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
/// Verbs of a custom resource whose CRD is being deleted.
const TERMINATING: &[Verb] = &[Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Watch];

/// All paths listed at `/`, sorted.
pub fn paths(state: &State) -> Vec<String> {
    let mut paths: Vec<String> = PATHS.iter().map(|p| (*p).to_owned()).collect();
    paths.extend(state.serving.health.paths());
    for group in kinds::table::GROUPS.iter().filter(|g| !g.name.is_empty()) {
        let versions: Vec<&&str> =
            group.versions.iter().filter(|v| state.apis.catalog.served().is_served(group.name, v)).collect();
        if !versions.is_empty() {
            paths.push(format!("/apis/{}", group.name));
            paths.extend(versions.iter().map(|v| format!("/apis/{}/{v}", group.name)));
        }
    }
    for crd in state.apis.catalog.custom().crds() {
        paths.push(format!("/apis/{}", crd.group));
        let served = crd.versions.iter().filter(|version| version.served);
        paths.extend(served.map(|version| format!("/apis/{}/{}", crd.group, version.name)));
    }
    for service in state.apis.aggregation.remotes() {
        let Registration { group, version, .. } = &service.registration;
        paths.push(format!("/apis/{group}"));
        paths.push(format!("/apis/{group}/{version}"));
    }
    paths.sort();
    paths.dedup();
    paths
}

/// Indented JSON, whatever the client accepts.
fn indented(value: &Value) -> HandlerResponse {
    let mut out = Vec::new();
    api::order::of(value).write(&mut out, value);
    HandlerResponse::Raw(200, "application/json", Body::from(encode::indent(&out)))
}
