//! Tests the built-in controllers in a running server: objects they create, restore and delete.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Status, meta};
use authn::InternalIdentity;
use http::Method;
use server::Ephemeral;
use server::client::LoopbackClient;
use value::{Value, json};

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

struct Server {
    ephemeral: Ephemeral,
    admin: LoopbackClient,
}

impl Server {
    async fn start() -> Self {
        let ephemeral = Ephemeral::start().await.unwrap();
        let admin = LoopbackClient::new(Arc::clone(ephemeral.running.state()), InternalIdentity::ApiServer);
        Server { ephemeral, admin }
    }

    /// A server with an additional namespace `n`.
    async fn with_namespace() -> Self {
        let server = Self::start().await;
        server.post("/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
        server
    }

    async fn get(&self, path: &str) -> Option<Value> {
        match self.admin.get(path).await {
            Ok(object) => Some(object),
            Err(status) if status.code() == 404 => None,
            Err(status) => panic!("GET {path}: {status}"),
        }
    }

    async fn post(&self, path: &str, object: &str) -> Value {
        self.try_post(path, object).await.unwrap_or_else(|status| panic!("POST {path}: {status}"))
    }

    async fn try_post(&self, path: &str, object: &str) -> Result<Value, Status> {
        self.admin.create(path, &parse(object)).await
    }

    async fn patch(&self, path: &str, patch: &str) -> Value {
        let outcome = self.admin.merge_patch(path, &parse(patch)).await;
        outcome.unwrap_or_else(|status| panic!("PATCH {path}: {status}"))
    }

    async fn delete(&self, path: &str, options: &str) {
        let outcome = self.admin.delete(path, &parse(options)).await;
        outcome.unwrap_or_else(|status| panic!("DELETE {path}: {status}"));
    }

    /// Polls the object at `path` (`None` if it does not exist) until `as_wanted` accepts it.
    async fn until(&self, path: &str, as_wanted: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.get(path).await;
            if as_wanted(object.as_ref()) {
                return object;
            }
            assert!(Instant::now() < deadline, "{path} stays as it is: {object:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    async fn until_there(&self, path: &str) -> Value {
        self.until(path, |object| object.is_some()).await.unwrap()
    }

    async fn until_gone(&self, path: &str) {
        self.until(path, |object| object.is_none()).await;
    }

    /// Creates a ConfigMap in `n` with this metadata and these owners; the flag is `blockOwnerDeletion`.
    async fn config_map(&self, name: &str, owners: &[(&Value, bool)], metadata: &str) -> Value {
        let mut object = parse(&format!(r#"{{"metadata":{metadata}}}"#));
        object.set_at(&["metadata", "name"], name);
        let references: Vec<Value> = owners
            .iter()
            .map(|(owner, blocks)| {
                let mut reference = Value::map([
                    ("apiVersion", "v1"),
                    ("kind", "ConfigMap"),
                    ("name", meta::name(owner)),
                    ("uid", meta::uid(owner)),
                ]);
                reference.set_at(&["blockOwnerDeletion"], *blocks);
                reference
            })
            .collect();
        object.set_at(&["metadata", "ownerReferences"], references);
        self.admin.create(MAPS, &object).await.unwrap()
    }
}

const MAPS: &str = "/api/v1/namespaces/n/configmaps";

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn map(name: &str) -> String {
    format!("{MAPS}/{name}")
}

fn condition<'a>(namespace: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = namespace.list_at(&["status", "conditions"]).iter();
    conditions.find(|condition| condition.str_at(&["type"]) == Some(kind))
}

#[tokio::test]
async fn every_namespace_gets_a_default_account_and_the_root_ca_config_map() {
    let server = Server::with_namespace().await;
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease", "n"] {
        server.until_there(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/default")).await;
        let published =
            server.until_there(&format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt")).await;
        assert_eq!(published.str_at(&["data", "ca.crt"]), Some(server.ephemeral.ca_pem.as_str()));
        assert!(published.str_at(&["metadata", "annotations", "kubernetes.io/description"]).is_some());
    }
}

#[tokio::test]
async fn deleted_system_namespaces_and_the_kubernetes_service_are_recreated() {
    let server = Server::start().await;
    for path in ["/api/v1/namespaces/kube-node-lease", "/api/v1/namespaces/default/services/kubernetes"] {
        let before = server.until_there(path).await;
        server.delete(path, "{}").await;
        let again = |now: Option<&Value>| now.is_some_and(|now| meta::uid(now) != meta::uid(&before));
        let after = server.until(path, again).await.unwrap();
        assert_eq!(after.at(&["spec", "clusterIP"]), before.at(&["spec", "clusterIP"]));
    }
}

#[tokio::test]
async fn the_default_service_cidr_is_ready_and_recreated_after_deletion() {
    let server = Server::start().await;
    let path = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    let is_ready = |cidr: &Value| {
        let said = cidr.list_at(&["status", "conditions"]).first();
        said.is_some_and(|said| {
            said.str_at(&["type"]) == Some("Ready") && said.str_at(&["status"]) == Some("True")
        })
    };
    let before = server.until(path, |now| now.is_some_and(is_ready)).await.unwrap();
    assert_eq!(before.list_at(&["spec", "cidrs"]).len(), 1);
    server.delete(path, "{}").await;
    let again =
        |now: Option<&Value>| now.is_some_and(|now| meta::uid(now) != meta::uid(&before) && is_ready(now));
    let after = server.until(path, again).await.unwrap();
    assert_eq!(after.at(&["spec"]), before.at(&["spec"]));
}

#[tokio::test]
async fn the_default_account_and_the_root_ca_config_map_are_restored() {
    let server = Server::start().await;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    let before = server.until_there(account).await;
    server.delete(account, "{}").await;
    server.until(account, |now| now.is_some_and(|now| meta::uid(now) != meta::uid(&before))).await;

    let published = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    let before = server.until_there(published).await;
    server.delete(published, "{}").await;
    server.until(published, |now| now.is_some_and(|now| meta::uid(now) != meta::uid(&before))).await;
    server.patch(published, r#"{"data":{"ca.crt":"forged","more":"x"}}"#).await;
    let right = parse(&format!(r#"{{"ca.crt":{:?}}}"#, server.ephemeral.ca_pem));
    server.until(published, |now| now.is_some_and(|now| now.at(&["data"]) == Some(&right))).await;
}

#[tokio::test]
async fn controllers_are_limited_to_their_rbac_roles() {
    let server = Server::start().await;
    server.until_there("/api/v1/namespaces/default/serviceaccounts/default").await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let name = "system:controller:service-account-controller";
    let mut binding = server.get(&format!("{path}/{name}")).await.unwrap();
    server.delete(&format!("{path}/{name}"), "{}").await;

    server.post("/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    server.until_there(&map("kube-root-ca.crt")).await;
    assert_eq!(server.get("/api/v1/namespaces/n/serviceaccounts/default").await, None);

    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        binding.remove_at(&["metadata", field]);
    }
    server.admin.create(path, &binding).await.unwrap();
    server.until_there("/api/v1/namespaces/n/serviceaccounts/default").await;
}

#[tokio::test]
async fn a_namespace_is_emptied_and_deleted_after_its_last_object_finalizer_is_removed() {
    let server = Server::with_namespace().await;
    server.post(MAPS, r#"{"metadata":{"name":"plain"}}"#).await;
    server.post(MAPS, r#"{"metadata":{"name":"held","finalizers":["example.com/held"]}}"#).await;
    server
        .post(
            "/api/v1/namespaces/n/pods",
            r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
        )
        .await;
    let workload = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},
        "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    server.post("/apis/apps/v1/namespaces/n/deployments", workload).await;
    server
        .post("/api/v1/namespaces/n/services", r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#)
        .await;

    server.delete("/api/v1/namespaces/n", "{}").await;
    for gone in [
        map("plain"),
        "/api/v1/namespaces/n/pods/p".to_owned(),
        "/apis/apps/v1/namespaces/n/deployments/d".to_owned(),
        "/api/v1/namespaces/n/services/s".to_owned(),
        "/api/v1/namespaces/n/serviceaccounts/default".to_owned(),
        map("kube-root-ca.crt"),
    ] {
        server.until_gone(&gone).await;
    }
    let remaining = "Some resources are remaining: configmaps. has 1 resource instances";
    let namespace = server
        .until("/api/v1/namespaces/n", |namespace| {
            let condition = namespace.and_then(|n| condition(n, "NamespaceContentRemaining"));
            condition.is_some_and(|c| c.str_at(&["message"]) == Some(remaining))
        })
        .await
        .unwrap();
    assert_eq!(namespace.str_at(&["status", "phase"]), Some("Terminating"));
    let finalizers = condition(&namespace, "NamespaceFinalizersRemaining").unwrap();
    assert_eq!(
        finalizers.str_at(&["message"]),
        Some(
            "Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances"
        )
    );
    let failure = condition(&namespace, "NamespaceDeletionDiscoveryFailure").unwrap();
    assert_eq!(failure.str_at(&["status"]), Some("False"));
    let refused = server.try_post(MAPS, r#"{"metadata":{"name":"late"}}"#).await.unwrap_err();
    assert_eq!(refused.code(), 403);

    server.patch(&map("held"), r#"{"metadata":{"finalizers":null}}"#).await;
    server.until_gone("/api/v1/namespaces/n").await;
    assert_eq!(server.get(&map("held")).await, None);
}

#[tokio::test]
async fn namespace_deletion_removes_pods_before_the_objects_they_use() {
    let server = Server::with_namespace().await;
    server.post(MAPS, r#"{"metadata":{"name":"used"}}"#).await;
    let pod = r#"{"metadata":{"name":"p","finalizers":["example.com/held"]},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    server.post("/api/v1/namespaces/n/pods", pod).await;
    server.delete("/api/v1/namespaces/n", "{}").await;
    server
        .until("/api/v1/namespaces/n", |n| {
            n.is_some_and(|n| condition(n, "NamespaceContentRemaining").is_some())
        })
        .await;
    assert!(meta::is_deleting(&server.get("/api/v1/namespaces/n/pods/p").await.unwrap()));
    assert!(!meta::is_deleting(&server.get(&map("used")).await.unwrap()));
    server.patch("/api/v1/namespaces/n/pods/p", r#"{"metadata":{"finalizers":null}}"#).await;
    server.until_gone("/api/v1/namespaces/n").await;
}

#[tokio::test]
async fn background_deletion_of_an_owner_deletes_its_dependents() {
    let server = Server::with_namespace().await;
    let owner = server.config_map("owner", &[], "{}").await;
    let other = server.config_map("other", &[], "{}").await;
    let child = server.config_map("child", &[(&owner, true)], "{}").await;
    server.config_map("grandchild", &[(&child, false)], "{}").await;
    server.config_map("shared", &[(&owner, false), (&other, false)], "{}").await;

    server.delete(&map("owner"), r#"{"propagationPolicy":"Background"}"#).await;
    assert_eq!(server.get(&map("owner")).await, None, "the owner goes at once");
    server.until_gone(&map("child")).await;
    server.until_gone(&map("grandchild")).await;
    let shared = server
        .until(&map("shared"), |shared| {
            shared.is_some_and(|shared| meta::owner_references(shared).count() == 1)
        })
        .await
        .unwrap();
    assert_eq!(meta::owner_references(&shared).next().unwrap().uid, meta::uid(&other));
    assert!(server.get(&map("other")).await.is_some());
}

#[tokio::test]
async fn foreground_deletion_of_an_owner_waits_for_blocking_dependents() {
    let server = Server::with_namespace().await;
    let owner = server.config_map("owner", &[], "{}").await;
    let child = server.config_map("child", &[(&owner, true)], "{}").await;
    server.config_map("grandchild", &[(&child, true)], r#"{"finalizers":["example.com/held"]}"#).await;

    server.delete(&map("owner"), r#"{"propagationPolicy":"Foreground"}"#).await;
    server.until(&map("grandchild"), |object| object.is_some_and(meta::is_deleting)).await;
    for waiting in ["owner", "child"] {
        let object = server.get(&map(waiting)).await.unwrap();
        assert_eq!(meta::finalizers(&object).collect::<Vec<_>>(), ["foregroundDeletion"]);
    }
    server.patch(&map("grandchild"), r#"{"metadata":{"finalizers":null}}"#).await;
    for gone in ["grandchild", "child", "owner"] {
        server.until_gone(&map(gone)).await;
    }
}

#[tokio::test]
async fn orphaned_dependents_remain_without_owner_references() {
    let server = Server::with_namespace().await;
    let owner = server.config_map("owner", &[], "{}").await;
    let child = server.config_map("child", &[(&owner, true)], "{}").await;
    server.delete(&map("owner"), r#"{"propagationPolicy":"Orphan"}"#).await;
    server.until_gone(&map("owner")).await;
    let orphan = server.get(&map("child")).await.unwrap();
    assert_eq!(meta::uid(&orphan), meta::uid(&child));
    assert_eq!(meta::owner_references(&orphan).count(), 0);
}

#[tokio::test]
async fn an_object_whose_owner_does_not_exist_is_garbage_collected() {
    let server = Server::with_namespace().await;
    let mut never = parse(r#"{"metadata":{"name":"never"}}"#);
    never.set_at(&["metadata", "uid"], "00000000-0000-0000-0000-000000000000");
    server.config_map("dangling", &[(&never, true)], "{}").await;
    server.until_gone(&map("dangling")).await;
    // An owner in another namespace counts as absent, too.
    server.post("/api/v1/namespaces", r#"{"metadata":{"name":"elsewhere"}}"#).await;
    let owner =
        server.post("/api/v1/namespaces/elsewhere/configmaps", r#"{"metadata":{"name":"owner"}}"#).await;
    server.config_map("misled", &[(&owner, true)], "{}").await;
    server.until_gone(&map("misled")).await;
}

#[tokio::test]
async fn rules_of_a_labeled_cluster_role_reach_the_roles_that_aggregate_it() {
    let server = Server::start().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for built_in in ["view", "edit", "admin"] {
        let role = format!("{roles}/{built_in}");
        server.until(&role, |role| role.is_some_and(|r| !r.list_at(&["rules"]).is_empty())).await;
    }
    let widgets = r#"{"metadata":{"name":"widgets","labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}},
        "rules":[{"apiGroups":["example.com"],"resources":["widgets"],"verbs":["get"]}]}"#;
    server.post(roles, widgets).await;
    let rule = parse(r#"{"apiGroups":["example.com"],"resources":["widgets"],"verbs":["get"]}"#);
    for built_in in ["view", "edit", "admin"] {
        let role = format!("{roles}/{built_in}");
        server.until(&role, |role| role.is_some_and(|r| r.list_at(&["rules"]).contains(&rule))).await;
    }
    server.delete(&format!("{roles}/widgets"), "{}").await;
    for built_in in ["view", "edit", "admin"] {
        let role = format!("{roles}/{built_in}");
        server.until(&role, |role| role.is_some_and(|r| !r.list_at(&["rules"]).contains(&rule))).await;
    }
}

#[tokio::test]
async fn deleting_an_unscheduled_pod_does_not_wait_for_its_grace_period() {
    let server = Server::with_namespace().await;
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],"terminationGracePeriodSeconds":3600}}"#;
    server.post("/api/v1/namespaces/n/pods", pod).await;
    server.delete("/api/v1/namespaces/n/pods/p", "{}").await;
    server.until_gone("/api/v1/namespaces/n/pods/p").await;
}

#[tokio::test]
async fn foreground_deletion_removes_many_dependents() {
    let server = Server::with_namespace().await;
    let owner = server.config_map("owner", &[], "{}").await;
    for n in 0..200 {
        server.config_map(&format!("child-{n}"), &[(&owner, true)], r#"{"labels":{"child":"yes"}}"#).await;
    }
    server.delete(&map("owner"), r#"{"propagationPolicy":"Foreground"}"#).await;
    server.until_gone(&map("owner")).await;
    let left = server.get(&format!("{MAPS}?labelSelector=child%3Dyes")).await.unwrap();
    assert_eq!(left.list_at(&["items"]), []);
}

#[tokio::test]
async fn a_server_with_controllers_stops() {
    let server = Server::with_namespace().await;
    server.delete("/api/v1/namespaces/n", "{}").await;
    let Server { ephemeral, .. } = server;
    tokio::time::timeout(PATIENCE, ephemeral.running.stop()).await.expect("it stops");
}

#[tokio::test]
async fn disabled_controllers_create_no_service_accounts() {
    let ephemeral = Ephemeral::start_with(|config| config.controllers.enabled = false).await.unwrap();
    let admin = LoopbackClient::new(Arc::clone(ephemeral.running.state()), InternalIdentity::ApiServer);
    let namespaces =
        admin.request(Method::GET, "/api/v1/serviceaccounts", "application/json", None).await.unwrap();
    assert_eq!(namespaces.list_at(&["items"]), []);
}
