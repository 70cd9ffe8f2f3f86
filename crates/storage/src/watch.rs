//! Watches: who is told about which event.
//!
//! The history is every watcher's buffer. An event wakes only the watchers whose scope covers its key and leaves them
//! the revision to look from; each then reads on from there at its own pace. A watcher that is so slow that the history
//! has moved past it is ended.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::error::WatchError;
use crate::key;
use crate::record::Event;
use crate::working_set::WorkingSet;

/// How many events a watcher takes per time it takes the lock.
const TAKE: usize = 64;
/// How many events it looks at in that time.
const LOOK: usize = 4096;
/// `Ticket::pending` when there is nothing to look for.
const NOTHING: u64 = 0;

/// All watchers, by their scope.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    scopes: Mutex<Scopes>,
}

#[derive(Debug, Default)]
struct Scopes {
    tickets: HashMap<Box<str>, BTreeMap<u64, Arc<Ticket>>>,
    count: usize,
    next: u64,
    closed: bool,
}

/// What connects a watcher to those who tell it.
#[derive(Debug)]
struct Ticket {
    /// The revision of the first event that the watcher has not looked at, or `NOTHING`.
    pending: AtomicU64,
    wake: Notify,
}

impl Watchers {
    /// Leaves word of the events for those who watch their keys.
    pub(crate) fn tell<'e>(&self, events: impl Iterator<Item = &'e Arc<Event>>) {
        let scopes = self.lock();
        if scopes.count == 0 {
            return;
        }
        let mut told = Vec::new();
        for event in events {
            for scope in key::scopes(&event.entry.key) {
                let Some(tickets) = scopes.tickets.get(scope) else { continue };
                for ticket in tickets.values() {
                    let free = ticket.pending.compare_exchange(
                        NOTHING,
                        event.revision,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                    if free.is_ok() {
                        told.push(Arc::clone(ticket));
                    }
                }
            }
        }
        // Waking runs code that is not ours, so no lock is held.
        drop(scopes);
        for ticket in told {
            ticket.wake.notify_one();
        }
    }

    /// Ends every watch, once it has read what there is.
    pub(crate) fn close(&self) {
        let mut scopes = self.lock();
        scopes.closed = true;
        let told: Vec<_> = scopes.tickets.values().flat_map(BTreeMap::values).cloned().collect();
        drop(scopes);
        for ticket in told {
            ticket.wake.notify_one();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().count
    }

    fn add(&self, scope: &str) -> (u64, Arc<Ticket>) {
        let ticket = Arc::new(Ticket { pending: AtomicU64::new(NOTHING), wake: Notify::new() });
        let mut scopes = self.lock();
        let id = scopes.next;
        scopes.next += 1;
        scopes.count += 1;
        scopes.tickets.entry(scope.into()).or_default().insert(id, Arc::clone(&ticket));
        (id, ticket)
    }

    fn remove(&self, scope: &str, id: u64) {
        let mut scopes = self.lock();
        let Some(tickets) = scopes.tickets.get_mut(scope) else { return };
        if tickets.remove(&id).is_some() {
            if tickets.is_empty() {
                scopes.tickets.remove(scope);
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
    ticket: Arc<Ticket>,
    /// Events that were taken and not yet handed out.
    taken: VecDeque<Arc<Event>>,
    /// The revision up to which the history has been looked at.
    looked: u64,
    /// The revision of the last event that was handed out, or at which the watch began.
    handed_out: u64,
}

impl Watch {
    /// Watches what happens in `scope` after `revision`, which the caller has checked to be known.
    pub(crate) fn new(set: Arc<WorkingSet>, scope: &str, revision: u64) -> Watch {
        let (id, ticket) = set.watchers.add(scope);
        let mut watch = Watch {
            set,
            scope: scope.into(),
            id,
            ticket,
            taken: VecDeque::new(),
            looked: revision,
            handed_out: revision,
        };
        // From here on it is told. What it was not told before is looked up now, so that a watcher for whom there is
        // nothing is not behind.
        if watch.set.revision() > revision {
            watch.ticket.pending.store(revision + 1, Ordering::Release);
            // Should it have fallen behind already, the first call says so.
            let _ = watch.look();
        }
        watch
    }

    /// The next event. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Event>, WatchError> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            if self.set.watchers.is_closed() {
                return Err(WatchError::Closed);
            }
            self.ticket.wake.notified().await;
        }
    }

    /// The next event if there is one now.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, WatchError> {
        if self.taken.is_empty() {
            self.look()?;
        }
        let event = self.taken.pop_front();
        if let Some(event) = &event {
            self.handed_out = event.revision;
        }
        Ok(event)
    }

    /// Everything this watch has to say up to and including this revision has been handed out.
    pub fn progress(&self) -> u64 {
        // The order matters: events up to `announced` have left word before it was raised.
        let announced = self.set.announced();
        if self.taken.is_empty() && self.ticket.pending.load(Ordering::Acquire) == NOTHING {
            return self.handed_out.max(announced);
        }
        self.handed_out
    }

    /// What is watched.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Takes events out of the history until there is one, or no more to look at.
    fn look(&mut self) -> Result<(), WatchError> {
        while self.taken.is_empty() {
            let pending = self.ticket.pending.swap(NOTHING, Ordering::AcqRel);
            if pending == NOTHING {
                return Ok(());
            }
            let from = pending.max(self.looked + 1);
            let looked = self.set.collect(&self.scope, from, (TAKE, LOOK), &mut self.taken);
            let Some((until, is_newest)) = looked else {
                // It stays lagged, however often it is asked.
                self.ticket.pending.store(pending, Ordering::Release);
                return Err(WatchError::Lagged);
            };
            self.looked = until;
            if !is_newest {
                // Whatever has been announced meanwhile is either looked at already or comes later.
                self.ticket.pending.store(until + 1, Ordering::Release);
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
