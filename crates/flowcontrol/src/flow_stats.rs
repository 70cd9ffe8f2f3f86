//! Statistics of a priority level and of the flow schemas that use it.

use std::sync::Arc;
use std::time::Duration;

use value::Str;

use crate::SeatSeconds;
use crate::estimate::WorkEstimate;
use crate::fast_path::{self, FastCounters, FastSums};
use crate::queueset::LevelLoad;
use crate::statistics::{BusyTime, Histogram, RatioGauge};

const QUEUE_LENGTHS: &[f64] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const WATCHES: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0];
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];
const SEAT_UTILIZATION: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const READ_VS_WRITE: &[f64] =
    &[0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const REQUEST_UTILIZATION: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];

/// The reason why a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// No seat is free, and the level does not queue.
    ConcurrencyLimit,
    /// No seat is free, and the queue is full.
    QueueFull,
    /// The request waited too long, or its client disconnected.
    TimeOut,
}

impl RejectReason {
    pub const ALL: [RejectReason; 3] = [Self::ConcurrencyLimit, Self::QueueFull, Self::TimeOut];

    /// The value of the metric label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// Statistics of the requests of one flow schema at one priority level.
#[derive(Clone, Debug)]
pub struct FlowStats {
    /// Name of the flow schema.
    pub schema: Str,
    /// Number of requests that started to execute.
    pub dispatched: u64,
    /// Number of executing requests.
    pub executing: i64,
    /// Seats in use, including those of lingering requests.
    pub executing_seats: u64,
    /// Number of waiting requests; `None` if none ever waited.
    pub in_queue: Option<i64>,
    /// Seats demanded by waiting requests.
    pub in_queue_seats: u64,
    /// How often the next request did not fit into the free seats.
    pub no_accommodation: u64,
    /// Queue length after each request was enqueued, including that request.
    pub queue_length: Histogram,
    /// Waiting time of requests that were not rejected on arrival.
    pub waited: Histogram,
    /// Waiting time of requests that were rejected on arrival.
    pub waited_in_vain: Histogram,
    /// Execution time of requests.
    pub executed: Histogram,
    /// Time until watches were initialized.
    pub watches_began: Histogram,
    /// Number of watches interested in mutating requests.
    pub watch_counts: Histogram,
    /// Estimated seats of requests.
    pub estimated_seats: Histogram,
    /// The flow schema exists and refers to this level.
    pub(crate) is_configured: bool,
    /// Counters of requests on the fast path; added to the rest by [`FlowStats::take_fast`].
    pub(crate) fast: Arc<FastCounters>,
    /// The sums that have been added already.
    fast_taken: FastSums,
    rejected: [u64; 3],
}

impl FlowStats {
    pub(crate) fn new(schema: &str) -> Self {
        FlowStats {
            schema: schema.into(),
            dispatched: 0,
            executing: 0,
            executing_seats: 0,
            in_queue: None,
            in_queue_seats: 0,
            no_accommodation: 0,
            queue_length: Histogram::new(QUEUE_LENGTHS),
            waited: Histogram::new(SECONDS),
            waited_in_vain: Histogram::new(SECONDS),
            executed: Histogram::new(SECONDS),
            watches_began: Histogram::new(SECONDS),
            watch_counts: Histogram::new(WATCHES),
            estimated_seats: Histogram::new(SEATS),
            is_configured: true,
            fast: Arc::default(),
            fast_taken: FastSums::default(),
            rejected: [0; 3],
        }
    }

    /// Adds the counts of the fast path since the last call. `waits` says whether requests of this level may have to wait. Returns the
    /// number of started requests.
    pub(crate) fn take_fast(&mut self, waits: bool) -> u64 {
        let sums = self.fast.sums();
        let FastSums { started, finished, nanoseconds } =
            sums.since(std::mem::replace(&mut self.fast_taken, sums));
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.dispatched += started;
        self.executing += signed(started) - signed(finished);
        self.executing_seats = (self.executing_seats + started).saturating_sub(finished);
        self.estimated_seats.record_many(1.0, started);
        self.executed.record_sum(
            fast_path::SHORT.as_secs_f64(),
            finished,
            Duration::from_nanos(nanoseconds).as_secs_f64(),
        );
        if waits && started > 0 {
            self.in_queue.get_or_insert(0);
            self.queue_length.record_many(1.0, started);
        }
        if waits {
            self.waited.record_many(0.0, started);
        }
        started
    }

    /// Records a fast-path request that took longer than [`fast_path::SHORT`].
    pub(crate) fn finished_on_fast_path(&mut self, took: Duration) {
        self.finished(Some(took), false);
        self.executing_seats = self.executing_seats.saturating_sub(1);
    }

    /// Reports whether the flow schema no longer exists and has no requests.
    pub(crate) fn is_forgettable(&self) -> bool {
        let has_requests =
            self.executing != 0 || self.executing_seats != 0 || self.in_queue.unwrap_or(0) != 0;
        !self.is_configured && !has_requests
    }

