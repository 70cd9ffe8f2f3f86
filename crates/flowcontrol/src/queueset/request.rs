//! Requests of a queue set: on arrival, while they wait or execute, and when they end.

use std::time::Duration;

use value::Str;

use super::RequestId;
use crate::SeatSeconds;
use crate::estimate::WorkEstimate;
use crate::flow_stats::RejectReason;

/// Data that the caller attaches to a request.
pub trait RequestTicket {
    /// Called when a waiting request may run, with the queue set locked.
    fn dispatched(&mut self);
}

/// For callers that do not wait.
impl RequestTicket for () {
    fn dispatched(&mut self) {}
}

/// A request that asks for seats.
#[derive(Debug)]
pub struct RequestArrival<T> {
    /// Index of its flow schema in this level ([`QueueSet::flow`](super::QueueSet::flow)).
    pub flow: usize,
    pub distinguisher: Str,
    /// Hash of its flow, which selects its queue.
    pub hash: u64,
    /// Its estimated cost in seats and time.
    pub work: WorkEstimate,
    /// Number of watches that will receive its event, if that was determined.
    pub interested_watches: Option<usize>,
    /// True for a watch, of which only the start uses seats.
    pub is_watch: bool,
    /// True if the request executed before and was suspended ([`QueueSet::suspend`](super::QueueSet::suspend)): it is not counted again.
    pub is_resumed: bool,
    pub ticket: T,
}

/// The decision about an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalDecision {
    /// The request may run; [`QueueSet::finish`](super::QueueSet::finish) gives its seats back.
    Executing(RequestId),
    /// The request waits until [`RequestTicket::dispatched`].
    Waiting(RequestId),
    /// The request is rejected for this reason.
    Rejected(RejectReason),
}

/// The result of [`QueueSet::withdraw`](super::QueueSet::withdraw).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// The request was waiting and has been removed.
    Removed,
    /// The request was already dispatched and is executing.
    Executing,
    /// No request has this identity.
    Unknown,
}

/// The state after a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The caller must call [`QueueSet::release`](super::QueueSet::release) after this time: the request occupies its seats until then.
    pub linger: Option<Duration>,
    /// No request waits or executes any more.
    pub is_idle: bool,
}

/// A request that waits or occupies seats.
#[derive(Debug)]
pub struct TrackedRequest<T> {
    /// Index of its flow schema.
    pub flow: usize,
    pub distinguisher: Str,
    /// Its work; final seats are reduced to the limit when it is dispatched.
    pub work: WorkEstimate,
    /// Time at which it arrived.
    pub arrived: Duration,
    /// Time at which it started to execute; `None` while it waits.
    pub started: Option<Duration>,
    /// Index of its queue; `None` without queues.
    pub queue: Option<u32>,
    pub ticket: T,
    pub(super) hash: u64,
    /// Its work as estimated on arrival.
    pub(super) arrival_work: WorkEstimate,
    pub(super) is_watch: bool,
    pub(super) is_resumed: bool,
    pub(super) is_lingering: bool,
    pub(super) arrived_at: SeatSeconds,
    pub(super) total_work: SeatSeconds,
    pub(super) final_work: SeatSeconds,
}

impl<T> TrackedRequest<T> {
    /// Reports whether it executes; afterwards it may still occupy seats.
    pub fn is_executing(&self) -> bool {
        self.started.is_some() && !self.is_lingering
    }

    /// Reduces final seats to `limit`, for a longer time.
    pub(super) fn fit_to(&mut self, limit: u64) {
        if self.work.final_seats > limit {
            self.work.final_seats = limit;
            self.work.additional_latency = self.final_work.duration_on(limit);
        }
    }
}

/// The values that are recorded when a request starts to execute.
pub(super) struct Execution {
    pub(super) flow: usize,
    pub(super) seats: u64,
    pub(super) waited: Duration,
    /// True if the request starts for the first time.
    pub(super) is_new: bool,
}

impl Execution {
    pub(super) fn of<T>(request: &TrackedRequest<T>, now: Duration) -> Self {
        Execution {
            flow: request.flow,
            seats: request.work.max_seats(),
            waited: now.saturating_sub(request.arrived),
            is_new: !request.is_resumed,
        }
    }
}
