//! The functions and operators of the language itself.

use std::cmp::Ordering;

use super::timestamps;
use crate::env::Builder;
use crate::eval::{CallContext, Error, EvalResult, check_hashable};
use crate::lib::{check_list_length, refuse, string};
use crate::schema::is_mutation_type;
use crate::types::{Type, read};
use crate::val::convert::convert;
use crate::val::{ListVal, MapVal, Val, ValKind, compare, contains};

/// Declares the standard functions and operators.
pub(crate) fn add(b: &mut Builder) {
    for name in ["bool", "bytes", "double", "duration", "int", "null", "string", "timestamp", "uint"] {
        b.type_name(read(name));
    }
    b.type_name(read("list(dyn)"));
    b.type_name(read("map(dyn, dyn)"));
    b.type_name(Type::Type(None));
    logic(b);
    arithmetic(b);
    containers(b);
    comparisons(b);
    conversions(b);
    strings(b);
    timestamps::add(b);
}

fn any(_: ValKind) -> bool {
    true
}

fn logic(b: &mut Builder) {
    b.singleton("_?_:_", any, |_, _| refuse(), &[("conditional", "(bool, A, A) -> A")]);
    b.singleton("_&&_", any, |_, _| refuse(), &[("logical_and", "(bool, bool) -> bool")]);
    b.singleton("_||_", any, |_, _| refuse(), &[("logical_or", "(bool, bool) -> bool")]);
    b.singleton("!_", any, not, &[("logical_not", "(bool) -> bool")]);
    b.function(
        "@not_strictly_false",
        &[("not_strictly_false", "(bool) -> bool", |_, args| {
            Ok(args.first().cloned().unwrap_or(Val::Bool(true)))
        })],
    );
    b.singleton("_==_", any, |_, _| refuse(), &[("equals", "(A, A) -> bool")]);
    b.singleton("_!=_", any, |_, _| refuse(), &[("not_equals", "(A, A) -> bool")]);
}

fn arithmetic(b: &mut Builder) {
    b.singleton(
        "_+_",
        ValKind::is_addable,
        plus,
        &[
            ("add_bytes", "(bytes, bytes) -> bytes"),
            ("add_double", "(double, double) -> double"),
            ("add_duration_duration", "(duration, duration) -> duration"),
            ("add_duration_timestamp", "(duration, timestamp) -> timestamp"),
            ("add_timestamp_duration", "(timestamp, duration) -> timestamp"),
            ("add_int64", "(int, int) -> int"),
            ("add_list", "(list(A), list(A)) -> list(A)"),
            ("add_string", "(string, string) -> string"),
            ("add_uint64", "(uint, uint) -> uint"),
        ],
    );
    b.singleton(
        "_-_",
        |kind| {
            matches!(
                kind,
                ValKind::Double | ValKind::Duration | ValKind::Timestamp | ValKind::Int | ValKind::Uint
            )
        },
        minus,
        &[
            ("subtract_double", "(double, double) -> double"),
            ("subtract_duration_duration", "(duration, duration) -> duration"),
            ("subtract_int64", "(int, int) -> int"),
            ("subtract_timestamp_duration", "(timestamp, duration) -> timestamp"),
            ("subtract_timestamp_timestamp", "(timestamp, timestamp) -> duration"),
            ("subtract_uint64", "(uint, uint) -> uint"),
        ],
    );
    let number = |kind| matches!(kind, ValKind::Double | ValKind::Int | ValKind::Uint);
    b.singleton(
        "_*_",
        number,
        times,
        &[
            ("multiply_double", "(double, double) -> double"),
            ("multiply_int64", "(int, int) -> int"),
            ("multiply_uint64", "(uint, uint) -> uint"),
        ],
    );
    b.singleton(
        "_/_",
        number,
        divide,
        &[
            ("divide_double", "(double, double) -> double"),
            ("divide_int64", "(int, int) -> int"),
            ("divide_uint64", "(uint, uint) -> uint"),
        ],
    );
    b.singleton(
        "_%_",
        |kind| matches!(kind, ValKind::Int | ValKind::Uint),
        modulo,
        &[("modulo_int64", "(int, int) -> int"), ("modulo_uint64", "(uint, uint) -> uint")],
    );
    b.singleton(
        "-_",
        |kind| matches!(kind, ValKind::Bool | ValKind::Double | ValKind::Int | ValKind::Duration),
        negate,
        &[("negate_double", "(double) -> double"), ("negate_int64", "(int) -> int")],
    );
}

