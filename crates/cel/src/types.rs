//! CEL's types.

use std::fmt;
use std::sync::Arc;

use value::Str;

/// A type of a value or of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Anything; checked when the expression runs.
    Dyn,
    /// `google.protobuf.Any`, which behaves as [`Type::Dyn`].
    Any,
    /// The type of a part that did not check.
    Error,
    /// The type of `null`.
    Null,
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `uint`.
    Uint,
    /// `double`.
    Double,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// A span of time.
    Duration,
    /// A point in time.
    Timestamp,
    /// A scalar or null.
    Wrapper(Arc<Type>),
    /// A list and the type of its elements.
    List(Arc<Type>),
    /// A map and the types of its keys and values.
    Map(Arc<(Type, Type)>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A type of a library, with its parameters.
    Opaque(Str, Arc<[Type]>),
    /// A type with fields.
    Struct(Str),
    /// A type to be found.
    Param(Str),
}

/// The coarse sort of a type, as assignability compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypeSort {
    Dyn,
    Error,
    Null,
    Scalar,
    List,
    Map,
    Type,
    Opaque,
    Struct,
    Param,
}

impl Type {
    /// A list of `element`.
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    /// A map from `key` to `value`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// An optional `value`.
    pub fn optional(value: Type) -> Type {
        Type::Opaque(Str::new_static("optional_type"), Arc::from([value]))
    }

    /// A library's type without parameters.
    pub fn opaque(name: &str) -> Type {
        Type::Opaque(name.into(), Arc::from([]))
    }

    pub(crate) fn sort(&self) -> TypeSort {
        match self {
            Type::Dyn | Type::Any => TypeSort::Dyn,
            Type::Error => TypeSort::Error,
            Type::Null => TypeSort::Null,
            Type::Bool
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::String
            | Type::Bytes
            | Type::Duration
            | Type::Timestamp
            | Type::Wrapper(_) => TypeSort::Scalar,
            Type::List(_) => TypeSort::List,
            Type::Map(_) => TypeSort::Map,
            Type::Type(_) => TypeSort::Type,
            Type::Opaque(..) => TypeSort::Opaque,
            Type::Struct(_) => TypeSort::Struct,
            Type::Param(_) => TypeSort::Param,
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    /// The name a value of the type shows at run time.
    pub fn name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Any => "google.protobuf.Any",
            Type::Error => "*error*",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Wrapper(inner) => inner.name(),
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Type(_) => "type",
            Type::Opaque(name, _) | Type::Struct(name) | Type::Param(name) => name,
        }
    }

    /// The types inside this one.
    pub(crate) fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::List(element) => vec![element],
            Type::Map(entry) => vec![&entry.0, &entry.1],
            Type::Type(Some(inner)) => vec![inner],
            Type::Opaque(_, parameters) => parameters.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The value type of an optional.
    pub(crate) fn optional_value(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, parameters) if name == "optional_type" => parameters.first(),
            _ => None,
        }
    }

    /// Whether two types are the same, a wrapper counting as what it wraps.
    pub(crate) fn is_exactly(&self, other: &Type) -> bool {
        self.same(other, true)
    }

    /// As [`Type::is_exactly`], whatever type parameters are called.
    pub(crate) fn is_equivalent(&self, other: &Type) -> bool {
        self.same(other, false)
    }

    fn same(&self, other: &Type, parameter_names: bool) -> bool {
        match (self, other) {
            (Type::Wrapper(a), b) | (b, Type::Wrapper(a)) => a.same(b, parameter_names),
            (Type::Param(a), Type::Param(b)) => !parameter_names || a == b,
            (Type::Map(a), Type::Map(b)) => {
                a.0.same(&b.0, parameter_names) && a.1.same(&b.1, parameter_names)
            }
            (Type::List(a), Type::List(b)) | (Type::Type(Some(a)), Type::Type(Some(b))) => {
                a.same(b, parameter_names)
            }
            (Type::Opaque(a, p), Type::Opaque(b, q)) => {
                a == b
                    && p.len() == q.len()
                    && p.iter().zip(q.iter()).all(|(p, q)| p.same(q, parameter_names))
            }
            _ => self == other,
        }
    }

    /// Whether a value of `from` may stand where this type is wanted, without type parameters being solved.
    pub(crate) fn accepts(&self, from: &Type) -> bool {
        match self {
            Type::Dyn | Type::Any | Type::Param(_) => true,
            Type::Wrapper(inner) => *from == Type::Null || inner.accepts(from),
            _ => {
                if let Type::Wrapper(inner) = from {
                    self.is_exactly(inner)
                } else {
                    let (mine, theirs) = (self.parameters(), from.parameters());
                    self.sort() == from.sort()
                        && self.name() == from.name()
                        && mine.len() == theirs.len()
                        && mine.iter().zip(theirs).all(|(mine, theirs)| mine.accepts(theirs))
                }
            }
        }
    }

    /// How the checker writes the type in its messages.
    pub fn in_messages(&self) -> String {
        match self {
            Type::Any => "any".to_owned(),
            Type::Duration => "duration".to_owned(),
            Type::Error => "!error!".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Timestamp => "timestamp".to_owned(),
            Type::Wrapper(inner) => format!("wrapper({})", inner.name()),
            _ => {
                let parameters = self.parameters();
                if parameters.is_empty() {
                    return self.name().to_owned();
                }
                let parameters: Vec<String> = parameters.into_iter().map(Type::in_messages).collect();
                format!("{}({})", self.name(), parameters.join(", "))
            }
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Param(name) => write!(f, "<{name}>"),
            Type::Wrapper(inner) => write!(f, "wrapper({})", inner.name()),
            _ => {
                f.write_str(self.name())?;
                for (i, parameter) in self.parameters().into_iter().enumerate() {
                    write!(f, "{}{parameter}", if i == 0 { "(" } else { ", " })?;
                }
                if self.parameters().is_empty() { Ok(()) } else { f.write_str(")") }
            }
        }
    }
}

/// Reads a type from a library table: `list(A)`, `map(string, dyn)`, `optional(V)`, `kubernetes.Quantity`.
///
/// A single capital letter is a type parameter, a name that starts with `net.` a library type, and any other name with a
/// dot a type with fields.
pub(crate) fn read(text: &str) -> Type {
    let text = text.trim();
    if let Some((name, rest)) = text.split_once('(') {
        let inner = rest.strip_suffix(')').unwrap_or(rest);
        let mut parts = split(inner).into_iter().map(read);
        let first = parts.next().unwrap_or(Type::Dyn);
        return match name {
            "list" => Type::list(first),
            "map" => Type::map(first, parts.next().unwrap_or(Type::Dyn)),
            "type" => Type::Type(Some(Arc::new(first))),
            _ => Type::optional(first),
        };
    }
    match text {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        name if name.len() == 1 => Type::Param(name.into()),
        name if name.starts_with("net.") => Type::opaque(name),
        name => Type::Struct(name.into()),
    }
}

/// Splits at the commas that are not inside parentheses.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text.get(start..).unwrap_or_default();
    if !last.trim().is_empty() || !parts.is_empty() {
        parts.push(last);
    }
    parts
}
