//! One evaluation of a policy: its variables, each computed on first use, and the cost so far.
//!
//! A policy can have any number of variables that read each other, so computing them recursively could
//! overflow the stack. When the stack gets too deep, evaluation is interrupted, the variable is computed
//! separately, and evaluation restarts with all variables computed so far. The cost of such discarded work is
//! limited.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use cel::authz::AuthorizerCheck;
use cel::{
    Activation, Error, ErrorKind, EstimateRange, Evaluation, LazyFields, ListVal, MapVal, PER_CALL_LIMIT,
    Program, Val, ValueMemory,
};
use kinds::expressions::{Age, CompileError, Compiled, Compiler, OptionalVariables, Returns};
use value::Str;
use value::text::first_bytes;

use super::YieldPacer;
use crate::inventory::ZERO_COST;

/// Stack that nested variables may use, in bytes.
const MAX_STACK_BYTES: usize = 128 << 10;
/// Cost of discarded evaluations that is allowed for one policy.
const MAX_DISCARDED_COST: u64 = 10_000_000;
/// Work that costs nothing which is allowed for one policy; some 500 ms.
const MAX_UNCHARGED_WORK: u64 = 40_000_000;
/// How deep variables may contain each other in lists and maps. Dropping a value recurses that deep.
const MAX_VALUE_DEPTH: usize = 24;
/// Depth counted for a variable whose own expression is deeply nested.
const DEEP_EXPRESSION_DEPTH: usize = 4;
/// Errors of variables that are longer are not quoted again in the errors of the variables that read them, so that a
/// chain of failing variables takes memory in proportion to its length.
const MAX_VARIABLE_ERROR_BYTES: usize = 2 << 10;
/// Longer errors are truncated to this many bytes when they are quoted with their expression.
const MAX_ERROR_BYTES: usize = 4 << 10;
/// The beginning of the error of a variable.
const VARIABLE_ERROR: &str = "composited variable ";
/// With fewer variables than this, lookup by name scans the list.
const LINEAR_SEARCH_LIMIT: usize = 16;

/// A compiled expression. One that does not compile fails whenever it is evaluated.
#[derive(Clone, Debug)]
pub struct Expression {
    text: Str,
    program: Result<Program, CompileError>,
    estimate: EstimateRange,
}

#[derive(Clone, Debug)]
pub struct PolicyVariable {
    name: Str,
    expression: Expression,
}

#[derive(Clone, Debug, Default)]
pub struct PolicyVariables {
    list: Vec<PolicyVariable>,
    /// Indexes by name, if there are many variables. If a name occurs twice, the last one counts.
    positions: BTreeMap<Str, usize>,
}

/// Evaluation stopped before all expressions of a policy were evaluated.
#[derive(Debug)]
pub enum EvaluationStop {
    /// Evaluation can be repeated after the pause.
    Pause(EvaluationPause),
    /// The cost budget is exceeded.
    Budget,
}

/// Evaluation cannot continue now.
#[derive(Debug)]
pub enum EvaluationPause {
    /// Ask the authorizer, then evaluate again.
    Check(Box<AuthorizerCheck>),
    /// Evaluation takes too long for the main runtime: evaluate again in the heavy lane.
    Long,
    /// The request's deadline has passed.
    Late,
}

impl EvaluationStop {
    fn for_check(check: &AuthorizerCheck) -> Self {
        EvaluationStop::Pause(EvaluationPause::Check(Box::new(check.clone())))
    }
}

impl Expression {
    /// Compiles an expression of a stored object.
    pub fn compile(text: &str, compiler: &Compiler, offered: OptionalVariables, returns: Returns) -> Self {
        let compiled = compiler.compile(text, offered, returns, Age::Stored);
        Self::of(text, compiled)
    }

    fn of(text: &str, compiled: Result<Compiled, CompileError>) -> Self {
        let estimate = compiled.as_ref().map_or(ZERO_COST, |compiled| compiled.estimate);
        Expression { text: text.into(), program: compiled.map(|compiled| compiled.program), estimate }
    }

    /// The estimated cost; zero if it does not compile.
    pub fn estimate(&self) -> EstimateRange {
        self.estimate
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The beginning of the compiler's errors.
    pub fn compile_error(&self) -> Option<&str> {
        self.program.as_ref().err().map(|error| first_bytes(error.detail(), MAX_ERROR_BYTES))
    }

    /// Evaluates and deducts the cost from `budget`.
    pub fn evaluate<'f>(
        &'f self,
        evaluation: &'f PolicyEvaluation<'f>,
        budget: &mut u64,
    ) -> Result<Result<Val<'f>, String>, EvaluationStop> {
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => {
                let detail = first_bytes(error.detail(), MAX_ERROR_BYTES);
                return Ok(Err(format!("compilation error: {detail}")));
            }
        };
        let outcome = evaluation.run(program, budget)?;
        Ok(outcome.map_err(|error| {
            let error = error.to_string();
            format!("expression '{}' resulted in error: {}", self.text, first_bytes(&error, MAX_ERROR_BYTES))
        }))
    }
}

