//! The path of a request, in the order it runs. Open this file first.
//!
//! parse → authenticate → impersonate → queue → authorize → route → (decode → mutate → validate → store, in [`crate::write`]
//! and the handlers) → answer. `Caller`, `Permit` and `Admitted` can only be made by their stage, so a handler that skips one
//! does not compile. Nothing about what exists is told to a caller who is not authorized.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use api::Status;
use authn::x509::ClientCertificate;
use authn::{Caller, Evidence, Headers, Via};
use authz::{Attributes, Refusal};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use resources::table::Verb;
use rustls::pki_types::{CertificateDer, UnixTime};
use tracing::{debug, warn};

use crate::accept::{self, Identity, Peer};
use crate::body::Body;
use crate::call::{Answer, Call, Unread};
use crate::catalog::{Facet, Kind};
use crate::handlers;
use crate::metrics::Finished;
use crate::request_info::{Query, RequestInfo, percent_decode};
use crate::respond;
use crate::state::State;

/// What came of a request, besides its response: for the counters.
struct Outcome {
    response: Response<Body>,
    known: bool,
}

impl accept::Answer for State {
    /// Judges the certificate of a connection, once.
    fn recognise(&self, chain: &[CertificateDer<'static>]) -> Identity {
        let Some(leaf) = chain.first() else { return Identity::None };
        let Some(authority) = self.client_ca.load_full() else { return Identity::None };
        if !authority.verifies(chain, UnixTime::now()) {
            return Identity::Unverified;
        }
        match ClientCertificate::from_der(leaf) {
            Ok(certificate) => Identity::Verified(Arc::new(certificate)),
            Err(error) => {
                debug!(%error, "client certificate refused");
                Identity::Unverified
            }
        }
    }

    async fn answer(self: Arc<Self>, peer: Peer, request: Request<Incoming>) -> Response<Body> {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let path = percent_decode(parts.uri.path(), false);
        let info = RequestInfo::parse(&parts.method, &path, &query);
        let dry_run = query.get("dryRun").is_some();
        let head = parts.method == Method::HEAD;

        let work = serve(&self, &peer, &info, query, parts.headers, Unread::Incoming(body));
        let Outcome { mut response, known } = if info.is_long_running() {
            work.await
        } else {
            match tokio::time::timeout(self.request_timeout, work).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let message = "request did not complete within the allotted timeout";
                    let status = Status::timeout(message, 0);
                    Outcome {
                        response: respond::refusal(&status, &HeaderMap::new(), &Query::default()),
                        known: true,
                    }
                }
            }
        };
        self.metrics.finished(&Finished {
            info: &info,
            known,
            code: response.status().as_u16(),
            dry_run,
            took: started.elapsed(),
            size: response.body().len(),
        });
        if head {
            *response.body_mut() = Body::empty();
        }
        response
    }
}

/// The stages that every request from outside passes.
async fn serve(
    state: &Arc<State>,
    peer: &Peer,
    info: &RequestInfo,
    query: Query,
    headers: HeaderMap,
    body: Unread,
) -> Outcome {
    let refuse = |status: &Status, headers: &HeaderMap, query: &Query| Outcome {
        response: respond::refusal(status, headers, query),
        known: false,
    };

    // authenticate
    let (caller, warnings) = match authenticate(state, peer, info, &headers).await {
        Ok(recognised) => recognised,
        Err(status) => return refuse(&status, &headers, &query),
    };

    // impersonate
    if let Some(name) = undecodable_impersonation(&headers) {
        let status = Status::bad_request(format!("the value of the header {name} is not UTF-8"));
        return refuse(&status, &headers, &query);
    }
    let chain = state.authorizer.load_full();
    let caller = match authz::impersonate(&chain, &caller, &HttpHeaders(&headers), &attributes(info)).await {
        Ok(caller) => caller,
        Err(status) => return refuse(&status, &headers, &query),
    };

    // queue
    let _seat = match state.seats.take(caller.user(), info) {
        Ok(seat) => seat,
        Err(status) => return Outcome { response: respond::too_many_requests(&status), known: false },
    };

    finish(state, caller, info.clone(), query, headers, body, warnings).await
}

