//! Conversion of data to CEL values by schema, and list equality and concatenation by list type.

use std::collections::HashMap;

use base64::Engine as _;
use value::time::parse_duration;
use value::{Value, write};

use super::{CelSchema, ListKind, SchemaKind, StringFormat};
use crate::eval::Error;
use crate::val::convert::to_json;
use crate::val::time::CelTimestamp;
use crate::val::{ListVal, MapKey, Steps, Val, equal_nested};

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

    /// Looks up a property by its escaped name: returns its name in the data (`None` if that is the same) and its
    /// schema.
    pub(crate) fn property<'s>(&'s self, name: &str) -> Option<(Option<&'s str>, Option<&'s CelSchema>)> {
        match &self.kind {
            SchemaKind::Map(values) => Some((None, Some(values))),
            SchemaKind::Object { properties, .. } => {
                properties.get(name).map(|property| (Some(property.name.as_str()), Some(&*property.schema)))
            }
            _ => None,
        }
    }

    /// Returns the CEL key and the value schema of a data entry; `None` if the schema does not declare the property.
    pub(crate) fn entry<'a>(&'a self, key: &'a str) -> Option<(Val<'a>, Option<&'a CelSchema>)> {
        match &self.kind {
            SchemaKind::Map(values) => Some((Val::str(key), Some(values))),
            SchemaKind::Object { properties, .. } => properties
                .iter()
                .find(|(_, property)| property.name == key)
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
        if *kind != ListKind::Atomic {
            steps.take(items.len())?;
        }
        let mine = ListMembers::of(kind, items.iter().map(|item| Val::typed(item, Some(schema))));
        let (Some(mine), Some(theirs)) = (mine, ListMembers::of(kind, other.iter())) else { return Ok(None) };
        if !matches!(kind, ListKind::Map(_)) {
            return Ok(Some(
                theirs.vals.iter().all(|val| mine.find(kind, val).is_some())
                    && mine.vals.iter().all(|val| theirs.find(kind, val).is_some()),
            ));
        }
        for val in &theirs.vals {
            match mine.find(kind, val) {
                Some(each) if equal_nested(steps, each, val, false)? => {}
                _ => return Ok(Some(false)),
            }
        }
        Ok(Some(true))
    }

    /// Concatenates by list type: sets drop duplicates, map lists replace elements with equal keys. `None` for atomic
    /// lists.
    pub(crate) fn concat<'a>(&'a self, items: &'a [Value], other: &ListVal<'a>) -> Option<Val<'a>> {
        let SchemaKind::List { items: schema, kind } = &self.kind else { return None };
        let mut joined = ListMembers::of(kind, items.iter().map(|item| Val::typed(item, Some(schema))))?;
        for val in other.iter() {
            match (kind, joined.position(kind, &val)) {
                (ListKind::Map(_), Some(at)) => {
                    if let Some(each) = joined.vals.get_mut(at) {
                        *each = val;
                    }
                }
                (_, Some(_)) => {}
                (_, None) => joined.push(kind, val),
            }
        }
        Some(Val::list(joined.vals))
    }
}

/// Elements of a set or map list, indexed by identity. Lookup takes constant time, so that hostile data cannot make a
/// comparison quadratic.
struct ListMembers<'a> {
    vals: Vec<Val<'a>>,
    positions: HashMap<Vec<Option<MapKey>>, usize>,
}

impl<'a> ListMembers<'a> {
    fn of(kind: &ListKind, vals: impl Iterator<Item = Val<'a>>) -> Option<Self> {
        if *kind == ListKind::Atomic {
            return None;
        }
        let mut members = ListMembers { vals: Vec::new(), positions: HashMap::new() };
        vals.for_each(|val| members.push(kind, val));
        Some(members)
    }

    fn push(&mut self, kind: &ListKind, val: Val<'a>) {
        let at = self.vals.len();
        if let Some(identity) = identity(kind, &val) {
            self.positions.entry(identity).or_insert(at);
        }
        self.vals.push(val);
    }

    fn position(&self, kind: &ListKind, val: &Val<'_>) -> Option<usize> {
        self.positions.get(&identity(kind, val)?).copied()
    }

    fn find(&self, kind: &ListKind, val: &Val<'_>) -> Option<&Val<'a>> {
        self.vals.get(self.position(kind, val)?)
    }
}

/// Identity of an element: in a set the value itself, in a map list the values of the key properties. Values that are
/// not scalars count by their JSON text. An element without an identity (`None`) equals no other.
fn identity(kind: &ListKind, val: &Val<'_>) -> Option<Vec<Option<MapKey>>> {
    let key_of = |val: &Val<'_>| match MapKey::of(val) {
        Some(key) => Some(key),
        None => Some(MapKey::Text(write::to_string(&to_json(val).ok()?))),
    };
    let ListKind::Map(keys) = kind else { return Some(vec![Some(key_of(val)?)]) };
    let Val::Map(map) = val else { return None };
    keys.iter()
        .map(|key| {
            let escaped = super::escape(key);
            match map.field(escaped.as_deref().unwrap_or(key)) {
                None => Some(None),
                Some(Ok(val)) => Some(Some(key_of(&val)?)),
                Some(Err(_)) => None,
            }
        })
        .collect()
}

/// Midnight UTC of a `YYYY-MM-DD` date.
fn date(text: &str) -> Option<CelTimestamp> {
    CelTimestamp::read(&format!("{text}T00:00:00Z"))
}
