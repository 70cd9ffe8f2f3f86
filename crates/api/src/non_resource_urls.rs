//! Paths that are not resources, such as `/healthz`, and the patterns that select them in RBAC roles, ABAC policies and audit policies.

/// Returns true if a pattern matches a path: both are equal, or the pattern ends in `*` and the path begins with what is before it.
///
/// API Priority and Fairness has other patterns: there a `*` matches below a slash only.
pub fn non_resource_url_matches(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::non_resource_url_matches;

    #[test]
    fn a_pattern_matches_the_equal_path_or_those_that_begin_with_the_part_before_its_star() {
        for (pattern, path) in [
            ("/healthz", "/healthz"),
            ("/healthz*", "/healthz"),
            ("/healthz*", "/healthz-not/below"),
            ("/healthz/*", "/healthz/etcd"),
            ("/healthz/**", "/healthz/etcd"),
            ("*", "/"),
            ("*", ""),
            ("**", "/metrics"),
            ("/a*c", "/a*c"),
        ] {
            assert!(non_resource_url_matches(pattern, path), "`{pattern}` matches `{path}`");
        }
        for (pattern, path) in [
            ("/healthz", "/healthz/"),
            ("/healthz/*", "/healthz"),
            ("/healthz", "/Healthz"),
            ("/a*c", "/abc"),
            ("*z", "/healthz"),
            ("", "/"),
        ] {
            assert!(!non_resource_url_matches(pattern, path), "`{pattern}` does not match `{path}`");
        }
    }
}
