//! The watch on the whole prefix, which feeds the working set.

use std::sync::Arc;
use std::time::Duration;

use grpc::{GrpcSender, GrpcStatus, GrpcStream};
use storage::Change;
use storage::backend::{DecidedChange, Feed};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use value::Backoff;

use crate::backend::ValueCodec;
use crate::client::{EtcdClient, prefix_end};
use crate::key_space::KeySpace;
use crate::lineage::{Continuity, Lineage};
use crate::load::{load, stored_record};
use crate::messages::{
    KeyEvent, WatchAction, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use crate::observer::EtcdObserver;
use crate::version::check_member;

/// Interval of progress requests while a reader waits for a revision.
const ASK_PROGRESS: Duration = Duration::from_millis(100);
/// A member that does not confirm a watch within this time is not used for it; the next one is tried.
const CREATE_TIMEOUT: Duration = Duration::from_secs(5);
/// A watch that does not reach a revision of etcd within this time is moved to the next member: its own may be partitioned from the others.
const MAX_LAG: Duration = Duration::from_secs(5);
/// How long etcd may show a lower raft term than before. A member that begins an election shows a higher term until the election is over;
/// if the term is still lower after this time, etcd was restored from a backup.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// Delays between attempts to watch again: doubled from the first to the last.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LAST_DELAY: Duration = Duration::from_secs(2);

/// The state of the watch, for health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    Watching,
    /// The watch ended for this reason and has not been resumed.
    Broken {
        since: Instant,
        reason: String,
    },
}

/// The task that watches etcd and feeds the working set.
pub(crate) struct WatchTask {
    pub(crate) client: EtcdClient,
    pub(crate) keys: KeySpace,
    pub(crate) codec: Arc<dyn ValueCodec>,
    pub(crate) observer: Arc<dyn EtcdObserver>,
    pub(crate) feed: Feed,
    /// The highest revision that a reader waits for.
    pub(crate) wanted: watch::Receiver<u64>,
    pub(crate) lineage: Arc<Lineage>,
    /// Changes when the working set must be loaded again.
    pub(crate) reloads: watch::Receiver<u64>,
    pub(crate) state: watch::Sender<WatchState>,
    /// The revision that the watch must reach not to count as behind, after an earlier watch was given up for that reason.
    pub(crate) must_reach: u64,
}

/// Why a watch stream ended.
enum WatchEnd {
    /// The working set must be loaded again, for this reason.
    Reload(String),
    Broken(String),
}

/// A revision that etcd has, and since when the feed lacks it.
#[derive(Clone, Copy)]
struct MissingRevision {
    revision: u64,
    since: Instant,
}

