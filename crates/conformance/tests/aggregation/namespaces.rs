//! Deletion of namespaces with resources of aggregated API servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use conformance::aggregated_server::{AggregatedReply, Received};
use conformance::{Client, Problem, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::both_servers::{
    AGGREGATED, GROUP, NAME, PATIENCE, ROOT, SERVICES, start_both, wait_for_condition,
};
use crate::discovery::{aggregated, group};

const NAMESPACES: &str = "/api/v1/namespaces";
const FLUNDERS: &str = "/apis/wardle.example.com/v1alpha1/namespaces/ponds/flunders";

/// A server with `count` flunders in the namespace `ponds`; each deletion of the collection removes one.
fn server_with_flunders(
    left: Arc<AtomicUsize>,
) -> impl Fn(&Received) -> AggregatedReply + Send + Sync + 'static {
    let resource = json!({"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
        "verbs": ["list", "delete", "deletecollection"]});
    let fixed = json!({"name": "fixtures", "singularName": "fixture", "namespaced": true, "kind": "Fixture", "verbs": ["list"]});
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1",
        "resources": [resource, fixed]});
    move |received| match (&received.method, received.path()) {
        (_, ROOT) => AggregatedReply::Json(200, list.clone()),
        (&Method::DELETE, FLUNDERS) => {
            let _ = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            AggregatedReply::Json(200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
        }
        (_, FLUNDERS) => {
            let item =
                json!({"metadata": {"name": "f", "namespace": "ponds", "finalizers": ["example.com/slow"]}});
            let items = vec![item; left.load(Ordering::SeqCst)];
            AggregatedReply::Json(
                200,
                json!({"kind": "FlunderList", "apiVersion": "wardle.example.com/v1alpha1", "metadata": {}, "items": items}),
            )
        }
        (&Method::GET, path) if path.ends_with("/flunders") => AggregatedReply::Json(
            200,
            json!({"kind": "FlunderList", "apiVersion": "wardle.example.com/v1alpha1", "metadata": {}, "items": []}),
        ),
        (&Method::DELETE, path) if path.ends_with("/flunders") => {
            AggregatedReply::Json(200, json!({"kind": "Status", "status": "Success"}))
        }
        _ => AggregatedReply::Json(
            404,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
        ),
    }
}

/// Waits until discovery of the server succeeded or failed.
async fn wait_for_freshness(client: &Client, wanted: &str) {
    eventually(PATIENCE, async || {
        let list = aggregated(client).await;
        let version = group(&list, GROUP).map(|group| group["versions"][0].clone()).unwrap_or_default();
        if version["freshness"] == wanted { Ok(()) } else { Err(Problem::new(version.to_string())) }
    })
    .await
    .unwrap();
}

async fn wait_for_namespace_condition(client: &Client, name: &str, kind: &str) -> Value {
    eventually(PATIENCE, async || {
        let namespace = accepts(client.get(&format!("{NAMESPACES}/{name}")).await)?;
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|c| c["type"] == kind && c["status"] == "True");
        found.ok_or_else(|| Problem::new(namespace.to_string()))
    })
    .await
    .unwrap()
}

async fn wait_until_deleted(client: &Client, name: &str) {
    let path = format!("{NAMESPACES}/{name}");
    eventually(PATIENCE, async || rejects(client.get(&path).await, 404, "NotFound")).await.unwrap();
}

#[tokio::test]
async fn resources_of_aggregated_servers_are_deleted_with_their_namespace() {
    let left = Arc::new(AtomicUsize::new(2));
    let (_server, client, extension) = start_both(server_with_flunders(Arc::clone(&left))).await;
    wait_for_freshness(&client, "Current").await;
    accepts(client.post(NAMESPACES, &json!({"metadata": {"name": "ponds"}})).await).unwrap();
    accepts(client.delete(&format!("{NAMESPACES}/ponds")).await).unwrap();
    let condition = wait_for_namespace_condition(&client, "ponds", "NamespaceContentRemaining").await;
    assert_eq!(
        condition["message"],
        "Some resources are remaining: flunders.wardle.example.com has 1 resource instances"
    );
    wait_until_deleted(&client, "ponds").await;
    assert_eq!(left.load(Ordering::SeqCst), 0);
    let received = extension.received_for_others();
    let deleted = received.iter().find(|r| r.method == Method::DELETE && r.path() == FLUNDERS).unwrap();
    assert_eq!(deleted.all("x-remote-user"), ["system:serviceaccount:kube-system:namespace-controller"]);
    // Resources that cannot be deleted are not listed.
    assert!(received.iter().all(|r| !r.path().ends_with("/fixtures")));
}

