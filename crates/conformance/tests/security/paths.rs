//! Every document is served under one path only: authorizers and audit rules see the path as sent, so another served spelling
//! would bypass their rules.

use std::collections::BTreeSet;

use conformance::{Client, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

use crate::callers::SOON;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const MERGE: &str = "application/merge-patch+json";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Served documents that are not listed at `/`.
const UNLISTED: &[&str] = &["/", "/debug/admission", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1"];

/// Every served document, listed or not.
async fn documents(client: &Client) -> BTreeSet<String> {
    let index = accepts(client.get("/").await).unwrap();
    let listed = index["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned());
    listed.chain(UNLISTED.iter().map(|path| (*path).to_owned())).collect()
}

/// Whether Kubernetes serves this document with a trailing slash: its API router does, its other mux does not.
fn router_serves_trailing_slash(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    matches!(
        segments.as_slice(),
        ["api" | "apis" | "version"]
            | ["api" | "apis", _]
            | ["apis", _, _]
            | [".well-known", "openid-configuration"]
            | ["openid", "v1", "jwks"]
    )
}

/// Other spellings of a path, none of which is another served path.
fn aliases(path: &str) -> BTreeSet<String> {
    let mut aliases = BTreeSet::new();
    let mut add = |alias: String| aliases.insert(alias);
    for end in [
        "/", "//", "/.", "/./", "/..", "/x/..", ".", ";a=b", "%2F", "%2F%2F", "%00", "%20", "%", "%252F",
        "\\", "%5C",
    ] {
        add(format!("{path}{end}"));
    }
    for start in ["/", "/.", "/..", "/x/..", "/%2E", "/%2e%2e", "/%2F", "/api/v1/..", "/healthz/.."] {
        add(format!("{start}{path}"));
    }
    for (at, _) in path.match_indices('/') {
        let (before, after) = path.split_at(at);
        for inserted in ["/", "/.", "/x/..", "/%2E", "/x/%2e%2e", "/%2F"] {
            add(format!("{before}{inserted}{after}"));
        }
    }
    add(path.to_ascii_uppercase());
    if let Some((start, letter)) = path.char_indices().find(|(_, c)| c.is_ascii_lowercase()) {
        let (before, after) = (path.get(..start).unwrap(), path.get(start + 1..).unwrap());
        add(format!("{before}{}{after}", letter.to_ascii_uppercase()));
        // Encoded twice: one decoding leaves an escape.
        add(format!("{before}%25{:02x}{after}", u32::from(letter)));
    }
    aliases
}

#[tokio::test]
async fn every_document_is_served_under_one_path() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let documents = documents(&client).await;
    for expected in
        ["/metrics", "/metrics/slis", "/livez/ping", "/version", "/apis/apps/v1", "/openapi/v2", "/statusz"]
    {
        assert!(documents.contains(expected), "{expected} is not among {documents:?}");
    }
    let (mut asked, mut served) = (0, Vec::new());
    for path in &documents {
        for alias in aliases(path) {
            if documents.contains(&alias)
                || (alias == format!("{path}/") && router_serves_trailing_slash(path))
            {
                continue;
            }
            // `%2F` is decoded to a slash everywhere in the server, so these paths equal those with a slash.
            let decoded = alias.replace("%2F", "/").replace("%2f", "/");
            if documents.contains(&decoded)
                || decoded.strip_suffix('/').is_some_and(router_serves_trailing_slash)
            {
                continue;
            }
            let answer = client.get(&alias).await.unwrap();
            asked += 1;
            if !matches!(answer.code, 301 | 400 | 404) {
                served.push(format!("{alias}: {}", answer.code));
            }
        }
    }
    assert!(served.is_empty(), "{} of {asked} aliases are served: {served:#?}", served.len());
    assert!(asked > 2000, "only {asked} aliases were tried");
}

#[tokio::test]
async fn resources_are_not_served_below_empty_or_dotted_segments() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    accepts(client.get("/api/v1/namespaces/default").await).unwrap();
    for alias in [
        "//api/v1/namespaces/default",
        "/api//v1/namespaces/default",
        "/api/v1//namespaces/default",
        "/api/v1/namespaces//default",
        "/apis//v1/namespaces/default",
        "/apis//v1/namespaces",
        "/apis//v1/namespaces/default/secrets",
        "/./api/v1/namespaces/default",
        "/api/./v1/namespaces/default",
        "/api/v1/x/../namespaces/default",
        "/apis/apps/../../api/v1/namespaces/default",
        "/apis/apps/v1/../../../api/v1/namespaces/default",
        "/API/v1/namespaces/default",
        "/api/V1/namespaces/default",
        "/api/v1/Namespaces/default",
        "/api/v1;a=b/namespaces/default",
        "/api/v1/namespaces;a=b/default",
        "/api/v1/namespaces/default;a=b",
        "/api/v1/namespaces/default%2F..",
        "/api/v1/namespaces/default.",
    ] {
        let answer = client.get(alias).await.unwrap();
        assert!(matches!(answer.code, 400 | 404), "{alias}: {} {}", answer.code, answer.text());
    }
}

/// Binds a role for these paths to a user.
async fn grant(client: &Client, user: &str, paths: &[&str]) {
    let role = json!({"metadata": {"name": user}, "rules": [{"nonResourceURLs": paths, "verbs": ["get"]}]});
    accepts(client.post(ROLES, &role).await).unwrap();
    let binding = json!({"metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    accepts(client.post(BINDINGS, &binding).await).unwrap();
}

/// The served aliases, each with the path by which it is authorized.
#[tokio::test]
async fn served_aliases_are_authorized_by_the_routed_path() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    grant(&client, "alice", &["/metrics", "/debug/admission", "/statusz"]).await;
    grant(&client, "bob", &["/metrics/", "//metrics", "/metrics//slis", "/debug//admission", "/statusz/"])
        .await;
    let [alice, bob] = ["alicetoken", "bobtoken"].map(|token| client.as_token(Some(token)));

    // Escapes are decoded before authorization.
    for path in
        ["/metrics", "/%6detrics", "/%6D%65trics", "/debug/admission", "/debug%2Fadmission", "/statusz"]
    {
        let answer = alice.get(path).await.unwrap();
        assert_eq!(answer.code, 200, "{path}: {}", answer.text());
    }
    for path in [
        "/metrics/slis",
        "/metrics%2Fslis",
        "/flagz",
        "/%66lagz",
        "/metrics/",
        "/metrics%2F",
        "/debug//admission",
    ] {
        assert_eq!(alice.get(path).await.unwrap().code, 403, "{path}");
    }
    // A rule for an alias grants nothing.
    for path in ["/metrics/", "//metrics", "/metrics//slis", "/debug//admission", "/statusz/"] {
        assert_eq!(bob.get(path).await.unwrap().code, 404, "{path}");
    }
    assert_eq!(bob.get("/metrics").await.unwrap().code, 403);
}

/// Kubernetes' own roles list paths of its API router with a trailing slash: `/version/` has a rule of its own.
#[tokio::test]
async fn a_trailing_slash_of_the_api_router_is_part_of_the_authorized_path() {
    let server = Server::serve(&["--anonymous-auth=false"]).await.unwrap();
    let client = server.client().unwrap();
    // The users have no other permissions.
    for binding in ["system:discovery", "system:basic-user", "system:public-info-viewer"] {
        let path = format!("{BINDINGS}/{binding}");
        let mut object: Value = accepts(client.get(&path).await).unwrap();
        object["subjects"] = json!([]);
        object["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = json!("false");
        accepts(client.json(http::Method::PUT, &path, &object).await).unwrap();
    }
    let plain = ["/version", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/openid/v1/jwks"];
    let slashed: Vec<String> = plain.iter().map(|path| format!("{path}/")).collect();
    grant(&client, "alice", &plain).await;
    grant(&client, "bob", &slashed.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let [alice, bob] = ["alicetoken", "bobtoken"].map(|token| client.as_token(Some(token)));
    for (plain, slashed) in plain.iter().zip(&slashed) {
        assert_eq!(alice.get(plain).await.unwrap().code, 200, "{plain}");
        assert_eq!(alice.get(slashed).await.unwrap().code, 403, "{slashed}");
        assert_eq!(bob.get(slashed).await.unwrap().code, 200, "{slashed}");
        assert_eq!(bob.get(plain).await.unwrap().code, 403, "{plain}");
        assert_eq!(client.get(&format!("{slashed}/")).await.unwrap().code, 404, "{slashed}/");
    }
}

/// As in Kubernetes, an empty namespace segment means all namespaces, for users who may list in all of them. No single object is
/// reachable by it.
#[tokio::test]
async fn an_empty_group_or_namespace_does_not_bypass_authorization() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let role = json!({"metadata": {"name": "all"}, "rules": rules});
    accepts(admin.post(&format!("{rbac}/namespaces/default/roles"), &role).await).unwrap();
    let binding = json!({
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"},
        "subjects": [{"kind": "User", "name": "alice"}],
    });
    accepts(admin.post(&format!("{rbac}/namespaces/default/rolebindings"), &binding).await).unwrap();
    for namespace in ["default", "kube-system"] {
        let secret = json!({"metadata": {"name": "s"}, "data": {"k": "djE="}});
        accepts(admin.post(&format!("/api/v1/namespaces/{namespace}/secrets"), &secret).await).unwrap();
    }
    let alice = admin.as_token(Some("alicetoken"));
    eventually(SOON, async || accepts(alice.get("/api/v1/namespaces/default/secrets/s").await))
        .await
        .unwrap();
    let secret = json!({"metadata": {"name": "t", "namespace": "default"}});
    let bytes = bytes::Bytes::from(secret.to_string());
    let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let codes = async |client: &Client, path: &str| {
        let mut codes = Vec::new();
        for method in &methods {
            let merge = [("content-type", if *method == Method::PATCH { MERGE } else { "application/json" })];
            codes.push(client.send(method.clone(), path, &merge, bytes.clone()).await.unwrap().code);
        }
        codes
    };
    for path in ["secrets", "secrets/s", "secrets?watch=1", "secrets/s?watch=1"] {
        for start in ["/api/v1/namespaces//", "/api/v1/watch/namespaces//"] {
            let path = format!("{start}{path}");
            assert_eq!(codes(&alice, &path).await, [403; 5], "{path}");
        }
        for start in [
            "/apis//v1/",
            "/apis//v1/namespaces/default/",
            "/apis//v1/namespaces//",
            "//api/v1/namespaces/default/",
        ] {
            let path = format!("{start}{path}");
            assert_eq!(codes(&admin, &path).await, [404; 5], "{path}");
        }
        for start in
            ["/api//v1/namespaces/default/", "/api/v1//namespaces/default/", "/api/v1/namespaces/default//"]
        {
            let path = format!("{start}{path}");
            for (method, code) in methods.iter().zip(codes(&admin, &path).await) {
                assert!(matches!(code, 404 | 405), "{method} {path}: {code}");
            }
        }
    }
    // A user who may list all secrets gets the answer of the path without the empty segment.
    let [all, alias] = [admin.get("/api/v1/secrets").await, admin.get("/api/v1/namespaces//secrets").await];
    assert_eq!(accepts(all).unwrap()["items"], accepts(alias).unwrap()["items"]);
    // No object can be read or created by it.
    assert_eq!(codes(&admin, "/api/v1/namespaces//secrets/s").await, [400; 5]);
    assert_eq!(admin.post("/api/v1/namespaces//secrets", &secret).await.unwrap().code, 422);
    assert_eq!(admin.get("/api/v1/namespaces/default/secrets/t").await.unwrap().code, 404);
}
