//! What is counted about a priority level and the flow schemas that lead to it.

use std::sync::Arc;
use std::time::Duration;

use value::Str;

use crate::SeatSeconds;
use crate::estimate::Work;
use crate::fast_path::{self, FastCounters, FastSums};
use crate::queueset::Load;
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

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// No seat is free, and nobody may wait.
    ConcurrencyLimit,
    /// No seat is free, and its queue is full.
    QueueFull,
    /// It waited too long, or its client left.
    TimeOut,
}

impl RejectReason {
    /// Every reason.
    pub const ALL: [RejectReason; 3] = [Self::ConcurrencyLimit, Self::QueueFull, Self::TimeOut];

    /// As metrics say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// What was counted about the requests of one flow schema at one priority level.
#[derive(Clone, Debug)]
pub struct FlowStats {
    /// The flow schema's name.
    pub schema: Str,
    /// Requests that began to execute.
    pub dispatched: u64,
    /// Requests that execute.
    pub executing: i64,
    /// Seats in use, by requests that linger, too.
    pub executing_seats: u64,
    /// Requests that wait; none if none ever did.
    pub in_queue: Option<i64>,
    /// Seats that waiting requests want.
    pub in_queue_seats: u64,
    /// How often the next request did not fit into the free seats.
    pub no_accommodation: u64,
    /// The length of its queue, as each request saw it after it was enqueued.
    pub queue_length: Histogram,
    /// How long requests waited that were not refused at once.
    pub waited: Histogram,
    /// How long requests waited that were refused at once.
    pub waited_in_vain: Histogram,
    /// How long requests executed.
    pub executed: Histogram,
    /// How long watches took to begin.
    pub watches_began: Histogram,
    /// How many watches were interested in mutating requests.
    pub watch_counts: Histogram,
    /// Estimated seats.
    pub estimated_seats: Histogram,
    /// Whether the flow schema exists and leads here.
    pub(crate) is_configured: bool,
    /// What requests on the fast path count; added to the rest by [`FlowStats::take_fast`].
    pub(crate) fast: Arc<FastCounters>,
    /// What has been added already.
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

    /// Adds what was counted on the fast path since the last call. `waits` is whether requests of this level may have to wait. Returns how
    /// many requests have started.
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

    /// A request on the fast path took longer than [`fast_path::SHORT`].
    pub(crate) fn finished_on_fast_path(&mut self, took: Duration) {
        self.finished(Some(took), false);
        self.executing_seats = self.executing_seats.saturating_sub(1);
    }

    /// Whether the flow schema is gone, and its last request too.
    pub(crate) fn is_forgettable(&self) -> bool {
        let has_requests =
            self.executing != 0 || self.executing_seats != 0 || self.in_queue.unwrap_or(0) != 0;
        !self.is_configured && !has_requests
    }

    /// Notes what a request was estimated to cost.
    #[expect(clippy::cast_precision_loss, reason = "for a histogram")]
    pub fn estimated(&mut self, work: &Work, watches: Option<usize>) {
        self.estimated_seats.observe(work.max_seats() as f64);
        if let Some(watches) = watches {
            self.watch_counts.observe(watches as f64);
        }
    }

    /// How many requests were refused for a reason.
    pub fn rejected_for(&self, reason: RejectReason) -> u64 {
        self.rejected.get(reason as usize).copied().unwrap_or_default()
    }

    pub(crate) fn rejected(&mut self, reason: RejectReason) {
        if let Some(count) = self.rejected.get_mut(reason as usize) {
            *count += 1;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "for a histogram")]
    pub(crate) fn entered_queue(&mut self, work: &Work, length: usize) {
        *self.in_queue.get_or_insert(0) += 1;
        self.in_queue_seats += work.max_seats();
        self.queue_length.observe(length as f64);
    }

    /// A request went through an empty queue at once.
    pub(crate) fn passed_queue(&mut self) {
        self.in_queue.get_or_insert(0);
        self.queue_length.observe(1.0);
    }

