//! One policy's run: its variables, each computed when it is first read, and what everything costs.
//!
//! A policy may have any number of variables, each of which reads the one before it. Reading one is therefore never an endless
//! recursion: where it would take too much of the stack, evaluation stops, the variable is computed on its own, and evaluation begins
//! again, with everything kept that was computed by then. What was done in vain on the way is limited, too.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use cel::authz::Check;
use cel::{
    Activation, Error, ErrorKind, Evaluation, LazyFields, List, Map, PER_CALL_LIMIT, Program, Range, Val,
};
use kinds::expressions::{Age, CompileError, Compiled, Compiler, Offered, Returns};
use value::Str;

use super::Pace;
use crate::account::FREE;

/// What is said when several expressions together cost too much.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// How much of the stack variables may take that read each other, in bytes.
const ROOM: usize = 128 << 10;
/// What may be evaluated in vain, because a variable had to be computed first.
const MOST_IN_VAIN: u64 = 10_000_000;
/// How many variables may hold each other, in lists and maps, so that a value can be let go without an endless recursion.
const DEEPEST_VALUE: usize = 24;
/// What a variable counts for there whose expression nests deeper than usual.
const DEEP: usize = 4;
/// From how many variables on they are looked up in a map.
const MANY: usize = 16;

/// An expression, compiled; one that does not compile fails whenever it is asked for.
#[derive(Clone, Debug)]
pub struct Expression {
    text: Str,
    program: Result<Program, CompileError>,
    estimate: Range,
}

/// A variable of a policy.
#[derive(Clone, Debug)]
pub struct Variable {
    name: Str,
    expression: Expression,
}

/// The variables of a policy.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    list: Vec<Variable>,
    /// Positions by name, if there are many. Of several with one name the last counts.
    positions: BTreeMap<Str, usize>,
}

/// Why several expressions are not evaluated to the end.
#[derive(Debug)]
pub enum Stop {
    /// The authorizer must be asked first.
    Check(Box<Check>),
    /// They cost too much.
    Budget,
    /// The time of the request is up.
    Late,
}

/// What is to be done before a policy can be evaluated again.
#[derive(Debug)]
pub enum Pause {
    /// The authorizer must be asked.
    Check(Box<Check>),
    /// Nothing helps: the time of the request is up.
    Late,
}

impl Expression {
    /// Compiles a stored expression.
    pub fn compile(text: &str, compiler: &Compiler, offered: Offered, returns: Returns) -> Self {
        let compiled = compiler.compile(text, offered, returns, Age::Stored);
        Self::of(text, compiled)
    }

    fn of(text: &str, compiled: Result<Compiled, CompileError>) -> Self {
        let estimate = compiled.as_ref().map_or(FREE, |compiled| compiled.estimate);
        Expression { text: text.into(), program: compiled.map(|compiled| compiled.program), estimate }
    }

    /// What it may cost; nothing if it does not compile.
    pub fn estimate(&self) -> Range {
        self.estimate
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
        let outcome = frame.run(program, budget)?;
        Ok(outcome.map_err(|error| format!("expression '{}' resulted in error: {error}", self.text)))
    }
}

impl Variable {
    /// Compiles a stored variable and makes it known to the compiler.
    pub fn compile(name: &str, text: &str, compiler: &Compiler, offered: Offered) -> Self {
        let compiled = compiler.variable(name, text, offered, Age::Stored);
        Variable { name: name.into(), expression: Expression::of(text, compiled) }
    }
}

impl FromIterator<Variable> for Variables {
    fn from_iter<I: IntoIterator<Item = Variable>>(variables: I) -> Self {
        let list: Vec<Variable> = variables.into_iter().collect();
        let positions = match list.len() {
            0..MANY => BTreeMap::new(),
            _ => list.iter().enumerate().map(|(at, variable)| (variable.name.clone(), at)).collect(),
        };
        Variables { list, positions }
    }
}

impl Variables {
    /// What they may cost.
    pub(crate) fn estimates(&self) -> impl Iterator<Item = Range> {
        self.list.iter().map(|variable| variable.expression.estimate())
    }

    /// None.
    pub const NONE: &'static Variables = &Variables { list: Vec::new(), positions: BTreeMap::new() };

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    fn position(&self, name: &str) -> Option<usize> {
        if self.list.len() < MANY {
            return self.list.iter().rposition(|variable| variable.name == name);
        }
        self.positions.get(name).copied()
    }
}

