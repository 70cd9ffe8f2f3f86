//! [`AuditLog`]: queues audit events and writes them to the output.
//!
//! A single thread writes. In the modes `blocking` and `blocking-strict` each request waits until its event
//! is written, so the requests in flight bound the queue. In mode `batch` no request waits, the queue has a
//! maximum length, and events that do not fit are dropped and counted.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prometheus::{IntCounter, IntCounterVec};
use runtime::{ConfigError, LogLimit, MetricRegistry};
use tokio::sync::oneshot;
use tracing::error;
use value::TokenBucket;

use super::event::Event;
use super::file::{AuditFileOutput, Rotation};
use super::policy::AuditStage;

/// Values of the flag `--audit-log-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditLogMode {
    /// A request waits until its events are written.
    Blocking,
    /// Like `Blocking`, and a request fails if its first event cannot be written.
    BlockingStrict,
    /// Requests do not wait.
    Batch(AuditBatch),
}

/// Parameters of the `batch` mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditBatch {
    /// `--audit-log-batch-buffer-size`: maximum queued events.
    pub buffer: usize,
    /// `--audit-log-batch-max-size`: maximum events per batch.
    pub max_size: usize,
    /// `--audit-log-batch-max-wait`: longest wait for a full batch.
    pub max_wait: Duration,
    /// Average minimum interval between batches, and the burst; `None` without throttling.
    pub throttle: Option<(Duration, u32)>,
}

/// Values of the flag `--audit-log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditLogFormat {
    /// A line of text per event.
    Legacy,
    /// A line of JSON per event.
    Json,
}

/// Output, format and mode of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `--audit-log-path`; standard output if `None`.
    pub path: Option<PathBuf>,
    pub rotation: Rotation,
    pub format: AuditLogFormat,
    pub mode: AuditLogMode,
    /// `--audit-log-truncate-max-event-size` in bytes; `None` disables truncation.
    pub max_event: Option<usize>,
}

/// Audit metrics with the names of kube-apiserver.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    pub(super) events: IntCounter,
    pub(super) errors: IntCounterVec,
    pub(super) levels: IntCounterVec,
    pub(super) rejected: IntCounter,
}

impl Counters {
    pub(super) fn register(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        Ok(Counters {
            events: registry.counter(
                "apiserver_audit_event_total",
                "[ALPHA] Counter of audit events generated and sent to the audit backend.",
            )?,
            errors: registry.counter_vec(
                "apiserver_audit_error_total",
                "[ALPHA] Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
                &["plugin"],
            )?,
            levels: registry.counter_vec(
                "apiserver_audit_level_total",
                "[ALPHA] Counter of policy levels for audit events (1 per request).",
                &["level"],
            )?,
            rejected: registry.counter(
                "apiserver_audit_requests_rejected_total",
                "[ALPHA] Counter of apiserver requests rejected due to an error in audit logging backend.",
            )?,
        })
    }
}

