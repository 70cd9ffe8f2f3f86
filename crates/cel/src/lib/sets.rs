//! Lists as sets.

use super::list;
use crate::env::Builder;
use crate::val::{List, Val, contains};

/// Adds `sets.contains`, `sets.equivalent` and `sets.intersects`.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "sets.contains",
        &[("list_sets_contains_list", "(list(T), list(T)) -> bool", |_, args| {
            Ok(Val::Bool(covers(list(args, 0)?, list(args, 1)?)))
        })],
    );
    b.function(
        "sets.equivalent",
        &[("list_sets_equivalent_list", "(list(T), list(T)) -> bool", |_, args| {
            let (a, b) = (list(args, 0)?, list(args, 1)?);
            Ok(Val::Bool(covers(a, b) && covers(b, a)))
        })],
    );
    b.function(
        "sets.intersects",
        &[("list_sets_intersects_list", "(list(T), list(T)) -> bool", |_, args| {
            let (a, b) = (list(args, 0)?, list(args, 1)?);
            let any = a.iter().any(|item| contains(b, &item));
            Ok(Val::Bool(any))
        })],
    );
}

fn covers(all: &List<'_>, some: &List<'_>) -> bool {
    some.iter().all(|item| contains(all, &item))
}
