//! The path of a request, in the order it runs. Open this file first.
//!
//! Each `// stage:` comment marks the start of a stage; the tidy check ensures that ARCHITECTURE.md lists the
//! stages in the same order. The stages from `receive` to `store` run in the handlers and in
//! [`crate::write`]. `Caller`, `Permit` and `Admitted` can only be constructed by their stage, so a handler
//! that skips one does not compile. An error never reveals to an unauthorized caller whether an object
//! exists.

mod attributes;
mod authenticate;
mod incoming;
mod route;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Status;
use authn::{Caller, Via};
use authz::Denial;
use http::{HeaderMap, Method, Response};
use kinds::table::Verb;
use tracing::warn;

use crate::accept::Peer;
use crate::aggregation;
use crate::audit::{Record, Sent};
use crate::body::Body;
use crate::byte_budget::Account;
use crate::call::{Answer, AnsweredBy, AuthenticatedRequest, Call, EXPRESSIONS, RequestLimits, Unread};
use crate::catalog::{ServedResource, Subresource};
use crate::flow_control::{Asking, ClientGone};
use crate::handlers;
use crate::health;
use crate::heavy::{self, Effort};
use crate::negotiate;
use crate::request_info::{Query, RequestInfo, has_other_readings, percent_decode};
use crate::respond;
use crate::seats::Seat;
use crate::state::State;
use crate::unreadable::Concern;
use crate::unsent::Payer;
use attributes::attributes;
use authenticate::{Authenticated, HttpHeaders, authenticate};
use incoming::{catch_panic, complete};
use route::{Target, find_resource, route_resource};

/// A response, with the facts that metrics and audit need.
struct Outcome {
    response: Response<Body>,
    /// True if the request was routed to a served resource or path.
    known: bool,
    audit_end: AuditEnd,
}

/// The audit events that remain to be written when the response is known.
#[derive(Clone, Copy, PartialEq)]
enum AuditEnd {
    /// The events of the response.
    Open,
    /// A single event, because the request was not authenticated.
    Unauthenticated,
    /// None, because all are written.
    Recorded,
}

impl Outcome {
    /// Outcome of a request that is not known to refer to a served resource or path.
    fn unknown(response: Response<Body>) -> Self {
        Outcome { response, known: false, audit_end: AuditEnd::Open }
    }
}

/// A request from the network, before it is authenticated.
struct ReceivedRequest<'a> {
    peer: &'a Peer,
    uri: &'a str,
    info: &'a Arc<RequestInfo>,
    record: &'a Record,
    /// The time limit, or the parse error of the client's `timeout` parameter.
    limit: Result<Duration, String>,
    started: Instant,
    effort: Effort,
    /// Resolves when the client has disconnected.
    gone: ClientGone,
}

fn parse(method: &Method, path: &str, query: &str) -> (RequestInfo, Query) {
    // stage: parse
    let query = Query::parse(query);
    (RequestInfo::parse(method, &percent_decode(path), &query), query)
}

