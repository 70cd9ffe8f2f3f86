//! Bootstrap tokens: authentication, the signatures of `cluster-info`, and the removal of expired tokens.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use conformance::client::HttpResponse;
use conformance::{Client, Problem, Result, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(40);
const ON: &str = "--enable-bootstrap-token-auth";
const TOKEN: &str = "abcdef.0123456789abcdef";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const SECRET: &str = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const PUBLIC_MAPS: &str = "/api/v1/namespaces/kube-public/configmaps";

/// The Secret of [`TOKEN`] as kubeadm writes it.
fn secret() -> Value {
    json!({
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef",
            "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    })
}

async fn review_self(client: &Client) -> Result<HttpResponse> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    client.post(WHOAMI, &review).await
}

async fn whoami(client: &Client) -> Result<Value> {
    let answer = accepts(review_self(client).await)?;
    Ok(answer.pointer("/status/userInfo").cloned().unwrap_or_default())
}

async fn set(admin: &Client, key: &str, text: &str) {
    let patch = json!({"data": {key: BASE64_STANDARD.encode(text)}}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    accepts(admin.send(Method::PATCH, SECRET, &merge, patch.into()).await).unwrap();
}

#[tokio::test]
async fn a_bootstrap_token_authenticates_while_its_secret_allows_it() {
    let server = Server::serve(&[ON]).await.unwrap();
    let admin = server.client().unwrap();
    let node = admin.as_token(Some(TOKEN));
    rejects(review_self(&node).await, 401, "Unauthorized").unwrap();

    accepts(admin.post(SECRETS, &secret()).await).unwrap();
    let user = whoami(&node).await.unwrap();
    assert_eq!(
        user,
        json!({"username": "system:bootstrap:abcdef", "groups": [
            "system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"]})
    );
    let wrong = admin.as_token(Some("abcdef.0123456789abcdeg"));
    rejects(review_self(&wrong).await, 401, "Unauthorized").unwrap();

    for (key, bad, good) in [
        ("usage-bootstrap-authentication", "false", "true"),
        ("auth-extra-groups", "system:masters", "system:bootstrappers:worker"),
        ("token-id", "ghijkl", "abcdef"),
    ] {
        set(&admin, key, bad).await;
        rejects(review_self(&node).await, 401, "Unauthorized").unwrap();
        set(&admin, key, good).await;
        whoami(&node).await.unwrap();
    }
    set(&admin, "expiration", "2999-01-01T00:00:00Z").await;
    whoami(&node).await.unwrap();

    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": TOKEN}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answer = accepts(admin.post(reviews, &review).await).unwrap();
    assert_eq!(answer.pointer("/status/authenticated"), Some(&json!(true)), "{answer}");

    accepts(admin.delete(SECRET).await).unwrap();
    rejects(review_self(&node).await, 401, "Unauthorized").unwrap();
    let answer = accepts(admin.post(reviews, &review).await).unwrap();
    assert_eq!(answer.pointer("/status/error"), Some(&json!("invalid bearer token")), "{answer}");
}

#[tokio::test]
async fn bootstrap_tokens_are_invalid_without_the_flag() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    accepts(admin.post(SECRETS, &secret()).await).unwrap();
    rejects(review_self(&admin.as_token(Some(TOKEN))).await, 401, "Unauthorized").unwrap();
}

#[tokio::test]
async fn cluster_info_is_signed_with_tokens_that_may_sign() {
    let server = Server::serve(&[ON]).await.unwrap();
    let admin = server.client().unwrap();
    accepts(admin.post(SECRETS, &secret()).await).unwrap();
    let content = "apiVersion: v1\nkind: Config\n";
    let map = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": content}});
    accepts(admin.post(PUBLIC_MAPS, &map).await).unwrap();

    let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"abcdef"}"#);
    let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
    let tag = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    let signature = format!("{header}..{tag}");
    has_signature(&admin, Some(&signature)).await;

    set(&admin, "usage-bootstrap-signing", "false").await;
    has_signature(&admin, None).await;
}

/// Waits until `cluster-info` has this signature of the token.
async fn has_signature(admin: &Client, signature: Option<&str>) {
    let path = format!("{PUBLIC_MAPS}/cluster-info");
    eventually(SOON, async || {
        let map = accepts(admin.get(&path).await)?;
        let found = map.pointer("/data/jws-kubeconfig-abcdef").and_then(Value::as_str);
        if found == signature { Ok(()) } else { Err(Problem::new(format!("the ConfigMap is {map}"))) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_expired_token_is_deleted_and_others_stay() {
    let server = Server::serve(&[ON]).await.unwrap();
    let admin = server.client().unwrap();
    let mut lasting = secret();
    lasting["metadata"]["name"] = json!("bootstrap-token-ghijkl");
    lasting["stringData"]["expiration"] = json!("2999-01-01T00:00:00Z");
    accepts(admin.post(SECRETS, &lasting).await).unwrap();
    accepts(admin.post(SECRETS, &secret()).await).unwrap();
    set(&admin, "expiration", "2001-01-01T00:00:00Z").await;
    rejects(review_self(&admin.as_token(Some(TOKEN))).await, 401, "Unauthorized").unwrap();
    eventually(SOON, async || match admin.get(SECRET).await?.code {
        404 => Ok(()),
        code => Err(Problem::new(format!("GET of the expired token is answered with {code}"))),
    })
    .await
    .unwrap();
    accepts(admin.get(&format!("{SECRETS}/bootstrap-token-ghijkl")).await).unwrap();
}