/// The queue of encoded events and the handle of its writer thread.
#[derive(Debug)]
pub(super) struct AuditLog {
    queue: Arc<AuditQueue>,
    mode: AuditLogMode,
    format: AuditLogFormat,
    max_event: Option<usize>,
    counters: Counters,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct AuditQueue {
    lines: Mutex<AuditLines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AuditLines {
    waiting: VecDeque<AuditLine>,
    closed: bool,
}

#[derive(Debug)]
struct AuditLine {
    bytes: Vec<u8>,
    /// Receives whether the line was written.
    written: Option<oneshot::Sender<bool>>,
}

impl AuditQueue {
    fn lock(&self) -> MutexGuard<'_, AuditLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditLog {
    /// Opens the output and starts the writer thread.
    pub(super) fn open(config: LogConfig, counters: Counters) -> Result<Self, ConfigError> {
        let LogConfig { path, rotation, format, mode, max_event } = config;
        let output = match path {
            None => AuditFileOutput::Stdout,
            Some(path) => AuditFileOutput::file(&path, rotation)
                .map_err(|e| ConfigError::flag("audit-log-path", format!("`{}`: {e}", path.display())))?,
        };
        let queue = Arc::new(AuditQueue::default());
        let writer = AuditWriter { queue: Arc::clone(&queue), output, mode, counters: counters.clone() };
        let writer = std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || writer.run())
            .map_err(ConfigError::other)?;
        Ok(AuditLog { queue, mode, format, max_event, counters, writer: Mutex::new(Some(writer)) })
    }

    /// Writes an event; `false` if the request must be rejected. Blocking modes wait until the line is
    /// written.
    pub(super) async fn write(&self, event: &Event, stage: AuditStage, at: i64) -> bool {
        let bytes = self.line(event, stage, at);
        if let AuditLogMode::Batch(batch) = self.mode {
            self.enqueue(bytes, batch.buffer);
            return true;
        }
        let (written, confirmation) = oneshot::channel();
        self.push(AuditLine { bytes, written: Some(written) });
        confirmation.await.unwrap_or(false) || self.mode != AuditLogMode::BlockingStrict
    }

    /// Queues an event without waiting, since its request has ended.
    pub(super) fn write_later(&self, event: &Event, stage: AuditStage, at: i64) {
        let bytes = self.line(event, stage, at);
        match self.mode {
            AuditLogMode::Batch(batch) => self.enqueue(bytes, batch.buffer),
            AuditLogMode::Blocking | AuditLogMode::BlockingStrict => {
                self.push(AuditLine { bytes, written: None });
            }
        }
    }

    /// Writes all queued events and joins the writer thread.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }

    /// Encodes an event, shortened if it is too long.
    fn line(&self, event: &Event, stage: AuditStage, at: i64) -> Vec<u8> {
        self.counters.events.inc();
        let encode = |event: &Event| match self.format {
            AuditLogFormat::Json => event.json(stage, at),
            AuditLogFormat::Legacy => event.legacy(stage),
        };
        match self.max_event {
            None => encode(event),
            Some(max) => encode(&event.shortened(max, |event| event.json(stage, at).len())),
        }
    }

    fn enqueue(&self, bytes: Vec<u8>, buffer: usize) {
        let mut lines = self.queue.lock();
        if lines.closed || lines.waiting.len() >= buffer {
            let why = if lines.closed { "audit backend shut down" } else { "audit buffer queue blocked" };
            drop(lines);
            return self.lost("buffered", why);
        }
        lines.waiting.push_back(AuditLine { bytes, written: None });
        drop(lines);
        self.queue.changed.notify_one();
    }

    fn push(&self, line: AuditLine) {
        let mut lines = self.queue.lock();
        if lines.closed {
            drop(lines);
            return self.lost("log", "audit backend shut down");
        }
        lines.waiting.push_back(line);
        drop(lines);
        self.queue.changed.notify_one();
    }

    fn lost(&self, plugin: &str, why: &str) {
        self.counters.errors.with_label_values(&[plugin]).inc();
        let Some(unlogged) = LOST_LOG.due() else { return };
        error!(
            plugin,
            error = why,
            unlogged,
            "cannot record an audit event; it is lost. Check the audit log file and the --audit-log-batch flags"
        );
    }
}

/// Each request of any client may lose an event.
static LOST_LOG: LogLimit = LogLimit::new();

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// State of the writer thread.
struct AuditWriter {
    queue: Arc<AuditQueue>,
    output: AuditFileOutput,
    mode: AuditLogMode,
    counters: Counters,
}

/// Maximum lines taken from the queue at once in blocking modes.
const CHUNK: usize = 256;

impl AuditWriter {
    fn run(mut self) {
        let start = Instant::now();
        let mut bucket = match self.mode {
            AuditLogMode::Batch(AuditBatch { throttle: Some((every, burst)), .. }) => {
                Some(throttle(every, burst))
            }
            _ => None,
        };
        loop {
            let batch = self.take();
            if batch.is_empty() {
                return;
            }
            if let Some(bucket) = &mut bucket {
                std::thread::sleep(bucket.reserve(start.elapsed()));
            }
            self.write(batch);
        }
    }

    /// Waits for lines; an empty result means that the log is closed.
    fn take(&self) -> Vec<AuditLine> {
        let (max, wait) = match self.mode {
            AuditLogMode::Batch(AuditBatch { max_size, max_wait, .. }) => (max_size.max(1), max_wait),
            _ => (CHUNK, Duration::ZERO),
        };
        let mut lines = self.queue.lock();
        while lines.waiting.is_empty() && !lines.closed {
            lines = self.queue.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
        // A batch that is not full waits for more events up to `max_wait`.
        if max > 1 && !wait.is_zero() {
            let until = Instant::now() + wait;
            while lines.waiting.len() < max && !lines.closed {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                lines =
                    self.queue.changed.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        let count = lines.waiting.len().min(max);
        lines.waiting.drain(..count).collect()
    }

    fn write(&mut self, batch: Vec<AuditLine>) {
        let (bytes, listeners): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|line| (line.bytes, line.written)).unzip();
        let outcomes = self.output.write(&bytes);
        for (outcome, listener) in outcomes.into_iter().zip(listeners) {
            if let Err(error) = &outcome {
                self.counters.errors.with_label_values(&["log"]).inc();
                if let Some(unlogged) = LOST_LOG.due() {
                    error!(%error, unlogged, "cannot write an audit event; check the audit log file and its disk");
                }
            }
            if let Some(listener) = listener {
                // The waiting request may have been dropped.
                let _ = listener.send(outcome.is_ok());
            }
        }
    }
}

/// The bucket of a [`throttle`](AuditBatch::throttle), full at the time zero of its clock.
fn throttle(every: Duration, burst: u32) -> TokenBucket {
    TokenBucket::new(every.as_secs_f64().recip(), burst.max(1), Duration::ZERO)
}

#[cfg(test)]
mod tests;