/// The stages that every request passes, from outside or from within.
async fn finish(
    state: &Arc<State>,
    caller: Caller,
    info: RequestInfo,
    query: Query,
    headers: HeaderMap,
    body: Unread,
    warnings: Vec<String>,
) -> Outcome {
    // authorize
    let permit = match state.authorizer.load_full().authorize(&caller, attributes(&info)).await {
        Ok(permit) => permit,
        Err(Refusal::Denied { status, .. }) => {
            return Outcome { response: respond::refusal(&status, &headers, &query), known: false };
        }
        Err(Refusal::Failed { error }) => {
            warn!(%error, path = info.path, "authorization failed");
            return Outcome { response: respond::authorization_failed(&info.path), known: false };
        }
    };

    // route
    let mut call = Call::new(info, query, headers, caller, permit, body, state.now());
    if !call.info.is_long_running() {
        call.deadline = Instant::now().checked_add(state.request_timeout);
    }
    for warning in warnings {
        call.warn(warning);
    }
    if !call.info.is_resource {
        if !handlers::documents::is_path(&call.info.path) {
            return Outcome { response: respond::page_not_found(), known: false };
        }
        let result = handlers::documents::handle(state, &mut call).await;
        let known = result.is_ok();
        return Outcome { response: respond::finish(&mut call, None, result), known };
    }
    if resources::table::group(&call.info.group).is_none() {
        return Outcome { response: respond::page_not_found(), known: false };
    }
    let found = state.catalog.find(&call.info.group, &call.info.version, &call.info.resource);
    let deprecation = found.and_then(|kind| kind.row.version(&call.info.version)).and_then(|v| v.deprecation);
    if let Some(deprecation) = deprecation {
        call.warn(deprecation);
    }
    let target = match route(state, &call) {
        Ok(target) => target,
        Err(status) => {
            return Outcome { response: respond::finish(&mut call, None, Err(status)), known: false };
        }
    };
    let kind = Arc::clone(&target.kind);
    let result = dispatch(state, &mut call, target).await;
    if let Ok(Answer::Entry(_, entry)) = &result
        && kind.stored.group == "rbac.authorization.k8s.io"
        && !call.info.is_read_only()
    {
        state.authorizer_reached(entry.revision).await;
    }
    Outcome { response: respond::finish(&mut call, Some(&kind), result), known: true }
}

/// A request of a part of this process: it skips the network and the queue, and nothing else.
pub async fn internal(
    state: &Arc<State>,
    caller: Caller,
    method: Method,
    target: &str,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = Query::parse(query);
    let info = RequestInfo::parse(&method, &percent_decode(path, false), &query);
    finish(state, caller, info, query, headers, Unread::Here(body), Vec::new()).await.response
}

/// Headers as authentication reads them.
struct HttpHeaders<'a>(&'a HeaderMap);

impl Headers for HttpHeaders<'_> {
    fn first(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|v| std::str::from_utf8(v.as_bytes()).ok())
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.0 {
            if let Ok(value) = std::str::from_utf8(value.as_bytes()) {
                visit(name.as_str(), value);
            }
        }
    }
}

/// Who is calling; 401 says nothing about why not.
async fn authenticate(
    state: &State,
    peer: &Peer,
    info: &RequestInfo,
    headers: &HeaderMap,
) -> Result<(Caller, Vec<String>), Status> {
    let certificate = match &peer.identity {
        Identity::Verified(certificate) => Some(&**certificate),
        Identity::None | Identity::Unverified => None,
    };
    let evidence = Evidence {
        certificate,
        proxy_certificate: None,
        headers: &HttpHeaders(headers),
        path: &info.path,
        now: SystemTime::now(),
    };
    let attempt = state.authenticator.load_full().authenticate(&evidence).await;
    let refused = |why: &str| {
        debug!(address = %peer.address, why, "unauthenticated");
        state.metrics.authenticated("failure");
        Err(Status::unauthorized())
    };
    match attempt.result {
        // Evidence that was not believed ends anonymous access.
        Ok(Some(caller))
            if *caller.via() == Via::Anonymous && matches!(peer.identity, Identity::Unverified) =>
        {
            refused("the client certificate is not signed by a known authority")
        }
        Ok(Some(caller)) => {
            state.metrics.authenticated("success");
            Ok((caller, attempt.warnings.iter().map(ToString::to_string).collect()))
        }
        Ok(None) => refused("no credentials"),
        Err(error) => refused(&error.to_string()),
    }
}

/// A header that asks for another identity in a way that cannot be read: ignoring it would run the request as its real caller.
fn undecodable_impersonation(headers: &HeaderMap) -> Option<&str> {
    let mut asking = headers.iter().filter(|(name, _)| name.as_str().starts_with("impersonate-"));
    asking.find(|(_, value)| std::str::from_utf8(value.as_bytes()).is_err()).map(|(name, _)| name.as_str())
}

/// What is authorized.
fn attributes(info: &RequestInfo) -> Attributes {
    if !info.is_resource {
        return Attributes::path(info.verb.clone(), info.path.as_str());
    }
    Attributes {
        verb: info.verb.clone(),
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        path: info.path.as_str().into(),
        is_resource: true,
        labels: label_requirements(&info.label_selector),
        fields: field_requirements(&info.field_selector),
    }
}

