//! Runs large requests on separate threads, so that small requests, health checks and leases never wait for
//! them.
//!
//! Decoding, patching, validating and admitting a 3 MB object takes some hundred milliseconds of one core,
//! during which an async worker thread can do nothing else. So every request starts on the main runtime, and
//! once it is known to be large ([`Effort::enter_lane`]) its future moves to the [`HeavyLane`]: a second
//! runtime with fewer threads of lower priority. Only polling moves; timers, webhook connections and commits
//! still belong to the main runtime.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use admission::expression::take_yielded_cost;
use api::Status;
use prometheus::{IntCounter, IntGauge};

use crate::metrics::MetricRegistry;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use value::{Budget, BudgetEnded, Str};

/// Bodies and stored objects of more bytes than this are large. One of this size takes about 5 ms in a
/// release build, the most that other requests should wait for.
pub const LARGE: usize = 64 * 1024;

/// Steps that one request may take: some seconds of work, and far more than kube-apiserver can do before its
/// timeout.
const STEPS: u64 = 100_000_000;

/// Steps that a request may take on the main runtime, some milliseconds. Work that needs more restarts in the
/// lane.
const QUICK_STEPS: u64 = 100_000;

/// Cost of admission expressions that a request may evaluate on the main runtime, which runs other requests
/// in between. A request whose expressions cost more continues in the lane.
const QUICK_COST: u64 = 1_000_000;

/// Increment of the `nice` value of the lane's threads.
const NICENESS: i32 = 10;

/// The runtime for large requests.
pub struct HeavyLane {
    /// `None` only during drop.
    runtime: Option<Runtime>,
    turns: Arc<Turns>,
    requests: IntCounter,
    cancelled: IntCounter,
    running: IntGauge,
}

/// Requests of one account that may be queued in the lane at once. Its other requests wait outside, so that a
/// request of another account has only few before it.
const TURNS: usize = 2;

/// One semaphore of [`TURNS`] permits per account that has requests in the lane or waiting for it.
#[derive(Debug, Default)]
struct Turns {
    accounts: Mutex<HashMap<Str, Arc<Semaphore>>>,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, HashMap<Str, Arc<Semaphore>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the account may run one more request in the lane.
    async fn take(self: &Arc<Self>, account: &Str) -> AccountTurn {
        let of_account =
            Arc::clone(self.lock().entry(account.clone()).or_insert_with(|| Arc::new(Semaphore::new(TURNS))));
        let mut turn = AccountTurn { turns: Arc::clone(self), account: account.clone(), permit: None };
        turn.permit = of_account.acquire_owned().await.ok();
        turn
    }
}

/// A permit of an account, or the wait for it. Its drop admits the account's next request.
#[derive(Debug)]
struct AccountTurn {
    turns: Arc<Turns>,
    account: Str,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for AccountTurn {
    fn drop(&mut self) {
        self.permit = None;
        let mut accounts = self.turns.lock();
        // Every other turn of the account, held or awaited, has a reference to the semaphore too.
        if accounts.get(&self.account).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            accounts.remove(&self.account);
        }
    }
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
        let requests = IntCounter::new(
            "portcullis_large_requests_total",
            "Requests with large bodies or objects that ran on the heavy lane.",
        );
        let cancelled = IntCounter::new(
            "portcullis_large_requests_cancelled_total",
            "Requests on the heavy lane that were cancelled because their time was over or their client gone.",
        );
        let running = IntGauge::new(
            "portcullis_large_requests_running",
            "Requests with large bodies or objects that are on the heavy lane now.",
        );
        let (requests, running) = (requests.map_err(io::Error::other)?, running.map_err(io::Error::other)?);
        let cancelled = cancelled.map_err(io::Error::other)?;
        registry.register(Box::new(requests.clone())).map_err(io::Error::other)?;
        registry.register(Box::new(cancelled.clone())).map_err(io::Error::other)?;
        registry.register(Box::new(running.clone())).map_err(io::Error::other)?;
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

/// The computation budget and state of one request. Clones share both.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Remaining steps; cancelled when the client no longer waits for the response.
    pub budget: Budget,
    known: Arc<EffortState>,
}

/// State shared by all clones of an [`Effort`].
#[derive(Debug, Default)]
struct EffortState {
    is_large: AtomicBool,
    /// Total cost of expressions at the last yield.
    evaluated: AtomicU64,
    /// Set by the first write: from then on the request runs to completion, even if its client is gone.
    has_written: AtomicBool,
    /// Set once the requested resource is found. Before that its strings are client input and must not become
    /// metric labels.
    is_routed: AtomicBool,
    /// Account whose turns in the lane it uses; a request without an account needs none.
    account: OnceLock<Str>,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { budget: Budget::new(STEPS), known: Arc::default() }
    }
}

