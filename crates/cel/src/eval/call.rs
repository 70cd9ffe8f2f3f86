//! Evaluates calls: arguments, implementation, cost.

use std::sync::Arc;

use super::{CallContext, Error, ErrorKind, Eval, EvalResult, go_type};
use crate::cost::runtime::{CostRule, DeepCost};
use crate::decl::Function;
use crate::lib::pattern;
use crate::plan::node::{CallImplementation, CallNode, PlanNode};
use crate::val::{ListVal, MapVal, Text, Val, ValKind};

/// New strings longer than this, in bytes, count towards the step limit.
const LARGE_TEXT: usize = 1024;
/// New lists and maps with more elements than this count towards the step limit.
const LARGE_COLLECTION: usize = 64;
/// Elements that count as one step where the cost depends only on their sizes.
const ELEMENTS_PER_STEP: u64 = 8;

impl<'a> Eval<'a, '_> {
    pub(super) fn call(&mut self, call: &'a CallNode) -> EvalResult<'a> {
        match &*call.args {
            [] => {
                let outcome = self.invoke(call, &[]);
                self.finish(call, &[], outcome)
            }
            [arg] => {
                let arg = self.node(arg);
                match arg {
                    Ok(arg) => {
                        let args = [arg];
                        let outcome = self.invoke(call, &args);
                        self.finish(call, &args, outcome)
                    }
                    Err(error) if error.is_fatal() => Err(error),
                    Err(error) => self.failed(call, 0, 0, &[Val::Null], error),
                }
            }
            [PlanNode::Const(Val::String(name)), operand] if call.membership => {
                let operand = self.node(operand);
                self.member(call, name, operand)
            }
            [left, right] => {
                let left = match left {
                    PlanNode::Const(val) => Ok(val.borrow()),
                    left => self.node(left),
                };
                if let Err(error) = &left
                    && (error.is_fatal() || call.stops_early)
                {
                    return left;
                }
                let right = match right {
                    PlanNode::Const(val) => Ok(val.borrow()),
                    right => self.node(right),
                };
                if let Err(error) = &right
                    && error.is_fatal()
                {
                    return right;
                }
                match (left, right) {
                    (Ok(left), Ok(right)) => {
                        let args = [left, right];
                        let outcome = self.invoke(call, &args);
                        self.finish(call, &args, outcome)
                    }
                    (left, right) => {
                        let args = [
                            left.as_ref().ok().cloned().unwrap_or(Val::Null),
                            right.as_ref().ok().cloned().unwrap_or(Val::Null),
                        ];
                        let at = usize::from(left.is_ok());
                        let last = usize::from(right.is_err());
                        let error = left.err().or(right.err()).unwrap_or_else(Error::no_such_overload);
                        self.failed(call, at, last, &args, error)
                    }
                }
            }
            many => {
                let mut args = Vec::with_capacity(many.len());
                for (at, arg) in many.iter().enumerate() {
                    match self.node(arg) {
                        Ok(val) => args.push(val),
                        Err(error) if error.is_fatal() || at + 1 < many.len() => return Err(error),
                        Err(error) => {
                            args.push(Val::Null);
                            return self.finish(call, &args, Err(error));
                        }
                    }
                }
                let outcome = self.invoke(call, &args);
                self.finish(call, &args, outcome)
            }
        }
    }

    /// `name in operand` with a constant name.
    fn member(
        &mut self,
        call: &'a CallNode,
        name: &'a Text<'static>,
        operand: EvalResult<'a>,
    ) -> EvalResult<'a> {
        match operand {
            Ok(Val::Map(MapVal::Data(map, None))) => {
                self.charge(1)?;
                Ok(Val::Bool(map.contains_key(name)))
            }
            Ok(operand) => {
                let args = [Val::str(name), operand];
                let outcome = self.invoke(call, &args);
                self.finish(call, &args, outcome)
            }
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => self.failed(call, 1, 1, &[Val::Null, Val::Null], error),
        }
    }

    /// Charges for a call whose arguments at `first` to `last` failed, and returns the error.
    fn failed(
        &mut self,
        call: &'a CallNode,
        first: usize,
        last: usize,
        args: &[Val<'a>],
        error: Error,
    ) -> EvalResult<'a> {
        // For these functions cel-go computes the cost from the failed argument, which panics.
        let tripped = match call.rule {
            CostRule::SelfCompare(list) if list >= first => {
                Some("interface conversion: *types.Err is not traits.Lister: missing method Add")
            }
            CostRule::Flatten if last == 1 => {
                Some("interface conversion: ref.Val is *types.Err, not types.Int")
            }
            _ => None,
        };
        if let Some(message) = tripped {
            return Err(Error::of(ErrorKind::Internal(message.into())));
        }
        self.finish(call, args, Err(error))
    }

    /// Charges for a call and returns its outcome.
    fn finish(&mut self, call: &'a CallNode, args: &[Val<'a>], outcome: EvalResult<'a>) -> EvalResult<'a> {
        if let Err(error) = &outcome
            && error.is_fatal()
        {
            return outcome;
        }
        if outcome.is_err()
            && let Some(message) = cost_error(call.rule, args)
        {
            return Err(Error::of(ErrorKind::Internal(message.into())));
        }
        match (call.rule, args.first()) {
            (CostRule::Deep, Some(val)) => {
                // Empty lists and short strings cost nothing.
                let walked = DeepCost::of(val);
                self.charge(walked.cost)?;
                self.cx
                    .steps
                    .take(usize::try_from(walked.parts / ELEMENTS_PER_STEP).unwrap_or(usize::MAX))?;
            }
            (CostRule::Units(_), _) => {
                self.charge(call.rule.cost(args, None))?;
                for arg in args {
                    self.cx.steps.take_bytes(arg.flat_bytes())?;
                }
            }
            _ => self.charge(call.rule.cost(args, outcome.as_ref().ok()))?,
        }
        if let Ok(result) = &outcome {
            self.count_result(result)?;
        }
        outcome
    }

    /// Counts the creation of a result: its memory, and the time of a large one, which is more than its cost. A result
    /// that is shared with an argument or a variable was not created.
    fn count_result(&self, result: &Val<'a>) -> Result<(), Error> {
        let steps = &self.cx.steps;
        let taken = match result {
            Val::String(Text::Owned(text)) if text.len() > LARGE_TEXT && Arc::strong_count(text) == 1 => {
                steps.take(text.len() / 8)
            }
            Val::List(ListVal::Owned(items))
                if items.len() > LARGE_COLLECTION && Arc::strong_count(items) == 1 =>
            {
                steps.take(items.len())
            }
            Val::Map(MapVal::Owned(entries))
                if entries.len() > LARGE_COLLECTION && Arc::strong_count(entries) == 1 =>
            {
                steps.take(entries.len())
            }
            Val::Ext(ext) if Arc::strong_count(ext) == 1 => steps.take_bytes(ext.bytes()),
            Val::Bool(_) | Val::Int(_) => return Ok(()),
            _ => Ok(()),
        };
        taken.and_then(|()| steps.create(result.unshared_bytes()))
    }

    fn invoke(&mut self, call: &'a CallNode, args: &[Val<'a>]) -> EvalResult<'a> {
        // Quadratic comparisons do not start if the remaining budget cannot pay for them.
        if matches!(call.rule, CostRule::Sets(_) | CostRule::SelfCompare(_))
            && self.cost.saturating_add(call.rule.cost(args, None)) > self.limit
        {
            return Err(Error::cost_limit());
        }
        match &call.run {
            CallImplementation::Overload(overload, run, guarded) => {
                if *guarded && !overload.fits(args) {
                    return Err(no_such_overload(&call.function, args));
                }
                run(&self.cx, args)
            }
            CallImplementation::Dispatch(function) => dispatch(&self.cx, function, args),
            CallImplementation::Singleton(singleton) => match args.first() {
                Some(first) if (singleton.accepts)(first.kind()) => (singleton.run)(&self.cx, args),
                // Strings, timestamps and durations dispatch their methods themselves in cel-go, with a shorter
                // message.
                Some(first)
                    if matches!(first.kind(), ValKind::String | ValKind::Timestamp | ValKind::Duration) =>
                {
                    Err(Error::no_such_overload())
                }
                _ => Err(Error::new(format!("no such overload: {}", call.function))),
            },
            CallImplementation::Pattern(kind, compiled) => pattern::run(*kind, compiled, args),
            CallImplementation::Missing => match args.first().map(Val::kind) {
                Some(ValKind::String | ValKind::Timestamp | ValKind::Duration) => {
                    Err(Error::no_such_overload())
                }
                _ if args.len() > 2 => {
                    Err(Error::new(format!("no such overload: {} {}", call.function, call.id)))
                }
                _ => Err(Error::new(format!("no such overload: {}", call.function))),
            },
        }
    }
}

