//! The instructions of a program.

use std::sync::Arc;

use value::Str;

use super::condition::DataCondition;
use crate::cost::runtime::CostRule;
use crate::decl::{Function, Implementation, Overload, Singleton};
use crate::eval::Error;
use crate::lib::pattern::Pattern;
use crate::val::Val;

/// An instruction: evaluates to a value or fails.
#[derive(Clone, Debug)]
pub(crate) enum PlanNode {
    /// A constant; costs nothing.
    Const(Val<'static>),
    /// What is known before the program runs, and what finding it out would have cost.
    Folded(Box<Folded>),
    /// A variable or the result of another instruction, and a path into it.
    Attribute(Box<Attribute>),
    /// `a ? b : c`, and a path into the result.
    Conditional(Box<Conditional>),
    And(Box<(PlanNode, PlanNode)>),
    Or(Box<(PlanNode, PlanNode)>),
    Equals(Box<(PlanNode, PlanNode)>),
    NotEquals(Box<(PlanNode, PlanNode)>),
    /// Whether the argument is anything but `false`; never fails.
    NotStrictlyFalse(Box<PlanNode>),
    Call(Box<CallNode>),
    /// `x in […]` where the list is constant; costs only `x`.
    InConstant(Box<(PlanNode, ConstantMembers)>),
    OptionalOr(Box<(PlanNode, PlanNode)>),
    OptionalOrValue(Box<(PlanNode, PlanNode)>),
    List(Box<ListNode>),
    Map(Box<MapNode>),
    Struct(Box<StructNode>),
    Fold(Box<Fold>),
    /// A variable that is computed when it is first read.
    Bind(Box<BindNode>),
    /// A condition that is tried before its instructions are run.
    Condition(Box<DataCondition>),
}

#[derive(Clone, Debug)]
pub(crate) struct Folded {
    pub(crate) outcome: Result<Val<'static>, Error>,
    pub(crate) cost: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) path: Vec<Qualifier>,
    /// `has(…)`: the last step only asks whether it could be taken.
    pub(crate) test_only: bool,
    /// Whether all steps are fields that have to be there.
    pub(crate) plain: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Base {
    /// A variable of the environment, by its position.
    Variable(usize),
    /// A variable of a comprehension, by its slot.
    Slot(usize),
    Operand(PlanNode),
}

#[derive(Clone, Debug)]
pub(crate) struct Conditional {
    pub(crate) condition: PlanNode,
    pub(crate) truthy: PlanNode,
    pub(crate) falsy: PlanNode,
    pub(crate) path: Vec<Qualifier>,
}

/// A step into a value.
#[derive(Clone, Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: QualifierKey,
    /// Whether a step that cannot be taken gives an empty optional.
    pub(crate) optional: bool,
    /// Whether the step was checked against a type with fields.
    pub(crate) typed: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum QualifierKey {
    Field(Arc<str>),
    Constant(Val<'static>),
    Computed(PlanNode),
}

#[derive(Clone, Debug)]
pub(crate) struct CallNode {
    pub(crate) id: u32,
    pub(crate) function: Str,
    pub(crate) args: Box<[PlanNode]>,
    pub(crate) run: CallImplementation,
    pub(crate) rule: CostRule,
    /// Whether arguments after a failing one are left alone.
    pub(crate) stops_early: bool,
    /// Whether it is `in` at unit cost: most often a constant key and a map.
    pub(crate) membership: bool,
}

/// What runs a call.
#[derive(Clone, Debug)]
pub(crate) enum CallImplementation {
    /// The one overload that fits the types; the arguments are compared with its declaration if it is guarded.
    Overload(Arc<Overload>, Implementation, bool),
    /// The first overload that fits the arguments.
    Dispatch(Arc<Function>),
    /// One implementation for all overloads.
    Singleton(Singleton),
    /// A pattern that was compiled before.
    Pattern(PatternCall, Arc<Pattern>),
    /// Nothing: the declaration has no implementation for this shape.
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternCall {
    Matches,
    Find,
    FindAll,
}

/// The elements of a constant list.
#[derive(Clone, Debug)]
pub(crate) enum ConstantMembers {
    Few(Vec<Val<'static>>),
    Strings(std::collections::HashSet<Arc<str>>),
}

#[derive(Clone, Debug)]
pub(crate) struct ListNode {
    pub(crate) elements: Box<[(PlanNode, bool)]>,
}

#[derive(Clone, Debug)]
pub(crate) struct MapNode {
    pub(crate) entries: Box<[(PlanNode, PlanNode, bool)]>,
}

#[derive(Clone, Debug)]
pub(crate) struct StructNode {
    pub(crate) type_name: Str,
    pub(crate) fields: Box<[(Str, PlanNode, bool)]>,
}

#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) range: PlanNode,
    /// The slot of the element, or of the key or index when there are two variables.
    pub(crate) var: usize,
    /// The slot of the second variable.
    pub(crate) var2: Option<usize>,
    pub(crate) kind: FoldKind,
}

#[derive(Clone, Debug)]
pub(crate) enum FoldKind {
    All(PlanNode),
    Exists(PlanNode),
    ExistsOne(PlanNode),
    /// A list of the elements of `items`, a list evaluated for each element that passes the filter.
    Append {
        filter: Option<PlanNode>,
        items: PlanNode,
    },
    /// A map of entries: a key and a value, or a map of them, evaluated for each element that passes the filter.
    Insert {
        filter: Option<PlanNode>,
        key: Option<PlanNode>,
        value: PlanNode,
    },
    /// Anything else.
    General {
        accu: usize,
        init: PlanNode,
        condition: PlanNode,
        step: PlanNode,
        result: PlanNode,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct BindNode {
    pub(crate) slot: usize,
    pub(crate) value: PlanNode,
    pub(crate) result: PlanNode,
}