impl Effort {
    /// Moves the request to the heavy lane if `size` bytes are large. Has no effect on requests that
    /// [`HeavyLane::drive`] does not drive.
    pub async fn enter_lane(&self, size: usize) {
        if size <= LARGE || self.known.is_large.swap(true, Ordering::Relaxed) {
            return;
        }
        // The driver moves the work when it yields here.
        admission::expression::yield_now().await;
    }

    /// Runs work that counts its steps: first here with few steps, and if these do not suffice, again in the
    /// lane with all that are left. Even a small request can be expensive because of the schema that it is
    /// validated against.
    pub async fn spend<T>(&self, mut work: impl FnMut(&Budget) -> T) -> T {
        if !self.is_large() {
            let few = self.budget.attempt(QUICK_STEPS);
            let done = work(&few);
            if few.check() != Err(BudgetEnded::Exhausted) {
                return done;
            }
            drop(done);
            self.enter_lane(usize::MAX).await;
        }
        work(&self.budget)
    }

    /// Must be called before each write. Fails if the deadline has passed and nothing is written yet: the
    /// client has received a timeout, audit has recorded it, and a webhook that fails open may have been cut
    /// off by the client's own deadline. A request that has already written runs to completion.
    pub fn begin_write(&self, deadline: Option<Instant>) -> Result<(), Status> {
        let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        if is_late && !self.known.has_written.load(Ordering::Relaxed) {
            return Err(too_late());
        }
        self.known.has_written.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Records that the requested resource is served.
    pub fn set_routed(&self) {
        self.known.is_routed.store(true, Ordering::Relaxed);
    }

    /// True once the requested resource is known to be served.
    pub fn is_routed(&self) -> bool {
        self.known.is_routed.load(Ordering::Relaxed)
    }

    /// True once the request has begun to write.
    pub fn has_written(&self) -> bool {
        self.known.has_written.load(Ordering::Relaxed)
    }

    /// Sets the account whose turns in the lane this request uses.
    pub fn set_account(&self, account: &Str) {
        // Only the first call, after authentication, has an effect.
        let _ = self.known.account.set(account.clone());
    }

    fn account(&self) -> Option<&Str> {
        self.known.account.get()
    }

    /// Adds the cost of evaluated expressions, and makes the request large above [`QUICK_COST`].
    fn add_evaluated(&self, cost: u64) {
        let before = self.known.evaluated.fetch_add(cost, Ordering::Relaxed);
        if before.saturating_add(cost) > QUICK_COST {
            self.known.is_large.store(true, Ordering::Relaxed);
        }
    }

    fn is_large(&self) -> bool {
        self.known.is_large.load(Ordering::Relaxed)
    }

    /// Fails with a timeout if the client no longer waits for the response, unless the request has begun to
    /// write.
    pub fn check(&self) -> Result<(), Status> {
        match self.budget.check() {
            Err(BudgetEnded::Cancelled) if !self.known.has_written.load(Ordering::Relaxed) => Err(too_late()),
            // Code that counts steps reports an exhausted budget itself.
            Err(BudgetEnded::Cancelled | BudgetEnded::Exhausted) | Ok(()) => Ok(()),
        }
    }
}

/// Status 504 for a request past its deadline.
fn too_late() -> Status {
    Status::timeout("request did not complete within the allotted timeout", 0)
}

/// Cancels a request's budget if dropped before the response, as when the client disconnects.
pub struct CancelOnDrop(Option<Budget>);

impl CancelOnDrop {
    pub fn new(effort: &Effort) -> Self {
        CancelOnDrop(Some(effort.budget.clone()))
    }

