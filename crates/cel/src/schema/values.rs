//! Conversion of data to CEL values by schema, and list equality and concatenation by list type.

use std::collections::HashMap;

use base64::Engine as _;
use value::time::parse_duration;
use value::{Value, write};

use super::{CelSchema, ListKind, SchemaKind, StringFormat};
use crate::eval::Error;
use crate::val::convert::{TOO_LARGE, to_json};
use crate::val::time::CelTimestamp;
use crate::val::{ListVal, MapKey, Steps, Val, equal_nested};

/// Bytes of an element's JSON text that count as one step.
const JSON_BYTES_PER_STEP: usize = 64;

impl CelSchema {
    pub(crate) fn is_number(&self) -> bool {
        matches!(self.kind, SchemaKind::Number)
    }

    /// Converts a string by the schema's `format`. Text that is not valid in that format stays a string.
    pub(crate) fn string<'a>(&'a self, text: &'a str) -> Val<'a> {
        let read = match &self.kind {
            SchemaKind::String(StringFormat::Byte) => base64::engine::general_purpose::STANDARD
                .decode(text)
                .ok()
                .map(|bytes| Val::Bytes(bytes.into())),
            SchemaKind::String(StringFormat::Duration) => parse_duration(text).ok().map(Val::Duration),
            SchemaKind::String(StringFormat::Date) => date(text).map(Val::Timestamp),
            SchemaKind::String(StringFormat::DateTime) => CelTimestamp::read(text).map(Val::Timestamp),
            _ => None,
        };
        read.unwrap_or(Val::str(text))
    }

    /// Returns `self` if this is the schema of a list.
    pub(crate) fn for_list(&self) -> Option<&CelSchema> {
        matches!(self.kind, SchemaKind::List { .. }).then_some(self)
    }

    /// Returns `self` if this is the schema of a map or an object.
    pub(crate) fn for_map(&self) -> Option<&CelSchema> {
        matches!(self.kind, SchemaKind::Map(_) | SchemaKind::Object { .. }).then_some(self)
    }

    /// Schema of the list's elements; `None` if this is not a list schema.
    pub(crate) fn items(&self) -> Option<&CelSchema> {
        match &self.kind {
            SchemaKind::List { items, .. } => Some(items),
            _ => None,
        }
    }

    /// True for objects: a property that is null counts as absent.
    pub(crate) fn hides_nulls(&self) -> bool {
        matches!(self.kind, SchemaKind::Object { .. })
    }

    /// Looks up a property by its name, escaped or as in the data: returns its name in the data (`None` if that is the
    /// same) and its schema.
    pub(crate) fn property<'s>(&'s self, name: &str) -> Option<(Option<&'s str>, Option<&'s CelSchema>)> {
        match &self.kind {
            SchemaKind::Map(values) => Some((None, Some(values))),
            SchemaKind::Object { properties, .. } => {
                let unescaped = || properties.get(&super::escape(&super::unescape(name)?)?);
                let property = properties.get(name).or_else(unescaped)?;
                Some((Some(property.name.as_str()), Some(&*property.schema)))
            }
            _ => None,
        }
    }

    /// Returns the CEL key and the value schema of a data entry; `None` if the schema does not declare the property.
    pub(crate) fn entry<'a>(&'a self, key: &'a str) -> Option<(Val<'a>, Option<&'a CelSchema>)> {
        match &self.kind {
            SchemaKind::Map(values) => Some((Val::str(key), Some(values))),
            SchemaKind::Object { properties, .. } => properties
                .get_key_value(&super::escape(key)?)
                .filter(|(_, property)| property.name == key)
                .map(|(escaped, property)| (Val::str(escaped), Some(&*property.schema))),
            _ => None,
        }
    }

    /// Compares two lists of equal length by list type. Returns `None` for atomic lists, which compare element by
    /// element.
    pub(crate) fn equal_lists(
        &self,
        steps: &Steps<'_>,
        items: &[Value],
        other: &ListVal<'_>,
    ) -> Result<Option<bool>, Error> {
        let SchemaKind::List { items: schema, kind } = &self.kind else { return Ok(None) };
        if *kind == ListKind::Atomic {
            return Ok(None);
        }
        steps.take(items.len())?;
        let mine = ListMembers::of(steps, kind, items.iter().map(|item| Val::typed(item, Some(schema))))?;
        let theirs = ListMembers::of(steps, kind, other.iter())?;
        if !matches!(kind, ListKind::Map(_)) {
            return Ok(Some(mine.covers(steps, &theirs)? && theirs.covers(steps, &mine)?));
        }
        for val in &theirs.vals {
            match mine.position(steps, val)?.and_then(|at| mine.vals.get(at)) {
                Some(each) if equal_nested(steps, each, val, false)? => {}
                _ => return Ok(Some(false)),
            }
        }
        Ok(Some(true))
    }

    /// Concatenates by list type: sets drop duplicates, map lists replace elements with equal keys. `None` for atomic
    /// lists.
    pub(crate) fn concat<'a>(
        &'a self,
        steps: &Steps<'_>,
        items: &'a [Value],
        other: &ListVal<'a>,
    ) -> Result<Option<Val<'a>>, Error> {
        let SchemaKind::List { items: schema, kind } = &self.kind else { return Ok(None) };
        if *kind == ListKind::Atomic {
            return Ok(None);
        }
        let mine = items.iter().map(|item| Val::typed(item, Some(schema)));
        let mut joined = ListMembers::of(steps, kind, mine)?;
        for val in other.iter() {
            match (kind, joined.position(steps, &val)?) {
                (ListKind::Map(_), Some(at)) => {
                    if let Some(each) = joined.vals.get_mut(at) {
                        *each = val;
                    }
                }
                (_, Some(_)) => {}
                (_, None) => joined.push(steps, val)?,
            }
        }
        Ok(Some(Val::list(joined.vals)))
    }
}