/// Calls the first overload whose declaration matches the arguments.
fn dispatch<'a>(cx: &CallContext<'a>, function: &Function, args: &[Val<'a>]) -> EvalResult<'a> {
    for overload in &function.overloads {
        if let Some(run) = overload.run
            && args.len() == overload.args.len()
            && (!function.guarded || overload.fits(args))
        {
            return run(cx, args);
        }
    }
    Err(no_such_overload(&function.name, args))
}

/// The panic message of cel-go for an argument whose type its cost function does not expect.
fn cost_error(rule: CostRule, args: &[Val<'_>]) -> Option<String> {
    match rule {
        CostRule::SelfCompare(list) => {
            let arg = args.get(list).filter(|arg| arg.kind() != ValKind::List)?;
            let missing = if arg.kind().is_addable() { "Contains" } else { "Add" };
            Some(format!(
                "interface conversion: {} is not traits.Lister: missing method {missing}",
                go_type(arg)
            ))
        }
        CostRule::Flatten => {
            let depth = args.get(1).filter(|depth| depth.kind() != ValKind::Int)?;
            Some(format!("interface conversion: ref.Val is {}, not types.Int", go_type(depth)))
        }
        _ => None,
    }
}

/// The error for arguments that no overload accepts.
pub(crate) fn no_such_overload(function: &str, args: &[Val<'_>]) -> Error {
    let types: Vec<&str> = args.iter().map(Val::type_name).collect();
    Error::new(format!("no such overload: {function}({})", types.join(", ")))
}
