use super::segments;

#[test]
fn only_canonical_paths_of_documents_are_accepted() {
    for (path, expected) in [
        ("/", Some(vec![])),
        ("/metrics", Some(vec!["metrics"])),
        ("/metrics/slis", Some(vec!["metrics", "slis"])),
        ("/livez/poststarthook/rbac/bootstrap-roles", {
            Some(vec!["livez", "poststarthook", "rbac", "bootstrap-roles"])
        }),
        ("/openapi/v3/apis/apps/v1", Some(vec!["openapi", "v3", "apis/apps/v1"])),
        ("/apis/apps/v1", Some(vec!["apis", "apps", "v1"])),
    ] {
        assert_eq!(segments(path), expected, "{path}");
    }
    for path in [
        "",
        "metrics",
        "//",
        "//metrics",
        "/metrics/",
        "/metrics//slis",
        "/metrics/slis/",
        "/livez/",
        "/livez//ping",
        "/openapi//v2",
        "/openapi/v2/",
        "/debug//admission",
        "/debug/admission/",
        "/portcullis/snapshot/",
        "/portcullis//snapshot",
        "/statusz/",
        "/flagz/",
        "/apis//",
        "/version//",
        "/apis//apps",
        "/apis/apps//",
        "/api//v1",
    ] {
        assert_eq!(segments(path), None, "{path}");
    }
}

#[test]
fn paths_of_the_api_router_may_end_with_one_slash() {
    for path in [
        "/api/",
        "/api/v1/",
        "/apis/",
        "/apis/apps/",
        "/apis/apps/v1/",
        "/version/",
        "/openid/v1/jwks/",
        "/.well-known/openid-configuration/",
    ] {
        assert_eq!(segments(path), segments(path.trim_end_matches('/')), "{path}");
        assert!(segments(path).is_some(), "{path}");
    }
    assert_eq!(
        segments("/openapi/v3/apis/apps/v1/"),
        Some(vec!["openapi", "v3", "apis/apps/v1/"]),
        "this is another document, which does not exist"
    );
}