impl PolicyVariable {
    /// Compiles a variable and declares it to `compiler` for later expressions.
    pub fn compile(name: &str, text: &str, compiler: &Compiler, offered: OptionalVariables) -> Self {
        let compiled = compiler.variable(name, text, offered, Age::Stored);
        PolicyVariable { name: name.into(), expression: Expression::of(text, compiled) }
    }
}

impl FromIterator<PolicyVariable> for PolicyVariables {
    fn from_iter<I: IntoIterator<Item = PolicyVariable>>(variables: I) -> Self {
        let list: Vec<PolicyVariable> = variables.into_iter().collect();
        let positions = match list.len() {
            0..LINEAR_SEARCH_LIMIT => BTreeMap::new(),
            _ => list.iter().enumerate().map(|(index, variable)| (variable.name.clone(), index)).collect(),
        };
        PolicyVariables { list, positions }
    }
}

impl PolicyVariables {
    pub(crate) fn estimates(&self) -> impl Iterator<Item = EstimateRange> {
        self.list.iter().map(|variable| variable.expression.estimate())
    }

    pub const NONE: &'static PolicyVariables =
        &PolicyVariables { list: Vec::new(), positions: BTreeMap::new() };

    pub fn count(&self) -> usize {
        self.list.len()
    }

    fn position(&self, name: &str) -> Option<usize> {
        if self.list.len() < LINEAR_SEARCH_LIMIT {
            return self.list.iter().rposition(|variable| variable.name == name);
        }
        self.positions.get(name).copied()
    }
}

pub struct PolicyEvaluation<'f> {
    variables: &'f PolicyVariables,
    base: &'f Activation<'f>,
    pacer: &'f YieldPacer,
    activation: OnceLock<Activation<'f>>,
    values: OnceLock<Vec<PolicyVariableSlot<'f>>>,
    /// Cost of the variables since the last expression was charged.
    cost: AtomicU64,
    /// The budget that `cost` may use.
    limit: AtomicU64,
    /// Cost of interrupted evaluations.
    discarded: AtomicU64,
    /// Work of all evaluations that costs nothing.
    uncharged: AtomicU64,
    /// Memory of the variables.
    memory: ValueMemory,
    /// An encoded [`Interruption`]: the index of a variable, or one of its constants.
    interruption: AtomicUsize,
    /// The stack address at which evaluation began.
    stack_base: AtomicUsize,
    /// The greatest depth of the variables that the current variable has read.
    depth_read: AtomicUsize,
}

#[derive(Default)]
struct PolicyVariableSlot<'f> {
    outcome: OnceLock<Result<Val<'f>, Error>>,
    running: AtomicBool,
    depth: AtomicUsize,
}

/// The reason why a program was interrupted.
enum Interruption {
    /// The variable with this index must be computed first.
    Variable(usize),
    Budget,
    /// The work takes too long for the main runtime, or the deadline of the request has passed.
    Caller,
}

impl Interruption {
    const CALLER: usize = usize::MAX;
    const BUDGET: usize = usize::MAX - 1;
}

impl<'f> PolicyEvaluation<'f> {
    pub fn new(variables: &'f PolicyVariables, base: &'f Activation<'f>, pacer: &'f YieldPacer) -> Self {
        PolicyEvaluation {
            variables,
            base,
            pacer,
            activation: OnceLock::new(),
            values: OnceLock::new(),
            cost: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            uncharged: AtomicU64::new(0),
            memory: ValueMemory::default(),
            interruption: AtomicUsize::new(Interruption::CALLER),
            stack_base: AtomicUsize::new(0),
            depth_read: AtomicUsize::new(0),
        }
    }

