//! Custom resources with the group, kind or plural name of a built-in resource are stored separately, and no part of the server
//! treats them as the built-in one.

use std::fs;
use std::time::Duration;

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RBAC: &str = "rbac.authorization.k8s.io";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A CRD whose versions accept any object. The first version is stored; all are served.
fn crd(group: &str, plural: &str, kind: &str, scope: &str, versions: &[&str]) -> Value {
    let any = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(i, name)| json!({"name": name, "served": true, "storage": i == 0, "schema": any}))
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            // Any user who may create CRDs can set this annotation.
            "annotations": {"api-approved.kubernetes.io": "https://example.com/1"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": versions,
        },
    })
}

/// Creates a CRD and waits until it is served.
async fn define(client: &Client, crd: &Value) {
    accepts(client.post(CRDS, crd).await).unwrap();
    let path = format!("{CRDS}/{}", crd["metadata"]["name"].as_str().unwrap());
    eventually(PATIENCE, async || {
        let stored = accepts(client.get(&path).await)?;
        match condition(&stored, "Established") {
            Some(condition) if condition["status"] == "True" => Ok(()),
            _ => Err(Problem::new(format!("not established: {}", stored["status"]))),
        }
    })
    .await
    .unwrap();
}

pub(crate) fn condition(object: &Value, name: &str) -> Option<Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name).cloned()
}

fn user(name: &str) -> Value {
    json!([{"apiGroup": RBAC, "kind": "User", "name": name}])
}

/// Binds a user to a ClusterRole in the whole cluster, or in a namespace.
async fn bind(admin: &Client, who: &str, role: &str, namespace: Option<&str>) {
    let (path, kind) = match namespace {
        None => (format!("/apis/{RBAC}/v1/clusterrolebindings"), "ClusterRoleBinding"),
        Some(namespace) => (format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"), "RoleBinding"),
    };
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": {"name": format!("{who}-{role}")},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}, "subjects": user(who),
    });
    accepts(admin.post(&path, &binding).await).unwrap();
}

/// A server on which alice administers the namespace `team` and may create CRDs, and has no other permissions.
async fn server_with_an_author_of_crds() -> (Server, Client, Client, Client) {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = (admin.as_token(Some("alicetoken")), admin.as_token(Some("bobtoken")));
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    accepts(admin.post("/api/v1/namespaces", &team).await).unwrap();
    let author = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": "crd-author"},
        "rules": [{"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["*"]}],
    });
    accepts(admin.post(&format!("/apis/{RBAC}/v1/clusterroles"), &author).await).unwrap();
    bind(&admin, "alice", "crd-author", None).await;
    bind(&admin, "alice", "cluster-admin", Some("team")).await;
    (server, admin, alice, bob)
}

