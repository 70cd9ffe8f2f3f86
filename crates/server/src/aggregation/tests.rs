use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use authn::{FrontProxy, User};
use documents::discovery::of_custom_version;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use outbound::{Forward, ServerTrust};
use value::json;

use super::forward::{
    encode_path, encode_query, forwarded_trailers, identify, incoming, outgoing, set_forwarded_headers,
};
use super::register::{ApiServiceAction, reconcile_action};
use super::service::{ApiService, AutoManaged};

fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
}

fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

#[test]
fn identity_and_hop_by_hop_headers_of_the_client_are_not_forwarded() {
    let proxy = FrontProxy { username_headers: vec!["X-Who".into()], ..FrontProxy::default() };
    let received = headers(&[
        ("accept", "application/json"),
        ("authorization", "Bearer secret"),
        ("x-remote-user", "admin"),
        ("x-remote-uid", "1"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-scopes", "all"),
        ("x-who", "admin"),
        ("impersonate-user", "admin"),
        ("impersonate-extra-scopes", "all"),
        ("x_remote_user", "admin"),
        ("x-remote_uid", "1"),
        ("x.remote.group", "system:masters"),
        ("x_remote_extra_scopes", "all"),
        ("x_who", "admin"),
        ("impersonate_user", "admin"),
        ("proxy-authorization", "Basic x"),
        ("connection", "keep-alive, x-mine"),
        ("x-mine", "1"),
        ("host", "here"),
        ("te", "gzip, trailers"),
        ("transfer-encoding", "chunked"),
        ("x-forwarded-for", "198.51.100.7"),
    ]);
    let sent = outgoing(&received, Some(&proxy), PEER, false);
    assert_eq!(
        lines(&sent),
        ["accept: application/json", "te: trailers", "x-forwarded-for: 198.51.100.7, 192.0.2.1"]
    );
}

#[test]
fn headers_by_which_other_proxies_identify_clients_are_not_forwarded() {
    for name in [
        "remote-user",
        "remote_user",
        "remote-groups",
        "x-remote-name",
        "x.remote.groups",
        "x-forwarded-user",
        "x_forwarded_groups",
        "x-forwarded-preferred-username",
        "x-forwarded-client-cert",
        "x-auth-request-email",
        "x-webauth-user",
        "ssl-client-subject-dn",
        "client-cert",
        "x_forwarded_for",
        "x_forwarded_host",
    ] {
        let sent = outgoing(&headers(&[(name, "admin")]), None, PEER, false);
        assert_eq!(lines(&sent), ["x-forwarded-for: 192.0.2.1"], "{name}");
        assert_eq!(lines(&forwarded_trailers(&headers(&[(name, "admin")]), None)), [""; 0], "{name}");
    }
    for name in [
        "x-forwarded-port",
        "x-forwarded-prefix",
        "forwarded",
        "x-real-ip",
        "via",
        "x-remote",
        "remote",
        "xremoteuser",
        "x-request-id",
        "x-client-id",
        "cookie",
    ] {
        let sent = outgoing(&headers(&[(name, "mine")]), None, PEER, false);
        assert_eq!(sent.get(name).map(HeaderValue::as_bytes), Some(&b"mine"[..]), "{name}");
    }
}

#[test]
fn identity_and_hop_by_hop_trailers_of_the_client_are_not_forwarded() {
    let proxy = FrontProxy { username_headers: vec!["X-Who".into()], ..FrontProxy::default() };
    let trailers = [
        ("digest", "sha-256=x"),
        ("x-remote-user", "admin"),
        ("x-remote-extra-scopes", "all"),
        ("x-who", "admin"),
        ("impersonate-group", "system:masters"),
        ("x_remote_group", "system:masters"),
        ("impersonate_user", "admin"),
        ("authorization", "Bearer secret"),
        ("transfer-encoding", "chunked"),
    ];
    assert_eq!(lines(&forwarded_trailers(&headers(&trailers), Some(&proxy))), ["digest: sha-256=x"]);
}

#[test]
fn upgrade_headers_are_forwarded_without_the_websocket_bearer_token() {
    let received = headers(&[
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io"),
    ]);
    let sent = outgoing(&received, None, PEER, true);
    assert_eq!(
        lines(&sent),
        [
            "connection: Upgrade",
            "sec-websocket-protocol: v5.channel.k8s.io",
            "upgrade: websocket",
            "x-forwarded-for: 192.0.2.1"
        ]
    );
}

#[test]
fn identity_headers_carry_the_user_and_refuse_a_name_that_would_arrive_changed() {
    let mut user = User::named("jane").in_groups(["a", "b"]);
    user.uid = "42".into();
    user.extra = BTreeMap::from([("example.com/Sc opes%".into(), vec!["x".into(), "y".into()])]);
    let mut headers = HeaderMap::new();
    identify(&mut headers, &user).unwrap();
    assert_eq!(
        lines(&headers),
        [
            "x-remote-extra-example.com%2fsc%20opes%25: x",
            "x-remote-extra-example.com%2fsc%20opes%25: y",
            "x-remote-group: a",
            "x-remote-group: b",
            "x-remote-uid: 42",
            "x-remote-user: jane"
        ]
    );
    for name in ["admin ", " admin", "a\nx-remote-group: system:masters", "\u{0}"] {
        let refused = identify(&mut HeaderMap::new(), &User::named(name)).unwrap_err();
        assert_eq!(refused, "net/http: invalid header field value for \"X-Remote-User\"");
    }
    let groups = User::named("jane").in_groups(["system:masters "]);
    assert!(identify(&mut HeaderMap::new(), &groups).is_err());
}

#[test]
fn connection_and_cors_headers_of_aggregated_servers_are_removed() {
    let received = headers(&[
        ("content-type", "application/json"),
        ("content-length", "2"),
        ("connection", "close, x-theirs"),
        ("x-theirs", "1"),
        ("access-control-allow-origin", "*"),
        ("audit-id", "x"),
    ]);
    assert_eq!(
        lines(&incoming(&received)),
        ["audit-id: x", "content-length: 2", "content-type: application/json"]
    );
}

#[test]
fn paths_and_queries_are_encoded_as_go_does() {
    assert_eq!(
        encode_path("/apis/g/v1/namespaces/a b/c%2Fd/é!"),
        "/apis/g/v1/namespaces/a%20b/c%252Fd/%C3%A9%21"
    );
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let pairs = [pair("watch", "1"), pair("labelSelector", "a=b,c in (d)"), pair("watch", "0")];
    assert_eq!(encode_query(&pairs), "labelSelector=a%3Db%2Cc+in+%28d%29&watch=1&watch=0");
}

#[test]
fn the_forwarded_uri_is_the_normalized_path() {
    for (path, forwarded) in
        [("/a/b", "/a/b"), ("/a//b/../c/", "/a/c/"), ("/", "/"), ("/a/%2E%2E/b", "/a/%2E%2E/b")]
    {
        let mut headers = HeaderMap::new();
        set_forwarded_headers(&mut headers, path, "h:1");
        assert_eq!(
            lines(&headers),
            [
                "x-forwarded-host: h:1".to_owned(),
                "x-forwarded-proto: https".to_owned(),
                format!("x-forwarded-uri: {forwarded}")
            ]
        );
    }
}

fn service(label: &str, remote: bool) -> ApiService {
    let reference = if remote { r#","service":{"name":"s","namespace":"n","port":443}"# } else { "" };
    let text = format!(
        r#"{{"metadata":{{"name":"v1.g","labels":{{"kube-aggregator.kubernetes.io/automanaged":"{label}"}}}},
            "spec":{{"group":"g","version":"v1","groupPriorityMinimum":1000,"versionPriority":100{reference}}}}}"#
    );
    ApiService::read(&json::parse(text.as_bytes()).unwrap())
}

