//! Caches compiled selectors and their results per device.

use std::collections::HashMap;

use cel::device::{DeviceSelector, DeviceSelectorError};
use value::Str;

use crate::budget::AllocationBudget;
use crate::error::Error;
use crate::inventory::{DeviceIndex, PublishedDevice};

/// Upper bound of cached expressions; when it is exceeded, the cache is cleared.
const MAX_EXPRESSIONS: usize = 1024;
/// Upper bound of the nodes of all cached expressions, some 20 MB; when it is exceeded, the cache is cleared.
const MAX_NODES: usize = 1 << 18;
/// Compiling a node costs about as much as this many units of evaluation.
const COST_OF_NODE: u64 = 16;

/// Compiled selectors by expression, with their results.
#[derive(Debug, Default)]
pub(crate) struct SelectorCache {
    known: HashMap<Str, usize>,
    compiled: Vec<CompiledSelector>,
    /// Nodes of all compiled expressions.
    nodes: usize,
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
    /// Clears the cache if an allocation that adds `more` expressions would exceed its limit, or earlier ones have
    /// exceeded the limit of nodes. The budget of one pod bounds by how much.
    pub(crate) fn make_room(&mut self, more: usize) {
        if self.compiled.len() + more > MAX_EXPRESSIONS || self.nodes > MAX_NODES {
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
        let SelectorCache { known, compiled, nodes } = &mut *self.selectors;
        if let Some(at) = known.get(expression) {
            return Ok(*at);
        }
        // Compiling a character costs about as much as two units of evaluation.
        self.budget.spend_cost((expression.len() as u64).saturating_mul(2))?;
        let selector = DeviceSelector::compile(expression);
        let size = selector.as_ref().map_or(0, DeviceSelector::nodes);
        let at = compiled.len();
        compiled.push(CompiledSelector { selector, answers: Vec::new() });
        known.insert(expression.clone(), at);
        *nodes = nodes.saturating_add(size);
        // Macros may make a short expression large.
        self.budget.spend_cost((size as u64).saturating_mul(COST_OF_NODE))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A short selector of some four thousand nodes, distinct for each number.
    fn large(number: usize) -> Str {
        format!("optional.of({number}){}.hasValue()", ".optMap(a, a)".repeat(8)).into()
    }

    fn compile(cache: &mut SelectorCache, expression: &Str) -> (Result<usize, Error>, u64) {
        let mut budget = AllocationBudget::default();
        let whole = budget.cost;
        let at = SelectorEvaluator::new(cache, &mut budget).position(expression);
        (at, whole - budget.cost)
    }

    #[test]
    fn compiling_is_charged_by_the_nodes_of_the_expanded_selector() {
        let mut cache = SelectorCache::default();
        let (at, small) = compile(&mut cache, &"device.driver == 'gpu.example.com'".into());
        assert_eq!(at, Ok(0));
        assert!(small < 1000, "{small}");
        let (at, charged) = compile(&mut cache, &large(0));
        assert_eq!(at, Ok(1));
        assert!(charged > 30_000, "{charged}");
        assert_eq!(compile(&mut cache, &large(0)), (Ok(1), 0), "it is cached");
    }

    #[test]
    fn budget_of_a_pod_ends_the_compilation_of_many_large_selectors() {
        let mut cache = SelectorCache::default();
        let mut budget = AllocationBudget::default();
        let ended = (0..1000).find(|number| {
            SelectorEvaluator::new(&mut cache, &mut budget).position(&large(*number)).is_err()
        });
        assert!(ended.is_some_and(|number| number > 100), "{ended:?}");
    }

    #[test]
    fn cache_is_cleared_when_its_selectors_have_too_many_nodes() {
        let mut cache = SelectorCache::default();
        let mut number = 0;
        while cache.nodes <= MAX_NODES {
            cache.make_room(1);
            assert_eq!(
                compile(&mut cache, &large(number)).0,
                Ok(number),
                "nothing is cleared below the limit"
            );
            number += 1;
        }
        assert!(number < MAX_EXPRESSIONS / 2);
        cache.make_room(1);
        assert_eq!((cache.nodes, cache.compiled.len()), (0, 0));
    }
}
