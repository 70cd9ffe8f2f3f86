//! SelectorCache, compiled once, and what they say of each device, asked once.

use std::collections::HashMap;

use cel::device::{DeviceSelector, DeviceSelectorError};
use value::Str;

use crate::budget::AllocationBudget;
use crate::error::Error;
use crate::inventory::{DeviceIndex, PublishedDevice};

/// As many expressions as are kept. When there are more, all are forgotten.
const MAX_EXPRESSIONS: usize = 1024;

/// The expressions that were asked.
#[derive(Debug, Default)]
pub(crate) struct SelectorCache {
    known: HashMap<Str, usize>,
    compiled: Vec<CompiledSelector>,
}

#[derive(Debug)]
struct CompiledSelector {
    selector: Result<DeviceSelector, DeviceSelectorError>,
    /// What is known of each device.
    answers: Vec<Option<bool>>,
}

/// Why a selector has no answer for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SelectorFailure {
    Compile(String),
    Run(String),
    /// All selectors together cost too much.
    TooCostly,
}

impl SelectorCache {
    /// Whether the expressions can be kept for one allocation that asks for so many more.
    pub(crate) fn make_room(&mut self, more: usize) {
        if self.compiled.len() + more > MAX_EXPRESSIONS {
            *self = SelectorCache::default();
        }
    }
}

/// SelectorCache, for a search that may spend so much on them.
pub(crate) struct SelectorEvaluator<'s> {
    selectors: &'s mut SelectorCache,
    pub(crate) budget: &'s mut AllocationBudget,
}

impl<'s> SelectorEvaluator<'s> {
    pub(crate) fn new(selectors: &'s mut SelectorCache, budget: &'s mut AllocationBudget) -> Self {
        SelectorEvaluator { selectors, budget }
    }

    /// The position of an expression, compiled if need be.
    pub(crate) fn position(&mut self, expression: &Str) -> Result<usize, Error> {
        let SelectorCache { known, compiled } = &mut *self.selectors;
        if let Some(at) = known.get(expression) {
            return Ok(*at);
        }
        // Compiling a character costs about as much as two steps of an evaluation.
        self.budget.spend_cost((expression.len() as u64).saturating_mul(2))?;
        let at = compiled.len();
        compiled
            .push(CompiledSelector { selector: DeviceSelector::compile(expression), answers: Vec::new() });
        known.insert(expression.clone(), at);
        Ok(at)
    }

    /// Whether the selector at a position selects a device.
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
        // Even the shortest one takes its time.
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

/// Adds what helps where an attribute is missing.
fn with_hint(error: String) -> String {
    if error.contains("no such key:") {
        return format!(
            "{error}. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
        );
    }
    error
}