#[tokio::test]
async fn a_custom_resource_named_clusterrolebinding_grants_nothing() {
    let (_server, admin, alice, bob) = server_with_an_author_of_crds().await;
    for plural in ["grants", "clusterrolebindings"] {
        let kind = "ClusterRoleBinding";
        let mut crd = crd(RBAC, plural, kind, "Namespaced", &["v9"]);
        if plural == "clusterrolebindings" {
            crd["spec"]["names"]["kind"] = json!("RoleBinding");
            crd["spec"]["names"]["listKind"] = json!("ManyRoleBindings");
            crd["spec"]["names"]["singular"] = json!("other");
        }
        define(&alice, &crd).await;
        let object = json!({
            "apiVersion": format!("{RBAC}/v9"), "kind": crd["spec"]["names"]["kind"], "metadata": {"name": "mine"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": user("alice"),
        });
        let path = format!("/apis/{RBAC}/v9/namespaces/team/{plural}");
        accepts(alice.post(&path, &object).await).unwrap();
        assert_eq!(accepts(alice.get(&format!("{path}/mine")).await).unwrap()["metadata"]["name"], "mine");
    }
    // A real binding that was created later is active, so earlier objects have been processed too.
    rejects(bob.get("/api/v1/pods").await, 403, "Forbidden").unwrap();
    bind(&admin, "bob", "view", None).await;
    accepts(bob.get("/api/v1/pods").await).unwrap();
    rejects(alice.get("/api/v1/secrets").await, 403, "Forbidden").unwrap();
    accepts(alice.get("/api/v1/namespaces/team/secrets").await).unwrap();
    rejects(admin.get(&format!("/apis/{RBAC}/v1/clusterrolebindings/mine")).await, 404, "NotFound").unwrap();
}

#[tokio::test]
async fn a_custom_resource_named_clusterrole_replaces_no_role() {
    let (_server, admin, alice, bob) = server_with_an_author_of_crds().await;
    bind(&admin, "bob", "cluster-admin", None).await;
    accepts(bob.get("/api/v1/secrets").await).unwrap();
    define(&alice, &crd(RBAC, "others", "ClusterRole", "Namespaced", &["v9"])).await;
    let path = format!("/apis/{RBAC}/v9/namespaces/team/others");
    let empty = json!({"apiVersion": format!("{RBAC}/v9"), "kind": "ClusterRole", "metadata": {"name": "cluster-admin"}, "rules": []});
    accepts(alice.post(&path, &empty).await).unwrap();
    bind(&admin, "alice", "view", None).await;
    accepts(alice.get("/api/v1/pods").await).unwrap();
    accepts(bob.get("/api/v1/secrets").await).unwrap();
    accepts(alice.delete(&format!("{path}/cluster-admin")).await).unwrap();
    accepts(bob.get("/api/v1/secrets").await).unwrap();
}

#[tokio::test]
async fn a_custom_resource_is_not_read_as_a_certificate_signing_request() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let (group, plural, kind) =
        ("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest");
    define(&client, &crd(group, plural, kind, "Cluster", &["v9"])).await;
    let forged = json!({
        "apiVersion": format!("{group}/v9"), "kind": kind, "metadata": {"name": "forged"},
        "spec": {"request": "Zm9yZ2Vk", "signerName": "example.com/signer", "username": "system:admin"},
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    });
    accepts(client.post(&format!("/apis/{group}/v9/{plural}"), &forged).await).unwrap();
    accepts(client.get(&format!("/apis/{group}/v9/{plural}/forged")).await).unwrap();
    rejects(client.get(&format!("/apis/{group}/v1/{plural}/forged")).await, 404, "NotFound").unwrap();
    let listed = accepts(client.get(&format!("/apis/{group}/v1/{plural}")).await).unwrap();
    assert_eq!(listed["items"], json!([]));
}

/// A static policy that denies deleting NetworkPolicies.
fn deny_deletion() -> (TempDir, String) {
    let root = TempDir::new().unwrap();
    let folder = root.path().join("policies");
    fs::create_dir(&folder).unwrap();
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "keep.static.k8s.io"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["networkpolicies"],
            }]},
            "validations": [{"expression": "false", "message": "network policies stay"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "keep-binding.static.k8s.io"},
        "spec": {"policyName": "keep.static.k8s.io", "validationActions": ["Deny"]},
    });
    fs::write(folder.join("keep.yaml"), format!("{policy}\n---\n{binding}\n")).unwrap();
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionPolicy", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ValidatingAdmissionPolicyConfiguration", "staticManifestsDir": folder,
        }}],
    });
    let file = root.path().join("admission.yaml");
    fs::write(&file, configuration.to_string()).unwrap();
    let flag = format!("--admission-control-config-file={}", file.display());
    (root, flag)
}

const GUARDS: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
const CUSTOM_GUARDS: &str = "/apis/networking.k8s.io/v9/namespaces/default/networkpolicies";

fn guard(version: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("networking.k8s.io/{version}"), "kind": "NetworkPolicy",
        "metadata": {"name": name}, "spec": {"podSelector": {}},
    })
}

