//! Events that are not sent as they are stored: in another version, as `PartialObjectMetadata`, or as a table.
//!
//! Any number of watches may ask for the same. Each of them looks here first, so that an event is converted once and not once for
//! each watch, and large ones have their turns in the heavy lane as other large requests of their user have.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{GroupVersionKind, Status};
use bytes::Bytes;
use crd::columns::TableAllowance;
use prometheus::IntCounter;
use storage::Entry;
use value::{Budget, Str, Value};

use super::frame;
use crate::catalog::ServedResource;
use crate::heavy::{CancelOnDrop, Effort, LARGE};
use crate::metrics::MetricRegistry;
use crate::negotiate::Form;
use crate::respond;
use crate::state::State;
use crate::table::{self, Include, TableOptions, TableRequest};

/// How many bytes of frames are held for other watches.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Larger frames are not held.
const MAX_FRAME: usize = MAX_BYTES / 2;

/// For how many seconds a frame may be sent. Tables say how old their objects are.
const FRESH: i64 = 10;

/// Identifies a frame: the event, and the form in which it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrameKey {
    key: Arc<str>,
    revision: u64,
    /// Together with the revision it says which state of the object it is.
    word: &'static str,
    kind: GroupVersionKind,
    /// The uid and the generation of the CRD.
    crd: Option<(Str, i64)>,
    form: Form,
    include: Include,
    has_headers: bool,
}

impl FrameKey {
    /// The key of the frame of an event about an entry.
    pub fn new(
        kind: &ServedResource,
        form: Form,
        table: TableOptions,
        word: &'static str,
        entry: &Entry,
    ) -> Self {
        let crd = kind.as_custom().map(|custom| (custom.crd.uid.clone(), custom.crd.generation));
        FrameKey {
            key: Arc::clone(&entry.key),
            revision: entry.revision,
            word,
            kind: kind.gvk.clone(),
            crd,
            form,
            include: table.include,
            has_headers: table.headers,
        }
    }
}

/// The frames that watches share.
pub struct SharedFrames {
    held: Mutex<Held>,
    made: IntCounter,
}

#[derive(Default)]
struct Held {
    frames: HashMap<FrameKey, (Bytes, i64)>,
    /// The oldest first.
    order: VecDeque<FrameKey>,
    bytes: usize,
}

impl SharedFrames {
    /// None are held yet.
    pub fn new(registry: &MetricRegistry) -> prometheus::Result<Self> {
        let made = IntCounter::new(
            "portcullis_watch_events_converted_total",
            "Events that were converted for watches, each for all watches that want it in the same form.",
        )?;
        registry.register(Box::new(made.clone()))?;
        Ok(SharedFrames { held: Mutex::default(), made })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &FrameKey, now: i64) -> Option<Bytes> {
        let held = self.lock();
        let (frame, made) = held.frames.get(key)?;
        (now.saturating_sub(*made) <= FRESH).then(|| frame.clone())
    }

    fn hold(&self, key: FrameKey, frame: &Bytes, now: i64) {
        self.made.inc();
        if frame.len() > MAX_FRAME {
            return;
        }
        let mut held = self.lock();
        if let Some((former, _)) = held.frames.insert(key.clone(), (frame.clone(), now)) {
            held.bytes = held.bytes.saturating_sub(former.len());
        } else {
            held.order.push_back(key);
        }
        held.bytes = held.bytes.saturating_add(frame.len());
        while let Some(oldest) = held.order.front() {
            let is_old = held.frames.get(oldest).is_none_or(|(_, made)| now.saturating_sub(*made) > FRESH);
            if !is_old && held.bytes <= MAX_BYTES {
                break;
            }
            if let Some(oldest) = held.order.pop_front()
                && let Some((frame, _)) = held.frames.remove(&oldest)
            {
                held.bytes = held.bytes.saturating_sub(frame.len());
            }
        }
    }
}

/// Who watches.
#[derive(Clone)]
pub struct Watcher {
    /// The server.
    pub state: Arc<State>,
    /// What is watched.
    pub kind: Arc<ServedResource>,
    /// Whose turns in the heavy lane are used; none for watches of the server itself.
    pub account: Option<Str>,
}

impl Watcher {
    /// The frame of an event: made here, or by another watch.
    pub async fn frame(
        &self,
        form: Form,
        options: TableOptions,
        word: &'static str,
        entry: &Arc<Entry>,
    ) -> Result<Bytes, Status> {
        let key = FrameKey::new(&self.kind, form, options, word, entry);
        if let Some(frame) = self.state.apis.shared_frames.get(&key, self.state.now()) {
            return Ok(frame);
        }
        let size = match form {
            Form::Table(_) => table::work(&self.kind, entry.body.len()),
            Form::Object | Form::Metadata(..) => entry.body.len(),
        };
        let (own, entry) = (self.clone(), Arc::clone(entry));
        self.aside(size, async move |budget| {
            let frames = &own.state.apis.shared_frames;
            // Another watch may have made it while this one waited for its turn.
            if let Some(frame) = frames.get(&key, own.state.now()) {
                return Ok(frame);
            }
            let now = own.state.now();
            let object = own.kind.converter(&own.state).load(&entry).await?;
            let object = own.kind.to_sent(object).into_value();
            let shown = match form {
                Form::Object => object,
                Form::Metadata(version, _) => table::partial(&object, version),
                Form::Table(version) => {
                    let metadata = Value::map([("resourceVersion", entry.revision.to_string())]);
                    let allowance = &TableAllowance::new(&budget);
                    let request = TableRequest { version, options, now, allowance };
                    table::table(&own.kind, std::slice::from_ref(&object), metadata, request)
                }
            };
            let mut out = Vec::with_capacity(256);
            let mut json = Vec::with_capacity(256);
            respond::order_of(Some(&own.kind), &shown).write(&mut json, &shown);
            frame(&mut out, word, &json);
            let made = Bytes::from(out);
            frames.hold(key, &made, now);
            Ok(made)
        })
        .await
    }

    /// Does work about `size` bytes: here, or in the heavy lane if they are many.
    pub async fn aside<T, F>(
        &self,
        size: usize,
        work: impl FnOnce(Budget) -> F + Send + 'static,
    ) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send,
    {
        let effort = Effort::default();
        if size <= LARGE {
            return work(effort.budget.clone()).await;
        }
        if let Some(account) = &self.account {
            effort.set_account(account);
        }
        let cancel = CancelOnDrop::new(&effort);
        let inner = effort.clone();
        let work = Box::pin(async move {
            inner.enter_lane(size).await;
            work(inner.budget.clone()).await
        });
        let done = self.state.serving.heavy.drive(&effort, None, work).await;
        cancel.disarm();
        done.unwrap_or_else(|| Err(Status::internal("the event could not be converted")))
    }
}
