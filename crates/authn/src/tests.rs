//! Tests of the authenticator and its methods.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use expect_test::{Expect, expect};
use rcgen::{
    CertificateParams, CustomExtension, DnType, DnValue, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd,
};
use value::Str;

use crate::bearer::{BearerHeader, from_header};
use crate::x509::ClientCertificate;
use crate::*;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_001)
}

fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2030, 1, 1);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn named(name: &str) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.distinguished_name.push(DnType::CommonName, name)
}

const UID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

fn attempt(
    authenticator: &Authenticator,
    certificate: Option<&ClientCertificate>,
    headers: &[(&str, &str)],
    path: &str,
) -> AuthenticationResult {
    let evidence = Evidence {
        certificate,
        proxy_certificate: certificate,
        headers: &HeaderLines(headers),
        path,
        now: now(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(authenticator.authenticate(&evidence))
}

fn tokens(text: &str) -> Authenticator {
    let (tokens, _) = StaticTokens::parse("tokens.csv", text).unwrap();
    Authenticator {
        static_tokens: Some(Arc::new(tokens)),
        anonymous: Anonymous::On,
        ..Authenticator::default()
    }
}

fn name_of(attempt: &AuthenticationResult) -> String {
    match &attempt.result {
        Ok(Some(caller)) => format!("{} {:?}", caller.name(), caller.groups()),
        Ok(None) => "no user".to_owned(),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn a_certificate_names_user_groups_and_uid() {
    let der = certificate(|params| {
        named("alice")(params);
        params.distinguished_name.push(DnType::OrganizationName, "devs");
        params.distinguished_name.push(DnType::CustomDnType(UID.to_vec()), "1234");
    });
    let certificate = ClientCertificate::from_der(&der).unwrap();
    let authenticator = Authenticator { client_certificates: true, ..Authenticator::default() };
    let attempt = attempt(&authenticator, Some(&certificate), &[], "/");
    let caller = attempt.result.unwrap().unwrap();
    assert_eq!(caller.name(), "alice");
    assert_eq!(caller.uid(), "1234");
    assert_eq!(caller.groups(), ["devs", "system:authenticated"]);
    let id = &caller.user().extra[names::CREDENTIAL_ID][0];
    assert!(id.starts_with("X509SHA256=") && id.len() == "X509SHA256=".len() + 64, "{id}");
}

#[test]
fn server_certificate_is_rejected_and_one_without_key_usages_is_accepted() {
    let server = certificate(|params| {
        named("alice")(params);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert_eq!(
        ClientCertificate::from_der(&server),
        Err(Error::Certificate("certificate specifies an incompatible key usage"))
    );
    for usages in [vec![], vec![ExtendedKeyUsagePurpose::Any]] {
        let der = certificate(|params| {
            named("alice")(params);
            params.extended_key_usages = usages;
        });
        assert!(ClientCertificate::from_der(&der).is_ok());
    }
}

#[test]
fn certificate_with_an_empty_uid_is_rejected() {
    let der = certificate(|params| {
        named("alice")(params);
        params.distinguished_name.push(DnType::CustomDnType(UID.to_vec()), "");
    });
    assert_eq!(ClientCertificate::from_der(&der), Err(Error::Certificate("UID cannot be an empty string")));
}

#[test]
fn malformed_certificate_or_subject_name_is_rejected() {
    assert_eq!(ClientCertificate::from_der(b"garbage"), Err(Error::Certificate("malformed certificate")));
    let bmp = certificate(|params| {
        let value = DnValue::BmpString("älice".try_into().unwrap());
        params.distinguished_name.push(DnType::CommonName, value);
    });
    assert_eq!(ClientCertificate::from_der(&bmp).unwrap().common_name(), "älice");
    let terminated = certificate(|params| {
        let value = DnValue::BmpString("alice\0".try_into().unwrap());
        params.distinguished_name.push(DnType::CommonName, value);
    });
    assert_eq!(ClientCertificate::from_der(&terminated).unwrap().common_name(), "alice");
    // A UniversalString is rejected in any attribute, even one that does not identify the user.
    for kind in [DnType::CommonName, DnType::LocalityName] {
        let mut der = certificate(|params| params.distinguished_name.push(kind.clone(), "alice"));
        for at in 2..der.len() - 5 {
            if der[at..].starts_with(b"alice") {
                der[at - 2] = 0x1c;
            }
        }
        let refused = Error::Certificate("unable to parse a name into a string");
        assert_eq!(ClientCertificate::from_der(&der), Err(refused));
    }
}

#[test]
fn a_certificate_without_a_common_name_is_no_opinion() {
    let der = certificate(|_| {});
    let certificate = ClientCertificate::from_der(&der).unwrap();
    let authenticator =
        Authenticator { client_certificates: true, anonymous: Anonymous::On, ..Authenticator::default() };
    let attempt = attempt(&authenticator, Some(&certificate), &[], "/");
    expect![[r#"system:anonymous ["system:unauthenticated"]"#]].assert_eq(&name_of(&attempt));
}

#[test]
fn a_certificate_that_expired_on_an_open_connection_is_refused() {
    let der = certificate(|params| {
        named("alice")(params);
        params.not_after = date_time_ymd(2025, 1, 1);
        params.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0])];
    });
    let certificate = ClientCertificate::from_der(&der).unwrap();
    let authenticator =
        Authenticator { client_certificates: true, anonymous: Anonymous::On, ..Authenticator::default() };
    let attempt = attempt(&authenticator, Some(&certificate), &[], "/");
    expect!["error: x509: certificate has expired or is not yet valid"].assert_eq(&name_of(&attempt));
}

#[test]
fn a_static_token_names_its_user() {
    let authenticator = tokens("secret,alice,1,\"devs,testers\"\nother,bob,2\n");
    let cases = [
        ("Bearer secret", expect![[r#"alice ["devs", "testers", "system:authenticated"]"#]]),
        ("bearer other", expect![[r#"bob ["system:authenticated"]"#]]),
        ("Bearer other trailing words", expect![[r#"bob ["system:authenticated"]"#]]),
        ("Bearer wrong", expect!["error: invalid bearer token"]),
        ("Bearer", expect![[r#"system:anonymous ["system:unauthenticated"]"#]]),
        ("Bearer ", expect![[r#"system:anonymous ["system:unauthenticated"]"#]]),
        ("Basic YTpi", expect![[r#"system:anonymous ["system:unauthenticated"]"#]]),
    ];
    for (header, expected) in cases {
        expected.assert_eq(&name_of(&attempt(&authenticator, None, &[("Authorization", header)], "/")));
    }
}

#[test]
fn bearer_token_after_two_spaces_is_ignored_with_a_warning() {
    let authenticator = tokens("secret,alice,1");
    let attempt = attempt(&authenticator, None, &[("authorization", "Bearer  secret")], "/");
    assert_eq!(
        attempt.warnings,
        [Str::from(
            "the provided Authorization header contains extra space before the bearer token, and is ignored"
        )]
    );
    assert!(attempt.result.unwrap().unwrap().is_anonymous());
    assert_eq!(from_header("Bearer  x"), from_header(" Bearer  x"));
    assert_eq!(from_header("Bearer x"), BearerHeader::Token("x"));
}

#[test]
fn bearer_token_is_accepted_in_the_websocket_protocol_header() {
    let authenticator = tokens("secret,alice,1");
    let request = |protocols: &'static str| {
        let headers = [
            ("Upgrade", "websocket"),
            ("Connection", "keep-alive, Upgrade"),
            ("Sec-WebSocket-Protocol", protocols),
        ];
        name_of(&attempt(&authenticator, None, &headers, "/"))
    };
    expect![[r#"alice ["system:authenticated"]"#]]
        .assert_eq(&request("base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io"));
    expect!["error: missing additional subprotocol"]
        .assert_eq(&request("base64url.bearer.authorization.k8s.io.c2VjcmV0"));
    expect!["error: invalid base64.bearer.authorization token encoding"]
        .assert_eq(&request("base64url.bearer.authorization.k8s.io.%%, v4.channel.k8s.io"));
    expect!["error: invalid bearer token"]
        .assert_eq(&request("base64url.bearer.authorization.k8s.io.eHg, v4.channel.k8s.io"));
    assert_eq!(
        protocols_without_token("base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io"),
        "v4.channel.k8s.io"
    );
}

#[test]
fn anonymous_access_can_be_off_or_limited_to_paths() {
    let limited = Anonymous::Paths(vec!["/livez".into()]);
    for (anonymous, path, admitted) in [
        (Anonymous::Off, "/livez", false),
        (Anonymous::On, "/api", true),
        (limited.clone(), "/livez", true),
        (limited, "/livez/x", false),
    ] {
        let authenticator = Authenticator { anonymous, ..Authenticator::default() };
        assert_eq!(attempt(&authenticator, None, &[], path).result.unwrap().is_some(), admitted, "{path}");
    }
}

#[test]
fn front_proxy_headers_are_trusted_only_from_an_allowed_certificate_name() {
    let proxy = FrontProxy {
        allowed_names: vec!["proxy".into()],
        username_headers: vec!["X-Remote-User".into()],
        uid_headers: vec!["X-Remote-Uid".into()],
        group_headers: vec!["X-Remote-Group".into()],
        extra_header_prefixes: vec!["X-Remote-Extra-".into()],
    };
    for name in
        ["x-remote-extra-scopes", "X_Remote_User", "x-remote_uid", "X.Remote.Group", "x_remote_extra_a"]
    {
        assert!(proxy.is_identity_header(name), "{name}");
    }
    for name in ["x-remote", "x-remote-users", "x-remote-extra", "xremoteuser", "remote-user"] {
        assert!(!proxy.is_identity_header(name), "{name}");
    }
    let authenticator = Authenticator { front_proxy: Some(proxy), ..Authenticator::default() };
    let headers = [
        ("x-remote-user", "alice"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-Example.org%2fScopes", "view"),
    ];
    let good = ClientCertificate::from_der(&certificate(named("proxy"))).unwrap();
    let caller = attempt(&authenticator, Some(&good), &headers, "/").result.unwrap().unwrap();
    assert_eq!((caller.name().as_str(), caller.uid().as_str()), ("alice", "7"));
    assert_eq!(caller.groups(), ["a", "b", "system:authenticated"]);
    assert_eq!(caller.user().extra["example.org/scopes"], ["view"]);

    let other = ClientCertificate::from_der(&certificate(named("other"))).unwrap();
    expect!["error: x509: subject with cn=other is not in the allowed list"].assert_eq(&name_of(&attempt(
        &authenticator,
        Some(&other),
        &headers,
        "/",
    )));
    expect!["no user"].assert_eq(&name_of(&attempt(&authenticator, None, &headers, "/")));
}

/// Header lines: name and value.
type HeaderBytes<'a> = &'a [(&'static str, &'static [u8])];

#[test]
fn malformed_authentication_headers_are_rejected_and_not_treated_as_absent() {
    let proxy = FrontProxy {
        allowed_names: vec![],
        username_headers: vec!["X-Remote-User".into()],
        uid_headers: vec!["X-Remote-Uid".into()],
        group_headers: vec!["X-Remote-Group".into()],
        extra_header_prefixes: vec!["X-Remote-Extra-".into()],
    };
    // The proxy's certificate also authenticates the proxy itself, as the user `proxy`.
    let certificate = ClientCertificate::from_der(&certificate(named("proxy"))).unwrap();
    let authenticator =
        Authenticator { front_proxy: Some(proxy), client_certificates: true, ..tokens("secret,carol,3\n") };
    let shown = |certificate: Option<&ClientCertificate>, headers: &[(&str, &[u8])]| {
        let evidence = Evidence {
            certificate,
            proxy_certificate: certificate,
            headers: &HeaderLines(headers),
            path: "/",
            now: now(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        name_of(&runtime.block_on(authenticator.authenticate(&evidence)))
    };
    let by_proxy = |headers: &[(&str, &[u8])]| shown(Some(&certificate), headers);
    expect![[r#"proxy ["system:authenticated"]"#]].assert_eq(&by_proxy(&[]));
    expect![[r#"zoë ["system:authenticated"]"#]].assert_eq(&by_proxy(&[("x-remote-user", "zoë".as_bytes())]));
    // Headers without identity information need not be UTF-8.
    expect![[r#"proxy ["system:authenticated"]"#]].assert_eq(&by_proxy(&[("x-other", b"\xff")]));
    let user: (&'static str, &'static [u8]) = ("x-remote-user", b"alice");
    let unreadable: [(HeaderBytes<'_>, Expect); 4] = [
        (&[("x-remote-user", b"\xff")], expect!["error: the value of the header X-Remote-User is not UTF-8"]),
        (
            &[user, ("x-remote-uid", b"\xff")],
            expect!["error: the value of the header X-Remote-Uid is not UTF-8"],
        ),
        (
            &[user, ("x-remote-group", b"a"), ("x-remote-group", b"\xff")],
            expect!["error: the value of the header x-remote-group is not UTF-8"],
        ),
        (
            &[user, ("x-remote-extra-a", b"\xff"), ("authorization", b"Bearer secret")],
            expect!["error: the value of the header x-remote-extra-a is not UTF-8"],
        ),
    ];
    for (headers, expected) in unreadable {
        expected.assert_eq(&by_proxy(headers));
    }
    expect!["error: the value of the header authorization is not UTF-8"]
        .assert_eq(&shown(None, &[("authorization", b"Bearer \xff")]));
    expect![[r#"carol ["system:authenticated"]"#]]
        .assert_eq(&shown(None, &[("authorization", b"Bearer secret")]));
}

fn token_file(text: &str, expected: &Expect) {
    let shown = match StaticTokens::parse("t.csv", text) {
        Ok((tokens, warnings)) => {
            let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            format!("{tokens:?} {}", warnings.join("; "))
        }
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&shown);
}

#[test]
fn token_files_are_read_as_kubernetes_reads_them() {
    token_file("", &expect!["StaticTokens(0 tokens) "]);
    token_file("\n\na,b,c\r\n\n", &expect!["StaticTokens(1 tokens) "]);
    token_file(
        "a,b\n",
        &expect![
            "error: token file 't.csv' must have at least 3 columns (token, user name, user uid), found 2"
        ],
    );
    token_file(
        ",b,c\nx,y,z\nx,y2,z",
        &expect![
            "StaticTokens(1 tokens) empty token has been found in token file 't.csv', record number '1'; duplicate token has been found in token file 't.csv', record number '3'"
        ],
    );
    token_file(
        "a,b\"x,c",
        &expect![[r#"error: parse error on line 1, column 4: bare " in non-quoted field"#]],
    );
    token_file(
        "a,\"b\"x,c",
        &expect![[r#"error: parse error on line 1, column 5: extraneous or missing " in quoted-field"#]],
    );
    token_file(
        "x,y,z\na,\"b\nc",
        &expect![[
            r#"error: record on line 2; parse error on line 3, column 2: extraneous or missing " in quoted-field"#
        ]],
    );
}

#[test]
fn last_line_of_a_repeated_static_token_takes_effect() {
    let authenticator = tokens("x,first,1\nx,\"sec\"\"ond\",1\n");
    let attempt = attempt(&authenticator, None, &[("authorization", "Bearer x")], "/");
    expect![[r#"sec"ond ["system:authenticated"]"#]].assert_eq(&name_of(&attempt));
}

#[test]
fn debug_output_of_the_authenticator_contains_no_token() {
    let authenticator = tokens("topsecret,alice,1");
    assert!(!format!("{authenticator:?}").contains("topsecret"));
}

#[test]
fn internal_identities_have_the_user_names_and_groups_of_kubernetes() {
    let server = Caller::internal(InternalIdentity::ApiServer);
    assert_eq!(server.name(), "system:apiserver");
    assert_eq!(server.groups(), ["system:masters", "system:authenticated"]);
    let controller =
        InternalIdentity::ServiceAccount { namespace: "kube-system", name: "namespace-controller" };
    let controller = Caller::internal(controller);
    assert_eq!(controller.name(), "system:serviceaccount:kube-system:namespace-controller");
    assert_eq!(
        controller.groups(),
        ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]
    );
    assert_eq!(Caller::internal(InternalIdentity::Scheduler).name(), "system:kube-scheduler");
}

#[test]
fn service_account_names_are_recognized_only_in_their_strict_form() {
    assert_eq!(service_account::split("system:serviceaccount:ns:name.x"), Some(("ns", "name.x")));
    for bad in
        ["alice", "system:serviceaccount:ns", "system:serviceaccount:ns:a:b", "system:serviceaccount:NS:a"]
    {
        assert_eq!(service_account::split(bad), None, "{bad}");
    }
}

#[test]
fn authenticate_future_is_send() {
    fn is_send<T: Send>(_: &T) {}
    let authenticator = Authenticator::default();
    let evidence = Evidence {
        certificate: None,
        proxy_certificate: None,
        headers: &HeaderLines::<&str>(&[]),
        path: "/",
        now: now(),
    };
    is_send(&authenticator.authenticate(&evidence));
}
