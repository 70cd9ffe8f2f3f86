//! The nodes of a program's plan.

use std::sync::Arc;

use value::Str;

use super::condition::DataCondition;
use super::members::ConstantMembers;
use crate::cost::runtime::CostRule;
use crate::decl::{Function, Implementation, Overload, Singleton};
use crate::eval::Error;
use crate::lib::pattern::Pattern;
use crate::val::Val;

/// A plan node: evaluates to a value or an error.
#[derive(Clone, Debug)]
pub(crate) enum PlanNode {
    /// A constant, which costs nothing.
    Const(Val<'static>),
    /// A result computed when planning, with the cost to charge for it.
    Folded(Box<Folded>),
    /// A variable or the result of another node, followed by a path of qualifiers.
    Attribute(Box<Attribute>),
    /// `a ? b : c`, followed by a path of qualifiers.
    Conditional(Box<Conditional>),
    And(Box<(PlanNode, PlanNode)>),
    Or(Box<(PlanNode, PlanNode)>),
    Equals(Box<(PlanNode, PlanNode)>),
    NotEquals(Box<(PlanNode, PlanNode)>),
    /// True unless the argument is `false`; an error counts as true.
    NotStrictlyFalse(Box<PlanNode>),
    Call(Box<CallNode>),
    /// `x in […]` with a constant list; charges only the cost of `x`.
    InConstant(Box<(PlanNode, ConstantMembers)>),
    OptionalOr(Box<(PlanNode, PlanNode)>),
    OptionalOrValue(Box<(PlanNode, PlanNode)>),
    List(Box<ListNode>),
    Map(Box<MapNode>),
    Struct(Box<StructNode>),
    Fold(Box<Fold>),
    /// A variable that is computed when first read (`cel.bind`).
    Bind(Box<BindNode>),
    /// A condition on plain data, with its fallback node.
    Condition(Box<DataCondition>),
}

#[derive(Clone, Debug)]
pub(crate) struct Folded {
    pub(crate) outcome: Result<Val<'static>, Error>,
    pub(crate) cost: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    pub(crate) base: AttributeBase,
    pub(crate) path: Vec<Qualifier>,
    /// `has(…)`: the last step only tests for presence.
    pub(crate) test_only: bool,
    /// True if all steps are mandatory fields, so that plain data can be read directly.
    pub(crate) plain: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum AttributeBase {
    /// Index into the environment's variables.
    Variable(usize),
    /// Index of a comprehension variable's slot.
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

/// One step of a path: a field, index or key.
#[derive(Clone, Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: QualifierKey,
    /// Optional selection (`.?` or `[?]`): an absent element gives `optional.none()`.
    pub(crate) optional: bool,
    /// True if the checker resolved the field in a declared type.
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
    /// If true, arguments after a failing one are not evaluated.
    pub(crate) stops_early: bool,
    /// True for `in` at unit cost, which mostly is a constant key in a map.
    pub(crate) membership: bool,
}

/// How a call finds its implementation.
#[derive(Clone, Debug)]
pub(crate) enum CallImplementation {
    /// The overload that the checker resolved. If the flag is set, argument types are compared with its declaration
    /// first.
    Overload(Arc<Overload>, Implementation, bool),
    /// The first overload whose declaration matches the argument types.
    Dispatch(Arc<Function>),
    /// One implementation shared by all overloads.
    Singleton(Singleton),
    /// A regular expression compiled when planning.
    Pattern(PatternCall, Arc<Pattern>),
    /// The declaration has no implementation: the call fails.
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternCall {
    Matches,
    Find,
    FindAll,
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
    /// Slot of the element, or of the key or index if there are two variables.
    pub(crate) var: usize,
    /// Slot of the second variable (the value).
    pub(crate) var2: Option<usize>,
    pub(crate) kind: FoldKind,
}

#[derive(Clone, Debug)]
pub(crate) enum FoldKind {
    All(PlanNode),
    Exists(PlanNode),
    ExistsOne(PlanNode),
    /// `map`, `filter`: appends the elements of the list `items` for every turn that passes the filter.
    Append {
        filter: Option<PlanNode>,
        items: PlanNode,
    },
    /// `transformMap`, `transformMapEntry`: inserts `key: value`, or without a key all entries of the map `value`,
    /// for every turn that passes the filter.
    Insert {
        filter: Option<PlanNode>,
        key: Option<PlanNode>,
        value: PlanNode,
    },
    /// Any other comprehension, with its parts as in the syntax tree.
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
