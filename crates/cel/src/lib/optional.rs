//! The optional types library.

use super::{list, refuse};
use crate::env::Builder;
use crate::eval::{CallContext, Error, EvalResult};
use crate::syntax::macros;
use crate::types::Type;
use crate::val::{TruncatedVal, Val};

/// Declares optional functions, syntax and macros.
pub(crate) fn add(b: &mut Builder) {
    b.optional_syntax();
    b.type_name(Type::optional(Type::Param("V".into())));
    b.macros(&macros::OPTIONAL);
    b.function(
        "optional.of",
        &[("optional_of", "(V) -> optional(V)", |_, args| {
            Ok(Val::some(args.first().cloned().unwrap_or(Val::Null)))
        })],
    );
    b.function(
        "optional.ofNonZeroValue",
        &[("optional_ofNonZeroValue", "(V) -> optional(V)", |_, args| match args {
            [val] if !val.is_zero() => Ok(Val::some(val.clone())),
            _ => Ok(Val::NONE),
        })],
    );
    b.function("optional.none", &[("optional_none", "() -> optional(V)", |_, _| Ok(Val::NONE))]);
    b.function(
        "value",
        &[("optional_value", "optional(V).() -> V", |_, args| match args {
            [Val::Optional(Some(val))] => Ok((**val).clone()),
            [Val::Optional(None)] => Err(Error::new("optional.none() dereference")),
            _ => refuse(),
        })],
    );
    b.function(
        "hasValue",
        &[("optional_hasValue", "optional(V).() -> bool", |_, args| match args {
            [Val::Optional(inner)] => Ok(Val::Bool(inner.is_some())),
            _ => refuse(),
        })],
    );
    b.declare("or", &[("optional_or_optional", "optional(V).(optional(V)) -> optional(V)")]);
    b.declare("orValue", &[("optional_orValue_value", "optional(V).(V) -> V")]);
    b.declare("_?._", &[("select_optional_field", "(dyn, string) -> optional(V)")]);
    b.declare(
        "_[?_]",
        &[
            ("list_optindex_optional_int", "(list(V), int) -> optional(V)"),
            ("optional_list_optindex_optional_int", "(optional(list(V)), int) -> optional(V)"),
            ("map_optindex_optional_value", "(map(K, V), K) -> optional(V)"),
            ("optional_map_optindex_optional_value", "(optional(map(K, V)), K) -> optional(V)"),
        ],
    );
    b.declare(
        "_[_]",
        &[
            ("optional_list_index_int", "(optional(list(V)), int) -> optional(V)"),
            ("optional_map_index_value", "(optional(map(K, V)), K) -> optional(V)"),
        ],
    );
    b.function(
        "last",
        &[("list_last", "list(V).() -> optional(V)", |_, args| {
            let list = list(args, 0)?;
            Ok(list.len().checked_sub(1).and_then(|at| list.get(at)).map_or(Val::NONE, Val::some))
        })],
    );
    b.function(
        "first",
        &[("list_first", "list(V).() -> optional(V)", |_, args| {
            Ok(list(args, 0)?.get(0).map_or(Val::NONE, Val::some))
        })],
    );
    b.function("optional.unwrap", &[("optional_unwrap", "(list(optional(V))) -> list(V)", unwrap)]);
    b.function("unwrapOpt", &[("optional_unwrapOpt", "list(optional(V)).() -> list(V)", unwrap)]);
}

fn unwrap<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let mut items = Vec::new();
    for item in list(args, 0)?.iter() {
        match item {
            Val::Optional(Some(val)) => items.push((*val).clone()),
            Val::Optional(None) => {}
            other => {
                return Err(Error::new(format!("value {} is not optional", TruncatedVal(&other))));
            }
        }
    }
    Ok(Val::list(items))
}
