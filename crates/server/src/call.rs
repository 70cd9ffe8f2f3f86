//! One request in progress: its caller, attributes, limits, audit record and response metadata.

use std::collections::HashSet;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use admission::{
    AdmissionNotes, AdmissionSnapshot, AuditAnnotation, AuditLevel, EvaluatedManifests, WriteGuard,
};
use api::Status;
use api::selector::{FieldSelector, LabelSelector};
use audit::AuditRecord;
use authn::{Caller, User};
use authz::Permit;
use bytes::{Bytes, BytesMut};
use heavy_lane::{Effort, LaneAccount};
use http::{HeaderMap, HeaderName};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use requests::request_info::{Query, RequestInfo};
use storage::StoredEntry;
use transport::byte_budget::{BudgetAccount, ByteBudget, ByteCharge};
use transport::connections::ConnectionClaim;
use transport::discard::{Discarding, MAX_BODY};
use transport::long_running::{LongRunningKind, LongRunningRequest};
use transport::objects::ObjectCharge;
use transport::paced::{BodyReadError, Paced};
use transport::unsent::Payer;
use value::Value;

use crate::body::Body;
use crate::seats::Seat;
use crate::state::Serving;

/// Maximum number of distinct warnings collected. The response size limits how many are sent.
const MAX_WARNINGS: usize = 4096;

/// An authenticated request that is not authorized yet.
pub(crate) struct AuthenticatedRequest {
    pub(crate) caller: Caller,
    pub(crate) info: RequestInfo,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: RequestBody,
    /// Warnings of authentication, returned in the response.
    pub(crate) warnings: Vec<String>,
    pub(crate) record: AuditRecord,
    pub(crate) limits: RequestLimits,
}

/// The limits of one request: its seat, deadline, computation budget and the account that pays for its body and response.
pub(crate) struct RequestLimits {
    pub(crate) seat: Seat,
    pub(crate) deadline: Option<Instant>,
    pub(crate) effort: Effort,
    /// None for requests from inside this process.
    pub(crate) payer: Option<Payer>,
    /// The connection that it arrived on ([`transport::accept::Peer::connection`]); none for requests from inside this process.
    pub(crate) connection: Option<ConnectionClaim>,
}

/// A request that has been authorized.
pub struct Call {
    pub info: RequestInfo,
    /// The decoded query parameters.
    pub query: Query,
    pub headers: HeaderMap,
    /// Time of arrival in seconds since the Unix epoch.
    pub now: i64,
    pub deadline: Option<Instant>,
    /// Remaining computation budget, and the threads that the request runs on.
    pub effort: Effort,
    /// The admission policies and webhooks that apply to this request.
    pub admission_snapshot: AdmissionSnapshot,
    /// Revision of the last deletion caused by this request; 0 if there is none.
    pub deleted_at: u64,
    /// Held while the server works on the request; released while it waits for the body.
    pub seat: Seat,
    /// Account charged for the body and for parts of a streamed response; none for requests from inside this process.
    pub payer: Option<Payer>,
    connection: Option<ConnectionClaim>,
    permit: Permit,
    caller: Caller,
    body: RequestBody,
    /// Charge of the body, until the request ends.
    charge: Option<ByteCharge>,
    /// Charge of the objects that are decoded from the body or read for the request, which live as long.
    objects: ObjectCharge,
    warnings: Vec<String>,
    /// Set of all entries in `warnings`, to find duplicates.
    warned: HashSet<String>,
    record: AuditRecord,
    /// The guards of the last admission: a write that is attempted again is admitted again.
    write_guards: Vec<Arc<dyn WriteGuard>>,
}

/// The parts of a network request besides its head.
pub struct IncomingBody {
    pub body: Discarding,
    /// The connection to upgrade to another protocol, if the client may do so.
    pub upgrade: Option<OnUpgrade>,
    pub peer: IpAddr,
    /// Budget that the body is charged to.
    pub budget: Arc<ByteBudget>,
}

/// A request body and how it can be read.
pub enum RequestBody {
    /// Still arriving over the network.
    Incoming(Box<IncomingBody>),
    /// In memory: the request comes from inside this process.
    Here(Bytes),
    /// In memory: the request comes from inside this process, and only an aggregated API server may answer it.
    Elsewhere(Bytes),
    /// Already read or taken.
    Done,
}

impl RequestBody {
    /// True for a network body that was not empty on arrival.
    pub(crate) fn arrives(&self) -> bool {
        matches!(self, RequestBody::Incoming(arriving) if arriving.body.had_content())
    }

    /// Charges what the connection can hold of a network body before it is read; refuses with 429 if that does not fit.
    pub(crate) fn charge_buffers(&mut self, account: &BudgetAccount) -> Result<(), Status> {
        match self {
            RequestBody::Incoming(arriving) => arriving.body.charge_buffers(&arriving.budget, account),
            RequestBody::Here(_) | RequestBody::Elsewhere(_) | RequestBody::Done => Ok(()),
        }
    }
}

