//! An endpoint in front of etcd that records requests and fails some of them as a test says.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};

pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// How the calls of one method fail.
#[derive(Clone, Debug)]
pub(crate) enum EndpointFault {
    /// etcd does not get the request; the connection is closed.
    CloseBefore,
    /// etcd executes the request, then the connection is closed.
    CloseAfter,
    /// etcd executes the request, and its answer is lost.
    NoAnswer,
    /// etcd does not get the request; this is the answer.
    Status(u32, &'static str),
    /// etcd executes the request; this is the answer.
    StatusAfter(u32, &'static str),
    /// etcd does not get the request; this message is the answer.
    Answer(Bytes),
}

impl EndpointFault {
    fn is_executed(&self) -> bool {
        matches!(self, EndpointFault::CloseAfter | EndpointFault::NoAnswer | EndpointFault::StatusAfter(..))
    }
}

type ProxyBody = BoxBody<Bytes, hyper::Error>;

pub(crate) struct FaultyEndpoint {
    pub(crate) url: String,
    state: Arc<EndpointState>,
}

struct EndpointState {
    target: SocketAddr,
    faults: Mutex<HashMap<String, EndpointFault>>,
    /// The path and the message of each unary call, in order of arrival.
    calls: Mutex<Vec<(String, Bytes)>>,
    /// Watch streams deliver only the confirmation of the watch.
    holds_events: watch::Sender<bool>,
}

impl FaultyEndpoint {
    pub(crate) async fn to(url: &str) -> FaultyEndpoint {
        let target = url.strip_prefix("http://").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (faults, calls, holds_events) = (Mutex::default(), Mutex::default(), watch::Sender::new(false));
        let state = Arc::new(EndpointState { target, faults, calls, holds_events });
        let served = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(serve(near, Arc::clone(&served)));
            }
        });
        FaultyEndpoint { url, state }
    }

    /// Lets all calls of a method fail.
    pub(crate) fn fail(&self, path: &str, fault: EndpointFault) {
        self.state.faults.lock().unwrap().insert(path.to_owned(), fault);
    }

    /// Lets all calls succeed again.
    pub(crate) fn mend(&self) {
        self.state.faults.lock().unwrap().clear();
    }

    /// Holds back, or delivers again, what follows the confirmation in every watch stream: like a member that is partitioned from the
    /// others.
    pub(crate) fn hold_events(&self, holds: bool) {
        self.state.holds_events.send_replace(holds);
    }

    /// The messages of all calls of a method so far.
    pub(crate) fn calls<M: Message + Default>(&self, path: &str) -> Vec<M> {
        let calls = self.state.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == path).map(|(_, message)| decode(message)).collect()
    }
}

/// The message of a call that is sent in one frame.
fn decode<M: Message + Default>(body: &Bytes) -> M {
    M::decode(body.slice(5..)).unwrap()
}

pub(crate) fn framed(message: &impl Message) -> Bytes {
    let bytes = message.encode_to_vec();
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &bytes].concat().into()
}

async fn serve(near: TcpStream, state: Arc<EndpointState>) {
    let Ok(far) = TcpStream::connect(state.target).await else { return };
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(far)).await.unwrap();
    let forwarding = tokio::spawn(connection);
    let close = Arc::new(Notify::new());
    let service = service_fn(|request| {
        let (sender, state, close) = (sender.clone(), Arc::clone(&state), Arc::clone(&close));
        async move { Ok::<_, Infallible>(answer(request, sender, &state, &close).await) }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    tokio::select! {
        _ = server.serve_connection(TokioIo::new(near), service) => {}
        () = close.notified() => {}
    }
    forwarding.abort();
}

async fn answer(
    request: Request<Incoming>,
    mut sender: SendRequest<ProxyBody>,
    state: &EndpointState,
    close: &Notify,
) -> Response<ProxyBody> {
    let path = request.uri().path().to_owned();
    let (mut head, body) = request.into_parts();
    head.uri = format!("http://{}{path}", state.target).parse().unwrap();
    let body = if path == WATCH {
        body.boxed()
    } else {
        let message = body.collect().await.unwrap().to_bytes();
        state.calls.lock().unwrap().push((path.clone(), message.clone()));
        full(message)
    };
    let fault = state.faults.lock().unwrap().get(&path).cloned();
    let executed = match &fault {
        Some(fault) if !fault.is_executed() => None,
        _ => Some(sender.send_request(Request::from_parts(head, body)).await.unwrap()),
    };
    match (fault, executed) {
        (Some(EndpointFault::Status(code, message) | EndpointFault::StatusAfter(code, message)), _) => {
            Response::builder()
                .header("content-type", "application/grpc")
                .header("grpc-status", code)
                .header("grpc-message", message)
                .body(full(Bytes::new()))
                .unwrap()
        }
        (Some(EndpointFault::Answer(message)), _) => {
            let trailers =
                [("grpc-status", "0")].map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let trailers = hyper::HeaderMap::from_iter(trailers);
            let body = full(message).with_trailers(std::future::ready(Some(Ok(trailers))));
            Response::builder().header("content-type", "application/grpc").body(body.boxed()).unwrap()
        }
        (Some(EndpointFault::CloseBefore | EndpointFault::CloseAfter), _) => {
            close.notify_one();
            std::future::pending().await
        }
        (Some(EndpointFault::NoAnswer), _) => std::future::pending().await,
        (None, Some(response)) if path == WATCH => {
            response.map(|body| HeldBody::new(body, state.holds_events.subscribe()).boxed())
        }
        (None, Some(response)) => response.map(BodyExt::boxed),
        (None, None) => panic!("a call without a fault is executed"),
    }
}

fn full(bytes: Bytes) -> ProxyBody {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed()
}

/// The frames of a watch stream, of which all but the first can be held back.
struct HeldBody(mpsc::Receiver<Result<Frame<Bytes>, hyper::Error>>);

impl HeldBody {
    fn new(mut body: Incoming, mut holds: watch::Receiver<bool>) -> HeldBody {
        let (frames, received) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut is_first = true;
            while let Some(frame) = body.frame().await {
                if !is_first && holds.wait_for(|holds| !holds).await.is_err() {
                    return;
                }
                is_first = false;
                if frames.send(frame).await.is_err() {
                    return;
                }
            }
        });
        HeldBody(received)
    }
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.get_mut().0.poll_recv(context)
    }
}
