//! The list extension library, version 3.

use super::{check_list_length, int, list};
use crate::env::Builder;
use crate::eval::{CallContext, Error, EvalResult};
use crate::syntax::macros;
use crate::val::{ListVal, Val, ValKind, compare, equal_nested};

/// Upper bound of the list that `lists.range` creates.
const MAX_RANGE: i64 = 1_000_000;

/// Sortable types: their names in overload ids and in signatures.
const SORTABLE: [(&str, &str); 8] = [
    ("int", "int"),
    ("uint", "uint"),
    ("double", "double"),
    ("bool", "bool"),
    ("google.protobuf.Duration", "duration"),
    ("google.protobuf.Timestamp", "timestamp"),
    ("string", "string"),
    ("bytes", "bytes"),
];

/// Declares the list functions and `sortBy`.
pub(crate) fn add(b: &mut Builder) {
    b.function("slice", &[("list_slice", "list(T).(int, int) -> list(T)", slice)]);
    b.function(
        "flatten",
        &[
            ("list_flatten", "list(list(T)).() -> list(T)", |_, args| flatten(args, 1)),
            ("list_flatten_int", "list(dyn).(int) -> list(dyn)", |_, args| flatten(args, int(args, 1)?)),
        ],
    );
    b.unguarded("flatten");
    let sorts: Vec<(String, String)> = SORTABLE
        .iter()
        .map(|(id, ty)| (format!("list_{id}_sort"), format!("list({ty}).() -> list({ty})")))
        .collect();
    b.singleton("sort", |kind| kind == ValKind::List, |cx, args| sort(cx, args, 0), &borrowed(&sorts));
    let sorts: Vec<(String, String)> = SORTABLE
        .iter()
        .map(|(id, ty)| {
            (format!("list_{id}_sortByAssociatedKeys"), format!("list(T).(list({ty})) -> list(T)"))
        })
        .collect();
    b.singleton(
        "@sortByAssociatedKeys",
        |kind| kind == ValKind::List,
        |cx, args| sort(cx, args, 1),
        &borrowed(&sorts),
    );
    b.macros(&macros::LISTS);
    b.function("lists.range", &[("lists_range", "(int) -> list(int)", range)]);
    b.function(
        "reverse",
        &[("list_reverse", "list(T).() -> list(T)", |_, args| {
            let mut items: Vec<Val<'_>> = list(args, 0)?.iter().collect();
            items.reverse();
            Ok(Val::list(items))
        })],
    );
    b.function("distinct", &[("list_distinct", "list(T).() -> list(T)", distinct)]);
    b.costs_of_lists();
}

fn borrowed(overloads: &[(String, String)]) -> Vec<(&str, &str)> {
    overloads.iter().map(|(id, signature)| (id.as_str(), signature.as_str())).collect()
}

fn slice<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let list = list(args, 0)?;
    let (start, end) = (int(args, 1)?, int(args, 2)?);
    let fail = |why: String| Err(Error::new(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return fail("negative indexes not supported".to_owned());
    };
    if from > to {
        return fail("start index must be less than or equal to end index".to_owned());
    }
    if to > list.len() {
        return fail(format!("list is length {}", list.len()));
    }
    Ok(Val::list((from..to).filter_map(|at| list.get(at)).collect()))
}

fn flatten<'a>(args: &[Val<'a>], depth: i64) -> EvalResult<'a> {
    fn into<'a>(list: &ListVal<'a>, depth: i64, items: &mut Vec<Val<'a>>) -> Result<(), Error> {
        check_list_length(items.len().saturating_add(list.len()))?;
        for item in list.iter() {
            match item {
                Val::List(inner) if depth > 0 => into(&inner, depth - 1, items)?,
                item => items.push(item),
            }
        }
        Ok(())
    }
    let Some(Val::List(list)) = args.first() else {
        return Err(not_flattened(args));
    };
    if depth < 0 {
        return Err(Error::new("level must be non-negative"));
    }
    let mut items = Vec::new();
    into(list, depth, &mut items)?;
    Ok(Val::list(items))
}

/// The error of `flatten` for an argument that is not a list.
fn not_flattened(args: &[Val<'_>]) -> Error {
    let name = |arg: &Val<'_>| match arg.kind() {
        ValKind::Map => "map(dyn, dyn)".to_owned(),
        ValKind::Optional => "optional_type(dyn)".to_owned(),
        _ => arg.type_name().to_string(),
    };
    let receiver = args.first().map(name).unwrap_or_default();
    let rest: Vec<String> = args.iter().skip(1).map(name).collect();
    Error::new(format!("no such overload: {receiver}.flatten({})", rest.join(", ")))
}

/// Sorts the first argument by the keys in the argument at `keys` (which may be the first).
fn sort<'a>(cx: &CallContext<'a>, args: &[Val<'a>], keys: usize) -> EvalResult<'a> {
    let list = list(args, 0)?;
    let keys = super::list(args, keys)?;
    if list.len() != keys.len() {
        return Err(Error::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let Some(first) = keys.get(0) else { return Ok(Val::List(list.clone())) };
    let comparable = |val: &Val<'_>| {
        !matches!(
            val.kind(),
            ValKind::Null
                | ValKind::List
                | ValKind::Map
                | ValKind::Type
                | ValKind::Optional
                | ValKind::Object
                | ValKind::Ext
        )
    };
    if !comparable(&first) {
        return Err(Error::new("list elements must be comparable"));
    }
    let mut pairs: Vec<(Val<'a>, Val<'a>)> = keys.iter().zip(list.iter()).collect();
    if pairs.len() > 1 && pairs.iter().any(|(key, _)| key.kind() != first.kind()) {
        return Err(Error::new("list elements must have the same type"));
    }
    // The cost depends on the number of keys only.
    let bytes = pairs.iter().fold(0, |sum: usize, (key, _)| sum.saturating_add(key.flat_bytes()));
    cx.steps.take_bytes(bytes.saturating_mul(pairs.len().max(1).ilog2() as usize))?;
    pairs.sort_by(|(a, _), (b, _)| compare(a, b).unwrap_or(std::cmp::Ordering::Equal));
    Ok(Val::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

fn range<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let size = int(args, 0)?;
    if size < 0 {
        return Err(Error::new(format!("lists.range: size must be non-negative, got {size}")));
    }
    if size > MAX_RANGE {
        return Err(Error::new(format!("lists.range: size {size} exceeds maximum allowed ({MAX_RANGE})")));
    }
    Ok(Val::list((0..size).map(Val::Int).collect()))
}

fn distinct<'a>(cx: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let mut unique: Vec<Val<'a>> = Vec::new();
    for item in list(args, 0)?.iter() {
        // All nulls count as equal, so only the first one stays.
        let mut seen = false;
        for other in &unique {
            seen = equal_nested(&cx.steps, &item, other, false)?;
            if seen {
                break;
            }
        }
        if !seen {
            unique.push(item);
        }
    }
    Ok(Val::list(unique))
}