/// The variables of one policy for one run.
pub struct Frame<'f> {
    variables: &'f Variables,
    base: &'f Activation<'f>,
    pace: &'f Pace,
    activation: OnceLock<Activation<'f>>,
    values: OnceLock<Vec<Value<'f>>>,
    /// What the variables have cost since somebody asked.
    cost: AtomicU64,
    /// What they may cost.
    most: AtomicU64,
    /// What was evaluated in vain.
    vain: AtomicU64,
    /// Why evaluation was stopped: see [`Halt`].
    halt: AtomicUsize,
    /// Where the stack was when evaluation began.
    floor: AtomicUsize,
    /// How many variables, at most, are inside each other in what the variable holds that is being computed.
    inside: AtomicUsize,
}

/// One variable in one run.
#[derive(Default)]
struct Value<'f> {
    outcome: OnceLock<Result<Val<'f>, Error>>,
    running: AtomicBool,
    depth: AtomicUsize,
}

/// Why the evaluation of a program was stopped.
enum Halt {
    /// A variable, by its position, must be computed first.
    First(usize),
    /// The budget is spent.
    Budget,
    /// Nobody here stopped it: time is up.
    Late,
}

impl Halt {
    const LATE: usize = usize::MAX;
    const BUDGET: usize = usize::MAX - 1;
}

impl<'f> Frame<'f> {
    /// A run with these variables on top of `base`.
    pub fn new(variables: &'f Variables, base: &'f Activation<'f>, pace: &'f Pace) -> Self {
        Frame {
            variables,
            base,
            pace,
            activation: OnceLock::new(),
            values: OnceLock::new(),
            cost: AtomicU64::new(0),
            most: AtomicU64::new(0),
            vain: AtomicU64::new(0),
            halt: AtomicUsize::new(Halt::LATE),
            floor: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
        }
    }