/// Runs the stages that only network requests pass, then [`finish`].
async fn serve(
    state: &Arc<State>,
    received: ReceivedRequest<'_>,
    query: Query,
    headers: HeaderMap,
    body: Unread,
) -> Outcome {
    let ReceivedRequest { peer, uri, info, record, limit, started, effort, gone } = received;
    let sent = Sent { uri, info, headers: &headers, peer: peer.address.ip() };
    let refuse = |status: &Status, headers: &HeaderMap, query: &Query| {
        Outcome::unknown(respond::refusal(status, headers, query, record))
    };

    let deadline = match limit {
        _ if info.is_long_running() => None,
        Ok(limit) => started.checked_add(limit),
        Err(why) => {
            record.open(None, sent);
            return Outcome {
                audit_end: AuditEnd::Unauthenticated,
                ..refuse(&Status::bad_request(why), &headers, &query)
            };
        }
    };

    // stage: authenticate
    let authenticated = match authenticate(state, peer, info, &headers).await {
        Ok(authenticated) => authenticated,
        Err(status) => {
            record.open(None, sent);
            return Outcome { audit_end: AuditEnd::Unauthenticated, ..refuse(&status, &headers, &query) };
        }
    };
    let Authenticated { caller, annotations, warnings } = authenticated;

    // stage: record
    record.open(Some(caller.user()), sent);
    for (key, value) in annotations {
        record.annotate(key, value);
    }
    if let Err(why) = record.received().await {
        let response = respond::internal_error(&info.path, why);
        return Outcome { audit_end: AuditEnd::Recorded, ..Outcome::unknown(response) };
    }

    // Reject further requests of a client that does not read its responses.
    let account = Account::of(caller.user(), peer.address.ip());
    if !info.is_long_running() {
        effort.set_account(account.owner());
    }
    let payer = Payer::new(&state.serving.answer_budget, account);
    if !health::is_page(&info.path)
        && let Err(status) = payer.check_room()
    {
        return Outcome::unknown(respond::too_many_requests(&status));
    }

    // stage: impersonate
    let chain = state.authorization.chain.load_full();
    let (requested, last_modes) = (attributes(info), &state.authentication.impersonations);
    let caller =
        match authz::impersonate(&chain, &caller, &HttpHeaders(&headers), &requested, last_modes).await {
            Ok(caller) => caller,
            Err(status) => return Outcome::unknown(respond::forbidden(&status, &headers, &query, record)),
        };
    record.impersonated(&caller);

    // stage: queue
    let seat = match &state.serving.flow_control {
        Some((control, _)) if info.verb == "watch" || !info.is_long_running() => {
            let (caller, query, has_body) = (&caller, &query, body.arrives());
            let asking = Asking { state, caller, info, query, arrived: started, deadline, has_body, gone };
            match control.admit(asking).await {
                Ok(seat) => seat.into(),
                Err(refused) => return Outcome::unknown(refused.response()),
            }
        }
        Some(_) => Seat::default(),
        None => match state.serving.seats.take(caller.user(), info) {
            Ok(seat) => seat,
            Err(status) => return Outcome::unknown(respond::too_many_requests(&status)),
        },
    };

    let assignment = seat.assignment();
    let written = effort.clone();
    let request = AuthenticatedRequest {
        caller,
        info: RequestInfo::clone(info),
        query,
        headers,
        body,
        warnings,
        record: record.clone(),
        limits: RequestLimits { seat, deadline, effort, payer: Some(payer.clone()) },
    };
    let mut outcome = finish(state, uri, request).await;
    if let Some(assignment) = assignment {
        assignment.add_to(&mut outcome.response);
    }
    if let Err(status) = outcome.response.body_mut().charge_to(payer) {
        if written.has_written() {
            // The write is stored, so the response must not say that it was refused.
            *outcome.response.body_mut() = Body::cut();
        } else {
            outcome.response = respond::too_many_requests(&status);
        }
    }
    outcome
}

/// Runs the stages that every request passes, from the network or from inside this process.
async fn finish(state: &Arc<State>, uri: &str, request: AuthenticatedRequest) -> Outcome {
    // stage: authorize
    let mut call = match authorize(state, uri, request).await {
        Ok(call) => call,
        Err(refused) => return Outcome::unknown(*refused),
    };

    // stage: forward
    if let Some(response) = forward(state, &mut call).await {
        return Outcome::unknown(response);
    }

    // stage: route
    if call.info.is_resource { serve_resource(state, call).await } else { serve_document(state, call).await }
}

/// The error is the complete response.
async fn authorize(
    state: &Arc<State>,
    uri: &str,
    request: AuthenticatedRequest,
) -> Result<Call, Box<Response<Body>>> {
    let AuthenticatedRequest { caller, info, query, headers, record, .. } = &request;
    let begun = Instant::now();
    let authorized = state.authorization.chain_for(caller).authorize(caller, attributes(info)).await;
    if *caller.via() != Via::Internal {
        state.authorization.metrics.attempted(&authorized, begun.elapsed());
    }
    match authorized {
        Ok(permit) => {
            record.decided("allow", permit.reason());
            Ok(Call::new(request, permit, state.now()))
        }
        Err(Denial::Denied { status, reason, .. }) => {
            record.decided("forbid", &reason);
            let mut response = respond::forbidden(&status, headers, query, record);
            respond::warn(&mut response, request.warnings);
            Err(Box::new(response))
        }
        Err(Denial::Failed { error }) => {
            record.undecided();
            warn!(%error, path = info.path, "authorization failed");
            Err(Box::new(respond::internal_error(uri, &error)))
        }
    }
}

