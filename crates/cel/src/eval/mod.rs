//! A program and data to a value, counting what it costs.

mod attribute;
mod error;
mod fold;
mod truth;

use std::sync::Arc;

pub(crate) use attribute::go_type;
pub use error::{Error, ErrorKind};

use crate::cost::runtime::Rule;
use crate::decl::Function;
use crate::env::Env;
use crate::lib::authz::Authorizer;
use crate::lib::{Ext, pattern};
use crate::plan::node::{Call, ListNode, MapNode, Members, Node, Run, StructNode};
use crate::val::{Brief, Entries, Map, Object, Steps, Tag, Text, Val, equal, within};
use value::Str;

/// A value or a failure.
pub type Outcome<'a> = Result<Val<'a>, Error>;

/// What functions may need besides their arguments.
pub(crate) struct Cx<'a> {
    pub(crate) authorizer: Option<&'a dyn Authorizer>,
    /// What walks through values counts its steps here.
    pub(crate) steps: Steps<'a>,
}

/// The values of the variables of an environment.
#[derive(Clone)]
pub struct Activation<'a> {
    values: Vec<Option<Val<'a>>>,
    names: Arc<[Str]>,
    authorizer: Option<&'a dyn Authorizer>,
    interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl<'a> Activation<'a> {
    /// No values yet, for the variables of `env`.
    pub fn new(env: &Env) -> Self {
        let names = env.variable_names();
        Activation { values: vec![None; names.len()], names, authorizer: None, interrupted: None }
    }

    /// Sets a variable; a name the environment does not declare is left out.
    pub fn set(&mut self, name: &str, val: Val<'a>) {
        if let Some(at) = self.names.iter().position(|declared| declared == name)
            && let Some(slot) = self.values.get_mut(at)
        {
            *slot = Some(val);
        }
    }

    /// As [`Activation::set`], for building.
    #[must_use]
    pub fn with(mut self, name: &str, val: Val<'a>) -> Self {
        self.set(name, val);
        self
    }

    /// What answers the checks of the `authorizer` variable.
    pub fn set_authorizer(&mut self, authorizer: &'a dyn Authorizer) {
        self.authorizer = Some(authorizer);
    }

    /// Asked now and then while loops run; evaluation ends when it says yes.
    pub fn set_interrupt(&mut self, interrupted: &'a (dyn Fn() -> bool + Sync)) {
        self.interrupted = Some(interrupted);
    }
}

/// What a run gave and what it cost.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value, or why there is none.
    pub outcome: Outcome<'a>,
    /// The cost, in Kubernetes' units.
    pub cost: u64,
}

/// How many slots one loop needs.
const FEW: usize = 3;
/// How many slots are kept without an allocation.
const MANY: usize = 8;

/// Runs an instruction tree.
pub(crate) fn run<'a>(
    root: &'a Node,
    slots: usize,
    activation: &Activation<'a>,
    limit: u64,
) -> Evaluation<'a> {
    // Most programs have few variables in comprehensions, or none: those need no allocation.
    if slots == 0 {
        return run_in(root, &mut [], activation, limit);
    }
    let mut few: [Slot<'a>; FEW] = [const { Slot::Empty }; FEW];
    if let Some(slots) = few.get_mut(..slots) {
        return run_in(root, slots, activation, limit);
    }
    let mut many: [Slot<'a>; MANY] = [const { Slot::Empty }; MANY];
    if let Some(slots) = many.get_mut(..slots) {
        return run_in(root, slots, activation, limit);
    }
    run_in(root, &mut vec![Slot::Empty; slots], activation, limit)
}

fn run_in<'a>(
    root: &'a Node,
    slots: &mut [Slot<'a>],
    activation: &Activation<'a>,
    limit: u64,
) -> Evaluation<'a> {
    let mut eval = Eval {
        values: &activation.values,
        names: &activation.names,
        cx: Cx { authorizer: activation.authorizer, steps: Steps::new(activation.interrupted) },
        ticks: 0,
        slots,
        cost: 0,
        limit,
    };
    let outcome = eval.node(root);
    Evaluation { outcome, cost: eval.cost }
}

/// Runs an instruction tree that reads nothing.
pub(crate) fn run_constant(root: &Node) -> (Result<Val<'static>, Error>, u64) {
    let activation =
        Activation { values: Vec::new(), names: Arc::from([]), authorizer: None, interrupted: None };
    let Evaluation { outcome, cost } = run(root, 0, &activation, u64::MAX);
    (outcome.map(|val| val.own()), cost)
}

