//! Authentication by certificates, tokens and front proxies, and files that change while the server runs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use conformance::client::{Credentials, Trust};
use conformance::server::{TOKENS, run_to_end, write_private};
use conformance::{Client, Problem, Result, Server, TestAuthority, accepts, eventually, rejects};
use http::Method;
use rcgen::{DistinguishedName, DnType, ExtendedKeyUsagePurpose};
use serde_json::{Value, json};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(40);
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PUBLISHED: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

fn connect(server: &Server, credentials: Credentials) -> Client {
    Client::new(&server.url, Trust::Anything, credentials).unwrap()
}

/// The user name of a SelfSubjectReview.
async fn whoami(client: &Client, headers: &[(&str, &str)]) -> Result<Value> {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    let body = Bytes::from_static(br#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#);
    let answer = accepts(client.send(Method::POST, WHOAMI, &all, body).await)?;
    Ok(answer.pointer("/status/userInfo").cloned().unwrap_or_default())
}

/// Writes a file and returns the flag that names it.
fn file(folder: &TempDir, flag: &str, name: &str, text: &str) -> (PathBuf, String) {
    let path = folder.path().join(name);
    write_private(&path, text).unwrap();
    let flag = format!("--{flag}={}", path.display());
    (path, flag)
}

/// Replaces a file atomically by a rename.
fn replace(path: &Path, text: &str) {
    let fresh = path.with_extension("fresh");
    write_private(&fresh, text).unwrap();
    fs::rename(&fresh, path).unwrap();
}

async fn metric(client: &Client, series: &str) -> u64 {
    let page = client.get("/metrics").await.unwrap().text();
    let line = page.lines().find_map(|line| line.strip_prefix(series));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_client_certificate_authenticates_if_its_ca_is_known() {
    let folder = TempDir::new().unwrap();
    let (known, stranger) = (TestAuthority::new("known").unwrap(), TestAuthority::new("stranger").unwrap());
    let (_, flag) = file(&folder, "client-ca-file", "ca.crt", &known.pem);
    let server = Server::serve(&[&flag]).await.unwrap();
    let client = connect(&server, known.client("carol", &["devs"], Some("carol-uid")).unwrap());
    let user = whoami(&client, &[]).await.unwrap();
    assert_eq!(user["username"], "carol");
    assert_eq!(user["uid"], "carol-uid");
    assert_eq!(user["groups"], json!(["devs", "system:authenticated"]));
    let credential =
        user.pointer("/extra/authentication.kubernetes.io~1credential-id/0").and_then(Value::as_str);
    assert!(credential.unwrap().starts_with("X509SHA256="), "{user}");
    // A certificate of an unknown CA is rejected and disables anonymous access.
    let forged = connect(&server, stranger.client("carol", &["system:masters"], None).unwrap());
    let status = rejects(forged.get("/version").await, 401, "Unauthorized").unwrap();
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401})
    );
    // A server certificate does not authenticate a client.
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, "carol");
    let (cert, key) = known.issue(&subject, ExtendedKeyUsagePurpose::ServerAuth, &["localhost"]).unwrap();
    let wrong = connect(&server, Credentials::Certificate(cert.into_bytes(), key.into_bytes()));
    rejects(wrong.get("/version").await, 401, "Unauthorized").unwrap();
    // A client without credentials is system:anonymous.
    accepts(connect(&server, Credentials::None).get("/version").await).unwrap();
    assert_eq!(
        metric(
            &connect(&server, Credentials::Token("admintoken".into())),
            r#"authentication_attempts{result="error"}"#
        )
        .await,
        2
    );
}