fn containers(b: &mut Builder) {
    b.singleton(
        "@in",
        any,
        is_in,
        &[("in_list", "(A, list(A)) -> bool"), ("in_map", "(A, map(A, B)) -> bool")],
    );
    b.singleton(
        "_[_]",
        any,
        |_, _| refuse(),
        &[("index_list", "(list(A), int) -> A"), ("index_map", "(map(A, B), A) -> B")],
    );
    b.singleton(
        "size",
        |kind| matches!(kind, ValKind::Bytes | ValKind::List | ValKind::Map | ValKind::String),
        |_, args| match args.first().and_then(Val::size) {
            Some(size) => Ok(super::count(size)),
            None => refuse(),
        },
        &[
            ("size_bytes", "(bytes) -> int"),
            ("bytes_size", "bytes.() -> int"),
            ("size_list", "(list(A)) -> int"),
            ("list_size", "list(A).() -> int"),
            ("size_map", "(map(A, B)) -> int"),
            ("map_size", "map(A, B).() -> int"),
            ("size_string", "(string) -> int"),
            ("string_size", "string.() -> int"),
        ],
    );
}

/// Types with ordering overloads, in declaration order.
const COMPARED: [(&str, &str, &str); 14] = [
    ("bool", "bool", "bool"),
    ("int64", "int", "int"),
    ("int64_double", "int", "double"),
    ("int64_uint64", "int", "uint"),
    ("uint64", "uint", "uint"),
    ("uint64_double", "uint", "double"),
    ("uint64_int64", "uint", "int"),
    ("double", "double", "double"),
    ("double_int64", "double", "int"),
    ("double_uint64", "double", "uint"),
    ("string", "string", "string"),
    ("bytes", "bytes", "bytes"),
    ("timestamp", "timestamp", "timestamp"),
    ("duration", "duration", "duration"),
];

/// True for overloads that compare numbers of different types.
pub(crate) fn is_cross_type(overload: &str) -> bool {
    let comparison = ["less_equals_", "greater_equals_", "less_", "greater_"];
    let Some(sorts) = comparison.iter().find_map(|prefix| overload.strip_prefix(prefix)) else {
        return false;
    };
    COMPARED.iter().any(|(id, left, right)| *id == sorts && left != right)
}

fn comparisons(b: &mut Builder) {
    let mut declare = |name: &'static str, prefix: &str, run: crate::decl::Implementation| {
        let overloads: Vec<(String, String)> = COMPARED
            .iter()
            .map(|(id, left, right)| (format!("{prefix}_{id}"), format!("({left}, {right}) -> bool")))
            .collect();
        let overloads: Vec<(&str, &str)> =
            overloads.iter().map(|(id, signature)| (id.as_str(), signature.as_str())).collect();
        b.singleton(name, ValKind::is_comparable, run, &overloads);
    };
    declare("_<_", "less", |_, args| ordering(args, Ordering::is_lt));
    declare("_<=_", "less_equals", |_, args| ordering(args, Ordering::is_le));
    declare("_>_", "greater", |_, args| ordering(args, Ordering::is_gt));
    declare("_>=_", "greater_equals", |_, args| ordering(args, Ordering::is_ge));
}

fn ordering<'a>(args: &[Val<'a>], holds: fn(Ordering) -> bool) -> EvalResult<'a> {
    let [left, right] = args else { return refuse() };
    Ok(Val::Bool(holds(compare(left, right)?)))
}