/// A variable of a comprehension.
#[derive(Clone)]
enum Slot<'a> {
    Empty,
    Val(Val<'a>),
    Failed(Error),
    /// To be computed when it is first read.
    Lazy(&'a Node),
}

struct Eval<'a, 'v> {
    values: &'v [Option<Val<'a>>],
    names: &'v [Str],
    cx: Cx<'a>,
    ticks: u32,
    slots: &'v mut [Slot<'a>],
    cost: u64,
    limit: u64,
}

/// From what size on the making of a result is counted.
const LARGE: usize = 4096;
/// How often a loop asks whether it was interrupted.
const TICKS: u32 = 100;

impl<'a> Eval<'a, '_> {
    #[inline]
    fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Error::cost_limit()) } else { Ok(()) }
    }

    fn tick(&mut self) -> Result<(), Error> {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(TICKS) { self.cx.steps.go_on() } else { Ok(()) }
    }

    fn set_slot(&mut self, slot: usize, value: Slot<'a>) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = value;
        }
    }

    fn node(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Const(val) => Ok(val.borrow()),
            Node::Folded(folded) => {
                self.charge(folded.cost)?;
                match &folded.outcome {
                    Ok(val) => Ok(val.borrow()),
                    Err(error) => Err(error.clone()),
                }
            }
            Node::Attribute(attribute) => {
                let outcome = self.attribute(attribute);
                if let Err(error) = &outcome
                    && error.is_fatal()
                {
                    return outcome;
                }
                if !attribute.test_only {
                    self.charge(1)?;
                }
                outcome
            }
            Node::Conditional(_) => self.unobserved(node),
            Node::And(terms) => self.logic(terms, false).map(Val::Bool),
            Node::Or(terms) => self.logic(terms, true).map(Val::Bool),
            Node::Equals(terms) => self.equality(terms, true),
            Node::NotEquals(terms) => self.equality(terms, false),
            Node::NotStrictlyFalse(arg) => {
                let outcome = self.node(arg);
                if let Err(error) = &outcome
                    && error.is_fatal()
                {
                    return outcome;
                }
                self.charge(1)?;
                Ok(Val::Bool(!matches!(outcome, Ok(Val::Bool(false)))))
            }
            Node::Call(call) => self.call(call),
            Node::InConstant(both) => {
                let (arg, members) = &**both;
                let val = self.node(arg)?;
                match members {
                    Members::Few(members) => {
                        for member in members {
                            if within(&self.cx.steps, member, &val, false)? {
                                return Ok(Val::Bool(true));
                            }
                        }
                        Ok(Val::Bool(false))
                    }
                    Members::Strings(members) => {
                        Ok(Val::Bool(val.as_str().is_some_and(|text| members.contains(text))))
                    }
                }
            }
            Node::OptionalOr(both) => match self.node(&both.0)? {
                Val::Optional(None) => self.node(&both.1),
                some @ Val::Optional(_) => Ok(some),
                _ => Err(Error::no_such_overload()),
            },
            Node::OptionalOrValue(both) => match self.node(&both.0)? {
                Val::Optional(None) => self.node(&both.1),
                Val::Optional(Some(val)) => Ok((*val).clone()),
                _ => Err(Error::no_such_overload()),
            },
            Node::List(list) => self.list(list),
            Node::Map(map) => self.map(map),
            Node::Struct(object) => self.object(object),
            Node::Fold(fold) => self.fold(fold),
            Node::Bind(bind) => {
                self.set_slot(bind.slot, Slot::Lazy(&bind.value));
                self.node(&bind.result)
            }
            Node::Condition(condition) => match self.attempt(condition, None) {
                Some(b) => Ok(Val::Bool(b)),
                None => self.node(&condition.node),
            },
        }
    }

    fn equality(&mut self, terms: &'a (Node, Node), wanted: bool) -> Outcome<'a> {
        let left = self.node(&terms.0);
        if let Err(error) = &left
            && error.is_fatal()
        {
            return left;
        }
        if let (Ok(left), Node::Const(right)) = (&left, &terms.1) {
            // A constant is compared where it is.
            self.charge(Rule::pair(left, right, wanted))?;
            return compared(&self.cx.steps, left, right, wanted);
        }
        let right = self.node(&terms.1);
        if let Err(error) = &right
            && error.is_fatal()
        {
            return right;
        }
        let rule = if wanted { Rule::Equals } else { Rule::Smaller };
        let (left, right) = match (left, right) {
            (Ok(left), Ok(right)) => {
                let args = [left, right];
                self.charge(rule.cost(&args, None))?;
                let [left, right] = args;
                (left, right)
            }
            (left, right) => {
                // A failed side counts as of size one.
                let args = [
                    left.as_ref().ok().cloned().unwrap_or(Val::Null),
                    right.as_ref().ok().cloned().unwrap_or(Val::Null),
                ];
                self.charge(rule.cost(&args, None))?;
                (left?, right?)
            }
        };
        compared(&self.cx.steps, &left, &right, wanted)
    }

    fn call(&mut self, call: &'a Call) -> Outcome<'a> {
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
            [Node::Const(Val::String(name)), operand] if call.membership => {
                let operand = self.node(operand);
                self.member(call, name, operand)
            }
            [left, right] => {
                let left = match left {
                    Node::Const(val) => Ok(val.borrow()),
                    left => self.node(left),
                };
                if let Err(error) = &left
                    && (error.is_fatal() || call.stops_early)
                {
                    return left;
                }
                let right = match right {
                    Node::Const(val) => Ok(val.borrow()),
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

    /// `name in operand`.
    fn member(&mut self, call: &'a Call, name: &'a Text<'static>, operand: Outcome<'a>) -> Outcome<'a> {
        match operand {
            Ok(Val::Map(Map::Data(map, None))) => {
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

    /// Charges a call that was not made because arguments failed, from the one at `first` to the one at `last`.
    fn failed(
        &mut self,
        call: &'a Call,
        first: usize,
        last: usize,
        args: &[Val<'a>],
        error: Error,
    ) -> Outcome<'a> {
        // The reference counts the cost of these with the failed argument in hand, and trips over it.
        let tripped = match call.rule {
            Rule::SelfCompare(list) if list >= first => {
                Some("interface conversion: *types.Err is not traits.Lister: missing method Add")
            }
            Rule::Flatten if last == 1 => Some("interface conversion: ref.Val is *types.Err, not types.Int"),
            _ => None,
        };
        if let Some(message) = tripped {
            return Err(Error::of(ErrorKind::Internal(message.into())));
        }
        self.finish(call, args, Err(error))
    }

    /// Charges a call that was made.
    fn finish(&mut self, call: &'a Call, args: &[Val<'a>], outcome: Outcome<'a>) -> Outcome<'a> {
        if let Err(error) = &outcome
            && error.is_fatal()
        {
            return outcome;
        }
        if outcome.is_err()
            && let Some(message) = tripped(call.rule, args)
        {
            return Err(Error::of(ErrorKind::Internal(message.into())));
        }
        self.charge(call.rule.cost(args, outcome.as_ref().ok()))?;
        match &outcome {
            // Large results cost less than the time it takes to make them.
            Ok(Val::String(text)) if text.len() > LARGE => self.cx.steps.take(text.len() / 8)?,
            Ok(Val::List(list)) if list.len() > LARGE => self.cx.steps.take(list.len())?,
            _ => {}
        }
        outcome
    }

    fn invoke(&mut self, call: &'a Call, args: &[Val<'a>]) -> Outcome<'a> {
        // What compares everything with everything is not begun where its cost cannot be paid.
        if matches!(call.rule, Rule::Sets(_) | Rule::SelfCompare(_))
            && self.cost.saturating_add(call.rule.cost(args, None)) > self.limit
        {
            return Err(Error::cost_limit());
        }
        match &call.run {
            Run::Overload(overload, run, guarded) => {
                if *guarded && !overload.fits(args) {
                    return Err(no_such_overload(&call.function, args));
                }
                run(&self.cx, args)
            }
            Run::Dispatch(function) => dispatch(&self.cx, function, args),
            Run::Singleton(singleton) => match args.first() {
                Some(first) if (singleton.accepts)(first.tag()) => (singleton.run)(&self.cx, args),
                // These sorts have methods of their own in cel-go, which say it in fewer words.
                Some(first) if matches!(first.tag(), Tag::String | Tag::Timestamp | Tag::Duration) => {
                    Err(Error::no_such_overload())
                }
                _ => Err(Error::new(format!("no such overload: {}", call.function))),
            },
            Run::Pattern(kind, compiled) => pattern::run(*kind, compiled, args),
            Run::Missing => match args.first().map(Val::tag) {
                Some(Tag::String | Tag::Timestamp | Tag::Duration) => Err(Error::no_such_overload()),
                _ if args.len() > 2 => {
                    Err(Error::new(format!("no such overload: {} {}", call.function, call.id)))
                }
                _ => Err(Error::new(format!("no such overload: {}", call.function))),
            },
        }
    }

    fn list(&mut self, list: &'a ListNode) -> Outcome<'a> {
        let outcome = self.elements(list);
        self.construct(outcome, 10)
    }

    fn elements(&mut self, list: &'a ListNode) -> Outcome<'a> {
        let mut items = Vec::with_capacity(list.elements.len());
        for (element, optional) in &list.elements {
            let val = self.node(element)?;
            if !optional {
                items.push(val);
                continue;
            }
            match val {
                Val::Optional(None) => {}
                Val::Optional(Some(val)) => items.push((*val).clone()),
                val => {
                    return Err(Error::new(format!(
                        "cannot initialize optional list element from non-optional value {}",
                        Brief(&val)
                    )));
                }
            }
        }
        Ok(Val::list(items))
    }

    fn construct(&mut self, outcome: Outcome<'a>, cost: u64) -> Outcome<'a> {
        if let Err(error) = &outcome
            && error.is_fatal()
        {
            return outcome;
        }
        self.charge(cost)?;
        outcome
    }

    fn map(&mut self, map: &'a MapNode) -> Outcome<'a> {
        let outcome = self.entries(map);
        self.construct(outcome, 30)
    }

    fn entries(&mut self, map: &'a MapNode) -> Outcome<'a> {
        let mut entries = Entries::default();
        for (key, value, optional) in &map.entries {
            let key = self.node(key)?;
            let val = self.node(value)?;
            hashable(&key)?;
            if !optional {
                entries.insert(key, val);
                continue;
            }
            match val {
                Val::Optional(None) => entries.remove(&key),
                Val::Optional(Some(val)) => entries.insert(key, (*val).clone()),
                val => return Err(not_optional(&key.to_string(), &val)),
            }
        }
        Ok(Val::Map(Map::of(entries)))
    }

    fn object(&mut self, object: &'a StructNode) -> Outcome<'a> {
        let outcome = self.fields(object);
        self.construct(outcome, 40)
    }

    fn fields(&mut self, object: &'a StructNode) -> Outcome<'a> {
        let mut fields: Vec<(Str, Val<'a>)> = Vec::with_capacity(object.fields.len());
        for (name, value, optional) in &object.fields {
            let mut val = self.node(value)?;
            if *optional {
                val = match val {
                    Val::Optional(None) => {
                        fields.retain(|(field, _)| field != name);
                        continue;
                    }
                    Val::Optional(Some(val)) => (*val).clone(),
                    val => return Err(not_optional(name, &val)),
                };
            }
            match fields.iter_mut().find(|(field, _)| field == name) {
                Some((_, old)) => *old = val,
                None => fields.push((name.clone(), val)),
            }
        }
        crate::lib::messages::make(Object { type_name: object.type_name.clone(), fields })
    }
}

/// `==`, or `!=`, which takes what cannot be compared for different.
fn compared<'a>(steps: &Steps<'_>, left: &Val<'_>, right: &Val<'_>, wanted: bool) -> Outcome<'a> {
    match equal(steps, left, right) {
        Ok(same) => Ok(Val::Bool(same == wanted)),
        Err(error) if wanted || error.is_fatal() => Err(error),
        Err(_) => Ok(Val::Bool(true)),
    }
}

fn not_optional(name: &str, val: &Val<'_>) -> Error {
    Error::new(format!("cannot initialize optional entry '{name}' from non-optional value {}", Brief(val)))
}

/// Runs the first overload whose declaration fits the arguments.
fn dispatch<'a>(cx: &Cx<'a>, function: &Function, args: &[Val<'a>]) -> Outcome<'a> {
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

/// What the reference says when it trips over an argument of the wrong type while it counts the cost of a call.
fn tripped(rule: Rule, args: &[Val<'_>]) -> Option<String> {
    match rule {
        Rule::SelfCompare(list) => {
            let arg = args.get(list).filter(|arg| arg.tag() != Tag::List)?;
            let adds = matches!(
                arg.tag(),
                Tag::Int
                    | Tag::Uint
                    | Tag::Double
                    | Tag::String
                    | Tag::Bytes
                    | Tag::Duration
                    | Tag::Timestamp
            );
            let missing = if adds { "Contains" } else { "Add" };
            Some(format!(
                "interface conversion: {} is not traits.Lister: missing method {missing}",
                go_type(arg)
            ))
        }
        Rule::Flatten => {
            let depth = args.get(1).filter(|depth| depth.tag() != Tag::Int)?;
            Some(format!("interface conversion: ref.Val is {}, not types.Int", go_type(depth)))
        }
        _ => None,
    }
}

/// Refuses keys of maps that the reference cannot hash; it ends the evaluation there too.
pub(crate) fn hashable(key: &Val<'_>) -> Result<(), Error> {
    let unhashable = match key {
        Val::Bytes(_) => true,
        Val::Ext(ext) => matches!(&**ext, Ext::Format(_) | Ext::Semver(_)),
        _ => false,
    };
    if !unhashable {
        return Ok(());
    }
    let message = format!("runtime error: hash of unhashable type {}", go_type(key));
    Err(Error::of(ErrorKind::Internal(message.into())))
}

/// The failure of a call that no overload fits.
pub(crate) fn no_such_overload(function: &str, args: &[Val<'_>]) -> Error {
    let types: Vec<&str> = args.iter().map(Val::type_name).collect();
    Error::new(format!("no such overload: {function}({})", types.join(", ")))
}