/// The account whose turns in the heavy lane the requests of a client use.
pub(crate) fn lane_account(account: &BudgetAccount) -> LaneAccount {
    LaneAccount { owner: account.owner().clone(), class: account.class() }
}

/// Restricts which server may answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The server that serves its path, this one or an aggregated one.
    AnyServer,
    /// An aggregated API server only; not found if none serves its path.
    AggregatedServer,
    /// Only this server itself.
    ThisServer,
}

/// Cost of CEL expressions relative to other content of the same size.
pub const EXPRESSIONS: usize = 32;

/// True for resources whose objects contain CEL expressions or patterns, which are compiled on write.
fn brings_expressions(info: &RequestInfo) -> bool {
    match info.group.as_str() {
        api::groups::ADMISSION_REGISTRATION => true,
        "apiextensions.k8s.io" => info.resource == "customresourcedefinitions",
        "resource.k8s.io" => {
            matches!(info.resource.as_str(), "resourceclaims" | "resourceclaimtemplates" | "deviceclasses")
        }
        _ => false,
    }
}

impl Call {
    /// `now` is in seconds since the Unix epoch.
    pub(crate) fn new(request: AuthenticatedRequest, permit: Permit, now: i64) -> Self {
        let AuthenticatedRequest { caller: _, info, query, headers, body, warnings, record, limits } =
            request;
        let mut call = Call {
            info,
            query,
            headers,
            now,
            deadline: limits.deadline,
            effort: limits.effort,
            admission_snapshot: AdmissionSnapshot::default(),
            deleted_at: 0,
            seat: limits.seat,
            payer: limits.payer,
            connection: limits.connection,
            caller: permit.caller().clone(),
            permit,
            body,
            charge: None,
            objects: ObjectCharge::default(),
            warnings: Vec::new(),
            warned: HashSet::new(),
            record,
            write_guards: Vec::new(),
        };
        for warning in warnings {
            call.warn(warning);
        }
        call
    }

