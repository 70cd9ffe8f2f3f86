//! Evaluates variables and paths. Each step costs one; an optional step costs nothing if the element is absent.

use std::sync::Arc;

use super::{Error, Eval, EvalResult, VariableSlot};
use crate::lib::messages;
use crate::plan::node::{Attribute, AttributeBase, PlanNode, Qualifier, QualifierKey};
use crate::val::{ListVal, MapVal, Text, Val};

impl<'a> Eval<'a, '_> {
    /// Evaluates an attribute or conditional without the cost of one that cel-go charges for a complete attribute.
    pub(super) fn eval_unobserved(&mut self, node: &'a PlanNode) -> EvalResult<'a> {
        match node {
            PlanNode::Attribute(attribute) => self.attribute(attribute),
            PlanNode::Conditional(conditional) => {
                let branch = match self.node(&conditional.condition)? {
                    Val::Bool(true) => &conditional.truthy,
                    Val::Bool(false) => &conditional.falsy,
                    _ => return Err(Error::no_such_overload()),
                };
                let val = self.eval_unobserved(branch)?;
                self.path(val, &conditional.path, false)
            }
            other => self.node(other),
        }
    }

    pub(super) fn attribute(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        if let Some(map) = self.plain_data(attribute) {
            return self.walk(map, &attribute.path, attribute.test_only);
        }
        let base = match &attribute.base {
            AttributeBase::Variable(at) => {
                if let Some(Some(val)) = self.values.get(*at) {
                    val.clone()
                } else {
                    let name = self.names.get(*at).map_or("", |name| name.as_str());
                    return Err(Error::new(format!("no such attribute(s): {name}")));
                }
            }
            AttributeBase::Slot(at) => self.slot(*at)?,
            AttributeBase::Operand(node) => self.node(node)?,
        };
        if attribute.path.is_empty() {
            return Ok(base);
        }
        let val = self.path(base, &attribute.path, attribute.test_only)?;
        if attribute.test_only
            && let Val::Optional(inner) = &val
        {
            return Ok(Val::Bool(inner.is_some()));
        }
        Ok(val)
    }

    /// The map that a plain path starts in; `None` if the base is not plain data.
    #[inline]
    fn plain_data(&self, attribute: &'a Attribute) -> Option<&'a value::Map> {
        if !attribute.plain || attribute.path.is_empty() {
            return None;
        }
        match &attribute.base {
            AttributeBase::Variable(at) => match self.values.get(*at) {
                Some(Some(Val::Map(MapVal::Data(map, None)))) => Some(*map),
                _ => None,
            },
            AttributeBase::Slot(at) => match self.slots.get(*at) {
                Some(VariableSlot::Val(Val::Map(MapVal::Data(map, None)))) => Some(*map),
                _ => None,
            },
            AttributeBase::Operand(_) => None,
        }
    }

    /// Follows a plain path in plain data without copying values.
    fn walk(&mut self, map: &'a value::Map, path: &'a [Qualifier], test_only: bool) -> EvalResult<'a> {
        let mut map = map;
        let mut path = path;
        loop {
            let Some((Qualifier { key: QualifierKey::Field(name), .. }, rest)) = path.split_first() else {
                return Err(Error::no_such_overload());
            };
            let found = map.get(name);
            self.charge(1)?;
            if test_only && rest.is_empty() {
                return Ok(Val::Bool(found.is_some()));
            }
            let Some(value) = found else { return Err(missing_key(name)) };
            if rest.is_empty() {
                return Ok(Val::data(value));
            }
            match value {
                value::Value::Map(inner) => {
                    map = inner;
                    path = rest;
                }
                other => return self.path(Val::data(other), rest, test_only),
            }
        }
    }

    fn slot(&mut self, at: usize) -> EvalResult<'a> {
        match self.slots.get(at) {
            Some(VariableSlot::Val(val)) => Ok(val.clone()),
            Some(VariableSlot::Failed(error)) => Err(error.clone()),
            Some(VariableSlot::Lazy(node)) => {
                let outcome = self.node(node);
                self.set_slot(
                    at,
                    match &outcome {
                        Ok(val) => VariableSlot::Val(val.clone()),
                        Err(error) => VariableSlot::Failed(error.clone()),
                    },
                );
                outcome
            }
            _ => Err(Error::new("no such attribute(s): variable of a comprehension")),
        }
    }

    /// Follows a path. After an optional step, all further steps are optional.
    fn path(&mut self, val: Val<'a>, path: &'a [Qualifier], test_only: bool) -> EvalResult<'a> {
        if path.is_empty() {
            return Ok(val);
        }
        let (mut here, mut optional) = match val {
            Val::Optional(None) => return Ok(Val::NONE),
            Val::Optional(Some(inner)) => ((*inner).clone(), true),
            val => (val, false),
        };
        for (at, qualifier) in path.iter().enumerate() {
            let last = at + 1 == path.len();
            if !optional
                && !qualifier.optional
                && let (Val::Map(MapVal::Data(map, None)), QualifierKey::Field(name)) =
                    (&here, &qualifier.key)
            {
                // Most steps are in plain data: no values are created for them.
                let found = map.get(name);
                self.charge(1)?;
                if test_only && last {
                    return Ok(Val::Bool(found.is_some()));
                }
                match found {
                    Some(value) => here = Val::data(value),
                    None => return Err(missing_key(name)),
                }
                continue;
            }
            optional |= qualifier.optional;
            let test = test_only && last;
            if test {
                let present = self.step(&here, qualifier, true);
                let present = match present {
                    Err(error) if error.is_fatal() => return Err(error),
                    other => other,
                };
                if !optional {
                    self.charge(1)?;
                    return Ok(Val::Bool(present?.is_some()));
                }
                if present?.is_none() {
                    return Ok(Val::NONE);
                }
                self.charge(1)?;
                here = Val::Null;
            } else if optional {
                match self.step(&here, qualifier, true)? {
                    None => return Ok(Val::NONE),
                    Some(next) => {
                        self.charge(1)?;
                        here = next;
                    }
                }
            } else {
                let next = self.step(&here, qualifier, false);
                match next {
                    Err(error) if error.is_fatal() => return Err(error),
                    Ok(Some(next)) => {
                        self.charge(1)?;
                        here = next;
                    }
                    Ok(None) => {
                        self.charge(1)?;
                        return Err(Error::no_such_overload());
                    }
                    Err(error) => {
                        self.charge(1)?;
                        return Err(error);
                    }
                }
            }
        }
        Ok(if optional { Val::some(here) } else { here })
    }

    /// The attribute that produced the node's value, if that is raw data of a variable. cel-go's messages name the Go
    /// types of raw data.
    #[cold]
    fn raw_attribute(&mut self, node: &'a PlanNode) -> Option<&'a Attribute> {
        match node {
            PlanNode::Attribute(attribute) => {
                matches!(attribute.base, AttributeBase::Variable(_)).then_some(&**attribute)
            }
            PlanNode::Conditional(conditional) => {
                // This evaluates the condition a second time, which must not be charged.
                let cost = self.cost;
                let condition = self.node(&conditional.condition);
                self.cost = cost;
                match condition {
                    Ok(Val::Bool(true)) => self.raw_attribute(&conditional.truthy),
                    Ok(Val::Bool(false)) => self.raw_attribute(&conditional.falsy),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// True if the attribute is a variable declared absent with
    /// [`Activation::set_absent`](super::Activation::set_absent).
    fn is_absent(&self, attribute: &Attribute) -> bool {
        let Attribute { base: AttributeBase::Variable(at), path, .. } = attribute else { return false };
        path.is_empty() && self.absent.contains(at)
    }

    /// Takes one step, and counts the bytes of a text that the schema converts at each access.
    fn step(
        &mut self,
        here: &Val<'a>,
        qualifier: &'a Qualifier,
        presence: bool,
    ) -> Result<Option<Val<'a>>, Error> {
        let found = self.find_element(here, qualifier, presence)?;
        if let Some(found) = &found {
            self.count_decoded(found)?;
        }
        if let Some(Val::Bytes(_) | Val::Duration(_) | Val::Timestamp(_)) = &found
            && let (Val::Map(MapVal::Data(map, Some(schema))), QualifierKey::Field(name)) =
                (here, &qualifier.key)
            && let Some((original, _)) = schema.property(name)
            && let Some(value::Value::String(text)) = map.get(original.unwrap_or(name))
        {
            self.cx.steps.take_bytes(text.len())?;
        }
        Ok(found)
    }

    /// Counts the memory of bytes that the schema decodes at each access.
    #[inline]
    pub(super) fn count_decoded(&self, val: &Val<'a>) -> Result<(), Error> {
        match val {
            Val::Bytes(bytes) if Arc::strong_count(bytes) == 1 => self.cx.steps.create(bytes.len()),
            _ => Ok(()),
        }
    }

    /// Finds the element that a qualifier selects. With `presence`, an absent element gives `None` instead of an error.
    fn find_element(
        &mut self,
        here: &Val<'a>,
        qualifier: &'a Qualifier,
        presence: bool,
    ) -> Result<Option<Val<'a>>, Error> {
        match &qualifier.key {
            QualifierKey::Field(name) => match here {
                Val::Object(object) => {
                    messages::field(object, name, presence, qualifier.typed.then_some(&self.cx.steps))
                }
                here => field(here, name, presence),
            },
            QualifierKey::Constant(key) => index(here, key, presence),
            QualifierKey::Computed(node) => {
                let key = self.eval_unobserved(node)?;
                if let PlanNode::Attribute(attribute) = node
                    && attribute.test_only
                    && attribute.path.iter().any(|qualifier| qualifier.optional)
                {
                    // cel-go uses the result of an optional presence test as a key before converting it to a bool.
                    return Err(Error::new("invalid qualifier type: *types.Optional"));
                }
                self.cx.steps.take_bytes(key.flat_bytes())?;
                match &key {
                    Val::String(_) | Val::Int(_) | Val::Uint(_) | Val::Bool(_) | Val::Double(_) => {}
                    other => {
                        let raw = self.raw_attribute(node);
                        let name = match other {
                            // An absent variable is CEL's null; a null of the data is Go's nil.
                            Val::Null if raw.is_some_and(|raw| !self.is_absent(raw)) => "<nil>",
                            Val::Map(MapVal::Data(..)) if raw.is_some() => "map[string]interface {}",
                            Val::List(ListVal::Data(..)) if raw.is_some() => "[]interface {}",
                            other => go_type(other),
                        };
                        return Err(Error::new(format!("invalid qualifier type: {name}")));
                    }
                }
                index(here, &key, presence)
            }
        }
    }
}

#[cold]
fn missing_key(key: &str) -> Error {
    Error::new(format!("no such key: {key}"))
}

/// Looks up a field of a map or an object.
fn field<'a>(here: &Val<'a>, name: &str, presence: bool) -> Result<Option<Val<'a>>, Error> {
    let found = match here {
        Val::Map(map) => map.field(name).transpose()?,
        Val::Object(object) => return messages::field(object, name, presence, None),
        Val::List(_) => return Err(Error::new("unsupported index type 'string' in list")),
        _ => None,
    };
    if found.is_none() && !presence {
        return Err(missing_key(name));
    }
    Ok(found)
}

