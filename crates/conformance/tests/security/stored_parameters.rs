//! Policies see their parameters in the current form of the CRD, not as they were stored.

use std::time::Duration;

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
const PATIENCE: Duration = Duration::from_secs(30);

fn gates_path(version: &str) -> String {
    format!("/apis/rules.example.com/{version}/gates")
}

/// A CRD with these fields in the storage version `v1` and in `v2`.
fn crd(fields: &Value) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gates.rules.example.com"},
        "spec": {
            "group": "rules.example.com", "scope": "Cluster",
            "names": {"plural": "gates", "kind": "Gate", "listKind": "GateList", "singular": "gate"},
            "versions": [version("v1"), version("v2")],
        },
    })
}

/// A validating and a mutating policy with parameters, and their bindings. The first denies the names `evil` and `strict`, unless
/// its parameter exempts the former and is not strict; the second writes its parameter into labels.
async fn guard(client: &Client, name: &str, version: &str, reference: &Value) {
    let params = json!({"apiVersion": format!("rules.example.com/{version}"), "kind": "Gate"});
    let rules = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["configmaps"]}]});
    let mut reference = reference.clone();
    reference["parameterNotFoundAction"] = json!("Deny");
    for (plural, object) in [
        (
            "validatingadmissionpolicies",
            json!({"metadata": {"name": name}, "spec": {
                "paramKind": params, "matchConstraints": rules, "failurePolicy": "Fail",
                "validations": [
                    {"expression": "object.metadata.name != 'evil' || has(params.exempt) && params.exempt == 'evil'"},
                    {"expression": "object.metadata.name != 'strict' || !has(params.strict) || !params.strict"},
                ],
            }}),
        ),
        (
            "validatingadmissionpolicybindings",
            json!({"metadata": {"name": name}, "spec": {
                "policyName": name, "validationActions": ["Deny"], "paramRef": reference}}),
        ),
        (
            "mutatingadmissionpolicies",
            json!({"metadata": {"name": name}, "spec": {
                "paramKind": params, "matchConstraints": rules, "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": format!(
                    "Object{{metadata: Object.metadata{{labels: {{'{name}': params.metadata.name + \
                    (has(params.exempt) ? '-exempts' : '') + \
                    (has(params.strict) && params.strict ? '-strict' : '')}}}}}}"
                )}}],
            }}),
        ),
        (
            "mutatingadmissionpolicybindings",
            json!({"metadata": {"name": name}, "spec": {"policyName": name, "paramRef": reference}}),
        ),
    ] {
        accepts(client.post(&format!("{REGISTRATION}/{plural}"), &object).await).unwrap();
    }
}

const GUARDS: [&str; 4] = ["by-name-v1", "by-name-v2", "by-label-v1", "by-label-v2"];

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// The parameters that every mutating policy saw.
fn check_seen_parameters(made: &Value, expected: &str) -> Result<(), Problem> {
    let labels = &made["metadata"]["labels"];
    let all = GUARDS.iter().all(|name| labels[name] == expected);
    if all { Ok(()) } else { Err(Problem::new(format!("{labels} is not {expected}"))) }
}

#[tokio::test]
async fn policies_see_parameters_in_the_current_form_of_their_crd() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    accepts(client.post(CRDS, &crd(&json!({"exempt": {"type": "string"}}))).await).unwrap();
    eventually(PATIENCE, async || accepts(client.get(&gates_path("v1")).await)).await.unwrap();
    let gate = json!({"apiVersion": "rules.example.com/v1", "kind": "Gate",
        "metadata": {"name": "g", "labels": {"gate": "main"}}, "exempt": "evil"});
    accepts(client.post(&gates_path("v1"), &gate).await).unwrap();
    for name in GUARDS {
        let (kind, version) = name.rsplit_once('-').unwrap();
        let by_name = json!({"name": "g"});
        let by_label = json!({"selector": {"matchLabels": {"gate": "main"}}});
        guard(&client, name, version, if kind == "by-name" { &by_name } else { &by_label }).await;
    }
    let made = async |name: &str| accepts(client.post(MAPS, &map(name)).await);
    eventually(PATIENCE, async || check_seen_parameters(&made("good").await?, "g-exempts")).await.unwrap();
    for name in ["evil", "strict"] {
        made(name).await.unwrap();
    }

    // The CRD loses a field and gets another one with a default, while the parameter is not written.
    let path = format!("{CRDS}/gates.rules.example.com");
    let mut now = accepts(client.get(&path).await).unwrap();
    now["spec"] = crd(&json!({"strict": {"type": "boolean", "default": true}}))["spec"].clone();
    accepts(client.json(Method::PUT, &path, &now).await).unwrap();
    let is_shown = async || {
        let shown = accepts(client.get(&format!("{}/g", gates_path("v1"))).await)?;
        if shown["strict"] == true && shown["exempt"].is_null() {
            return Ok(());
        }
        Err(Problem::new(shown.to_string()))
    };
    eventually(PATIENCE, is_shown).await.unwrap();
    check_seen_parameters(&made("good").await.unwrap(), "g-strict").unwrap();
    for name in ["evil", "strict"] {
        let refused = rejects(client.post(MAPS, &map(name)).await, 422, "Invalid").unwrap();
        assert!(refused["message"].as_str().unwrap().contains("denied request"), "{refused}");
    }

    // A parameter that is written with the current schema is seen as written.
    let lax = json!({"strict": false}).to_string();
    let headers = [("content-type", "application/merge-patch+json")];
    let gate = format!("{}/g", gates_path("v1"));
    accepts(client.send(Method::PATCH, &gate, &headers, lax.into()).await).unwrap();
    check_seen_parameters(&made("strict").await.unwrap(), "g").unwrap();
    rejects(client.post(MAPS, &map("evil")).await, 422, "Invalid").unwrap();
}
