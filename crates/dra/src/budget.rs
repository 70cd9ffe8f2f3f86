//! Limits the work for the claims of one pod, over all nodes.

use crate::error::Error;

/// Upper bound of devices tested on one node.
pub(crate) const NODE_STEPS: u64 = 200_000;

/// The remaining work for one pod. It is limited because users write the selectors, and a scheduler handles one pod
/// after another.
#[derive(Clone, Debug)]
pub struct AllocationBudget {
    /// Remaining number of devices to test.
    pub(crate) steps: u64,
    /// Remaining cost of selectors, in CEL's cost units.
    pub(crate) cost: u64,
    /// Canceling this budget ends the search.
    pub(crate) attempt: value::Budget,
}

impl Default for AllocationBudget {
    /// About a second of work. A thousand devices and five selectors of ordinary length take a hundredth of it.
    fn default() -> Self {
        AllocationBudget {
            steps: 10 * NODE_STEPS,
            cost: 10 * cel::device::MAX_COST,
            attempt: value::Budget::UNLIMITED,
        }
    }
}

impl AllocationBudget {
    /// The default budget, which ends when `attempt` is canceled.
    pub fn of(attempt: &value::Budget) -> Self {
        AllocationBudget { attempt: attempt.clone(), ..AllocationBudget::default() }
    }

    /// True if no steps or cost units are left.
    pub fn is_used_up(&self) -> bool {
        self.steps == 0 || self.cost == 0 || self.attempt.check().is_err()
    }

    pub(crate) fn spend_step(&mut self) -> Result<(), Error> {
        self.steps = self.steps.saturating_sub(1);
        if self.is_used_up() { Err(Error::TooCostly) } else { Ok(()) }
    }

    pub(crate) fn spend_cost(&mut self, cost: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_sub(cost);
        if self.is_used_up() { Err(Error::TooCostly) } else { Ok(()) }
    }
}