/// Elements of a set or map list, indexed by identity. Lookup takes constant time, so that hostile data cannot make a
/// comparison quadratic.
struct ListMembers<'a> {
    kind: &'a ListKind,
    vals: Vec<Val<'a>>,
    positions: HashMap<Vec<Option<MapKey>>, usize>,
}

impl<'a> ListMembers<'a> {
    fn of(steps: &Steps<'_>, kind: &'a ListKind, vals: impl Iterator<Item = Val<'a>>) -> Result<Self, Error> {
        let mut members = ListMembers { kind, vals: Vec::new(), positions: HashMap::new() };
        for val in vals {
            members.push(steps, val)?;
        }
        Ok(members)
    }

    fn push(&mut self, steps: &Steps<'_>, val: Val<'a>) -> Result<(), Error> {
        let at = self.vals.len();
        if let Some(identity) = identity(steps, self.kind, &val)? {
            self.positions.entry(identity).or_insert(at);
        }
        self.vals.push(val);
        Ok(())
    }

    fn position(&self, steps: &Steps<'_>, val: &Val<'_>) -> Result<Option<usize>, Error> {
        let identity = identity(steps, self.kind, val)?;
        Ok(identity.and_then(|identity| self.positions.get(&identity).copied()))
    }

    /// True if it has all elements of `other`.
    fn covers(&self, steps: &Steps<'_>, other: &ListMembers<'_>) -> Result<bool, Error> {
        for val in &other.vals {
            if self.position(steps, val)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Identity of an element: in a set the value itself, in a map list the values of the key properties. Values that are
/// not scalars count by their JSON text. An element without an identity (`None`) equals no other.
fn identity(steps: &Steps<'_>, kind: &ListKind, val: &Val<'_>) -> Result<Option<Vec<Option<MapKey>>>, Error> {
    let ListKind::Map(keys) = kind else { return Ok(identity_key(steps, val)?.map(|key| vec![Some(key)])) };
    let Val::Map(map) = val else { return Ok(None) };
    let mut identity = Vec::with_capacity(keys.len());
    for key in keys {
        let escaped = super::escape(key);
        identity.push(match map.field(escaped.as_deref().unwrap_or(key)) {
            None => None,
            Some(Ok(val)) => match identity_key(steps, &val)? {
                Some(key) => Some(key),
                None => return Ok(None),
            },
            Some(Err(_)) => return Ok(None),
        });
    }
    Ok(Some(identity))
}

fn identity_key(steps: &Steps<'_>, val: &Val<'_>) -> Result<Option<MapKey>, Error> {
    steps.take_bytes(val.flat_bytes())?;
    if let Some(key) = MapKey::of(val) {
        return Ok(Some(key));
    }
    match to_json(val) {
        Ok(json) => {
            let text = write::to_string(&json);
            steps.take(text.len() / JSON_BYTES_PER_STEP)?;
            Ok(Some(MapKey::Text(text)))
        }
        Err(error) if error == TOO_LARGE => Err(Error::cost_limit()),
        Err(_) => Ok(None),
    }
}

/// Midnight UTC of a `YYYY-MM-DD` date.
fn date(text: &str) -> Option<CelTimestamp> {
    CelTimestamp::read(&format!("{text}T00:00:00Z"))
}