#[tokio::test]
async fn an_unavailable_aggregated_server_blocks_namespace_deletion() {
    let (_server, client, extension) = start_both(server_with_flunders(Arc::default())).await;
    wait_for_freshness(&client, "Current").await;
    drop(extension);
    // The namespace is examined again after any change of it.
    let patch = json!({"metadata": {"labels": {"changed": "yes"}}}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    let service = "/api/v1/namespaces/default/services/wardle";
    accepts(client.send(Method::PATCH, service, &merge, patch.into()).await).unwrap();
    wait_for_condition(&client, NAME, "False", "FailedDiscoveryCheck").await;
    wait_for_freshness(&client, "Stale").await;
    accepts(client.post(NAMESPACES, &json!({"metadata": {"name": "lakes"}})).await).unwrap();
    accepts(client.delete(&format!("{NAMESPACES}/lakes")).await).unwrap();
    let condition = wait_for_namespace_condition(&client, "lakes", "NamespaceDeletionDiscoveryFailure").await;
    assert_eq!(condition["reason"], "DiscoveryFailed");
    assert_eq!(
        condition["message"],
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: wardle.example.com/v1alpha1: stale GroupVersion discovery: wardle.example.com/v1alpha1"
    );
    // Without the APIService, the namespace can be deleted.
    accepts(client.delete(&format!("{SERVICES}/{NAME}")).await).unwrap();
    wait_until_deleted(&client, "lakes").await;
}

#[tokio::test]
async fn an_answer_that_is_not_a_list_blocks_namespace_deletion() {
    let broken = Arc::new(AtomicBool::new(true));
    let (says_nothing, list) = (Arc::clone(&broken), server_with_flunders(Arc::default()));
    let (_server, client, _extension) = start_both(move |received: &Received| {
        if received.path().ends_with("/flunders") && says_nothing.load(Ordering::SeqCst) {
            return AggregatedReply::Raw(
                200,
                "text/html",
                Vec::new(),
                "<html>down for maintenance</html>".to_owned(),
            );
        }
        list(received)
    })
    .await;
    wait_for_freshness(&client, "Current").await;
    accepts(client.post(NAMESPACES, &json!({"metadata": {"name": "ponds"}})).await).unwrap();
    accepts(client.delete(&format!("{NAMESPACES}/ponds")).await).unwrap();
    let condition = wait_for_namespace_condition(&client, "ponds", "NamespaceDeletionContentFailure").await;
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("cannot parse the response"), "{message}");
    broken.store(false, Ordering::SeqCst);
    wait_until_deleted(&client, "ponds").await;
}

#[tokio::test]
async fn a_resource_with_an_unusable_name_blocks_only_namespace_deletion() {
    let resource = |name: &str| json!({"resource": name, "responseKind": {"group": "", "version": "", "kind": "Flunder"}, "scope": "Namespaced", "singularResource": "flunder", "verbs": ["list", "delete"]});
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [
        {"metadata": {"name": GROUP}, "versions": [{"version": "v1alpha1", "freshness": "Current", "resources": [resource("flunders/f/exec")]}]}]});
    let (_server, client, extension) = start_both(move |received: &Received| match received.path() {
        "/apis" => AggregatedReply::Raw(200, AGGREGATED, Vec::new(), list.to_string()),
        path if path.ends_with("/exec") => AggregatedReply::Hang,
        _ => AggregatedReply::Json(200, json!({})),
    })
    .await;
    wait_for_freshness(&client, "Current").await;
    accepts(client.post(NAMESPACES, &json!({"metadata": {"name": "ponds"}})).await).unwrap();
    accepts(client.delete(&format!("{NAMESPACES}/ponds")).await).unwrap();
    let condition = wait_for_namespace_condition(&client, "ponds", "NamespaceDeletionDiscoveryFailure").await;
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.ends_with(
            r#"wardle.example.com/v1alpha1: invalid resource name "flunders/f/exec": [may not contain '/']"#
        ),
        "{message}"
    );
    assert!(extension.received_for_others().iter().all(|r| !r.path().ends_with("/exec")));
}
