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
mod internal;
mod route;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Status;
use audit::{AuditRecord, RecordedRequest};
use authn::AuthenticationMethod;
use authz::Denial;
use catalog::unreadable::Concern;
use catalog::{ServedResource, Subresource};
use heavy_lane::Effort;
use http::{HeaderMap, Method, Response};
use kinds::table::Verb;
use requests::negotiate;
use requests::request_info::{Query, RequestInfo, has_other_readings, percent_decode};
use runtime::LogLimit;
use tracing::warn;
use transport::accept::Peer;
use transport::byte_budget::BudgetAccount;
use transport::objects;
use transport::unsent::Payer;

use crate::aggregation;
use crate::body::Body;
use crate::call::{
    AnsweredBy, AuthenticatedRequest, Call, EXPRESSIONS, HandlerResponse, RequestBody, RequestLimits,
    lane_account,
};
use crate::flow_control::{ClientGone, SeatRequest};
use crate::handlers;
use crate::health;
use crate::respond;
use crate::seats::Seat;
use crate::state::State;
use attributes::attributes;
use authenticate::{Authenticated, HttpHeaders, authenticate};
pub use internal::{InternalRequest, internal};
use route::{RoutedResource, find_resource, route_resource};

/// A response, with the facts that metrics and audit need.
struct RequestOutcome {
    response: Response<Body>,
    /// True if the request was routed to a served resource or path.
    known: bool,
    audit_end: AuditEnd,
    /// When the request gave its seat back ([`Seat::end`]).
    ended: Option<Instant>,
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

impl RequestOutcome {
    /// Outcome of a request that is not known to refer to a served resource or path.
    fn unknown(response: Response<Body>) -> Self {
        RequestOutcome { response, known: false, audit_end: AuditEnd::Open, ended: None }
    }
}

/// A request from the network, before it is authenticated.
struct ReceivedRequest<'a> {
    peer: &'a Peer,
    uri: &'a str,
    info: &'a Arc<RequestInfo>,
    record: &'a AuditRecord,
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

/// Refuses a request that was not authenticated, and opens its audit record.
fn refuse_unauthenticated(
    status: &Status,
    sent: RecordedRequest<'_>,
    query: &Query,
    record: &AuditRecord,
) -> RequestOutcome {
    let headers = sent.headers;
    record.open(None, sent);
    let response = respond::refusal(status, headers, query, record);
    RequestOutcome { audit_end: AuditEnd::Unauthenticated, ..RequestOutcome::unknown(response) }
}

/// Runs the stages that only network requests pass, then [`serve_authenticated`].
async fn serve_network_request(
    state: &Arc<State>,
    received: ReceivedRequest<'_>,
    query: Query,
    headers: HeaderMap,
    mut body: RequestBody,
) -> RequestOutcome {
    let ReceivedRequest { peer, uri, info, record, limit, started, effort, gone } = received;
    let sent = RecordedRequest { uri, info, headers: &headers, peer: peer.address.ip() };

    let deadline = match limit {
        _ if info.is_long_running() => None,
        Ok(limit) => started.checked_add(limit),
        Err(why) => return refuse_unauthenticated(&Status::bad_request(why), sent, &query, record),
    };

    // stage: authenticate
    let authenticated = match authenticate(state, peer, info, &headers).await {
        Ok(authenticated) => authenticated,
        Err(status) => return refuse_unauthenticated(&status, sent, &query, record),
    };
    let Authenticated { caller, annotations, warnings } = authenticated;
    let account = BudgetAccount::of(caller.user(), peer.address.ip());
    let room = body.charge_buffers(&account);

    // stage: audit
    record.open(Some(caller.user()), sent);
    for (key, value) in annotations {
        record.annotate(key, value);
    }
    if let Err(why) = record.received().await {
        let response = respond::internal_error(&info.path, why);
        return RequestOutcome { audit_end: AuditEnd::Recorded, ..RequestOutcome::unknown(response) };
    }

    // stage: account
    if let Err(status) = room {
        return RequestOutcome::unknown(respond::refusal(&status, &headers, &query, record));
    }
    let payer = match response_payer(state, account, info, &effort) {
        Ok(payer) => payer,
        Err(status) => return RequestOutcome::unknown(respond::too_many_requests(&status)),
    };

    // stage: impersonate
    let chain = state.authorization.chain.load_full();
    let (requested, last_modes) = (attributes(info), &state.authentication.impersonations);
    let caller = match authz::impersonate(&chain, &caller, &HttpHeaders(&headers), &requested, last_modes)
        .await
    {
        Ok(caller) => caller,
        Err(status) => return RequestOutcome::unknown(respond::forbidden(&status, &headers, &query, record)),
    };
    record.impersonated(&caller);

    // stage: queue
    let has_body = body.arrives();
    let asking = SeatRequest {
        state,
        caller: &caller,
        info,
        query: &query,
        arrived: started,
        deadline,
        has_body,
        gone,
    };
    let seat = match take_seat(asking).await {
        Ok(seat) => seat,
        Err(refused) => return RequestOutcome::unknown(*refused),
    };

    let uids = seat.uids();
    let written = effort.clone();
    // Boxed, like the call that is made from it: they are large, and each of the next stages would move them.
    let request = Box::new(AuthenticatedRequest {
        caller,
        info: RequestInfo::clone(info),
        query,
        headers,
        body,
        warnings,
        record: record.clone(),
        limits: RequestLimits {
            seat,
            deadline,
            effort,
            payer: Some(payer.clone()),
            connection: Some(peer.connection.clone()),
        },
    });
    let objects = Payer::new(&state.serving.object_budget, payer.account().clone());
    let mut outcome = objects::charged_to(objects, serve_authenticated(state, uri, request)).await;
    if let Some(uids) = uids {
        uids.add_to(&mut outcome.response);
    }
    charge_response(&mut outcome.response, payer, &written);
    outcome
}

/// The account that the body and the response are charged to. Refuses requests of a client that does not read its responses, except for
/// health pages.
fn response_payer(
    state: &State,
    account: BudgetAccount,
    info: &RequestInfo,
    effort: &Effort,
) -> Result<Payer, Status> {
    if !info.is_long_running() {
        effort.set_account(lane_account(&account));
    }
    let payer = Payer::new(&state.serving.answer_budget, account);
    if !health::is_page(&info.path) {
        payer.check_room()?;
    }
    Ok(payer)
}

/// Waits for a seat by API Priority and Fairness, or takes one of the in-flight limits where that is off. Long-running requests other
/// than watches need none. The error is the complete response.
async fn take_seat(asking: SeatRequest<'_>) -> Result<Seat, Box<Response<Body>>> {
    let SeatRequest { state, caller, info, .. } = asking;
    match &state.serving.flow_control {
        Some((control, _)) if info.verb == "watch" || !info.is_long_running() => {
            control.admit(asking).await.map(Seat::from).map_err(|refused| Box::new(refused.response()))
        }
        Some(_) => Ok(Seat::default()),
        None => state
            .serving
            .seats
            .take(caller.user(), info)
            .map_err(|status| Box::new(respond::too_many_requests(&status))),
    }
}

/// Charges the response to the client's account until the client has read it. Refuses the request if the account is exhausted.
fn charge_response(response: &mut Response<Body>, payer: Payer, effort: &Effort) {
    if let Err(status) = response.body_mut().charge_to(payer) {
        if effort.has_written() {
            // The write is stored, so the response must not say that it was refused.
            *response.body_mut() = Body::cut();
        } else {
            *response = respond::too_many_requests(&status);
        }
    }
}

/// Runs the stages that every request passes, from the network or from inside this process.
async fn serve_authenticated(
    state: &Arc<State>,
    uri: &str,
    request: Box<AuthenticatedRequest>,
) -> RequestOutcome {
    // stage: authorize
    let mut call = match authorize(state, uri, request).await {
        Ok(call) => call,
        Err(refused) => return RequestOutcome::unknown(*refused),
    };

    // stage: forward
    if let Some(response) = forward(state, &mut call).await {
        return RequestOutcome::unknown(response);
    }

    // stage: route
    if call.info.is_resource { serve_resource(state, call).await } else { serve_document(state, call).await }
}

/// The error is the complete response.
async fn authorize(
    state: &Arc<State>,
    uri: &str,
    request: Box<AuthenticatedRequest>,
) -> Result<Box<Call>, Box<Response<Body>>> {
    let AuthenticatedRequest { caller, info, query, headers, record, .. } = &*request;
    let begun = Instant::now();
    let chain = state.authorization.chain_for(caller);
    let mut authorized = chain.authorize(caller, attributes(info)).await;
    for further in handlers::snapshot::further_attributes(info, &state.apis.catalog) {
        if authorized.is_ok() {
            authorized = chain.authorize(caller, further).await;
        }
    }
    if *caller.via() != AuthenticationMethod::Internal {
        state.authorization.metrics.attempted(&authorized, begun.elapsed());
    }
    match authorized {
        Ok(permit) => {
            record.decided("allow", permit.reason());
            Ok(Box::new(Call::new(*request, permit, state.now())))
        }
        Err(Denial::Denied { status, reason, .. }) => {
            record.decided("forbid", &reason);
            let mut response = respond::forbidden(&status, headers, query, record);
            respond::warn(&mut response, request.warnings);
            Err(Box::new(response))
        }
        Err(Denial::Failed { error }) => {
            static LOG: LogLimit = LogLimit::with_burst(20);
            record.undecided();
            if let Some(unlogged) = LOG.due() {
                warn!(%error, path = info.path, unlogged, "the authorizer chain returned an error; the request is refused");
            }
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
    if answered_by == AnsweredBy::ThisServer {
        return None;
    }
    // While an APIService cannot be decoded, it is unknown which server serves its group and version.
    if let Some(name) = aggregation::service_name(&call.info.path)
        && let Err(status) = state.storage.unreadable.check_named(&Concern::Registration, &name)
    {
        return Some(respond::response_of(call, None, Err(status)));
    }
    if let Some(service) = state.apis.aggregation.serving(&call.info.path) {
        // A server that normalizes paths would serve another path than the authorized one.
        if has_other_readings(&call.info.path) {
            return Some(respond::page_not_found());
        }
        return Some(Box::pin(aggregation::forward::handle(state, call, &service)).await);
    }
    (answered_by == AnsweredBy::AggregatedServer).then(respond::page_not_found)
}

/// Serves paths that are not resources: discovery, OpenAPI, health, metrics.
async fn serve_document(state: &Arc<State>, mut call: Box<Call>) -> RequestOutcome {
    if call.info.path.starts_with("/apis") || call.info.path.starts_with("/openapi") {
        state.apis.crds.catch_up_with_memory(&state.storage.store).await;
    }
    if call.info.path.starts_with("/apis/")
        && !handlers::documents::is_path(state, &call.info.path)
        && let Err(status) = state.apis.crds.catch_up(&state.storage.store).await
    {
        return RequestOutcome::unknown(respond::response_of(&mut call, None, Err(status)));
    }
    if !handlers::documents::is_path(state, &call.info.path) {
        return RequestOutcome::unknown(respond::page_not_found());
    }
    let result = Box::pin(handlers::documents::handle(state, &mut call)).await;
    call.effort.enter_lane(respond::encoding(&call, None, &result)).await;
    let known = result.is_ok();
    RequestOutcome { known, ..RequestOutcome::unknown(respond::response_of(&mut call, None, result)) }
}

async fn serve_resource(state: &Arc<State>, mut call: Box<Call>) -> RequestOutcome {
    let (mut found, mut _schema_writer) = find_resource(&state.apis.catalog, &call);
    if found.is_none() {
        // The CRD may have been established a moment ago.
        if let Err(status) = state.apis.crds.catch_up(&state.storage.store).await {
            return RequestOutcome::unknown(respond::response_of(&mut call, None, Err(status)));
        }
        (found, _schema_writer) = find_resource(&state.apis.catalog, &call);
    }
    let target = match route_resource(state, &mut call, found) {
        Ok(target) => target,
        Err(response) => return RequestOutcome::unknown(*response),
    };
    warn_of_deprecation(state, &mut call, &target.kind);
    call.effort.set_routed();
    let kind = Arc::clone(&target.kind);
    compile_schemas(state, &call, &kind).await;

    // stage: receive, decode, field management, mutate, validate, store
    let result = dispatch(state, &mut call, target).await;

    // stage: answer
    call.effort.enter_lane(respond::encoding(&call, Some(&kind), &result)).await;
    let response = respond::response_of(&mut call, Some(&kind), result);
    RequestOutcome { response, known: true, audit_end: AuditEnd::Open, ended: call.seat.end() }
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
    if work > heavy_lane::LARGE {
        call.effort.enter_lane(work).await;
        custom.crd.compile(state.validation_context(call.now).stopwatch.as_deref());
    }
}

async fn dispatch(
    state: &Arc<State>,
    call: &mut Call,
    target: RoutedResource,
) -> Result<HandlerResponse, Status> {
    let RoutedResource { kind, verb } = target;
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
        Verb::Watch => Box::pin(handlers::watch::handle(state, call, Arc::clone(kind))).await,
        Verb::Create => Box::pin(handlers::create::handle(state, call, kind)).await,
        Verb::Update => Box::pin(handlers::update::put(state, call, kind, subresource)).await,
        Verb::Patch => Box::pin(handlers::update::patch(state, call, kind, subresource)).await,
        Verb::Delete => Box::pin(handlers::delete::delete_object(state, call, kind)).await,
        Verb::DeleteCollection => Box::pin(handlers::delete::collection(state, call, kind)).await,
    }
}
