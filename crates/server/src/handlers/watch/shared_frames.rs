//! Cache of watch events that are not sent as stored: in another version, as `PartialObjectMetadata`, or as a table.
//!
//! Many watches may want the same form of an event. Each looks here first, so that an event is converted once and not once per watch.
//! Large conversions run in the heavy lane like other large requests of the same user.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::table::{self, IncludeObject, TableOptions, TableRequest};
use api::{GroupVersionKind, Status};
use bytes::Bytes;
use catalog::ServedResource;
use crd::columns::TableAllowance;
use prometheus::IntCounter;
use requests::negotiate::ObjectForm;
use runtime::MetricRegistry;
use storage::StoredEntry;
use value::{Budget, Str, Value};

use super::frame;
use crate::heavy::{CancelOnDrop, Effort, LARGE};
use crate::respond;
use crate::state::State;

/// Upper limit of cached bytes.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Larger frames are not cached.
const MAX_FRAME: usize = MAX_BYTES / 2;

/// Lifetime of a cached frame in seconds. Tables contain the age of objects.
const FRESH: i64 = 10;

/// Identifies a frame: the event and the form in which it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrameKey {
    key: Arc<str>,
    revision: u64,
    /// Event type. Together with the revision it determines the state of the object.
    word: &'static str,
    kind: GroupVersionKind,
    /// Uid and generation of the CRD.
    crd: Option<(Str, i64)>,
    form: ObjectForm,
    include: IncludeObject,
    has_headers: bool,
}

impl FrameKey {
    pub fn new(
        kind: &ServedResource,
        form: ObjectForm,
        table: TableOptions,
        word: &'static str,
        entry: &StoredEntry,
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

pub struct SharedFrames {
    held: Mutex<FrameCache>,
    made: IntCounter,
}

#[derive(Default)]
struct FrameCache {
    frames: HashMap<FrameKey, (Bytes, i64)>,
    /// Keys from oldest to newest.
    order: VecDeque<FrameKey>,
    bytes: usize,
}

impl SharedFrames {
    /// An empty cache that registers its counter.
    pub fn new(registry: &MetricRegistry) -> prometheus::Result<Self> {
        let made = registry.counter(
            "portcullis_watch_events_converted_total",
            "Events that were converted for watches, each for all watches that want it in the same form.",
        )?;
        Ok(SharedFrames { held: Mutex::default(), made })
    }

    fn lock(&self) -> MutexGuard<'_, FrameCache> {
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

/// Context to convert events for one watch.
#[derive(Clone)]
pub struct Watcher {
    pub state: Arc<State>,
    pub kind: Arc<ServedResource>,
    /// Account for work in the heavy lane; `None` for watches of the server itself.
    pub account: Option<Str>,
}

impl Watcher {
    /// The frame of an event, from the cache or converted now.
    pub async fn frame(
        &self,
        form: ObjectForm,
        options: TableOptions,
        word: &'static str,
        entry: &Arc<StoredEntry>,
    ) -> Result<Bytes, Status> {
        let key = FrameKey::new(&self.kind, form, options, word, entry);
        if let Some(frame) = self.state.apis.shared_frames.get(&key, self.state.now()) {
            return Ok(frame);
        }
        let size = match form {
            ObjectForm::Table(_) => table::work(&self.kind, entry.body.len()),
            ObjectForm::Object | ObjectForm::Metadata(..) => entry.body.len(),
        };
        let (own, entry) = (self.clone(), Arc::clone(entry));
        self.aside(size, async move |budget| {
            let frames = &own.state.apis.shared_frames;
            // Another watch may have converted it while this one waited for its turn.
            if let Some(frame) = frames.get(&key, own.state.now()) {
                return Ok(frame);
            }
            let now = own.state.now();
            let object = own.state.converter(&own.kind).load(&entry).await?;
            let object = own.kind.to_sent(object).into_value();
            let shown = match form {
                ObjectForm::Object => object,
                ObjectForm::Metadata(version, _) => table::partial(&object, version),
                ObjectForm::Table(version) => {
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

    /// Runs work on `size` bytes: here, or in the heavy lane if `size` exceeds [`LARGE`].
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
