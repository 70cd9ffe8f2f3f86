//! Caches compiled selectors and their results per device.

use std::collections::HashMap;

use cel::device::{DeviceSelector, DeviceSelectorError};
use value::Str;

use crate::budget::AllocationBudget;
use crate::error::Error;
use crate::inventory::{DeviceIndex, PublishedDevice};

/// Upper bound of cached expressions; when it is exceeded, the cache is cleared.
const MAX_EXPRESSIONS: usize = 1024;

/// Compiled selectors by expression, with their results.
#[derive(Debug, Default)]
pub(crate) struct SelectorCache {
    known: HashMap<Str, usize>,
    compiled: Vec<CompiledSelector>,
}

#[derive(Debug)]
struct CompiledSelector {
    selector: Result<DeviceSelector, DeviceSelectorError>,
    /// Results by device index, once evaluated.
    answers: Vec<Option<bool>>,
}

/// Why a selector has no result for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SelectorFailure {
    Compile(String),
    Run(String),
    /// The budget for selectors is exhausted.
    TooCostly,
}

impl SelectorCache {
    /// Clears the cache if an allocation that adds `more` expressions would exceed its limit.
    pub(crate) fn make_room(&mut self, more: usize) {
        if self.compiled.len() + more > MAX_EXPRESSIONS {
            *self = SelectorCache::default();
        }
    }
}

/// Evaluates selectors within the budget of one pod.
pub(crate) struct SelectorEvaluator<'s> {
    selectors: &'s mut SelectorCache,
    pub(crate) budget: &'s mut AllocationBudget,
}

impl<'s> SelectorEvaluator<'s> {
    pub(crate) fn new(selectors: &'s mut SelectorCache, budget: &'s mut AllocationBudget) -> Self {
        SelectorEvaluator { selectors, budget }
    }

    /// Index of an expression; compiles it if necessary.
    pub(crate) fn position(&mut self, expression: &Str) -> Result<usize, Error> {
        let SelectorCache { known, compiled } = &mut *self.selectors;
        if let Some(at) = known.get(expression) {
            return Ok(*at);
        }
        // Compiling a character costs about as much as two units of evaluation.
        self.budget.spend_cost((expression.len() as u64).saturating_mul(2))?;
        let at = compiled.len();
        compiled
            .push(CompiledSelector { selector: DeviceSelector::compile(expression), answers: Vec::new() });
        known.insert(expression.clone(), at);
        Ok(at)
    }

    /// True if the selector at an index selects the device.
    pub(crate) fn selects(
        &mut self,
        at: usize,
        device: &PublishedDevice,
        device_at: DeviceIndex,
    ) -> Result<bool, SelectorFailure> {
        let compiled = self.selectors.compiled.get_mut(at);
        let Some(CompiledSelector { selector, answers }) = compiled else { return Ok(false) };
        if let Some(Some(answer)) = answers.get(device_at) {
            return Ok(*answer);
        }
        let selector = selector.as_ref().map_err(|error| SelectorFailure::Compile(error.to_string()))?;
        let selectable = device.selectable.as_ref().map_err(|why| SelectorFailure::Run(why.clone()))?;
        let (answer, cost) = selector.matches_within(selectable, self.budget.cost);
        // Even the shortest evaluation is charged.
        self.budget.spend_cost(cost.saturating_add(1)).map_err(|_| SelectorFailure::TooCostly)?;
        let answer = answer.map_err(|error| SelectorFailure::Run(with_hint(error)))?;
        if answers.len() <= device_at {
            answers.resize(device_at + 1, None);
        }
        if let Some(slot) = answers.get_mut(device_at) {
            *slot = Some(answer);
        }
        Ok(answer)
    }
}

/// Appends a hint to errors about missing attributes.
fn with_hint(error: String) -> String {
    if error.contains("no such key:") {
        return format!(
            "{error}. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
        );
    }
    error
}
