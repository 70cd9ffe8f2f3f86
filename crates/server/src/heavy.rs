//! Runs large requests on separate threads, so that small requests, health checks and leases never wait for
//! them.
//!
//! Decoding, patching, validating and admitting a 3 MB object takes some hundred milliseconds of one core,
//! during which an async worker thread can do nothing else. So every request starts on the main runtime, and
//! once it is known to be large ([`Effort::enter_lane`]) its future moves to the [`HeavyLane`]: a second
//! runtime with fewer threads of lower priority. Only polling moves; timers, webhook connections and commits
//! still belong to the main runtime.

mod effort;
mod turns;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use admission::expression::{YieldPacer, take_yielded_cost};
use prometheus::{IntCounter, IntGauge};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use value::BudgetEnded;

pub use effort::{CancelOnDrop, Effort};
use runtime::MetricRegistry;
use turns::{AccountTurn, AccountTurns};

/// Bodies and stored objects of more bytes than this are large. One of this size takes about 5 ms in a
/// release build, the most that other requests should wait for.
pub const LARGE: usize = 64 * 1024;

/// Moves the request that this is a part of to the heavy lane if `size` bytes are large, where its [`Effort`] is not at hand. Outside of
/// requests it only yields.
pub async fn enter_lane(size: usize) {
    if size > LARGE {
        let pacer = YieldPacer::default();
        pacer.add(effort::QUICK_COST);
        pacer.yield_now().await;
    }
}

/// Increment of the `nice` value of the lane's threads.
const NICENESS: i32 = 10;

/// The runtime for large requests.
pub struct HeavyLane {
    /// `None` only during drop.
    runtime: Option<Runtime>,
    turns: Arc<AccountTurns>,
    requests: IntCounter,
    cancelled: IntCounter,
    running: IntGauge,
}

impl HeavyLane {
    /// Starts half as many threads as there are cores, at least one.
    pub fn start(registry: &MetricRegistry) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let runtime = Builder::new_multi_thread()
            .worker_threads((cores / 2).max(1))
            .thread_name("heavy-lane")
            .on_thread_start(|| {
                // On Linux this affects only the calling thread. If it fails, the lane still has fewer
                // threads than cores.
                let _ = rustix::process::nice(NICENESS);
            })
            .build()?;
        let requests = registry.counter(
            "portcullis_large_requests_total",
            "Requests with large bodies or objects that ran on the heavy lane.",
        );
        let cancelled = registry.counter(
            "portcullis_large_requests_cancelled_total",
            "Number of large requests that were cancelled because they timed out or their client disconnected.",
        );
        let running = registry.gauge(
            "portcullis_large_requests_running",
            "Requests with large bodies or objects that are on the heavy lane now.",
        );
        let (requests, running) = (requests.map_err(io::Error::other)?, running.map_err(io::Error::other)?);
        let cancelled = cancelled.map_err(io::Error::other)?;
        Ok(HeavyLane { runtime: Some(runtime), turns: Arc::default(), requests, cancelled, running })
    }

    /// Runs a request's work to completion: on the main runtime, and in the lane once it becomes large. Work
    /// in the lane is cancelled at the deadline. Returns `None` if it panicked or the server stops.
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
        let turn = match (effort.account(), deadline) {
            (None, _) => None,
            (Some(account), None) => Some(self.turns.take(account).await),
            // Work that waited too long still runs: it ends at its next check of the budget, which is
            // cancelled below.
            (Some(account), Some(deadline)) => {
                tokio::time::timeout_at(deadline.into(), self.turns.take(account)).await.ok()
            }
        };
        self.requests.inc();
        self.running.inc();
        let _leaving = Leaving(self.running.clone());
        let mut running = AbortOnDrop(runtime.spawn(AtHome { home: Handle::current(), work, turn }));
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
        if effort.budget.check() == Err(BudgetEnded::Cancelled) {
            self.cancelled.inc();
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

struct Leaving(IntGauge);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A future polled by the lane inside the context of the main runtime, which runs its spawned tasks and
/// timers.
struct AtHome<T> {
    home: Handle,
    work: Pin<Box<dyn Future<Output = T> + Send>>,
    /// Released when the work first waits for something, but not when it only yields. A webhook may call this
    /// server with the same account before it answers: if the turn were not released, both would wait for
    /// each other.
    turn: Option<AccountTurn>,
}

impl<T> Future for AtHome<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let home = self.home.clone();
        let _home = home.enter();
        take_yielded_cost();
        let polled = self.work.as_mut().poll(context);
        let only_gave_way = take_yielded_cost() > 0;
        if polled.is_pending() && !only_gave_way {
            self.turn = None;
        }
        polled
    }
}

#[cfg(test)]
mod tests;
