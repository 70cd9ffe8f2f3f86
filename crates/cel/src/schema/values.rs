//! Data read through its schema.

use std::collections::HashMap;

use base64::Engine as _;
use value::{Value, write};

use super::{ListKind, Schema, SchemaKind, StringFormat};
use crate::eval::Error;
use crate::val::convert::to_json;
use crate::val::time::{Timestamp, days_from_civil, read_duration};
use crate::val::{ListVal, MapKey, Steps, Val, equal_nested};

impl Schema {
    pub(crate) fn is_number(&self) -> bool {
        matches!(self.kind, SchemaKind::Number)
    }

    /// A string in the form its format gives it; what is not in the format stays a string.
    pub(crate) fn string<'a>(&'a self, text: &'a str) -> Val<'a> {
        let read = match &self.kind {
            SchemaKind::String(StringFormat::Byte) => base64::engine::general_purpose::STANDARD
                .decode(text)
                .ok()
                .map(|bytes| Val::Bytes(bytes.into())),
            SchemaKind::String(StringFormat::Duration) => read_duration(text).map(Val::Duration),
            SchemaKind::String(StringFormat::Date) => date(text).map(Val::Timestamp),
            SchemaKind::String(StringFormat::DateTime) => Timestamp::read(text).map(Val::Timestamp),
            _ => None,
        };
        read.unwrap_or(Val::str(text))
    }

    /// This schema, if it is of a list.
    pub(crate) fn for_list(&self) -> Option<&Schema> {
        matches!(self.kind, SchemaKind::List { .. }).then_some(self)
    }

    /// This schema, if it is of a map or an object.
    pub(crate) fn for_map(&self) -> Option<&Schema> {
        matches!(self.kind, SchemaKind::Map(_) | SchemaKind::Object { .. }).then_some(self)
    }

    /// The schema of a list's elements.
    pub(crate) fn items(&self) -> Option<&Schema> {
        match &self.kind {
            SchemaKind::List { items, .. } => Some(items),
            _ => None,
        }
    }

    /// Whether nulls count as absent.
    pub(crate) fn hides_nulls(&self) -> bool {
        matches!(self.kind, SchemaKind::Object { .. })
    }

    /// The name in the data and the schema of a property; the name is `None` where it is the same.
    pub(crate) fn property<'s>(&'s self, name: &str) -> Option<(Option<&'s str>, Option<&'s Schema>)> {
        match &self.kind {
            SchemaKind::Map(values) => Some((None, Some(values))),
            SchemaKind::Object { properties, .. } => {
                properties.get(name).map(|property| (Some(property.name.as_str()), Some(&*property.schema)))
            }
            _ => None,
        }
    }

    /// The key and the schema with which an entry of the data shows; `None` if it does not.
    pub(crate) fn entry<'a>(&'a self, key: &'a str) -> Option<(Val<'a>, Option<&'a Schema>)> {
        match &self.kind {
            SchemaKind::Map(values) => Some((Val::str(key), Some(values))),
            SchemaKind::Object { properties, .. } => properties
                .iter()
                .find(|(_, property)| property.name == key)
                .map(|(escaped, property)| (Val::str(escaped), Some(&*property.schema))),
            _ => None,
        }
    }

    /// Whether a list of this schema equals another of the same length; `None` where order matters as usual.
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

    /// A list of this schema and another, joined as sets and keyed lists are; `None` where they are simply put together.
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

/// The elements of a set or a keyed list, found by what tells them apart. Looking one up takes the same time however many
/// there are, so that data from outside cannot make a comparison slow.
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

/// What tells an element of a set or a keyed list apart: scalars themselves, the text of everything else. `None` where an
/// element has no such thing; then it equals no other.
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

/// Midnight of a date.
fn date(text: &str) -> Option<Timestamp> {
    let midnight = Timestamp::read(&format!("{text}T00:00:00Z"))?;
    debug_assert_eq!(midnight.seconds.rem_euclid(86_400), days_from_civil(1970, 1, 1));
    Some(midnight)
}
