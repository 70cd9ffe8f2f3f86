//! Subresources cannot create objects or change parts that belong to the main resource.

use std::collections::BTreeSet;

use bytes::Bytes;
use conformance::{Client, HttpResponse, Server, accepts, eventually, rejects, script};
use http::Method;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

struct DiscoveredSubresource {
    group_version: String,
    namespaced: bool,
    parent: String,
    parent_kind: String,
    name: String,
    kind: String,
    verbs: Vec<String>,
}

impl DiscoveredSubresource {
    fn collection(&self) -> String {
        let root = if self.group_version.contains('/') { "/apis" } else { "/api" };
        let namespace = if self.namespaced { "/namespaces/default" } else { "" };
        format!("{root}/{}{namespace}/{}", self.group_version, self.parent)
    }

    /// The body that a client would send for an object with this name.
    fn body(&self, name: &str) -> Value {
        let (api_version, kind) = match self.name.as_str() {
            "scale" => ("autoscaling/v1", "Scale"),
            "token" => ("authentication.k8s.io/v1", "TokenRequest"),
            "eviction" => ("policy/v1", "Eviction"),
            "binding" => ("v1", "Binding"),
            _ => (self.group_version.as_str(), self.parent_kind.as_str()),
        };
        let mut body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        match self.name.as_str() {
            "binding" => body["target"] = json!({"kind": "Node", "name": "node"}),
            "scale" => body["spec"] = json!({"replicas": 1}),
            "token" => body["spec"] = json!({}),
            _ => {}
        }
        if self.parent == "services" {
            body["spec"] =
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80}]});
        }
        body
    }
}

/// Every subresource of every resource in discovery.
async fn subresources(client: &Client) -> Vec<DiscoveredSubresource> {
    let mut lists = vec![accepts(client.get("/api/v1").await).unwrap()];
    let groups = accepts(client.get("/apis").await).unwrap();
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            lists.push(accepts(client.get(&path).await).unwrap());
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for list in lists {
        let resources = list["resources"].as_array().unwrap();
        for resource in resources {
            let full = text(&resource["name"]);
            let Some((parent, name)) = full.split_once('/') else { continue };
            let of_parent = resources.iter().find(|other| other["name"] == parent).unwrap();
            found.push(DiscoveredSubresource {
                group_version: text(&list["groupVersion"]),
                namespaced: resource["namespaced"] == true,
                parent: parent.to_owned(),
                parent_kind: text(&of_parent["kind"]),
                name: name.to_owned(),
                kind: text(&resource["kind"]),
                verbs: resource["verbs"].as_array().unwrap().iter().map(text).collect(),
            });
        }
    }
    found
}

/// A CRD with both subresources, beside the built-in resources.
async fn define_gauges(client: &Client) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        }},
    });
    let crd = json!({
        "metadata": {"name": "gauges.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "gauges", "singular": "gauge", "kind": "Gauge", "listKind": "GaugeList"},
        },
    });
    accepts(client.post(CRDS, &crd).await).unwrap();
    let path = "/apis/example.com/v1/namespaces/default/gauges";
    eventually(std::time::Duration::from_secs(20), async || accepts(client.get(path).await)).await.unwrap();
}

