//! The kind of a CRD cannot be taken over by another one whose status claims it.

use std::time::Duration;

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(30);

fn crd(plural: &str, kind: &str) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.rules.example.com")},
        "spec": {
            "group": "rules.example.com", "scope": "Cluster",
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn objects(plural: &str) -> String {
    format!("/apis/rules.example.com/v1/{plural}")
}

async fn patch(client: &Client, path: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/merge-patch+json")];
    let patched = client.send(Method::PATCH, path, &headers, body.to_string().into()).await;
    accepts(patched).unwrap()
}

/// The conditions `NamesAccepted` and `Established` of a CRD.
async fn conditions(client: &Client, plural: &str) -> (String, String) {
    let found = accepts(client.get(&format!("{CRDS}/{plural}.rules.example.com")).await).unwrap();
    let condition = |name: &str| {
        let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
        let condition = conditions.find(|condition| condition["type"] == name);
        condition.map_or("", |condition| condition["status"].as_str().unwrap()).to_owned()
    };
    (condition("NamesAccepted"), condition("Established"))
}

async fn wait_for_conditions(client: &Client, plural: &str, wanted: (&str, &str)) {
    eventually(PATIENCE, async || {
        let found = conditions(client, plural).await;
        if (found.0.as_str(), found.1.as_str()) == wanted {
            Ok(())
        } else {
            Err(Problem::new(format!("the conditions of {plural} are {found:?}, not {wanted:?}")))
        }
    })
    .await
    .unwrap();
}

/// Claims the kind `Limit` in the status of a CRD, as a user with permission for the status can.
async fn claim_kind_in_status(client: &Client, plural: &str) {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "NoConflicts", "message": "",
            "lastTransitionTime": "2020-01-01T00:00:00Z"})
    };
    let status = json!({"status": {
        "acceptedNames": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": "Limit", "listKind": "LimitList"},
        "conditions": [condition("NamesAccepted"), condition("Established")],
    }});
    patch(client, &format!("{CRDS}/{plural}.rules.example.com/status"), &status).await;
}

#[tokio::test]
async fn a_status_that_claims_the_kind_of_another_crd_is_corrected_and_has_no_effect() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    accepts(client.post(CRDS, &crd("limits", "Limit")).await).unwrap();
    wait_for_conditions(&client, "limits", ("True", "True")).await;

    let limit = |strict: bool| json!({"apiVersion": "rules.example.com/v1", "kind": "Limit", "metadata": {"name": "main"}, "strict": strict});
    eventually(PATIENCE, async || accepts(client.post(&objects("limits"), &limit(true)).await))
        .await
        .unwrap();
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = json!({"metadata": {"name": "strict"}, "spec": {
        "paramKind": {"apiVersion": "rules.example.com/v1", "kind": "Limit"},
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "!params.strict"}]}});
    let binding = json!({"metadata": {"name": "strict"}, "spec": {"policyName": "strict", "validationActions": ["Deny"],
        "paramRef": {"name": "main", "parameterNotFoundAction": "Deny"}}});
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicies"), &policy).await).unwrap();
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), &binding).await)
        .unwrap();
    let is_denied = async || {
        let map = json!({"metadata": {"generateName": "m-"}});
        rejects(client.post(MAPS, &map).await, 422, "Invalid").map(drop)
    };
    eventually(PATIENCE, is_denied).await.unwrap();

    // Names that sort before and after the CRD whose kind is claimed.
    for attacker in ["alimits", "zlimits"] {
        accepts(client.post(CRDS, &crd(attacker, "Limit")).await).unwrap();
        wait_for_conditions(&client, attacker, ("False", "False")).await;
        claim_kind_in_status(&client, attacker).await;
        // The claimed kind is never served from the other CRD.
        assert_eq!(client.post(&objects(attacker), &limit(false)).await.unwrap().code, 404, "{attacker}");
        is_denied().await.unwrap();
        wait_for_conditions(&client, attacker, ("False", "False")).await;
        is_denied().await.unwrap();
    }
    wait_for_conditions(&client, "limits", ("True", "True")).await;
    // The kind is free when its CRD is deleted.
    accepts(client.delete(&format!("{CRDS}/zlimits.rules.example.com")).await).unwrap();
    accepts(client.delete(&format!("{CRDS}/limits.rules.example.com")).await).unwrap();
    wait_for_conditions(&client, "alimits", ("True", "True")).await;
}
