//! The seats of one request: taken before it runs, released while its body arrives, and returned when it ends.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flowcontrol::{
    ArrivalDecision, Ended, FastSeat, RequestArrival, RequestId, RequestPhase, WatchIdentifier, WatchTracker,
    Withdrawn,
};
use tokio::sync::oneshot;

use super::{Assignment, ClientGone, MatchedUids, Waiter};

/// Longest time that a request may wait in its queue.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// A request may wait for `1 / WAIT_PART` of its allowed time.
const WAIT_PART: u32 = 4;

/// The seats of one request; released on drop.
#[derive(Debug)]
pub(crate) struct FairSeat {
    pub(super) assignment: Assignment,
    pub(super) hold: Hold,
    is_read_only: bool,
    gone: ClientGone,
    pub(super) watch: Option<Box<OpenWatch>>,
}

/// The request's current share of its priority level.
#[derive(Debug)]
pub(super) enum Hold {
    /// No seat now or later.
    Nothing,
    /// One seat of the fast path.
    Fast(FastSeat),
    /// Released its fast-path seat and may take one again.
    LeftFastPath,
    /// A position in a queue.
    Queued(RequestId),
    /// Seats of the priority level.
    Executing(RequestId),
    /// Released its seats; the arrival is queued again by `reacquire`.
    Suspended(Box<RequestArrival<Waiter>>),
}

/// Outcome of a request for seats.
enum Started {
    Executing {
        /// True if more requests are present than the level has seats. Most requests never await, so each
        /// would release its seat before the next is polled, none would ever queue, and the client that sends
        /// most would get most. Such a request yields once while it holds its seat, so that the others queue,
        /// where flows are separated.
        is_crowded: bool,
    },
    Refused,
    /// Queued until it is dispatched.
    Waiting(QueueWait),
}

impl FairSeat {
    pub(super) fn new(assignment: Assignment, hold: Hold, is_read_only: bool, gone: ClientGone) -> Self {
        FairSeat { assignment, hold, is_read_only, gone, watch: None }
    }

    /// The values of the response's uid headers.
    pub(crate) fn uids(&self) -> Option<MatchedUids> {
        self.assignment.uids()
    }