    /// Call this once the request is answered.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(budget) = &self.0 {
            budget.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    fn thread_name() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_large_work_moves_to_the_lane_and_what_it_spawns_stays_home() {
        let lane = HeavyLane::start(&MetricRegistry::new()).expect("the lane starts");
        for (size, in_lane) in [(LARGE, false), (LARGE + 1, true)] {
            let effort = Effort::default();
            let names = Arc::new(Mutex::new(Vec::new()));
            let (seen, inner) = (Arc::clone(&names), effort.clone());
            lane.drive(
                &effort,
                None,
                Box::pin(async move {
                    inner.enter_lane(size).await;
                    let own = thread_name();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let spawned = tokio::spawn(async { thread_name() }).await.unwrap_or_default();
                    seen.lock().expect("not poisoned").extend([own, spawned, thread_name()]);
                }),
            )
            .await;
            let names = names.lock().expect("not poisoned").clone();
            let moved: Vec<bool> = names.iter().map(|name| name.starts_with("heavy-lane")).collect();
            assert_eq!(moved, [in_lane, false, in_lane], "{size}: {names:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn expressions_that_cost_much_move_to_the_lane() {
        let lane = HeavyLane::start(&MetricRegistry::new()).expect("the lane starts");
        for (cost, in_lane) in [(QUICK_COST / 2, false), (QUICK_COST, true)] {
            let work = Box::pin(async move {
                let pace = admission::expression::YieldPacer::default();
                pace.add(cost);
                pace.yield_now().await;
                thread_name()
            });
            let name = lane.drive(&Effort::default(), None, work).await.unwrap_or_default();
            assert_eq!(name.starts_with("heavy-lane"), in_lane, "{cost}: {name}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_that_takes_many_steps_begins_again_in_the_lane() {
        let lane = HeavyLane::start(&MetricRegistry::new()).expect("the lane starts");
        for (steps, in_lane) in [(QUICK_STEPS, false), (QUICK_STEPS + 1, true)] {
            let effort = Effort::default();
            let inner = effort.clone();
            let work =
                Box::pin(
                    async move { inner.spend(|budget| (budget.spend(steps).is_ok(), thread_name())).await },
                );
            let (is_enough, name) = lane.drive(&effort, None, work).await.unwrap_or_default();
            assert!(is_enough, "{steps}");
            assert_eq!(name.starts_with("heavy-lane"), in_lane, "{steps}: {name}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn busy_work_in_the_lane_ends_at_the_deadline() {
        let lane = HeavyLane::start(&MetricRegistry::new()).expect("the lane starts");
        let effort = Effort::default();
        let inner = effort.clone();
        let deadline = Instant::now() + Duration::from_millis(20);
        lane.drive(
            &effort,
            Some(deadline),
            Box::pin(async move {
                inner.enter_lane(usize::MAX).await;
                // The loop never awaits: only the cancellation ends it.
                while inner.check().is_ok() {
                    std::hint::spin_loop();
                }
            }),
        )
        .await;
        assert_eq!(effort.check().expect_err("it was cancelled").code(), 504);
        assert_eq!(lane.running.get(), 0);
    }

    #[tokio::test]
    async fn a_request_that_waits_does_not_use_the_turns_of_its_account() {
        let lane = Arc::new(HeavyLane::start(&MetricRegistry::new()).unwrap());
        let effort = || {
            let effort = Effort::default();
            effort.set_account(&Str::from("alice"));
            effort
        };
        let (answer, answered) = tokio::sync::watch::channel(false);
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..=TURNS {
            let (lane, effort) = (Arc::clone(&lane), effort());
            let (inner, answer, mut answered) = (effort.clone(), answer.clone(), answered.clone());
            requests.spawn(async move {
                let work = Box::pin(async move {
                    inner.enter_lane(usize::MAX).await;
                    // All other requests wait for the last one.
                    if number == TURNS {
                        answer.send_replace(true);
                    }
                    answered.wait_for(|answered| *answered).await.is_ok()
                });
                lane.drive(&effort, None, work).await
            });
        }
        let all = tokio::time::timeout(Duration::from_secs(30), requests.join_all()).await;
        assert_eq!(all.expect("the requests block each other"), vec![Some(true); TURNS + 1]);
    }

    #[tokio::test]
    async fn a_request_that_only_lets_others_run_keeps_its_turn() {
        let lane = Arc::new(HeavyLane::start(&MetricRegistry::new()).unwrap());
        let (ends, ended) = tokio::sync::watch::channel(false);
        let (rests, mut rested) = tokio::sync::mpsc::unbounded_channel();
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..=TURNS {
            let (lane, effort) = (Arc::clone(&lane), Effort::default());
            effort.set_account(&Str::from("alice"));
            let (inner, rests, ended) = (effort.clone(), rests.clone(), ended.clone());
            let work = Box::pin(async move {
                inner.enter_lane(usize::MAX).await;
                let pace = admission::expression::YieldPacer::default();
                while !*ended.borrow() {
                    let _ = rests.send(number);
                    pace.add(QUICK_COST);
                    pace.yield_now().await;
                }
            });
            requests.spawn(async move { lane.drive(&effort, None, work).await });
        }
        let mut seen = Vec::new();
        while seen.len() < 100 {
            seen.extend(rested.recv().await);
        }
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() <= TURNS, "{seen:?}");
        ends.send_replace(true);
        assert_eq!(requests.join_all().await, vec![Some(()); TURNS + 1]);
    }

    #[tokio::test]
    async fn accounts_have_turns_of_their_own_and_are_forgotten() {
        let turns = Arc::new(Turns::default());
        let (alice, bob) = (Str::from("alice"), Str::from("bob"));
        let held = [turns.take(&alice).await, turns.take(&alice).await];
        let waiting = tokio::spawn({
            let (turns, alice) = (Arc::clone(&turns), alice.clone());
            async move { turns.take(&alice).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "a third request of the account waits");
        drop(turns.take(&bob).await);
        let [first, second] = held;
        drop(first);
        drop(waiting.await.unwrap());
        drop(second);
        assert!(turns.lock().is_empty());
    }
}