async fn patch(client: &Client, path: &str, media_type: &str, body: &Value) -> HttpResponse {
    let body = Bytes::from(serde_json::to_vec(body).unwrap());
    client.send(Method::PATCH, path, &[("content-type", media_type)], body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_to_subresources_of_missing_objects_create_no_object() {
    let server = Server::serve(&["--runtime-config=api/all=true"]).await.unwrap();
    let client = server.client().unwrap();
    define_gauges(&client).await;
    let all = subresources(&client).await;
    let mut tried = BTreeSet::new();
    for subresource in all.iter().filter(|s| !CONNECTED.contains(&s.name.as_str())) {
        let name = "made-by-subresource";
        let collection = subresource.collection();
        let path = format!("{collection}/{name}/{}", subresource.name);
        let body = subresource.body(name);
        let replace = json!([{"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}]);
        let custom = subresource.group_version == "example.com/v1";
        let mut answers: Vec<(String, HttpResponse)> = Vec::new();
        for query in ["", "dryRun=All"] {
            if subresource.verbs.iter().any(|verb| verb == "update") {
                let answer = client.json(Method::PUT, &format!("{path}?{query}"), &body).await.unwrap();
                answers.push((format!("PUT {query}"), answer));
            }
            if subresource.verbs.iter().any(|verb| verb == "patch") {
                let types = [(MERGE, &body), (STRATEGIC, &body), (JSON_PATCH, &replace)];
                for (media_type, body) in types.into_iter().filter(|(t, _)| !(custom && *t == STRATEGIC)) {
                    let answer = patch(&client, &format!("{path}?{query}"), media_type, body).await;
                    answers.push((format!("{media_type} {query}"), answer));
                }
                let applied = format!("{path}?fieldManager=attacker&force=true&{query}");
                answers.push((format!("apply {query}"), patch(&client, &applied, APPLY, &body).await));
            }
            let posted = ["binding", "eviction", "token"].contains(&subresource.name.as_str());
            if posted && subresource.verbs.iter().any(|verb| verb == "create") {
                let answer = client.post(&format!("{path}?{query}"), &body).await.unwrap();
                answers.push((format!("POST {query}"), answer));
            }
        }
        let what = format!("{} {}/{}", subresource.group_version, subresource.parent, subresource.name);
        for (how, answer) in &answers {
            assert_eq!(answer.code, 404, "{what}, {how} ({}): {}", subresource.kind, answer.text());
            let details = &answer.json()["details"];
            assert_eq!(details["kind"], subresource.parent.as_str(), "{what}, {how}: {}", answer.text());
            assert_eq!(answer.json()["reason"], "NotFound", "{what}, {how}");
        }
        let left = client.get(&format!("{collection}/{name}")).await.unwrap();
        assert_eq!(left.code, 404, "{what} left an object behind: {}", left.text());
        if !answers.is_empty() {
            tried.insert(what);
        }
    }
    // The count is exact, so that a lost case is noticed.
    assert_eq!(tried.len(), TRIED, "{tried:#?}");
}

/// Subresources that connect to a node and write nothing.
const CONNECTED: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Subresources that accept writes, over all served versions, with `gauges` of the test.
const TRIED: usize = 52;

#[tokio::test]
async fn a_status_write_cannot_take_the_address_of_the_kubernetes_service() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let role = json!({
        "metadata": {"name": "status-writer"},
        "rules": [{"apiGroups": [""], "resources": ["services/status", "services"],
                   "verbs": ["update", "patch", "create"]}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    accepts(admin.post(&format!("{rbac}/clusterroles"), &role).await).unwrap();
    let binding = json!({
        "metadata": {"name": "status-writer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "status-writer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    accepts(admin.post(&format!("{rbac}/clusterrolebindings"), &binding).await).unwrap();
    let alice = admin.as_token(Some("alicetoken"));
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "thief"},
        "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 443}]},
    });
    let path = format!("{SERVICES}/thief/status");
    rejects(alice.json(Method::PUT, &path, &service).await, 404, "NotFound").unwrap();
    let applied = patch(&alice, &format!("{path}?fieldManager=a"), APPLY, &service).await;
    assert_eq!(applied.code, 404, "{}", applied.text());
    // A PUT may create the service itself, with an address from the allocator.
    rejects(alice.json(Method::PUT, &format!("{SERVICES}/thief"), &service).await, 422, "Invalid").unwrap();
    let mut honest = service.clone();
    honest["spec"] = json!({"ports": [{"port": 443}]});
    let made = accepts(alice.json(Method::PUT, &format!("{SERVICES}/thief"), &honest).await).unwrap();
    assert_ne!(made["spec"]["clusterIP"], "10.0.0.1");
    // The status of an existing service can be written.
    let mut there = made.clone();
    there["status"]["conditions"] = json!([{
        "type": "example.com/Seen", "status": "True", "reason": "Test", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    accepts(alice.json(Method::PUT, &path, &there).await).unwrap();
}

/// Kinds whose metadata a status write cannot change at all, as in Kubernetes.
const METADATA_UNCHANGED: &[&str] = &[
    "APIService",
    "CSINode",
    "DeviceTaintRule",
    "FlowSchema",
    "Gauge",
    "PodCertificateRequest",
    "PriorityLevelConfiguration",
    "ResourceClaim",
    "ServiceCIDR",
    "StorageVersionMigration",
    "ValidatingAdmissionPolicy",
    "VolumeAttachment",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_status_write_changes_only_status_and_permitted_metadata() {
    let server = Server::serve(&["--runtime-config=api/all=true"]).await.unwrap();
    let client = server.client().unwrap();
    define_gauges(&client).await;
    let with_status: BTreeSet<(String, String)> = subresources(&client)
        .await
        .into_iter()
        .filter(|s| s.name == "status")
        .map(|s| (s.collection(), s.parent_kind))
        .collect();
    let kinds = script::load("kinds").unwrap();
    let gauge = json!({"path": "/apis/example.com/v1/namespaces/default/gauges", "kind": "Gauge",
        "object": {"apiVersion": "example.com/v1", "kind": "Gauge", "metadata": {"name": "k-{id}"}, "spec": {"a": 1}}});
    let mut each: Vec<Value> = kinds.rounds.iter().map(|vars| json!(vars)).collect();
    each.push(gauge);
    let mut checked = 0;
    // An existing owner, so that the garbage collector does not delete the objects.
    let namespace = accepts(client.get("/api/v1/namespaces/default").await).unwrap();
    let owner = json!({
        "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": namespace["metadata"]["uid"],
    });
    for (index, vars) in each.into_iter().enumerate() {
        let id = format!("s{index}");
        let text = serde_json::to_string(&vars).unwrap().replace("{ns}", "default").replace("{id}", &id);
        let vars: Value = serde_json::from_str(&text).unwrap();
        let collection = vars["path"].as_str().unwrap().to_owned();
        let kind = vars["kind"].as_str().unwrap().to_owned();
        if !with_status.contains(&(collection.clone(), kind.clone())) {
            continue;
        }
        let made = accepts(client.post(&collection, &vars["object"]).await).unwrap();
        let path = format!("{collection}/{}", made["metadata"]["name"].as_str().unwrap());
        let attack = json!({
            "spec": null,
            "metadata": {
                "labels": {"attack": "yes"}, "annotations": {"attack": "yes"},
                "finalizers": ["example.com/attack"], "ownerReferences": [owner],
            },
        });
        let answer = patch(&client, &format!("{path}/status"), MERGE, &attack).await;
        assert!(answer.code == 200 || answer.code == 422, "{kind}: {}", answer.text());
        let now = accepts(client.get(&path).await).unwrap();
        assert_eq!(now["spec"], made["spec"], "{kind}: a status write changed the spec");
        assert_eq!(now["metadata"]["generation"], made["metadata"]["generation"], "{kind}");
        assert_eq!(now["metadata"]["uid"], made["metadata"]["uid"], "{kind}");
        let is_unchanged = |field: &str| now["metadata"][field] == made["metadata"][field];
        if METADATA_UNCHANGED.contains(&kind.as_str()) {
            for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
                assert!(is_unchanged(field), "{kind}: a status write changed metadata.{field}: {now}");
            }
        }
        if kind == "Pod" {
            assert!(is_unchanged("ownerReferences"), "{now}");
        }
        if kind == "Deployment" {
            assert!(is_unchanged("labels"), "{now}");
        }
        checked += 1;
    }
    assert_eq!(checked, WITH_STATUS);
}

/// The kinds of `scripts/kinds.yaml` with a status, and `Gauge`.
const WITH_STATUS: usize = 21;