    /// Runs a program and computes the variables that it reads.
    fn run(
        &'f self,
        program: &'f Program,
        budget: &mut u64,
    ) -> Result<Result<Val<'f>, Error>, EvaluationStop> {
        let activation = self.activation();
        loop {
            if self.pacer.is_too_long() {
                return Err(EvaluationStop::Pause(EvaluationPause::Long));
            }
            self.limit.store(*budget, Ordering::Relaxed);
            self.stack_base.store(stack_address(), Ordering::Relaxed);
            let Evaluation { outcome, cost, pattern_work, uncharged_work, .. } =
                program.run(activation, PER_CALL_LIMIT);
            self.pacer.add_work(cost.saturating_add(uncharged_work), pattern_work);
            if self.has_spent_uncharged(uncharged_work) {
                return Err(EvaluationStop::Budget);
            }
            match outcome.as_ref().err().map(Error::kind) {
                Some(ErrorKind::NeedsCheck(check)) => return Err(EvaluationStop::for_check(check)),
                Some(ErrorKind::Interrupted) => {
                    self.discard(cost);
                    match self.take_interruption() {
                        Interruption::Variable(variable) => self.compute_iteratively(variable)?,
                        Interruption::Budget => return Err(EvaluationStop::Budget),
                        Interruption::Caller => return Err(self.interrupted_by_caller()),
                    }
                }
                _ => {
                    let of_variables = self.cost.load(Ordering::Relaxed);
                    self.cost.store(0, Ordering::Relaxed);
                    let spent = of_variables.saturating_add(cost);
                    *budget = budget.checked_sub(spent).ok_or(EvaluationStop::Budget)?;
                    return Ok(outcome);
                }
            }
        }
    }

    /// The activation with `variables`, for expressions and for the variables themselves.
    fn activation(&'f self) -> &'f Activation<'f> {
        if self.variables.list.is_empty() {
            return self.base;
        }
        self.activation.get_or_init(|| {
            let mut activation = self.base.clone();
            activation.set("variables", Val::Map(MapVal::Lazy(self)));
            activation.set_memory(&self.memory);
            activation
        })
    }

    fn values(&self) -> &[PolicyVariableSlot<'f>] {
        self.values
            .get_or_init(|| self.variables.list.iter().map(|_| PolicyVariableSlot::default()).collect())
    }

    /// Computes a variable, and the variables that it needs, one after the other instead of recursively.
    fn compute_iteratively(&self, first: usize) -> Result<(), EvaluationStop> {
        let mut pending = vec![first];
        while let Some(index) = pending.last().copied() {
            let (Some(variable), Some(value)) = (self.variables.list.get(index), self.values().get(index))
            else {
                return Ok(());
            };
            value.running.store(true, Ordering::Relaxed);
            self.stack_base.store(stack_address(), Ordering::Relaxed);
            let outcome = self.compute(variable, value);
            match outcome.as_ref().err().map(Error::kind) {
                Some(ErrorKind::NeedsCheck(check)) => return Err(EvaluationStop::for_check(check)),
                Some(ErrorKind::Interrupted) => match self.take_interruption() {
                    Interruption::Variable(next) => pending.push(next),
                    Interruption::Budget => return Err(EvaluationStop::Budget),
                    Interruption::Caller => return Err(self.interrupted_by_caller()),
                },
                _ => {
                    value.running.store(false, Ordering::Relaxed);
                    value.outcome.get_or_init(|| outcome);
                    pending.pop();
                }
            }
        }
        Ok(())
    }

    fn compute(
        &self,
        variable: &'f PolicyVariable,
        value: &PolicyVariableSlot<'f>,
    ) -> Result<Val<'f>, Error> {
        let name = api::field::quote(&variable.name);
        let program = match &variable.expression.program {
            Ok(program) => program,
            Err(error) => {
                let detail = first_bytes(error.detail(), MAX_VARIABLE_ERROR_BYTES);
                return Err(Error::new(format!("{VARIABLE_ERROR}{name} fails to compile: {detail}")));
            }
        };
        // The variable was read through this activation, so it is set.
        let activation = self.activation.get().unwrap_or(self.base);
        let outer_depth = self.depth_read.load(Ordering::Relaxed);
        self.depth_read.store(0, Ordering::Relaxed);
        let Evaluation { outcome, cost, pattern_work, uncharged_work, created_bytes } =
            program.run(activation, PER_CALL_LIMIT);
        let depth_read = self.depth_read.load(Ordering::Relaxed);
        self.depth_read.store(outer_depth, Ordering::Relaxed);
        self.pacer.add_work(cost.saturating_add(uncharged_work), pattern_work);
        if self.has_spent_uncharged(uncharged_work) {
            self.interruption.store(Interruption::BUDGET, Ordering::Relaxed);
            return Err(Error::interrupted());
        }
        match outcome {
            Ok(val) => {
                self.memory.retain(created_bytes);
                self.spend(cost)?;
                if is_composite(&val) {
                    let depth = depth_read + if program.is_deep() { DEEP_EXPRESSION_DEPTH } else { 1 };
                    if depth > MAX_VALUE_DEPTH {
                        return Err(Error::new(format!(
                            "{VARIABLE_ERROR}{name} fails to evaluate: it holds other variables more than {MAX_VALUE_DEPTH} levels deep"
                        )));
                    }
                    value.depth.store(depth, Ordering::Relaxed);
                }
                Ok(val)
            }
            Err(error) => match error.kind() {
                ErrorKind::NeedsCheck(_) => Err(error),
                ErrorKind::Interrupted => {
                    self.discard(cost);
                    Err(error)
                }
                _ => {
                    self.spend(cost)?;
                    Err(variable_error(&name, error))
                }
            },
        }
    }

    /// Charges the cost of a variable and interrupts evaluation when the budget is exceeded.
    fn spend(&self, cost: u64) -> Result<(), Error> {
        let spent = self.cost.load(Ordering::Relaxed).saturating_add(cost);
        self.cost.store(spent, Ordering::Relaxed);
        if spent > self.limit.load(Ordering::Relaxed) {
            self.interruption.store(Interruption::BUDGET, Ordering::Relaxed);
            return Err(Error::interrupted());
        }
        Ok(())
    }

    /// Counts work that costs nothing. True if the policy has exceeded its limit.
    fn has_spent_uncharged(&self, work: u64) -> bool {
        let spent = self.uncharged.load(Ordering::Relaxed).saturating_add(work);
        self.uncharged.store(spent, Ordering::Relaxed);
        spent > MAX_UNCHARGED_WORK
    }

    /// Counts the cost of an interrupted evaluation, and exhausts the budget if there were too many.
    fn discard(&self, cost: u64) {
        let discarded = self.discarded.load(Ordering::Relaxed).saturating_add(cost);
        self.discarded.store(discarded, Ordering::Relaxed);
        if discarded > MAX_DISCARDED_COST {
            self.interruption.store(Interruption::BUDGET, Ordering::Relaxed);
        }
    }

    /// The stop that an interruption by the caller asks for.
    fn interrupted_by_caller(&self) -> EvaluationStop {
        EvaluationStop::Pause(if self.pacer.is_too_long() {
            EvaluationPause::Long
        } else {
            EvaluationPause::Late
        })
    }

    /// The reason of the last interruption, which is reset.
    fn take_interruption(&self) -> Interruption {
        match self.interruption.swap(Interruption::CALLER, Ordering::Relaxed) {
            Interruption::CALLER => Interruption::Caller,
            Interruption::BUDGET => Interruption::Budget,
            variable => Interruption::Variable(variable),
        }
    }

    /// Records the depth of a variable that the current one has read.
    fn note_depth(&self, value: &PolicyVariableSlot<'f>) {
        let depth = value.depth.load(Ordering::Relaxed);
        if depth > self.depth_read.load(Ordering::Relaxed) {
            self.depth_read.store(depth, Ordering::Relaxed);
        }
    }
}

