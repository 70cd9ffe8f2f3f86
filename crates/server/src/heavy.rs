//! Large requests run on threads of their own, so that small ones, health checks and leases never wait for them.
//!
//! Decoding, patching, validating and admitting an object of three megabytes takes some hundred milliseconds of one core, during
//! which an async worker answers nobody else. So a request starts like every other one, and as soon as it is known to be large
//! ([`Effort::enter_lane`]) its future moves to the [`HeavyLane`]: a second runtime with fewer threads, which have a lower
//! priority. Only the polling moves. What the future starts (timers, connections to webhooks, commits) belongs to the main runtime
//! as before.

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

/// Bodies and stored objects of more bytes are large. One of this size takes about 5 ms (in a release build), the limit of
/// what others may have to wait for.
pub const LARGE: usize = 64 * 1024;

/// The steps that one request may take: far more than kube-apiserver can take before a request times out, and some seconds here.
const STEPS: u64 = 100_000_000;

/// The steps that a request may take on the threads of small requests, some milliseconds. Work that needs more begins again in the lane.
const QUICK_STEPS: u64 = 100_000;

/// What the expressions of policies and webhooks may cost on the threads of small requests, which run others in between. A request
/// whose expressions cost more goes on in the lane.
const QUICK_COST: u64 = 1_000_000;

/// How much lower the priority of the lane's threads is (`nice`).
const NICENESS: i32 = 10;

/// The threads for large requests.
pub struct HeavyLane {
    /// Taken only when this is dropped.
    runtime: Option<Runtime>,
    turns: Arc<Turns>,
    requests: IntCounter,
    cancelled: IntCounter,
    running: IntGauge,
}

/// How many requests of one account may be queued for the threads of the lane. Its other requests wait outside, so that a request of
/// another account has only few before it.
const TURNS: usize = 2;

/// The turns of all accounts that have requests in the lane or waiting for it.
#[derive(Debug, Default)]
struct Turns {
    accounts: Mutex<HashMap<Str, Arc<Semaphore>>>,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, HashMap<Str, Arc<Semaphore>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the account may have one more request in the lane.
    async fn take(self: &Arc<Self>, account: &Str) -> Turn {
        let of_account =
            Arc::clone(self.lock().entry(account.clone()).or_insert_with(|| Arc::new(Semaphore::new(TURNS))));
        let mut turn = Turn { turns: Arc::clone(self), account: account.clone(), permit: None };
        turn.permit = of_account.acquire_owned().await.ok();
        turn
    }
}

/// One of an account's turns, or the wait for it. Dropping it lets the account's next request in.
#[derive(Debug)]
struct Turn {
    turns: Arc<Turns>,
    account: Str,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.permit = None;
        let mut accounts = self.turns.lock();
        // Every other turn of the account, and every wait for one, holds the semaphore as well.
        if accounts.get(&self.account).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            accounts.remove(&self.account);
        }
    }
}