/// Handles requests that this server does not serve itself: returns the response of the aggregated API server
/// or an error. `None` if this server serves the request.
async fn forward(state: &Arc<State>, call: &mut Call) -> Option<Response<Body>> {
    // Paths with an empty first segment or an empty group are not served, although `RequestInfo` parses a
    // resource from them: `/apis//v1/pods` would be another spelling of `/api/v1/pods`.
    if call.info.path.starts_with("//") || call.info.path.starts_with("/apis//") {
        return Some(respond::page_not_found());
    }
    let answered_by = call.answered_by();
    if answered_by == AnsweredBy::Us {
        return None;
    }
    // While an APIService cannot be decoded, it is unknown which server serves its group and version.
    if let Some(name) = aggregation::service_name(&call.info.path)
        && let Err(status) = state.storage.unreadable.check_named(&Concern::Registration, &name)
    {
        return Some(respond::finish(call, None, Err(status)));
    }
    if let Some(service) = state.apis.aggregation.serving(&call.info.path) {
        // A server that normalizes paths would serve another path than the authorized one.
        if has_other_readings(&call.info.path) {
            return Some(respond::page_not_found());
        }
        return Some(Box::pin(aggregation::forward::handle(state, call, &service)).await);
    }
    (answered_by == AnsweredBy::Others).then(respond::page_not_found)
}

/// Serves paths that are not resources: discovery, OpenAPI, health, metrics.
async fn serve_document(state: &Arc<State>, mut call: Call) -> Outcome {
    if !handlers::documents::is_path(state, &call.info.path) {
        return Outcome::unknown(respond::page_not_found());
    }
    let result = Box::pin(handlers::documents::handle(state, &mut call)).await;
    call.effort.enter_lane(respond::encoding(&call, None, &result)).await;
    let known = result.is_ok();
    Outcome { known, ..Outcome::unknown(respond::finish(&mut call, None, result)) }
}

async fn serve_resource(state: &Arc<State>, mut call: Call) -> Outcome {
    let (found, _schema_writer) = find_resource(&state.apis.catalog, &call);
    let target = match route_resource(state, &mut call, found) {
        Ok(target) => target,
        Err(response) => return Outcome::unknown(*response),
    };
    warn_of_deprecation(state, &mut call, &target.kind);
    call.effort.set_routed();
    let kind = Arc::clone(&target.kind);
    compile_schemas(state, &call, &kind).await;

    // stage: receive, decode, own, mutate, validate, store
    let result = dispatch(state, &mut call, target).await;

    // stage: answer
    call.effort.enter_lane(respond::encoding(&call, Some(&kind), &result)).await;
    Outcome { known: true, ..Outcome::unknown(respond::finish(&mut call, Some(&kind), result)) }
}

fn warn_of_deprecation(state: &State, call: &mut Call, kind: &ServedResource) {
    let Some(deprecation) = kind.deprecation() else { return };
    call.warn(deprecation);
    let removed = kind.removed_release();
    call.annotate("k8s.io/deprecated", "true");
    if !removed.is_empty() {
        call.annotate("k8s.io/removed-release", removed);
    }
    state.metrics.requested_deprecated(&call.info, removed);
}

/// Compiles the schemas of a large CRD in the heavy lane. Those of a small one are compiled on first use.
async fn compile_schemas(state: &State, call: &Call, kind: &ServedResource) {
    let Some(custom) = kind.as_custom() else { return };
    let work = custom.crd.uncompiled().saturating_mul(EXPRESSIONS);
    if work > heavy::LARGE {
        call.effort.enter_lane(work).await;
        custom.crd.compile(state.validation_context(call.now).stopwatch.as_deref());
    }
}

