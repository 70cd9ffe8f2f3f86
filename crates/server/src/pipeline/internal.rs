//! Requests from inside this process: bootstrap, controllers, and admission plugins that write.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use audit::{AuditRecord, RecordedRequest};
use authn::Caller;
use heavy_lane::Effort;
use http::{HeaderMap, Method, Response};

use super::incoming::{catch_panic, complete};
use super::{AuditEnd, RequestOutcome, parse, serve_authenticated};
use crate::body::Body;
use crate::call::{AuthenticatedRequest, RequestBody, RequestLimits};
use crate::respond;
use crate::seats::Seat;
use crate::state::State;

/// A request from inside this process, with its body in memory. It skips what only network requests pass: authenticate,
/// account, impersonate and queue.
pub struct InternalRequest<'a> {
    pub caller: Caller,
    pub method: Method,
    /// The path, with the query if any.
    pub target: &'a str,
    pub headers: HeaderMap,
    pub body: RequestBody,
    /// A caller that drives the request in the heavy lane
    /// ([`HeavyLane::drive`](heavy_lane::HeavyLane::drive)) passes a clone there.
    pub effort: Effort,
}

/// Serves a request from inside this process.
pub async fn internal(state: &Arc<State>, request: InternalRequest<'_>) -> Response<Body> {
    let InternalRequest { caller, method, target, headers, body, effort } = request;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (info, query) = parse(&method, path, query);
    let record = AuditRecord::begin(state.serving.audit.as_ref(), runtime::random::uid());
    let limit = state.serving.request_timeout;
    let deadline = Instant::now().checked_add(limit).filter(|_| !info.is_long_running());
    let peer = IpAddr::V6(Ipv6Addr::LOCALHOST);
    record.open(Some(caller.user()), RecordedRequest { uri: target, info: &info, headers: &headers, peer });
    let request = Box::new(AuthenticatedRequest {
        caller,
        info: info.clone(),
        query,
        headers,
        body,
        warnings: Vec::new(),
        record: record.clone(),
        limits: RequestLimits {
            seat: Seat::default(),
            deadline,
            effort: effort.clone(),
            payer: None,
            connection: None,
        },
    });
    let work = Box::pin(async {
        if let Err(why) = record.received().await {
            let response = respond::internal_error(&info.path, why);
            return RequestOutcome { audit_end: AuditEnd::Recorded, ..RequestOutcome::unknown(response) };
        }
        serve_authenticated(state, target, request).await
    });
    complete(limit, &info, &effort, &record, std::pin::pin!(catch_panic(work))).await.response
}