    /// Runs a program, with all variables that it reads.
    fn run(&'f self, program: &'f Program, budget: &mut u64) -> Result<Result<Val<'f>, Error>, Stop> {
        let activation = self.activation();
        loop {
            self.most.store(*budget, Ordering::Relaxed);
            self.floor.store(stack(), Ordering::Relaxed);
            let Evaluation { outcome, cost, pattern_work } = program.run(activation, PER_CALL_LIMIT);
            self.pace.add_work(cost, pattern_work);
            match outcome.as_ref().err().map(Error::kind) {
                Some(ErrorKind::NeedsCheck(check)) => return Err(Stop::Check(check.clone())),
                Some(ErrorKind::Interrupted) => {
                    self.in_vain(cost);
                    match self.halted() {
                        Halt::First(variable) => self.settle(variable)?,
                        Halt::Budget => return Err(Stop::Budget),
                        Halt::Late => return Err(Stop::Late),
                    }
                }
                _ => {
                    let of_variables = self.cost.load(Ordering::Relaxed);
                    self.cost.store(0, Ordering::Relaxed);
                    let spent = of_variables.saturating_add(cost);
                    *budget = budget.checked_sub(spent).ok_or(Stop::Budget)?;
                    return Ok(outcome);
                }
            }
        }
    }

    /// What expressions, and the variables themselves, are evaluated with.
    fn activation(&'f self) -> &'f Activation<'f> {
        if self.variables.list.is_empty() {
            return self.base;
        }
        self.activation.get_or_init(|| {
            let mut activation = self.base.clone();
            activation.set("variables", Val::Map(Map::Lazy(self)));
            activation
        })
    }

    fn values(&self) -> &[Value<'f>] {
        self.values.get_or_init(|| self.variables.list.iter().map(|_| Value::default()).collect())
    }

    /// Computes a variable that could not be computed where it was read, and those that it needs in turn, none inside another.
    fn settle(&self, first: usize) -> Result<(), Stop> {
        let mut open = vec![first];
        while let Some(at) = open.last().copied() {
            let (Some(variable), Some(value)) = (self.variables.list.get(at), self.values().get(at)) else {
                return Ok(());
            };
            value.running.store(true, Ordering::Relaxed);
            self.floor.store(stack(), Ordering::Relaxed);
            let outcome = self.compute(variable, value);
            match outcome.as_ref().err().map(Error::kind) {
                Some(ErrorKind::NeedsCheck(check)) => return Err(Stop::Check(check.clone())),
                Some(ErrorKind::Interrupted) => match self.halted() {
                    Halt::First(next) => open.push(next),
                    Halt::Budget => return Err(Stop::Budget),
                    Halt::Late => return Err(Stop::Late),
                },
                _ => {
                    value.running.store(false, Ordering::Relaxed);
                    value.outcome.get_or_init(|| outcome);
                    open.pop();
                }
            }
        }
        Ok(())
    }

    /// Computes a variable where it is read.
    fn compute(&self, variable: &'f Variable, value: &Value<'f>) -> Result<Val<'f>, Error> {
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
        let outside = self.inside.load(Ordering::Relaxed);
        self.inside.store(0, Ordering::Relaxed);
        let Evaluation { outcome, cost, pattern_work } = program.run(activation, PER_CALL_LIMIT);
        let inside = self.inside.load(Ordering::Relaxed);
        self.inside.store(outside, Ordering::Relaxed);
        self.pace.add_work(cost, pattern_work);
        match outcome {
            Ok(val) => {
                self.spend(cost)?;
                if holds_others(&val) {
                    let depth = inside + if program.is_deep() { DEEP } else { 1 };
                    if depth > DEEPEST_VALUE {
                        return Err(Error::new(format!(
                            "composited variable {name} fails to evaluate: it holds other variables more than {DEEPEST_VALUE} levels deep"
                        )));
                    }
                    value.depth.store(depth, Ordering::Relaxed);
                }
                Ok(val)
            }
            Err(error) => match error.kind() {
                ErrorKind::NeedsCheck(_) => Err(error),
                ErrorKind::Interrupted => {
                    self.in_vain(cost);
                    Err(error)
                }
                _ => {
                    self.spend(cost)?;
                    Err(Error::new(format!("composited variable {name} fails to evaluate: {error}")))
                }
            },
        }
    }

    /// Counts what a variable cost, and stops everything once that is more than there is to spend.
    fn spend(&self, cost: u64) -> Result<(), Error> {
        let spent = self.cost.load(Ordering::Relaxed).saturating_add(cost);
        self.cost.store(spent, Ordering::Relaxed);
        if spent > self.most.load(Ordering::Relaxed) {
            self.halt.store(Halt::BUDGET, Ordering::Relaxed);
            return Err(Error::interrupted());
        }
        Ok(())
    }

    /// Counts what was evaluated in vain.
    fn in_vain(&self, cost: u64) {
        let vain = self.vain.load(Ordering::Relaxed).saturating_add(cost);
        self.vain.store(vain, Ordering::Relaxed);
        if vain > MOST_IN_VAIN {
            self.halt.store(Halt::BUDGET, Ordering::Relaxed);
        }
    }

    /// Why a program was stopped.
    fn halted(&self) -> Halt {
        match self.halt.swap(Halt::LATE, Ordering::Relaxed) {
            Halt::LATE => Halt::Late,
            Halt::BUDGET => Halt::Budget,
            variable => Halt::First(variable),
        }
    }

    /// Notes that the variable that is being computed read one that holds others so deep.
    fn read(&self, value: &Value<'f>) {
        let depth = value.depth.load(Ordering::Relaxed);
        if depth > self.inside.load(Ordering::Relaxed) {
            self.inside.store(depth, Ordering::Relaxed);
        }
    }
}

impl LazyFields for Frame<'_> {
    fn get(&self, name: &str) -> Option<Result<Val<'_>, Error>> {
        let at = self.variables.position(name)?;
        let (variable, value) = (self.variables.list.get(at)?, self.values().get(at)?);
        if let Some(outcome) = value.outcome.get() {
            self.read(value);
            return Some(outcome.clone());
        }
        if value.running.load(Ordering::Relaxed) {
            // Two variables of one name can be written so that the second reads itself.
            return Some(Err(Error::new(format!("variable {} refers to itself", api::field::quote(name)))));
        }
        if self.floor.load(Ordering::Relaxed).abs_diff(stack()) > ROOM {
            self.halt.store(at, Ordering::Relaxed);
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
        self.read(value);
        Some(value.outcome.get_or_init(|| outcome).clone())
    }

    fn names(&self) -> Vec<&str> {
        self.variables.list.iter().map(|variable| variable.name.as_str()).collect()
    }

    fn type_name(&self) -> &'static str {
        "kubernetes.variables"
    }
}

/// Whether a value was made of others, and is not one of the request's.
fn holds_others(val: &Val<'_>) -> bool {
    matches!(
        val,
        Val::List(List::Owned(_)) | Val::Map(Map::Owned(_)) | Val::Object(_) | Val::Optional(Some(_))
    )
}

/// About where the stack is.
#[inline(never)]
fn stack() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}
