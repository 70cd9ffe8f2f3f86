//! Kubernetes' own list functions.

use std::cmp::Ordering;

use super::{count, refuse};
use crate::decl::Implementation;
use crate::env::Builder;
use crate::eval::{CallContext, Error, EvalResult};
use crate::val::{ListVal, Val, compare, equal_nested};

/// Types with an order, by name.
const COMPARABLE: [&str; 8] = ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];

/// Declares `isSorted`, `sum`, `max`, `min`, `indexOf` and `lastIndexOf`.
pub(crate) fn add(b: &mut Builder) {
    let mut each = |name: &'static str,
                    sorts: &[&str],
                    id: fn(&str) -> String,
                    result: Option<&str>,
                    run: Implementation| {
        let overloads: Vec<(String, String)> =
            sorts.iter().map(|ty| (id(ty), format!("list({ty}).() -> {}", result.unwrap_or(ty)))).collect();
        let overloads: Vec<(&str, &str, Implementation)> =
            overloads.iter().map(|(id, signature)| (id.as_str(), signature.as_str(), run)).collect();
        b.function(name, &overloads);
    };
    each("isSorted", &COMPARABLE, |ty| format!("list_{ty}_is_sorted_bool"), Some("bool"), is_sorted);
    each(
        "max",
        &COMPARABLE,
        |ty| format!("list_{ty}_max_{ty}"),
        None,
        |_, args| extreme(args, "max", Ordering::is_lt),
    );
    each(
        "min",
        &COMPARABLE,
        |ty| format!("list_{ty}_min_{ty}"),
        None,
        |_, args| extreme(args, "min", Ordering::is_gt),
    );
    b.function(
        "sum",
        &[
            ("list_int_sum_int", "list(int).() -> int", |_, args| sum(args, Val::Int(0))),
            ("list_uint_sum_uint", "list(uint).() -> uint", |_, args| sum(args, Val::Uint(0))),
            ("list_double_sum_double", "list(double).() -> double", |_, args| sum(args, Val::Double(0.0))),
            ("list_duration_sum_duration", "list(duration).() -> duration", |_, args| {
                sum(args, Val::Duration(0))
            }),
        ],
    );
    b.function(
        "indexOf",
        &[("list_a_index_of_int", "list(A).(A) -> int", |cx, args| {
            let (Some(Val::List(list)), Some(item)) = (args.first(), args.get(1)) else { return refuse() };
            position(cx, list, item, 0..list.len())
        })],
    );
    b.function(
        "lastIndexOf",
        &[("list_a_last_index_of_int", "list(A).(A) -> int", |cx, args| {
            let (Some(Val::List(list)), Some(item)) = (args.first(), args.get(1)) else { return refuse() };
            position(cx, list, item, (0..list.len()).rev())
        })],
    );
}

/// Declares the list method `includes`.
pub(crate) fn add_includes(b: &mut Builder) {
    b.function(
        "includes",
        &[("list_includes_dyn_dyn", "dyn.(dyn) -> bool", |cx, args| {
            let [target, item] = args else { return refuse() };
            Ok(Val::Bool(match target {
                Val::List(list) => find(cx, list, item, 0..list.len())?.is_some(),
                other => equal_nested(&cx.steps, other, item, false)?,
            }))
        })],
    );
}

/// The first of the given indices whose element equals the second argument.
fn find(
    cx: &CallContext<'_>,
    list: &ListVal<'_>,
    item: &Val<'_>,
    indexes: impl Iterator<Item = usize>,
) -> Result<Option<usize>, Error> {
    for at in indexes {
        if let Some(each) = list.get(at)
            && equal_nested(&cx.steps, &each, item, false)?
        {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn position<'a>(
    cx: &CallContext<'a>,
    list: &ListVal<'a>,
    item: &Val<'a>,
    indexes: impl Iterator<Item = usize>,
) -> EvalResult<'a> {
    Ok(find(cx, list, item, indexes)?.map_or(Val::Int(-1), count))
}

fn is_sorted<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let mut before: Option<Val<'a>> = None;
    for item in super::list(args, 0)?.iter() {
        if !item.kind().is_comparable() {
            return refuse();
        }
        if let Some(before) = &before
            && compare(before, &item).is_ok_and(Ordering::is_gt)
        {
            return Ok(Val::Bool(false));
        }
        before = Some(item);
    }
    Ok(Val::Bool(true))
}

fn extreme<'a>(args: &[Val<'a>], name: &str, prefer: fn(Ordering) -> bool) -> EvalResult<'a> {
    let mut best: Option<Val<'a>> = None;
    for item in super::list(args, 0)?.iter() {
        if !item.kind().is_comparable() {
            return refuse();
        }
        best = Some(match best {
            Some(best) if !compare(&best, &item).is_ok_and(prefer) => best,
            _ => item,
        });
    }
    best.ok_or_else(|| Error::new(format!("{name} called on empty list")))
}

fn sum<'a>(args: &[Val<'a>], zero: Val<'a>) -> EvalResult<'a> {
    let overflow = |kind: &'static str| Error::new(kind);
    super::list(args, 0)?.iter().try_fold(zero, |sum, item| match (sum, item) {
        (Val::Int(a), Val::Int(b)) => {
            a.checked_add(b).map(Val::Int).ok_or_else(|| overflow("integer overflow"))
        }
        (Val::Uint(a), Val::Uint(b)) => {
            a.checked_add(b).map(Val::Uint).ok_or_else(|| overflow("unsigned integer overflow"))
        }
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a + b)),
        (Val::Duration(a), Val::Duration(b)) => {
            a.checked_add(b).map(Val::Duration).ok_or_else(|| overflow("integer overflow"))
        }
        _ => refuse(),
    })
}