    /// Records the estimated cost of a request.
    #[expect(clippy::cast_precision_loss, reason = "for a histogram")]
    pub fn estimated(&mut self, work: &WorkEstimate, watches: Option<usize>) {
        self.estimated_seats.observe(work.max_seats() as f64);
        if let Some(watches) = watches {
            self.watch_counts.observe(watches as f64);
        }
    }

    /// Number of requests rejected for a reason.
    pub fn rejected_for(&self, reason: RejectReason) -> u64 {
        self.rejected.get(reason as usize).copied().unwrap_or_default()
    }

    pub(crate) fn rejected(&mut self, reason: RejectReason) {
        if let Some(count) = self.rejected.get_mut(reason as usize) {
            *count += 1;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "for a histogram")]
    pub(crate) fn entered_queue(&mut self, work: &WorkEstimate, length: usize) {
        *self.in_queue.get_or_insert(0) += 1;
        self.in_queue_seats += work.max_seats();
        self.queue_length.observe(length as f64);
    }

    /// Records a request that passed an empty queue without waiting.
    pub(crate) fn passed_queue(&mut self) {
        self.in_queue.get_or_insert(0);
        self.queue_length.observe(1.0);
    }

    pub(crate) fn left_queue(&mut self, work: &WorkEstimate) {
        *self.in_queue.get_or_insert(0) -= 1;
        self.in_queue_seats -= work.max_seats();
    }

    pub(crate) fn waited(&mut self, time: Duration, admitted: bool) {
        let histogram = if admitted { &mut self.waited } else { &mut self.waited_in_vain };
        histogram.observe(time.as_secs_f64());
    }

    pub(crate) fn started(&mut self, seats: u64, is_new: bool) {
        self.dispatched += u64::from(is_new);
        self.executing += 1;
        self.executing_seats += seats;
    }

    /// Records the end of an execution; `None` for a suspended request that will resume.
    pub(crate) fn finished(&mut self, took: Option<Duration>, is_watch: bool) {
        self.executing -= 1;
        let histogram = if is_watch { &mut self.watches_began } else { &mut self.executed };
        if let Some(took) = took {
            histogram.observe(took.as_secs_f64());
        }
    }

    pub(crate) fn gave_back(&mut self, work: &WorkEstimate) {
        self.executing_seats -= work.max_seats();
    }
}

/// Values of the virtual time at the last dispatch.
#[derive(Clone, Copy, Debug, Default)]
pub struct DispatchBounds {
    /// The virtual time of the dispatch.
    pub r: SeatSeconds,
    /// The virtual start time of the dispatched request.
    pub latest: SeatSeconds,
    /// Minimum and maximum of the virtual start times of the queues' oldest requests.
    pub starts: (SeatSeconds, SeatSeconds),
    /// Like `starts`, less the estimated work of executing requests.
    pub discounted: (SeatSeconds, SeatSeconds),
    /// True after the first dispatch; until then the other fields are not valid.
    pub is_known: bool,
}

impl DispatchBounds {
    /// Records the dispatch of the only waiting request.
    pub(crate) fn note_only(&mut self, r: SeatSeconds, start: SeatSeconds, discounted: SeatSeconds) {
        let (starts, discounted) = ((start, start), (discounted, discounted));
        *self = DispatchBounds { r, latest: start, starts, discounted, is_known: true };
    }