/// A label selector as authorizers see it. One that cannot be parsed is refused later; until then it narrows nothing.
fn label_requirements(text: &str) -> authz::Selector {
    use api::selector::Operator;
    if text.is_empty() {
        return authz::Selector::default();
    }
    match api::selector::Selector::parse(text) {
        Err(error) => authz::Selector { requirements: Vec::new(), error: Some(error.into()) },
        Ok(selector) => {
            let requirements = selector.requirements().iter().filter_map(|r| {
                let operator = match r.operator() {
                    Operator::In | Operator::Equals | Operator::DoubleEquals => authz::Operator::In,
                    Operator::NotIn | Operator::NotEquals => authz::Operator::NotIn,
                    Operator::Exists => authz::Operator::Exists,
                    Operator::DoesNotExist => authz::Operator::DoesNotExist,
                    _ => return None,
                };
                Some(authz::Requirement { key: r.key().into(), operator, values: r.values().to_vec() })
            });
            authz::Selector { requirements: requirements.collect(), error: None }
        }
    }
}

/// A field selector as authorizers see it.
fn field_requirements(text: &str) -> authz::Selector {
    if text.is_empty() {
        return authz::Selector::default();
    }
    match api::selector::FieldSelector::parse(text) {
        Err(error) => authz::Selector { requirements: Vec::new(), error: Some(error.into()) },
        Ok(selector) => {
            let requirements = selector.requirements().iter().map(|r| authz::Requirement {
                key: r.field.clone(),
                operator: if r.equals { authz::Operator::In } else { authz::Operator::NotIn },
                values: vec![r.value.clone()],
            });
            authz::Selector { requirements: requirements.collect(), error: None }
        }
    }
}

/// What a request is about, from the catalog.
struct Target {
    kind: Arc<Kind>,
    verb: Verb,
}

/// Finds what a path names. What is not a path of Kubernetes' own router is not one here: a path that is understood in another
/// way than it was authorized would be a way in.
fn route(state: &State, call: &Call) -> Result<Target, Status> {
    let info = &call.info;
    let kind = state
        .catalog
        .find(&info.group, &info.version, &info.resource)
        .ok_or_else(Status::no_such_resource)?;
    let named = info.path_name().is_some();
    if info.in_namespace && !kind.namespaced {
        return Err(Status::no_such_resource());
    }
    if !info.in_namespace && kind.namespaced && (named || matches!(info.verb.as_str(), "create")) {
        return Err(if named { Status::no_such_resource() } else { Status::method_not_allowed() });
    }
    let verb = match info.verb.as_str() {
        "get" => Verb::Get,
        "list" => Verb::List,
        "watch" => Verb::Watch,
        "create" => Verb::Create,
        "update" => Verb::Update,
        "patch" => Verb::Patch,
        "delete" => Verb::Delete,
        "deletecollection" => Verb::DeleteCollection,
        _ => return Err(Status::method_not_allowed()),
    };
    let needs_name = matches!(verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete);
    if needs_name && !named
        || info.method == Method::HEAD
        || verb == Verb::Watch && info.method != Method::GET
        || verb == Verb::Create && named && info.subresource.is_empty()
        || verb == Verb::DeleteCollection && kind.namespaced && !info.in_namespace
        || verb == Verb::Watch && !info.subresource.is_empty()
    {
        return Err(Status::method_not_allowed());
    }
    let verbs = if info.subresource.is_empty() {
        kind.row.verbs
    } else {
        let subresource = kind.subresource(&info.subresource).ok_or_else(Status::no_such_resource)?;
        if info.parts.len() > 3 && subresource.name != "proxy" {
            return Err(Status::no_such_resource());
        }
        subresource.verbs
    };
    if verb == Verb::Watch && !verbs.contains(&verb) && verbs.contains(&Verb::List) {
        return Err(Status::method_not_supported(&kind.resource, "watch"));
    }
    if !verbs.contains(&verb) {
        return Err(Status::method_not_allowed());
    }
    Ok(Target { kind: Arc::clone(kind), verb })
}

/// Runs the handler of a verb.
async fn dispatch(state: &Arc<State>, call: &mut Call, target: Target) -> Result<Answer, Status> {
    let Target { kind, verb } = target;
    let kind = &kind;
    if let Some(subresource) =
        kind.subresource(&call.info.subresource).filter(|s| s.connect || s.name == "log")
    {
        return handlers::connect::handle(state, call, kind, subresource).await;
    }
    if matches!(call.info.subresource.as_str(), "binding" | "eviction" | "token")
        || kind.row.storage == resources::table::Storage::Nowhere
    {
        return handlers::reviews::handle(state, call, kind).await;
    }
    let Some(facet) = Facet::of(&call.info.subresource) else { return Err(Status::no_such_resource()) };
    match verb {
        Verb::Get => handlers::get::handle(state, call, kind, facet),
        Verb::List => handlers::list::handle(state, call, kind).await,
        Verb::Watch => handlers::watch::handle(state, call, Arc::clone(kind)),
        Verb::Create => handlers::create::handle(state, call, kind).await,
        Verb::Update => handlers::update::put(state, call, kind, facet).await,
        Verb::Patch => handlers::update::patch(state, call, kind, facet).await,
        Verb::Delete => handlers::delete::one(state, call, kind).await,
        Verb::DeleteCollection => handlers::delete::collection(state, call, kind).await,
    }
}