    /// Gives a seat of the fast path back for good, and returns when. Other seats are released on drop.
    pub(crate) fn end(&mut self) -> Option<Instant> {
        match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Fast(seat) => {
                let now = Instant::now();
                self.leave_fast_path(now, seat);
                Some(now)
            }
            other => {
                self.hold = other;
                None
            }
        }
    }

    /// Releases the seats temporarily; a watch stays registered.
    pub(crate) fn release(&mut self) {
        self.hold = match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Fast(seat) => {
                self.leave_fast_path(Instant::now(), seat);
                Hold::LeftFastPath
            }
            // A watch needs no seat after its initial events.
            Hold::Executing(id) if self.watch.is_some() => {
                self.finish(id);
                Hold::Nothing
            }
            Hold::Executing(id) => {
                let now = self.assignment.shared().now();
                let (ended, arrival) = self.assignment.class().level.queues().suspend(now, id);
                self.stops_executing(now);
                self.ended(now, id, ended);
                arrival.map_or(Hold::Nothing, |arrival| Hold::Suspended(Box::new(arrival)))
            }
            other => other,
        };
    }

    /// Takes seats again, queued in the same flow. An error is the `Retry-After` delay in seconds.
    pub(crate) async fn reacquire(&mut self) -> Result<(), u64> {
        let is_admitted = match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Suspended(arrival) => {
                // It was admitted in time. Its new wait is limited by its own deadline and by what a new
                // request may wait.
                let allowed = self.assignment.shared().request_timeout;
                self.take(*arrival, Instant::now(), allowed).await
            }
            Hold::LeftFastPath => {
                let shared = self.assignment.shared();
                let seat = self.assignment.class().enter_fast_path(Instant::now(), shared.present.estimate());
                self.hold = seat.map_or(Hold::LeftFastPath, Hold::Fast);
                matches!(self.hold, Hold::Fast(_))
            }
            other => {
                self.hold = other;
                true
            }
        };
        if is_admitted { Ok(()) } else { Err(self.count_rejection()) }
    }

    /// Takes seats for a request that arrived at `arrived` and may take `allowed`; `false` if none are free
    /// in time.
    pub(super) async fn take(
        &mut self,
        arrival: RequestArrival<Waiter>,
        arrived: Instant,
        allowed: Duration,
    ) -> bool {
        match self.start(arrival) {
            Started::Executing { is_crowded } => {
                if is_crowded {
                    admission::expression::yield_now().await;
                }
                true
            }
            Started::Refused => false,
            Started::Waiting(waiting) => Box::pin(self.wait(waiting, arrived, allowed)).await,
        }
    }

    /// Requests seats without waiting.
    fn start(&mut self, arrival: RequestArrival<Waiter>) -> Started {
        let now = self.assignment.shared().now();
        let mut queues = self.assignment.class().level.queues();
        match queues.start(now, arrival) {
            ArrivalDecision::Executing(id) => {
                let is_crowded = queues.limit() < self.assignment.shared().present.count();
                drop(queues);
                self.begins(now, id);
                Started::Executing { is_crowded: is_crowded && !self.assignment.class().is_exempt }
            }
            ArrivalDecision::Rejected(_) => Started::Refused,
            ArrivalDecision::Waiting(id) => {
                let (wake, dispatched) = oneshot::channel();
                if let Some(ticket) = queues.ticket_mut(id) {
                    ticket.wake = Some(wake);
                }
                drop(queues);
                self.hold = Hold::Queued(id);
                Started::Waiting(QueueWait::begin(self, now, dispatched))
            }
        }
    }

    /// Waits in the queue for a part of `allowed`; `false` if no seat becomes free in time or the client
    /// disconnects.
    async fn wait(&mut self, mut waiting: QueueWait, since: Instant, allowed: Duration) -> bool {
        let until = since.checked_add(longest_queue_wait(allowed)).unwrap_or(since);
        let is_dispatched = tokio::select! {
            biased;
            woken = &mut waiting.dispatched => woken.is_ok(),
            () = tokio::time::sleep_until(until.into()) => false,
            () = self.gone.wait() => false,
        };
        drop(waiting);
        let Hold::Queued(id) = self.hold else { return false };
        let now = self.assignment.shared().now();
        // It may have been dispatched at the last moment.
        if is_dispatched || self.assignment.class().level.queues().withdraw(now, id) == Withdrawn::Executing {
            self.begins(now, id);
            return true;
        }
        self.hold = Hold::Nothing;
        false
    }

    fn begins(&mut self, now: Duration, id: RequestId) {
        self.hold = Hold::Executing(id);
        self.note(now, RequestPhase::Executing, 1);
    }

    fn stops_executing(&self, now: Duration) {
        self.note(now, RequestPhase::Executing, -1);
    }

    fn note(&self, now: Duration, phase: RequestPhase, change: i64) {
        self.assignment.shared().traffic().note(now, phase, !self.is_read_only, change);
    }

    /// Counts a rejection; returns the `Retry-After` delay in seconds.
    pub(super) fn count_rejection(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.assignment.class().level.record_rejection(now.as_secs())
    }

    fn finish(&self, id: RequestId) {
        let now = self.assignment.shared().now();
        let ended = self.assignment.class().level.queues().finish(now, id);
        self.stops_executing(now);
        self.ended(now, id, ended);
    }

    fn leave_fast_path(&self, now: Instant, seat: FastSeat) {
        let (class, shared) = (self.assignment.class(), self.assignment.shared());
        class.leave_fast_path(now, seat, shared.epoch);
        if class.level.is_quiescing() {
            shared.changed.notify_one();
        }
    }

    /// Finishes the release of seats: wakes the configuration task, and ends the linger time of final seats
    /// later.
    fn ended(&self, now: Duration, id: RequestId, ended: Ended) {
        let level = &self.assignment.class().level;
        if ended.is_idle && level.is_quiescing() {
            self.assignment.shared().changed.notify_one();
        }
        let Some(linger) = ended.linger else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let assignment = self.assignment.clone();
                drop(runtime.spawn(async move {
                    tokio::time::sleep(linger).await;
                    assignment.class().level.queues().release(assignment.shared().now(), id);
                }));
            }
            Err(_) => level.queues().release(now, id),
        }
    }
}

impl Drop for FairSeat {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Fast(seat) => self.leave_fast_path(Instant::now(), seat),
            Hold::Executing(id) => self.finish(id),
            Hold::Queued(id) => {
                let now = self.assignment.shared().now();
                let ended = self.assignment.class().level.queues().leave(now, id);
                self.ended(now, id, ended);
            }
            Hold::Nothing | Hold::LeftFastPath | Hold::Suspended(_) => {}
        }
    }
}

/// Guard that counts a request as queued until it is dropped.
struct QueueWait {
    assignment: Assignment,
    is_read_only: bool,
    dispatched: oneshot::Receiver<()>,
}

impl QueueWait {
    fn begin(seat: &FairSeat, now: Duration, dispatched: oneshot::Receiver<()>) -> Self {
        seat.note(now, RequestPhase::Waiting, 1);
        QueueWait { assignment: seat.assignment.clone(), is_read_only: seat.is_read_only, dispatched }
    }
}

impl Drop for QueueWait {
    fn drop(&mut self) {
        let shared = self.assignment.shared();
        shared.traffic().note(shared.now(), RequestPhase::Waiting, !self.is_read_only, -1);
    }
}

/// Guard that registers an open watch until it is dropped.
#[derive(Debug)]
pub(super) struct OpenWatch {
    watches: Arc<WatchTracker>,
    scope: WatchIdentifier,
}

impl OpenWatch {
    pub(super) fn begin(watches: &Arc<WatchTracker>, scope: WatchIdentifier) -> Self {
        watches.register(&scope);
        OpenWatch { watches: Arc::clone(watches), scope }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.watches.forget(&self.scope);
    }
}

/// Longest queue wait of a request that may take `allowed` in total.
fn longest_queue_wait(allowed: Duration) -> Duration {
    (allowed / WAIT_PART).min(MAX_WAIT)
}
