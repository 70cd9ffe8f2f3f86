//! The path of a request, in the order it runs. Open this file first.
//!
//! parse → authenticate → record → impersonate → queue → authorize → (forward, if another server serves it) → route → (decode → mutate → validate → store, in [`crate::write`]
//! and the handlers) → answer. `Caller`, `Permit` and `Admitted` can only be made by their stage, so a handler that skips one
//! does not compile. Nothing about what exists is told to a caller who is not authorized.

mod attributes;
mod route;

use std::net::{IpAddr, Ipv6Addr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use api::Status;
use attributes::attributes;
use authn::{Caller, Evidence, Headers, Via};
use authz::Denial;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use kinds::table::Verb;
use route::{Target, route, route_custom};
use tokio::sync::oneshot;
use tracing::{debug, error, warn};

use crate::accept::{self, Peer};
use crate::aggregation;
use crate::audit::{self, Record, Sent};
use crate::body::Body;
use crate::byte_budget::Account;
use crate::call::{Answer, AnsweredBy, Arriving, Call, EXPRESSIONS, Unread};
use crate::catalog::{Catalog, ServedResource, Subresource};
use crate::discard::Discarding;
use crate::flow_control::{Asking, ClientGone, Present};
use crate::handlers;
use crate::health;
use crate::heavy::{self, CancelOnDrop, Effort};
use crate::metrics::{Finished, Outcomes};
use crate::negotiate;
use crate::request_info::{Query, RequestInfo, has_other_readings, percent_decode};
use crate::respond;
use crate::seats::Seat;
use crate::state::State;
use crate::unreadable::Concern;
use crate::unsent::Payer;

/// What came of a request, besides its response: for the counters and for audit.
struct Outcome {
    response: Response<Body>,
    /// Whether it was about something that is served.
    known: bool,
    ends: Ends,
}

/// What is left to record about a request.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// Its answer.
    Open,
    /// That its caller was refused: one event tells it all.
    Unauthenticated,
    /// Nothing.
    Recorded,
}

impl Outcome {
    /// About nothing that is served, as far as is known.
    fn unknown(response: Response<Body>) -> Self {
        Outcome { response, known: false, ends: Ends::Open }
    }
}

impl accept::Answer for State {
    // Not an `async fn`: a request is present before its future is first polled. On the heap, because HTTP/2 moves it several times.
    fn answer(
        self: Arc<Self>,
        peer: Peer,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send {
        let asked = Asked::read(&self, peer, request);
        let answering: Pin<Box<dyn Future<Output = Response<Body>> + Send>> = if asked.may_be_dropped() {
            Box::pin(answer_while_wanted(self, asked))
        } else {
            Box::pin(answer_to_the_end(self, asked))
        };
        answering
    }
}

/// Answers a request that changes nothing. A client that hangs up drops this future, and its work with it.
async fn answer_while_wanted(state: Arc<State>, asked: Asked) -> Response<Body> {
    let effort = asked.effort.clone();
    let deadline = asked.deadline(&state);
    let serving = Arc::clone(&state);
    let work = Box::pin(async move {
        let mut answered = None;
        asked.answer(&serving, |response| answered = Some(response)).await;
        answered
    });
    let answered = state.heavy.drive(&effort, deadline, work).await;
    answered.flatten().unwrap_or_else(respond::panicked)
}

/// Answers a request that changes something.
async fn answer_to_the_end(state: Arc<State>, mut asked: Asked) -> Response<Body> {
    // A client that hangs up drops this future. What it asked for is under way, and comes to its end with all that belongs
    // to it: the second of two writes, what a write holds, the audit event. The server waits for it when it stops.
    // Only long computations before the first write end early.
    let Ok(place) = Arc::clone(&state.under_way).acquire_owned().await else { return respond::panicked() };
    let (reply, answered) = oneshot::channel();
    let effort = asked.effort.clone();
    let cancel = CancelOnDrop::new(&effort);
    // Dropped with this future: a request that still waits in a queue then is not worth its seat.
    let (_waiting, gone) = oneshot::channel();
    asked.gone = ClientGone::with(gone);
    let limit = time_limit(&asked.query, state.request_timeout).unwrap_or(state.request_timeout);
    let is_long_running = asked.info.is_long_running();
    let deadline = asked.deadline(&state);
    let (_waiting_too, gone) = is_long_running.then(oneshot::channel::<()>).unzip();
    let serving = Arc::clone(&state);
    let work = Box::pin(async move { asked.answer(&serving, |response| drop(reply.send(response))).await });
    tokio::spawn(async move {
        let work = state.heavy.drive(&effort, deadline, work);
        match gone {
            None => drop(work.await),
            // What has no time limit of its own has one once nobody waits for it.
            Some(gone) => {
                let abandoned = async {
                    let _ = gone.await;
                    tokio::time::sleep(limit).await;
                };
                tokio::select! {
                    _ = work => {}
                    () = abandoned => {}
                }
            }
        }
        drop(place);
    });
    let response = answered.await.unwrap_or_else(|_| respond::panicked());
    cancel.disarm();
    response
}

/// A request as it came in.
struct Asked {
    started: Instant,
    peer: Peer,
    method: Method,
    uri: String,
    query: Query,
    info: Arc<RequestInfo>,
    headers: HeaderMap,
    body: Arriving,
    effort: Effort,
    gone: ClientGone,
    present: Option<Present>,
}

impl Asked {
    fn read(state: &State, peer: Peer, request: Request<Incoming>) -> Self {
        let started = Instant::now();
        let (mut parts, body) = request.into_parts();
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let path = percent_decode(parts.uri.path(), false);
        let info = Arc::new(RequestInfo::parse(&parts.method, &path, &query));
        let uri = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        let budget = Arc::clone(&state.body_budget);
        let body = Arriving { body: Discarding::new(body), upgrade, peer: peer.address.ip(), budget };
        Asked {
            started,
            peer,
            method: parts.method,
            uri,
            query,
            info,
            headers: parts.headers,
            body,
            effort: Effort::default(),
            gone: ClientGone::default(),
            present: state.flow_control.as_ref().map(|(control, _)| control.arrived()),
        }
    }

