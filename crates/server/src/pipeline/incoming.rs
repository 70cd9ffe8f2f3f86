//! Network requests: the deadline, client disconnects, and the end of the audit record.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use api::Status;
use audit::AuditRecord;
use flowcontrol::PresentRequest;
use heavy_lane::{CancelOnDrop, Effort};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use requests::request_info::{Query, RequestInfo};
use runtime::LogLimit;
use tokio::sync::oneshot;
use tracing::error;
use transport::accept::{self, Peer};
use transport::discard::Discarding;

use super::{AuditEnd, ReceivedRequest, RequestOutcome, parse, serve_network_request};
use crate::body::Body;
use crate::browsers::BrowserHeaders;
use crate::call::{IncomingBody, RequestBody};
use crate::flow_control::ClientGone;
use crate::metrics::Finished;
use crate::respond;
use crate::shutdown;
use crate::state::State;

impl accept::RequestHandler for State {
    type Body = Body;

    // Not an `async fn`, because a request counts as present before its future is first polled. Boxed,
    // because HTTP/2 moves the future several times.
    fn handle(
        self: Arc<Self>,
        peer: Peer,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send {
        let browser = self.serving.browsers.for_request(request.method(), request.headers());
        let preflight = browser.as_ref().and_then(BrowserHeaders::preflight);
        let is_refused = self.serving.is_refusing.load(Ordering::Acquire)
            && shutdown::is_refused(request.uri().path(), request.headers());
        let request = IncomingRequest::read(&self, peer, request);
        let answering: Pin<Box<dyn Future<Output = Response<Body>> + Send>> = if is_refused {
            Box::pin(std::future::ready(shutdown::refusal()))
        } else if let Some(preflight) = preflight {
            Box::pin(std::future::ready(preflight))
        } else if request.is_cancelable() {
            Box::pin(answer_cancelable(self, request))
        } else {
            Box::pin(complete_after_disconnect(self, request))
        };
        match browser {
            None => answering,
            Some(browser) => Box::pin(async move {
                let mut response = answering.await;
                browser.add_to(response.headers_mut());
                response
            }),
        }
    }

    fn end_long_running(&self, connections: usize) -> Vec<u64> {
        self.serving.long_running.end_on_connections(connections)
    }
}

/// Answers a read-only request. If the client disconnects, this future is dropped together with its work.
async fn answer_cancelable(state: Arc<State>, request: Box<IncomingRequest>) -> Response<Body> {
    let effort = request.effort.clone();
    let deadline = request.deadline(&state);
    let serving = Arc::clone(&state);
    let work = Box::pin(async move {
        let mut answered = None;
        request.answer(&serving, |response| answered = Some(response)).await;
        answered
    });
    let answered = state.serving.heavy.drive(&effort, deadline, work).await;
    answered.flatten().unwrap_or_else(respond::panicked)
}

/// Answers a mutating request. If the client disconnects, this future is dropped, but the work continues in
/// its own task: a second write, the release of resources, the audit event. Shutdown waits for that task.
/// Only long computations before the first write are canceled.
async fn complete_after_disconnect(state: Arc<State>, mut request: Box<IncomingRequest>) -> Response<Body> {
    let under_way = Arc::clone(&state.serving.under_way);
    let Ok(in_progress) = under_way.acquire_owned().await else { return respond::panicked() };
    let (reply, answered) = oneshot::channel();
    let effort = request.effort.clone();
    let cancel = CancelOnDrop::new(&effort);
    // Dropped with this future, so that a request in a queue leaves it when its client disconnects.
    let (_connected, gone) = oneshot::channel();
    request.gone = ClientGone::with(gone);
    let limit = request.time_limit(&state);
    let deadline = request.deadline(&state);
    let (_still_connected, gone) = request.info.is_long_running().then(oneshot::channel::<()>).unzip();
    let serving = Arc::clone(&state);
    let work = Box::pin(async move { request.answer(&serving, |response| drop(reply.send(response))).await });
    tokio::spawn(async move {
        let work = state.serving.heavy.drive(&effort, deadline, work);
        match gone {
            None => drop(work.await),
            // A long-running request has no time limit until its client disconnects.
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
        drop(in_progress);
    });
    let response = answered.await.unwrap_or_else(|_| respond::panicked());
    cancel.disarm();
    response
}

/// A request whose head has been parsed.
struct IncomingRequest {
    started: Instant,
    peer: Peer,
    method: Method,
    uri: String,
    query: Query,
    info: Arc<RequestInfo>,
    headers: HeaderMap,
    body: IncomingBody,
    effort: Effort,
    gone: ClientGone,
    present: Option<PresentRequest>,
}

impl IncomingRequest {
    /// Boxed, because it is large and the tasks that answer it move it several times.
    fn read(state: &State, peer: Peer, request: Request<Incoming>) -> Box<Self> {
        let started = Instant::now();
        let (mut parts, body) = request.into_parts();
        let body = Discarding::new(body, parts.version);
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let (info, query) = parse(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
        let uri = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        let budget = Arc::clone(&state.serving.body_budget);
        let body = IncomingBody { body, upgrade, peer: peer.address.ip(), budget };
        Box::new(IncomingRequest {
            started,
            peer,
            method: parts.method,
            uri,
            query,
            info: Arc::new(info),
            headers: parts.headers,
            body,
            effort: Effort::default(),
            gone: ClientGone::default(),
            present: state.serving.flow_control.as_ref().map(|(control, _)| control.arrived()),
        })
    }

    /// True if the request writes nothing and may end at any point. The verb alone does not prove that: any
    /// method may be sent to a path that an aggregated API server serves.
    fn is_cancelable(&self) -> bool {
        let is_read = self.method == Method::GET || self.method == Method::HEAD;
        is_read && (self.info.is_read_only() || self.info.is_long_running())
    }

    /// The server's limit applies if the client's cannot be parsed.
    fn time_limit(&self, state: &State) -> Duration {
        let most = state.serving.request_timeout;
        time_limit(&self.query, most).unwrap_or(most)
    }

    /// `None` for a long-running request.
    fn deadline(&self, state: &State) -> Option<Instant> {
        let limit = self.time_limit(state);
        self.started.checked_add(limit).filter(|_| !self.info.is_long_running())
    }

    /// Passes the response to `reply` and returns when the work is done. That may be later: the response at a
    /// deadline does not wait for a write.
    async fn answer(self: Box<Self>, state: &Arc<State>, reply: impl FnOnce(Response<Body>)) {
        let is_cancelable = self.is_cancelable();
        let IncomingRequest {
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
        } = *self;
        let dry_run = query.get("dryRun").is_some();
        let id = audit_id(&headers);
        // An aggregated API server that receives the forwarded request gets the same audit ID.
        headers.insert(audit::HEADER, id.clone());
        let record =
            AuditRecord::begin(state.serving.audit.as_ref(), String::from_utf8_lossy(id.as_bytes()).into());
        let limit = time_limit(&query, state.serving.request_timeout);
        let longest = limit.clone().unwrap_or(state.serving.request_timeout);
        let routing = effort.clone();
        let received = ReceivedRequest {
            peer: &peer,
            uri: &uri,
            info: &info,
            record: &record,
            limit,
            started,
            effort,
            gone,
        };
        // Boxed at once: the future is large, and moving it costs as much as serving a small request.
        let work = Box::pin(serve_network_request(
            state,
            received,
            query,
            headers,
            RequestBody::Incoming(Box::new(body)),
        ));
        let mut work = std::pin::pin!(catch_panic(work));
        let Answered { mut response, known, late, ended } =
            complete(longest, &info, &routing, &record, work.as_mut()).await;
        // Marked sensitive, so that HPACK does not store a one-time value in the connection's dynamic table.
        let mut id = id;
        id.set_sensitive(true);
        // An aggregated API server may have set its own audit ID, which comes second.
        let theirs = response.headers_mut().insert(audit::HEADER, id);
        if let Some(theirs) = theirs {
            response.headers_mut().append(audit::HEADER, theirs);
        }
        state.metrics.finished(&Finished {
            info: &info,
            known,
            code: response.status().as_u16(),
            dry_run,
            took: ended.unwrap_or_else(Instant::now).saturating_duration_since(started),
            size: response.body().len(),
        });
        if method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        reply(response);
        if late && !is_cancelable {
            drop(work.await);
        }
    }
}

/// The audit ID that the client chose, or a new one.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    match headers.get(audit::HEADER) {
        Some(id) if !id.is_empty() => id.clone(),
        _ => HeaderValue::try_from(runtime::random::uid().as_str()).unwrap_or(HeaderValue::from_static("")),
    }
}

/// The time limit from the query parameter `timeout`, at most `most`. An error explains why it cannot be
/// parsed.
fn time_limit(query: &Query, most: Duration) -> Result<Duration, String> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(most) };
    let limit = api::time::parse_duration(text)
        .map_err(|why| format!("invalid timeout specified in the request URL - {why}"))?;
    let limit = u64::try_from(limit).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos);
    Ok(limit.map_or(most, |limit| limit.min(most)))
}

