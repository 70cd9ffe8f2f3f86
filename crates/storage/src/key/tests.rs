use super::{covers, is_key, is_scope, is_within_shard, scopes, shard};

#[test]
fn a_key_is_a_path_that_is_no_directory() {
    assert!(is_key("/registry/core/configmaps/default/a"));
    for wrong in ["", "registry/a", "/registry/a/", "/registry//a", "/registry/a\0", "/"] {
        assert!(!is_key(wrong), "{wrong:?}");
    }
    assert!(is_scope("/") && is_scope("/registry/core/") && !is_scope("registry"));
}

#[test]
fn a_shard_is_the_resource() {
    assert_eq!(shard("/registry/core/configmaps/default/a"), "/registry/core/configmaps/");
    assert_eq!(shard("/registry/core/nodes/a"), "/registry/core/nodes/");
    assert_eq!(shard("/registry/a"), "/registry/");
    assert!(is_within_shard("/registry/core/nodes/") && is_within_shard("/a/b"));
    assert!(!is_within_shard("/registry/core/"));
}

#[test]
fn scopes_of_a_key_are_its_directories_and_itself() {
    let all: Vec<_> = scopes("/registry/core/nodes/a").collect();
    assert_eq!(
        all,
        ["/", "/registry/", "/registry/core/", "/registry/core/nodes/", "/registry/core/nodes/a"]
    );
    assert!(all.iter().all(|scope| covers(scope, "/registry/core/nodes/a")));
    assert!(!covers("/registry/core/nodes/a", "/registry/core/nodes/ab"));
    assert!(!covers("/registry/core/node/", "/registry/core/nodes/a"));
}
