//! How much a request may compute, and whether it is large.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use admission::expression::QUICK_COST;
use api::Status;
use value::{Budget, BudgetEnded, steps};

use super::LARGE;
use super::turns::LaneAccount;

/// Steps that one request may take: some seconds of work, and far more than kube-apiserver can do before its
/// timeout.
const STEPS: u64 = 100_000_000;

/// Steps that a request may take on the main runtime, some milliseconds. Work that needs more restarts in the
/// lane.
pub(super) const QUICK_STEPS: u64 = 100_000;

/// The computation budget and state of one request. Clones share both.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Remaining steps; canceled when the client no longer waits for the response.
    pub budget: Budget,
    state: Arc<EffortState>,
}

/// State shared by all clones of an [`Effort`].
#[derive(Debug, Default)]
struct EffortState {
    is_large: AtomicBool,
    /// Total cost of expressions at the last yield.
    evaluated: AtomicU64,
    /// Writes that are in progress or may be stored. After the first, the request runs to completion, even if its client is gone.
    writes: AtomicUsize,
    /// Set once the requested resource is found. Before that its strings are client input and must not become
    /// metric labels.
    is_routed: AtomicBool,
    /// Account whose turns in the lane it uses; a request without an account needs none.
    account: OnceLock<LaneAccount>,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { budget: Budget::new(STEPS), state: Arc::default() }
    }
}

impl Effort {
    /// Moves the request to the heavy lane if `size` bytes are large. Has no effect on requests that
    /// [`super::HeavyLane::drive`] does not drive.
    pub async fn enter_lane(&self, size: usize) {
        if size <= LARGE || self.state.is_large.swap(true, Ordering::Relaxed) {
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

    /// Runs synchronous work over the objects of the request, such as decoding, patching and defaulting, and takes its steps from
    /// the budget. Work whose client has left ends with a timeout, work that takes too many steps with 413. A request
    /// that has begun to write is not interrupted.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Status> {
        if self.has_written() {
            return Ok(work());
        }
        steps::within(&self.budget, work).map_err(Status::of_ended_budget)
    }

    /// The budget of synchronous work that does not see this effort: without limit once the request has begun to write.
    pub fn remaining_budget(&self) -> Budget {
        if self.has_written() { Budget::UNLIMITED } else { self.budget.clone() }
    }

    /// Must be called before each write. Fails if the deadline has passed and nothing is written yet: the
    /// client has received a timeout, audit has recorded it, and a webhook that fails open may have been cut
    /// off by the client's own deadline. A request that has already written runs to completion.
    pub fn begin_write(&self, deadline: Option<Instant>) -> Result<(), Status> {
        if is_past(deadline) && !self.has_written() {
            return Err(too_late());
        }
        self.state.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Must be called after a write that the store refused: it has stored nothing, so the request may end at its deadline again.
    pub fn write_refused(&self) {
        self.state.writes.fetch_sub(1, Ordering::Relaxed);
    }

    /// Must be called before a change is attempted, for the first time or after a conflict. Fails if the deadline has passed or the client
    /// is gone, and nothing is written: the attempt would compute for nothing.
    pub fn begin_attempt(&self, deadline: Option<Instant>) -> Result<(), Status> {
        if is_past(deadline) && !self.has_written() {
            return Err(too_late());
        }
        self.check()
    }

    /// Records that the requested resource is served.
    pub fn set_routed(&self) {
        self.state.is_routed.store(true, Ordering::Relaxed);
    }

    /// True once the requested resource is known to be served.
    pub fn is_routed(&self) -> bool {
        self.state.is_routed.load(Ordering::Relaxed)
    }

    /// True while the request writes, and once it may have written.
    pub fn has_written(&self) -> bool {
        self.state.writes.load(Ordering::Relaxed) > 0
    }

    /// Sets the account whose turns in the lane this request uses.
    pub fn set_account(&self, account: LaneAccount) {
        // Only the first call, after authentication, has an effect.
        let _ = self.state.account.set(account);
    }

    pub(super) fn account(&self) -> Option<&LaneAccount> {
        self.state.account.get()
    }

    /// Adds the cost of evaluated expressions, and makes the request large above [`QUICK_COST`].
    pub(super) fn add_evaluated(&self, cost: u64) {
        let before = self.state.evaluated.fetch_add(cost, Ordering::Relaxed);
        if before.saturating_add(cost) > QUICK_COST {
            self.state.is_large.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_large(&self) -> bool {
        self.state.is_large.load(Ordering::Relaxed)
    }

    /// Fails with a timeout if the client no longer waits for the response, unless the request has begun to
    /// write.
    pub fn check(&self) -> Result<(), Status> {
        match self.budget.check() {
            Err(BudgetEnded::Canceled) if !self.has_written() => Err(too_late()),
            // Code that counts steps reports an exhausted budget itself.
            Err(BudgetEnded::Canceled | BudgetEnded::Exhausted) | Ok(()) => Ok(()),
        }
    }
}

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

/// Status 504 for a request past its deadline.
fn too_late() -> Status {
    Status::of_ended_budget(BudgetEnded::Canceled)
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