    /// Whether the request may end anywhere: it changes nothing. What a verb says is not enough: any method may be sent to a path
    /// that another server serves.
    fn may_be_dropped(&self) -> bool {
        let is_read = self.method == Method::GET || self.method == Method::HEAD;
        is_read && (self.info.is_read_only() || self.info.is_long_running())
    }

    /// When it must be answered, if it is not long-running.
    fn deadline(&self, state: &State) -> Option<Instant> {
        let limit = time_limit(&self.query, state.request_timeout).unwrap_or(state.request_timeout);
        self.started.checked_add(limit).filter(|_| !self.info.is_long_running())
    }

    /// Hands the response to `reply`, and comes to an end after that where a response could not wait for it.
    async fn answer(self, state: &Arc<State>, reply: impl FnOnce(Response<Body>)) {
        let dropped = self.may_be_dropped();
        let Asked {
            started,
            peer,
            method,
            uri,
            query,
            info,
            mut headers,
            body,
            effort,
            gone,
            present: _present,
        } = self;
        let dry_run = query.get("dryRun").is_some();
        let id = audit_id(&headers);
        // Under the same name to whoever the request is passed on to.
        headers.insert(audit::HEADER, id.clone());
        let record = Record::begin(state.audit.as_ref(), String::from_utf8_lossy(id.as_bytes()).into());
        let limit = time_limit(&query, state.request_timeout);
        let longest = limit.clone().unwrap_or(state.request_timeout);
        let routing = effort.clone();
        let received =
            Received { peer: &peer, uri: &uri, info: &info, record: &record, limit, started, effort, gone };
        // On the heap from the beginning: it is large, and moving it costs as much as serving a small request.
        let work = Box::pin(serve(state, received, query, headers, Unread::Incoming(Box::new(body))));
        let mut work = std::pin::pin!(catch_panic(work));
        let Answered { mut response, known, late } =
            finished(longest, &info, &routing, &record, work.as_mut()).await;
        // A value that never comes again must not push others out of the connection's table of headers.
        let mut id = id;
        id.set_sensitive(true);
        // Another server may have answered under a name of its own, which comes second.
        let theirs = response.headers_mut().insert(audit::HEADER, id);
        if let Some(theirs) = theirs {
            response.headers_mut().append(audit::HEADER, theirs);
        }
        state.metrics.finished(&Finished {
            info: &info,
            known,
            code: response.status().as_u16(),
            dry_run,
            took: started.elapsed(),
            size: response.body().len(),
        });
        if method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        reply(response);
        if late && !dropped {
            drop(work.await);
        }
    }
}

/// The name that the client gave its request, or one of our own.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    match headers.get(audit::HEADER) {
        Some(id) if !id.is_empty() => id.clone(),
        _ => HeaderValue::try_from(crate::random::uid().as_str()).unwrap_or(HeaderValue::from_static("")),
    }
}

