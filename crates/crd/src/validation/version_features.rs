//! Validates the printer columns, subresources and selectable fields of a CRD version.

use std::collections::HashSet;

use api::FieldErrors;
use api::validation::fields::{At, Read, Report};
use value::Value;

use crate::{SchemaNode, field_path};

/// Limit on the selectable fields of a version.
pub(super) const MAX_SELECTABLE: usize = 8;

pub(super) fn columns(columns: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    const KINDS: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (i, column) in columns.iter().enumerate() {
        let at = at.index(i);
        if column.text("name").is_empty() {
            errors.required(&at.field("name"), "");
        }
        let kind = column.text("type");
        let detail = format!("must be one of {}", KINDS.join(","));
        if kind.is_empty() {
            errors.required(&at.field("type"), detail);
        } else if !KINDS.contains(&kind) {
            errors.invalid(&at.field("type"), kind, detail);
        }
        let format = column.text("format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            errors.invalid(&at.field("format"), format, format!("must be one of {}", FORMATS.join(",")));
        }
        let path = column.text("jsonPath");
        if path.is_empty() {
            errors.required(&at.field("JSONPath"), "");
        } else {
            simple_path(path, &at.field("JSONPath"), errors);
        }
    }
}

/// Reports an error unless the path starts with a dot.
fn simple_path(path: &str, at: &At<'_>, errors: &mut FieldErrors) -> bool {
    if path.starts_with('.') {
        return true;
    }
    errors.invalid(at, path, "must be a simple json path starting with .");
    false
}

pub(super) fn subresources(subresources: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(scale) = subresources.part("scale") else { return };
    for (field, under, detail) in [
        ("specReplicasPath", ".spec.", "should be a json path under .spec"),
        ("statusReplicasPath", ".status.", "should be a json path under .status"),
    ] {
        let name = format!("scale.{field}");
        let path_at = at.field(&name);
        let path = scale.text(field);
        if path.is_empty() {
            errors.required(&path_at, "");
        } else if simple_path(path, &path_at, errors) && !path.starts_with(under) {
            errors.invalid(&path_at, path, detail);
        }
    }
    let path = scale.text("labelSelectorPath");
    let path_at = at.field("scale.labelSelectorPath");
    if !path.is_empty()
        && simple_path(path, &path_at, errors)
        && !path.starts_with(".spec.")
        && !path.starts_with(".status.")
    {
        errors.invalid(&path_at, path, "should be a json path under either .spec or .status");
    }
}

/// Validates the selectable fields of a version. `may_exceed` permits more than [`MAX_SELECTABLE`] of them.
pub(super) fn selectable(
    fields: &[Value],
    schema: Option<&Value>,
    may_exceed: bool,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let node = schema.map(SchemaNode::read).unwrap_or_default();
    let mut seen: HashSet<String> = HashSet::new();
    for (i, field) in fields.iter().enumerate() {
        let item = at.index(i);
        let path_at = item.field("jsonPath");
        let path = field.text("jsonPath");
        if path.is_empty() {
            errors.required(&path_at, "");
            continue;
        }
        let (found, node) = match field_path(path, &node, false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&path_at, path, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if found.root() == "metadata" {
            errors.invalid(&path_at, path, "must not point to fields in metadata");
        }
        if !matches!(node.kind.as_str(), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(&path_at, path, detail);
        }
        let text = found.text();
        if !seen.insert(text) {
            errors.duplicate(&path_at, path);
        }
    }
    if seen.len() > MAX_SELECTABLE && !may_exceed {
        errors.too_many(at, seen.len(), MAX_SELECTABLE);
    }
}
