//! Run-time values. They borrow from the data and the program; only values that an expression creates are owned.

mod collection;
mod compare;
pub(crate) mod convert;
mod number;
mod show;
mod steps;
pub(crate) mod time;

use std::sync::Arc;

use value::{Str, Value};

pub(crate) use collection::MapKey;
pub use collection::{LazyFields, ListVal, MapEntries, MapVal};
pub(crate) use compare::{compare, contains, equal, equal_nested};
pub(crate) use number::{double_as_int, double_as_uint, fixed, scientific};
pub(crate) use show::TruncatedVal;
pub(crate) use steps::Steps;
pub use steps::ValueMemory;
pub use time::CelTimestamp;

use crate::eval::Error;
use crate::lib::Ext;
use crate::schema::CelSchema;

/// A run-time value of CEL.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    /// The null value, `null`.
    Null,
    /// A value of type `bool`.
    Bool(bool),
    /// A value of type `int`.
    Int(i64),
    /// A value of type `uint`.
    Uint(u64),
    /// A value of type `double`.
    Double(f64),
    /// A value of type `string`.
    String(Text<'a>),
    /// A value of type `bytes`.
    Bytes(Arc<[u8]>),
    /// A value of type `list`.
    List(ListVal<'a>),
    /// A value of type `map`.
    Map(MapVal<'a>),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A time with its UTC offset.
    Timestamp(CelTimestamp),
    /// A type, by its run-time name.
    Type(Arc<str>),
    /// An optional; `None` is `optional.none()`.
    Optional(Option<Arc<Val<'a>>>),
    /// An instance of a struct type, created by the expression.
    Object(Arc<ObjectVal<'a>>),
    /// A value of a library type.
    Ext(Arc<Ext>),
}

/// A string, borrowed or owned.
#[derive(Clone)]
pub enum Text<'a> {
    /// Borrowed from the data or the program.
    Borrowed(&'a str),
    /// Created by the expression.
    Owned(Arc<str>),
}

/// An instance of a struct type.
#[derive(Clone, Debug)]
pub struct ObjectVal<'a> {
    /// Name of the struct type.
    pub type_name: Str,
    /// The fields that are set, in the order of the literal.
    pub fields: Vec<(Str, Val<'a>)>,
}

impl<'a> ObjectVal<'a> {
    /// Upper bound of the memory of a field, without its value's own.
    pub(crate) const FIELD_BYTES: usize = 2 * size_of::<(Str, Val<'a>)>() + 64;

    /// The value of a field; `None` if it is not set.
    pub fn get(&self, name: &str) -> Option<&Val<'a>> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, val)| val)
    }

    /// Like [`ObjectVal::get`], for a field that is probably at position `at`. Counts the search for it elsewhere.
    pub(crate) fn get_near(
        &self,
        steps: &Steps<'_>,
        at: usize,
        name: &str,
    ) -> Result<Option<&Val<'a>>, Error> {
        match self.fields.get(at) {
            Some((field, val)) if field == name => Ok(Some(val)),
            _ => {
                steps.take(self.fields.len())?;
                Ok(self.get(name))
            }
        }
    }
}

/// The kind of a value, without its content.
#[expect(missing_docs, reason = "each kind is that of the variant of `Val` with its name")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValKind {
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    List,
    Map,
    Duration,
    Timestamp,
    Type,
    Optional,
    Object,
    Ext,
}

impl ValKind {
    /// True if `<` compares values of this kind: cel-go's `Comparer`.
    pub(crate) fn is_comparable(self) -> bool {
        matches!(
            self,
            ValKind::Bool
                | ValKind::Int
                | ValKind::Uint
                | ValKind::Double
                | ValKind::String
                | ValKind::Bytes
                | ValKind::Duration
                | ValKind::Timestamp
        )
    }

    /// True if `+` adds values of this kind: cel-go's `Adder`.
    pub(crate) fn is_addable(self) -> bool {
        matches!(
            self,
            ValKind::Int
                | ValKind::Uint
                | ValKind::Double
                | ValKind::String
                | ValKind::Bytes
                | ValKind::List
                | ValKind::Duration
                | ValKind::Timestamp
        )
    }
}

impl Text<'_> {
    /// The text as a `str`.
    pub fn as_str(&self) -> &str {
        match self {
            Text::Borrowed(s) => s,
            Text::Owned(s) => s,
        }
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl std::fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

impl<'a> Val<'a> {
    /// A string that borrows its text.
    pub fn str(s: &'a str) -> Self {
        Val::String(Text::Borrowed(s))
    }

    /// A string that owns its text.
    pub fn string(s: impl Into<Arc<str>>) -> Self {
        Val::String(Text::Owned(s.into()))
    }

    /// A list that owns its elements.
    pub fn list(items: Vec<Val<'a>>) -> Self {
        Val::List(ListVal::Owned(Arc::new(items)))
    }

    /// A list of owned strings.
    pub(crate) fn strings<S: Into<Arc<str>>>(items: impl IntoIterator<Item = S>) -> Self {
        Val::list(items.into_iter().map(Val::string).collect())
    }

    /// An optional that contains `val`.
    pub fn some(val: Val<'a>) -> Self {
        Val::Optional(Some(Arc::new(val)))
    }

    /// The empty optional, `optional.none()`.
    pub const NONE: Val<'static> = Val::Optional(None);

    /// Wraps a value of a library type.
    pub(crate) fn ext(ext: Ext) -> Self {
        Val::Ext(Arc::new(ext))
    }

    /// A type value with this run-time name.
    pub(crate) fn of_type(name: &str) -> Self {
        Val::Type(name.into())
    }

    /// A view of data, without copying.
    pub fn data(value: &'a Value) -> Self {
        Val::typed(value, None)
    }

    /// A view of data that is read by its schema.
    pub fn typed(value: &'a Value, schema: Option<&'a CelSchema>) -> Self {
        match value {
            Value::Null => Val::Null,
            Value::Bool(b) => Val::Bool(*b),
            Value::Int(i) => match schema {
                Some(schema) if schema.is_number() => Val::Double(convert::int_to_double(*i)),
                _ => Val::Int(*i),
            },
            Value::UInt(u) => Val::Uint(*u),
            Value::Float(f) => Val::Double(*f),
            Value::String(s) => match schema {
                Some(schema) => schema.string(s),
                None => Val::str(s),
            },
            Value::List(list) => Val::List(ListVal::Data(list, schema.and_then(CelSchema::for_list))),
            Value::Map(map) => Val::Map(MapVal::Data(map, schema.and_then(CelSchema::for_map))),
        }
    }

    /// The kind of this value.
    pub fn kind(&self) -> ValKind {
        match self {
            Val::Null => ValKind::Null,
            Val::Bool(_) => ValKind::Bool,
            Val::Int(_) => ValKind::Int,
            Val::Uint(_) => ValKind::Uint,
            Val::Double(_) => ValKind::Double,
            Val::String(_) => ValKind::String,
            Val::Bytes(_) => ValKind::Bytes,
            Val::List(_) => ValKind::List,
            Val::Map(_) => ValKind::Map,
            Val::Duration(_) => ValKind::Duration,
            Val::Timestamp(_) => ValKind::Timestamp,
            Val::Type(_) => ValKind::Type,
            Val::Optional(_) => ValKind::Optional,
            Val::Object(_) => ValKind::Object,
            Val::Ext(_) => ValKind::Ext,
        }
    }

    /// Name of the value's run-time type.
    pub fn type_name(&self) -> &str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Uint(_) => "uint",
            Val::Double(_) => "double",
            Val::String(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::List(_) => "list",
            Val::Map(map) => map.type_name(),
            Val::Duration(_) => "google.protobuf.Duration",
            Val::Timestamp(_) => "google.protobuf.Timestamp",
            Val::Type(_) => "type",
            Val::Optional(_) => "optional_type",
            Val::Object(object) => &object.type_name,
            Val::Ext(ext) => ext.type_name(),
        }
    }

    /// The boolean; `None` for other kinds.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Val::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The integer; `None` for other kinds.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Val::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// The string; `None` for other kinds.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Val::String(s) => Some(s),
            _ => None,
        }
    }

    /// The list; `None` for other kinds.
    pub fn as_list(&self) -> Option<&ListVal<'a>> {
        match self {
            Val::List(list) => Some(list),
            _ => None,
        }
    }

    /// The result of `size()`, which cost rules use too; `None` if the type has no size.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Val::String(s) => Some(length(s)),
            Val::Bytes(b) => Some(b.len()),
            Val::List(list) => Some(list.len()),
            Val::Map(map) => Some(map.len()),
            Val::Ext(ext) => ext.size(),
            _ => None,
        }
    }

    /// Size for cost rules; 1 for types without a size.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Val::Optional(Some(inner)) => inner.cost_size(),
            _ => self.size().map_or(1, |size| size as u64),
        }
    }

    /// Bytes that a function reads if it uses all of this value, without the elements of collections.
    #[inline]
    pub(crate) fn flat_bytes(&self) -> usize {
        match self {
            Val::String(s) => s.len(),
            Val::Bytes(b) => b.len(),
            Val::Ext(ext) => ext.bytes(),
            _ => 0,
        }
    }

    /// Bytes of memory that are held only through this value: those that a function allocated for its result, since
    /// its arguments share all else.
    pub(crate) fn unshared_bytes(&self) -> usize {
        /// Functions return lists of lists of strings at most.
        const MAX_DEPTH: usize = 4;
        self.unshared_bytes_to(MAX_DEPTH)
    }

    fn unshared_bytes_to(&self, depth: usize) -> usize {
        let Some(depth) = depth.checked_sub(1) else { return 0 };
        match self {
            Val::String(Text::Owned(text)) if Arc::strong_count(text) == 1 => SHARED_BYTES + text.len(),
            Val::Bytes(bytes) if Arc::strong_count(bytes) == 1 => SHARED_BYTES + bytes.len(),
            Val::List(ListVal::Owned(items)) if Arc::strong_count(items) == 1 => {
                let below = items.iter().map(|item| item.unshared_bytes_to(depth));
                below.fold(ListVal::bytes(items.len()), usize::saturating_add)
            }
            Val::Map(MapVal::Owned(entries)) if Arc::strong_count(entries) == 1 => {
                entries.iter().fold(0, |bytes: usize, (key, val)| {
                    let below = key.unshared_bytes_to(depth).saturating_add(val.unshared_bytes_to(depth));
                    bytes.saturating_add(MapEntries::ENTRY_BYTES + key.flat_bytes()).saturating_add(below)
                })
            }
            Val::Optional(Some(inner)) if Arc::strong_count(inner) == 1 => {
                SHARED_BYTES + size_of::<Val<'_>>() + inner.unshared_bytes_to(depth)
            }
            Val::Ext(ext) if Arc::strong_count(ext) == 1 => SHARED_BYTES + size_of::<Ext>() + ext.bytes(),
            _ => 0,
        }
    }

    /// True if `optional.ofNonZeroValue` treats the value as absent.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Val::Null => true,
            Val::Bool(b) => !b,
            Val::Int(i) => *i == 0,
            Val::Uint(u) => *u == 0,
            Val::Double(d) => *d == 0.0,
            Val::String(s) => s.is_empty(),
            Val::Bytes(b) => b.is_empty(),
            Val::List(list) => list.len() == 0,
            Val::Map(map) => map.len() == 0,
            Val::Duration(nanos) => *nanos == 0,
            Val::Timestamp(t) => t.is_zero(),
            Val::Object(object) => object.type_name != "JSONPatch" && object.fields.is_empty(),
            Val::Type(_) | Val::Optional(_) | Val::Ext(_) => false,
        }
    }

    /// A shallow copy that borrows from this value.
    pub(crate) fn borrow(&'a self) -> Val<'a> {
        match self {
            Val::String(s) => Val::str(s),
            Val::List(ListVal::Owned(items)) => Val::List(ListVal::Borrowed(items)),
            Val::Map(MapVal::Owned(entries)) => Val::Map(MapVal::Borrowed(entries)),
            other => other.clone(),
        }
    }

    /// A deep copy that borrows nothing.
    pub fn own(&self) -> Val<'static> {
        match self {
            Val::Null => Val::Null,
            Val::Bool(b) => Val::Bool(*b),
            Val::Int(i) => Val::Int(*i),
            Val::Uint(u) => Val::Uint(*u),
            Val::Double(d) => Val::Double(*d),
            Val::String(Text::Borrowed(s)) => Val::string(*s),
            Val::String(Text::Owned(s)) => Val::string(s.clone()),
            Val::Bytes(b) => Val::Bytes(b.clone()),
            Val::List(list) => Val::list(list.iter().map(|item| item.own()).collect()),
            Val::Map(map) => {
                let mut entries = MapEntries::default();
                for (key, val) in map {
                    entries.insert(key.own(), val.own());
                }
                Val::Map(MapVal::of(entries))
            }
            Val::Duration(nanos) => Val::Duration(*nanos),
            Val::Timestamp(t) => Val::Timestamp(*t),
            Val::Type(name) => Val::Type(name.clone()),
            Val::Optional(None) => Val::NONE,
            Val::Optional(Some(inner)) => Val::some(inner.own()),
            Val::Object(object) => Val::Object(Arc::new(ObjectVal {
                type_name: object.type_name.clone(),
                fields: object.fields.iter().map(|(name, val)| (name.clone(), val.own())).collect(),
            })),
            Val::Ext(ext) => Val::Ext(ext.clone()),
        }
    }

    /// Converts the value to a JSON tree. Fails for values without a JSON form.
    pub fn to_value(&self) -> Result<Value, String> {
        convert::to_value(self)
    }

    /// Like [`Val::to_value`], but integers beyond 2^53 become strings, as in CEL's JSON conversion.
    pub fn to_json(&self) -> Result<Value, String> {
        convert::to_json(self)
    }
}

/// Memory of a shared value besides its content: two counters, and what the allocator adds.
const SHARED_BYTES: usize = 32;

/// Length of a string in code points.
pub(crate) fn length(s: &str) -> usize {
    if s.is_ascii() { s.len() } else { s.chars().count() }
}

/// Length of a string in code points, or `most` if it is longer. Takes time in proportion to the result.
pub(crate) fn length_up_to(s: &str, most: u64) -> u64 {
    // A code point has at most four bytes.
    if s.len() as u64 / 4 >= most { most } else { (length(s) as u64).min(most) }
}
