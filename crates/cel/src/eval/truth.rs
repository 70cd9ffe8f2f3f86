//! Conditions. They are most of what runs, so the values on the way to a condition on plain data are never made.

use value::Value;

use super::attribute::Step;
use super::{Error, Eval, compared};
use crate::cost::runtime::Rule;
use crate::plan::node::{Attribute, Node};
use crate::val::Val;

impl<'a> Eval<'a, '_> {
    /// What a condition gives. Gives, fails and costs as [`Eval::node`] does; what is no boolean is no such overload.
    pub(super) fn truth(&mut self, node: &'a Node) -> Result<bool, Error> {
        match node {
            Node::And(terms) => return self.logic(terms, false),
            Node::Or(terms) => return self.logic(terms, true),
            Node::Attribute(attribute) if attribute.test_only => {
                if let Some(map) = self.plain_data(attribute) {
                    return match self.walk(map, &attribute.path, true)? {
                        Step::Present(present) => Ok(present),
                        step => boolean(&step.into_val()),
                    };
                }
            }
            Node::Equals(terms) => {
                if let (Node::Attribute(attribute), Node::Const(right)) = &**terms
                    && let Some(left) = self.read(attribute)?
                {
                    let left = Val::data(left);
                    self.charge(Rule::pair(&left, right, true))?;
                    return boolean(&compared(&left, right, true)?);
                }
            }
            Node::Call(call) if call.membership => {
                if let [Node::Const(Val::String(name)), Node::Attribute(attribute)] = &*call.args
                    && let Some(operand) = self.read(attribute)?
                {
                    if let Value::Map(map) = operand {
                        self.charge(1)?;
                        return Ok(map.contains_key(name));
                    }
                    return boolean(&self.member(call, name, Ok(Val::data(operand)))?);
                }
            }
            _ => {}
        }
        boolean(&self.node(node)?)
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

    /// What an attribute of plain data is, with its cost. `None`, and no cost, where it takes more to find out.
    fn read(&mut self, attribute: &'a Attribute) -> Result<Option<&'a Value>, Error> {
        if attribute.test_only {
            return Ok(None);
        }
        let Some(mut map) = self.plain_data(attribute) else { return Ok(None) };
        let mut found = None;
        for (at, name) in attribute.fields().enumerate() {
            let Some(value) = map.get(name) else { return Ok(None) };
            found = Some(value);
            match value {
                Value::Map(inner) => map = inner,
                _ if at + 1 == attribute.path.len() => {}
                _ => return Ok(None),
            }
        }
        if found.is_some() {
            // Every step costs one, and so does naming the attribute.
            let steps = u64::try_from(attribute.path.len()).unwrap_or(u64::MAX);
            self.charge(steps)?;
            self.charge(1)?;
        }
        Ok(found)
    }
}

fn boolean(val: &Val<'_>) -> Result<bool, Error> {
    val.as_bool().ok_or_else(Error::no_such_overload)
}
