//! List and map values: views of data, and collections that expressions create.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use value::Value;

use super::{Text, Val, double_as_int, double_as_uint};
use crate::eval::Error;
use crate::lib::Ext;
use crate::schema::CelSchema;

/// A list value, borrowed where possible.
#[derive(Clone, Debug)]
pub enum ListVal<'a> {
    /// A list of the data, with its schema if it has one.
    Data(&'a Vec<Value>, Option<&'a CelSchema>),
    /// A constant of the program.
    Borrowed(&'a [Val<'a>]),
    /// A list created by the expression.
    Owned(Arc<Vec<Val<'a>>>),
}

impl<'a> ListVal<'a> {
    /// Memory of a new list with this many elements, without that of the elements' own content.
    pub(crate) fn bytes(elements: usize) -> usize {
        elements.saturating_mul(size_of::<Val<'a>>()).saturating_add(super::SHARED_BYTES)
    }

    /// Number of elements in the list.
    #[expect(clippy::len_without_is_empty, reason = "nothing asks for it")]
    pub fn len(&self) -> usize {
        match self {
            ListVal::Data(items, _) => items.len(),
            ListVal::Borrowed(items) => items.len(),
            ListVal::Owned(items) => items.len(),
        }
    }

    /// The element at an index.
    pub fn get(&self, at: usize) -> Option<Val<'a>> {
        match self {
            ListVal::Data(items, schema) => {
                items.get(at).map(|item| Val::typed(item, schema.and_then(CelSchema::items)))
            }
            ListVal::Borrowed(items) => items.get(at).map(Val::borrow),
            ListVal::Owned(items) => items.get(at).cloned(),
        }
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Val<'a>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

/// A map value, borrowed where possible.
#[derive(Clone)]
pub enum MapVal<'a> {
    /// A map of the data, with its schema if it has one.
    Data(&'a value::Map, Option<&'a CelSchema>),
    /// A constant of the program.
    Borrowed(&'a MapEntries<'a>),
    /// A map created by the expression.
    Owned(Arc<MapEntries<'a>>),
    /// Fields that are computed on access.
    Lazy(&'a (dyn LazyFields + 'a)),
}

impl fmt::Debug for MapVal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Fields that are computed on access, such as a policy's `variables`.
pub trait LazyFields: Sync {
    /// The value of a field; `None` if there is no such field.
    fn get(&self, name: &str) -> Option<Result<Val<'_>, Error>>;

    /// Names of all fields.
    fn names(&self) -> Vec<&str>;

    /// Result of `name in fields`. It differs from [`LazyFields::get`] if absent fields have a default.
    fn holds(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Type name of the struct.
    fn type_name(&self) -> &'static str {
        "map"
    }
}

/// Entries of a map that an expression creates, in insertion order.
#[derive(Clone, Debug, Default)]
pub struct MapEntries<'a> {
    entries: Vec<(Val<'a>, Val<'a>)>,
    /// Positions by key, once there are [`MIN_INDEXED_ENTRIES`] entries. Keys without a [`MapKey`] equal no other and
    /// are not in it.
    index: Option<HashMap<MapKey, usize>>,
}

/// A hashable map key. Numbers of equal value are equal keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MapKey {
    Null,
    Bool(bool),
    Number(i128),
    /// Bits of a double that is not an integer.
    Double(u64),
    String(Arc<str>),
    Duration(i64),
    /// Seconds and nanoseconds of a time in UTC. Times with another zone are never found, as in cel-go.
    Timestamp(i64, u32),
    Type(Arc<str>),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    /// JSON text of a value that is not a scalar; only used for sets of a schema.
    Text(String),
}

/// Number of entries from which a map is indexed.
const MIN_INDEXED_ENTRIES: usize = 12;

