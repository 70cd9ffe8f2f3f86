//! The loop that runs every controller: changes become keys, workers reconcile the keys, failures are retried.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use runtime::LogLimit;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, warn};
use value::Backoff;

use crate::api::{Api, ChangeStream as _, ObjectChange, ObjectEvent, WatchSource};
use crate::queue::{KeyOutcome, WorkQueue};

/// Capacity of the channel from the watches to the loop.
const CHANNEL_CAPACITY: usize = 256;
/// Consecutive failures of a key from which on they are logged as warnings.
const WARN_AFTER_FAILURES: u32 = 8;

/// The part that differs between controllers.
pub(crate) trait Controller: Send + Sync + 'static {
    /// Identifies one unit of reconciliation; a key is never reconciled twice at the same time.
    type Key: Clone + Debug + Eq + Hash + Send + 'static;

    /// Controller name in log lines.
    const NAME: &'static str;
    /// Number of keys reconciled concurrently.
    const WORKERS: usize;
    /// Delay of retries after failures.
    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_mins(5));

    /// Maps a change to the keys it affects, each with the delay before it is reconciled. Changes of one source arrive in order.
    fn observe(&self, change: &ObjectChange) -> Vec<(Self::Key, Duration)>;

    /// Called before a source is listed again; observations from it may have missed changes. No key is reconciled before all
    /// sources are listed.
    fn restart(&self, source: &WatchSource) {
        let _ = source;
    }

    /// Brings the object behind one key into its desired state.
    fn reconcile(
        &self,
        key: Self::Key,
    ) -> impl Future<Output = Result<ReconcileOutcome<Self::Key>, Status>> + Send;
}

/// The follow-up of a successful reconciliation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileOutcome<K> {
    /// No further work for this key.
    Done,
    /// The key must be reconciled again after this delay.
    After(Duration),
    /// These keys must be reconciled now.
    Keys(Vec<K>),
}

enum SourceMessage {
    /// The full list of a source follows, as changes.
    Restart(usize, WatchSource),
    /// The list of that source is complete.
    Listed(usize),
    Change(ObjectChange),
}

/// Runs a controller over its sources until `stop` becomes true, then waits for reconciliations in progress.
pub(crate) async fn run<C: Controller>(
    controller: C,
    api: Arc<impl Api>,
    sources: Vec<WatchSource>,
    mut stop: watch::Receiver<bool>,
) {
    let controller = Arc::new(controller);
    let (sender, mut messages) = mpsc::channel(CHANNEL_CAPACITY);
    let mut feeds = JoinSet::new();
    let mut unlisted: HashSet<usize> = (0..sources.len()).collect();
    for (number, what) in sources.into_iter().enumerate() {
        feeds.spawn(feed(Arc::clone(&api), number, what, sender.clone()));
    }
    drop(sender);
    let mut queue: WorkQueue<C::Key> = WorkQueue::new(C::BACKOFF);
    let mut work: JoinSet<Result<ReconcileOutcome<C::Key>, Status>> = JoinSet::new();
    let mut keys: HashMap<Id, C::Key> = HashMap::new();
    loop {
        while unlisted.is_empty() && work.len() < C::WORKERS {
            let Some(key) = queue.take(Instant::now()) else { break };
            let task = work.spawn({
                let (controller, key) = (Arc::clone(&controller), key.clone());
                async move { controller.reconcile(key).await }
            });
            keys.insert(task.id(), key);
        }
        // A due key cannot be taken while all workers are busy; a finishing worker wakes the loop.
        let due = queue.due().filter(|_| unlisted.is_empty() && work.len() < C::WORKERS);
        tokio::select! {
            _ = stop.wait_for(|stopping| *stopping) => break,
            message = messages.recv() => match message {
                Some(SourceMessage::Restart(number, what)) => {
                    unlisted.insert(number);
                    controller.restart(&what);
                }
                Some(SourceMessage::Listed(number)) => {
                    unlisted.remove(&number);
                }
                Some(SourceMessage::Change(change)) => {
                    let now = Instant::now();
                    for (key, wait) in controller.observe(&change) {
                        queue.add(key, now + wait, now);
                    }
                }
                None => break,
            },
            Some(ended) = work.join_next_with_id(), if !work.is_empty() => {
                let (id, result) = match ended {
                    Ok((id, result)) => (id, result),
                    Err(panicked) => {
                        error!(controller = C::NAME, error = %panicked, "reconciliation panicked; retrying with backoff");
                        (panicked.id(), Err(Status::internal("the reconciliation panicked")))
                    }
                };
                if let Some(key) = keys.remove(&id) {
                    finish::<C>(&mut queue, &key, result);
                }
            }
            () = wait_until(due), if due.is_some() => {}
        }
    }
    feeds.abort_all();
    // Let running reconciliations finish, so that no write is interrupted halfway.
    while work.join_next().await.is_some() {}
}

fn finish<C: Controller>(
    queue: &mut WorkQueue<C::Key>,
    key: &C::Key,
    result: Result<ReconcileOutcome<C::Key>, Status>,
) {
    let now = Instant::now();
    let outcome = match &result {
        Ok(ReconcileOutcome::After(wait)) => KeyOutcome::After(*wait),
        Ok(ReconcileOutcome::Done | ReconcileOutcome::Keys(_)) => KeyOutcome::Done,
        Err(_) => KeyOutcome::Failed,
    };
    let failures = queue.finish(key.clone(), outcome, now);
    match result {
        Ok(ReconcileOutcome::Keys(more)) => more.into_iter().for_each(|key| queue.add(key, now, now)),
        Ok(_) => {}
        Err(error) if failures >= WARN_AFTER_FAILURES => {
            // A user can create any number of objects that cannot be reconciled.
            static LOG: LogLimit = LogLimit::with_burst(20);
            if let Some(unlogged) = LOG.due() {
                warn!(controller = C::NAME, ?key, %error, failures, unlogged, "reconciliation keeps failing; retrying with backoff");
            }
        }
        Err(error) => {
            debug!(controller = C::NAME, ?key, %error, failures, "reconciliation failed; retrying with backoff");
        }
    }
}

async fn wait_until(due: Option<Instant>) {
    if let Some(due) = due {
        sleep_until(due).await;
    }
}

/// Sends the current state and then the changes of a source; starts over when its watch misses changes.
async fn feed(api: Arc<impl Api>, number: usize, what: WatchSource, messages: mpsc::Sender<SourceMessage>) {
    loop {
        let (initial, mut watch) = api.watch(&what);
        if messages.send(SourceMessage::Restart(number, what.clone())).await.is_err() {
            return;
        }
        for change in initial {
            if messages.send(SourceMessage::Change(change)).await.is_err() {
                return;
            }
        }
        if messages.send(SourceMessage::Listed(number)).await.is_err() {
            return;
        }
        loop {
            match watch.next().await {
                ObjectEvent::Change(change) => {
                    if messages.send(SourceMessage::Change(change)).await.is_err() {
                        return;
                    }
                }
                ObjectEvent::Lost => break,
                ObjectEvent::Closed => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
