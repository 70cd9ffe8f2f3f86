//! Validating admission sees the defaults of the storage version of a CRD, also for requests in another version.

use std::path::Path;
use std::time::Duration;

use conformance::server::write_private;
use conformance::{Client, HttpResponse, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const PATIENCE: Duration = Duration::from_secs(30);

/// `spec.priv` is true by default in the storage version v1. Version v2 has the field without a default, v3 does not have it.
fn crd() -> Value {
    let version = |name: &str, spec: &Value| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
            "subresources": {"status": {}},
        })
    };
    let note = json!({"type": "string"});
    json!({
        "metadata": {"name": "bars.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "bars", "kind": "Bar", "listKind": "BarList", "singular": "bar"},
            "versions": [
                version("v1", &json!({"priv": {"type": "boolean", "default": true}, "note": note})),
                version("v2", &json!({"priv": {"type": "boolean"}, "note": note})),
                version("v3", &json!({"note": note})),
            ],
        },
    })
}

fn bars(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/bars")
}

fn bar(version: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Bar", "metadata": {"name": name}, "spec": spec})
}

async fn patch(client: &Client, path: &str, kind: &str, body: &Value) -> Result<HttpResponse, Problem> {
    let headers = [("content-type", kind)];
    client.send(Method::PATCH, path, &headers, body.to_string().into()).await
}

/// A policy that denies `priv: true` in one version, and its binding.
fn policy(version: &str, suffix: &str) -> [Value; 2] {
    let name = format!("unprivileged{suffix}");
    let rule = json!({"apiGroups": ["example.com"], "apiVersions": [version], "operations": ["CREATE", "UPDATE"],
        "resources": ["bars"]});
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "!(has(object.spec.priv) && object.spec.priv)", "message": "privileged"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    [policy, binding]
}

async fn create_crd(client: &Client) {
    accepts(client.post(CRDS, &crd()).await).unwrap();
    eventually(PATIENCE, async || accepts(client.get(&bars("v1")).await)).await.unwrap();
}

/// Waits for the policy, then tries every write in `versions` that would store the default.
async fn check_denials(client: &Client, versions: &[&str]) {
    let denied = |what: &str, answer: Result<HttpResponse, Problem>| {
        let refused = rejects(answer, 422, "Invalid").unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(refused["message"].as_str().unwrap().contains("privileged"), "{what}: {refused}");
    };
    let probe = bar("v1", "probe", &json!({"priv": true}));
    let dry_run = format!("{}?dryRun=All", bars("v1"));
    eventually(PATIENCE, async || rejects(client.post(&dry_run, &probe).await, 422, "Invalid"))
        .await
        .unwrap();
    for version in versions {
        let path = bars(version);
        for spec in [json!({}), json!({"note": "a"})] {
            denied(version, client.post(&path, &bar(version, "new", &spec)).await);
            let applied = format!("{path}/new?fieldManager=m");
            let body = bar(version, "new", &spec);
            denied(version, patch(client, &applied, "application/apply-patch+yaml", &body).await);
        }
        rejects(client.get(&format!("{path}/new")).await, 404, "NotFound").unwrap();
    }

    let path = format!("{}/old", bars("v2"));
    accepts(client.post(&bars("v2"), &bar("v2", "old", &json!({"priv": false}))).await).unwrap();
    let merge = json!({"spec": {"priv": null}});
    denied("merge patch", patch(client, &path, "application/merge-patch+json", &merge).await);
    let remove = json!([{"op": "remove", "path": "/spec/priv"}]);
    denied("JSON patch", patch(client, &path, "application/json-patch+json", &remove).await);
    let mut update = accepts(client.get(&path).await).unwrap();
    update["spec"] = json!({});
    denied("update", client.json(Method::PUT, &path, &update).await);
    for version in ["v1", "v2"] {
        let stored = accepts(client.get(&format!("{}/old", bars(version))).await).unwrap();
        assert_eq!(stored["spec"], json!({"priv": false}));
    }
    // Writes that store no default are accepted.
    let merge = json!({"spec": {"note": "b"}});
    accepts(patch(client, &path, "application/merge-patch+json", &merge).await).unwrap();
    let applied = bar("v2", "applied", &json!({"priv": false}));
    let at = format!("{}/applied?fieldManager=m", bars("v2"));
    accepts(patch(client, &at, "application/apply-patch+yaml", &applied).await).unwrap();
}

#[tokio::test]
async fn an_api_policy_sees_the_defaults_of_the_storage_version() {
    for policy_version in ["v1", "v2"] {
        let server = Server::serve(&[]).await.unwrap();
        let client = server.client().unwrap();
        create_crd(&client).await;
        let [policy, binding] = policy(policy_version, "");
        accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicies"), &policy).await).unwrap();
        let bindings = format!("{REGISTRATION}/validatingadmissionpolicybindings");
        accepts(client.post(&bindings, &binding).await).unwrap();
        check_denials(&client, &["v2", "v3"]).await;
    }
}

fn static_policy(home: &Path) -> String {
    let folder = home.join("policies");
    std::fs::create_dir(&folder).unwrap();
    for (position, object) in policy("v1", ".static.k8s.io").iter().enumerate() {
        std::fs::write(folder.join(format!("{position}.json")), object.to_string()).unwrap();
    }
    let configuration = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [
        {"name": "ValidatingAdmissionPolicy", "configuration": {"apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyConfiguration", "staticManifestsDir": folder}}]});
    let file = home.join("admission.json");
    write_private(&file, &configuration.to_string()).unwrap();
    format!("--admission-control-config-file={}", file.display())
}

#[tokio::test]
async fn a_static_policy_sees_the_defaults_of_the_storage_version() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::serve(&[&static_policy(home.path())]).await.unwrap();
    let client = server.client().unwrap();
    create_crd(&client).await;
    check_denials(&client, &["v2", "v3"]).await;
}
