//! The two-variable comprehensions extension.

use super::refuse;
use crate::env::Builder;
use crate::eval::{Error, EvalResult, check_hashable};
use crate::syntax::macros;
use crate::val::{MapEntries, MapVal, Val};

/// Declares the macros and the internal function of their expansions.
pub(crate) fn add(b: &mut Builder) {
    b.macros(&macros::TWO_VARIABLES);
    b.function(
        "cel.@mapInsert",
        &[
            ("@mapInsert_map_key_value", "(map(K, V), K, V) -> map(K, V)", |_, args| match args {
                [Val::Map(map), key, val] => insert(map, [(key.clone(), val.clone())]),
                _ => refuse(),
            }),
            ("@mapInsert_map_map", "(map(K, V), map(K, V)) -> map(K, V)", |_, args| match args {
                [Val::Map(map), Val::Map(more)] => insert(map, more.iter()),
                _ => refuse(),
            }),
        ],
    );
}

fn insert<'a>(map: &MapVal<'a>, more: impl IntoIterator<Item = (Val<'a>, Val<'a>)>) -> EvalResult<'a> {
    let mut entries = MapEntries::default();
    for (key, val) in map {
        entries.insert(key, val);
    }
    for (key, val) in more {
        check_hashable(&key)?;
        if entries.find(&key).is_some() {
            return Err(Error::new(format!("insert failed: key {key} already exists")));
        }
        entries.insert(key, val);
    }
    Ok(Val::Map(MapVal::of(entries)))
}
