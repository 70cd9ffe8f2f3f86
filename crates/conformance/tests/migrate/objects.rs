//! Objects of many kinds, written and read through a server.

use conformance::{Client, accepts, eventually};
use serde_json::{Map, Value, json};

use super::PATIENCE;

const CORE: &str = "/api/v1/namespaces/default";

/// The collections and objects that a migration must preserve.
fn manifests() -> Vec<(String, Value)> {
    let core = |plural: &str| format!("{CORE}/{plural}");
    let group = |version: &str, plural: &str| format!("/apis/{version}/namespaces/default/{plural}");
    let pod =
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}]});
    vec![
        (core("configmaps"), json!({"metadata": {"name": "m", "labels": {"a": "b"}}, "data": {"k": "ä\n"}})),
        (core("secrets"), json!({"metadata": {"name": "m"}, "type": "Opaque", "data": {"k": "AAEC"}})),
        (core("pods"), json!({"metadata": {"name": "m"}, "spec": pod})),
        (
            core("services"),
            json!({"metadata": {"name": "m"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
        ),
        (
            core("events"),
            json!({"metadata": {"name": "m"}, "involvedObject": {"namespace": "default", "name": "m", "kind": "Pod"},
                   "reason": "Tested", "message": "x", "type": "Normal"}),
        ),
        (
            group("rbac.authorization.k8s.io/v1", "roles"),
            json!({"metadata": {"name": "m"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        (
            group("apps/v1", "deployments"),
            json!({"metadata": {"name": "m"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
                   "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}}),
        ),
        (
            group("autoscaling/v2", "horizontalpodautoscalers"),
            json!({"metadata": {"name": "m"}, "spec": {"maxReplicas": 3,
                   "scaleTargetRef": {"kind": "Deployment", "name": "m", "apiVersion": "apps/v1"}}}),
        ),
        (
            group("coordination.k8s.io/v1", "leases"),
            json!({"metadata": {"name": "m"}, "spec": {"holderIdentity": "h", "leaseDurationSeconds": 7,
                   "renewTime": "2026-01-02T03:04:05.678901Z"}}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            json!({"metadata": {"name": "wheels.migrate.example.com"}, "spec": {"group": "migrate.example.com", "scope": "Namespaced",
                   "names": {"plural": "wheels", "kind": "Wheel"},
                   "versions": [{"name": "v1", "served": true, "storage": true,
                                 "selectableFields": [{"jsonPath": ".spec.size"}],
                                 "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                                     "properties": {"size": {"type": "string"}, "spokes": {"type": "integer", "default": 8}}}}}}}]}}),
        ),
        (
            "/apis/apiregistration.k8s.io/v1/apiservices".to_owned(),
            json!({"metadata": {"name": "v1.other.example.com"}, "spec": {"group": "other.example.com", "version": "v1",
                   "groupPriorityMinimum": 10, "versionPriority": 10, "service": {"namespace": "default", "name": "none"}}}),
        ),
        (
            group("migrate.example.com/v1", "wheels"),
            json!({"apiVersion": "migrate.example.com/v1", "kind": "Wheel", "metadata": {"name": "m"}, "spec": {"size": "big"}}),
        ),
    ]
}

/// Creates all objects through a server.
pub(crate) async fn create(client: &Client) {
    for (path, object) in manifests() {
        let created = eventually(PATIENCE, async || accepts(client.post(&path, &object).await)).await;
        created.unwrap_or_else(|problem| panic!("{path}: {problem}"));
    }
}

/// The responses to a GET of each object, without revisions; by path.
pub(crate) async fn read(client: &Client) -> Map<String, Value> {
    let mut all = Map::new();
    for (path, object) in manifests() {
        let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
        let got = eventually(PATIENCE, async || accepts(client.get(&path).await)).await;
        let mut got = got.unwrap_or_else(|problem| panic!("{path}: {problem}"));
        got["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        // The APIService is not available, at changing times.
        if path.contains("apiservices") {
            got.as_object_mut().unwrap().remove("status");
        }
        all.insert(path, got);
    }
    all
}