/// A request from outside, before its caller is known.
struct Received<'a> {
    peer: &'a Peer,
    uri: &'a str,
    info: &'a Arc<RequestInfo>,
    record: &'a Record,
    /// How long it may take, or why what it says about that cannot be read.
    limit: Result<Duration, String>,
    started: Instant,
    effort: Effort,
    /// Ends when the client no longer waits.
    gone: ClientGone,
}

/// How long a request may take: what its client says, or what the server does if that is less.
fn time_limit(query: &Query, most: Duration) -> Result<Duration, String> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(most) };
    let asked = api::time::parse_duration(text)
        .map_err(|why| format!("invalid timeout specified in the request URL - {why}"))?;
    let asked = u64::try_from(asked).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos);
    Ok(asked.map_or(most, |asked| asked.min(most)))
}

/// What is told to the client, and what is known about it.
struct Answered {
    response: Response<Body>,
    /// Whether the request was about something that is served.
    known: bool,
    /// Whether the client's time was over before the work was.
    late: bool,
}

/// Waits for the work of a request as long as the request may take, and closes its record.
async fn finished(
    longest: Duration,
    info: &RequestInfo,
    effort: &Effort,
    record: &Record,
    work: Pin<&mut impl Future<Output = Result<Outcome, String>>>,
) -> Answered {
    let outcome = if info.is_long_running() {
        Some(work.await)
    } else {
        tokio::time::timeout(longest, work).await.ok()
    };
    let late = outcome.is_none();
    let Outcome { mut response, known, ends } = match outcome {
        Some(Ok(outcome)) => outcome,
        Some(Err(what)) => {
            error!(path = info.path, what, "a handler panicked");
            record.panicked(&what).await;
            Outcome { response: respond::panicked(), known: effort.is_routed(), ends: Ends::Recorded }
        }
        None => {
            let status = Status::timeout("request did not complete within the allotted timeout", 0);
            let response = respond::refusal(&status, &HeaderMap::new(), &Query::default(), record);
            Outcome { response, known: effort.is_routed(), ends: Ends::Open }
        }
    };
    let code = response.status().as_u16();
    match ends {
        Ends::Recorded => record.close(),
        Ends::Unauthenticated => {
            record.started(code).await;
            record.close();
        }
        Ends::Open if info.is_long_running() => {
            record.started(code).await;
            let body = std::mem::replace(response.body_mut(), Body::empty());
            *response.body_mut() = body.closing(record.complete_at_end());
        }
        Ends::Open => record.complete(code).await,
    }
    Answered { response, known, late }
}

/// Runs a future to its end, or to what it said when it panicked.
async fn catch_panic<T>(mut work: impl Future<Output = T> + Unpin) -> Result<T, String> {
    std::future::poll_fn(move |context| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(&mut work).poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Poll::Ready(Err(text.unwrap_or_else(|| "unknown".to_owned())))
            }
        }
    })
    .await
}

