//! Reading kubeconfigs.

use expect_test::{Expect, expect};

use super::*;

fn config(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
    )
}

fn refused(text: &str, expected: &Expect) {
    expected.assert_eq(&Connection::parse(text.as_bytes()).unwrap_err().to_string());
}

#[test]
fn the_current_context_says_where_and_as_whom() {
    let text = config(
        "{server: 'https://a/b', certificate-authority: /ca, tls-server-name: name.test}",
        "{client-certificate-data: YQ==, client-key: key.pem, token: secret, tokenFile: /t}",
    );
    let connection = Connection::parse(text.as_bytes()).unwrap();
    assert_eq!(connection.server, "https://a/b");
    assert_eq!(connection.certificate_authority, Some(Material::File("/ca".into())));
    assert_eq!(
        connection.certificate,
        Some((Material::Inline(b"a".to_vec()), Material::File("key.pem".into())))
    );
    assert_eq!(connection.credential, Credential::TokenFile("/t".into()));
    assert_eq!(connection.server_name, "name.test");
}

#[test]
fn no_secret_is_printed() {
    let text =
        config("{server: s}", "{token: topsecret, client-certificate: c, client-key-data: dG9wc2VjcmV0}");
    let shown = format!("{:?}", Connection::parse(text.as_bytes()).unwrap());
    assert!(!shown.contains("topsecret") && !shown.contains("116, 111"), "{shown}");
    let basic = config("{server: s}", "{username: a, password: topsecret}");
    let connection = Connection::parse(basic.as_bytes()).unwrap();
    assert_eq!(connection.credential, Credential::Basic("a".into(), "topsecret".into()));
    assert!(!format!("{connection:?}").contains("topsecret"));
}

#[test]
fn what_is_missing_or_cannot_be_used_is_said() {
    refused(
        "",
        &expect![
            "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
        ],
    );
    refused("current-context: x\n", &expect![[r#"context "x" does not exist"#]]);
    refused(&config("{}", "{}"), &expect![[r#"invalid configuration: no server found for cluster "c""#]]);
    refused(
        &config("{server: s}", "{}").replace("name: c,", "name: d,"),
        &expect![[r#"cluster "c" does not exist"#]],
    );
    refused(
        &config("{server: s}", "{}").replace("name: u,", "name: v,"),
        &expect![[r#"auth info "u" does not exist"#]],
    );
    refused(
        &config("{server: s}", "{exec: {command: x}}"),
        &expect![[r#"user "u": exec is not supported: the server runs no other program to get credentials"#]],
    );
    refused(
        &config("{server: s}", "{client-key: k}"),
        &expect!["invalid configuration: client-certificate and client-key must be specified together"],
    );
    refused(
        &config("{server: s, certificate-authority-data: '%'}", "{}"),
        &expect!["illegal base64 data in certificate-authority-data"],
    );
}
