use http::Method;

use super::{Query, RequestInfo};

#[track_caller]
fn check(method: &Method, url: &str, expected: &str) {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let i = RequestInfo::parse(method, path, &Query::parse(query));
    let found = if i.is_resource {
        format!(
            "{} group={} version={} ns={} resource={} sub={} name={}",
            i.verb, i.group, i.version, i.namespace, i.resource, i.subresource, i.name
        )
    } else {
        format!("{} path={}", i.verb, i.path)
    };
    assert_eq!(found, expected);
}

#[test]
fn resource_paths_are_taken_apart() {
    check(&Method::GET, "/api/v1/pods", "list group= version=v1 ns= resource=pods sub= name=");
    check(&Method::GET, "/api/v1/pods?watch=1", "watch group= version=v1 ns= resource=pods sub= name=");
    check(&Method::GET, "/api/v1/pods?watch=false", "list group= version=v1 ns= resource=pods sub= name=");
    check(
        &Method::GET,
        "/api/v1/namespaces/a/pods/b/log",
        "get group= version=v1 ns=a resource=pods sub=log name=b",
    );
    check(
        &Method::PUT,
        "/apis/apps/v1/namespaces/a/deployments/b/status",
        "update group=apps version=v1 ns=a resource=deployments sub=status name=b",
    );
    check(
        &Method::DELETE,
        "/apis/apps/v1/namespaces/a/deployments",
        "deletecollection group=apps version=v1 ns=a resource=deployments sub= name=",
    );
    check(&Method::GET, "/api/v1/watch/pods", "watch group= version=v1 ns= resource=pods sub= name=");
}

#[test]
fn requests_for_a_namespace_are_scoped_to_that_namespace() {
    check(&Method::GET, "/api/v1/namespaces/a", "get group= version=v1 ns=a resource=namespaces sub= name=a");
    check(
        &Method::PUT,
        "/api/v1/namespaces/a/finalize",
        "update group= version=v1 ns=a resource=namespaces sub=finalize name=a",
    );
    check(&Method::GET, "/api/v1/namespaces", "list group= version=v1 ns= resource=namespaces sub= name=");
}

#[test]
fn a_list_with_a_metadata_name_field_selector_has_that_name() {
    check(
        &Method::GET,
        "/api/v1/pods?fieldSelector=metadata.name%3Dx",
        "list group= version=v1 ns= resource=pods sub= name=x",
    );
    check(
        &Method::GET,
        "/api/v1/pods?fieldSelector=metadata.name!%3Dx",
        "list group= version=v1 ns= resource=pods sub= name=",
    );
    let named = |query: &str, name: &str| {
        let url = format!("/api/v1/pods?{query}");
        check(&Method::GET, &url, &format!("list group= version=v1 ns= resource=pods sub= name={name}"));
    };
    named("fieldSelector=spec.nodeName%3Dn,metadata.name%3D%3Dx", "x");
    named("fieldSelector=metadata.name%3Da%5C,b", "a,b");
    named("fieldSelector=metadata.name%3Da%5C%3Db", "a=b");
    // Names that no path can contain are ignored, and so are selectors that cannot be parsed.
    named("fieldSelector=metadata.name%3Da/b", "");
    named("fieldSelector=metadata.name%3D..", "");
    named("fieldSelector=metadata.name%3Dx,nonsense", "");
    named("fieldSelector=metadata.name%3Dx&labelSelector=a+in+(", "");
    named("fieldSelector=metadata.name%3Dx&limit=some", "");
}

#[test]
fn paths_outside_the_resource_apis_are_non_resource_requests() {
    for path in
        ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/apiss/apps/v1/x"]
    {
        check(&Method::GET, path, &format!("get path={path}"));
    }
}

#[test]
fn ambiguous_query_parameters_are_dropped() {
    let query = Query::parse("a=1&b=%zz&%=2&c=%2&d;e=3&f=%41&g=100%25&h");
    let pairs: Vec<_> = query.pairs().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("a", "1"), ("f", "A"), ("g", "100%"), ("h", "")]);
}

#[test]
fn paths_that_a_server_could_normalize_are_ambiguous() {
    for path in
        ["//", "/apis//v1", "/apis/g/v1//x", "/apis/g/v1/x//", "/apis/g/v1/./x", "/apis/g/../v1", "/x/.."]
    {
        assert!(super::has_other_readings(path), "{path}");
    }
    for path in
        ["/apis/..;/v1", "/apis/..;a=b/v1", "/apis/;x/v1", "/apis/a\\v1", "/apis/..\\v1", "/apis/..\0/v1"]
    {
        assert!(super::has_other_readings(path), "{path}");
    }
    for path in
        ["/apis/g/v1", "/apis/g/v1/", "/apis/g/v1/...", "/apis/g/v1/x.y", "/apis/g/v1/.x", "/apis/g/v1/x;y"]
    {
        assert!(!super::has_other_readings(path), "{path}");
    }
}