impl WatchTask {
    /// Watches until the task is aborted. The feed has been loaded.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST_DELAY, LAST_DELAY);
        loop {
            let fed = self.feed.revision();
            let end = self.watch_once().await;
            if self.feed.revision() > fed {
                backoff.reset();
            }
            let reason = match end {
                WatchEnd::Reload(why) => match self.reload(&why).await {
                    Ok(()) => {
                        tokio::time::sleep(backoff.fail()).await;
                        continue;
                    }
                    Err(status) => status.message,
                },
                WatchEnd::Broken(reason) => reason,
            };
            let delay = backoff.fail();
            tracing::warn!(error = %reason, retry_in = ?delay, "the watch on etcd ended; retrying");
            self.state.send_modify(|state| {
                let since = match state {
                    WatchState::Broken { since, .. } => *since,
                    WatchState::Watching => Instant::now(),
                };
                *state = WatchState::Broken { since, reason };
            });
            tokio::time::sleep(delay).await;
        }
    }

    /// Watches at one member until the stream ends. The next watch begins with another member.
    async fn watch_once(&mut self) -> WatchEnd {
        let stream = match self.client.watch().await {
            Ok(stream) => stream,
            Err(status) => return WatchEnd::Broken(status.message),
        };
        let member = stream.endpoint();
        let end = match self.check(member).await {
            Ok(()) => self.follow(stream).await,
            Err(end) => end,
        };
        if matches!(end, WatchEnd::Broken(_)) {
            self.client.avoid(member);
        }
        end
    }

    /// Fails if the member's progress notifications cannot be trusted, or if etcd's data is not the continuation of that in memory: a
    /// watch from a revision that etcd does not have would silently wait for it. Called after the stream was opened, because data that
    /// is replaced later ends the stream.
    async fn check(&self, member: usize) -> Result<(), WatchEnd> {
        check_member(&self.client, member).await.map_err(WatchEnd::Broken)?;
        let begin = Instant::now();
        loop {
            let expected = self.lineage.expected(|| self.feed.revision());
            let header = self.client.current(&self.keys.health()).await;
            let header = header.map_err(|status| WatchEnd::Broken(status.message))?;
            match self.lineage.check(expected, &header) {
                Continuity::Continued if !self.lineage.has_older_term(&header) => return Ok(()),
                Continuity::Continued | Continuity::Reloaded if begin.elapsed() < ELECTION_TIMEOUT => {
                    tokio::time::sleep(ASK_PROGRESS).await;
                }
                Continuity::Continued | Continuity::Reloaded => {
                    let why = "the data in etcd was replaced: it has held fewer elections than before";
                    return Err(WatchEnd::Reload(why.to_owned()));
                }
                Continuity::Replaced(why) => {
                    return Err(WatchEnd::Reload(format!("the data in etcd was replaced: {why}")));
                }
            }
        }
    }

    /// Replaces the working set with etcd's current state, because events were missed or the data was replaced.
    async fn reload(&mut self, reason: &str) -> Result<(), GrpcStatus> {
        tracing::warn!(reason, "loading all objects from etcd again");
        self.reloads.mark_unchanged();
        let loaded = load(&self.client, &self.keys, &self.codec).await;
        match &loaded {
            Ok(loaded) => tracing::info!(
                objects = loaded.records.len(),
                revision = loaded.revision,
                "loaded all objects from etcd again"
            ),
            Err(_) => self.reloads.mark_changed(),
        }
        let loaded = loaded?;
        self.lineage.load(&loaded.header, || self.feed.reload(loaded.revision, loaded.records));
        self.must_reach = 0;
        Ok(())
    }

    /// Feeds the events of one stream until it ends.
    async fn follow(&mut self, mut stream: GrpcStream<WatchRequest, WatchResponse>) -> WatchEnd {
        let directory = self.keys.directory();
        let first = self.feed.revision() + 1;
        #[cfg(feature = "planted-bugs")]
        let first = first + u64::from(crate::planted::is_planted(crate::planted::RESUME_LATE));
        let create = WatchCreateRequest {
            range_end: prefix_end(directory.as_bytes()),
            key: directory.into(),
            start_revision: i64::try_from(first).unwrap_or(i64::MAX),
            progress_notify: true,
            prev_kv: false,
            fragment: true,
        };
        let create = WatchRequest { action: Some(WatchAction::Create(create)) };
        let sender = stream.sender();
        if let Err(status) = sender.send(&create).await {
            return WatchEnd::Broken(status.message);
        }
        let mut asking = tokio::time::interval(ASK_PROGRESS);
        asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut fragments = Vec::new();
        let mut is_created = false;
        let give_up = tokio::time::sleep(CREATE_TIMEOUT);
        tokio::pin!(give_up);
        let mut missing = None;
        loop {
            let is_behind = *self.wanted.borrow() > self.feed.revision();
            if let Some(end) = self.stalled(&mut missing) {
                return end;
            }
            tokio::select! {
                biased;
                response = stream.next() => {
                    let response = match response {
                        Ok(Some(response)) => response,
                        Ok(None) => return WatchEnd::Broken("etcd ended the watch".to_owned()),
                        Err(status) => return WatchEnd::Broken(status.message),
                    };
                    is_created = true;
                    if let Some(end) = self.receive(response, &mut fragments) {
                        return end;
                    }
                }
                changed = self.reloads.changed() => {
                    return match changed {
                        Ok(()) => WatchEnd::Reload("memory differs from etcd".to_owned()),
                        Err(_) => WatchEnd::Broken("the store is closed".to_owned()),
                    };
                }
                () = &mut give_up, if !is_created => {
                    return WatchEnd::Broken("etcd does not confirm the watch".to_owned());
                }
                changed = self.wanted.changed(), if !is_behind => {
                    if changed.is_err() {
                        return WatchEnd::Broken("the store is closed".to_owned());
                    }
                    asking.reset_immediately();
                }
                _ = asking.tick(), if is_behind => {
                    // A connection that takes no more requests is noticed as a stalled watch.
                    let asked = tokio::time::timeout(ASK_PROGRESS, ask_progress(&sender)).await;
                    if let Ok(Err(status)) = asked {
                        return WatchEnd::Broken(status.message);
                    }
                }
            }
        }
    }

    /// Ends a watch that has not reached a revision of etcd within [`MAX_LAG`]. Called at least once per `ASK_PROGRESS` while a revision is
    /// missing.
    fn stalled(&mut self, missing: &mut Option<MissingRevision>) -> Option<WatchEnd> {
        let (fed, wanted) = (self.feed.revision(), *self.wanted.borrow());
        if missing.is_some_and(|missing| missing.revision <= fed) {
            *missing = None;
        }
        if wanted <= fed {
            return None;
        }
        let MissingRevision { revision, since } =
            *missing.get_or_insert_with(|| MissingRevision { revision: wanted, since: Instant::now() });
        (since.elapsed() > MAX_LAG).then(|| {
            self.must_reach = revision;
            WatchEnd::Broken(format!(
                "the watch is behind: it has not reached revision {revision} in {MAX_LAG:?}, it is at {fed}"
            ))
        })
    }

    /// Feeds one response. Events of a response in several fragments are fed together: they may have one revision.
    fn receive(&self, response: WatchResponse, fragments: &mut Vec<KeyEvent>) -> Option<WatchEnd> {
        let header = response.header.unwrap_or_default();
        if response.header.is_some() && self.lineage.is_other_cluster(&header) {
            let why = "the data in etcd was replaced: the watch is at another cluster";
            return Some(WatchEnd::Reload(why.to_owned()));
        }
        if response.compact_revision > 0 {
            return Some(WatchEnd::Reload("events that were not received are compacted".to_owned()));
        }
        if response.canceled {
            return Some(WatchEnd::Broken(response.cancel_reason));
        }
        let is_progress = response.events.is_empty() && !response.created;
        fragments.extend(response.events);
        if response.fragment {
            return None;
        }
        let changes: Vec<DecidedChange> =
            fragments.drain(..).filter_map(|event| self.change(event)).collect();
        if !changes.is_empty() {
            drop(self.feed.apply(changes));
        }
        // The header of a response with events may be newer than its last event, with more to come: only that of a progress
        // notification is a promise.
        if is_progress {
            self.observer.bookmark();
            self.feed.advance(u64::try_from(header.revision).unwrap_or_default());
        }
        let is_watching = self.feed.revision() >= self.must_reach
            && self.state.send_if_modified(|state| {
                let was_broken = *state != WatchState::Watching;
                *state = WatchState::Watching;
                was_broken
            });
        if is_watching {
            tracing::info!("watching etcd again");
        }
        None
    }

    fn change(&self, event: KeyEvent) -> Option<DecidedChange> {
        let is_deletion = event.is_deletion();
        let kv = event.kv?;
        let key = self.keys.store_key(&kv.key)?;
        self.observer.event(&key);
        if is_deletion {
            let revision = u64::try_from(kv.mod_revision).unwrap_or_default();
            return Some(DecidedChange { key, revision, created: 0, change: Change::Delete });
        }
        let stored = stored_record(&self.keys, self.codec.as_ref(), &kv)?;
        let change = Change::Put(stored.record);
        Some(DecidedChange { key: stored.key, revision: stored.revision, created: stored.created, change })
    }
}

async fn ask_progress(sender: &GrpcSender<WatchRequest>) -> Result<(), GrpcStatus> {
    sender.send(&WatchRequest { action: Some(WatchAction::Progress(WatchProgressRequest {})) }).await
}
