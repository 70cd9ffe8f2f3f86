//! Bootstrap tokens authenticate only while every property of their Secret says so, and only as bootstrappers.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use conformance::{Client, Server, accepts, rejects};
use serde_json::{Value, json};

use crate::callers::MAPS;

const SECRET: &str = "0123456789abcdef";

/// A valid token with this ID.
fn token(id: &str) -> Value {
    json!({
        "metadata": {"name": format!("bootstrap-token-{id}")},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": id, "token-secret": SECRET, "usage-bootstrap-authentication": "true"},
    })
}

async fn create(admin: &Client, namespace: &str, secret: &Value) {
    let path = format!("/api/v1/namespaces/{namespace}/secrets");
    accepts(admin.post(&path, secret).await).unwrap();
}

/// The user of a bearer token, or `None` if it does not authenticate.
async fn user(admin: &Client, token: &str) -> Option<Value> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = admin.as_token(Some(token)).post(path, &review).await.unwrap();
    match answer.code {
        201 => Some(answer.json()["status"]["userInfo"].clone()),
        code => {
            assert_eq!(code, 401, "{}", answer.text());
            None
        }
    }
}

#[tokio::test]
async fn a_bootstrap_token_is_refused_for_each_property_that_does_not_allow_it() {
    let server = Server::serve(&["--enable-bootstrap-token-auth"]).await.unwrap();
    let admin = server.client().unwrap();
    create(&admin, "kube-system", &token("valid0")).await;
    assert!(user(&admin, &format!("valid0.{SECRET}")).await.is_some());

    let expirations = [
        "2001-01-01T00:00:00Z",
        "2999-01-01T00:00:00",
        "2999-01-01 00:00:00Z",
        "2999-13-01T00:00:00Z",
        "2999-01-01T25:00:00Z",
        "2999-01-01",
        "32503680000",
        "never",
        " ",
        "\0",
    ];
    let groups = [
        "system:masters",
        "system:bootstrappers:a,system:masters",
        "system:bootstrappers:a, system:masters",
        "system:bootstrappers",
        "system:bootstrappers:",
        "system:bootstrappers:a\nsystem:masters",
        "system:bootstrappers:a,",
        ",",
        "system:nodes",
        "SYSTEM:BOOTSTRAPPERS:a",
    ];
    let others = [
        ("usage-bootstrap-authentication", "false"),
        ("usage-bootstrap-authentication", "TRUE"),
        ("usage-bootstrap-authentication", "true "),
        ("usage-bootstrap-authentication", "1"),
        ("usage-bootstrap-authentication", ""),
        ("token-secret", "0123456789abcdeF"),
        ("token-secret", "0123456789abcde"),
        ("token-secret", "0123456789abcdef\n"),
        ("token-secret", ""),
        // The ID of another, valid token.
        ("token-id", "valid0"),
        ("token-id", ""),
    ];
    let cases = expirations.iter().map(|text| ("expiration", *text));
    let cases = cases.chain(groups.iter().map(|text| ("auth-extra-groups", *text))).chain(others);
    for (number, (key, text)) in cases.enumerate() {
        let id = format!("bad{number:03}");
        let mut secret = token(&id);
        secret["stringData"][key] = json!(text);
        create(&admin, "kube-system", &secret).await;
        assert_eq!(user(&admin, &format!("{id}.{SECRET}")).await, None, "{key}: {text:?}");
    }
    for (number, key) in
        ["token-id", "token-secret", "usage-bootstrap-authentication"].into_iter().enumerate()
    {
        let id = format!("not{number:03}");
        let mut secret = token(&id);
        secret["stringData"].as_object_mut().unwrap().remove(key);
        create(&admin, "kube-system", &secret).await;
        assert_eq!(user(&admin, &format!("{id}.{SECRET}")).await, None, "without {key}");
    }
}

#[tokio::test]
async fn only_the_secret_that_is_named_after_the_id_in_kube_system_is_a_bootstrap_token() {
    let server = Server::serve(&["--enable-bootstrap-token-auth"]).await.unwrap();
    let admin = server.client().unwrap();
    create(&admin, "default", &token("other0")).await;
    let mut opaque = token("opaque");
    opaque["type"] = json!("Opaque");
    create(&admin, "kube-system", &opaque).await;
    // The ID of a token in a Secret with another name.
    let mut renamed = token("named0");
    renamed["metadata"]["name"] = json!("bootstrap-token-named1");
    create(&admin, "kube-system", &renamed).await;
    let mut deleted = token("delete");
    deleted["metadata"]["finalizers"] = json!(["example.com/waits"]);
    create(&admin, "kube-system", &deleted).await;
    let path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-delete";
    assert!(user(&admin, &format!("delete.{SECRET}")).await.is_some());
    accepts(admin.delete(path).await).unwrap();
    for id in ["other0", "opaque", "named0", "named1", "delete", "absent"] {
        assert_eq!(user(&admin, &format!("{id}.{SECRET}")).await, None, "{id}");
    }
    create(&admin, "kube-system", &token("valid0")).await;
    for malformed in [
        format!("VALID0.{SECRET}"),
        format!("valid0.{SECRET}0"),
        format!("valid0:{SECRET}"),
        format!("valid0..{SECRET}"),
        format!("bootstrap-token-valid0.{SECRET}"),
        "valid0.".to_owned(),
        format!(".{SECRET}"),
        format!("../va0.{SECRET}"),
        BASE64_STANDARD.encode(format!("valid0.{SECRET}")),
    ] {
        assert_eq!(user(&admin, &malformed).await, None, "{malformed}");
    }
    assert!(user(&admin, &format!("valid0.{SECRET}")).await.is_some());
}

#[tokio::test]
async fn a_bootstrap_token_has_the_permissions_of_bootstrappers_only() {
    let server = Server::serve(&["--enable-bootstrap-token-auth"]).await.unwrap();
    let admin = server.client().unwrap();
    let mut secret = token("valid0");
    secret["stringData"]["auth-extra-groups"] = json!("system:bootstrappers:worker");
    create(&admin, "kube-system", &secret).await;
    let bearer = format!("valid0.{SECRET}");
    let expected = json!({"username": "system:bootstrap:valid0",
        "groups": ["system:bootstrappers", "system:bootstrappers:worker", "system:authenticated"]});
    assert_eq!(user(&admin, &bearer).await, Some(expected));
    let node = admin.as_token(Some(&bearer));
    for path in [MAPS, "/api/v1/namespaces/kube-system/secrets", "/api/v1/nodes", "/metrics"] {
        rejects(node.get(path).await, 403, "Forbidden").unwrap();
    }
    // It cannot act as another user.
    let as_admin = [("impersonate-user", "system:kube-controller-manager")];
    let answer = node.send(http::Method::GET, MAPS, &as_admin, bytes::Bytes::new()).await;
    rejects(answer, 403, "Forbidden").unwrap();
}
