//! Audit events: the user, request, time and outcome of each request.
//!
//! A [`AuditRecord`] begins when a request arrives and is opened after authentication, when the [`AuditPolicy`]
//! determines its level. It is closed after the response, also for rejected users, watches, timeouts and
//! panics. In between it collects the impersonated user, the authorization decision, request and response
//! objects, and annotations. Each stage becomes a line in the [`log`].
//!
//! A record never contains data above the policy's level, so such data cannot reach the log.
//!
//! ```
//! use audit::{Level, AuditPolicy};
//! use requests::request_info::{Query, RequestInfo};
//!
//! # fn main() -> Result<(), String> {
//! let policy = AuditPolicy::parse(b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]")?;
//! let info = RequestInfo::parse(&http::Method::GET, "/api/v1/nodes", &Query::parse(""));
//! assert_eq!(policy.evaluate(None, &info).level, Level::Metadata);
//! # Ok(())
//! # }
//! ```

mod event;
mod file;
mod log;
mod object;
mod policy;
mod shorten;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use api::meta;
use authn::{AuthenticationMethod, Caller, User};
use bytes::Bytes;
use http::HeaderMap;
use requests::request_info::RequestInfo;
use runtime::{ConfigError, LogLimit, MetricRegistry, clock};
use tracing::warn;
use value::{Str, Value, json, write};

pub use file::Rotation;
pub use log::{AuditBatch, AuditLogFormat, AuditLogMode, LogConfig};
pub use policy::{AuditDecision, AuditPolicy, AuditStage, Level};

use event::{AuditObjectRef, Event, Impersonated, ResponseStatus};
use log::{AuditLog, Counters};

/// Request header with a client-chosen audit ID, also set on the response.
pub const HEADER: &str = "audit-id";

/// Audit configuration from the flags.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// Content of `--audit-policy-file`, validated.
    pub policy: AuditPolicy,
    /// Values of the `--audit-log-*` flags.
    pub log: LogConfig,
}

/// The audit policy and the log.
#[derive(Debug)]
pub struct Audit {
    policy: AuditPolicy,
    log: AuditLog,
    counters: Counters,
}

impl Audit {
    /// Opens the log; `None` without a configuration. The metrics are registered in both cases.
    pub fn open(
        config: Option<AuditConfig>,
        registry: &MetricRegistry,
    ) -> Result<Option<Arc<Self>>, ConfigError> {
        let counters = Counters::register(registry).map_err(ConfigError::other)?;
        let Some(AuditConfig { policy, log }) = config else { return Ok(None) };
        let log = AuditLog::open(log, counters.clone())?;
        Ok(Some(Arc::new(Audit { policy, log, counters })))
    }

    /// Writes pending events and stops the writer.
    pub fn close(&self) {
        self.log.close();
    }
}

/// The audit data of one request. Cheap to clone; clones share the data.
#[derive(Clone, Debug)]
pub struct AuditRecord(Option<Arc<AuditRecordState>>);

#[derive(Debug)]
struct AuditRecordState {
    audit: Arc<Audit>,
    id: Str,
    received: i64,
    /// Unset before authentication, and always if the policy's level is `None`.
    open: OnceLock<AuditedRequest>,
}

#[derive(Debug)]
struct AuditedRequest {
    decision: AuditDecision,
    event: Mutex<Event>,
    is_long_running: bool,
    /// Set once the last event is written or none is to be written.
    is_closed: AtomicBool,
}

/// If the client disconnects before the response, the record is dropped with the request and is then closed
/// as in kube-apiserver.
impl Drop for AuditRecordState {
    fn drop(&mut self) {
        let Some(open) = self.open.take().filter(|open| !open.is_closed.load(Ordering::Relaxed)) else {
            return;
        };
        let mut event = open.event().clone();
        let was_started = event.status.is_some();
        event.status.get_or_insert_with(|| ResponseStatus {
            status: Str::new_static("Success"),
            message: "Connection closed early".to_owned(),
            code: 200,
            ..ResponseStatus::default()
        });
        if open.is_long_running && !was_started {
            self.write_later(&open, &event, AuditStage::ResponseStarted);
        }
        self.write_later(&open, &event, AuditStage::ResponseComplete);
    }
}

impl AuditRecordState {
    /// Writes an event without waiting for it.
    fn write_later(&self, open: &AuditedRequest, event: &Event, stage: AuditStage) {
        if !open.decision.omit_stages.contains(&stage) {
            self.audit.log.write_later(event, stage, clock::now_micros());
        }
    }
}

impl AuditedRequest {
    fn event(&self) -> MutexGuard<'_, Event> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parts of a request that are recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordedRequest<'a> {
    /// The path and query as sent by the client.
    pub uri: &'a str,
    /// The request attributes parsed from `uri`.
    pub info: &'a RequestInfo,
    pub headers: &'a HeaderMap,
    /// Remote address of the connection.
    pub peer: IpAddr,
}

impl AuditRecord {
    /// Returns a record that discards everything.
    pub fn none() -> Self {
        AuditRecord(None)
    }