fn conversions(b: &mut Builder) {
    fn same<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
        args.first().cloned().ok_or_else(Error::no_such_overload)
    }
    macro_rules! to {
        ($ty:ident) => {
            |_, args| convert(args.first().ok_or_else(Error::no_such_overload)?, &Type::$ty)
        };
    }
    b.function(
        "bool",
        &[("bool_to_bool", "(bool) -> bool", same), ("string_to_bool", "(string) -> bool", to!(Bool))],
    );
    b.function(
        "bytes",
        &[("bytes_to_bytes", "(bytes) -> bytes", same), ("string_to_bytes", "(string) -> bytes", to!(Bytes))],
    );
    b.function(
        "double",
        &[
            ("double_to_double", "(double) -> double", same),
            ("int64_to_double", "(int) -> double", to!(Double)),
            ("string_to_double", "(string) -> double", to!(Double)),
            ("uint64_to_double", "(uint) -> double", to!(Double)),
        ],
    );
    b.function(
        "duration",
        &[
            ("duration_to_duration", "(duration) -> duration", same),
            ("string_to_duration", "(string) -> duration", to!(Duration)),
        ],
    );
    b.singleton("dyn", any, same, &[("to_dyn", "(A) -> dyn")]);
    b.function(
        "int",
        &[
            ("int64_to_int64", "(int) -> int", same),
            ("double_to_int64", "(double) -> int", to!(Int)),
            ("duration_to_int64", "(duration) -> int", to!(Int)),
            ("string_to_int64", "(string) -> int", to!(Int)),
            ("timestamp_to_int64", "(timestamp) -> int", to!(Int)),
            ("uint64_to_int64", "(uint) -> int", to!(Int)),
        ],
    );
    b.function(
        "string",
        &[
            ("string_to_string", "(string) -> string", same),
            ("bool_to_string", "(bool) -> string", to!(String)),
            ("bytes_to_string", "(bytes) -> string", to!(String)),
            ("double_to_string", "(double) -> string", to!(String)),
            ("duration_to_string", "(duration) -> string", to!(String)),
            ("int64_to_string", "(int) -> string", to!(String)),
            ("timestamp_to_string", "(timestamp) -> string", to!(String)),
            ("uint64_to_string", "(uint) -> string", to!(String)),
        ],
    );
    b.function(
        "timestamp",
        &[
            ("timestamp_to_timestamp", "(timestamp) -> timestamp", same),
            ("int64_to_timestamp", "(int) -> timestamp", to!(Timestamp)),
            ("string_to_timestamp", "(string) -> timestamp", to!(Timestamp)),
        ],
    );
    b.singleton(
        "type",
        any,
        |_, args| {
            Ok(Val::of_type(match args.first() {
                // cel-go distinguishes these types only before run time.
                Some(Val::Object(object)) if is_mutation_type(&object.type_name) => "type",
                Some(val) => val.type_name(),
                None => "",
            }))
        },
        &[("type", "(A) -> type(A)")],
    );
    b.function(
        "uint",
        &[
            ("uint64_to_uint64", "(uint) -> uint", same),
            ("double_to_uint64", "(double) -> uint", to!(Uint)),
            ("int64_to_uint64", "(int) -> uint", to!(Uint)),
            ("string_to_uint64", "(string) -> uint", to!(Uint)),
        ],
    );
}

fn strings(b: &mut Builder) {
    b.function(
        "contains",
        &[("contains_string", "string.(string) -> bool", |_, args| {
            Ok(Val::Bool(string(args, 0)?.contains(string(args, 1)?)))
        })],
    );
    b.unguarded("contains");
    b.function(
        "endsWith",
        &[("ends_with_string", "string.(string) -> bool", |_, args| {
            Ok(Val::Bool(string(args, 0)?.ends_with(string(args, 1)?)))
        })],
    );
    b.unguarded("endsWith");
    b.function(
        "startsWith",
        &[("starts_with_string", "string.(string) -> bool", |_, args| {
            Ok(Val::Bool(string(args, 0)?.starts_with(string(args, 1)?)))
        })],
    );
    b.unguarded("startsWith");
    b.singleton(
        "matches",
        |kind| kind == ValKind::String,
        |_, args| {
            let pattern = super::pattern::compile_data(string(args, 1)?)?;
            Ok(Val::Bool(pattern.try_match(string(args, 0)?)?))
        },
        &[("matches", "(string, string) -> bool"), ("matches_string", "string.(string) -> bool")],
    );
}

fn not<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Bool(b)] => Ok(Val::Bool(!b)),
        _ => refuse(),
    }
}