/// The stages that every request from outside passes.
async fn serve(
    state: &Arc<State>,
    received: Received<'_>,
    query: Query,
    headers: HeaderMap,
    body: Unread,
) -> Outcome {
    let Received { peer, uri, info, record, limit, started, effort, gone } = received;
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
                ends: Ends::Unauthenticated,
                ..refuse(&Status::bad_request(why), &headers, &query)
            };
        }
    };

    // authenticate
    let recognised = match authenticate(state, peer, info, &headers).await {
        Ok(recognised) => recognised,
        Err(status) => {
            record.open(None, sent);
            return Outcome { ends: Ends::Unauthenticated, ..refuse(&status, &headers, &query) };
        }
    };
    let Recognised { caller, annotations, warnings } = recognised;

    // record
    record.open(Some(caller.user()), sent);
    for (key, value) in annotations {
        record.annotate(key, value);
    }
    if let Err(why) = record.received().await {
        let response = respond::internal_error(&info.path, why);
        return Outcome { ends: Ends::Recorded, ..Outcome::unknown(response) };
    }

    // Whoever does not read answers gets no further ones.
    let account = Account::of(caller.user(), peer.address.ip());
    if !info.is_long_running() {
        effort.set_account(account.owner());
    }
    let payer = Payer::new(&state.answer_budget, account);
    if !health::is_page(&info.path)
        && let Err(status) = payer.check_room()
    {
        return Outcome::unknown(respond::too_many_requests(&status));
    }

    // impersonate
    let chain = state.authorizer.load_full();
    let (wants, asked) = (HttpHeaders(&headers), attributes(info));
    let caller = match authz::impersonate(&chain, &caller, &wants, &asked, &state.impersonations).await {
        Ok(caller) => caller,
        Err(status) => return Outcome::unknown(respond::forbidden(&status, &headers, &query, record)),
    };
    record.impersonated(&caller);

    // queue
    let seat = match &state.flow_control {
        Some((control, _)) if info.verb == "watch" || !info.is_long_running() => {
            let (caller, query, has_body) = (&caller, &query, body.arrives());
            let asking = Asking { state, caller, info, query, arrived: started, deadline, has_body, gone };
            match control.admit(asking).await {
                Ok(seat) => seat.into(),
                Err(refused) => return Outcome::unknown(refused.response()),
            }
        }
        Some(_) => Seat::default(),
        None => match state.seats.take(caller.user(), info) {
            Ok(seat) => seat,
            Err(status) => return Outcome::unknown(respond::too_many_requests(&status)),
        },
    };

    let assignment = seat.assignment();
    let info = RequestInfo::clone(info);
    let written = effort.clone();
    let limits = RequestLimits { seat, deadline, effort, payer: Some(payer.clone()) };
    let mut outcome = finish(state, uri, caller, info, query, headers, body, warnings, record, limits).await;
    if let Some(assignment) = assignment {
        assignment.add_to(&mut outcome.response);
    }
    if let Err(status) = outcome.response.body_mut().charge_to(payer) {
        if written.has_written() {
            // It happened, so the client must not be told that it was refused.
            *outcome.response.body_mut() = Body::cut();
        } else {
            outcome.response = respond::too_many_requests(&status);
        }
    }
    outcome
}

/// What a request may use: its seat, its time and the steps that it may compute.
struct RequestLimits {
    seat: Seat,
    deadline: Option<Instant>,
    effort: Effort,
    payer: Option<Payer>,
}

