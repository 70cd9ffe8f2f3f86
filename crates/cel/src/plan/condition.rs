//! Recognizes conditions on plain data, such as `has(object.spec.x) && object.spec.x == 'y'`.
//!
//! Most policy expressions are of this form. A [`DataCondition`] is evaluated without creating values and without
//! errors; where it cannot give a result, the plan nodes that it replaces run instead.

use std::sync::Arc;

use super::members::ConstantMembers;
use super::node::{
    Attribute, AttributeBase, CallImplementation, Fold, FoldKind, PatternCall, PlanNode, QualifierKey,
};
use crate::cost::runtime::{CostRule, traverse};
use crate::lib::pattern::Pattern;
use crate::syntax::operator;
use crate::val::{Val, length};

/// Upper bound of distinct fields that one condition reads.
pub(crate) const MAX_FIELDS: usize = 8;

/// A condition, with the equivalent plan node to run when the condition gives no result.
#[derive(Clone, Debug)]
pub(crate) struct DataCondition {
    pub(crate) fields: Box<[DataField]>,
    pub(crate) test: ConditionTest,
    pub(crate) node: PlanNode,
}

/// A field of plain data. Fields that several parts of a condition read are listed, and looked up, once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DataField {
    pub(crate) parent: FieldParent,
    pub(crate) name: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldParent {
    Variable(usize),
    Slot(usize),
    Field(usize),
}

/// The supported tests. Each charges the cost of the node that it replaces.
#[derive(Clone, Debug)]
pub(crate) enum ConditionTest {
    And(Box<(ConditionTest, ConditionTest)>),
    Or(Box<(ConditionTest, ConditionTest)>),
    Not(Box<ConditionTest>),
    /// `has(field)`: the field is present.
    Has(FieldRead),
    /// The field is `true`.
    Holds(FieldRead),
    /// `==` (or `!=` if the last flag is false) with a constant.
    IsBool(FieldRead, bool, bool),
    IsInt(FieldRead, i64, bool),
    /// The number is the constant's length in code points.
    IsText(FieldRead, Box<str>, u64, bool),
    /// An integer comparison with a constant.
    Compares(FieldRead, NumberComparison, i64),
    /// `'key' in field`, where the field is a map.
    Contains(FieldRead, Box<str>),
    /// `field in […]` with a constant list.
    OneOf(FieldRead, ConstantMembers),
    /// `field.startsWith(…)` with a constant prefix.
    Starts(FieldRead, Box<str>),
    Ends(FieldRead, Box<str>),
    /// `field.contains(constant)`; the number is the cost of traversing the constant.
    Includes(FieldRead, Box<str>, u64),
    /// `field.matches(constant)`; the number is the pattern's length in code points.
    Matches(FieldRead, Arc<Pattern>, u64),
}

/// Index of a field in [`DataCondition::fields`], with the part of the test's cost that is known when planning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldRead {
    pub(crate) field: usize,
    pub(crate) cost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberComparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Replaces the largest possible subtrees of `node` by conditions.
pub(super) fn insert_conditions(node: &mut PlanNode) {
    let mut finder = ConditionFinder::default();
    if let Some(test) = finder.test(node) {
        let fields = finder.fields.into_boxed_slice();
        let inner = std::mem::replace(node, PlanNode::Const(Val::Null));
        *node = PlanNode::Condition(Box::new(DataCondition { fields, test, node: inner }));
        return;
    }
    for_each_child(node, &mut insert_conditions);
}

#[derive(Default)]
struct ConditionFinder {
    fields: Vec<DataField>,
}