fn integer(result: Option<i64>) -> EvalResult<'static> {
    result.map(Val::Int).ok_or_else(|| Error::new("integer overflow"))
}

fn unsigned(result: Option<u64>) -> EvalResult<'static> {
    result.map(Val::Uint).ok_or_else(|| Error::new("unsigned integer overflow"))
}

fn duration(result: Option<i64>) -> EvalResult<'static> {
    result.map(Val::Duration).ok_or_else(|| Error::new("integer overflow"))
}

fn timestamp(result: Option<crate::val::CelTimestamp>) -> EvalResult<'static> {
    result.map(Val::Timestamp).ok_or_else(|| Error::new("timestamp overflow"))
}

fn plus<'a>(cx: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let [left, right] = args else { return refuse() };
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => integer(a.checked_add(*b)),
        (Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_add(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a + b)),
        (Val::String(a), Val::String(b)) => {
            let mut text = String::with_capacity(a.len() + b.len());
            text.push_str(a);
            text.push_str(b);
            Ok(Val::string(text))
        }
        (Val::Bytes(a), Val::Bytes(b)) => Ok(Val::Bytes([&**a, &**b].concat().into())),
        (Val::List(a), Val::List(b)) => {
            check_list_length(a.len().saturating_add(b.len()))?;
            concat(cx, a, b)
        }
        (Val::Duration(a), Val::Duration(b)) => duration(a.checked_add(*b)),
        (Val::Duration(d), Val::Timestamp(t)) | (Val::Timestamp(t), Val::Duration(d)) => {
            timestamp(t.plus(*d))
        }
        _ => refuse(),
    }
}

fn concat<'a>(cx: &CallContext<'a>, a: &ListVal<'a>, b: &ListVal<'a>) -> EvalResult<'a> {
    if let ListVal::Data(items, Some(schema)) = a
        && let Some(joined) = schema.concat(&cx.steps, items, b)?
    {
        return Ok(joined);
    }
    if b.len() == 0 {
        return Ok(Val::List(a.clone()));
    }
    if a.len() == 0 {
        return Ok(Val::List(b.clone()));
    }
    Ok(Val::list(a.iter().chain(b.iter()).collect()))
}

fn minus<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let [left, right] = args else { return refuse() };
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => integer(a.checked_sub(*b)),
        (Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_sub(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a - b)),
        (Val::Duration(a), Val::Duration(b)) => duration(a.checked_sub(*b)),
        (Val::Timestamp(t), Val::Duration(d)) => match d.checked_neg() {
            Some(d) => timestamp(t.plus(d)),
            None => Err(Error::new("integer overflow")),
        },
        (Val::Timestamp(a), Val::Timestamp(b)) => duration(a.minus(b)),
        _ => refuse(),
    }
}

fn times<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(a), Val::Int(b)] => integer(a.checked_mul(*b)),
        [Val::Uint(a), Val::Uint(b)] => unsigned(a.checked_mul(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a * b)),
        _ => refuse(),
    }
}

fn divide<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => Err(Error::new("division by zero")),
        [Val::Int(a), Val::Int(b)] => integer(a.checked_div(*b)),
        [Val::Uint(a), Val::Uint(b)] => unsigned(a.checked_div(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a / b)),
        _ => refuse(),
    }
}

fn modulo<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => Err(Error::new("modulus by zero")),
        [Val::Int(a), Val::Int(b)] => integer(a.checked_rem(*b)),
        [Val::Uint(a), Val::Uint(b)] => unsigned(a.checked_rem(*b)),
        _ => refuse(),
    }
}

fn negate<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(a)] => integer(a.checked_neg()),
        [Val::Double(a)] => Ok(Val::Double(-a)),
        [Val::Duration(a)] => duration(a.checked_neg()),
        _ => refuse(),
    }
}

fn is_in<'a>(cx: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [val, Val::List(list)] => Ok(Val::Bool(contains(&cx.steps, list, val)?)),
        [key, Val::Map(map)] => {
            if matches!(map, MapVal::Owned(_) | MapVal::Borrowed(_)) {
                check_hashable(key)?;
            }
            Ok(Val::Bool(map.holds(key)))
        }
        _ => refuse(),
    }
}
