//! How much a request may compute, and whether it is large.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use api::Status;
use value::{Budget, BudgetEnded, Str};

use super::LARGE;

/// Steps that one request may take: some seconds of work, and far more than kube-apiserver can do before its
/// timeout.
const STEPS: u64 = 100_000_000;

/// Steps that a request may take on the main runtime, some milliseconds. Work that needs more restarts in the
/// lane.
pub(super) const QUICK_STEPS: u64 = 100_000;

/// Cost of admission expressions that a request may evaluate on the main runtime, which runs other requests
/// in between. A request whose expressions cost more continues in the lane.
pub(super) const QUICK_COST: u64 = 1_000_000;

/// The computation budget and state of one request. Clones share both.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Remaining steps; cancelled when the client no longer waits for the response.
    pub budget: Budget,
    state: Arc<EffortState>,
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

    /// Must be called before each write. Fails if the deadline has passed and nothing is written yet: the
    /// client has received a timeout, audit has recorded it, and a webhook that fails open may have been cut
    /// off by the client's own deadline. A request that has already written runs to completion.
    pub fn begin_write(&self, deadline: Option<Instant>) -> Result<(), Status> {
        let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        if is_late && !self.state.has_written.load(Ordering::Relaxed) {
            return Err(too_late());
        }
        self.state.has_written.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Records that the requested resource is served.
    pub fn set_routed(&self) {
        self.state.is_routed.store(true, Ordering::Relaxed);
    }

    /// True once the requested resource is known to be served.
    pub fn is_routed(&self) -> bool {
        self.state.is_routed.load(Ordering::Relaxed)
    }

    /// True once the request has begun to write.
    pub fn has_written(&self) -> bool {
        self.state.has_written.load(Ordering::Relaxed)
    }

    /// Sets the account whose turns in the lane this request uses.
    pub fn set_account(&self, account: &Str) {
        // Only the first call, after authentication, has an effect.
        let _ = self.state.account.set(account.clone());
    }

    pub(super) fn account(&self) -> Option<&Str> {
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
            Err(BudgetEnded::Cancelled) if !self.state.has_written.load(Ordering::Relaxed) => Err(too_late()),
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
