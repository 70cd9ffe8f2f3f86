//! Proxies connection upgrades (WebSocket, SPDY): after the handshake, bytes are copied in both directions uninspected.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io;
use tokio::sync::watch;
use tracing::debug;

use transport::long_running::LongRunningRequest;

use super::{
    AnswerLimits, Body, Forward, GRACE, Outgoing, Redirects, State, ended_before_answer, plain, relay,
};

/// Time limit for flushing and closing both connections.
const FAREWELL: Duration = Duration::from_secs(5);

/// Forwards the upgrade request, and connects both sides if the server switches protocols.
pub(super) async fn handle(
    state: &State,
    transport: &Forward,
    request: Request<Outgoing>,
    client: Option<OnUpgrade>,
    mut limits: AnswerLimits,
) -> Response<Body> {
    let Some(client) = client else {
        // HTTP/2 has no connection upgrades.
        return plain(503, "request connection cannot be hijacked");
    };
    let mut stop = state.stopping();
    let deadline = limits.deadline;
    // Without a deadline (a long-running request), the handshake is bounded only by shutdown.
    let over = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until((deadline + GRACE).into()).await,
            None => drop(stop.wait_for(|stop| *stop).await),
        }
    };
    let sent = tokio::select! {
        sent = transport.upgrade(request) => Some(sent),
        () = over => None,
        () = LongRunningRequest::must_end(&mut limits.running) => return ended_before_answer(),
    };
    let mut response = match sent {
        Some(Ok(response)) => response,
        None => return plain(503, "error dialing backend: context deadline exceeded"),
        Some(Err(failure)) => return plain(503, &format!("error dialing backend: {failure}")),
    };
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        if status.as_u16() < 400 {
            return plain(503, &format!("invalid upgrade response: status code {}", status.as_u16()));
        }
        return relay(response, Redirects::PassedOn, limits, state.stopping());
    }
    let server = hyper::upgrade::on(&mut response);
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer.headers_mut().clone_from(response.headers());
    let stop = state.stopping();
    tokio::spawn(async move {
        let mut running = limits.running;
        // The client's connection is upgraded only after the response below has been sent.
        let upgraded = async { tokio::try_join!(client, server) };
        let upgraded = tokio::select! {
            upgraded = upgraded => upgraded,
            () = LongRunningRequest::must_end(&mut running) => return,
        };
        match upgraded {
            Ok((client, server)) => join(client, server, running, stop).await,
            Err(error) => {
                debug!(%error, "cannot upgrade the connection between a client and an aggregated API server");
            }
        }
    });
    answer
}

/// Copies in both directions until either side closes, as kube-apiserver does.
async fn join(
    client: Upgraded,
    server: Upgraded,
    mut running: Option<LongRunningRequest>,
    mut stop: watch::Receiver<bool>,
) {
    let (mut client_reads, mut client_writes) = io::split(TokioIo::new(client));
    let (mut server_reads, mut server_writes) = io::split(TokioIo::new(server));
    tokio::select! {
        _ = io::copy(&mut client_reads, &mut server_writes) => {}
        _ = io::copy(&mut server_reads, &mut client_writes) => {}
        _ = stop.wait_for(|stop| *stop) => {}
        () = LongRunningRequest::must_end(&mut running) => {}
    }
    // Flush the last bytes, unless a side does not accept them.
    let _ = tokio::time::timeout(FAREWELL, async {
        tokio::join!(
            io::AsyncWriteExt::shutdown(&mut client_writes),
            io::AsyncWriteExt::shutdown(&mut server_writes)
        )
    })
    .await;
}
