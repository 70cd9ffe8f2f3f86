//! Static types of expressions.

use std::fmt;
use std::sync::Arc;

use value::Str;

/// The type of an expression or a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Any type; checked at run time.
    Dyn,
    /// `google.protobuf.Any`, treated like [`Type::Dyn`].
    Any,
    /// Type of a subexpression that failed to check.
    Error,
    /// Type of the literal `null`.
    Null,
    /// The truth values (`bool`).
    Bool,
    /// Signed 64-bit integers (`int`).
    Int,
    /// Unsigned 64-bit integers (`uint`).
    Uint,
    /// 64-bit floating-point numbers (`double`).
    Double,
    /// Sequences of Unicode code points (`string`).
    String,
    /// Sequences of bytes (`bytes`).
    Bytes,
    /// Durations with nanosecond precision.
    Duration,
    /// Instants with nanosecond precision.
    Timestamp,
    /// A scalar type that also allows null.
    Wrapper(Arc<Type>),
    /// A list with this element type.
    List(Arc<Type>),
    /// A map with these key and value types.
    Map(Arc<(Type, Type)>),
    /// The type of a type value.
    Type(Option<Arc<Type>>),
    /// A library type by name, with its type parameters.
    Opaque(Str, Arc<[Type]>),
    /// A struct type by name; its fields come from a [`TypeProvider`](crate::TypeProvider).
    Struct(Str),
    /// A type parameter, resolved when checking.
    Param(Str),
}

/// Coarse classification of types, as cel-go's assignability rules use it.
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
    /// The type of lists with this element type.
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    /// The type of maps from `key` to `value`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// The type of optionals of `value`.
    pub fn optional(value: Type) -> Type {
        Type::Opaque(Str::new_static("optional_type"), Arc::from([value]))
    }

    /// A library type without type parameters.
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

    /// Run-time name of the type, as `type(x)` shows it.
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

    /// Element, key and value types, or type parameters.
    pub(crate) fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::List(element) => vec![element],
            Type::Map(entry) => vec![&entry.0, &entry.1],
            Type::Type(Some(inner)) => vec![inner],
            Type::Opaque(_, parameters) => parameters.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// True if the type consists of more than `limit` types. Visits at most that many.
    pub(crate) fn is_larger_than(&self, limit: usize) -> bool {
        fn fits(ty: &Type, left: &mut usize) -> bool {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => return false,
            }
            match ty {
                Type::List(element) | Type::Type(Some(element)) => fits(element, left),
                Type::Map(entry) => fits(&entry.0, left) && fits(&entry.1, left),
                Type::Opaque(_, parameters) => parameters.iter().all(|inner| fits(inner, left)),
                _ => true,
            }
        }
        !fits(self, &mut { limit })
    }

    /// The type inside an optional; `None` for other types.
    pub(crate) fn optional_value(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, parameters) if name == "optional_type" => parameters.first(),
            _ => None,
        }
    }

    /// Type equality, except that a wrapper equals the type it wraps.
    pub(crate) fn is_exactly(&self, other: &Type) -> bool {
        self.same(other, true)
    }

    /// Like [`Type::is_exactly`], ignoring the names of type parameters.
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

    /// True if a value of type `from` is assignable to this type, without solving type parameters.
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

    /// Formats the type as the checker's messages do.
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

/// Parses a type from a library's signature table: `list(A)`, `map(string, dyn)`, `optional(V)`,
/// `kubernetes.Quantity`.
///
/// A single capital letter is a type parameter, a name that starts with `net.` a library type, and any other name
/// with a dot a struct type.
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

/// Splits at commas outside parentheses.
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