/// Looks up a key of a map or an index of a list.
fn index<'a>(here: &Val<'a>, key: &Val<'_>, presence: bool) -> Result<Option<Val<'a>>, Error> {
    match (here, key) {
        (_, Val::String(Text::Borrowed(name))) => field(here, name, presence),
        (_, Val::String(Text::Owned(name))) => field(here, name, presence),
        (Val::Map(map), _) => {
            let found = map.find(key).transpose()?;
            if found.is_none() && !presence {
                return Err(missing_key(&key.to_string()));
            }
            Ok(found)
        }
        (Val::List(list), _) => {
            let position = position(key)?;
            let found = usize::try_from(position).ok().and_then(|at| list.get(at));
            if found.is_none() && !presence {
                return Err(Error::new(format!("index out of bounds: {key}")));
            }
            Ok(found)
        }
        _ if presence => Ok(None),
        _ => Err(missing_key(&key.to_string())),
    }
}

/// Converts a number to a list index.
pub(crate) fn position(key: &Val<'_>) -> Result<i64, Error> {
    let unsupported = || Error::new(format!("unsupported index value {key} in list"));
    match key {
        Val::Int(i) => Ok(*i),
        Val::Double(d) => crate::val::double_as_int(*d).ok_or_else(unsupported),
        Val::Uint(u) => i64::try_from(*u).map_err(|_| unsupported()),
        other => Err(Error::new(format!("unsupported index type '{}' in list", other.type_name()))),
    }
}

/// Name of cel-go's Go type for a value, which some of its messages contain.
pub(crate) fn go_type(val: &Val<'_>) -> &'static str {
    match val {
        Val::Null => "types.Null",
        Val::Bool(_) => "types.Bool",
        Val::Int(_) => "types.Int",
        Val::Uint(_) => "types.Uint",
        Val::Double(_) => "types.Double",
        Val::String(_) => "types.String",
        Val::Bytes(_) => "types.Bytes",
        Val::List(_) => "*types.baseList",
        Val::Map(_) => "*types.baseMap",
        Val::Duration(_) => "types.Duration",
        Val::Timestamp(_) => "types.Timestamp",
        Val::Type(_) => "*types.Type",
        Val::Optional(_) => "*types.Optional",
        Val::Object(_) => "*types.protoObj",
        Val::Ext(ext) => ext.go_type(),
    }
}
