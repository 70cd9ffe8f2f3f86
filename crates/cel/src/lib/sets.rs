//! The sets library: set operations on lists.

use super::list;
use crate::env::Builder;
use crate::eval::{CallContext, Error};
use crate::val::{ListVal, Val, contains};

/// Declares `sets.contains`, `sets.equivalent` and `sets.intersects`.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "sets.contains",
        &[("list_sets_contains_list", "(list(T), list(T)) -> bool", |cx, args| {
            Ok(Val::Bool(covers(cx, list(args, 0)?, list(args, 1)?)?))
        })],
    );
    b.function(
        "sets.equivalent",
        &[("list_sets_equivalent_list", "(list(T), list(T)) -> bool", |cx, args| {
            let (a, b) = (list(args, 0)?, list(args, 1)?);
            Ok(Val::Bool(covers(cx, a, b)? && covers(cx, b, a)?))
        })],
    );
    b.function(
        "sets.intersects",
        &[("list_sets_intersects_list", "(list(T), list(T)) -> bool", |cx, args| {
            let (a, b) = (list(args, 0)?, list(args, 1)?);
            for item in a.iter() {
                if contains(&cx.steps, b, &item)? {
                    return Ok(Val::Bool(true));
                }
            }
            Ok(Val::Bool(false))
        })],
    );
}

fn covers(cx: &CallContext<'_>, all: &ListVal<'_>, some: &ListVal<'_>) -> Result<bool, Error> {
    for item in some.iter() {
        if !contains(&cx.steps, all, &item)? {
            return Ok(false);
        }
    }
    Ok(true)
}