impl ConditionFinder {
    /// Translates a node into a test; `None` if it is not supported.
    fn test(&mut self, node: &PlanNode) -> Option<ConditionTest> {
        Some(match node {
            PlanNode::And(terms) => {
                ConditionTest::And(Box::new((self.term(&terms.0)?, self.term(&terms.1)?)))
            }
            PlanNode::Or(terms) => ConditionTest::Or(Box::new((self.term(&terms.0)?, self.term(&terms.1)?))),
            PlanNode::Attribute(attribute) if attribute.test_only => {
                ConditionTest::Has(self.field_read(attribute, 0)?)
            }
            PlanNode::Equals(terms) => self.equality(terms, true)?,
            PlanNode::NotEquals(terms) => self.equality(terms, false)?,
            PlanNode::InConstant(both) => {
                let (PlanNode::Attribute(attribute), members) = &**both else { return None };
                ConditionTest::OneOf(self.value(attribute, 0)?, members.clone())
            }
            PlanNode::Call(call) => match (call.function.as_str(), &*call.args, call.rule) {
                (operator::NOT, [arg], CostRule::Units(1)) => ConditionTest::Not(Box::new(self.term(arg)?)),
                (
                    operator::IN,
                    [PlanNode::Const(Val::String(key)), PlanNode::Attribute(map)],
                    CostRule::Units(1),
                ) => ConditionTest::Contains(self.value(map, 1)?, key.as_str().into()),
                (
                    name,
                    [PlanNode::Attribute(number), PlanNode::Const(Val::Int(other))],
                    CostRule::Units(1),
                ) => ConditionTest::Compares(self.value(number, 1)?, comparison(name)?, *other),
                (
                    "startsWith",
                    [PlanNode::Attribute(text), PlanNode::Const(Val::String(start))],
                    CostRule::Traverse(1),
                ) => ConditionTest::Starts(self.value(text, size(start))?, start.as_str().into()),
                (
                    "endsWith",
                    [PlanNode::Attribute(text), PlanNode::Const(Val::String(end))],
                    CostRule::Traverse(1),
                ) => ConditionTest::Ends(self.value(text, size(end))?, end.as_str().into()),
                (
                    "contains",
                    [PlanNode::Attribute(text), PlanNode::Const(Val::String(part))],
                    CostRule::Contains,
                ) => ConditionTest::Includes(self.value(text, 0)?, part.as_str().into(), size(part)),
                (
                    _,
                    [PlanNode::Attribute(text), PlanNode::Const(Val::String(written))],
                    CostRule::Pattern,
                ) => {
                    let CallImplementation::Pattern(PatternCall::Matches, pattern) = &call.run else {
                        return None;
                    };
                    ConditionTest::Matches(self.value(text, 0)?, pattern.clone(), length(written) as u64)
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Like [`ConditionFinder::test`], but also accepts a boolean field.
    fn term(&mut self, node: &PlanNode) -> Option<ConditionTest> {
        match node {
            PlanNode::Attribute(attribute) if !attribute.test_only => {
                Some(ConditionTest::Holds(self.value(attribute, 0)?))
            }
            node => self.test(node),
        }
    }

    fn equality(&mut self, terms: &(PlanNode, PlanNode), wanted: bool) -> Option<ConditionTest> {
        let (PlanNode::Attribute(attribute), PlanNode::Const(constant)) = terms else { return None };
        Some(match constant {
            Val::Bool(b) => ConditionTest::IsBool(self.value(attribute, 1)?, *b, wanted),
            Val::Int(i) => ConditionTest::IsInt(self.value(attribute, 1)?, *i, wanted),
            Val::String(text) => ConditionTest::IsText(
                self.value(attribute, 0)?,
                text.as_str().into(),
                length(text) as u64,
                wanted,
            ),
            _ => return None,
        })
    }

    /// A read of an attribute's value: costs one per step and one for the attribute itself.
    fn value(&mut self, attribute: &Attribute, cost: u64) -> Option<FieldRead> {
        if attribute.test_only { None } else { self.field_read(attribute, cost + 1) }
    }

    fn field_read(&mut self, attribute: &Attribute, cost: u64) -> Option<FieldRead> {
        if !attribute.plain {
            return None;
        }
        let mut parent = match attribute.base {
            AttributeBase::Variable(at) => FieldParent::Variable(at),
            AttributeBase::Slot(at) => FieldParent::Slot(at),
            AttributeBase::Operand(_) => return None,
        };
        let mut last = None;
        for step in &attribute.path {
            let QualifierKey::Field(name) = &step.key else { return None };
            let field = DataField { parent, name: (&**name).into() };
            let at = self.fields.iter().position(|known| *known == field);
            let at = at.unwrap_or_else(|| {
                self.fields.push(field);
                self.fields.len() - 1
            });
            if at >= MAX_FIELDS {
                return None;
            }
            parent = FieldParent::Field(at);
            last = Some(at);
        }
        Some(FieldRead { field: last?, cost: cost + attribute.path.len() as u64 })
    }
}

/// Cost of traversing a string.
fn size(text: &str) -> u64 {
    traverse(length(text) as u64)
}

fn comparison(function: &str) -> Option<NumberComparison> {
    Some(match function {
        "_<_" => NumberComparison::Less,
        "_<=_" => NumberComparison::LessOrEqual,
        "_>_" => NumberComparison::Greater,
        "_>=_" => NumberComparison::GreaterOrEqual,
        _ => return None,
    })
}

/// Calls `each` for the direct children of a node.
fn for_each_child(node: &mut PlanNode, each: &mut impl FnMut(&mut PlanNode)) {
    match node {
        PlanNode::Const(_) | PlanNode::Folded(_) | PlanNode::Condition(_) => {}
        PlanNode::Attribute(attribute) => {
            if let AttributeBase::Operand(operand) = &mut attribute.base {
                each(operand);
            }
            for_each_computed_key(&mut attribute.path, each);
        }
        PlanNode::Conditional(conditional) => {
            each(&mut conditional.condition);
            each(&mut conditional.truthy);
            each(&mut conditional.falsy);
            for_each_computed_key(&mut conditional.path, each);
        }
        PlanNode::And(both)
        | PlanNode::Or(both)
        | PlanNode::Equals(both)
        | PlanNode::NotEquals(both)
        | PlanNode::OptionalOr(both)
        | PlanNode::OptionalOrValue(both) => {
            each(&mut both.0);
            each(&mut both.1);
        }
        PlanNode::NotStrictlyFalse(arg) => each(arg),
        PlanNode::Call(call) => call.args.iter_mut().for_each(each),
        PlanNode::InConstant(both) => each(&mut both.0),
        PlanNode::List(list) => list.elements.iter_mut().for_each(|(element, _)| each(element)),
        PlanNode::Map(map) => {
            for (key, value, _) in &mut map.entries {
                each(key);
                each(value);
            }
        }
        PlanNode::Struct(object) => object.fields.iter_mut().for_each(|(_, value, _)| each(value)),
        PlanNode::Fold(fold) => for_each_loop_part(fold, each),
        PlanNode::Bind(bind) => {
            each(&mut bind.value);
            each(&mut bind.result);
        }
    }
}

fn for_each_computed_key(path: &mut [super::node::Qualifier], each: &mut impl FnMut(&mut PlanNode)) {
    for step in path {
        if let QualifierKey::Computed(node) = &mut step.key {
            each(node);
        }
    }
}

fn for_each_loop_part(fold: &mut Fold, each: &mut impl FnMut(&mut PlanNode)) {
    each(&mut fold.range);
    match &mut fold.kind {
        FoldKind::All(predicate) | FoldKind::Exists(predicate) | FoldKind::ExistsOne(predicate) => {
            each(predicate);
        }
        FoldKind::Append { filter, items } => {
            filter.iter_mut().for_each(&mut *each);
            each(items);
        }
        FoldKind::Insert { filter, key, value } => {
            filter.iter_mut().for_each(&mut *each);
            key.iter_mut().for_each(&mut *each);
            each(value);
        }
        FoldKind::General { accu: _, init, condition, step, result } => {
            each(init);
            each(condition);
            each(step);
            each(result);
        }
    }
}
