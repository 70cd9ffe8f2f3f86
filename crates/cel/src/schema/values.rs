//! Data read through its schema.

use base64::Engine as _;
use value::{Str, Value};

use super::{Format, Kind, ListKind, Schema};
use crate::val::time::{Timestamp, days_from_civil, read_duration};
use crate::val::{List, Val, equal};

impl Schema {
    pub(crate) fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Number)
    }

    /// A string in the form its format gives it; what is not in the format stays a string.
    pub(crate) fn string<'a>(&'a self, text: &'a str) -> Val<'a> {
        let read = match &self.kind {
            Kind::String(Format::Byte) => base64::engine::general_purpose::STANDARD
                .decode(text)
                .ok()
                .map(|bytes| Val::Bytes(bytes.into())),
            Kind::String(Format::Duration) => read_duration(text).map(Val::Duration),
            Kind::String(Format::Date) => date(text).map(Val::Timestamp),
            Kind::String(Format::DateTime) => Timestamp::read(text).map(Val::Timestamp),
            _ => None,
        };
        read.unwrap_or(Val::str(text))
    }

    /// This schema, if it is of a list.
    pub(crate) fn for_list(&self) -> Option<&Schema> {
        matches!(self.kind, Kind::List { .. }).then_some(self)
    }

    /// This schema, if it is of a map or an object.
    pub(crate) fn for_map(&self) -> Option<&Schema> {
        matches!(self.kind, Kind::Map(_) | Kind::Object { .. }).then_some(self)
    }

    /// The schema of a list's elements.
    pub(crate) fn items(&self) -> Option<&Schema> {
        match &self.kind {
            Kind::List { items, .. } => Some(items),
            _ => None,
        }
    }

    /// Whether nulls count as absent.
    pub(crate) fn hides_nulls(&self) -> bool {
        matches!(self.kind, Kind::Object { .. })
    }

    /// The name in the data and the schema of a property; the name is `None` where it is the same.
    pub(crate) fn property<'s>(&'s self, name: &str) -> Option<(Option<&'s str>, Option<&'s Schema>)> {
        match &self.kind {
            Kind::Map(values) => Some((None, Some(values))),
            Kind::Object { properties, .. } => {
                properties.get(name).map(|property| (Some(property.name.as_str()), Some(&*property.schema)))
            }
            _ => None,
        }
    }

    /// The key and the schema with which an entry of the data shows; `None` if it does not.
    pub(crate) fn entry<'a>(&'a self, key: &'a str) -> Option<(Val<'a>, Option<&'a Schema>)> {
        match &self.kind {
            Kind::Map(values) => Some((Val::str(key), Some(values))),
            Kind::Object { properties, .. } => properties
                .iter()
                .find(|(_, property)| property.name == key)
                .map(|(escaped, property)| (Val::str(escaped), Some(&*property.schema))),
            _ => None,
        }
    }

    /// Whether a list of this schema equals another of the same length; `None` where order matters as usual.
    pub(crate) fn equal_lists(&self, items: &[Value], other: &List<'_>) -> Option<bool> {
        let Kind::List { items: schema, kind } = &self.kind else { return None };
        let mine: Vec<Val<'_>> = items.iter().map(|item| Val::typed(item, Some(schema))).collect();
        match kind {
            ListKind::Atomic => None,
            ListKind::Set => {
                let holds = |list: &[Val<'_>], val: &Val<'_>| {
                    list.iter().any(|each| equal(each, val).unwrap_or(false))
                };
                let theirs: Vec<Val<'_>> = other.iter().collect();
                Some(theirs.iter().all(|val| holds(&mine, val)) && mine.iter().all(|val| holds(&theirs, val)))
            }
            ListKind::Map(keys) => {
                let theirs: Vec<Val<'_>> = other.iter().collect();
                Some(theirs.iter().all(|val| {
                    mine.iter().any(|each| same_keys(keys, each, val) && equal(each, val).unwrap_or(false))
                }))
            }
        }
    }

    /// A list of this schema and another, joined as sets and keyed lists are; `None` where they are simply put together.
    pub(crate) fn concat<'a>(&'a self, items: &'a [Value], other: &List<'a>) -> Option<Val<'a>> {
        let Kind::List { items: schema, kind } = &self.kind else { return None };
        let mut joined: Vec<Val<'a>> = items.iter().map(|item| Val::typed(item, Some(schema))).collect();
        match kind {
            ListKind::Atomic => return None,
            ListKind::Set => {
                for val in other.iter() {
                    if !joined.iter().any(|each| equal(each, &val).unwrap_or(false)) {
                        joined.push(val);
                    }
                }
            }
            ListKind::Map(keys) => {
                for val in other.iter() {
                    match joined.iter_mut().find(|each| same_keys(keys, each, &val)) {
                        Some(each) => *each = val,
                        None => joined.push(val),
                    }
                }
            }
        }
        Some(Val::list(joined))
    }
}

fn same_keys(keys: &[Str], a: &Val<'_>, b: &Val<'_>) -> bool {
    let (Val::Map(a), Val::Map(b)) = (a, b) else { return false };
    keys.iter().all(|key| {
        let escaped = super::escape(key);
        let key = escaped.as_deref().unwrap_or(key);
        match (a.field(key), b.field(key)) {
            (Some(Ok(a)), Some(Ok(b))) => equal(&a, &b).unwrap_or(false),
            (None, None) => true,
            _ => false,
        }
    })
}

/// Midnight of a date.
fn date(text: &str) -> Option<Timestamp> {
    let midnight = Timestamp::read(&format!("{text}T00:00:00Z"))?;
    debug_assert_eq!(midnight.seconds.rem_euclid(86_400), days_from_civil(1970, 1, 1));
    Some(midnight)
}