impl MapKey {
    pub(crate) fn of(val: &Val<'_>) -> Option<MapKey> {
        Some(match val {
            Val::Null => MapKey::Null,
            Val::Bool(b) => MapKey::Bool(*b),
            Val::Int(i) => MapKey::Number(i128::from(*i)),
            Val::Uint(u) => MapKey::Number(i128::from(*u)),
            Val::Double(d) => match double_as_int(*d) {
                Some(i) => MapKey::Number(i128::from(i)),
                None => match double_as_uint(*d) {
                    Some(u) => MapKey::Number(i128::from(u)),
                    None if d.is_nan() => return None,
                    None => MapKey::Double(d.to_bits()),
                },
            },
            Val::String(Text::Borrowed(s)) => MapKey::String(Arc::from(*s)),
            Val::String(Text::Owned(s)) => MapKey::String(s.clone()),
            Val::Duration(nanos) => MapKey::Duration(*nanos),
            Val::Timestamp(t) if t.offset == 0 => MapKey::Timestamp(t.seconds, t.nanos),
            Val::Type(name) => MapKey::Type(name.clone()),
            Val::Ext(ext) => match &**ext {
                Ext::Ip(ip) => MapKey::Ip(*ip),
                Ext::Cidr(cidr) => MapKey::Cidr(cidr.ip, cidr.bits),
                _ => return None,
            },
            _ => return None,
        })
    }
}

fn is_number(val: &Val<'_>) -> bool {
    matches!(val, Val::Int(_) | Val::Uint(_) | Val::Double(_))
}

/// Key equality: equal scalars, and numbers of equal value.
fn matches(key: &Val<'_>, wanted: &Val<'_>) -> bool {
    match (key, wanted) {
        (Val::String(a), Val::String(b)) => a.as_str() == b.as_str(),
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::Int(a), Val::Int(b)) => a == b,
        (Val::Uint(a), Val::Uint(b)) => a == b,
        _ if key.kind() == wanted.kind() || (is_number(key) && is_number(wanted)) => {
            matches!((MapKey::of(key), MapKey::of(wanted)), (Some(a), Some(b)) if a == b)
        }
        _ => false,
    }
}

impl<'a> MapEntries<'a> {
    /// Upper bound of the memory of an entry and its position in the index, without the content of key and value.
    pub(crate) const ENTRY_BYTES: usize =
        2 * (size_of::<(Val<'a>, Val<'a>)>() + size_of::<(MapKey, usize)>());

    /// Number of entries in the map.
    #[expect(clippy::len_without_is_empty, reason = "nothing asks for it")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries, in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = &(Val<'a>, Val<'a>)> {
        self.entries.iter()
    }

    /// The entry at a position.
    pub(crate) fn get(&self, at: usize) -> Option<&(Val<'a>, Val<'a>)> {
        self.entries.get(at)
    }

    fn position(&self, key: &Val<'_>) -> Option<usize> {
        match &self.index {
            None => self.entries.iter().position(|(k, _)| matches(k, key)),
            Some(index) => index.get(&MapKey::of(key)?).copied(),
        }
    }

    /// The value at a key.
    pub fn find(&self, key: &Val<'_>) -> Option<&Val<'a>> {
        self.entries.get(self.position(key)?).map(|(_, val)| val)
    }

    /// Inserts or replaces the value at `key`.
    pub(crate) fn insert(&mut self, key: Val<'a>, val: Val<'a>) {
        if let Some((_, old)) = self.position(&key).and_then(|at| self.entries.get_mut(at)) {
            *old = val;
            return;
        }
        if let Some(index) = &mut self.index
            && let Some(key) = MapKey::of(&key)
        {
            index.insert(key, self.entries.len());
        }
        self.entries.push((key, val));
        if self.index.is_none() && self.entries.len() >= MIN_INDEXED_ENTRIES {
            self.build_index();
        }
    }

    fn build_index(&mut self) {
        let mut index = HashMap::new();
        for (at, (key, _)) in self.entries.iter().enumerate() {
            if let Some(key) = MapKey::of(key) {
                index.entry(key).or_insert(at);
            }
        }
        self.index = Some(index);
    }

    /// Removes the entry at a key.
    pub(crate) fn remove(&mut self, key: &Val<'_>) {
        if let Some(at) = self.position(key) {
            self.entries.remove(at);
            self.build_index();
        }
    }
}

impl<'a> MapVal<'a> {
    /// Wraps entries as a map value.
    pub(crate) fn of(entries: MapEntries<'a>) -> Self {
        MapVal::Owned(Arc::new(entries))
    }

