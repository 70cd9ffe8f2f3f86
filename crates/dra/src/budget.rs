//! How much the claims of one pod may cost, on all nodes together.

use crate::error::Error;

/// As many devices are looked at on one node before a search is given up.
pub(crate) const NODE_STEPS: u64 = 200_000;

/// What may still be done for one pod. Whoever writes claims writes their selectors, and a scheduler places one pod after the other.
#[derive(Clone, Debug)]
pub struct AllocationBudget {
    /// How many more devices may be looked at.
    pub(crate) steps: u64,
    /// What selectors may still cost, in CEL's units.
    pub(crate) cost: u64,
    /// Ends the search when it is cancelled.
    pub(crate) attempt: value::Budget,
}

impl Default for AllocationBudget {
    /// About a second. A thousand devices and five selectors of ordinary length take a hundredth of it.
    fn default() -> Self {
        AllocationBudget {
            steps: 10 * NODE_STEPS,
            cost: 10 * cel::device::MAX_COST,
            attempt: value::Budget::UNLIMITED,
        }
    }
}

impl AllocationBudget {
    /// The default, used up at once when `attempt` is cancelled.
    pub fn of(attempt: &value::Budget) -> Self {
        AllocationBudget { attempt: attempt.clone(), ..AllocationBudget::default() }
    }

    /// Whether nothing is left of it.
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
