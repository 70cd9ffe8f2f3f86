//! `x-kubernetes-validations`: compiles CEL rules with the types of their schema and runs them within a cost budget.

mod compile;
mod evaluate;

use api::field::FieldErrors;
use api::validation::fields::{At, Report};
use value::Value;

use super::compiled::ValidationFindings;
use super::correlate::CorrelatedPair;
use super::node::SchemaNode;
use super::stopwatch::Stopwatch;
use super::strategy::ValidationBounds;

pub use self::compile::{CompiledRule, CompiledRules, RuleSource, compile};

use self::compile::RuleNode;
use self::evaluate::{Ratchet, RuleInput, RuleRun, TOO_MANY_STEPS};

/// CEL cost limit of all rules of one object together, and of the rules on all defaults of one schema.
pub(crate) const BUDGET: i64 = 10_000_000;
/// The steps charged for compiling one rule, about 20 µs.
const STEPS_TO_COMPILE: u64 = 1000;

/// The rules of a schema and of all schemas below it.
#[derive(Debug)]
pub(super) struct Rules {
    root: RuleNode,
}

impl Rules {
    /// Compiles the rules of a schema; `None` if it has none.
    pub(super) fn compile(source: RuleSource<'_>, watch: Option<&dyn Stopwatch>) -> Option<Self> {
        source.node.has_rules().then(|| Rules { root: RuleNode::compile(source, watch) })
    }

    /// Whether one of the rules compiles regular expressions taken from objects.
    pub(super) fn compile_data(&self) -> bool {
        self.root.compiles_data()
    }

    /// Runs the rules on an object and its old version, if there is one.
    pub(super) fn run(
        &self,
        node: &SchemaNode,
        new: &Value,
        old: Option<&Value>,
        bounds: ValidationBounds<'_>,
        found: &mut ValidationFindings,
    ) {
        let pair = old.map(|old| CorrelatedPair::new(new, old, node));
        let ratchet = Ratchet::of(pair.as_ref());
        let limit = cel::pattern::PER_OBJECT.matching_at_most(bounds.budget.left());
        cel::pattern::within(limit, || {
            let mut run = RuleRun::new(BUDGET, bounds, found);
            run.value(&self.root, RuleInput { node, new, old, ratchet, at: &At::ROOT });
        });
    }
}

/// Runs the rules on a default of a CRD. Returns the errors and the CEL budget that is left; once that is negative, no more rules may
/// run.
pub fn check_default(
    source: RuleSource<'_>,
    default: &Value,
    at: &At<'_>,
    budget: i64,
    bounds: ValidationBounds<'_>,
) -> (FieldErrors, i64) {
    let mut found = ValidationFindings::default();
    if bounds.budget.spend(STEPS_TO_COMPILE.saturating_mul(source.node.count_rules())).is_err() {
        found.errors.forbidden(at, TOO_MANY_STEPS);
        return (found.errors, budget);
    }
    let Some(rules) = Rules::compile(source, bounds.watch) else { return (found.errors, budget) };
    let mut run = |old: Option<&Value>| {
        let mut run = RuleRun::new(budget, bounds, &mut found);
        let ratchet = Ratchet::of(None);
        run.value(&rules.root, RuleInput { node: source.node, new: default, old, ratchet, at });
        (run.budget(), found.errors.is_empty())
    };
    // Rules must hold both when the value is unchanged and when it is new.
    let (left, is_valid) = run(Some(default));
    if !is_valid {
        return (found.errors, left);
    }
    let (alone, _) = run(None);
    (found.errors, left.min(alone))
}