#[tokio::test]
async fn protected_objects_cannot_be_deleted_through_another_version() {
    let (_root, flag) = deny_deletion();
    let server = Server::serve(&[&flag]).await.unwrap();
    let client = server.client().unwrap();
    let made = accepts(client.post(GUARDS, &guard("v1", "guard")).await).unwrap();
    rejects(client.delete(&format!("{GUARDS}/guard")).await, 422, "Invalid").unwrap();
    let there = async || {
        let now = accepts(client.get(&format!("{GUARDS}/guard")).await).unwrap();
        assert_eq!(now["metadata"]["uid"], made["metadata"]["uid"]);
    };
    // The second CRD's storage version has the name of the built-in one.
    for versions in [&["v9"][..], &["v1", "v9"]] {
        let crd = crd("networking.k8s.io", "networkpolicies", "NetworkPolicy", "Namespaced", versions);
        define(&client, &crd).await;
        rejects(client.delete(&format!("{CUSTOM_GUARDS}/guard")).await, 404, "NotFound").unwrap();
        accepts(client.delete(CUSTOM_GUARDS).await).unwrap();
        there().await;
        // An object with the same name is another object.
        accepts(client.post(CUSTOM_GUARDS, &guard("v9", "guard")).await).unwrap();
        there().await;
        accepts(client.delete(&format!("{CUSTOM_GUARDS}/guard")).await).unwrap();
        there().await;
        // The garbage collector and the deletion of the CRD delete the custom resource.
        let mut owned = guard("v9", "guard");
        owned["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000001",
        }]);
        accepts(client.post(CUSTOM_GUARDS, &owned).await).unwrap();
        eventually(PATIENCE, async || {
            rejects(client.get(&format!("{CUSTOM_GUARDS}/guard")).await, 404, "NotFound").map(drop)
        })
        .await
        .unwrap();
        there().await;
        accepts(client.post(CUSTOM_GUARDS, &guard("v9", "guard")).await).unwrap();
        let path = format!("{CRDS}/networkpolicies.networking.k8s.io");
        accepts(client.delete(&path).await).unwrap();
        eventually(PATIENCE, async || rejects(client.get(&path).await, 404, "NotFound").map(drop))
            .await
            .unwrap();
        there().await;
        assert_eq!(client.get(CUSTOM_GUARDS).await.unwrap().code, 404);
    }
}

#[tokio::test]
async fn a_crd_with_the_storage_of_a_built_in_resource_is_rejected() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    for (group, plural, kind) in [
        ("apiregistration.k8s.io", "apiservices", "APIService"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
    ] {
        for scope in ["Cluster", "Namespaced"] {
            let refused =
                rejects(client.post(CRDS, &crd(group, plural, kind, scope, &["v9"])).await, 422, "Invalid");
            let cause = &refused.unwrap()["details"]["causes"][0];
            assert_eq!(cause["field"], "spec.names.plural");
            assert!(cause["message"].as_str().unwrap().contains("is a built-in resource"), "{cause}");
        }
        // Other names of the group are accepted.
        define(&client, &crd(group, "others", "Other", "Cluster", &["v9"])).await;
    }
    // Accepted names in the status do not bypass the check.
    let path = format!("{CRDS}/others.apiextensions.k8s.io/status");
    let mut stored = accepts(client.get(&path).await).unwrap();
    stored["status"]["acceptedNames"]["plural"] = json!("customresourcedefinitions");
    accepts(client.json(http::Method::PUT, &path, &stored).await).unwrap();
    rejects(client.get("/apis/apiextensions.k8s.io/v9/customresourcedefinitions").await, 404, "NotFound")
        .unwrap_or_else(|problem| {
            // Unknown paths are answered in plain text.
            assert!(problem.to_string().contains("404"), "{problem}");
            Value::Null
        });
    accepts(client.get(&format!("{CRDS}/others.apiextensions.k8s.io")).await).unwrap();
}
