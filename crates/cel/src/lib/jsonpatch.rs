//! The function `jsonpatch.escapeKey` of mutating policies.

use super::string;
use crate::env::Builder;
use crate::val::Val;

/// Declares the function `jsonpatch.escapeKey`.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "jsonpatch.escapeKey",
        &[("string_jsonpatch_escapeKey_string", "(string) -> string", |_, args| {
            let key = string(args, 0)?;
            Ok(Val::string(key.replace('~', "~0").replace('/', "~1")))
        })],
    );
}
