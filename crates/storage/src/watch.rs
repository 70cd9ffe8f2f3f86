//! Watches: an event wakes the watchers whose scope covers its key.
//!
//! Watchers have no buffers of their own: they share the history. Waking a watcher records the revision from which it
//! has to read; it then reads the history at its own pace. A watcher is ended when the history no longer has the events
//! that it has not read.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

use crate::error::WatchError;
use crate::key;
use crate::record::StoreEvent;
use crate::working_set::WorkingSet;

/// Maximum number of events that a watcher takes while holding the lock.
const MAX_TAKEN_LOCKED: usize = 64;
/// Maximum number of events that it examines while holding the lock.
const MAX_EXAMINED_LOCKED: usize = 4096;
/// Value of `WatcherWakeup::pending` when there are no events to read.
const NO_EVENT_PENDING: u64 = 0;

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
    /// The revision of the first event that the watcher has not examined, or `NO_EVENT_PENDING`.
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
                        NO_EVENT_PENDING,
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
            let _ = wakeup.pending.compare_exchange(NO_EVENT_PENDING, 1, Ordering::AcqRel, Ordering::Relaxed);
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
        let wakeup =
            Arc::new(WatcherWakeup { pending: AtomicU64::new(NO_EVENT_PENDING), wake: Notify::new() });
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
    /// [`WorkingSet::reloads`] when the watch began.
    reloads: u64,
    /// Watches of the same scope in other clusters; usually none.
    others: Vec<Watch>,
}

impl Watch {
    /// A number that two watches have in common only if the content of the store was not replaced between their beginnings: a revision of a
    /// key then has the same content in both.
    pub fn lineage(&self) -> u64 {
        self.reloads
    }

    /// Watches `scope` after `revision`; the caller has checked that the history still covers it, and has read `reloads` before.
    pub(crate) fn new(set: Arc<WorkingSet>, scope: &str, revision: u64, reloads: u64) -> Watch {
        let (id, wakeup) = set.watchers.add(scope);
        let mut watch = Watch {
            set,
            scope: scope.into(),
            id,
            wakeup,
            taken: VecDeque::new(),
            looked: revision,
            handed_out: revision,
            reloads,
            others: Vec::new(),
        };
        // From here on this watcher is notified. Examine earlier events now, so that a watcher without events is not
        // considered behind.
        if watch.set.revision() > revision || watch.set.reloads() != reloads {
            watch.wakeup.pending.store(revision + 1, Ordering::Release);
            // If it has already fallen behind, the first call of `next` reports that.
            let _ = watch.look();
        }
        watch
    }

    /// Returns the events of these watches as well. Those of one watch stay in order.
    pub(crate) fn and_also(mut self, others: Vec<Watch>) -> Watch {
        self.others = others;
        self
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
            self.woken().await;
        }
    }

    /// Waits until one of the watches may have an event, or is closed.
    async fn woken(&self) {
        let own = self.wakeup.wake.notified();
        if self.others.is_empty() {
            return own.await;
        }
        let others = self.others.iter().map(|other| other.wakeup.wake.notified());
        let mut all: Vec<_> = std::iter::once(own).chain(others).map(Box::pin).collect();
        std::future::poll_fn(|context| {
            let is_woken = all.iter_mut().any(|notified| notified.as_mut().poll(context).is_ready());
            if is_woken { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Returns the next event if there is one now.
    pub fn try_next(&mut self) -> Result<Option<Arc<StoreEvent>>, WatchError> {
        if self.taken.is_empty() {
            self.look()?;
        }
        if let Some(event) = self.taken.pop_front() {
            self.handed_out = event.revision;
            return Ok(Some(event));
        }
        for other in &mut self.others {
            if let Some(event) = other.try_next()? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The revision up to and including which all events of this watch have been returned, without those of other clusters.
    pub fn progress(&self) -> u64 {
        // The order matters: events up to `announced` set `pending` before `announced` was raised.
        let announced = self.set.announced();
        let is_valid = self.set.reloads() == self.reloads;
        if is_valid
            && self.taken.is_empty()
            && self.wakeup.pending.load(Ordering::Acquire) == NO_EVENT_PENDING
        {
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
            let pending = self.wakeup.pending.swap(NO_EVENT_PENDING, Ordering::AcqRel);
            if pending == NO_EVENT_PENDING {
                return Ok(());
            }
            let from = pending.max(self.looked + 1);
            let is_valid = self.set.reloads() == self.reloads;
            let limits = (MAX_TAKEN_LOCKED, MAX_EXAMINED_LOCKED);
            let looked = self.set.collect(&self.scope, from, limits, &mut self.taken);
            let Some((until, is_newest)) = looked.filter(|_| is_valid) else {
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
