//! Proxies a request to an aggregated API server.
//!
//! The caller was authenticated and authorized here. Front-proxy headers pass its identity on; the aggregated server trusts
//! them because of the client certificate this server presents. The caller's own credentials are never passed on.
//!
//! INVARIANT: the path and the query sent are those that were authorized, encoded anew. Identity headers are written here;
//! those that a client sent are dropped first.

mod headers;
mod passing;
mod upgrade;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::User;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use runtime::LogLimit;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};
use transport::long_running::LongRunningRequest;

use super::{ApiService, Registry, availability};
use crate::body::{Body, EarlyEnd, ForwardedPart};
use crate::call::{Call, IncomingBody, RequestBody, too_slow};
use crate::config::Redirects;
use crate::respond;
use crate::state::State;

use outbound::{Forward, Outgoing};
use passing::{BodyEnd, ReportingBody};
use transport::byte_budget::ByteBudget;
use transport::unsent::Payer;

pub(crate) use headers::encode_path;
pub(super) use headers::{
    encode_query, forwarded_trailers, identify, incoming, outgoing, set_forwarded_headers,
};

/// Time limit of discovery requests: clients query all groups, and one slow server would delay them.
const DISCOVERY: Duration = Duration::from_secs(5);
/// The header that marks a proxied request: each server that proxies it adds its own random value and the name of the APIService. A server
/// refuses a request that it has already proxied for the same APIService, because this leads back to it. An aggregated server that passes
/// on the headers of a request, and sends it here for another APIService, makes no loop. A client that sends the header can only have its
/// own requests refused.
pub(super) const HOP: &str = "x-portcullis-hop";
/// How long past its deadline a request is aborted.
const GRACE: Duration = Duration::from_secs(1);
/// Body frames buffered between the aggregated API server and the client.
const PARTS: usize = 8;

/// Proxies a request and streams the response back.
pub(crate) async fn handle(state: &Arc<State>, call: &mut Call, service: &ApiService) -> Response<Body> {
    let Some(hop) = mark(&state.apis.aggregation.registry, &service.name) else { return unavailable() };
    if call.headers.get_all(HOP).iter().any(|passed| *passed == hop) {
        static LOG: LogLimit = LogLimit::with_burst(20);
        if let Some(unlogged) = LOG.due() {
            warn!(
                api_service = %service.name,
                unlogged,
                "refusing a proxied request that came back to this server; spec.service of the APIService must not lead to it"
            );
        }
        return plain(508, "loop detected: the APIService leads back to this server");
    }
    let (transport, host) = match connect(state, service) {
        Ok(found) => found,
        Err(refused) => return *refused,
    };
    // A long-running request holds no flow-control seat, and its body may be an endless stream.
    let is_paced = !call.info.is_long_running();
    let Some(ForwardedBody { body, peer, upgrade, pace }) = ForwardedBody::take(call, is_paced) else {
        return plain(500, "the request has no body to pass on");
    };
    let path = encode_path(&call.info.path);
    let query = encode_query(call.query.pairs());
    let url = if query.is_empty() {
        format!("https://{host}{path}")
    } else {
        format!("https://{host}{path}?{query}")
    };
    let Ok(uri) = url.parse::<Uri>() else { return unavailable() };

    let front_proxy = state.authentication.authenticator.load().front_proxy.clone();
    let upgrades = headers::asks_to_upgrade(&call.headers);
    let mut request = Request::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *request.method_mut() = call.info.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = outgoing(&call.headers, front_proxy.as_ref(), peer, upgrades);
    if let Err(why) = identify(request.headers_mut(), call.user()) {
        return unreachable(&why);
    }
    request.headers_mut().append(HOP, hop);
    // A connection that is upgraded has no time limit, whatever its path is.
    let running = if call.info.is_long_running() || upgrades {
        match call.begin_long_running(&state.serving, true) {
            Ok(running) => running,
            Err(status) => return respond::too_many_requests(&status),
        }
    } else {
        None
    };
    let is_watch = call.info.verb == "watch";
    let limits = AnswerLimits { deadline: call.deadline, payer: call.payer.clone(), running, is_watch };
    if upgrades {
        // An upgrade request is sent without a body, so a `Content-Length` would leave the server waiting.
        request.headers_mut().remove(CONTENT_LENGTH);
        return upgrade::handle(state, transport, request, upgrade, limits).await;
    }
    set_forwarded_headers(request.headers_mut(), &path, &host);
    let trailers =
        move |frame| headers::trailers_of(frame, |sent| forwarded_trailers(sent, front_proxy.as_ref()));
    *request.body_mut() = body.map_frame(trailers).boxed_unsync();
    let is_discovery = !call.info.is_resource && call.info.path.trim_matches('/').split('/').count() == 3;
    let answer = answer(state, transport, request, is_discovery, limits);
    match pace {
        Some(pace) => answer_while_body_arrives(call, answer, pace).await,
        None => answer.await,
    }
}

