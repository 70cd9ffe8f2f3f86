//! Watches: wakes the watchers whose scope an event is in.
//!
//! The history is every watcher's buffer. An event wakes only the watchers whose scope covers its key and records the
//! revision to read from; each watcher then reads at its own pace. A watcher so slow that the history has moved past it
//! is ended.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::error::WatchError;
use crate::key;
use crate::record::StoreEvent;
use crate::working_set::WorkingSet;

/// Maximum number of events that a watcher takes while holding the lock.
const TAKE: usize = 64;
/// Maximum number of events that it examines while holding the lock.
const LOOK: usize = 4096;
/// Value of `WatcherWakeup::pending` when there are no events to read.
const NOTHING: u64 = 0;

/// All watchers, by their scope.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    scopes: Mutex<Scopes>,
}

#[derive(Debug, Default)]
struct Scopes {
    wakeups: HashMap<Box<str>, BTreeMap<u64, Arc<WatcherWakeup>>>,
    count: usize,
    next: u64,
    closed: bool,
}

/// The shared state through which the store wakes a watcher.
#[derive(Debug)]
struct WatcherWakeup {
    /// The revision of the first event that the watcher has not examined, or `NOTHING`.
    pending: AtomicU64,
    wake: Notify,
}

impl Watchers {
    /// Records the events for the watchers of their keys and wakes these.
    pub(crate) fn notify<'e>(&self, events: impl Iterator<Item = &'e Arc<StoreEvent>>) {
        let scopes = self.lock();
        if scopes.count == 0 {
            return;
        }
        let mut notified = Vec::new();
        for event in events {
            for scope in key::scopes(&event.entry.key) {
                let Some(wakeups) = scopes.wakeups.get(scope) else { continue };
                for wakeup in wakeups.values() {
                    let free = wakeup.pending.compare_exchange(
                        NOTHING,
                        event.revision,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                    if free.is_ok() {
                        notified.push(Arc::clone(wakeup));
                    }
                }
            }
        }
        // Waking runs foreign code, so the lock is released first.
        drop(scopes);
        for wakeup in notified {
            wakeup.wake.notify_one();
        }
    }

    /// Makes every watcher examine the history, in which events that it needs may be missing: it ends as lagged then.
    pub(crate) fn wake_all(&self) {
        let scopes = self.lock();
        let notified: Vec<_> = scopes.wakeups.values().flat_map(BTreeMap::values).cloned().collect();
        drop(scopes);
        for wakeup in notified {
            // The lowest revision: a watcher examines from where it is.
            let _ = wakeup.pending.compare_exchange(NOTHING, 1, Ordering::AcqRel, Ordering::Relaxed);
            wakeup.wake.notify_one();
        }
    }

    /// Ends every watch, after it has read the remaining events.
    pub(crate) fn close(&self) {
        let mut scopes = self.lock();
        scopes.closed = true;
        let notified: Vec<_> = scopes.wakeups.values().flat_map(BTreeMap::values).cloned().collect();
        drop(scopes);
        for wakeup in notified {
            wakeup.wake.notify_one();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().count
    }

    fn add(&self, scope: &str) -> (u64, Arc<WatcherWakeup>) {
        let wakeup = Arc::new(WatcherWakeup { pending: AtomicU64::new(NOTHING), wake: Notify::new() });
        let mut scopes = self.lock();
        let id = scopes.next;
        scopes.next += 1;
        scopes.count += 1;
        scopes.wakeups.entry(scope.into()).or_default().insert(id, Arc::clone(&wakeup));
        (id, wakeup)
    }

    fn remove(&self, scope: &str, id: u64) {
        let mut scopes = self.lock();
        let Some(wakeups) = scopes.wakeups.get_mut(scope) else { return };
        if wakeups.remove(&id).is_some() {
            if wakeups.is_empty() {
                scopes.wakeups.remove(scope);
            }
            scopes.count -= 1;
        }
    }

    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Scopes> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of one scope, in revision order.
#[derive(Debug)]
pub struct Watch {
    set: Arc<WorkingSet>,
    scope: Box<str>,
    id: u64,
    wakeup: Arc<WatcherWakeup>,
    /// Events taken from the history but not returned yet.
    taken: VecDeque<Arc<StoreEvent>>,
    /// The revision up to which the history has been examined.
    looked: u64,
    /// The revision of the last returned event, or the revision at which the watch began.
    handed_out: u64,
}

impl Watch {
    /// Watches `scope` after `revision`; the caller has checked that the history still covers it.
    pub(crate) fn new(set: Arc<WorkingSet>, scope: &str, revision: u64) -> Watch {
        let (id, wakeup) = set.watchers.add(scope);
        let mut watch = Watch {
            set,
            scope: scope.into(),
            id,
            wakeup,
            taken: VecDeque::new(),
            looked: revision,
            handed_out: revision,
        };
        // From here on this watcher is notified. Examine earlier events now, so that a watcher without events is not
        // considered behind.
        if watch.set.revision() > revision {
            watch.wakeup.pending.store(revision + 1, Ordering::Release);
            // If it has already fallen behind, the first call of `next` reports that.
            let _ = watch.look();
        }
        watch
    }

    /// Waits for the next event. Cancel safe: dropping the future loses no event.
    pub async fn next(&mut self) -> Result<Arc<StoreEvent>, WatchError> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            if self.set.watchers.is_closed() {
                return Err(WatchError::Closed);
            }
            self.wakeup.wake.notified().await;
        }
    }

    /// Returns the next event if there is one now.
    pub fn try_next(&mut self) -> Result<Option<Arc<StoreEvent>>, WatchError> {
        if self.taken.is_empty() {
            self.look()?;
        }
        let event = self.taken.pop_front();
        if let Some(event) = &event {
            self.handed_out = event.revision;
        }
        Ok(event)
    }

    /// The revision up to and including which all events of this watch have been returned.
    pub fn progress(&self) -> u64 {
        // The order matters: events up to `announced` set `pending` before `announced` was raised.
        let announced = self.set.announced();
        if self.taken.is_empty() && self.wakeup.pending.load(Ordering::Acquire) == NOTHING {
            return self.handed_out.max(announced);
        }
        self.handed_out
    }

    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Takes events from the history until it finds some or reaches the end.
    fn look(&mut self) -> Result<(), WatchError> {
        while self.taken.is_empty() {
            let pending = self.wakeup.pending.swap(NOTHING, Ordering::AcqRel);
            if pending == NOTHING {
                return Ok(());
            }
            let from = pending.max(self.looked + 1);
            let looked = self.set.collect(&self.scope, from, (TAKE, LOOK), &mut self.taken);
            let Some((until, is_newest)) = looked else {
                // Stay lagged: further calls must fail as well.
                self.wakeup.pending.store(pending, Ordering::Release);
                return Err(WatchError::Lagged);
            };
            self.looked = until;
            if !is_newest {
                // Events announced meanwhile are either examined already or come later.
                self.wakeup.pending.store(until + 1, Ordering::Release);
            }
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.set.watchers.remove(&self.scope, self.id);
    }
}
