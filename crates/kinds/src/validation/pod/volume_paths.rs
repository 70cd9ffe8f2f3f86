//! Rules for paths in volumes and on the host.

use api::FieldErrors;
use api::validation::fields::{At, Report};

/// Rejects paths with `..` as a component.
pub(in crate::validation) fn no_backsteps(path: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if path.split('/').any(|step| step == "..") {
        errors.invalid(at, path, "must not contain '..'");
    }
}

/// Validates a relative path without `..` components.
pub(in crate::validation) fn descending_path(path: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if path.starts_with('/') {
        errors.invalid(at, path, "must be a relative path");
    }
    no_backsteps(path, at, errors);
}

/// Validates a relative path without `..` components that does not begin with two dots, a prefix reserved for the kubelet.
pub(in crate::validation) fn local_path(path: &str, at: &At<'_>, errors: &mut FieldErrors) {
    descending_path(path, at, errors);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.invalid(at, path, "must not start with '..'");
    }
}