    /// Starts the record of a request that has just arrived.
    pub fn begin(audit: Option<&Arc<Audit>>, id: Str) -> Self {
        AuditRecord(audit.map(|audit| {
            let audit = Arc::clone(audit);
            Arc::new(AuditRecordState { audit, id, received: clock::now_micros(), open: OnceLock::new() })
        }))
    }

    /// Evaluates the policy. Call it after authentication; `user` is `None` if that failed.
    pub fn open(&self, user: Option<&User>, sent: RecordedRequest<'_>) {
        let Some(inner) = &self.0 else { return };
        let RecordedRequest { uri, info, headers, peer } = sent;
        let decision = inner.audit.policy.evaluate(user, info);
        inner.audit.counters.levels.with_label_values(&[decision.level.as_str()]).inc();
        if decision.level == Level::None {
            return;
        }
        let object = info.is_resource.then(|| AuditObjectRef {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            group: info.group.clone(),
            version: info.version.clone(),
            subresource: info.subresource.clone(),
            ..AuditObjectRef::default()
        });
        let event = Event {
            level: decision.level,
            id: inner.id.clone(),
            uri: uri.to_owned(),
            verb: info.verb.clone(),
            user: user.cloned().unwrap_or_default(),
            impersonated: None,
            source_ips: event::source_ips(headers, peer),
            user_agent: event::user_agent(headers),
            object,
            status: None,
            request_object: None,
            response_object: None,
            received: inner.received,
            annotations: std::collections::BTreeMap::new(),
        };
        // Only the first call has an effect.
        let _ = inner.open.set(AuditedRequest {
            decision,
            event: Mutex::new(event),
            is_long_running: info.is_long_running(),
            is_closed: AtomicBool::new(false),
        });
    }

    fn opened(&self) -> Option<(&Arc<AuditRecordState>, &AuditedRequest)> {
        let inner = self.0.as_ref()?;
        inner.open.get().map(|open| (inner, open))
    }

    /// Like [`AuditRecord::opened`], if the policy's level is at least `level`.
    fn wants(&self, level: Level) -> Option<&AuditedRequest> {
        self.opened().map(|(_, open)| open).filter(|open| open.decision.level >= level)
    }

    /// Adds an annotation. The first value of a key wins; another value is logged and dropped.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        self.annotate_from(Level::Metadata, key, value);
    }

    /// Like [`AuditRecord::annotate`], but only from `level` on, since some annotations contain parts of an
    /// object.
    pub fn annotate_from(&self, level: Level, key: &str, value: impl Into<String>) {
        let Some((inner, open)) = self.opened().filter(|(_, open)| open.decision.level >= level) else {
            return;
        };
        let value = value.into();
        let mut event = open.event();
        match event.annotations.get(key) {
            Some(first) if *first != value => {
                static LOG: LogLimit = LogLimit::with_burst(20);
                let Some(unlogged) = LOG.due() else { return };
                warn!(
                    unlogged,
                    "Failed to set annotations[{key:?}] to {value:?} for audit:{:?}, it has already been set to {first:?}",
                    inner.id
                );
            }
            Some(_) => {}
            None => {
                event.annotations.insert(key.to_owned(), value);
            }
        }
    }

    /// Adds names to a comma-separated annotation without duplicates; `...` replaces those beyond `most`.
    pub fn list(&self, key: &str, names: &[Str], most: usize) {
        let Some(open) = self.wants(Level::Metadata).filter(|_| !names.is_empty()) else { return };
        let mut event = open.event();
        let listed = event.annotations.entry(key.to_owned()).or_default();
        let before = listed.clone();
        let mut known: HashSet<&str> = before.split(',').filter(|name| !name.is_empty()).collect();
        for name in names {
            if known.len() > most || !known.insert(name) {
                continue;
            }
            if !listed.is_empty() {
                listed.push(',');
            }
            listed.push_str(if known.len() > most { "..." } else { name });
        }
    }

    /// Records the authorization decision and its reason.
    pub fn decided(&self, decision: &str, reason: &dyn std::fmt::Display) {
        if self.opened().is_some() {
            self.annotate("authorization.k8s.io/decision", decision);
            self.annotate("authorization.k8s.io/reason", reason.to_string());
        }
    }

    /// Records that the authorizer failed without a decision.
    pub fn undecided(&self) {
        self.annotate("authorization.k8s.io/reason", "internal error");
    }

    /// Records the impersonated user and constraint.
    pub fn impersonated(&self, caller: &Caller) {
        let (Some((_, open)), AuthenticationMethod::Impersonation { constraint }) =
            (self.opened(), caller.via())
        else {
            return;
        };
        open.event().impersonated =
            Some(Impersonated { user: caller.user().clone(), constraint: constraint.clone() });
    }