/// A request from inside this process, with its body in memory. It skips the network and queue stages only.
pub struct InternalRequest<'a> {
    pub caller: Caller,
    pub method: Method,
    /// The path, with the query if any.
    pub target: &'a str,
    pub headers: HeaderMap,
    pub body: Unread,
    /// A caller that drives the request in the heavy lane
    /// ([`HeavyLane::drive`](crate::heavy::HeavyLane::drive)) passes a clone there.
    pub effort: Effort,
}

/// Serves a request from inside this process.
pub async fn internal(state: &Arc<State>, request: InternalRequest<'_>) -> Response<Body> {
    let InternalRequest { caller, method, target, headers, body, effort } = request;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (info, query) = parse(&method, path, query);
    let record = Record::begin(state.serving.audit.as_ref(), crate::random::uid());
    let limit = state.serving.request_timeout;
    let deadline = Instant::now().checked_add(limit).filter(|_| !info.is_long_running());
    let peer = IpAddr::V6(Ipv6Addr::LOCALHOST);
    record.open(Some(caller.user()), Sent { uri: target, info: &info, headers: &headers, peer });
    let request = AuthenticatedRequest {
        caller,
        info: info.clone(),
        query,
        headers,
        body,
        warnings: Vec::new(),
        record: record.clone(),
        limits: RequestLimits { seat: Seat::default(), deadline, effort: effort.clone(), payer: None },
    };
    let work = Box::pin(async {
        if let Err(why) = record.received().await {
            let response = respond::internal_error(&info.path, why);
            return Outcome { audit_end: AuditEnd::Recorded, ..Outcome::unknown(response) };
        }
        finish(state, target, request).await
    });
    complete(limit, &info, &effort, &record, std::pin::pin!(catch_panic(work))).await.response
}

async fn dispatch(state: &Arc<State>, call: &mut Call, target: Target) -> Result<Answer, Status> {
    let Target { kind, verb } = target;
    let kind = &kind;
    if verb == Verb::Watch && !kind.verbs.contains(&verb) {
        return Err(Status::method_not_supported(&kind.resource, "watch"));
    }
    if let Some(subresource) =
        kind.subresource(&call.info.subresource).filter(|s| s.connect || s.name == "log")
    {
        return Box::pin(handlers::connect::handle(state, call, kind, subresource)).await;
    }
    if matches!(call.info.subresource.as_str(), "binding" | "eviction" | "token") || kind.is_virtual() {
        respond::can_answer(call, kind, verb)?;
        return Box::pin(handlers::reviews::handle(state, call, kind)).await;
    }
    let Some(subresource) = Subresource::of(&call.info.subresource) else {
        return Err(Status::no_such_resource());
    };
    // Subresources support only these verbs.
    if subresource != Subresource::None && !matches!(verb, Verb::Get | Verb::Update | Verb::Patch) {
        return Err(Status::method_not_allowed());
    }
    if call.info.is_read_only() {
        // Negotiated before the lookup, so that a client whose `Accept` header is not supported does not
        // learn which objects exist. Watches support more media types.
        if verb != Verb::Watch {
            negotiate::accept(&call.headers, &call.query, respond::forms(call, kind))?;
        }
    } else {
        respond::can_answer(call, kind, verb)?;
    }
    match verb {
        // Each future is boxed, so that not every request's future is as large as the largest of them.
        Verb::Get => Box::pin(handlers::get::handle(state, call, kind, subresource)).await,
        Verb::List => Box::pin(handlers::list::handle(state, call, kind)).await,
        Verb::Watch => handlers::watch::handle(state, call, Arc::clone(kind)),
        Verb::Create => Box::pin(handlers::create::handle(state, call, kind)).await,
        Verb::Update => Box::pin(handlers::update::put(state, call, kind, subresource)).await,
        Verb::Patch => Box::pin(handlers::update::patch(state, call, kind, subresource)).await,
        Verb::Delete => Box::pin(handlers::delete::one(state, call, kind)).await,
        Verb::DeleteCollection => Box::pin(handlers::delete::collection(state, call, kind)).await,
    }
}
