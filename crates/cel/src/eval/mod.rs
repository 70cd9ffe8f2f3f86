//! Evaluates plan nodes and counts the cost.

mod activation;
mod attribute;
mod call;
mod condition;
mod error;
mod fold;

use std::collections::HashMap;
use std::sync::Arc;

pub use activation::Activation;
pub(crate) use attribute::go_type;
pub(crate) use call::no_such_overload;
pub use error::{Error, ErrorKind};

use crate::cost::runtime::CostRule;
use crate::lib::Ext;
use crate::lib::authz::RecordedDecisions;
use crate::plan::members::ConstantMembers;
use crate::plan::node::{ListNode, MapNode, PlanNode, StructNode};
use crate::val::{ListVal, MapEntries, MapVal, ObjectVal, Steps, TruncatedVal, Val, equal, equal_nested};
use value::Str;

/// The result of evaluating an expression or a part of it.
pub type EvalResult<'a> = Result<Val<'a>, Error>;

/// Context that functions may need besides their arguments.
pub(crate) struct CallContext<'a> {
    pub(crate) authorizer: Option<&'a dyn RecordedDecisions>,
    /// Counts the work of walking through values.
    pub(crate) steps: Steps<'a>,
}

/// The result of a program run, with its cost.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value, or the error that ended the evaluation.
    pub outcome: EvalResult<'a>,
    /// Cost in Kubernetes' cost units.
    pub cost: u64,
    /// Work of compiling regular expressions from data and of matching, in units of about 100 ns (an upper bound). It
    /// is not part of the cost.
    pub pattern_work: u64,
    /// Work that the cost does not account for, in units of about 10 ns: steps through values, and evaluated parts of
    /// the expression beyond [`PARTS_PER_COST_UNIT`].
    pub uncharged_work: u64,
    /// Bytes of all values that the evaluation created.
    pub created_bytes: u64,
}

/// Parts of an expression, or loop turns, that one unit of cost pays for. Ordinary expressions need fewer.
const PARTS_PER_COST_UNIT: u64 = 4;
/// Upper bound of evaluated parts and loop turns that the cost does not pay for; some 50 ms.
const MAX_UNCHARGED_PARTS: u64 = 4_000_000;
/// Parts evaluated between two checks of the limit.
const PARTS_PER_CHECK: u64 = 1024;

/// Slots that one loop needs at most.
const ONE_LOOP_SLOTS: usize = 3;
/// Slots kept on the stack; more are allocated on the heap.
const INLINE_SLOTS: usize = 8;

/// Evaluates a plan within a cost limit.
pub(crate) fn run<'a>(
    root: &'a PlanNode,
    slots: usize,
    activation: &Activation<'a>,
    limit: u64,
) -> Evaluation<'a> {
    // Most programs have few comprehension variables or none, and need no allocation.
    if slots == 0 {
        return run_in(root, &mut [], activation, limit);
    }
    let mut few: [VariableSlot<'a>; ONE_LOOP_SLOTS] = [const { VariableSlot::Empty }; ONE_LOOP_SLOTS];
    if let Some(slots) = few.get_mut(..slots) {
        return run_in(root, slots, activation, limit);
    }
    let mut many: [VariableSlot<'a>; INLINE_SLOTS] = [const { VariableSlot::Empty }; INLINE_SLOTS];
    if let Some(slots) = many.get_mut(..slots) {
        return run_in(root, slots, activation, limit);
    }
    run_in(root, &mut vec![VariableSlot::Empty; slots], activation, limit)
}

fn run_in<'a>(
    root: &'a PlanNode,
    slots: &mut [VariableSlot<'a>],
    activation: &Activation<'a>,
    limit: u64,
) -> Evaluation<'a> {
    let mut eval = Eval {
        values: &activation.values,
        names: &activation.names,
        absent: &activation.absent,
        cx: CallContext {
            authorizer: activation.authorizer,
            steps: Steps::new(activation.interrupted, activation.memory),
        },
        ticks: 0,
        parts: 0,
        next_check: PARTS_PER_CHECK,
        slots,
        cost: 0,
        limit,
    };
    let outcome = eval.node(root);
    Evaluation {
        outcome,
        cost: eval.cost,
        pattern_work: 0,
        uncharged_work: eval.uncharged_parts().saturating_add(eval.cx.steps.taken()),
        created_bytes: eval.cx.steps.created(),
    }
}

