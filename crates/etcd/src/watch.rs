//! The watch on the whole prefix, which feeds the working set.

use std::sync::Arc;
use std::time::Duration;

use grpc::{GrpcSender, GrpcStatus, GrpcStream};
use storage::Change;
use storage::backend::{Done, Feed};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use value::Backoff;

use crate::backend::ValueCodec;
use crate::client::{EtcdClient, prefix_end};
use crate::key_space::KeySpace;
use crate::load::{load, stored_record};
use crate::messages::{
    KeyEvent, WatchAction, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};

/// Interval of progress requests while a reader waits for a revision.
const ASK_PROGRESS: Duration = Duration::from_millis(100);
/// A member that does not confirm a watch in this time is given up.
const CREATE_TIMEOUT: Duration = Duration::from_secs(5);
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
    pub(crate) feed: Feed,
    /// The highest revision that a reader waits for.
    pub(crate) wanted: watch::Receiver<u64>,
    /// Changes when the working set must be loaded again.
    pub(crate) reloads: watch::Receiver<u64>,
    pub(crate) state: watch::Sender<WatchState>,
}

/// Why a watch stream ended.
enum WatchEnd {
    /// The working set must be loaded again, for this reason.
    Reload(&'static str),
    Broken(String),
}

impl WatchTask {
    /// Watches until the task is aborted. The feed has been loaded.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST_DELAY, LAST_DELAY);
        loop {
            let fed = self.feed.revision();
            let end = match self.client.watch().await {
                Ok(stream) => self.follow(stream).await,
                Err(status) => WatchEnd::Broken(status.message),
            };
            if self.feed.revision() > fed {
                backoff.reset();
            }
            let reason = match end {
                WatchEnd::Reload(why) => match self.reload(why).await {
                    Ok(()) => continue,
                    Err(status) => status.message,
                },
                WatchEnd::Broken(reason) => reason,
            };
            self.client.prefer_another();
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

    /// Replaces the working set with etcd's current state, because events were missed.
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
        self.feed.reload(loaded.revision, loaded.records);
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
        loop {
            let is_behind = *self.wanted.borrow() > self.feed.revision();
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
                        Ok(()) => WatchEnd::Reload("memory differs from etcd"),
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
                    if let Err(status) = ask_progress(&sender).await {
                        return WatchEnd::Broken(status.message);
                    }
                }
            }
        }
    }

    /// Feeds one response. Events of a response in several fragments are fed together: they may have one revision.
    fn receive(&self, response: WatchResponse, fragments: &mut Vec<KeyEvent>) -> Option<WatchEnd> {
        if response.compact_revision > 0 {
            return Some(WatchEnd::Reload("events that were not received are compacted"));
        }
        if response.canceled {
            return Some(WatchEnd::Broken(response.cancel_reason));
        }
        let is_progress = response.events.is_empty() && !response.created;
        fragments.extend(response.events);
        if response.fragment {
            return None;
        }
        if response.created && self.state.send_replace(WatchState::Watching) != WatchState::Watching {
            tracing::info!("watching etcd again");
        }
        let changes: Vec<Done> = fragments.drain(..).filter_map(|event| self.change(event)).collect();
        if !changes.is_empty() {
            drop(self.feed.apply(changes));
        }
        // The header of a response with events may be newer than its last event, with more to come: only that of a progress
        // notification is a promise.
        if is_progress {
            let revision = response.header.unwrap_or_default().revision;
            self.feed.advance(u64::try_from(revision).unwrap_or_default());
        }
        None
    }

    fn change(&self, event: KeyEvent) -> Option<Done> {
        let is_deletion = event.is_deletion();
        let kv = event.kv?;
        if is_deletion {
            let revision = u64::try_from(kv.mod_revision).unwrap_or_default();
            let key = self.keys.store_key(&kv.key)?;
            return Some(Done { key, revision, created: 0, change: Change::Delete });
        }
        let stored = stored_record(&self.keys, self.codec.as_ref(), &kv)?;
        let change = Change::Put(stored.record);
        Some(Done { key: stored.key, revision: stored.revision, created: stored.created, change })
    }
}

async fn ask_progress(sender: &GrpcSender<WatchRequest>) -> Result<(), GrpcStatus> {
    sender.send(&WatchRequest { action: Some(WatchAction::Progress(WatchProgressRequest {})) }).await
}