/// The stages that every request passes, from outside or from within.
#[expect(clippy::too_many_arguments, reason = "the parts of one request, on their way into a `Call`")]
async fn finish(
    state: &Arc<State>,
    uri: &str,
    caller: Caller,
    info: RequestInfo,
    query: Query,
    headers: HeaderMap,
    body: Unread,
    warnings: Vec<String>,
    record: &Record,
    limits: RequestLimits,
) -> Outcome {
    // authorize
    let begun = Instant::now();
    let authorized = state.chain_for(&caller).authorize(&caller, attributes(&info)).await;
    if *caller.via() != Via::Internal {
        state.authorization_metrics.attempted(&authorized, begun.elapsed());
    }
    let permit = match authorized {
        Ok(permit) => permit,
        Err(Denial::Denied { status, reason, .. }) => {
            record.decided("forbid", &reason);
            let mut response = respond::forbidden(&status, &headers, &query, record);
            respond::warn(&mut response, warnings);
            return Outcome::unknown(response);
        }
        Err(Denial::Failed { error }) => {
            record.undecided();
            warn!(%error, path = info.path, "authorization failed");
            return Outcome::unknown(respond::internal_error(uri, &error));
        }
    };
    record.decided("allow", permit.reason());

    // route
    let mut call = Call::new(info, query, headers, permit, body, state.now(), record.clone());
    call.deadline = limits.deadline;
    call.effort = limits.effort;
    call.seat = limits.seat;
    call.payer = limits.payer;
    for warning in warnings {
        call.warn(warning);
    }
    // Nothing is served below an empty first segment or an empty group, although `RequestInfo` reads a resource from them:
    // `/apis//v1/pods` would be another spelling of `/api/v1/pods`.
    if call.info.path.starts_with("//") || call.info.path.starts_with("/apis//") {
        return Outcome::unknown(respond::page_not_found());
    }
    let answered_by = call.answered_by();
    // Who serves this is not known while its APIService cannot be read.
    if answered_by != AnsweredBy::Us
        && let Some(name) = aggregation::service_name(&call.info.path)
        && let Err(status) = state.unreadable.check_named(&Concern::Registration, &name)
    {
        return Outcome::unknown(respond::finish(&mut call, None, Err(status)));
    }
    if answered_by != AnsweredBy::Us
        && let Some(service) = state.aggregation.serving(&call.info.path)
    {
        // A server that normalizes paths would serve something else than what was authorized.
        if has_other_readings(&call.info.path) {
            return Outcome::unknown(respond::page_not_found());
        }
        return Outcome::unknown(Box::pin(aggregation::forward::handle(state, &mut call, &service)).await);
    }
    if answered_by == AnsweredBy::Others {
        return Outcome::unknown(respond::page_not_found());
    }
    if !call.info.is_resource {
        if !handlers::documents::is_path(state, &call.info.path) {
            return Outcome::unknown(respond::page_not_found());
        }
        let result = Box::pin(handlers::documents::handle(state, &mut call)).await;
        call.effort.enter_lane(respond::encoding(&call, None, &result)).await;
        let known = result.is_ok();
        return Outcome { known, ..Outcome::unknown(respond::finish(&mut call, None, result)) };
    }
    let find = |catalog: &Catalog| {
        let RequestInfo { group, version, resource, .. } = &call.info;
        // Objects of a version that is not served must go with their CRD, too.
        let is_internal = *call.caller().via() == Via::Internal;
        if is_internal {
            catalog.find_in_any_version(group, version, resource)
        } else {
            catalog.find(group, version, resource)
        }
    };
    let (found, _writing) = if call.info.is_read_only() {
        (find(&state.catalog), None)
    } else {
        state.catalog.find_to_write(find)
    };
    if found.is_none() {
        // What its objects are is not known while its CRD cannot be read: it is not the same as none.
        let crd = format!("{}.{}", call.info.resource, call.info.group);
        if let Err(status) = state.unreadable.check_named(&Concern::CustomResourceDefinition, &crd) {
            return Outcome::unknown(respond::finish(&mut call, None, Err(status)));
        }
    }
    let is_custom = found.as_ref().is_some_and(|kind| kind.row().is_none());
    if found.is_none() && !state.catalog.served().has_group(&call.info.group) {
        return Outcome::unknown(respond::page_not_found());
    }
    let routed = match found {
        None => Err(Some(Status::no_such_resource())),
        Some(kind) if is_custom => route_custom(&call, kind),
        Some(kind) => route(&call, kind).map_err(Some),
    };
    let target = match routed {
        Ok(target) => target,
        Err(None) => return Outcome::unknown(respond::page_not_found()),
        Err(Some(status)) => return Outcome::unknown(respond::finish(&mut call, None, Err(status))),
    };
    if let Some(deprecation) = target.kind.deprecation() {
        call.warn(deprecation);
        let removed = target.kind.removed_release();
        record.annotate("k8s.io/deprecated", "true");
        if !removed.is_empty() {
            record.annotate("k8s.io/removed-release", removed);
        }
        state.metrics.requested_deprecated(&call.info, removed);
    }
    call.effort.set_routed();
    let kind = Arc::clone(&target.kind);
    compile_schemas(state, &call, &kind).await;
    let result = dispatch(state, &mut call, target).await;
    call.effort.enter_lane(respond::encoding(&call, Some(&kind), &result)).await;
    Outcome { known: true, ..Outcome::unknown(respond::finish(&mut call, Some(&kind), result)) }
}

/// Compiles the schemas of a custom resource before the first request needs them: on the heavy lane if the CRD is large. A small one
/// is left alone; what is needed of it is compiled when it is.
async fn compile_schemas(state: &State, call: &Call, kind: &ServedResource) {
    let Some(custom) = kind.as_custom() else { return };
    let work = custom.crd.uncompiled().saturating_mul(EXPRESSIONS);
    if work > heavy::LARGE {
        call.effort.enter_lane(work).await;
        custom.crd.compile(state.validation_context(call.now).stopwatch.as_deref());
    }
}

