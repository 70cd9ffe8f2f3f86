//! The stages of an expression: [`Parsed`], [`Checked`], [`Program`].

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
use crate::syntax::work;
use crate::types::Type;

/// An expression without syntax errors, not type-checked yet.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub(super) source: Source,
    pub(super) ast: Ast,
}

impl Parsed {
    /// The syntax tree, with macros expanded.
    pub fn ast(&self) -> &Ast {
        &self.ast
    }

    /// True if the identifier `name` occurs in the expression.
    pub fn mentions(&self, name: &str) -> bool {
        let mut found = false;
        with_deep_stack(may_be_deep(self.source.text()), || {
            self.ast.expr.walk(&mut |expr| found |= matches!(&expr.kind, ExprKind::Ident(n) if n == name));
        });
        found
    }

    /// Prints the expression in canonical form. Macros print as written only with [`Env::keeping_macro_calls`].
    pub fn print(&self) -> String {
        crate::syntax::print::print(&self.ast)
    }
}

/// An expression without type errors.
#[derive(Clone, Debug)]
pub struct Checked {
    pub(super) env: Env,
    pub(super) source: Source,
    pub(super) tree: check::CheckedAst,
}

impl Checked {
    /// Type of the expression's result.
    pub fn output_type(&self) -> &Type {
        self.tree.type_of(self.tree.ast.expr.id)
    }

    /// Source text of the expression.
    pub fn text(&self) -> &str {
        self.source.text()
    }

    /// The syntax tree, with names resolved.
    pub fn ast(&self) -> &Ast {
        &self.tree.ast
    }

    /// Type of a node; dyn if the checker recorded none.
    pub fn type_of(&self, id: u32) -> &Type {
        self.tree.type_of(id)
    }

    /// True if the variable occurs in the expression.
    pub fn mentions(&self, variable: &str) -> bool {
        let mut found = false;
        self.tree.ast.expr.walk(&mut |expr| {
            found |= matches!(&expr.kind, ExprKind::Ident(name) if name == variable);
        });
        found
    }

    /// Estimates the cost, as Kubernetes does when it validates an expression.
    pub fn estimate(&self, hints: &dyn SizeHints) -> EstimateRange {
        work::count_stage(self.tree.ast.nodes());
        with_deep_stack(may_be_deep(self.text()), || estimate::estimate(&self.tree, &self.env, hints))
    }

    /// Plans the expression for evaluation. Fails if a constant subexpression always fails.
    pub fn program(&self) -> Result<Program, Error> {
        self.program_with(plan::PlanOptions { fold: true, checked: true })
    }

    /// Like [`Checked::program`] without constant folding, to test that folding changes no result.
    pub fn unfolded_program(&self) -> Result<Program, Error> {
        self.program_with(plan::PlanOptions { fold: false, checked: true })
    }

    fn program_with(&self, options: plan::PlanOptions) -> Result<Program, Error> {
        work::count_stage(self.tree.ast.nodes());
        let deep = may_be_deep(self.text());
        let plan = || allowance::within(PER_EXPRESSION, || plan::plan(&self.tree, &self.env, options));
        let plan = with_deep_stack(deep, plan)?;
        Ok(Program { plan: Arc::new(plan), output: self.output_type().clone() })
    }

    /// Prints the tree with types, in cel-go's debug format.
    pub fn show(&self) -> String {
        crate::syntax::print::show(&self.tree)
    }
}

/// An expression ready for evaluation: immutable, cheap to clone, usable from many threads.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) plan: Arc<plan::Plan>,
    pub(super) output: Type,
}

impl Program {
    /// Type of the program's result.
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// True if evaluation recurses deeply; its result may nest as deeply.
    pub fn is_deep(&self) -> bool {
        self.plan.deep
    }

    /// True if it compiles regular expressions at run time, which the cost does not account for.
    pub fn compiles_data(&self) -> bool {
        self.plan.compiles_data
    }

    /// Evaluates the program. Fails when the cost exceeds `limit`.
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
