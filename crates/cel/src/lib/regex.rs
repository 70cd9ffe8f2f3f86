//! Kubernetes' regular expression library.

use std::sync::Arc;

use super::pattern::{self, Pattern, PatternError};
use super::{int, string};
use crate::env::Builder;
use crate::eval::{Error, EvalResult};
use crate::val::Val;

/// Declares `find` and `findAll`.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "find",
        &[("string_find_string", "string.(string) -> string", |_, args| {
            let found = compile(string(args, 1)?)?.find(string(args, 0)?)?.map(str::to_owned);
            Ok(Val::string(found.unwrap_or_default()))
        })],
    );
    b.function(
        "findAll",
        &[
            ("string_find_all_string", "string.(string) -> list(string)", |_, args| find_all(args, -1)),
            ("string_find_all_string_int", "string.(string, int) -> list(string)", |_, args| {
                find_all(args, int(args, 2)?)
            }),
        ],
    );
}

fn compile(text: &str) -> Result<Arc<Pattern>, Error> {
    pattern::compile_data(text).map_err(|error| match error {
        PatternError::Exhausted(_) | PatternError::Unmatched(_) => error.into(),
        PatternError::Syntax(_) => Error::new(format!("Illegal regex: {error}")),
    })
}

fn find_all<'a>(args: &[Val<'a>], limit: i64) -> EvalResult<'a> {
    let pattern = compile(string(args, 1)?)?;
    Ok(Val::strings(pattern.find_all(string(args, 0)?, limit)?))
}
