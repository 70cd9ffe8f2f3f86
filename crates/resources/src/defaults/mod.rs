//! Defaults: what an object that leaves a field out means.
//!
//! One ordered table, one function per kind. A function changes the decoded object in place and is idempotent.

use api::GroupKind;
use value::Value;

/// Fills in the defaults of one kind.
pub type Defaults = fn(&mut Value);

/// Every kind with defaults, at the version it is stored in.
const TABLE: &[(&str, &str, Defaults)] = &[];

/// Fills in the defaults of `object`, which is of `kind` at its stored version.
pub fn apply(kind: &GroupKind, object: &mut Value) {
    if let Some((_, _, defaults)) = TABLE.iter().find(|(g, k, _)| *g == kind.group && *k == kind.kind) {
        defaults(object);
    }
}
