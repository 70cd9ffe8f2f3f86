//! The stages of an expression: parsed, checked, a program.

use std::sync::Arc;

use super::{Env, may_be_deep};
use crate::check;
use crate::cost::estimate::{self, EstimateRange, SizeHints};
use crate::deep_stack::with_deep_stack;
use crate::eval::{self, Activation, Error, Evaluation};
use crate::lib::pattern::allowance::{self, PER_EVALUATION, PER_EXPRESSION};
use crate::plan;
use crate::syntax::ast::{Ast, ExprKind};
use crate::syntax::source::Source;
use crate::types::Type;

/// An expression that is syntactically right.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub(super) source: Source,
    pub(super) ast: Ast,
}

impl Parsed {
    /// The tree.
    pub fn ast(&self) -> &Ast {
        &self.ast
    }

    /// Whether a name stands somewhere in it.
    pub fn mentions(&self, name: &str) -> bool {
        let mut found = false;
        with_deep_stack(may_be_deep(self.source.text()), || {
            self.ast.expr.walk(&mut |expr| found |= matches!(&expr.kind, ExprKind::Ident(n) if n == name));
        });
        found
    }

    /// The expression in a canonical form. Needs [`Env::keeping_macro_calls`].
    pub fn print(&self) -> String {
        crate::syntax::print::print(&self.ast)
    }
}

/// An expression whose types are right.
#[derive(Clone, Debug)]
pub struct Checked {
    pub(super) env: Env,
    pub(super) source: Source,
    pub(super) tree: check::CheckedAst,
}

impl Checked {
    /// The type of its value.
    pub fn output_type(&self) -> &Type {
        self.tree.type_of(self.tree.ast.expr.id)
    }

    /// The text it was compiled from.
    pub fn text(&self) -> &str {
        self.source.text()
    }

    /// The tree with names resolved.
    pub fn ast(&self) -> &Ast {
        &self.tree.ast
    }

    /// The type of a node of the tree.
    pub fn type_of(&self, id: u32) -> &Type {
        self.tree.type_of(id)
    }

    /// Whether a variable is mentioned anywhere.
    pub fn mentions(&self, variable: &str) -> bool {
        let mut found = false;
        self.tree.ast.expr.walk(&mut |expr| {
            found |= matches!(&expr.kind, ExprKind::Ident(name) if name == variable);
        });
        found
    }

    /// What it may cost.
    pub fn estimate(&self, hints: &dyn SizeHints) -> EstimateRange {
        with_deep_stack(may_be_deep(self.text()), || estimate::estimate(&self.tree, &self.env, hints))
    }

    /// The program. Fails where a constant part of the expression can only fail.
    pub fn program(&self) -> Result<Program, Error> {
        self.program_with(plan::PlanOptions { fold: true, checked: true })
    }

    /// The program with every call made when it runs; for tests of the folding.
    pub fn unfolded_program(&self) -> Result<Program, Error> {
        self.program_with(plan::PlanOptions { fold: false, checked: true })
    }

    fn program_with(&self, options: plan::PlanOptions) -> Result<Program, Error> {
        let deep = may_be_deep(self.text());
        let plan = || allowance::within(PER_EXPRESSION, || plan::plan(&self.tree, &self.env, options));
        let plan = with_deep_stack(deep, plan)?;
        Ok(Program { plan: Arc::new(plan), output: self.output_type().clone() })
    }

    /// The tree with types, for reading.
    pub fn show(&self) -> String {
        crate::syntax::print::show(&self.tree)
    }
}

/// A compiled expression: immutable, shared, cheap to run.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) plan: Arc<plan::Plan>,
    pub(super) output: Type,
}

impl Program {
    /// The type of the value it gives.
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// Whether it nests deeper than usual, and so may what it makes.
    pub fn is_deep(&self) -> bool {
        self.plan.deep
    }

    /// Whether it takes regular expressions from data, so that running it may be more work than it costs.
    pub fn compiles_data(&self) -> bool {
        self.plan.compiles_data
    }

    /// Runs it. Evaluation ends with an error once it has cost more than `limit`.
    pub fn run<'a>(&'a self, activation: &Activation<'a>, limit: u64) -> Evaluation<'a> {
        with_deep_stack(self.plan.deep, || {
            let run = || eval::run(&self.plan.root, self.plan.slots, activation, limit);
            if !self.plan.matches {
                return run();
            }
            let (evaluation, pattern_work) = allowance::within_counted(PER_EVALUATION, run);
            Evaluation { pattern_work, ..evaluation }
        })
    }
}
