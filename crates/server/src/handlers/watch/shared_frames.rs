//! Cache of watch events that are not sent as stored: in another version, as `PartialObjectMetadata`, or as a table.
//!
//! Many watches may want the same form of an event. Each looks here first, so that an event is converted once and not once per watch.
//! Large conversions run in the heavy lane like other large requests of the same user.

use std::sync::Arc;

use crate::table::{self, IncludeObject, TableOptions, TableRequest};
use api::{GroupVersionKind, Status};
use bytes::Bytes;
use catalog::ServedResource;
use crd::columns::TableAllowance;
use prometheus::IntCounter;
use requests::negotiate::ObjectForm;
use runtime::MetricRegistry;
use storage::StoredEntry;
use value::{Budget, ByteLru, Str, Value};

use super::frame;
use crate::respond;
use crate::state::State;
use heavy_lane::{CancelOnDrop, Effort, LARGE, LaneAccount};

/// Upper limit of cached bytes. Expired frames stay until others need the room.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Larger frames are not cached.
const MAX_FRAME: usize = MAX_BYTES / 2;

/// Lifetime of a cached frame in seconds. Tables contain the age of objects.
const FRESH: i64 = 10;

/// Bytes of the two copies of a key, which count so that many small frames do not exceed the limit.
const KEY_BYTES: usize = 2 * size_of::<FrameKey>();

/// Identifies a frame: the event and the form in which it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrameKey {
    /// [`storage::Watch::lineage`]: restored data may have the same revision of a key with another content.
    lineage: u64,
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
        (lineage, entry): (u64, &StoredEntry),
    ) -> Self {
        let crd = kind.as_custom().map(|custom| (custom.crd.uid.clone(), custom.crd.generation));
        FrameKey {
            lineage,
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
    /// Frames with the time at which they were made, in seconds.
    frames: ByteLru<FrameKey, (Bytes, i64)>,
    made: IntCounter,
}

impl SharedFrames {
    /// An empty cache that registers its counter.
    pub fn new(registry: &MetricRegistry) -> prometheus::Result<Self> {
        let made = registry.counter(
            "portcullis_watch_events_converted_total",
            "Events that were converted for watches, each for all watches that want it in the same form.",
        )?;
        Ok(SharedFrames { frames: ByteLru::new(MAX_BYTES), made })
    }

    fn get(&self, key: &FrameKey, now: i64) -> Option<Bytes> {
        let (frame, made) = self.frames.get(key)?;
        (now.saturating_sub(made) <= FRESH).then_some(frame)
    }

    fn hold(&self, key: FrameKey, frame: &Bytes, now: i64) {
        self.made.inc();
        if frame.len() <= MAX_FRAME {
            self.frames.insert(key, (frame.clone(), now), frame.len().saturating_add(KEY_BYTES));
        }
    }
}

/// Context to convert events for one watch.
#[derive(Clone)]
pub struct Watcher {
    pub state: Arc<State>,
    pub kind: Arc<ServedResource>,
    /// Account for work in the heavy lane; `None` for watches of the server itself.
    pub account: Option<LaneAccount>,
    /// Distinguishes loads of the store: see [`storage::Watch::lineage`].
    pub lineage: u64,
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
        let key = FrameKey::new(&self.kind, form, options, word, (self.lineage, entry));
        if let Some(frame) = self.state.apis.shared_frames.get(&key, self.state.now()) {
            return Ok(frame);
        }
        let size = match form {
            ObjectForm::Table(_) => table::work(&self.kind, entry.body.len()),
            ObjectForm::Object | ObjectForm::Metadata(..) => entry.body.len(),
        };
        let (own, entry) = (self.clone(), Arc::clone(entry));
        self.run_in_lane_if_large(size, async move |budget| {
            let frames = &own.state.apis.shared_frames;
            // Another watch may have converted it while this one waited for its turn.
            if let Some(frame) = frames.get(&key, own.state.now()) {
                return Ok(frame);
            }
            let now = own.state.now();
            let object = own.state.converter(&own.kind).load(&entry).await?;
            let object = own.kind.shapes().to_sent(object).into_value();
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
    pub async fn run_in_lane_if_large<T, F>(
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
            effort.set_account(account.clone());
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

#[cfg(test)]
mod tests;
