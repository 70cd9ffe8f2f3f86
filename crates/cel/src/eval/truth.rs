//! Conditions. They are most of what runs, so the values on the way to a condition on plain data are never made.

use value::{Map, Value};

use super::{Error, Eval, Slot};
use crate::cost::runtime::{matching, traverse};
use crate::plan::condition::{Comparison, Condition, MOST_PLACES, Place, Reading, Test, Within};
use crate::plan::node::{Members, Node};
use crate::val::{self, Val, length};

/// A condition that is tried. It changes nothing until it has an answer, so it can be given up anywhere: where a value is
/// missing or is not of the sort asked for, where data is not plain. What it gives and costs is what the instructions would.
struct Attempt<'a, 'e> {
    values: &'e [Option<Val<'a>>],
    slots: &'e [Slot<'a>],
    /// The variable of the loop around it and its element, which is in no slot yet.
    element: Option<(usize, &'a Map)>,
    places: &'a [Place],
    /// What was found at places.
    found: [Option<&'a Value>; MOST_PLACES],
    cost: u64,
}

impl<'a> Eval<'a, '_> {
    /// What a condition gives. Gives, fails and costs as [`Eval::node`] does; what is no boolean is no such overload.
    pub(super) fn truth(&mut self, node: &'a Node) -> Result<bool, Error> {
        match node {
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Condition(condition) => match self.attempt(condition, None) {
                Some(b) => Ok(b),
                None => self.truth(&condition.node),
            },
            node => self.node(node)?.as_bool().ok_or_else(Error::no_such_overload),
        }
    }

    /// `&&` and `||`: the value that decides wins over errors on the other side.
    pub(super) fn logic(&mut self, terms: &'a (Node, Node), deciding: bool) -> Result<bool, Error> {
        let failed = match self.truth(&terms.0) {
            Ok(b) if b == deciding => return Ok(deciding),
            Ok(_) => return self.truth(&terms.1),
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => error,
        };
        match self.truth(&terms.1) {
            Ok(b) if b == deciding => Ok(deciding),
            Err(error) if error.is_fatal() => Err(error),
            _ => Err(failed),
        }
    }

    /// Tries a condition; `None`, and no cost, where its instructions have to run.
    pub(super) fn attempt(
        &mut self,
        condition: &'a Condition,
        element: Option<(usize, &'a Map)>,
    ) -> Option<bool> {
        let mut attempt = Attempt {
            values: self.values,
            slots: self.slots,
            element,
            places: &condition.places,
            found: [None; MOST_PLACES],
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

impl<'a> Attempt<'a, '_> {
    fn holds(&mut self, test: &'a Test) -> Option<bool> {
        Some(match test {
            Test::And(terms) => self.holds(&terms.0)? && self.holds(&terms.1)?,
            Test::Or(terms) => self.holds(&terms.0)? || self.holds(&terms.1)?,
            Test::Not(term) => {
                let holds = self.holds(term)?;
                self.charge(1);
                !holds
            }
            Test::Has(reading) => {
                self.charge(reading.cost);
                self.has(reading.place)?
            }
            Test::Holds(reading) => self.read(*reading)?.as_bool()?,
            Test::IsBool(reading, constant, wanted) => {
                (self.read(*reading)?.as_bool()? == *constant) == *wanted
            }
            Test::IsInt(reading, constant, wanted) => match self.read(*reading)? {
                Value::Int(i) => (i == constant) == *wanted,
                _ => return None,
            },
            Test::IsText(reading, constant, size, wanted) => {
                let text = self.text(*reading)?;
                self.charge(traverse((length(text) as u64).min(*size)));
                (text == &**constant) == *wanted
            }
            Test::Compares(reading, comparison, constant) => match self.read(*reading)? {
                Value::Int(i) => match comparison {
                    Comparison::Less => i < constant,
                    Comparison::LessOrEqual => i <= constant,
                    Comparison::Greater => i > constant,
                    Comparison::GreaterOrEqual => i >= constant,
                },
                _ => return None,
            },
            Test::Contains(reading, key) => match self.read(*reading)? {
                Value::Map(map) => map.contains_key(key),
                _ => return None,
            },
            Test::OneOf(reading, members) => {
                let text = self.text(*reading)?;
                match members {
                    Members::Few(members) => members.iter().any(|member| member.as_str() == Some(text)),
                    Members::Strings(members) => members.contains(text),
                }
            }
            Test::Starts(reading, start) => self.text(*reading)?.starts_with(&**start),
            Test::Ends(reading, end) => self.text(*reading)?.ends_with(&**end),
            Test::Includes(reading, part, size) => {
                let text = self.text(*reading)?;
                self.charge(traverse(length(text) as u64).saturating_mul(*size));
                text.contains(&**part)
            }
            Test::Matches(reading, pattern, size) => {
                let text = self.text(*reading)?;
                self.charge(matching(length(text) as u64, *size));
                // The instructions say what is wrong if that is too much work.
                pattern.try_match(text).ok()?
            }
        })
    }

    fn charge(&mut self, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
    }

    /// The value at a place that has to be there.
    fn read(&mut self, reading: Reading) -> Option<&'a Value> {
        self.charge(reading.cost);
        self.value(reading.place)
    }

    fn text(&mut self, reading: Reading) -> Option<&'a str> {
        self.read(reading)?.as_str()
    }

    /// Whether something is at a place; `None` if the map it would be in is not there.
    fn has(&mut self, place: usize) -> Option<bool> {
        if let Some(Some(_)) = self.found.get(place) {
            return Some(true);
        }
        let Place { within, name } = self.places.get(place)?;
        let found = self.map(*within)?.get(name);
        self.keep(place, found);
        Some(found.is_some())
    }

    /// What is at a place.
    fn value(&mut self, place: usize) -> Option<&'a Value> {
        if let Some(Some(found)) = self.found.get(place) {
            return Some(*found);
        }
        let Place { within, name } = self.places.get(place)?;
        let found = self.map(*within)?.get(name);
        self.keep(place, found);
        found
    }

    fn keep(&mut self, place: usize, found: Option<&'a Value>) {
        if let Some(known) = self.found.get_mut(place) {
            *known = found;
        }
    }

    /// The plain map that a place is in.
    fn map(&mut self, within: Within) -> Option<&'a Map> {
        match within {
            Within::Place(outer) => self.value(outer)?.as_map(),
            Within::Variable(at) => plain(self.values.get(at)?.as_ref()?),
            Within::Slot(at) => match self.element {
                Some((slot, element)) if slot == at => Some(element),
                _ => match self.slots.get(at)? {
                    Slot::Val(val) => plain(val),
                    _ => None,
                },
            },
        }
    }
}

fn plain<'a>(val: &Val<'a>) -> Option<&'a Map> {
    match val {
        Val::Map(val::Map::Data(map, None)) => Some(map),
        _ => None,
    }
}
