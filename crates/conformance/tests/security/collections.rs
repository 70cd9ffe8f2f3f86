//! Deleting a collection cannot bypass a denial for one of its objects.

use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, Server, accepts, rejects};
use serde_json::{Value, json};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Rules for deletions of config maps, of all names or of some.
fn rule(names: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

/// A policy with its binding that denies all matching requests.
async fn deny(client: &Client, policy: &Value, binding: &Value) {
    let constraints = json!({"resourceRules": [policy]});
    let policy = json!({"metadata": {"name": "guard"},
        "spec": {"matchConstraints": constraints, "validations": [{"expression": "false", "message": "guarded"}]}});
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicies"), &policy).await).unwrap();
    let binding = json!({"metadata": {"name": "guard"}, "spec": {"policyName": "guard",
        "validationActions": ["Deny"], "matchResources": {"resourceRules": [binding]}}});
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), &binding).await)
        .unwrap();
}

/// `guarded` cannot be deleted, neither alone nor with its collection; `free` is deleted with its collection.
async fn check_guarded_deletions(client: &Client) {
    for name in ["free", "guarded"] {
        let map = json!({"metadata": {"name": name, "labels": {"for": name}}});
        accepts(client.post(MAPS, &map).await).unwrap();
    }
    accepts(client.delete(&format!("{MAPS}?labelSelector=for=free")).await).unwrap();
    rejects(client.get(&format!("{MAPS}/free")).await, 404, "NotFound").unwrap();
    for path in [format!("{MAPS}/guarded"), format!("{MAPS}?labelSelector=for"), format!("{MAPS}?dryRun=All")]
    {
        let answer = client.delete(&path).await.unwrap();
        assert!(answer.code >= 400, "{path}: {}", answer.text());
        assert!(answer.text().contains("guarded"), "{path}: {}", answer.text());
    }
    accepts(client.get(&format!("{MAPS}/guarded")).await).unwrap();
}

#[tokio::test]
async fn a_policy_for_a_name_denies_deleting_it_in_a_collection() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    deny(&client, &rule(&["guarded"]), &rule(&[])).await;
    check_guarded_deletions(&client).await;
}

#[tokio::test]
async fn a_binding_for_a_name_denies_deleting_it_in_a_collection() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    deny(&client, &rule(&[]), &rule(&["guarded"])).await;
    check_guarded_deletions(&client).await;
}

#[tokio::test]
async fn webhooks_are_called_for_each_object_of_a_deleted_collection() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |call| {
        let name = &call.review["request"]["oldObject"]["metadata"]["name"];
        if name == "guarded" { ReviewReply::deny("guarded") } else { ReviewReply::allow() }
    })
    .await
    .unwrap();
    let hook = json!({"name": "guard.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [rule(&[])], "clientConfig": {"url": webhook.url("/"), "caBundle": webhook.ca_bundle}});
    let hooks = json!({"metadata": {"name": "guard"}, "webhooks": [hook]});
    accepts(client.post(&format!("{REGISTRATION}/validatingwebhookconfigurations"), &hooks).await).unwrap();
    check_guarded_deletions(&client).await;
}
