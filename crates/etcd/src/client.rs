//! Typed calls of etcd's API.

use std::time::Duration;

use bytes::Bytes;
use grpc::{Channel, GrpcCode, GrpcStatus, GrpcStream, Retry};
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::messages::{
    CompactionRequest, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse, RangeRequest, RangeResponse, ResponseHeader, StatusRequest, StatusResponse,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::observer::{self, ObservedCalls};

const RANGE: &str = "/etcdserverpb.KV/Range";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// How long [`EtcdClient::current`] waits for the answer of one endpoint before it asks another, at first.
const FIRST_SHARE: Duration = Duration::from_secs(1);

/// A client of one etcd cluster. Clones share its connections.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    channel: Channel,
    /// Longest time for one call.
    timeout: Duration,
    observed: Option<ObservedCalls>,
}

impl EtcdClient {
    pub fn new(channel: Channel, timeout: Duration) -> EtcdClient {
        EtcdClient { channel, timeout, observed: None }
    }

    /// Reports reads and writes of keys.
    pub(crate) fn observed(self, observed: ObservedCalls) -> EtcdClient {
        EtcdClient { observed: Some(observed), ..self }
    }

    /// Linearizable unless it names a revision: etcd confirms with a quorum that it is current.
    pub async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, GrpcStatus> {
        let began = Instant::now();
        let outcome = self.channel.unary(RANGE, request, Retry::OtherEndpoints, self.timeout).await;
        if let Some(observed) = &self.observed {
            let operation = match (request.range_end.is_empty(), request.keys_only) {
                (true, _) => "get",
                (false, true) => "listOnlyKeys",
                (false, false) => "list",
            };
            observed.report(operation, &request.key, began, &outcome);
        }
        outcome
    }

    /// Reads the current revision with a quorum. `key` is any key; it need not exist. All consistent reads wait for this call, so an
    /// endpoint that does not answer is soon left for the next one; if none answers, they are asked again with more time.
    pub async fn current(&self, key: &Bytes) -> Result<ResponseHeader, GrpcStatus> {
        let began = Instant::now();
        let outcome = self.read_current(key).await;
        if let Some(observed) = &self.observed {
            observed.report("getCurrentResourceVersion", key, began, &outcome);
        }
        outcome
    }

    async fn read_current(&self, key: &Bytes) -> Result<ResponseHeader, GrpcStatus> {
        let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let endpoints = u32::try_from(self.endpoint_count()).unwrap_or(u32::MAX);
        let deadline = Instant::now() + self.timeout;
        let mut per_endpoint = if endpoints > 1 { FIRST_SHARE } else { self.timeout };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let allowed = per_endpoint.saturating_mul(endpoints).min(left);
            let read: Result<RangeResponse, _> =
                self.channel.unary(RANGE, &request, Retry::OtherEndpoints, allowed).await;
            match read {
                Ok(answer) => return Ok(answer.header.unwrap_or_default()),
                Err(status) if status.code == GrpcCode::DeadlineExceeded && allowed < left => {
                    per_endpoint = per_endpoint.saturating_mul(2);
                }
                Err(status) => return Err(status),
            }
        }
    }

    /// Never repeated once etcd may have received it, because a guarded write that succeeded fails when repeated.
    pub async fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, GrpcStatus> {
        let retry = Retry::NotSentOnly;
        #[cfg(feature = "planted-bugs")]
        let retry = if crate::planted::is_planted(crate::planted::RETRY_WRITE) {
            Retry::OtherEndpoints
        } else {
            retry
        };
        let began = Instant::now();
        let outcome = self.channel.unary("/etcdserverpb.KV/Txn", request, retry, self.timeout).await;
        if let Some(observed) = &self.observed
            && let Some((operation, key)) = observer::operation(request)
        {
            observed.report(operation, key, began, &outcome);
        }
        outcome
    }

    pub async fn compact(&self, revision: i64) -> Result<(), GrpcStatus> {
        let request = CompactionRequest { revision };
        let call = self.channel.unary("/etcdserverpb.KV/Compact", &request, Retry::NotSentOnly, self.timeout);
        call.await.map(|_: CompactionResponse| ())
    }

    /// Grants a lease of this many seconds and returns its id. Repeated at another endpoint if one does not answer: a lease without keys
    /// does no harm.
    pub async fn grant_lease(&self, ttl: i64) -> Result<i64, GrpcStatus> {
        let request = LeaseGrantRequest { ttl };
        let call = self.channel.unary(
            "/etcdserverpb.Lease/LeaseGrant",
            &request,
            Retry::OtherEndpoints,
            self.timeout,
        );
        let granted: LeaseGrantResponse = call.await?;
        if granted.error.is_empty() {
            Ok(granted.id)
        } else {
            Err(GrpcStatus::new(GrpcCode::Unknown, granted.error))
        }
    }

    /// The seconds until a lease ends; `None` if it has ended.
    pub async fn lease_time_to_live(&self, id: i64) -> Result<Option<u64>, GrpcStatus> {
        let request = LeaseTimeToLiveRequest { id };
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let call = self.channel.unary(path, &request, Retry::OtherEndpoints, self.timeout);
        let lease: LeaseTimeToLiveResponse = call.await?;
        Ok(u64::try_from(lease.ttl).ok())
    }

    /// The state of the member at the endpoint with this index.
    pub async fn member_status(&self, index: usize, allowed: Duration) -> Result<StatusResponse, GrpcStatus> {
        let allowed = allowed.min(self.timeout);
        self.channel.unary_at(index, STATUS, &StatusRequest {}, allowed).await
    }

    /// The state of the first member that answers.
    pub async fn preferred_status(&self) -> Result<StatusResponse, GrpcStatus> {
        self.channel.unary(STATUS, &StatusRequest {}, Retry::OtherEndpoints, self.timeout).await
    }

    /// Lets the next call begin with another endpoint.
    pub fn prefer_another(&self) {
        self.channel.prefer_another();
    }

    /// Lets the next call begin with another endpoint than this one.
    pub fn avoid(&self, index: usize) {
        self.channel.avoid(index);
    }

    pub fn endpoint_count(&self) -> usize {
        self.channel.endpoint_count()
    }

    /// Opens a watch stream. A member that loses its leader ends the stream, instead of silently sending no events.
    pub async fn watch(&self) -> Result<GrpcStream<WatchRequest, WatchResponse>, GrpcStatus> {
        let mut headers = HeaderMap::new();
        headers.insert("hasleader", HeaderValue::from_static("true"));
        self.channel.stream("/etcdserverpb.Watch/Watch", &headers).await
    }
}

/// True if a read failed because its revision is compacted.
pub fn is_compacted(status: &GrpcStatus) -> bool {
    status.code == GrpcCode::OutOfRange && status.message.ends_with("required revision has been compacted")
}

/// True if a read failed because its revision does not exist yet.
pub fn is_future(status: &GrpcStatus) -> bool {
    status.code == GrpcCode::OutOfRange && status.message.ends_with("required revision is a future revision")
}

/// The end of the range of all keys that begin with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end.into();
        }
    }
    // There is no such key: etcd reads a zero byte as "to the end of all keys".
    Bytes::from_static(&[0])
}
