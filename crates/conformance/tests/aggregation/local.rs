//! APIServices of the groups that this server serves itself.

use conformance::{Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::both_servers::{
    FISCHERS, GROUP, NAME, PATIENCE, SERVICES, fischers, start_both, wait_for_condition,
    without_aggregated_discovery,
};

#[tokio::test]
async fn built_in_groups_and_crds_have_apiservices() {
    let folder = TempDir::new().unwrap();
    let mut server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    let list = accepts(client.get(SERVICES).await).unwrap();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 22, "{names:?}");
    for item in list["items"].as_array().unwrap() {
        assert_eq!(item["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "onstart");
        assert_eq!(item["status"]["conditions"][0]["reason"], "Local");
        assert_eq!(item["status"]["conditions"][0]["message"], "Local APIServices are always available");
    }

    let crd = json!({"metadata": {"name": "crontabs.stable.example.com"}, "spec": {"group": "stable.example.com", "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    accepts(client.post(crds, &crd).await).unwrap();
    let own = format!("{SERVICES}/v1.stable.example.com");
    let there = async || eventually(PATIENCE, async || accepts(client.get(&own).await)).await.unwrap();
    let first = there().await;
    assert_eq!(first["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!(
        first["spec"],
        json!({"group": "stable.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100})
    );
    rejects(client.get(&format!("{SERVICES}/v2.stable.example.com")).await, 404, "NotFound").unwrap();

    // A deleted APIService is created again, and a changed one is restored.
    accepts(client.delete(&own).await).unwrap();
    assert_ne!(there().await["metadata"]["uid"], first["metadata"]["uid"]);
    let patch = json!({"spec": {"groupPriorityMinimum": 7}});
    accepts(
        client
            .send(
                Method::PATCH,
                &own,
                &[("content-type", "application/merge-patch+json")],
                patch.to_string().into(),
            )
            .await,
    )
    .unwrap();
    eventually(PATIENCE, async || match there().await["spec"]["groupPriorityMinimum"].as_i64() {
        Some(1000) => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    })
    .await
    .unwrap();
    accepts(client.delete(&format!("{crds}/crontabs.stable.example.com")).await).unwrap();
    eventually(PATIENCE, async || rejects(client.get(&own).await, 404, "NotFound")).await.unwrap();

    // Built-in ones are restored only at the next start; their resources are served all the same.
    accepts(client.delete(&format!("{SERVICES}/v1.apps")).await).unwrap();
    eventually(PATIENCE, async || {
        let list = accepts(client.get("/apis").await)?;
        if list["groups"].as_array().unwrap().iter().all(|group| group["name"] != "apps") {
            Ok(())
        } else {
            Err(Problem::new("listed"))
        }
    })
    .await
    .unwrap();
    accepts(client.get("/apis/apps").await).unwrap();
    accepts(client.get("/apis/apps/v1/deployments").await).unwrap();
    server.kill().unwrap();
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    accepts(client.get(&format!("{SERVICES}/v1.apps")).await).unwrap();
}

#[tokio::test]
async fn an_apiservice_with_a_service_takes_precedence_over_a_crd() {
    let (_server, client, extension) = start_both(without_aggregated_discovery).await;
    let crd = json!({"metadata": {"name": "fischers.wardle.example.com"}, "spec": {"group": GROUP, "scope": "Cluster",
        "names": {"plural": "fischers", "kind": "Fischer"}, "versions": [
            {"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    accepts(client.post(crds, &crd).await).unwrap();
    eventually(PATIENCE, async || {
        let stored = accepts(client.get(&format!("{crds}/fischers.wardle.example.com")).await)?;
        let conditions = stored["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True") {
            Ok(())
        } else {
            Err(Problem::new("not established"))
        }
    })
    .await
    .unwrap();
    assert_eq!(accepts(client.get(FISCHERS).await).unwrap(), fischers());
    assert!(!extension.received_for_others().is_empty());
    // Without the APIService, the CRD serves the group and registers itself.
    accepts(client.delete(&format!("{SERVICES}/{NAME}")).await).unwrap();
    let list = eventually(PATIENCE, async || {
        let list = accepts(client.get(FISCHERS).await)?;
        if list["items"].as_array().is_some_and(Vec::is_empty) {
            Ok(list)
        } else {
            Err(Problem::new(list.to_string()))
        }
    })
    .await
    .unwrap();
    assert_eq!(list["kind"], "FischerList");
    wait_for_condition(&client, NAME, "True", "Local").await;
}