    pub(crate) fn left_queue(&mut self, work: &Work) {
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

    /// A request stopped executing; without a time, it will go on later.
    pub(crate) fn finished(&mut self, took: Option<Duration>, is_watch: bool) {
        self.executing -= 1;
        let histogram = if is_watch { &mut self.watches_began } else { &mut self.executed };
        if let Some(took) = took {
            histogram.observe(took.as_secs_f64());
        }
    }

    pub(crate) fn gave_back(&mut self, work: &Work) {
        self.executing_seats -= work.max_seats();
    }
}

/// Readings of the virtual time at the last dispatch.
#[derive(Clone, Copy, Debug, Default)]
pub struct DispatchBounds {
    /// The virtual time.
    pub r: SeatSeconds,
    /// The start of the dispatched request.
    pub latest: SeatSeconds,
    /// The earliest and latest start of the oldest requests.
    pub starts: (SeatSeconds, SeatSeconds),
    /// The same, less the estimated work in progress.
    pub discounted: (SeatSeconds, SeatSeconds),
    /// Whether there was a dispatch.
    pub is_known: bool,
}

impl DispatchBounds {
    /// The dispatch of the only request that waits.
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
    /// Waiting requests, as a part of the queues' capacity.
    pub waiting: RatioGauge,
    /// Executing requests, as a part of the seats.
    pub executing: RatioGauge,
    /// Seats in use, as a part of the seats.
    pub seats: RatioGauge,
    /// Seats that could be used, as a part of the seats.
    pub demand: RatioGauge,
    /// The last dispatch.
    pub dispatch: DispatchBounds,
    last: Load,
}

impl LevelGauges {
    pub(crate) fn new(now: Duration) -> Self {
        LevelGauges {
            waiting: RatioGauge::new(REQUEST_UTILIZATION, now),
            executing: RatioGauge::new(REQUEST_UTILIZATION, now),
            seats: RatioGauge::new(SEAT_UTILIZATION, now),
            demand: RatioGauge::new(DEMAND, now),
            dispatch: DispatchBounds::default(),
            last: Load::default(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    pub(crate) fn set_denominators(&mut self, now: Duration, queue_capacity: u64, seats: u64) {
        self.waiting.set_denominator(now, queue_capacity as f64);
        self.executing.set_denominator(now, seats as f64);
        self.seats.set_denominator(now, seats as f64);
        self.demand.set_denominator(now, seats as f64);
    }

    /// Adds requests on the fast path, which take a seat each.
    pub(crate) fn add_busy(&mut self, now: Duration, busy: &BusyTime) {
        for gauge in [&mut self.executing, &mut self.seats, &mut self.demand] {
            gauge.advance_with(now, busy);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    pub(crate) fn set(&mut self, now: Duration, load: Load) {
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

/// Requests of all levels that wait or execute, reading and mutating ones apart.
#[derive(Clone, Debug)]
pub struct Traffic {
    parts: [[TrafficPart; 2]; 2],
}

#[derive(Clone, Debug)]
struct TrafficPart {
    now: i64,
    /// The most since the last look, and at the last look.
    most: i64,
    last_most: i64,
    gauge: RatioGauge,
    /// The use of the fast path that is not in the gauge yet.
    fast: BusyTime,
}

impl TrafficPart {
    fn new(now: Duration) -> Self {
        let fast = BusyTime { nanoseconds: 0, most: 0 };
        TrafficPart { now: 0, most: 0, last_most: 0, gauge: RatioGauge::new(READ_VS_WRITE, now), fast }
    }

    /// Brings the gauge up to date. What was counted on the fast path is reported afterwards, so it is spread over the time that follows.
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

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In a queue.
    Waiting,
    /// At work.
    Executing,
}

impl Traffic {
    /// Nothing yet.
    pub fn new(now: Duration) -> Self {
        let part = || TrafficPart::new(now);
        Traffic { parts: [[part(), part()], [part(), part()]] }
    }

    fn part(&mut self, phase: Phase, mutating: bool) -> Option<&mut TrafficPart> {
        self.parts.get_mut(phase as usize)?.get_mut(usize::from(mutating))
    }

    /// A request enters (`1`) or leaves (`-1`) a phase.
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    pub fn note(&mut self, now: Duration, phase: Phase, mutating: bool, change: i64) {
        if let Some(part) = self.part(phase, mutating) {
            part.now += change;
            part.most = part.most.max(part.now);
            part.advance(now);
            part.gauge.set(now, part.now as f64);
        }
    }

    /// Adds read requests that executed on the fast path since the last call: for how many nanoseconds in all, and the most at one time.
    pub fn note_fast(&mut self, now: Duration, nanoseconds: u64, most: u64) {
        if let Some(part) = self.part(Phase::Executing, false) {
            part.most = part.most.max(part.now.saturating_add_unsigned(most));
            part.fast.nanoseconds = part.fast.nanoseconds.saturating_add(nanoseconds);
            part.fast.most = most;
            part.advance(now);
        }
    }

    /// How many requests may wait and execute.
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    pub fn set_limits(&mut self, now: Duration, waiting: u64, executing: u64) {
        for mutating in [false, true] {
            for (phase, limit) in [(Phase::Waiting, waiting), (Phase::Executing, executing)] {
                if let Some(part) = self.part(phase, mutating) {
                    part.gauge.set_denominator(now, limit as f64);
                }
            }
        }
    }

    /// A second is over: what was the most in it is remembered until the next.
    pub fn tick(&mut self) {
        for part in self.parts.iter_mut().flatten() {
            part.last_most = std::mem::replace(&mut part.most, part.now);
        }
    }

    /// The most requests in a phase in the last second.
    pub fn watermark(&mut self, phase: Phase, mutating: bool) -> i64 {
        self.part(phase, mutating).map_or(0, |part| part.last_most.max(part.most))
    }

    /// The observations of a phase until now.
    pub fn read(&mut self, now: Duration, phase: Phase, mutating: bool) -> Option<Histogram> {
        self.part(phase, mutating).map(|part| {
            part.advance(now);
            part.gauge.read(now)
        })
    }
}
