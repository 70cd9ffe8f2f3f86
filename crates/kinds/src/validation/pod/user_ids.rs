//! Rules for numeric user and group ids.

use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, names};
use value::Value;

pub(super) fn user_or_group_id(id: i64, at: &At<'_>, errors: &mut FieldErrors) {
    for message in names::is_valid_user_id(id) {
        errors.invalid(at, id, message);
    }
}

/// Validates the id in a field that may be absent.
pub(super) fn optional_id(holder: &Value, field: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(id) = holder.number_if_set(field) {
        user_or_group_id(id, &at.field(field), errors);
    }
}