    /// Adds an annotation to the audit event. The first value of a key wins; another value is logged and
    /// dropped.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        self.record.annotate(key, value);
    }

    pub fn audit_record(&self) -> &AuditRecord {
        &self.record
    }

    pub fn user(&self) -> &User {
        self.caller.user()
    }

    /// The user together with the authentication result.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Proof that the caller is authorized.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Adds a `Warning` header to the response, unless it is a duplicate or there are too many.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.warnings.len() < MAX_WARNINGS && self.warned.insert(text.clone()) {
            self.warnings.push(text);
        }
    }

    /// Applies the warnings, audit annotations and guards that admission returned.
    pub fn note(&mut self, notes: AdmissionNotes) {
        notes.warnings.into_iter().for_each(|text| self.warn(text));
        for AuditAnnotation { key, value, level } in notes.annotations {
            let level = match level {
                AuditLevel::Metadata => audit::Level::Metadata,
                AuditLevel::Request => audit::Level::Request,
            };
            self.record.annotate_from(level, &key, value);
        }
        let most = EvaluatedManifests::MAX_LISTED;
        self.record.list("source.admission.k8s.io/manifest-webhooks", &notes.manifests.webhooks, most);
        self.record.list("source.admission.k8s.io/manifest-policies", &notes.manifests.policies, most);
        if !notes.guards.is_empty() {
            self.write_guards = notes.guards;
        }
    }

    /// Counts a long-running request until the result is dropped; `None` for requests from inside this process. Fails with 429 if the user
    /// has too many that were asked to end and still exist.
    pub(crate) fn begin_long_running(
        &self,
        serving: &Serving,
        is_proxied: bool,
    ) -> Result<Option<LongRunningRequest>, Status> {
        let Some((payer, connection)) = self.payer.as_ref().zip(self.connection.as_ref()) else {
            return Ok(None);
        };
        // It is authorized, even if the user is anonymous.
        connection.claim();
        let kind = LongRunningKind { is_watch: self.info.verb == "watch", is_proxied };
        let (labels, fields) = (&self.info.label_selector, &self.info.field_selector);
        let bytes = labels.parsed().as_ref().map_or(0, LabelSelector::heap_bytes)
            + fields.parsed().as_ref().map_or(0, FieldSelector::heap_bytes)
            // The audit event holds the URI until the request ends.
            + labels.text().len()
            + fields.text().len();
        serving.long_running.begin(payer.account(), connection.connection(), kind, bytes).map(Some)
    }

    /// The guards of admission, which must live until the write of the request has ended.
    pub(crate) fn write_guards(&self) -> Vec<Arc<dyn WriteGuard>> {
        self.write_guards.clone()
    }

    /// Removes and returns the collected warnings.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.warned.clear();
        std::mem::take(&mut self.warnings)
    }

    /// The servers that may answer the request, by how it arrived.
    pub fn answered_by(&self) -> AnsweredBy {
        match self.body {
            RequestBody::Incoming(_) => AnsweredBy::AnyServer,
            RequestBody::Elsewhere(_) => AnsweredBy::AggregatedServer,
            RequestBody::Here(_) | RequestBody::Done => AnsweredBy::ThisServer,
        }
    }

    /// Takes the unread body, to forward it.
    pub fn take_body(&mut self) -> RequestBody {
        std::mem::replace(&mut self.body, RequestBody::Done)
    }

    /// Reads the body; a second call returns an empty one. A request with a large body continues in the heavy
    /// lane.
    pub async fn read_body(&mut self) -> Result<Bytes, Status> {
        let body = self.read_unread().await?;
        self.enter_lane(body.len()).await;
        self.effort.check()?;
        Ok(body)
    }

    /// Continues in the heavy lane if a body or object of `size` bytes is expensive for this resource.
    pub async fn enter_lane(&self, size: usize) {
        let work = if brings_expressions(&self.info) { size.saturating_mul(EXPRESSIONS) } else { size };
        self.effort.enter_lane(work).await;
    }

    /// Continues in the heavy lane if reading all these entries is expensive for this resource.
    pub async fn enter_lane_for_all(&self, entries: &[Arc<StoredEntry>]) {
        let sizes = entries.iter().map(|entry| entry.body.len().saturating_add(heavy_lane::BYTES_PER_OBJECT));
        self.enter_lane(sizes.fold(0, usize::saturating_add)).await;
    }

    /// Charges these objects until the request ends, and refuses with 429 if they do not fit. A request that has begun to write is not
    /// refused.
    pub fn charge_objects<'o>(&mut self, objects: impl IntoIterator<Item = &'o Value>) -> Result<(), Status> {
        if self.effort.has_written() {
            return Ok(());
        }
        self.objects.grow_to(objects.into_iter().map(Value::memory).sum())
    }

    async fn read_unread(&mut self) -> Result<Bytes, Status> {
        match std::mem::replace(&mut self.body, RequestBody::Done) {
            RequestBody::Done => Ok(Bytes::new()),
            RequestBody::Here(bytes) | RequestBody::Elsewhere(bytes) if bytes.len() > MAX_BODY => {
                Err(too_large())
            }
            RequestBody::Here(bytes) | RequestBody::Elsewhere(bytes) => Ok(bytes),
            RequestBody::Incoming(arriving) if arriving.body.is_end_stream() => Ok(Bytes::new()),
            RequestBody::Incoming(arriving) => {
                let deadline = self.deadline;
                let receiving = self.receive(*arriving);
                let Some(deadline) = deadline else { return receiving.await };
                let late = || Status::timeout("request did not complete within the allotted timeout", 0);
                tokio::time::timeout_at(deadline.into(), receiving).await.unwrap_or_else(|_| Err(late()))
            }
        }
    }

    /// Receives a body from the network. The seat is released while the body must be waited for.
    async fn receive(&mut self, arriving: IncomingBody) -> Result<Bytes, Status> {
        let IncomingBody { mut body, budget, peer, .. } = arriving;
        // The payer is the authenticated user, as for the response: one that impersonates many users has one account.
        let account = match &self.payer {
            Some(payer) => payer.account().clone(),
            None => BudgetAccount::of(self.caller.user(), peer),
        };
        body.begin_reading();
        let charge = self.charge.insert(budget.open(account)?);
        let mut body = Paced::new(body);
        // Most bodies arrive in one frame, which is not copied.
        let mut first = Bytes::new();
        let mut pieces = BytesMut::new();
        loop {
            let here = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await;
            let frame = match here {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    self.seat.release();
                    body.frame().await
                }
            };
            let data = match frame {
                None => break,
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(BodyReadError::TooSlow)) => {
                    budget.count_slow();
                    return Err(too_slow());
                }
                Some(Err(BodyReadError::Broken(e))) => {
                    return Err(Status::bad_request(format!("the request body could not be read: {e}")));
                }
            };
            let length = first.len() + pieces.len() + data.len();
            if length > MAX_BODY {
                return Err(too_large());
            }
            charge.grow_to(length as u64)?;
            if length == data.len() {
                first = data;
            } else {
                pieces.extend_from_slice(&std::mem::take(&mut first));
                pieces.extend_from_slice(&data);
            }
        }
        self.seat.reacquire().await?;
        Ok(if pieces.is_empty() { first } else { pieces.freeze() })
    }
}

fn too_large() -> Status {
    Status::too_large(format!("limit is {MAX_BODY}"))
}

/// Status 408: the client sends its body too slowly.
pub fn too_slow() -> Status {
    Status::failure(408, api::StatusReason::Timeout, format!("Timeout: {}", BodyReadError::TooSlow))
}

/// The result of a handler before encoding; the first field is the HTTP status.
pub enum HandlerResponse {
    /// A stored object, encoded for the request's version.
    Entry(u16, Arc<StoredEntry>),
    /// An object in the request's version.
    Object(u16, Value),
    /// Bytes of the given media type, sent unchanged.
    Raw(u16, &'static str, Body),
    /// Plain text, sent with `nosniff`.
    Plain(u16, Body),
    /// Like `Raw`, publicly cacheable for the given number of seconds.
    Public(u16, &'static str, u32, Body),
    /// Like `Raw`, with additional headers.
    With(u16, &'static str, Vec<(HeaderName, String)>, Body),
}