/// The connection pool and the address of an aggregated API server. The error is the complete response.
fn connect<'s>(state: &State, service: &'s ApiService) -> Result<(&'s Forward, String), Box<Response<Body>>> {
    let Some(remote) = &service.remote else { return Err(Box::new(plain(404, ""))) };
    if !remote.available {
        return Err(Box::new(unavailable()));
    }
    let transport = (*remote.transport).as_ref().map_err(|why| Box::new(plain(500, why)))?;
    match availability::locate(&state.storage.store, remote) {
        Ok(host) => Ok((transport, host)),
        Err(why) => {
            static LOG: LogLimit = LogLimit::with_burst(20);
            if let Some(unlogged) = LOG.due() {
                warn!(
                    api_service = %service.name,
                    error = why,
                    unlogged,
                    "cannot resolve the Service of an aggregated API server; check spec.service of its APIService"
                );
            }
            Err(Box::new(unavailable()))
        }
    }
}

/// The body of a request and the connection that it arrives on.
struct ForwardedBody {
    body: Outgoing,
    peer: IpAddr,
    upgrade: Option<OnUpgrade>,
    /// Set while the body arrives and must keep the minimum rate.
    pace: Option<BodyPace>,
}

/// Reports how the arrival of a body ended, and the budget that counts slow bodies.
struct BodyPace {
    end: oneshot::Receiver<BodyEnd>,
    budget: Arc<ByteBudget>,
}

impl ForwardedBody {
    /// `None` if the body was taken before.
    fn take(call: &mut Call, is_paced: bool) -> Option<Self> {
        match call.take_body() {
            RequestBody::Incoming(incoming) => {
                let IncomingBody { body, peer, upgrade, budget } = *incoming;
                let (body, pace) = if is_paced && !body.is_end_stream() {
                    let (body, end) = ReportingBody::new(body);
                    (body.map_err(Into::into).boxed_unsync(), Some(BodyPace { end, budget }))
                } else {
                    (body.map_err(Into::into).boxed_unsync(), None)
                };
                Some(ForwardedBody { body, peer, upgrade, pace })
            }
            RequestBody::Here(bytes) | RequestBody::Elsewhere(bytes) => {
                let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
                let peer = IpAddr::V6(Ipv6Addr::LOCALHOST);
                Some(ForwardedBody { body, peer, upgrade: None, pace: None })
            }
            RequestBody::Done => None,
        }
    }
}

/// Waits for the response. As with a body that is read locally, the request holds no flow-control seat while its body arrives.
async fn answer_while_body_arrives(
    call: &mut Call,
    answer: impl Future<Output = Response<Body>>,
    BodyPace { end, budget }: BodyPace,
) -> Response<Body> {
    tokio::pin!(answer);
    call.seat.release();
    tokio::select! {
        // A slow body fails the call of the aggregated server too. The client has to see its own mistake, so the body comes first.
        biased;
        end = end => if end == Ok(BodyEnd::TooSlow) {
            budget.count_slow();
            return respond::refusal(&too_slow(), &call.headers, &call.query, call.audit_record());
        },
        response = answer.as_mut() => return response,
    }
    // The aggregated server is already processing the request, so the response does not wait for a seat.
    let seated = async {
        let _ = call.seat.reacquire().await;
        std::future::pending().await
    };
    tokio::select! {
        response = answer.as_mut() => response,
        response = seated => response,
    }
}

/// The time by which the response must end, and the memory budget charged until the client has read it.
struct AnswerLimits {
    deadline: Option<Instant>,
    payer: Option<Payer>,
    /// Set for a long-running request.
    running: Option<LongRunningRequest>,
    is_watch: bool,
}

async fn answer(
    state: &State,
    transport: &Forward,
    request: Request<Outgoing>,
    is_discovery: bool,
    mut limits: AnswerLimits,
) -> Response<Body> {
    let deadline = limits.deadline;
    let until = is_discovery.then(|| Instant::now() + DISCOVERY);
    let sent = transport.send(request);
    // The caller of this function answers the client at the deadline. The grace period only bounds the connection.
    let sent = async {
        match [until, deadline.map(|deadline| deadline + GRACE)].into_iter().flatten().min() {
            Some(until) => tokio::time::timeout_at(until.into(), sent).await,
            None => Ok(sent.await),
        }
    };
    let sent = tokio::select! {
        sent = sent => sent,
        () = LongRunningRequest::must_end(&mut limits.running) => return ended_before_answer(),
    };
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(failure)) => {
            debug!(error = %failure, "cannot reach an aggregated API server");
            return unreachable(&failure.message);
        }
        Err(_) => return unreachable("context deadline exceeded"),
    };
    limits.deadline = [until, deadline].into_iter().flatten().min();
    relay(response, state.apis.aggregation.redirects(), limits, state.stopping())
}