/// A request of a part of this process, with a body that is here: it skips the network and the queue, and nothing else. Whoever drives
/// it on the heavy lane ([`HeavyLane::drive`](crate::heavy::HeavyLane::drive)) passes the same `effort` there.
pub async fn internal(
    state: &Arc<State>,
    caller: Caller,
    method: Method,
    target: &str,
    headers: HeaderMap,
    body: Unread,
    effort: Effort,
) -> Response<Body> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = Query::parse(query);
    let info = RequestInfo::parse(&method, &percent_decode(path, false), &query);
    let record = Record::begin(state.audit.as_ref(), crate::random::uid());
    let limit = state.request_timeout;
    let deadline = Instant::now().checked_add(limit).filter(|_| !info.is_long_running());
    let peer = IpAddr::V6(Ipv6Addr::LOCALHOST);
    record.open(Some(caller.user()), Sent { uri: target, info: &info, headers: &headers, peer });
    let limits = RequestLimits { seat: Seat::default(), deadline, effort: effort.clone(), payer: None };
    let work = Box::pin(async {
        if let Err(why) = record.received().await {
            let response = respond::internal_error(&info.path, why);
            return Outcome { ends: Ends::Recorded, ..Outcome::unknown(response) };
        }
        let warnings = Vec::new();
        finish(state, target, caller, info.clone(), query, headers, body, warnings, &record, limits).await
    });
    finished(limit, &info, &effort, &record, std::pin::pin!(catch_panic(work))).await.response
}

/// Headers as authentication reads them.
struct HttpHeaders<'a>(&'a HeaderMap);

impl Headers for HttpHeaders<'_> {
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(http::HeaderValue::as_bytes)
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &[u8])) {
        for (name, value) in self.0 {
            visit(name.as_str(), value.as_bytes());
        }
    }
}

/// Somebody whose evidence was believed.
struct Recognised {
    caller: Caller,
    annotations: Vec<(&'static str, String)>,
    warnings: Vec<String>,
}

/// Who is calling; 401 says nothing about why not.
async fn authenticate(
    state: &State,
    peer: &Peer,
    info: &RequestInfo,
    headers: &HeaderMap,
) -> Result<Recognised, Status> {
    let began = Instant::now();
    let judgement = peer.certificates.judge(&state.trust.load_full());
    let judgement = judgement.as_deref();
    let evidence = Evidence {
        certificate: judgement.and_then(|j| j.client.as_deref()),
        proxy_certificate: judgement.and_then(|j| j.proxy.as_deref()),
        headers: &HttpHeaders(headers),
        path: &info.path,
        now: SystemTime::now(),
    };
    let attempt = state.authenticator.load_full().authenticate(&evidence).await;
    let count = |outcome: Outcomes<'_>| state.metrics.authentication.attempted(outcome, began.elapsed());
    let refused = |outcome: Outcomes<'_>, why: &str| {
        debug!(address = %peer.address, why, "unauthenticated");
        count(outcome);
        Err(Status::unauthorized())
    };
    match attempt.result {
        // Evidence that was not believed ends anonymous access.
        Ok(Some(caller)) if *caller.via() == Via::Anonymous && judgement.is_some_and(|j| j.doubted) => {
            refused(Outcomes::Error, "the client certificate is not signed by a known authority")
        }
        Ok(Some(caller)) => {
            count(Outcomes::Success(caller.name()));
            let warnings = attempt.warnings.iter().map(ToString::to_string).collect();
            Ok(Recognised { caller, annotations: attempt.annotations, warnings })
        }
        Ok(None) => refused(Outcomes::Failure, "no credentials"),
        Err(error) => refused(Outcomes::Error, &error.to_string()),
    }
}

/// Runs the handler of a verb.
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
    // A subresource is read and changed; it is never a way to create, list or delete.
    if subresource != Subresource::None && !matches!(verb, Verb::Get | Verb::Update | Verb::Patch) {
        return Err(Status::method_not_allowed());
    }
    if call.info.is_read_only() {
        // Before anything is looked up: whoever takes no answer is not told what there is. Watches know more types.
        if verb != Verb::Watch {
            negotiate::accept(&call.headers, &call.query, respond::forms(call, kind))?;
        }
    } else {
        respond::can_answer(call, kind, verb)?;
    }
    match verb {
        // Each on the heap: no request should carry the weight of the heaviest of them.
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
