//! Evaluates boolean nodes, and [`DataCondition`]s without creating values.

use value::{Map, Value};

use super::{Error, Eval, VariableSlot};
use crate::cost::runtime::{matching, traverse};
use crate::plan::condition::{
    ConditionTest, DataCondition, DataField, FieldParent, FieldRead, MAX_FIELDS, NumberComparison,
};
use crate::plan::node::PlanNode;
use crate::val::{self, Val, length, length_up_to};

/// Evaluation of a [`DataCondition`]. It has no side effects until it has a result, so it can be abandoned at any
/// point: when a value is missing or has an unexpected type, or data is not plain. Result and cost equal those of the
/// replaced node.
struct ConditionAttempt<'a, 'e> {
    values: &'e [Option<Val<'a>>],
    slots: &'e [VariableSlot<'a>],
    /// Slot of the enclosing loop's variable and its element, which was not stored in the slot.
    element: Option<(usize, &'a Map)>,
    fields: &'a [DataField],
    /// Field values found so far, by field index.
    found: [Option<&'a Value>; MAX_FIELDS],
    cost: u64,
}

impl<'a> Eval<'a, '_> {
    /// Evaluates a node to a boolean, with the cost and errors of [`Eval::node`]. Other types fail with "no such
    /// overload".
    pub(super) fn eval_bool(&mut self, node: &'a PlanNode) -> Result<bool, Error> {
        match node {
            PlanNode::And(terms) => self.logic(terms, false),
            PlanNode::Or(terms) => self.logic(terms, true),
            PlanNode::Condition(condition) => match self.attempt(condition, None) {
                Some(b) => Ok(b),
                None => self.eval_bool(&condition.node),
            },
            node => self.node(node)?.as_bool().ok_or_else(Error::no_such_overload),
        }
    }

    /// `&&` and `||`: the deciding value wins over an error on the other side.
    pub(super) fn logic(&mut self, terms: &'a (PlanNode, PlanNode), deciding: bool) -> Result<bool, Error> {
        let failed = match self.eval_bool(&terms.0) {
            Ok(b) if b == deciding => return Ok(deciding),
            Ok(_) => return self.eval_bool(&terms.1),
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => error,
        };
        match self.eval_bool(&terms.1) {
            Ok(b) if b == deciding => Ok(deciding),
            Err(error) if error.is_fatal() => Err(error),
            _ => Err(failed),
        }
    }

    /// Evaluates a condition. Returns `None` at no cost if its node must be evaluated instead.
    pub(super) fn attempt(
        &mut self,
        condition: &'a DataCondition,
        element: Option<(usize, &'a Map)>,
    ) -> Option<bool> {
        let mut attempt = ConditionAttempt {
            values: self.values,
            slots: self.slots,
            element,
            fields: &condition.fields,
            found: [None; MAX_FIELDS],
            cost: self.cost,
        };
        let holds = attempt.holds(&condition.test)?;
        if attempt.cost > self.limit {
            return None;
        }
        self.cost = attempt.cost;
        Some(holds)
    }
}

impl<'a> ConditionAttempt<'a, '_> {
    fn holds(&mut self, test: &'a ConditionTest) -> Option<bool> {
        Some(match test {
            ConditionTest::And(terms) => self.holds(&terms.0)? && self.holds(&terms.1)?,
            ConditionTest::Or(terms) => self.holds(&terms.0)? || self.holds(&terms.1)?,
            ConditionTest::Not(term) => {
                let holds = self.holds(term)?;
                self.charge(1);
                !holds
            }
            ConditionTest::Has(field_read) => {
                self.charge(field_read.cost);
                self.has(field_read.field)?
            }
            ConditionTest::Holds(field_read) => self.read(*field_read)?.as_bool()?,
            ConditionTest::IsBool(field_read, constant, wanted) => {
                (self.read(*field_read)?.as_bool()? == *constant) == *wanted
            }
            ConditionTest::IsInt(field_read, constant, wanted) => match self.read(*field_read)? {
                Value::Int(i) => (i == constant) == *wanted,
                _ => return None,
            },
            ConditionTest::IsText(field_read, constant, size, wanted) => {
                let text = self.text(*field_read)?;
                self.charge(traverse(length_up_to(text, *size)));
                (text == &**constant) == *wanted
            }
            ConditionTest::Compares(field_read, comparison, constant) => match self.read(*field_read)? {
                Value::Int(i) => match comparison {
                    NumberComparison::Less => i < constant,
                    NumberComparison::LessOrEqual => i <= constant,
                    NumberComparison::Greater => i > constant,
                    NumberComparison::GreaterOrEqual => i >= constant,
                },
                _ => return None,
            },
            ConditionTest::Contains(field_read, key) => match self.read(*field_read)? {
                Value::Map(map) => map.contains_key(key),
                _ => return None,
            },
            ConditionTest::OneOf(field_read, members) => {
                let text = self.text(*field_read)?;
                members.contains_text(text)
            }
            ConditionTest::Starts(field_read, start) => self.text(*field_read)?.starts_with(&**start),
            ConditionTest::Ends(field_read, end) => self.text(*field_read)?.ends_with(&**end),
            ConditionTest::Includes(field_read, part, size) => {
                let text = self.text(*field_read)?;
                self.charge(traverse(length(text) as u64).saturating_mul(*size));
                text.contains(&**part)
            }
            ConditionTest::Matches(field_read, pattern, size) => {
                let text = self.text(*field_read)?;
                self.charge(matching(length(text) as u64, *size));
                // If matching exceeds its limit, the fallback node reports the error.
                pattern.try_match(text).ok()?
            }
        })
    }

    fn charge(&mut self, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
    }

    /// Charges for a field and returns its value; `None` if it is absent.
    fn read(&mut self, field_read: FieldRead) -> Option<&'a Value> {
        self.charge(field_read.cost);
        self.value(field_read.field)
    }

    fn text(&mut self, field_read: FieldRead) -> Option<&'a str> {
        self.read(field_read)?.as_str()
    }

    /// True if a field is present; `None` if its parent is not a plain map.
    fn has(&mut self, field: usize) -> Option<bool> {
        if let Some(Some(_)) = self.found.get(field) {
            return Some(true);
        }
        let DataField { parent, name } = self.fields.get(field)?;
        let found = self.map(*parent)?.get(name);
        self.keep(field, found);
        Some(found.is_some())
    }

    /// The value of a field, looked up once.
    fn value(&mut self, field: usize) -> Option<&'a Value> {
        if let Some(Some(found)) = self.found.get(field) {
            return Some(*found);
        }
        let DataField { parent, name } = self.fields.get(field)?;
        let found = self.map(*parent)?.get(name);
        self.keep(field, found);
        found
    }

    fn keep(&mut self, field: usize, found: Option<&'a Value>) {
        if let Some(known) = self.found.get_mut(field) {
            *known = found;
        }
    }

    /// The plain map that contains a field.
    fn map(&mut self, parent: FieldParent) -> Option<&'a Map> {
        match parent {
            FieldParent::Field(outer) => self.value(outer)?.as_map(),
            FieldParent::Variable(at) => plain(self.values.get(at)?.as_ref()?),
            FieldParent::Slot(at) => match self.element {
                Some((slot, element)) if slot == at => Some(element),
                _ => match self.slots.get(at)? {
                    VariableSlot::Val(val) => plain(val),
                    _ => None,
                },
            },
        }
    }
}

fn plain<'a>(val: &Val<'a>) -> Option<&'a Map> {
    match val {
        Val::Map(val::MapVal::Data(map, None)) => Some(map),
        _ => None,
    }
}