    /// Number of entries in the map.
    #[expect(clippy::len_without_is_empty, reason = "nothing asks for it")]
    pub fn len(&self) -> usize {
        match self {
            MapVal::Data(map, _) => map.len(),
            MapVal::Borrowed(entries) => entries.len(),
            MapVal::Owned(entries) => entries.len(),
            MapVal::Lazy(fields) => fields.names().len(),
        }
    }

    /// Type name: `map`, or the object type that the schema declares.
    pub fn type_name(&self) -> &str {
        match self {
            MapVal::Lazy(fields) => fields.type_name(),
            _ => "map",
        }
    }

    /// Looks up a string key. A computed field may fail.
    pub fn field(&self, name: &str) -> Option<Result<Val<'a>, Error>> {
        match self {
            MapVal::Data(map, None) => map.get(name).map(|value| Ok(Val::data(value))),
            MapVal::Data(map, Some(schema)) => {
                let hides_nulls = schema.hides_nulls();
                let (original, schema) = schema.property(name)?;
                let value = map.get(original.unwrap_or(name))?;
                if value.is_null() && hides_nulls {
                    return None;
                }
                Some(Ok(Val::typed(value, schema)))
            }
            MapVal::Borrowed(entries) => entries.find(&Val::str(name)).map(|val| Ok(val.borrow())),
            MapVal::Owned(entries) => entries.find(&Val::str(name)).map(|val| Ok(val.clone())),
            MapVal::Lazy(fields) => fields.get(name),
        }
    }

    /// Looks up a key of any type. A computed field may fail.
    pub fn find(&self, key: &Val<'_>) -> Option<Result<Val<'a>, Error>> {
        match (self, key) {
            (_, Val::String(name)) => self.field(name),
            (MapVal::Borrowed(entries), _) => entries.find(key).map(|val| Ok(val.borrow())),
            (MapVal::Owned(entries), _) => entries.find(key).map(|val| Ok(val.clone())),
            (MapVal::Data(_, Some(_)), _) => Some(Err(Error::no_such_overload())),
            _ => None,
        }
    }

    /// The result of `key in map`.
    pub(crate) fn holds(&self, key: &Val<'_>) -> bool {
        match (self, key) {
            (MapVal::Lazy(fields), Val::String(name)) => fields.holds(name),
            _ => self.find(key).is_some(),
        }
    }

    /// All entries. Computed fields that fail are left out.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (Val<'a>, Val<'a>)> + '_> {
        match self {
            MapVal::Data(map, None) => {
                let map: &'a value::Map = map;
                Box::new(map.iter().map(|(key, value)| (Val::str(key), Val::data(value))))
            }
            MapVal::Data(map, Some(schema)) => {
                let map: &'a value::Map = map;
                let schema: &'a CelSchema = schema;
                Box::new(map.iter().filter_map(|(key, value)| {
                    let (name, schema) = schema.entry(key)?;
                    Some((name, Val::typed(value, schema)))
                }))
            }
            MapVal::Borrowed(entries) => {
                let entries: &'a MapEntries<'a> = entries;
                Box::new(entries.iter().map(|(key, val)| (key.borrow(), val.borrow())))
            }
            MapVal::Owned(entries) => Box::new(entries.iter().cloned()),
            MapVal::Lazy(fields) => {
                let fields: &'a dyn LazyFields = *fields;
                Box::new(
                    fields
                        .names()
                        .into_iter()
                        .filter_map(|name| Some((Val::str(name), fields.get(name)?.ok()?))),
                )
            }
        }
    }

    /// All keys, in iteration order.
    pub fn keys(&self) -> Vec<Val<'a>> {
        match self {
            MapVal::Data(map, None) => {
                let map: &'a value::Map = map;
                map.keys().map(|key| Val::str(key)).collect()
            }
            MapVal::Borrowed(entries) => {
                let entries: &'a MapEntries<'a> = entries;
                entries.iter().map(|(key, _)| key.borrow()).collect()
            }
            MapVal::Owned(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
            MapVal::Lazy(fields) => fields.names().into_iter().map(Val::str).collect(),
            MapVal::Data(_, Some(_)) => self.iter().map(|(key, _)| key).collect(),
        }
    }
}

impl<'a, 'm> IntoIterator for &'m MapVal<'a> {
    type Item = (Val<'a>, Val<'a>);
    type IntoIter = Box<dyn Iterator<Item = (Val<'a>, Val<'a>)> + 'm>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