impl LazyFields for PolicyEvaluation<'_> {
    fn get(&self, name: &str) -> Option<Result<Val<'_>, Error>> {
        let index = self.variables.position(name)?;
        let (variable, value) = (self.variables.list.get(index)?, self.values().get(index)?);
        if let Some(outcome) = value.outcome.get() {
            self.note_depth(value);
            return Some(outcome.clone());
        }
        if value.running.load(Ordering::Relaxed) {
            // Two variables with the same name can be written so that the second reads itself.
            return Some(Err(Error::new(format!("variable {} refers to itself", api::field::quote(name)))));
        }
        if self.stack_base.load(Ordering::Relaxed).abs_diff(stack_address()) > MAX_STACK_BYTES {
            self.interruption.store(index, Ordering::Relaxed);
            return Some(Err(Error::interrupted()));
        }
        value.running.store(true, Ordering::Relaxed);
        let outcome = self.compute(variable, value);
        value.running.store(false, Ordering::Relaxed);
        if let Err(error) = &outcome
            && matches!(error.kind(), ErrorKind::Interrupted)
        {
            return Some(outcome);
        }
        self.note_depth(value);
        Some(value.outcome.get_or_init(|| outcome).clone())
    }

    fn names(&self) -> Vec<&str> {
        self.variables.list.iter().map(|variable| variable.name.as_str()).collect()
    }

    fn type_name(&self) -> &'static str {
        "kubernetes.variables"
    }
}

/// The error of a variable that fails with `error`. If `error` is the long error of another variable, it is returned
/// as it is: it names the first variables of the chain and the cause.
fn variable_error(name: &str, error: Error) -> Error {
    let cause = error.to_string();
    if cause.len() > MAX_VARIABLE_ERROR_BYTES && cause.starts_with(VARIABLE_ERROR) {
        return error;
    }
    let cause = first_bytes(&cause, MAX_VARIABLE_ERROR_BYTES);
    Error::new(format!("{VARIABLE_ERROR}{name} fails to evaluate: {cause}"))
}

/// Whether a value can contain other variables. Values of the request itself cannot.
fn is_composite(val: &Val<'_>) -> bool {
    matches!(
        val,
        Val::List(ListVal::Owned(_)) | Val::Map(MapVal::Owned(_)) | Val::Object(_) | Val::Optional(Some(_))
    )
}

/// The approximate stack pointer.
#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}
