use super::key;

#[test]
fn objects_are_stored_in_the_directory_of_their_resource() {
    let key = |collection, name| key(collection, name).unwrap();
    assert_eq!(key("/api/v1/namespaces", "default"), "/registry/namespaces/default");
    assert_eq!(
        key("/api/v1/namespaces/default/services", "kubernetes"),
        "/registry/services/specs/default/kubernetes"
    );
    assert_eq!(key("/apis/rbac.authorization.k8s.io/v1/clusterroles", "view"), "/registry/clusterroles/view");
}

#[test]
fn paths_that_are_not_built_in_collections_have_no_storage_key() {
    assert_eq!(key("/apis/example.com/v1/things", "a"), None);
    assert_eq!(key("/version", "a"), None);
}