    pub(crate) fn note(
        &mut self,
        r: SeatSeconds,
        latest: SeatSeconds,
        starts: &[(SeatSeconds, SeatSeconds)],
    ) {
        let Some(first) = starts.first() else { return };
        let spread = |of: fn(&(SeatSeconds, SeatSeconds)) -> SeatSeconds| {
            starts.iter().map(of).fold((of(first), of(first)), |(low, high), x| (low.min(x), high.max(x)))
        };
        let (starts, discounted) = (spread(|s| s.0), spread(|s| s.1));
        *self = DispatchBounds { r, latest, starts, discounted, is_known: true };
    }
}

/// Utilization of a level over time.
#[derive(Clone, Debug)]
pub struct LevelGauges {
    /// Waiting requests as a fraction of the queues' capacity.
    pub waiting: RatioGauge,
    /// Executing requests as a fraction of the seats.
    pub executing: RatioGauge,
    /// Seats in use as a fraction of the seats.
    pub seats: RatioGauge,
    /// Seats demanded (in use or waited for) as a fraction of the seats.
    pub demand: RatioGauge,
    /// Bounds recorded at the last dispatch.
    pub dispatch: DispatchBounds,
    last: LevelLoad,
}

impl LevelGauges {
    pub(crate) fn new(now: Duration) -> Self {
        LevelGauges {
            waiting: RatioGauge::new(REQUEST_UTILIZATION, now),
            executing: RatioGauge::new(REQUEST_UTILIZATION, now),
            seats: RatioGauge::new(SEAT_UTILIZATION, now),
            demand: RatioGauge::new(DEMAND, now),
            dispatch: DispatchBounds::default(),
            last: LevelLoad::default(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    pub(crate) fn set_denominators(&mut self, now: Duration, queue_capacity: u64, seats: u64) {
        self.waiting.set_denominator(now, queue_capacity as f64);
        self.executing.set_denominator(now, seats as f64);
        self.seats.set_denominator(now, seats as f64);
        self.demand.set_denominator(now, seats as f64);
    }

    /// Adds requests on the fast path, which use one seat each.
    pub(crate) fn add_busy(&mut self, now: Duration, busy: &BusyTime) {
        for gauge in [&mut self.executing, &mut self.seats, &mut self.demand] {
            gauge.advance_with(now, busy);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    pub(crate) fn set(&mut self, now: Duration, load: LevelLoad) {
        let last = std::mem::replace(&mut self.last, load);
        if last.waiting != load.waiting {
            self.waiting.set(now, load.waiting as f64);
        }
        if last.executing != load.executing {
            self.executing.set(now, load.executing as f64);
        }
        if last.seats_in_use != load.seats_in_use {
            self.seats.set(now, load.seats_in_use as f64);
        }
        if last.seats_in_use + last.seats_waiting != load.seats_in_use + load.seats_waiting {
            self.demand.set(now, (load.seats_in_use + load.seats_waiting) as f64);
        }
    }
}

/// Waiting and executing requests of all levels, separately for read and mutating ones.
#[derive(Clone, Debug)]
pub struct Traffic {
    parts: [[TrafficPart; 2]; 2],
}

#[derive(Clone, Debug)]
struct TrafficPart {
    now: i64,
    /// The maximum in the current second; `last_most` is that of the previous second.
    most: i64,
    last_most: i64,
    gauge: RatioGauge,
    /// Use of the fast path that the gauge does not include yet.
    fast: BusyTime,
}

impl TrafficPart {
    fn new(now: Duration) -> Self {
        let fast = BusyTime { nanoseconds: 0, most: 0 };
        TrafficPart { now: 0, most: 0, last_most: 0, gauge: RatioGauge::new(READ_VS_WRITE, now), fast }
    }

    /// Updates the gauge. Fast-path use is reported afterwards, so it is spread over the time that follows.
    fn advance(&mut self, now: Duration) {
        if self.fast.nanoseconds == 0 {
            return;
        }
        let fits = self.fast.most.saturating_mul(self.gauge.nanoseconds_until(now));
        let nanoseconds = self.fast.nanoseconds.min(fits);
        self.fast.nanoseconds -= nanoseconds;
        self.gauge.advance_with(now, &BusyTime { nanoseconds, ..self.fast });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// The request is in a queue.
    Waiting,
    /// The request is being handled.
    Executing,
}

impl Traffic {
    /// Starts with no requests.
    pub fn new(now: Duration) -> Self {
        let part = || TrafficPart::new(now);
        Traffic { parts: [[part(), part()], [part(), part()]] }
    }

    fn part(&mut self, phase: RequestPhase, mutating: bool) -> Option<&mut TrafficPart> {
        self.parts.get_mut(phase as usize)?.get_mut(usize::from(mutating))
    }

    /// Records that a request enters (`1`) or leaves (`-1`) a phase.
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    pub fn note(&mut self, now: Duration, phase: RequestPhase, mutating: bool, change: i64) {
        if let Some(part) = self.part(phase, mutating) {
            part.now += change;
            part.most = part.most.max(part.now);
            part.advance(now);
            part.gauge.set(now, part.now as f64);
        }
    }

    /// Adds read requests that executed on the fast path since the last call: their total time in nanoseconds, and their maximum number at
    /// one time.
    pub fn note_fast(&mut self, now: Duration, nanoseconds: u64, most: u64) {
        if let Some(part) = self.part(RequestPhase::Executing, false) {
            part.most = part.most.max(part.now.saturating_add_unsigned(most));
            part.fast.nanoseconds = part.fast.nanoseconds.saturating_add(nanoseconds);
            part.fast.most = most;
            part.advance(now);
        }
    }

    /// Sets the maximum numbers of waiting and executing requests.
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    pub fn set_limits(&mut self, now: Duration, waiting: u64, executing: u64) {
        for mutating in [false, true] {
            for (phase, limit) in [(RequestPhase::Waiting, waiting), (RequestPhase::Executing, executing)] {
                if let Some(part) = self.part(phase, mutating) {
                    part.gauge.set_denominator(now, limit as f64);
                }
            }
        }
    }

    /// Ends a second: its maximum is retained until the next call.
    pub fn tick(&mut self) {
        for part in self.parts.iter_mut().flatten() {
            part.last_most = std::mem::replace(&mut part.most, part.now);
        }
    }

    /// Maximum number of requests in a phase during the last second.
    pub fn watermark(&mut self, phase: RequestPhase, mutating: bool) -> i64 {
        self.part(phase, mutating).map_or(0, |part| part.last_most.max(part.most))
    }

    /// The observations of a phase until now.
    pub fn read(&mut self, now: Duration, phase: RequestPhase, mutating: bool) -> Option<Histogram> {
        self.part(phase, mutating).map(|part| {
            part.advance(now);
            part.gauge.read(now)
        })
    }
}
