//! A CRD cannot add resources to a group version that the server serves itself, so no kind of it changes its resource in discovery.

use std::time::Duration;

use conformance::{Client, Problem, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PATIENCE: Duration = Duration::from_secs(30);

/// A CRD in a group of Kubernetes, with the annotation that its author writes.
fn crd(group: &str, plural: &str, kind: &str, versions: &[&str]) -> Value {
    let version = |(position, name): (usize, &&str)| {
        json!({"name": name, "served": true, "storage": position == 0,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!({
        "metadata": {"name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}

async fn establish(client: &Client, crd: &Value) -> String {
    accepts(client.post(CRDS, crd).await).unwrap();
    let path = format!("{CRDS}/{}", crd["metadata"]["name"].as_str().unwrap());
    eventually(PATIENCE, async || {
        let found = accepts(client.get(&path).await)?;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_true = |name: &str| conditions.iter().any(|c| c["type"] == name && c["status"] == "True");
        if is_true("Established") && is_true("NamesAccepted") {
            Ok(())
        } else {
            Err(Problem::new(format!("not established: {conditions:?}")))
        }
    })
    .await
    .unwrap();
    path
}

async fn is_deleted(client: &Client, path: &str) {
    accepts(client.delete(path).await).unwrap();
    let is_gone = async || match client.get(path).await?.code {
        404 => Ok(()),
        _ => Err(Problem::new(format!("{path} still exists"))),
    };
    eventually(PATIENCE, is_gone).await.unwrap();
}

/// Everything by which a client maps the kinds of a group version to paths.
async fn discovery_of(client: &Client, group: &str, version: &str) -> Vec<String> {
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let list = client.send(Method::GET, "/apis", &[("accept", aggregated)], Vec::new().into()).await;
    let list = accepts(list).unwrap();
    let groups = list["items"].as_array().unwrap();
    let found = groups.iter().find(|found| found["metadata"]["name"] == group).unwrap();
    let versions = found["versions"].as_array().unwrap();
    let of_version = versions.iter().find(|found| found["version"] == version).unwrap();
    let plain = accepts(client.get(&format!("/apis/{group}/{version}")).await).unwrap();
    let v3 = accepts(client.get(&format!("/openapi/v3/apis/{group}/{version}")).await).unwrap();
    let v2 = accepts(client.get("/openapi/v2").await).unwrap();
    let paths = |document: &Value| {
        let of_version = format!("/apis/{group}/{version}/");
        let paths = document["paths"].as_object().unwrap().keys();
        let mut paths: Vec<&String> = paths.filter(|path| path.starts_with(&of_version)).collect();
        paths.sort();
        format!("{paths:?}")
    };
    vec![of_version.to_string(), plain.to_string(), paths(&v3), paths(&v2)]
}

#[tokio::test]
async fn a_crd_changes_no_kind_of_a_built_in_group_version_in_discovery() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    for (group, plural, kind) in [
        ("admissionregistration.k8s.io", "zpolicies", "ValidatingAdmissionPolicy"),
        ("rbac.authorization.k8s.io", "zbindings", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole"),
    ] {
        let before = discovery_of(&client, group, "v1").await;
        let path = establish(&client, &crd(group, plural, kind, &["v1", "v9"])).await;
        // The other version shows that the CRD is in force.
        let objects = format!("/apis/{group}/v9/namespaces/default/{plural}");
        eventually(PATIENCE, async || accepts(client.get(&objects).await)).await.unwrap();
        let other = accepts(client.get(&format!("/apis/{group}/v9")).await).unwrap();
        assert_eq!(other["resources"][0]["name"], plural, "{other}");
        assert_eq!(discovery_of(&client, group, "v1").await, before, "{plural}");
        let taken = objects.replace("/v9/", "/v1/");
        assert_eq!(client.get(&taken).await.unwrap().code, 404, "{taken}");
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "o"}});
        assert_eq!(client.post(&taken, &object).await.unwrap().code, 404, "{taken}");

        let object = json!({"apiVersion": format!("{group}/v9"), "kind": kind, "metadata": {"name": "o"}});
        accepts(client.post(&objects, &object).await).unwrap();
        is_deleted(&client, &path).await;
    }
}

#[tokio::test]
async fn a_crd_whose_paths_built_in_resources_have_can_be_deleted() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let before = accepts(client.get(roles).await).unwrap()["items"].as_array().unwrap().len();
    for (plural, kind) in [("clusterroles", "ClusterRole"), ("zroles", "ClusterRole")] {
        let path = establish(&client, &crd("rbac.authorization.k8s.io", plural, kind, &["v1"])).await;
        is_deleted(&client, &path).await;
    }
    let after = accepts(client.get(roles).await).unwrap()["items"].as_array().unwrap().len();
    assert_eq!(after, before, "the built-in objects remain");
}

/// Objects that were stored while the server did not serve the group version are deleted with their CRD, finalizers or not.
#[tokio::test]
async fn unreachable_objects_are_deleted_with_their_crd() {
    let group = "resource.k8s.io";
    let plural = "resourceclaims";
    let folder = tempfile::tempdir().unwrap();
    let without_v1 = ["--runtime-config=resource.k8s.io/v1=false"];
    let mut server = Server::serve_at(folder.path(), &without_v1).await.unwrap();
    let client = server.client().unwrap();
    let crd = crd(group, plural, "ResourceClaim", &["v1"]);
    let path = establish(&client, &crd).await;
    let objects = format!("/apis/{group}/v1/namespaces/default/{plural}");
    let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "o", "finalizers": ["example.com/blocks"]}, "evil": true});
    eventually(PATIENCE, async || accepts(client.post(&objects, &object).await)).await.unwrap();
    server.kill().unwrap();
    let mut server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    let list = accepts(client.get(&objects).await).unwrap();
    assert_eq!(list["items"], json!([]), "the built-in resource has the path");
    is_deleted(&client, &path).await;
    server.kill().unwrap();
    let server = Server::serve_at(folder.path(), &without_v1).await.unwrap();
    let client = server.client().unwrap();
    establish(&client, &crd).await;
    let list = eventually(PATIENCE, async || accepts(client.get(&objects).await)).await.unwrap();
    assert_eq!(list["items"], json!([]), "the objects were deleted");
}
