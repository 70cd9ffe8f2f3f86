//! Runs large requests on separate threads, so that small requests, health checks and leases never wait for
//! them.
//!
//! Decoding, patching, validating and admitting a 3 MB object takes some hundred milliseconds of one core,
//! during which an async worker thread can do nothing else. So every request starts on the main runtime, and
//! once it is known to be large ([`Effort::enter_lane`]) its future moves to the [`HeavyLane`]: a second
//! runtime with fewer threads of lower priority. Only polling moves; timers, webhook connections and commits
//! still belong to the main runtime.
//!
//! ```
//! use heavy_lane::{Effort, HeavyLane, LARGE};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let lane = HeavyLane::start(&runtime::MetricRegistry::new()).unwrap();
//! let effort = Effort::default();
//! let request = effort.clone();
//! let work = Box::pin(async move {
//!     request.enter_lane(LARGE + 1).await;
//!     std::thread::current().name() == Some("heavy-lane")
//! });
//! assert_eq!(lane.drive(&effort, None, work).await, Some(true));
//! # });
//! ```

mod background;
mod effort;
mod locked;
mod turns;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use admission::expression::{QUICK_COST, YieldPacer, take_yielded_cost};
use prometheus::{IntCounter, IntGauge};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use value::BudgetEnded;

pub use effort::{CancelOnDrop, Effort};
pub use locked::without_turn;
use runtime::MetricRegistry;
pub use turns::LaneAccount;
use turns::{AccountTurns, RequestTurn};

/// Bodies and stored objects of more bytes than this are large. One of this size takes about 5 ms in a
/// release build, the most that other requests should wait for.
pub const LARGE: usize = 64 * 1024;

/// Moves the request that this is a part of to the heavy lane if `size` bytes are large, where its [`Effort`] is not at hand. Outside of
/// requests it only yields.
pub async fn enter_lane(size: usize) {
    if size > LARGE {
        let pacer = YieldPacer::default();
        pacer.add(QUICK_COST);
        pacer.yield_now().await;
    }
}

/// Reading one object takes at least about as long as processing this many bytes.
pub const BYTES_PER_OBJECT: usize = 512;

/// Cost of expressions that takes about as long as processing one byte of an object.
const COST_OF_BYTE: u64 = 4;

/// Yields after work with an object of `size` bytes, and counts that work: a request with many objects continues in the heavy lane.
pub async fn yield_after(size: usize) {
    let pacer = YieldPacer::default();
    let work = u64::try_from(size.saturating_add(BYTES_PER_OBJECT)).unwrap_or(u64::MAX);
    pacer.add(work.saturating_mul(COST_OF_BYTE));
    pacer.yield_now().await;
}

/// Increment of the `nice` value of the lane's threads.
const NICENESS: i32 = 10;

/// The runtime for large requests.
pub struct HeavyLane {
    /// `None` only during drop.
    runtime: Option<Runtime>,
    turns: Arc<AccountTurns>,
    requests: IntCounter,
    canceled: IntCounter,
    running: IntGauge,
    background_tasks: IntCounter,
}

impl HeavyLane {
    /// Starts half as many threads as there are cores, at least one.
    pub fn start(registry: &MetricRegistry) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = (cores / 2).max(1);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("heavy-lane")
            .on_thread_start(|| {
                background::mark_lane_thread();
                // On Linux this affects only the calling thread. If it fails, the lane still has fewer
                // threads than cores.
                let _ = rustix::process::nice(NICENESS);
            })
            .build()?;
        let requests = registry.counter(
            "portcullis_large_requests_total",
            "Requests with large bodies or objects that ran on the heavy lane.",
        );
        let canceled = registry.counter(
            "portcullis_large_requests_cancelled_total",
            "Number of large requests that were canceled because they timed out or their client disconnected.",
        );
        let running = registry.gauge(
            "portcullis_large_requests_running",
            "Requests with large bodies or objects that are on the heavy lane now.",
        );
        let background_tasks = registry.counter(
            "portcullis_large_background_tasks_total",
            "Background work on large data, such as reads of controllers, that ran on the heavy lane.",
        );
        let (requests, running) = (requests.map_err(io::Error::other)?, running.map_err(io::Error::other)?);
        let canceled = canceled.map_err(io::Error::other)?;
        let background_tasks = background_tasks.map_err(io::Error::other)?;
        let turns = Arc::new(AccountTurns::new(turns::class_turns(threads)));
        Ok(HeavyLane { runtime: Some(runtime), turns, requests, canceled, running, background_tasks })
    }

    /// Runs a request's work to completion: on the main runtime, and in the lane once it becomes large. Work
    /// in the lane is canceled at the deadline. Returns `None` if it panicked or the server stops.
    pub async fn drive<T: Send + 'static>(
        &self,
        effort: &Effort,
        deadline: Option<Instant>,
        mut work: Pin<Box<dyn Future<Output = T> + Send>>,
    ) -> Option<T> {
        let done = poll_fn(|context| {
            take_yielded_cost();
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            effort.add_evaluated(take_yielded_cost());
            if effort.is_large() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await;
        if done.is_some() {
            return done;
        }
        let runtime = self.runtime.as_ref()?;
        let turn = match effort.account() {
            None => None,
            Some(account) => Some(RequestTurn::take(&self.turns, account, deadline).await),
        };
        self.requests.inc();
        self.running.inc();
        let _in_lane = LaneGaugeGuard(self.running.clone());
        let mut running =
            AbortOnDrop(runtime.spawn(AtHome { home: Handle::current(), work, turn, needs_no_turn: false }));
        let in_time = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline.into(), &mut running.0).await.ok(),
            None => None,
        };
        let ended = match in_time {
            Some(ended) => ended,
            None => {
                if deadline.is_some() {
                    effort.budget.cancel();
                }
                (&mut running.0).await
            }
        };
        if effort.budget.check() == Err(BudgetEnded::Canceled) {
            self.canceled.inc();
        }
        ended.ok()
    }
}

impl Drop for HeavyLane {
    fn drop(&mut self) {
        // Waiting for the threads would block the runtime on which this is dropped.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Aborts the work in the lane when its awaiting future is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct LaneGaugeGuard(IntGauge);

impl Drop for LaneGaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A future polled by the lane inside the context of the main runtime, which runs its spawned tasks and
/// timers.
struct AtHome<T> {
    home: Handle,
    work: Pin<Box<dyn Future<Output = T> + Send>>,
    /// Given up while the work waits for something, but not when it only yields: a webhook may call this server with the same account before
    /// it answers, and both would wait for each other.
    turn: Option<RequestTurn>,
    /// The work waited inside of [`without_turn`], so that it continues without one.
    needs_no_turn: bool,
}

impl<T> Future for AtHome<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let home = self.home.clone();
        let _home = home.enter();
        if !self.needs_no_turn
            && let Some(turn) = &mut self.turn
        {
            ready!(turn.poll_retake(context));
        }
        locked::take_waits();
        take_yielded_cost();
        let polled = self.work.as_mut().poll(context);
        let only_gave_way = take_yielded_cost() > 0;
        self.needs_no_turn = locked::take_waits();
        if polled.is_pending()
            && !only_gave_way
            && let Some(turn) = &mut self.turn
        {
            turn.release();
        }
        polled
    }
}

#[cfg(test)]
mod tests;