impl HeavyLane {
    /// Starts the threads: half as many as there are cores, at least one.
    pub fn start(registry: &MetricRegistry) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let runtime = Builder::new_multi_thread()
            .worker_threads((cores / 2).max(1))
            .thread_name("heavy-lane")
            .on_thread_start(|| {
                // On Linux this is about the calling thread. Where it fails the lane still has fewer threads than there are cores.
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

    /// Runs the work of a request to its end: here, and in the lane once it asks for that. Work in the lane is cancelled when the
    /// deadline passes. `None` if it did not come to its end: it panicked, or the server stops.
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
            // Work that waited too long still has to run: it ends at its next check of the budget, which is cancelled below.
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
        // Waiting for threads would block the runtime that this is dropped on.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Work in the lane ends with whoever waits for it.
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

/// Work that is polled by one runtime and belongs to another: what it spawns and waits for goes there.
struct AtHome<T> {
    home: Handle,
    work: Pin<Box<dyn Future<Output = T> + Send>>,
    /// Given back when the work first waits for something, but not when it only lets others run. A webhook may call this server as the
    /// same account before it answers: if the turn were kept, both would wait for each other.
    turn: Option<Turn>,
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

/// What a request may still do, and where it does it. Clones are about the same request.
#[derive(Clone, Debug)]
pub struct Effort {
    /// The steps that are left; cancelled when nobody waits for the answer.
    pub budget: Budget,
    known: Arc<Known>,
}

/// What is known of a request, to all who hold its [`Effort`].
#[derive(Debug, Default)]
struct Known {
    is_large: AtomicBool,
    /// What its expressions cost when it last let others run.
    evaluated: AtomicU64,
    /// Whether something was written: from then on the request comes to its end, whoever waits for it.
    has_written: AtomicBool,
    /// Whether what it is about is served. Until then its words are the client's own, and must not become labels of metrics.
    is_routed: AtomicBool,
    /// Whose turns in the lane it uses; it needs none without an account.
    account: OnceLock<Str>,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { budget: Budget::new(STEPS), known: Arc::default() }
    }
}

impl Effort {
    /// Moves the request to the heavy lane if `size` bytes are much. Requests that are not driven by [`HeavyLane::drive`] stay
    /// where they are.
    pub async fn enter_lane(&self, size: usize) {
        if size <= LARGE || self.known.is_large.swap(true, Ordering::Relaxed) {
            return;
        }
        // The driver sees this as the moment to move the work.
        admission::expression::yield_now().await;
    }

    /// Does work that counts its steps: here with few of them, and if they do not suffice again in the lane, with all that are left.
    /// A small request may be much work, because of the schema that it is validated against.
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

    /// Before a write. A request whose time is over writes nothing: its client has been told that it failed, audit has recorded
    /// that, and a webhook that fails open may have been cut off by the client's own deadline. A request that has written before
    /// comes to its end.
    pub fn begin_write(&self, deadline: Option<Instant>) -> Result<(), Status> {
        let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        if is_late && !self.known.has_written.load(Ordering::Relaxed) {
            return Err(too_late());
        }
        self.known.has_written.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The request is about something that is served.
    pub fn set_routed(&self) {
        self.known.is_routed.store(true, Ordering::Relaxed);
    }

    /// Whether the request is known to be about something that is served.
    pub fn is_routed(&self) -> bool {
        self.known.is_routed.load(Ordering::Relaxed)
    }

    /// Whether something was written.
    pub fn has_written(&self) -> bool {
        self.known.has_written.load(Ordering::Relaxed)
    }

    /// Says whose request this is. Its work shares the lane's turns of that account.
    pub fn set_account(&self, account: &Str) {
        // Said once, when its caller is known.
        let _ = self.known.account.set(account.clone());
    }

    fn account(&self) -> Option<&Str> {
        self.known.account.get()
    }

    /// Counts what expressions cost that were evaluated for the request.
    fn add_evaluated(&self, cost: u64) {
        let before = self.known.evaluated.fetch_add(cost, Ordering::Relaxed);
        if before.saturating_add(cost) > QUICK_COST {
            self.known.is_large.store(true, Ordering::Relaxed);
        }
    }

    fn is_large(&self) -> bool {
        self.known.is_large.load(Ordering::Relaxed)
    }

    /// Refuses to go on when nobody waits for the answer, as a request is refused whose time is over. What has begun to write
    /// goes on.
    pub fn check(&self) -> Result<(), Status> {
        match self.budget.check() {
            Err(BudgetEnded::Cancelled) if !self.known.has_written.load(Ordering::Relaxed) => Err(too_late()),
            // Whoever counts the steps says what was too much.
            Err(BudgetEnded::Cancelled | BudgetEnded::Exhausted) | Ok(()) => Ok(()),
        }
    }
}

/// What a request is told whose time is over.
fn too_late() -> Status {
    Status::timeout("request did not complete within the allotted timeout", 0)
}

/// Cancels a request when it is dropped before it was answered: with the client's connection.
pub struct CancelOnDrop(Option<Budget>);

impl CancelOnDrop {
    /// Cancels `effort`.
    pub fn new(effort: &Effort) -> Self {
        CancelOnDrop(Some(effort.budget.clone()))
    }

    /// The request was answered.
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
                // Nothing is awaited here: only the cancellation ends it.
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
                    // The others wait for what the last one does.
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
