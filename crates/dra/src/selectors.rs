//! Selectors, compiled once, and what they say of each device, asked once.

use std::collections::HashMap;

use cel::device::{DeviceSelector, DeviceSelectorError};
use value::Str;

use crate::budget::Budget;
use crate::error::Error;
use crate::inventory::{Device, DeviceAt};

/// As many expressions as are kept. When there are more, all are forgotten.
const MOST: usize = 1024;

/// The expressions that were asked.
#[derive(Debug, Default)]
pub(crate) struct Selectors {
    known: HashMap<Str, usize>,
    compiled: Vec<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    selector: Result<DeviceSelector, DeviceSelectorError>,
    /// What is known of each device.
    answers: Vec<Option<bool>>,
}

/// Why a selector has no answer for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Compile(String),
    Run(String),
    /// All selectors together cost too much.
    TooCostly,
}

impl Selectors {
    /// Whether the expressions can be kept for one allocation that asks for so many more.
    pub(crate) fn make_room(&mut self, more: usize) {
        if self.compiled.len() + more > MOST {
            *self = Selectors::default();
        }
    }
}

/// Selectors, for a search that may spend so much on them.
pub(crate) struct Evaluator<'s> {
    selectors: &'s mut Selectors,
    pub(crate) budget: &'s mut Budget,
}

impl<'s> Evaluator<'s> {
    pub(crate) fn new(selectors: &'s mut Selectors, budget: &'s mut Budget) -> Self {
        Evaluator { selectors, budget }
    }

    /// The position of an expression, compiled if need be.
    pub(crate) fn position(&mut self, expression: &Str) -> Result<usize, Error> {
        let Selectors { known, compiled } = &mut *self.selectors;
        if let Some(at) = known.get(expression) {
            return Ok(*at);
        }
        // Compiling a character costs about as much as two steps of an evaluation.
        self.budget.spend_cost((expression.len() as u64).saturating_mul(2))?;
        let at = compiled.len();
        compiled.push(Compiled { selector: DeviceSelector::compile(expression), answers: Vec::new() });
        known.insert(expression.clone(), at);
        Ok(at)
    }

    /// Whether the selector at a position selects a device.
    pub(crate) fn selects(
        &mut self,
        at: usize,
        device: &Device,
        device_at: DeviceAt,
    ) -> Result<bool, Failure> {
        let compiled = self.selectors.compiled.get_mut(at);
        let Some(Compiled { selector, answers }) = compiled else { return Ok(false) };
        if let Some(Some(answer)) = answers.get(device_at) {
            return Ok(*answer);
        }
        let selector = selector.as_ref().map_err(|error| Failure::Compile(error.to_string()))?;
        let seen = device.seen.as_ref().map_err(|why| Failure::Run(why.clone()))?;
        let (answer, cost) = selector.matches_within(seen, self.budget.cost);
        // Even the shortest one takes its time.
        self.budget.spend_cost(cost.saturating_add(1)).map_err(|_| Failure::TooCostly)?;
        let answer = answer.map_err(|error| Failure::Run(explained(error)))?;
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
fn explained(error: String) -> String {
    if error.contains("no such key:") {
        return format!(
            "{error}. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
        );
    }
    error
}