/// Evaluates a node that reads no variables.
pub(crate) fn run_constant(root: &PlanNode) -> (Result<Val<'static>, Error>, u64) {
    let activation = Activation {
        values: Vec::new(),
        names: Arc::from([]),
        absent: Vec::new(),
        authorizer: None,
        interrupted: None,
        memory: None,
    };
    let Evaluation { outcome, cost, .. } = run(root, 0, &activation, u64::MAX);
    (outcome.map(|val| val.own()), cost)
}

/// Storage of a comprehension variable.
#[derive(Clone)]
enum VariableSlot<'a> {
    Empty,
    Val(Val<'a>),
    Failed(Error),
    /// Evaluated when first read.
    Lazy(&'a PlanNode),
}

struct Eval<'a, 'v> {
    values: &'v [Option<Val<'a>>],
    names: &'v [Str],
    absent: &'v [usize],
    cx: CallContext<'a>,
    ticks: u32,
    /// Evaluated nodes, loop turns and collected keys.
    parts: u64,
    /// Number of parts at which they are next compared with the limit.
    next_check: u64,
    slots: &'v mut [VariableSlot<'a>],
    cost: u64,
    limit: u64,
}

/// Loop turns between two checks for interruption.
const TURNS_PER_INTERRUPT_CHECK: u32 = 100;