/// The decision table of kube-aggregator's autoregister controller, by stored label and desired registration.
#[test]
fn registration_follows_the_decision_table_of_the_autoregister_controller() {
    let wanted = of_custom_version("g", "v1");
    let start = Some((&wanted, AutoManaged::OnStart));
    let always = Some((&wanted, AutoManaged::Always));
    let (local, other) = (service("true", false), service("true", true));
    // No APIService is stored.
    assert_eq!(reconcile_action(None, None, false, false), ApiServiceAction::Keep);
    assert_eq!(reconcile_action(start, None, false, false), ApiServiceAction::Create);
    assert_eq!(reconcile_action(start, None, true, true), ApiServiceAction::Keep, "once is enough");
    assert_eq!(reconcile_action(always, None, true, true), ApiServiceAction::Create);
    // The stored one is not managed.
    for wanted in [None, start, always] {
        assert_eq!(reconcile_action(wanted, Some(&service("", true)), false, true), ApiServiceAction::Keep);
    }
    // Managed at startup only, but created later.
    for wanted in [None, start, always] {
        assert_eq!(
            reconcile_action(wanted, Some(&service("onstart", true)), false, false),
            ApiServiceAction::Keep
        );
    }
    // Managed at startup, and present then.
    assert_eq!(
        reconcile_action(None, Some(&service("onstart", false)), false, true),
        ApiServiceAction::Delete
    );
    assert_eq!(
        reconcile_action(start, Some(&service("onstart", true)), false, true),
        ApiServiceAction::Update
    );
    assert_eq!(reconcile_action(start, Some(&service("onstart", true)), true, true), ApiServiceAction::Keep);
    assert_eq!(reconcile_action(None, Some(&service("onstart", false)), true, true), ApiServiceAction::Keep);
    // Managed on every change.
    assert_eq!(reconcile_action(None, Some(&local), true, true), ApiServiceAction::Delete);
    assert_eq!(reconcile_action(always, Some(&other), true, true), ApiServiceAction::Update);
    assert_eq!(reconcile_action(always, Some(&local), true, true), ApiServiceAction::Keep);
}

#[test]
fn an_undecodable_ca_bundle_trusts_no_server() {
    let remote = |bundle: &str| {
        let text = format!(
            r#"{{"metadata":{{"name":"v1.g"}},"spec":{{"group":"g","version":"v1","caBundle":"{bundle}","service":{{"name":"s","namespace":"n"}}}}}}"#
        );
        ApiService::read(&json::parse(text.as_bytes()).unwrap()).remote.unwrap().ca_bundle
    };
    assert_eq!(remote(""), b"");
    assert_eq!(remote("eA=="), b"x");
    let undecodable = remote("!");
    assert!(Forward::new("s.n.svc", ServerTrust::Authorities(undecodable), None).is_err());
}
