//! Tests of parsing kubeconfigs, including error messages.

use expect_test::{Expect, expect};

use super::*;

fn config(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
    )
}

fn refused(text: &str, expected: &Expect) {
    expected.assert_eq(&parse(text).unwrap_err().to_string());
}

/// Parses a kubeconfig; all files exist except `nope`.
fn parse(text: &str) -> Result<KubeconfigConnection, KubeconfigError> {
    KubeconfigConnection::parse(text.as_bytes(), &|path| {
        let there = if path == "nope" {
            Err(format!("open /there/{path}: no such file or directory"))
        } else {
            Ok(())
        };
        (format!("/there/{path}"), there)
    })
}

#[test]
fn current_context_selects_server_and_credentials() {
    let text = config(
        "{server: 'https://a/b', certificate-authority: /ca, tls-server-name: name.test}",
        "{client-certificate-data: YQ==, client-key: key.pem, token: secret, tokenFile: /t}",
    );
    let connection = parse(&text).unwrap();
    assert_eq!(connection.server, "https://a/b");
    assert_eq!(connection.certificate_authority, Some(PemSource::File("/ca".into())));
    assert_eq!(
        connection.certificate,
        Some((PemSource::Inline(b"a".to_vec()), PemSource::File("key.pem".into())))
    );
    assert_eq!(connection.credential, KubeconfigCredential::TokenFile("/t".into()));
    assert_eq!(connection.server_name, "name.test");
}

#[test]
fn debug_output_of_a_kubeconfig_contains_no_credentials() {
    let text =
        config("{server: s}", "{token: topsecret, client-certificate: c, client-key-data: dG9wc2VjcmV0}");
    let shown = format!("{:?}", parse(&text).unwrap());
    assert!(!shown.contains("topsecret") && !shown.contains("116, 111"), "{shown}");
    let basic = config("{server: s}", "{username: a, password: topsecret}");
    let connection = parse(&basic).unwrap();
    assert_eq!(connection.credential, KubeconfigCredential::Basic("a".into(), "topsecret".into()));
    assert!(!format!("{connection:?}").contains("topsecret"));
}

#[test]
fn invalid_kubeconfigs_are_rejected_with_kubernetes_messages() {
    let empty = expect![
        "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
    ];
    refused("", &empty);
    refused("{}", &empty);
    refused(&config("{server: s}", "{}").replace("current-context: x\n", ""), &empty);
    refused(&config("{server: s}", "{}").replace("name: c,", "name: d,"), &empty);
    refused(
        "current-context: other\n",
        &expect![
            "invalid configuration: [context was not found for specified context: other, cluster has no server defined]"
        ],
    );
    refused(
        "hello",
        &expect![[
            r#"couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#
        ]],
    );
    refused(&config("{}", "{}"), &expect![[r#"invalid configuration: no server found for cluster "c""#]]);
    refused(
        &config("{server: s}", "{exec: {command: x, apiVersion: v1, interactiveMode: Never}}"),
        &expect![[r#"user "u": exec is not supported: the server runs no other program to get credentials"#]],
    );
    refused(
        &config("{server: s}", "{as: admin}"),
        &expect![[r#"user "u": impersonation is not supported: the server asks as itself"#]],
    );
    refused(
        &config("{server: s}", "{client-certificate: nope, token: a, username: b}"),
        &expect![
            "invalid configuration: [client-key-data or client-key must be specified for u to use the clientCert authentication method., unable to read client-cert /there/nope for u due to open /there/nope: no such file or directory, more than one authentication method found for u; found [token basicAuth], only one is allowed]"
        ],
    );
    refused(
        &config("{server: s, certificate-authority-data: 'aG!sbG8='}", "{}"),
        &expect!["illegal base64 data at input byte 2"],
    );
    refused(
        &config("{server: s}", "{token: 3}"),
        &expect![
            "json: cannot unmarshal number into Go struct field AuthInfo.users.user.token of type string"
        ],
    );
    refused(
        &config("{server: s, proxy-url: 'ftp://p'}", "{}"),
        &expect![[
            r#"invalid configuration: invalid 'proxy-url' "ftp://p" for cluster "c": unsupported scheme "ftp", must be http, https, or socks5"#
        ]],
    );
}

#[test]
fn missing_user_or_key_without_certificate_means_no_credentials() {
    let missing_user = config("{server: s}", "{}").replace("name: u,", "name: v,");
    assert_eq!(parse(&missing_user).unwrap().credential, KubeconfigCredential::None);
    assert_eq!(parse(&config("{server: s}", "{client-key: k}")).unwrap().certificate, None);
}
