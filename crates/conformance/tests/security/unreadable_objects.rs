//! Stored objects that the server cannot decode: reads name their key, requests that depend on them are denied, everything else works, and
//! `portcullis store` finds and removes them.

use std::path::Path;
use std::time::Duration;

use conformance::server::run_to_end;
use conformance::{Client, EtcdProcess, HttpResponse, Problem, Server, accepts, eventually, rejects};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::broken_rows::break_row;

const PATIENCE: Duration = Duration::from_secs(40);
/// The check that fails while requests are denied because of an unreadable object.
const CHECK: &str = "informer-sync";
const WITHOUT_CHECK: &str = "/readyz?exclude=informer-sync";

const MAPS: &str = "/api/v1/namespaces/mine/configmaps";
const OTHER_MAPS: &str = "/api/v1/namespaces/other/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const QUOTA: &str = "/api/v1/namespaces/mine/resourcequotas/q";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/mine/widgets";

/// A policy that matches no request, which the server cannot know once it is unreadable.
fn policy() -> Value {
    json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["none.example.com"], "apiVersions": ["*"],
            "operations": ["*"], "resources": ["*"]}]},
        "validations": [{"expression": "false"}],
    }})
}

/// Creates the objects that the tests break, and waits until no controller writes them any more.
async fn fill(client: &Client) {
    let create = async |path: &str, object: Value| {
        accepts(client.post(path, &object).await).unwrap();
    };
    for namespace in ["mine", "other"] {
        create("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        create(&maps, json!({"metadata": {"name": "plain"}, "data": {"k": "v"}})).await;
    }
    for user in ["alice", "bob"] {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
        create(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": user}, "rules": rules})).await;
        let binding = json!({"metadata": {"name": user}, "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}});
        create(&format!("{RBAC}/clusterrolebindings"), binding).await;
    }
    create(POLICIES, policy()).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "100"}}});
    create("/api/v1/namespaces/mine/resourcequotas", quota).await;
    let crd = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetList", "singular": "widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    create(CRDS, crd).await;
    eventually(PATIENCE, async || accepts(client.post(WIDGETS, &widget("w")).await)).await.unwrap();
    eventually(PATIENCE, async || {
        let quota = accepts(client.get(QUOTA).await)?;
        let used = &quota["status"]["used"]["configmaps"];
        if *used == "1" { Ok(()) } else { Err(Problem::new(format!("{used} ConfigMaps are counted"))) }
    })
    .await
    .unwrap();
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// A stopped server's folder, in which the object with this path and key is unreadable.
async fn broken(path: &str, key: &str) -> TempDir {
    let home = TempDir::new().unwrap();
    let mut server = Server::serve_at(home.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    fill(&client).await;
    let stored = accepts(client.get(path).await).unwrap();
    let revision = stored["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    server.terminate().unwrap();
    server.wait(PATIENCE).await.unwrap();
    break_row(&home.path().join("data/store.redb"), key, revision);
    home
}

/// A status 500 that names the key.
fn names_key(answer: conformance::Result<HttpResponse>, key: &str) {
    let status = rejects(answer, 500, "InternalError").unwrap();
    let message = status["message"].as_str().unwrap();
    assert!(message.contains(key), "{message}");
}

/// `/readyz` fails, and its page names the check and the key; the server is alive.
async fn is_not_ready(client: &Client, key: &str) {
    let ready = client.get("/readyz?verbose").await.unwrap();
    assert_eq!(ready.code, 500, "{}", ready.text());
    let page = ready.text();
    let prefix = format!("[-]{CHECK} failed: ");
    let line = page.lines().find(|line| line.starts_with(&prefix)).unwrap_or_default();
    assert!(line.contains(key), "{page}");
    assert_eq!(page.lines().filter(|line| line.starts_with("[-]")).count(), 1, "{page}");
    assert_eq!(client.get("/livez").await.unwrap().code, 200);
}

/// Stops the server; `portcullis store` finds exactly this key and removes it, and then the store is whole.
async fn remove_offline(mut server: Server, key: &str) {
    let flag = format!("--data-dir={}", server.data().display());
    let store = async |args: &[&str]| {
        let all = [&["store"][..], args, &[flag.as_str()]].concat();
        run_to_end(&all, PATIENCE).await.unwrap()
    };
    let (code, said) = store(&["delete-key", key]).await;
    assert!(code == Some(1) && said.contains("is in use by another process"), "{said}");
    server.terminate().unwrap();
    server.wait(PATIENCE).await.unwrap();
    let (code, said) = store(&["check"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("{key}: ")) && said.contains(", 1 cannot be read"), "{said}");
    let (code, said) = store(&["delete-key", key]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("removed {key} (revision ")), "{said}");
    assert!(said.contains("; it could not be read: "), "{said}");
    let (code, said) = store(&["check"]).await;
    assert!(code == Some(0) && said.contains(" 0 cannot be read"), "{said}");
}

/// Starts a server after the removal, with `/readyz` in order.
async fn start_whole(home: &Path) -> (Server, Client) {
    let server = Server::serve_at(home, &[]).await.unwrap();
    let client = server.client().unwrap();
    accepts(client.get(OTHER_MAPS).await).unwrap();
    (server, client)
}

#[tokio::test]
async fn reads_of_an_unreadable_object_name_its_key_and_others_are_unaffected() {
    let key = "/registry/configmaps/other/plain";
    let home = broken(&format!("{OTHER_MAPS}/plain"), key).await;
    // No decision depends on a ConfigMap, so the server is ready.
    let server = Server::serve_at(home.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    for path in [
        format!("{OTHER_MAPS}/plain"),
        OTHER_MAPS.to_owned(),
        "/api/v1/configmaps".to_owned(),
        format!("{OTHER_MAPS}?limit=1"),
        format!("{OTHER_MAPS}?watch=1&resourceVersion=0"),
    ] {
        names_key(client.get(&path).await, key);
    }
    // Neither an update nor a deletion ignores it.
    names_key(client.json(http::Method::PUT, &format!("{OTHER_MAPS}/plain"), &map("plain")).await, key);
    names_key(client.delete(&format!("{OTHER_MAPS}/plain")).await, key);
    accepts(client.get(MAPS).await).unwrap();
    accepts(client.get(&format!("{MAPS}/plain")).await).unwrap();
    accepts(client.get("/api/v1/namespaces/other/secrets").await).unwrap();
    accepts(client.get(WIDGETS).await).unwrap();
    accepts(client.post(OTHER_MAPS, &map("new")).await).unwrap();
    accepts(client.post(MAPS, &map("new")).await).unwrap();
    assert!(server.log().contains(key), "{}", server.log());

    remove_offline(server, key).await;
    let (_server, client) = start_whole(home.path()).await;
    rejects(client.get(&format!("{OTHER_MAPS}/plain")).await, 404, "NotFound").unwrap();
    let left = accepts(client.get(OTHER_MAPS).await).unwrap();
    assert_eq!(left["items"].as_array().unwrap().len(), 1, "{left}");
    accepts(client.post(OTHER_MAPS, &map("plain")).await).unwrap();
}

#[tokio::test]
async fn an_unreadable_policy_denies_every_write_until_it_is_removed() {
    let key = "/registry/validatingadmissionpolicies/p";
    let home = broken(&format!("{POLICIES}/p"), key).await;
    let server = Server::serve_at_until(home.path(), &[], WITHOUT_CHECK).await.unwrap();
    let client = server.client().unwrap();
    is_not_ready(&client, key).await;
    for (path, object) in [(MAPS, map("new")), (OTHER_MAPS, map("new")), (WIDGETS, widget("new"))] {
        names_key(client.post(path, &object).await, key);
    }
    names_key(client.delete(&format!("{OTHER_MAPS}/plain")).await, key);
    names_key(client.get(POLICIES).await, key);
    accepts(client.get(OTHER_MAPS).await).unwrap();
    remove_offline(server, key).await;
    let (_server, client) = start_whole(home.path()).await;
    accepts(client.post(OTHER_MAPS, &map("new")).await).unwrap();
}

#[tokio::test]
async fn an_unreadable_role_grants_nothing_until_it_is_removed() {
    let key = "/registry/clusterroles/alice";
    let home = broken(&format!("{RBAC}/clusterroles/alice"), key).await;
    let server = Server::serve_at_until(home.path(), &[], WITHOUT_CHECK).await.unwrap();
    let client = server.client().unwrap();
    is_not_ready(&client, key).await;
    let (alice, bob) = (client.as_token(Some("alicetoken")), client.as_token(Some("bobtoken")));
    rejects(alice.get(MAPS).await, 403, "Forbidden").unwrap();
    rejects(alice.post(MAPS, &map("new")).await, 403, "Forbidden").unwrap();
    accepts(bob.post(MAPS, &map("new")).await).unwrap();
    names_key(client.get(&format!("{RBAC}/clusterroles")).await, key);
    remove_offline(server, key).await;
    let (_server, client) = start_whole(home.path()).await;
    let role = json!({"metadata": {"name": "alice"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]});
    accepts(client.post(&format!("{RBAC}/clusterroles"), &role).await).unwrap();
    accepts(client.as_token(Some("alicetoken")).get(MAPS).await).unwrap();
}

#[tokio::test]
async fn an_unreadable_quota_denies_writes_in_its_namespace_until_it_is_removed() {
    let key = "/registry/resourcequotas/mine/q";
    let home = broken(QUOTA, key).await;
    let server = Server::serve_at_until(home.path(), &[], WITHOUT_CHECK).await.unwrap();
    let client = server.client().unwrap();
    is_not_ready(&client, key).await;
    names_key(client.post(MAPS, &map("new")).await, key);
    names_key(client.post(WIDGETS, &widget("new")).await, key);
    names_key(client.get(QUOTA).await, key);
    accepts(client.post(OTHER_MAPS, &map("new")).await).unwrap();
    accepts(client.get(MAPS).await).unwrap();
    remove_offline(server, key).await;
    let (_server, client) = start_whole(home.path()).await;
    accepts(client.post(MAPS, &map("new")).await).unwrap();
}

#[tokio::test]
async fn an_unreadable_crd_denies_requests_for_its_resource_until_it_is_removed() {
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com";
    let home = broken(&format!("{CRDS}/widgets.example.com"), key).await;
    let server = Server::serve_at_until(home.path(), &[], WITHOUT_CHECK).await.unwrap();
    let client = server.client().unwrap();
    is_not_ready(&client, key).await;
    names_key(client.get(WIDGETS).await, key);
    names_key(client.get(&format!("{WIDGETS}/w")).await, key);
    names_key(client.post(WIDGETS, &widget("new")).await, key);
    names_key(client.delete(&format!("{WIDGETS}/w")).await, key);
    names_key(client.get(CRDS).await, key);
    accepts(client.post(MAPS, &map("new")).await).unwrap();
    remove_offline(server, key).await;
    let (_server, client) = start_whole(home.path()).await;
    assert_eq!(client.get(WIDGETS).await.unwrap().code, 404);
    accepts(client.get(CRDS).await).unwrap();
}

/// With etcd, another program can break an object while the server runs, and repair it.
#[tokio::test]
async fn a_policy_that_becomes_unreadable_in_etcd_denies_writes_until_it_is_readable_again() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let server = Server::serve(&[&format!("--etcd-servers={}", etcd.url)]).await.unwrap();
    let client = server.client().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    accepts(client.post(POLICIES, &policy()).await).unwrap();
    accepts(client.post(maps, &map("before")).await).unwrap();
    let key = "/registry/validatingadmissionpolicies/p";
    let stored = etcd.list(key).await.unwrap();
    etcd.put(key, "{\"kind\":").await.unwrap();
    eventually(PATIENCE, async || {
        rejects(client.post(&format!("{maps}?dryRun=All"), &map("new")).await, 500, "")
    })
    .await
    .unwrap();
    // Errors of etcd name the key without its prefix, as in Kubernetes.
    let shown = key.trim_start_matches("/registry");
    names_key(client.post(maps, &map("new")).await, shown);
    names_key(client.get(&format!("{POLICIES}/p")).await, shown);
    is_not_ready(&client, shown).await;
    accepts(client.get(&format!("{maps}/before")).await).unwrap();
    etcd.put(key, &stored[0].1).await.unwrap();
    eventually(PATIENCE, async || accepts(client.post(&format!("{maps}?dryRun=All"), &map("new")).await))
        .await
        .unwrap();
    accepts(client.get(&format!("{POLICIES}/p")).await).unwrap();
    assert_eq!(client.get("/readyz").await.unwrap().code, 200);
}
