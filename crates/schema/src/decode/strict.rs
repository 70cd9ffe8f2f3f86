//! Formats strict field validation errors.

use api::field::quote;

/// Limit on the reported strict errors.
pub(super) const MAX_STRICT_ERRORS: usize = 100;

/// The strict errors for unknown and duplicate fields, formatted as in Kubernetes.
pub fn strict_errors(unknown: &[String], duplicates: &[String]) -> Vec<String> {
    strict_errors_of(&[], unknown, duplicates)
}

/// Like [`strict_errors`], in the order in which the fields occur in the JSON `text`.
pub fn strict_errors_of(text: &[u8], unknown: &[String], duplicates: &[String]) -> Vec<String> {
    let unknown = unknown.iter().map(|path| (path.as_str(), "unknown field"));
    let mut found: Vec<(&str, &str)> =
        unknown.chain(duplicates.iter().map(|path| (path.as_str(), "duplicate field"))).collect();
    if found.len() > 1 && !text.is_empty() {
        let paths: Vec<&str> = found.iter().map(|(path, _)| *path).collect();
        let mut by_offset: Vec<_> = value::json::offsets(text, &paths).into_iter().zip(found).collect();
        by_offset.sort_by_key(|(offset, _)| *offset);
        found = by_offset.into_iter().map(|(_, complaint)| complaint).collect();
    }
    let mut errors: Vec<String> = Vec::new();
    for (path, what) in found {
        let error = format!("{what} {}", quote(path));
        if errors.len() < MAX_STRICT_ERRORS && !errors.contains(&error) {
            errors.push(error);
        }
    }
    errors
}