#[tokio::test]
async fn a_reloaded_client_ca_applies_to_open_connections_and_an_invalid_file_is_ignored() {
    let folder = TempDir::new().unwrap();
    let (old, new) = (TestAuthority::new("old").unwrap(), TestAuthority::new("new").unwrap());
    let (path, flag) = file(&folder, "client-ca-file", "ca.crt", &old.pem);
    let server = Server::serve(&[&flag]).await.unwrap();
    let admin = server.client().unwrap();
    let before = connect(&server, old.client("carol", &[], None).unwrap());
    let after = connect(&server, new.client("dora", &[], None).unwrap());
    whoami(&before, &[]).await.unwrap();
    rejects(after.get("/version").await, 401, "Unauthorized").unwrap();
    let series = |status: &str| {
        format!(r#"portcullis_authentication_file_reloads_total{{flag="client-ca-file",status="{status}"}}"#)
    };

    replace(&path, "nonsense");
    let failed = series("failure");
    eventually(SOON, async || match metric(&admin, &failed).await {
        1 => Ok(()),
        other => Err(Problem::new(format!("{other} failures: {}", server.log()))),
    })
    .await
    .unwrap();
    whoami(&before, &[]).await.unwrap();

    replace(&path, &new.pem);
    eventually(SOON, async || whoami(&after, &[]).await).await.unwrap();
    rejects(before.get("/version").await, 401, "Unauthorized").unwrap();
    assert_eq!(metric(&admin, &series("success")).await, 1);
    // The published document has the new CA; unexpired tokens of before stay valid.
    eventually(SOON, async || {
        let map = accepts(admin.get(PUBLISHED).await)?;
        let published = map.pointer("/data/client-ca-file").and_then(Value::as_str).unwrap_or_default();
        let both = [&old.pem, &new.pem].iter().all(|pem| published.contains(&pem.replace("\r\n", "\n")));
        if both { Ok(()) } else { Err(Problem::new(published)) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn swapping_a_symbolic_link_reloads_the_file() {
    let folder = TempDir::new().unwrap();
    let (old, new) = (TestAuthority::new("old").unwrap(), TestAuthority::new("new").unwrap());
    // The layout of config map volumes: file → ..data/file, ..data → a folder.
    for (name, authority) in [("one", &old), ("two", &new)] {
        write_private(&folder.path().join(name).join("ca.crt"), &authority.pem).unwrap();
    }
    std::os::unix::fs::symlink("one", folder.path().join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/ca.crt", folder.path().join("ca.crt")).unwrap();
    let flag = format!("--client-ca-file={}", folder.path().join("ca.crt").display());
    let server = Server::serve(&[&flag]).await.unwrap();
    let client = connect(&server, new.client("dora", &[], None).unwrap());
    rejects(client.get("/version").await, 401, "Unauthorized").unwrap();
    std::os::unix::fs::symlink("two", folder.path().join("..fresh")).unwrap();
    fs::rename(folder.path().join("..fresh"), folder.path().join("..data")).unwrap();
    eventually(SOON, async || whoami(&client, &[]).await).await.unwrap();
}

#[tokio::test]
async fn a_token_file_is_reloaded_and_an_invalid_one_is_ignored() {
    let folder = TempDir::new().unwrap();
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let tokens = folder.path().join("tokens.csv");
    let admin = server.client().unwrap();
    let fresh = admin.as_token(Some("freshtoken"));
    rejects(fresh.get("/version").await, 401, "Unauthorized").unwrap();
    replace(&tokens, &format!("{TOKENS}freshtoken,erin,erin-uid\n"));
    let user = eventually(SOON, async || whoami(&fresh, &[]).await).await.unwrap();
    assert_eq!(user["username"], "erin");
    replace(&tokens, "too,few\n");
    eventually(SOON, async || {
        match metric(
            &admin,
            r#"portcullis_authentication_file_reloads_total{flag="token-auth-file",status="failure"}"#,
        )
        .await
        {
            1 => Ok(()),
            other => Err(Problem::new(other.to_string())),
        }
    })
    .await
    .unwrap();
    whoami(&fresh, &[]).await.unwrap();
    replace(&tokens, TOKENS);
    eventually(SOON, async || rejects(fresh.get("/version").await, 401, "Unauthorized")).await.unwrap();
}

#[tokio::test]
async fn a_new_serving_certificate_is_used_for_new_connections() {
    let folder = TempDir::new().unwrap();
    let (old, new) = (TestAuthority::new("old").unwrap(), TestAuthority::new("new").unwrap());
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, "server");
    let (cert, key) = old.issue(&subject, ExtendedKeyUsagePurpose::ServerAuth, &["127.0.0.1"]).unwrap();
    let (cert_path, cert_flag) = file(&folder, "tls-cert-file", "tls.crt", &cert);
    let (key_path, key_flag) = file(&folder, "tls-private-key-file", "tls.key", &key);
    let server = Server::serve(&[&cert_flag, &key_flag]).await.unwrap();
    let trusting = |authority: &TestAuthority| {
        let trust = Trust::Authorities(authority.pem.clone().into_bytes());
        Client::new(&server.url, trust, Credentials::Token("admintoken".into())).unwrap()
    };
    accepts(trusting(&old).get("/version").await).unwrap();
    assert!(trusting(&new).get("/version").await.is_err());
    let (cert, key) = new.issue(&subject, ExtendedKeyUsagePurpose::ServerAuth, &["127.0.0.1"]).unwrap();
    // Between the two steps, certificate and key do not match, and the old pair stays in use.
    replace(&cert_path, &cert);
    replace(&key_path, &key);
    eventually(SOON, async || accepts(trusting(&new).get("/version").await)).await.unwrap();
    assert!(trusting(&old).get("/version").await.is_err());
}

#[tokio::test]
async fn identity_headers_are_accepted_only_from_front_proxies() {
    let folder = TempDir::new().unwrap();
    let (clients, proxies) = (TestAuthority::new("clients").unwrap(), TestAuthority::new("proxies").unwrap());
    let (_, client_flag) = file(&folder, "client-ca-file", "ca.crt", &clients.pem);
    let (_, proxy_flag) = file(&folder, "requestheader-client-ca-file", "proxy-ca.crt", &proxies.pem);
    let server = Server::serve(&[
        &client_flag,
        &proxy_flag,
        "--requestheader-allowed-names=front",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ])
    .await
    .unwrap();
    let said = [
        ("x-remote-user", "frank"),
        ("x-remote-uid", "frank-uid"),
        ("x-remote-group", "devs"),
        ("x-remote-group", "ops"),
        ("x-remote-extra-example.com%2fscope", "one"),
    ];
    let front = connect(&server, proxies.client("front", &[], None).unwrap());
    let user = whoami(&front, &said).await.unwrap();
    assert_eq!(user["username"], "frank");
    assert_eq!(user["uid"], "frank-uid");
    assert_eq!(user["groups"], json!(["devs", "ops", "system:authenticated"]));
    assert_eq!(user["extra"], json!({"example.com/scope": ["one"]}));
    // With another name, another CA or no certificate, the identity headers are ignored.
    let other = connect(&server, proxies.client("other", &[], None).unwrap());
    rejects(other.send(Method::GET, "/version", &said, Bytes::new()).await, 401, "Unauthorized").unwrap();
    let client = connect(&server, clients.client("carol", &[], None).unwrap());
    assert_eq!(whoami(&client, &said).await.unwrap()["username"], "carol");
    let token = connect(&server, Credentials::Token("alicetoken".into()));
    assert_eq!(whoami(&token, &said).await.unwrap()["username"], "alice");
    // A front proxy without identity headers is anonymous.
    rejects(front.get("/version").await, 401, "Unauthorized").unwrap();
    // The configuration of front proxies is published for aggregated API servers.
    let admin = server.client().unwrap();
    let map = accepts(admin.get(PUBLISHED).await).unwrap();
    assert_eq!(map["data"]["requestheader-allowed-names"], r#"["front"]"#);
    assert_eq!(map["data"]["requestheader-username-headers"], r#"["X-Remote-User"]"#);
    assert_eq!(map["data"]["requestheader-uid-headers"], r#"["X-Remote-Uid"]"#);
    assert_eq!(map["data"]["requestheader-group-headers"], r#"["X-Remote-Group"]"#);
    assert_eq!(map["data"]["requestheader-extra-headers-prefix"], r#"["X-Remote-Extra-"]"#);
    assert!(map["data"]["requestheader-client-ca-file"].as_str().unwrap().contains("BEGIN CERTIFICATE"));
    // The config map is created again after its deletion.
    accepts(admin.delete(PUBLISHED).await).unwrap();
    eventually(SOON, async || accepts(admin.get(PUBLISHED).await)).await.unwrap();
}

#[tokio::test]
async fn a_front_proxy_ca_that_overlaps_the_client_ca_stops_the_start() {
    let folder = TempDir::new().unwrap();
    let authority = TestAuthority::new("both").unwrap();
    let (_, client_flag) = file(&folder, "client-ca-file", "ca.crt", &authority.pem);
    let (_, proxy_flag) = file(&folder, "requestheader-client-ca-file", "proxy.crt", &authority.pem);
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let certs = format!("--cert-dir={}", folder.path().join("certs").display());
    let (code, said) = run_to_end(&["serve", &data, &certs, &client_flag, &proxy_flag], SOON).await.unwrap();
    assert_ne!(code, Some(0));
    assert!(
        said.contains("contain overlapping certificates; --requestheader-allowed-names must be specified"),
        "{said}"
    );
}

#[tokio::test]
async fn a_front_proxy_ca_that_overlaps_the_client_ca_is_ignored_on_reload() {
    let folder = TempDir::new().unwrap();
    let (clients, proxies) = (TestAuthority::new("clients").unwrap(), TestAuthority::new("proxies").unwrap());
    let (path, client_flag) = file(&folder, "client-ca-file", "ca.crt", &clients.pem);
    let (_, proxy_flag) = file(&folder, "requestheader-client-ca-file", "proxy.crt", &proxies.pem);
    let header = "--requestheader-username-headers=X-Remote-User";
    // An empty list of names allows any name, as a missing one does.
    let anybody = "--requestheader-allowed-names=";
    let server = Server::serve(&[&client_flag, &proxy_flag, header, anybody]).await.unwrap();
    let of = |authority: &TestAuthority| connect(&server, authority.client("alice", &[], None).unwrap());
    whoami(&of(&clients), &[]).await.unwrap();
    // With both CAs in the client CA file, the file is rejected, so a third CA in it is unknown too.
    let third = TestAuthority::new("third").unwrap();
    replace(&path, &format!("{}{}{}", clients.pem, proxies.pem, third.pem));
    eventually(SOON, async || {
        let said = server.log();
        if said.contains("contain overlapping certificates") { Ok(()) } else { Err(Problem::new(said)) }
    })
    .await
    .unwrap();
    assert!(whoami(&of(&third), &[]).await.is_err());
    // A file without the overlap is accepted.
    replace(&path, &format!("{}{}", clients.pem, third.pem));
    eventually(SOON, async || whoami(&of(&third), &[]).await).await.unwrap();
}

/// A token of the service account `robot`.
async fn token(admin: &Client, spec: Value) -> Result<String> {
    let answer = accepts(admin.post(&format!("{ACCOUNTS}/robot/token"), &json!({"spec": spec})).await)?;
    let token = answer.pointer("/status/token").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| Problem::new(answer.to_string()))
}

#[tokio::test]
async fn a_token_is_valid_only_while_its_bound_object_exists() {
    let server = Server::serve(&["--disable-admission-plugins=ServiceAccount"]).await.unwrap();
    let admin = server.client().unwrap();
    accepts(admin.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await).unwrap();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot", "nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let objects = [
        ("Node", "/api/v1/nodes", json!({"metadata": {"name": "n"}})),
        ("Pod", "/api/v1/namespaces/default/pods", pod),
        ("Secret", "/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})),
    ];
    let mut tokens = Vec::new();
    for (kind, path, object) in &objects {
        let made = accepts(admin.post(path, object).await).unwrap();
        let (name, uid) =
            (made["metadata"]["name"].as_str().unwrap(), made["metadata"]["uid"].as_str().unwrap());
        let bound = json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}});
        let token = token(&admin, bound).await.unwrap();
        tokens.push((*kind, format!("{path}/{name}"), admin.as_token(Some(&token))));
        let wrong =
            json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": "other"}});
        let refused = admin.post(&format!("{ACCOUNTS}/robot/token"), &json!({"spec": wrong})).await;
        rejects(refused, 409, "Conflict").unwrap();
    }
    for (kind, _, client) in &tokens {
        let user = whoami(client, &[]).await.unwrap();
        assert_eq!(user["username"], "system:serviceaccount:default:robot", "{kind}");
        let node = user.pointer("/extra/authentication.kubernetes.io~1node-name/0");
        assert_eq!(node.is_some(), *kind != "Secret", "{user}");
        assert_eq!(
            user.pointer("/extra/authentication.kubernetes.io~1pod-name/0").is_some(),
            *kind == "Pod",
            "{user}"
        );
    }
    // A token is rejected after its bound object was deleted and the cache entry expired.
    for (kind, path, client) in tokens.iter().rev() {
        accepts(admin.send(Method::DELETE, &format!("{path}?gracePeriodSeconds=0"), &[], Bytes::new()).await)
            .unwrap();
        let gone =
            eventually(SOON, async || rejects(client.get("/version").await, 401, "Unauthorized")).await;
        assert_eq!(gone.unwrap()["message"], "Unauthorized", "{kind}");
    }
    assert!(metric(&admin, r#"authentication_token_cache_request_total{status="miss"}"#).await > 0);
}

#[tokio::test]
async fn tokens_are_valid_for_their_audience_only() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    accepts(admin.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await).unwrap();
    let vault = token(&admin, json!({"audiences": ["vault"]})).await.unwrap();
    rejects(admin.as_token(Some(&vault)).get("/version").await, 401, "Unauthorized").unwrap();
    let review = async |token: &str, audiences: Value| {
        let spec = json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": token, "audiences": audiences}});
        accepts(admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &spec).await).unwrap()["status"]
            .clone()
    };
    let status = review(&vault, json!(["vault", "other"])).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    let status = review(&vault, json!(["other"])).await;
    assert!(status.get("authenticated").is_none(), "{status}");
    assert_eq!(
        status["error"],
        r#"[invalid bearer token, token audiences ["vault"] is invalid for the target audiences ["other"]]"#
    );
    assert_eq!(review("nonsense", json!(["other"])).await["error"], "invalid bearer token");
    // A TokenReview has no name and cannot be read.
    rejects(admin.get("/apis/authentication.k8s.io/v1/tokenreviews/x").await, 404, "NotFound").unwrap();
    rejects(admin.get("/apis/authentication.k8s.io/v1/tokenreviews").await, 405, "MethodNotAllowed").unwrap();
    let status = review(&vault, Value::Null).await;
    assert!(status.get("authenticated").is_none(), "{status}");
    let status = review("alicetoken", Value::Null).await;
    assert_eq!(status["user"]["groups"], json!(["devs", "testers", "system:authenticated"]));
    // Invalid token requests are rejected.
    for (spec, field) in [
        (json!({"expirationSeconds": 599}), "spec.expirationSeconds"),
        (json!({"expirationSeconds": 4_294_967_297_i64}), "spec.expirationSeconds"),
        (json!({"attestations": {"admissionReviewAPIGroups": ["apps"]}}), "spec.attestations"),
    ] {
        let answer = admin.post(&format!("{ACCOUNTS}/robot/token"), &json!({"spec": spec})).await;
        let status = rejects(answer, 422, "Invalid").unwrap();
        assert_eq!(status.pointer("/details/causes/0/field"), Some(&json!(field)), "{status}");
    }
    let bound = json!({"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1", "name": "x"});
    let spec = json!({"boundObjectRef": bound, "audiences": ["https://x"], "attestations": {"admissionReviewAPIGroups": ["apps"]}});
    let answer = admin.post(&format!("{ACCOUNTS}/robot/token"), &json!({"spec": spec})).await;
    let status = rejects(answer, 400, "BadRequest").unwrap();
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .ends_with("(feature gate APIServerWebhookAuthenticationToken is disabled)")
    );
    rejects(admin.post(&format!("{ACCOUNTS}/nobody/token"), &json!({})).await, 404, "NotFound").unwrap();
}

#[tokio::test]
async fn tokens_of_an_old_key_are_valid_only_while_it_is_in_the_key_files() {
    let folder = TempDir::new().unwrap();
    let mut server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let admin = server.client().unwrap();
    accepts(admin.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await).unwrap();
    let old = token(&admin, json!({})).await.unwrap();
    server.kill().unwrap();
    let key = folder.path().join("sa.key");
    let old_key = folder.path().join("old.key");
    fs::rename(&key, &old_key).unwrap();
    // The harness creates a new key if the file is missing.
    let flag = format!("--service-account-key-file={}", old_key.display());
    let mut server = Server::serve_at(folder.path(), &[&flag]).await.unwrap();
    let admin = server.client().unwrap();
    whoami(&admin.as_token(Some(&old)), &[]).await.unwrap();
    let new = token(&admin, json!({})).await.unwrap();
    whoami(&admin.as_token(Some(&new)), &[]).await.unwrap();
    let keys = admin
        .send(Method::GET, "/openid/v1/jwks", &[("accept", "application/jwk-set+json")], Bytes::new())
        .await;
    assert_eq!(accepts(keys).unwrap()["keys"].as_array().unwrap().len(), 2);
    server.kill().unwrap();
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let admin = server.client().unwrap();
    rejects(admin.as_token(Some(&old)).get("/version").await, 401, "Unauthorized").unwrap();
    whoami(&admin.as_token(Some(&new)), &[]).await.unwrap();
}

#[tokio::test]
async fn openid_discovery_documents_are_published() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let answer = admin.get("/.well-known/openid-configuration").await.unwrap();
    assert_eq!(answer.header("cache-control"), "public, max-age=3600");
    assert_eq!(answer.json()["issuer"], "https://kubernetes.default.svc");
    let json = [("accept", "application/json")];
    let status =
        rejects(admin.send(Method::GET, "/openid/v1/jwks", &json, Bytes::new()).await, 406, "NotAcceptable");
    assert_eq!(
        status.unwrap()["message"],
        "406: Not Acceptable\n\nAvailable representations: application/jwk-set+json"
    );
    for (path, id) in [
        (".well-known/openid-configuration", "getServiceAccountIssuerOpenIDConfiguration"),
        ("openid/v1/jwks", "getServiceAccountIssuerOpenIDKeyset"),
    ] {
        let document = accepts(admin.get(&format!("/openapi/v3/{path}")).await).unwrap();
        let operation = document.pointer(&format!("/paths/~1{}~1/get/operationId", path.replace('/', "~1")));
        assert_eq!(operation, Some(&json!(id)), "{document}");
        assert!(document.pointer("/components/schemas").is_none());
    }
}

#[tokio::test]
async fn denied_impersonation_names_the_missing_permission() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let alice = admin.as_token(Some("alicetoken"));
    let wanted = [("impersonate-user", "bob")];
    let answer = alice.send(Method::GET, "/api/v1/namespaces/default/pods", &wanted, Bytes::new()).await;
    let status = rejects(answer, 403, "Forbidden").unwrap();
    assert_eq!(
        status["message"],
        "pods is forbidden: User \"alice\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    let groups = [("impersonate-group", "g")];
    let answer = admin.send(Method::GET, "/version", &groups, Bytes::new()).await;
    let status = rejects(answer, 400, "BadRequest").unwrap();
    assert!(status["message"].as_str().unwrap().ends_with("without impersonating a user name"), "{status}");
    let all = [
        ("impersonate-user", "bob"),
        ("impersonate-uid", "bob-uid"),
        ("impersonate-group", "g"),
        ("impersonate-extra-example.com%2fscope", "one"),
    ];
    let user = whoami(&admin, &all).await.unwrap();
    assert_eq!(
        user,
        json!({"username": "bob", "uid": "bob-uid", "groups": ["g", "system:authenticated"], "extra": {"example.com/scope": ["one"]}})
    );
}

#[tokio::test]
async fn malformed_impersonation_headers_are_rejected() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    for (wanted, code) in [(&b"\xff\xfe"[..], "400"), (&b"bob"[..], "200")] {
        let mut stream = admin.tls_stream().await.unwrap();
        let mut request = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer admintoken\r\nImpersonate-User: ".to_vec();
        request.extend_from_slice(wanted);
        request.extend_from_slice(b"\r\n\r\n");
        stream.write_all(&request).await.unwrap();
        let mut answer = Vec::new();
        // A server may close a connection without a TLS close_notify.
        let _ = stream.read_to_end(&mut answer).await;
        assert!(
            answer.starts_with(format!("HTTP/1.1 {code} ").as_bytes()),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
}
