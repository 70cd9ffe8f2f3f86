//! WATCH: commits in order, as one line of JSON each.
//!
//! All watches of a resource see events in the same order. An event is encoded once for all of them and the encoding is stored with the
//! event; only selectors, tables and other versions require another encoding. A watch that does not keep up is ended.

mod frames;
pub mod shared_frames;
mod start;

use std::sync::Arc;
use std::time::Duration;

use crate::table::TableOptions;
use api::Status;
use api::selector::Selection;
use bytes::{Bytes, BytesMut};
use catalog::ServedResource;
use requests::negotiate::{self, Forms, Media, ObjectForm};
use requests::options::ListOptions;
use runtime::random;
use storage::{ChangeKind as EventKind, StoreEvent, StoredEntry, Watch, WatchError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use transport::drain::PATIENCE;
use transport::unsent::Payer;

use self::frames::{frame, trimmed};
use self::shared_frames::Watcher;
use self::start::{WatchStart, start_watch, wait_for_initial_state};
use super::list::{matching_work, selection};
use crate::body::{Body, EarlyEnd};
use crate::call::{Call, HandlerResponse, lane_account};
use crate::consistent_reads;
use crate::seats::Seat;
use crate::state::State;
use heavy_lane::LARGE;

/// Capacity of the channel to one client, in chunks, besides the one being sent. An event is never split, so a chunk may be as large as an
/// object.
const CHUNKS: usize = 2;
/// Approximate size of a chunk.
const CHUNK_BYTES: usize = 64 * 1024;
/// Minimum size of an event whose bytes are shared with other watches instead of copied.
const SHARED_BYTES: usize = 8 * 1024;
/// Interval of bookmarks on a watch without events.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// Upper bound of the duration of a watch in seconds.
const MAX_SECONDS: u64 = 24 * 3600;

/// State of a running watch and the form in which it sends events.
struct Sender {
    state: Arc<State>,
    kind: Arc<ServedResource>,
    watcher: Watcher,
    selection: Arc<Selection>,
    form: ObjectForm,
    table: TableOptions,
    headed: bool,
    now: i64,
    counter: prometheus::IntCounter,
    out: BytesMut,
    /// A large event to send after `out`, whose bytes are shared with other watches.
    shared: Option<Bytes>,
    channel: mpsc::Sender<Bytes>,
    payer: Option<Payer>,
    /// Bytes processed since the task last yielded.
    worked: usize,
}

/// Starts a watch and answers with its stream.
pub async fn handle(
    state: &Arc<State>,
    call: &mut Call,
    kind: Arc<ServedResource>,
) -> Result<HandlerResponse, Status> {
    let options = ListOptions::parse(&call.query, true)?;
    let accepted =
        negotiate::accept(&call.headers, &call.query, Forms::All).map_err(|status| {
            match status.message() {
                message if message.starts_with("406: ") => Status::no_representation(negotiate::WATCHES),
                _ => status,
            }
        })?;
    if accepted.media != Media::Json {
        return Err(Status::not_acceptable(negotiate::STREAMS));
    }
    let selection = selection(call, &kind)?;
    let table = TableOptions::parse(&call.query)?;
    // A watch of one object is limited to its key, whatever the selectors are.
    let scope = match call.info.path_name() {
        Some(name) => kind.key(&call.info.namespace, name),
        None => kind.scope(&call.info.namespace),
    };
    state.storage.unreadable.check_scope(&scope)?;
    let store = state.storage.store.of(&scope);
    let start = match wait_for_initial_state(store, &options).await? {
        Some(error) => error,
        None => start_watch(store, &options, &scope, || store.revision())?,
    };
    // A negative timeout leaves no time for events.
    if options.timeout_seconds.is_some_and(i64::is_negative) {
        return Ok(HandlerResponse::Raw(200, "application/json", Body::empty()));
    }
    let ends_early = call.begin_long_running(&state.serving, false)?;
    let (channel, receiver) = mpsc::channel(CHUNKS);
    let account = call.payer.as_ref().map(|payer| lane_account(payer.account()));
    let lineage = start.lineage();
    let sender = Sender {
        watcher: Watcher { state: Arc::clone(state), kind: Arc::clone(&kind), account, lineage },
        state: Arc::clone(state),
        kind,
        selection: Arc::new(selection),
        form: accepted.form,
        table,
        headed: false,
        now: call.now,
        counter: state.metrics.watch_events(&call.info),
        out: BytesMut::new(),
        shared: None,
        channel,
        payer: call.payer.clone(),
        worked: 0,
    };
    let seconds = options
        .timeout_seconds
        .and_then(|seconds| u64::try_from(seconds).ok().filter(|seconds| *seconds > 0))
        .unwrap_or_else(|| default_seconds(state.serving.min_watch_seconds));
    let deadline = Instant::now() + Duration::from_secs(seconds.min(MAX_SECONDS));
    let running = state.metrics.long_running(&call.info);
    let mut stop = state.stopping();
    let watched = Arc::clone(state);
    let seat = std::mem::take(&mut call.seat);
    tokio::spawn(async move {
        let serving = &watched.serving;
        let active = serving.watches.begin();
        let ends = async {
            let _ = stop.wait_for(|s| *s).await;
            let spread = serving.watches.spread(serving.shutdown.watch_grace);
            tokio::time::sleep(spread.mul_f64(random::fraction())).await;
        };
        tokio::select! {
            () = run(sender, start, options, deadline, seat) => {}
            () = ends => {}
        }
        drop((running, active));
    });
    let body = Body::stream(receiver).long_running(ends_early, EarlyEnd::Complete);
    Ok(HandlerResponse::Raw(200, "application/json", body))
}

/// Sends the existing objects at the start of a watch. False if the client has disconnected.
async fn send_initial_events(
    sender: &mut Sender,
    entries: Vec<Arc<StoredEntry>>,
    revision: u64,
    options: &ListOptions,
    seat: &mut Seat,
) -> bool {
    for entry in entries {
        match sender.selects(&entry).await {
            Ok(true) => sender.entry("ADDED", &entry).await,
            Ok(false) => {}
            Err(status) => sender.error(&status),
        }
        sender.give_way().await;
        if sender.is_full() {
            // Yield to other tasks even while this client reads fast.
            tokio::task::yield_now().await;
            if sender.channel.capacity() == 0 {
                seat.release();
            }
            if !sender.flush().await {
                return false;
            }
        }
    }
    seat.release();
    if options.send_initial_events == Some(true) && options.bookmarks {
        sender.bookmark(revision, true);
    }
    sender.flush().await
}

/// Runs a watch to its end. It holds its seat while it sends initial events, except while the client is slow to read them.
async fn run(mut sender: Sender, start: WatchStart, options: ListOptions, deadline: Instant, mut seat: Seat) {
    let Some((mut watch, after)) = send_start(&mut sender, start, &options, &mut seat).await else {
        return;
    };
    seat.release();
    let mut sent_revision = after;
    let mut bookmark_at = Instant::now() + BOOKMARK_EVERY;
    let mut crds = sender.state.apis.crds.changes();
    let is_custom = sender.kind.as_custom().is_some();
    loop {
        let next = tokio::select! {
            next = watch.next() => Some(next),
            // The CRD may have changed: end the watch, so that the client starts a new one.
            changed = crds.changed(), if is_custom => {
                if changed.is_err() || sender.is_outdated() {
                    return;
                }
                continue;
            }
            () = tokio::time::sleep_until(deadline) => None,
            () = sender.channel.closed() => return,
            () = tokio::time::sleep_until(bookmark_at), if options.bookmarks => {
                bookmark_at = Instant::now() + BOOKMARK_EVERY;
                // An idle shared store announces no revisions of its own; an old bookmark would be compacted before it is used.
                let _ = consistent_reads::catch_up(sender.state.storage.store.of(watch.scope())).await;
                let progress = watch.progress();
                if progress > sent_revision {
                    sent_revision = progress;
                    sender.bookmark(progress, false);
                    if !sender.flush().await {
                        return;
                    }
                }
                continue;
            }
        };
        let Some(next) = next else {
            if options.bookmarks && watch.progress() >= after {
                sender.bookmark(watch.progress(), false);
                let _ = sender.flush().await;
            }
            return;
        };
        let event = match next {
            Ok(event) => event,
            Err(error) => return sender.end(&error).await,
        };
        let ended = sender.pending_events(event, &mut watch, after, &mut sent_revision).await;
        let is_connected = sender.flush().await;
        match ended {
            Err(error) => return sender.end(&error).await,
            Ok(()) if !is_connected => return,
            Ok(()) => {}
        }
    }
}

/// Sends the initial events or the error with which a watch begins. Returns the changes to send, and the revision up to which they are
/// not sent, even if they are still to come. `None` if the watch is over.
async fn send_start(
    sender: &mut Sender,
    start: WatchStart,
    options: &ListOptions,
    seat: &mut Seat,
) -> Option<(Watch, u64)> {
    match start {
        WatchStart::Events(watch, after) => Some((watch, after)),
        WatchStart::Error(status) => {
            sender.error(&status);
            let _ = sender.flush().await;
            None
        }
        WatchStart::Entries(entries, watch) => {
            let revision = watch.progress();
            send_initial_events(sender, entries, revision, options, seat).await.then_some((watch, 0))
        }
    }
}

impl Sender {
    /// Reports whether the CRD of a custom resource was changed or deleted.
    fn is_outdated(&self) -> bool {
        let kind = &self.kind;
        let now = self.state.apis.catalog.find(&kind.gvk.group, &kind.gvk.version, &kind.resource.resource);
        let now = now.as_ref().and_then(|now| now.as_custom());
        kind.as_custom()
            .zip(now)
            .is_none_or(|(was, now)| was.crd.uid != now.crd.uid || was.crd.generation != now.crd.generation)
    }

    /// Buffers `event` and the events that are already available after it, until the buffer is full. Sets `sent_revision` to the last
    /// one.
    async fn pending_events(
        &mut self,
        event: Arc<StoreEvent>,
        watch: &mut Watch,
        after: u64,
        sent_revision: &mut u64,
    ) -> Result<(), WatchError> {
        let mut event = Some(event);
        while let Some(current) = event.take() {
            if current.revision > after {
                *sent_revision = current.revision;
                self.event(&current).await;
            }
            if self.is_full() {
                break;
            }
            // Events that do not match fill no buffer, so a watch of many old events must let others run.
            self.give_way().await;
            event = watch.try_next()?;
        }
        Ok(())
    }

    /// Lets other tasks run after much work, or after many events.
    async fn give_way(&mut self) {
        if self.worked > LARGE {
            self.worked = 0;
            tokio::task::yield_now().await;
        } else {
            tokio::task::consume_budget().await;
        }
    }

    fn is_full(&self) -> bool {
        self.out.len() >= CHUNK_BYTES || self.shared.is_some()
    }

    /// Sends the buffered events; `false` if the client has disconnected or does not read for [`PATIENCE`].
    async fn flush(&mut self) -> bool {
        let written = self.out.split().freeze();
        let shared = self.shared.take().unwrap_or_default();
        for chunk in [written, shared] {
            if !chunk.is_empty() && !self.send(chunk).await {
                return false;
            }
        }
        true
    }

    async fn send(&self, chunk: Bytes) -> bool {
        let sent = async {
            // Charge the bytes last, so that a chunk that waits for the channel holds no budget.
            let permit = self.channel.reserve().await.ok()?;
            permit.send(match &self.payer {
                Some(payer) => payer.charge_when_possible(chunk).await,
                None => chunk,
            });
            Some(())
        };
        matches!(tokio::time::timeout(PATIENCE, sent).await, Ok(Some(())))
    }

    async fn end(mut self, error: &WatchError) {
        // A client that was too slow must list again; one whose server stops connects to another.
        if let WatchError::Lagged | WatchError::Compacted { .. } = error {
            self.error(&Status::expired("The resourceVersion for the provided watch is too old."));
            let _ = self.flush().await;
        }
    }

    /// Evaluates the selectors, in the heavy lane if a large object or many labels must be read.
    async fn selects(&mut self, entry: &Arc<StoredEntry>) -> Result<bool, Status> {
        let mut work = matching_work(&self.selection, entry);
        let reads_objects = self.kind.reads_objects(&self.selection);
        if reads_objects {
            work = work.saturating_add(entry.body.len());
        }
        self.worked = self.worked.saturating_add(work);
        if !reads_objects && work <= LARGE {
            return Ok(self.kind.selects(&self.selection, entry).unwrap_or_default());
        }
        let (own, selection, entry) = (self.watcher.clone(), Arc::clone(&self.selection), Arc::clone(entry));
        self.watcher
            .run_in_lane_if_large(work, async move |_| {
                if let Some(known) = own.kind.selects(&selection, &entry) {
                    return Ok(known);
                }
                let object = own.state.converter(&own.kind).load(&entry).await?;
                Ok(own.kind.selects_fields(&selection, &entry, &object))
            })
            .await
    }

    async fn event(&mut self, event: &StoreEvent) {
        let was = match &event.previous {
            Some(previous) => self.selects(previous).await,
            None => Ok(false),
        };
        let is = if event.kind == EventKind::Deleted { Ok(false) } else { self.selects(&event.entry).await };
        let (was, is) = match (was, is) {
            (Ok(was), Ok(is)) => (was, is),
            (Err(status), _) | (_, Err(status)) => return self.error(&status),
        };
        let (word, unfiltered) = match (was, is) {
            (false, false) => return,
            (false, true) => ("ADDED", event.kind == EventKind::Created),
            (true, true) => ("MODIFIED", event.kind == EventKind::Modified),
            (true, false) => ("DELETED", event.kind == EventKind::Deleted),
        };
        if !is && event.kind != EventKind::Deleted {
            // The object no longer matches: send its last matching state at the revision of the change.
            if let Some(previous) = &event.previous {
                let last = Arc::new(previous.at_revision(event.revision));
                self.entry(word, &last).await;
            }
            return;
        }
        if unfiltered && self.form == ObjectForm::Object && !self.kind.must_convert(&event.entry) {
            let encoded = event.encoded.get_or_init(|| {
                let mut out = Vec::with_capacity(event.entry.body.len() + 32);
                frame(&mut out, word, trimmed(&event.entry));
                out.into()
            });
            // Other versions of the same shape need another head.
            if self.kind.is_stored_version() {
                self.counter.inc();
                self.append(encoded);
                return;
            }
        }
        self.entry(word, &event.entry).await;
    }

    async fn entry(&mut self, word: &'static str, entry: &Arc<StoredEntry>) {
        self.counter.inc();
        if self.form == ObjectForm::Object && !self.kind.must_convert(entry) {
            let mut out = Vec::with_capacity(entry.body.len() + 32);
            if self.kind.is_stored_version() {
                frame(&mut out, word, trimmed(entry));
            } else {
                let body = self.kind.bytes(entry);
                frame(&mut out, word, body.get(..body.len().saturating_sub(1)).unwrap_or_default());
            }
            self.out.extend_from_slice(&out);
            return;
        }
        self.worked = self.worked.saturating_add(entry.body.len());
        let is_table = matches!(self.form, ObjectForm::Table(_));
        let options = TableOptions { headers: is_table && !self.headed, ..self.table };
        match self.watcher.frame(self.form, options, word, entry).await {
            Ok(frame) => {
                self.headed = true;
                self.append(&frame);
            }
            Err(status) => self.error(&status),
        }
    }

    /// Adds an encoded event that is shared with other watches.
    fn append(&mut self, frame: &Bytes) {
        if frame.len() >= SHARED_BYTES {
            self.shared = Some(frame.clone());
        } else {
            self.out.extend_from_slice(frame);
        }
    }
}

/// The duration of a watch without `timeoutSeconds`, between `least` and twice as long.
fn default_seconds(least: u64) -> u64 {
    if least == 0 {
        return MAX_SECONDS;
    }
    let least = least.min(MAX_SECONDS);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a day")]
    let more = Duration::from_secs(least).mul_f64(random::fraction()).as_secs_f64() as u64;
    least + more
}

#[cfg(test)]
mod tests;
