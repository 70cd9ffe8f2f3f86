use super::{Shards, covers, is_key, is_scope, scopes};

#[test]
fn keys_are_absolute_paths_without_a_trailing_slash() {
    assert!(is_key("/registry/configmaps/default/a"));
    for wrong in ["", "registry/a", "/registry/a/", "/registry//a", "/registry/a\0", "/"] {
        assert!(!is_key(wrong), "{wrong:?}");
    }
    assert!(is_scope("/") && is_scope("/registry/nodes/") && !is_scope("registry"));
}

#[test]
fn shards_end_where_the_configured_division_says() {
    let by_segment = Shards(|key| key.match_indices('/').nth(1).map(|(slash, _)| slash + 1));
    assert_eq!(by_segment.of("/pods/default/a"), "/pods/");
    assert_eq!(by_segment.of("/a"), "");
    assert!(
        by_segment.is_within("/pods/")
            && by_segment.is_within("/pods/default/")
            && by_segment.is_within("/a")
    );
    assert!(!by_segment.is_within("/"));
    let undivided = Shards(|_| None);
    assert_eq!(undivided.of("/pods/default/a"), "");
    assert!(undivided.is_within("/pods/default/a") && !undivided.is_within("/pods/"));
}

#[test]
fn the_scopes_of_a_key_are_its_directories_and_the_key() {
    let all: Vec<_> = scopes("/registry/core/nodes/a").collect();
    assert_eq!(
        all,
        ["/", "/registry/", "/registry/core/", "/registry/core/nodes/", "/registry/core/nodes/a"]
    );
    assert!(all.iter().all(|scope| covers(scope, "/registry/core/nodes/a")));
    assert!(!covers("/registry/core/nodes/a", "/registry/core/nodes/ab"));
    assert!(!covers("/registry/core/node/", "/registry/core/nodes/a"));
}