/// A response, and the facts about it that metrics need.
pub(super) struct Answered {
    pub(super) response: Response<Body>,
    /// True if the request was routed to a served resource or path.
    pub(super) known: bool,
    /// True if the deadline passed before the work was done.
    pub(super) late: bool,
    /// When the request gave its seat back, if it ended then.
    pub(super) ended: Option<Instant>,
}

/// Waits for the work of a request up to its time limit, and closes its audit record.
pub(super) async fn complete(
    longest: Duration,
    info: &RequestInfo,
    effort: &Effort,
    record: &AuditRecord,
    work: Pin<&mut impl Future<Output = Result<RequestOutcome, String>>>,
) -> Answered {
    let outcome = if info.is_long_running() {
        Some(work.await)
    } else {
        tokio::time::timeout(longest, work).await.ok()
    };
    let late = outcome.is_none();
    let RequestOutcome { mut response, known, audit_end, ended } = match outcome {
        Some(Ok(outcome)) => outcome,
        Some(Err(what)) => {
            static LOG: LogLimit = LogLimit::with_burst(20);
            if let Some(unlogged) = LOG.due() {
                error!(
                    path = info.path,
                    panic = what,
                    unlogged,
                    "a request handler panicked; the response is a 500 and other requests are not affected: please report this bug"
                );
            }
            record.panicked(&what).await;
            RequestOutcome {
                response: respond::panicked(),
                known: effort.is_routed(),
                audit_end: AuditEnd::Recorded,
                ended: None,
            }
        }
        None => {
            let status = Status::timeout("request did not complete within the allotted timeout", 0);
            let response = respond::refusal(&status, &HeaderMap::new(), &Query::default(), record);
            RequestOutcome { response, known: effort.is_routed(), audit_end: AuditEnd::Open, ended: None }
        }
    };
    let code = response.status().as_u16();
    match audit_end {
        AuditEnd::Recorded => record.close(),
        AuditEnd::Unauthenticated => {
            record.started(code).await;
            record.close();
        }
        AuditEnd::Open if info.is_long_running() => {
            record.started(code).await;
            let body = std::mem::replace(response.body_mut(), Body::empty());
            *response.body_mut() = body.closing(record.complete_at_end());
        }
        AuditEnd::Open => record.complete(code).await,
    }
    Answered { response, known, late, ended }
}

/// Runs a future to completion; an error is the message of a panic.
pub(super) async fn catch_panic<T>(mut work: impl Future<Output = T> + Unpin) -> Result<T, String> {
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
