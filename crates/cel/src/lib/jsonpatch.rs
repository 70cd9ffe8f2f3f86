//! `jsonpatch.escapeKey`.

use super::string;
use crate::env::Builder;
use crate::val::Val;

/// Adds it.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "jsonpatch.escapeKey",
        &[("string_jsonpatch_escapeKey_string", "(string) -> string", |_, args| {
            let key = string(args, 0)?;
            Ok(Val::string(key.replace('~', "~0").replace('/', "~1")))
        })],
    );
}