    /// Records the object of the request in the request's version, before admission.
    pub fn request_object(&self, object: &Value) {
        let Some(open) = self.wants(Level::Metadata) else { return };
        let mut event = open.event();
        let about = event.object.get_or_insert_default();
        for (field, text) in [
            (&mut about.namespace, meta::namespace(object)),
            (&mut about.name, meta::name(object)),
            (&mut about.uid, meta::uid(object)),
            (&mut about.resource_version, meta::resource_version(object)),
        ] {
            if field.is_empty() {
                *field = text.into();
            }
        }
        if open.decision.level >= Level::Request {
            event.request_object = Some(object::encode(object, open.decision.omit_managed_fields).into());
        }
    }

    /// Records the patch of the request, which is valid JSON or YAML.
    pub fn request_patch(&self, patch: &Value) {
        let Some(open) = self.wants(Level::Request) else { return };
        open.event().request_object = Some(write::to_vec(patch).into());
    }

    /// Records the response body, given as the JSON sent to the client, if the level is `RequestResponse`.
    pub fn response_object(&self, json: &Bytes) {
        let Some(open) = self.wants(Level::RequestResponse) else { return };
        let text = json.strip_suffix(b"\n").unwrap_or(json);
        // Go's encoder emits no white space, even for pretty-printed responses.
        let is_compact = !text.contains(&b'\n');
        let encoded = if is_compact && !open.decision.omit_managed_fields {
            Bytes::copy_from_slice(text)
        } else {
            match json::parse_wrapped(text) {
                Ok(object) => object::encode(&object, open.decision.omit_managed_fields).into(),
                Err(_) => return,
            }
        };
        open.event().response_object = Some(encoded);
    }

    pub fn response_status(&self, status: &Value) {
        let Some(open) = self.wants(Level::Metadata) else { return };
        open.event().status = Some(ResponseStatus::of(status));
    }

    /// True if [`AuditRecord::response_object`] records its argument.
    pub fn wants_response(&self) -> bool {
        self.wants(Level::RequestResponse).is_some()
    }

    /// True if [`AuditRecord::request_patch`] records its argument.
    pub fn wants_request(&self) -> bool {
        self.wants(Level::Request).is_some()
    }

    /// Writes the RequestReceived event. An error means that it could not be written in strict mode: reject
    /// the request.
    pub async fn received(&self) -> Result<(), &'static str> {
        let Some((inner, _)) = self.opened() else { return Ok(()) };
        if self.write(AuditStage::RequestReceived, inner.received).await {
            return Ok(());
        }
        inner.audit.counters.rejected.inc();
        Err("failed to store audit event")
    }

    /// Writes the ResponseStarted event before the headers of a long-running response are sent.
    pub async fn started(&self, code: u16) {
        self.set_code(code);
        self.write(AuditStage::ResponseStarted, clock::now_micros()).await;
    }

    /// Writes the ResponseComplete event before a whole response is sent.
    pub async fn complete(&self, code: u16) {
        self.set_code(code);
        // The event is queued at once, even if this future is dropped during the write.
        self.close();
        self.write(AuditStage::ResponseComplete, clock::now_micros()).await;
    }

    /// Marks the record as complete, so that its drop writes no event.
    pub fn close(&self) {
        if let Some((_, open)) = self.opened() {
            open.is_closed.store(true, Ordering::Relaxed);
        }
    }

    /// Completes the record when the result is dropped; for long-running responses.
    pub fn complete_at_end(&self) -> RecordCloser {
        RecordCloser(self.clone())
    }

    /// Writes the Panic event of a failed handler.
    pub async fn panicked(&self, what: &str) {
        let Some((_, open)) = self.opened() else { return };
        open.event().status = Some(ResponseStatus {
            status: Str::new_static("Failure"),
            message: format!("APIServer panic'd: {what}"),
            reason: Str::new_static("InternalError"),
            details: None,
            code: 500,
        });
        self.close();
        self.write(AuditStage::Panic, clock::now_micros()).await;
    }

    fn set_code(&self, code: u16) {
        if let Some((_, open)) = self.opened() {
            open.event().status.get_or_insert_default().code = code;
        }
    }

    async fn write(&self, stage: AuditStage, at: i64) -> bool {
        let Some((inner, open)) = self.opened() else { return true };
        if open.decision.omit_stages.contains(&stage) {
            return true;
        }
        let event = open.event().clone();
        inner.audit.log.write(&event, stage, at).await
    }
}

/// Writes the ResponseComplete event on drop.
#[derive(Debug)]
pub struct RecordCloser(AuditRecord);

impl Drop for RecordCloser {
    fn drop(&mut self) {
        let Some((inner, open)) = self.0.opened() else { return };
        if !open.is_closed.swap(true, Ordering::Relaxed) {
            let event = open.event().clone();
            inner.write_later(open, &event, AuditStage::ResponseComplete);
        }
    }
}

#[cfg(test)]
mod tests;
