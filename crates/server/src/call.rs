//! One request on its way: who is calling, what for, and what the answer will say besides its body.

use std::collections::HashSet;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use admission::{
    AdmissionNotes, AdmissionSnapshot, AuditAnnotation, AuditLevel, EvaluatedManifests, RequestGuard,
};
use api::Status;
use authn::{Caller, User};
use authz::Permit;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use storage::Entry;
use value::Value;

use crate::audit::{self, Record};
use crate::body::Body;
use crate::byte_budget::{Account, ByteBudget, ByteCharge};
use crate::discard::Discarding;
use crate::heavy::Effort;
use crate::paced::{Paced, ReadError};
use crate::request_info::{Query, RequestInfo};
use crate::seats::Seat;
use crate::unsent::Payer;

/// The largest request body.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// The most warnings that are looked at; how many an answer carries depends on how long they are.
const MAX_WARNINGS: usize = 4096;

/// A request whose caller is known and not authorized yet.
pub(crate) struct AuthenticatedRequest {
    pub(crate) caller: Caller,
    pub(crate) info: RequestInfo,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Unread,
    /// Of authentication, for the response.
    pub(crate) warnings: Vec<String>,
    pub(crate) record: Record,
    pub(crate) limits: RequestLimits,
}

/// The limits of one request: its seat, its time, its computation, and the account of its response.
pub(crate) struct RequestLimits {
    pub(crate) seat: Seat,
    pub(crate) deadline: Option<Instant>,
    pub(crate) effort: Effort,
    /// None if a part of this process is the caller.
    pub(crate) payer: Option<Payer>,
}

/// A request that has been authorized.
pub struct Call {
    /// What is asked for.
    pub info: RequestInfo,
    /// The decoded query.
    pub query: Query,
    /// The headers.
    pub headers: HeaderMap,
    /// Seconds since the epoch when the request came in.
    pub now: i64,
    /// When it must be answered, if there is a limit.
    pub deadline: Option<Instant>,
    /// What it may still do, and where.
    pub effort: Effort,
    /// The policies and webhooks that decide it.
    pub admission_snapshot: AdmissionSnapshot,
    /// The revision of the last deletion that it led to, if any.
    pub deleted_at: u64,
    /// Held while the server works on the request, and not while it waits for the body.
    pub seat: Seat,
    /// Whom the parts of a streamed answer are charged to; nobody if a part of this process is calling.
    pub payer: Option<Payer>,
    permit: Permit,
    caller: Caller,
    body: Unread,
    /// For the body that was read, until the request ends: what was decoded from it lives as long.
    charge: Option<ByteCharge>,
    warnings: Vec<String>,
    /// Those in `warnings`, to look them up.
    warned: HashSet<String>,
    record: Record,
    /// What admission wants to see dropped when this ends.
    held: Vec<RequestGuard>,
}

/// What came over the network with a request, besides its head.
pub struct Arriving {
    /// The body, on its way.
    pub body: Discarding,
    /// The connection, if it may become one of another protocol.
    pub upgrade: Option<OnUpgrade>,
    /// Who sent it.
    pub peer: IpAddr,
    /// What bodies may hold.
    pub budget: Arc<ByteBudget>,
}

/// A body that nobody has read yet.
pub enum Unread {
    /// On its way over the network.
    Incoming(Box<Arriving>),
    /// Already here: a part of this process is calling.
    Here(Bytes),
    /// The same, and what it calls for is another server's.
    Elsewhere(Bytes),
    /// Read.
    Done,
}

impl Unread {
    /// Whether it comes over the network and is not empty.
    pub(crate) fn arrives(&self) -> bool {
        matches!(self, Unread::Incoming(arriving) if arriving.body.had_content())
    }
}

/// Who may answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// Whoever serves its path.
    Anybody,
    /// Another server, if one serves its path; nobody otherwise.
    Others,
    /// This server.
    Us,
}

/// How much more work expressions are than other content of the same size.
pub const EXPRESSIONS: usize = 32;

/// Whether the objects of a resource have expressions or patterns, which are compiled when they are written.
fn brings_expressions(info: &RequestInfo) -> bool {
    match info.group.as_str() {
        "admissionregistration.k8s.io" => true,
        "apiextensions.k8s.io" => info.resource == "customresourcedefinitions",
        "resource.k8s.io" => {
            matches!(info.resource.as_str(), "resourceclaims" | "resourceclaimtemplates" | "deviceclasses")
        }
        _ => false,
    }
}

