//! One policy's run: its variables, each computed when it is first read, and what everything costs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cel::authz::Check;
use cel::{Activation, Error, ErrorKind, Evaluation, LazyFields, Map, PER_CALL_LIMIT, Program, Val};
use resources::expressions::{Age, CompileError, Compiler, Offered, Returns};
use value::Str;

/// What is said when several expressions together cost too much.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// An expression, compiled; one that does not compile fails whenever it is asked for.
#[derive(Clone, Debug)]
pub struct Expression {
    text: Str,
    program: Result<Program, CompileError>,
}

/// A variable of a policy.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The name.
    pub name: Str,
    /// What it stands for.
    pub expression: Expression,
}

/// Why several expressions are not evaluated to the end.
#[derive(Debug)]
pub enum Stop {
    /// The authorizer must be asked first.
    Check(Box<Check>),
    /// They cost too much.
    Budget,
}

impl Expression {
    /// Compiles a stored expression.
    pub fn compile(text: &str, compiler: &Compiler, offered: Offered, returns: Returns) -> Self {
        let compiled = compiler.compile(text, offered, returns, Age::Stored);
        Expression { text: text.into(), program: compiled.map(|compiled| compiled.program) }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why it does not compile, if so.
    pub fn compile_error(&self) -> Option<&CompileError> {
        self.program.as_ref().err()
    }

    /// Evaluates in a frame, and takes what that costs from the budget.
    pub fn evaluate<'f>(
        &'f self,
        frame: &'f Frame<'f>,
        budget: &mut u64,
    ) -> Result<Result<Val<'f>, String>, Stop> {
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(format!("compilation error: {}", error.detail()))),
        };
        let Evaluation { outcome, cost } = program.run(frame.activation(), PER_CALL_LIMIT);
        if let Err(error) = &outcome
            && let ErrorKind::NeedsCheck(check) = error.kind()
        {
            return Err(Stop::Check(check.clone()));
        }
        let spent = frame.cost.swap(0, Ordering::Relaxed).saturating_add(cost);
        *budget = budget.checked_sub(spent).ok_or(Stop::Budget)?;
        Ok(outcome.map_err(|error| format!("expression '{}' resulted in error: {error}", self.text)))
    }
}

impl Variable {
    /// Compiles a stored variable and makes it known to the compiler.
    pub fn compile(name: &str, text: &str, compiler: &Compiler, offered: Offered) -> Self {
        let compiled = compiler.variable(name, text, offered, Age::Stored);
        let expression = Expression { text: text.into(), program: compiled.map(|compiled| compiled.program) };
        Variable { name: name.into(), expression }
    }
}

/// The variables of one policy for one run.
pub struct Frame<'f> {
    variables: &'f [Variable],
    values: Vec<Value<'f>>,
    /// What the variables have cost since somebody asked.
    cost: AtomicU64,
    base: &'f Activation<'f>,
    activation: OnceLock<Activation<'f>>,
}

#[derive(Default)]
struct Value<'f> {
    outcome: OnceLock<Result<Val<'f>, Error>>,
    running: AtomicBool,
}

impl<'f> Frame<'f> {
    /// A run with these variables on top of `base`.
    pub fn new(variables: &'f [Variable], base: &'f Activation<'f>) -> Self {
        Frame {
            variables,
            values: variables.iter().map(|_| Value::default()).collect(),
            cost: AtomicU64::new(0),
            base,
            activation: OnceLock::new(),
        }
    }

    /// What expressions, and the variables themselves, are evaluated with.
    fn activation(&'f self) -> &'f Activation<'f> {
        if self.variables.is_empty() {
            return self.base;
        }
        self.activation.get_or_init(|| {
            let mut activation = self.base.clone();
            activation.set("variables", Val::Map(Map::Lazy(self)));
            activation
        })
    }

    fn compute(&self, variable: &'f Variable) -> Result<Val<'f>, Error> {
        let name = api::field::quote(&variable.name);
        let program = match &variable.expression.program {
            Ok(program) => program,
            Err(error) => {
                let detail = error.detail();
                return Err(Error::new(format!("composited variable {name} fails to compile: {detail}")));
            }
        };
        // Whoever reads a variable came through the activation, so it is there.
        let activation = self.activation.get().unwrap_or(self.base);
        let Evaluation { outcome, cost } = program.run(activation, PER_CALL_LIMIT);
        self.cost.fetch_add(cost, Ordering::Relaxed);
        outcome.map_err(|error| match error.kind() {
            ErrorKind::NeedsCheck(_) => error,
            _ => Error::new(format!("composited variable {name} fails to evaluate: {error}")),
        })
    }
}

impl LazyFields for Frame<'_> {
    fn get(&self, name: &str) -> Option<Result<Val<'_>, Error>> {
        // Of several with one name the last counts.
        let at = self.variables.iter().rposition(|variable| variable.name == name)?;
        let (variable, value) = (self.variables.get(at)?, self.values.get(at)?);
        if let Some(outcome) = value.outcome.get() {
            return Some(outcome.clone());
        }
        if value.running.swap(true, Ordering::Relaxed) {
            // Two variables of one name can be written so that the second reads itself.
            return Some(Err(Error::new(format!("variable {} refers to itself", api::field::quote(name)))));
        }
        let outcome = self.compute(variable);
        value.running.store(false, Ordering::Relaxed);
        Some(value.outcome.get_or_init(|| outcome).clone())
    }

    fn names(&self) -> Vec<&str> {
        self.variables.iter().map(|variable| variable.name.as_str()).collect()
    }

    fn type_name(&self) -> &'static str {
        "kubernetes.variables"
    }
}