impl<'a> Eval<'a, '_> {
    #[inline]
    fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Error::cost_limit()) } else { Ok(()) }
    }

    /// Evaluated parts that the cost does not pay for.
    fn uncharged_parts(&self) -> u64 {
        self.parts.saturating_sub(self.cost.saturating_mul(PARTS_PER_COST_UNIT))
    }

    /// Counts evaluated parts: constants, loop turns and several operators are free, and may be many.
    #[inline]
    fn count_parts(&mut self, parts: usize) -> Result<(), Error> {
        self.parts = self.parts.saturating_add(parts as u64);
        if self.parts < self.next_check { Ok(()) } else { self.check_parts() }
    }

    #[cold]
    fn check_parts(&mut self) -> Result<(), Error> {
        self.next_check = self.parts.saturating_add(PARTS_PER_CHECK);
        if self.uncharged_parts() > MAX_UNCHARGED_PARTS {
            return Err(Error::cost_limit());
        }
        self.cx.steps.check_interrupt()
    }

    /// Counts a loop turn.
    fn tick(&mut self) -> Result<(), Error> {
        self.parts = self.parts.saturating_add(1);
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(TURNS_PER_INTERRUPT_CHECK) {
            self.cx.steps.check_interrupt()
        } else {
            Ok(())
        }
    }

    fn set_slot(&mut self, slot: usize, value: VariableSlot<'a>) {
        if let Some(variable) = self.slots.get_mut(slot) {
            *variable = value;
        }
    }

    fn node(&mut self, node: &'a PlanNode) -> EvalResult<'a> {
        self.count_parts(1)?;
        match node {
            PlanNode::Const(val) => Ok(val.borrow()),
            PlanNode::Folded(folded) => {
                self.charge(folded.cost)?;
                match &folded.outcome {
                    Ok(val) => Ok(val.borrow()),
                    Err(error) => Err(error.clone()),
                }
            }
            PlanNode::Attribute(attribute) => {
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
            PlanNode::Conditional(_) => self.eval_unobserved(node),
            PlanNode::And(terms) => self.logic(terms, false).map(Val::Bool),
            PlanNode::Or(terms) => self.logic(terms, true).map(Val::Bool),
            PlanNode::Equals(terms) => self.equality(terms, true),
            PlanNode::NotEquals(terms) => self.equality(terms, false),
            PlanNode::NotStrictlyFalse(arg) => {
                let outcome = self.node(arg);
                if let Err(error) = &outcome
                    && error.is_fatal()
                {
                    return outcome;
                }
                self.charge(1)?;
                Ok(Val::Bool(!matches!(outcome, Ok(Val::Bool(false)))))
            }
            PlanNode::Call(call) => self.call(call),
            PlanNode::InConstant(both) => self.in_constant(&both.0, &both.1),
            PlanNode::OptionalOr(both) => match self.node(&both.0)? {
                Val::Optional(None) => self.node(&both.1),
                some @ Val::Optional(_) => Ok(some),
                _ => Err(Error::no_such_overload()),
            },
            PlanNode::OptionalOrValue(both) => match self.node(&both.0)? {
                Val::Optional(None) => self.node(&both.1),
                Val::Optional(Some(val)) => Ok((*val).clone()),
                _ => Err(Error::no_such_overload()),
            },
            PlanNode::List(list) => self.list(list),
            PlanNode::Map(map) => self.map(map),
            PlanNode::Struct(object) => self.object(object),
            PlanNode::Fold(fold) => self.fold(fold),
            PlanNode::Bind(bind) => {
                self.set_slot(bind.slot, VariableSlot::Lazy(&bind.value));
                self.node(&bind.result)
            }
            PlanNode::Condition(condition) => match self.attempt(condition, None) {
                Some(b) => Ok(Val::Bool(b)),
                None => self.node(&condition.node),
            },
        }
    }

    /// `arg in LIST` for a constant list.
    fn in_constant(&mut self, arg: &'a PlanNode, members: &'a ConstantMembers) -> EvalResult<'a> {
        let val = self.node(arg)?;
        check_hashable(&val)?;
        match members {
            ConstantMembers::Few(members) => {
                for member in members {
                    if equal_nested(&self.cx.steps, member, &val, false)? {
                        return Ok(Val::Bool(true));
                    }
                }
                Ok(Val::Bool(false))
            }
            ConstantMembers::Hashed(members) => Ok(Val::Bool(members.contains(&val))),
        }
    }

    fn equality(&mut self, terms: &'a (PlanNode, PlanNode), wanted: bool) -> EvalResult<'a> {
        let left = self.node(&terms.0);
        if let Err(error) = &left
            && error.is_fatal()
        {
            return left;
        }
        if let (Ok(left), PlanNode::Const(right)) = (&left, &terms.1) {
            // A constant operand is compared without copying it.
            self.charge(CostRule::pair(left, right, wanted))?;
            return eval_equality(&self.cx.steps, left, right, wanted);
        }
        let right = self.node(&terms.1);
        if let Err(error) = &right
            && error.is_fatal()
        {
            return right;
        }
        let rule = if wanted { CostRule::Equals } else { CostRule::Smaller };
        let (left, right) = match (left, right) {
            (Ok(left), Ok(right)) => {
                let args = [left, right];
                self.charge(rule.cost(&args, None))?;
                let [left, right] = args;
                (left, right)
            }
            (left, right) => {
                // A failed operand counts as size one.
                let args = [
                    left.as_ref().ok().cloned().unwrap_or(Val::Null),
                    right.as_ref().ok().cloned().unwrap_or(Val::Null),
                ];
                self.charge(rule.cost(&args, None))?;
                (left?, right?)
            }
        };
        eval_equality(&self.cx.steps, &left, &right, wanted)
    }

    fn list(&mut self, list: &'a ListNode) -> EvalResult<'a> {
        let outcome = self.elements(list);
        self.construct(outcome, 10)
    }

    fn elements(&mut self, list: &'a ListNode) -> EvalResult<'a> {
        self.cx.steps.create(ListVal::bytes(list.elements.len()))?;
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
                        TruncatedVal(&val)
                    )));
                }
            }
        }
        Ok(Val::list(items))
    }

    fn construct(&mut self, outcome: EvalResult<'a>, cost: u64) -> EvalResult<'a> {
        if let Err(error) = &outcome
            && error.is_fatal()
        {
            return outcome;
        }
        self.charge(cost)?;
        outcome
    }

    fn map(&mut self, map: &'a MapNode) -> EvalResult<'a> {
        let outcome = self.entries(map);
        self.construct(outcome, 30)
    }

    fn entries(&mut self, map: &'a MapNode) -> EvalResult<'a> {
        self.cx.steps.create(map.entries.len().saturating_mul(MapEntries::ENTRY_BYTES))?;
        let mut entries = MapEntries::default();
        for (key, value, optional) in &map.entries {
            let key = self.node(key)?;
            let val = self.node(value)?;
            check_hashable(&key)?;
            self.cx.steps.take_bytes(key.flat_bytes())?;
            self.cx.steps.create(key.flat_bytes())?;
            if !optional {
                entries.insert(key, val);
                continue;
            }
            match val {
                Val::Optional(None) => {
                    if entries.find(&key).is_some() {
                        // A removal moves the other entries.
                        self.cx.steps.take(entries.len())?;
                        entries.remove(&key);
                    }
                }
                Val::Optional(Some(val)) => entries.insert(key, (*val).clone()),
                val => return Err(not_optional(&TruncatedVal(&key).to_string(), &val)),
            }
        }
        Ok(Val::Map(MapVal::of(entries)))
    }

    fn object(&mut self, object: &'a StructNode) -> EvalResult<'a> {
        let outcome = self.fields(object);
        self.construct(outcome, 40)
    }

    fn fields(&mut self, object: &'a StructNode) -> EvalResult<'a> {
        // Removed fields leave a gap, and repeated ones are found by name: a long literal takes linear time.
        self.cx.steps.create(object.fields.len().saturating_mul(ObjectVal::FIELD_BYTES))?;
        let mut fields: Vec<Option<(Str, Val<'a>)>> = Vec::with_capacity(object.fields.len());
        let mut positions: HashMap<&'a str, usize> = HashMap::with_capacity(object.fields.len());
        for (name, value, optional) in &object.fields {
            let mut val = self.node(value)?;
            if *optional {
                val = match val {
                    Val::Optional(None) => {
                        if let Some(field) = positions.remove(name.as_str()).and_then(|at| fields.get_mut(at))
                        {
                            *field = None;
                        }
                        continue;
                    }
                    Val::Optional(Some(val)) => (*val).clone(),
                    val => return Err(not_optional(name, &val)),
                };
            }
            let known = positions.get(name.as_str()).and_then(|at| fields.get_mut(*at));
            match known {
                Some(field) => *field = Some((name.clone(), val)),
                None => {
                    positions.insert(name, fields.len());
                    fields.push(Some((name.clone(), val)));
                }
            }
        }
        let fields = fields.into_iter().flatten().collect();
        crate::lib::messages::make(ObjectVal { type_name: object.type_name.clone(), fields })
    }
}

/// `==`, or `!=` if `wanted` is false. Values that cannot be compared are different under `!=`.
fn eval_equality<'a>(steps: &Steps<'_>, left: &Val<'_>, right: &Val<'_>, wanted: bool) -> EvalResult<'a> {
    match equal(steps, left, right) {
        Ok(same) => Ok(Val::Bool(same == wanted)),
        Err(error) if wanted || error.is_fatal() => Err(error),
        Err(_) => Ok(Val::Bool(true)),
    }
}

fn not_optional(name: &str, val: &Val<'_>) -> Error {
    Error::new(format!(
        "cannot initialize optional entry '{name}' from non-optional value {}",
        TruncatedVal(val)
    ))
}

/// Rejects map keys that Go cannot hash; cel-go panics on them.
pub(crate) fn check_hashable(key: &Val<'_>) -> Result<(), Error> {
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