/// Converts the response of an aggregated API server into the response to the client.
fn relay(
    response: Response<Incoming>,
    redirects: Redirects,
    limits: AnswerLimits,
    stop: watch::Receiver<bool>,
) -> Response<Body> {
    let (parts, body) = response.into_parts();
    if redirects == Redirects::Refused
        && parts.status.is_redirection()
        && parts.headers.contains_key(LOCATION)
    {
        let text = "the backend attempted to redirect this request, which is not permitted";
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        return response;
    }
    if parts.status.is_informational() {
        return unreachable(
            "the response has an informational status code (1xx) that is not a protocol upgrade",
        );
    }
    // Each event of a watch is a line, except in formats such as protobuf.
    let is_json = parts
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|media| media.as_bytes().starts_with(b"application/json"));
    let end = if limits.is_watch && is_json { EarlyEnd::AfterLine } else { EarlyEnd::Cut };
    let mut response = Response::new(stream(body, limits, stop, end));
    *response.status_mut() = parts.status;
    let headers = response.headers_mut();
    // A `Cache-Control` of the server is appended to this one, as in kube-apiserver. Clients that obey both cache nothing.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    for (name, value) in &incoming(&parts.headers) {
        headers.append(name.clone(), value.clone());
    }
    response
}

/// Streams a body until it ends, the client disconnects, the deadline passes or the server stops.
fn stream(mut body: Incoming, limits: AnswerLimits, mut stop: watch::Receiver<bool>, end: EarlyEnd) -> Body {
    let AnswerLimits { deadline: until, payer, running, .. } = limits;
    if body.is_end_stream() {
        return Body::empty();
    }
    let (sender, receiver) = mpsc::channel(PARTS);
    tokio::spawn(async move {
        let over = async {
            match until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = sender.closed() => return,
                _ = stop.wait_for(|stop| *stop) => return,
                () = &mut over => return,
            };
            let part = match frame {
                Some(Ok(frame)) => ForwardedPart::Frame(headers::trailers_of(frame, incoming)),
                Some(Err(error)) => {
                    return debug!(%error, "an aggregated API server ended its response early");
                }
                None => ForwardedPart::End,
            };
            let ends = matches!(part, ForwardedPart::End);
            // The deadline also applies while a client is not reading.
            let passed = tokio::select! {
                sent = send_part(&sender, part, payer.as_ref()) => sent,
                _ = stop.wait_for(|stop| *stop) => false,
                () = &mut over => false,
            };
            if ends || !passed {
                return;
            }
        }
    });
    Body::forwarded(receiver).long_running(running, end)
}

/// Sends a frame once there is room and memory budget for it; `false` if the client is gone.
async fn send_part(sender: &mpsc::Sender<ForwardedPart>, part: ForwardedPart, payer: Option<&Payer>) -> bool {
    let Ok(permit) = sender.reserve().await else { return false };
    let charged = match (part, payer) {
        (ForwardedPart::Frame(frame), Some(payer)) => ForwardedPart::Frame(match frame.into_data() {
            Ok(data) => Frame::data(payer.charge_when_possible(data).await),
            Err(frame) => frame,
        }),
        (part, _) => part,
    };
    permit.send(charged);
    true
}

/// The value of [`HOP`] of this server for an APIService.
fn mark(registry: &Registry, service: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("{}/{service}", registry.hop)).ok()
}

/// A GET request this server makes on its own behalf for an APIService, with `user` in the front-proxy headers.
pub(super) fn own_request(
    registry: &Registry,
    service: &str,
    uri: Uri,
    user: &User,
) -> Result<Request<Outgoing>, String> {
    let mut request = Request::new(Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync());
    *request.uri_mut() = uri;
    identify(request.headers_mut(), user)?;
    let hop = mark(registry, service).ok_or("the name of the APIService is not valid in a header")?;
    request.headers_mut().insert(HOP, hop);
    Ok(request)
}

/// Answers that the APIService is not available, without contacting the server.
fn unavailable() -> Response<Body> {
    plain(503, "service unavailable")
}

/// Answers a long-running request that must end before its response has begun. It may have been executed, so clients must not repeat it
/// by themselves.
fn ended_before_answer() -> Response<Body> {
    unreachable("the request had to end, because there are too many long-running requests")
}

/// Answers that the server could not be reached or did not respond.
fn unreachable(why: &str) -> Response<Body> {
    plain(503, &format!("error trying to reach service: {why}"))
}

/// A plain-text error response, formatted like Go's `http.Error`.
fn plain(code: u16, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{text}\n")));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