impl Call {
    /// `now` is in seconds since the epoch.
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
            caller: permit.caller().clone(),
            permit,
            body,
            charge: None,
            warnings: Vec::new(),
            warned: HashSet::new(),
            record,
            held: Vec::new(),
        };
        for warning in warnings {
            call.warn(warning);
        }
        call
    }

    /// Adds an annotation to the audit event. The first value of a key stays; another one is logged and dropped.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        self.record.annotate(key, value);
    }

    /// What audit records about the request.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Who is calling.
    pub fn user(&self) -> &User {
        self.caller.user()
    }

    /// Who is calling, with how that is known.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The proof that the caller may.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Adds a `Warning` header to the answer.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.warnings.len() < MAX_WARNINGS && self.warned.insert(text.clone()) {
            self.warnings.push(text);
        }
    }

    /// What admission said besides yes or no.
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
        self.held.extend(notes.guards);
    }

    /// The warnings so far.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.warned.clear();
        std::mem::take(&mut self.warnings)
    }

    /// Who may answer the request.
    pub fn answered_by(&self) -> AnsweredBy {
        match self.body {
            Unread::Incoming(_) => AnsweredBy::Anybody,
            Unread::Elsewhere(_) => AnsweredBy::Others,
            Unread::Here(_) | Unread::Done => AnsweredBy::Us,
        }
    }

    /// The body as it comes, for whoever passes it on.
    pub fn take_body(&mut self) -> Unread {
        std::mem::replace(&mut self.body, Unread::Done)
    }

    /// Reads the body, of which there is one; a second call finds it empty. A request with a large body goes on in the heavy lane.
    pub async fn read_body(&mut self) -> Result<Bytes, Status> {
        let body = self.read_unread().await?;
        self.enter_lane(body.len()).await;
        self.effort.check()?;
        Ok(body)
    }

    /// Goes on in the heavy lane if a body or an object of `size` bytes is much work for the resource.
    pub async fn enter_lane(&self, size: usize) {
        let work = if brings_expressions(&self.info) { size.saturating_mul(EXPRESSIONS) } else { size };
        self.effort.enter_lane(work).await;
    }

    async fn read_unread(&mut self) -> Result<Bytes, Status> {
        match std::mem::replace(&mut self.body, Unread::Done) {
            Unread::Done => Ok(Bytes::new()),
            Unread::Here(bytes) | Unread::Elsewhere(bytes) if bytes.len() > MAX_BODY => Err(too_large()),
            Unread::Here(bytes) | Unread::Elsewhere(bytes) => Ok(bytes),
            Unread::Incoming(arriving) if arriving.body.is_end_stream() => Ok(Bytes::new()),
            Unread::Incoming(arriving) => {
                let deadline = self.deadline;
                let receiving = self.receive(*arriving);
                let Some(deadline) = deadline else { return receiving.await };
                let late = || Status::timeout("request did not complete within the allotted timeout", 0);
                tokio::time::timeout_at(deadline.into(), receiving).await.unwrap_or_else(|_| Err(late()))
            }
        }
    }

    /// Receives a body from the network. While it has to be waited for, the request has no seat.
    async fn receive(&mut self, arriving: Arriving) -> Result<Bytes, Status> {
        let Arriving { body, budget, peer, .. } = arriving;
        let charge = self.charge.insert(budget.open(Account::of(self.caller.user(), peer))?);
        let mut body = Paced::new(body);
        // Most bodies come in one piece, which is not copied.
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
                Some(Err(ReadError::TooSlow)) => {
                    budget.count_slow();
                    return Err(too_slow());
                }
                Some(Err(ReadError::Broken(e))) => {
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

/// 408: the client does not send its body fast enough.
pub fn too_slow() -> Status {
    Status::failure(408, api::StatusReason::Timeout, format!("Timeout: {}", ReadError::TooSlow))
}

/// What a handler answers, before it is encoded.
pub enum Answer {
    /// An object as it is stored.
    Entry(u16, Arc<Entry>),
    /// An object in the shape of the request's version.
    Object(u16, Value),
    /// Bytes of a known type, sent as they are.
    Raw(u16, &'static str, Body),
    /// Plain text, which a browser is told to take for nothing else.
    Plain(u16, Body),
    /// As `Raw`, for anybody to keep for so many seconds.
    Public(u16, &'static str, u32, Body),
    /// As `Raw`, with headers of its own.
    With(u16, &'static str, Vec<(HeaderName, String)>, Body),
}
