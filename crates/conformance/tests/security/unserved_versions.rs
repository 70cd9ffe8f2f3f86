//! Policies and webhooks for a version of a CRD apply to its custom resources after that version is no longer served.

use std::path::Path;
use std::time::Duration;

use conformance::server::write_private;
use conformance::webhook::{ReviewCall, ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, HttpResponse, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const THINGS: &str = "/apis/example.com/v2/namespaces/default/things";
const PATIENCE: Duration = Duration::from_secs(30);

/// Versions v1 and v2, of which v2 is the storage version. A third one was never served.
fn crd(v1_is_served: bool) -> Value {
    let version = |name: &str, is_served: bool, is_stored: bool, spec: &Value| {
        json!({
            "name": name, "served": is_served, "storage": is_stored,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "properties": {
                    "phase": {"type": "string"}, "replicas": {"type": "integer"},
                }},
            }}},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            }},
        })
    };
    let (replicas, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "listKind": "ThingList", "singular": "thing"},
            "versions": [
                version("v1", v1_is_served, false, &json!({"replicas": replicas, "set": text})),
                version("v2", true, true, &json!({"replicas": replicas, "set": text})),
                version("v3", false, false, &json!({"replicas": replicas})),
            ],
        },
    })
}

/// Rules for one version that will not be served.
fn rule(version: &str) -> Value {
    json!({"apiGroups": ["example.com"], "apiVersions": [version], "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["things", "things/status", "things/scale"]})
}

/// Denies 13 replicas, the phase `bad`, and objects in another version than that of the rule.
const GUARD: &str = "request.operation == 'DELETE' ? oldObject.metadata.name != 'protected-by-policy' : \
    !(has(object.spec.replicas) && object.spec.replicas == 13) && \
    !(has(object.status) && has(object.status.phase) && object.status.phase == 'bad') && \
    (request.subResource == 'scale' || object.apiVersion == 'example.com/v1')";

/// The policies, bindings and webhook configurations, as kind, plural and object, with names that end in `suffix`.
fn policies_and_webhooks(webhook: &WebhookServer, suffix: &str) -> Vec<(&'static str, &'static str, Value)> {
    let named = |name: &str| json!({"name": format!("{name}{suffix}")});
    let hook = json!({"name": "guard.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [rule("v1")],
        "clientConfig": {"url": webhook.url("/review"), "caBundle": webhook.ca_bundle}});
    let mut patching = hook.clone();
    patching["name"] = json!("patch.example.com");
    patching["clientConfig"]["url"] = json!(webhook.url("/patch"));
    patching["rules"][0]["resources"] = json!(["things"]);
    patching["rules"][0]["operations"] = json!(["CREATE", "UPDATE"]);
    let matching = json!({"resourceRules": [rule("v1")]});
    let main = json!({"resourceRules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["things"]}]});
    vec![
        (
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            json!({"metadata": named("guard"), "spec": {
                "matchConstraints": matching, "validations": [{"expression": GUARD, "message": "guarded"}],
            }}),
        ),
        (
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            json!({"metadata": named("guard"),
                "spec": {"policyName": format!("guard{suffix}"), "validationActions": ["Deny"]}}),
        ),
        (
            "MutatingAdmissionPolicy",
            "mutatingadmissionpolicies",
            json!({"metadata": named("label"), "spec": {
                "matchConstraints": main, "reinvocationPolicy": "Never", "failurePolicy": "Fail",
                "mutations": [
                    {"patchType": "ApplyConfiguration", "applyConfiguration": {
                        "expression": "Object{metadata: Object.metadata{labels: {'seen': object.apiVersion.replace('/', '-')}}}"}},
                    {"patchType": "JSONPatch", "jsonPatch": {
                        "expression": "[JSONPatch{op: 'add', path: '/spec/set', value: 'by the policy'}]"}},
                ],
            }}),
        ),
        (
            "MutatingAdmissionPolicyBinding",
            "mutatingadmissionpolicybindings",
            json!({"metadata": named("label"), "spec": {"policyName": format!("label{suffix}")}}),
        ),
        (
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            json!({"metadata": named("guard"), "webhooks": [hook]}),
        ),
        (
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            json!({"metadata": named("patch"), "webhooks": [patching]}),
        ),
    ]
}

/// Denies 14 replicas and deletions of `protected-by-webhook`; as a mutating webhook, writes the version of the received object into an
/// annotation.
fn review(call: &ReviewCall) -> ReviewReply {
    let request = &call.review["request"];
    if call.target.starts_with("/patch") {
        let seen = json!({"seen": request["object"]["apiVersion"]});
        return ReviewReply::patch(&json!([{"op": "add", "path": "/metadata/annotations", "value": seen}]));
    }
    let is_refused = request["object"]["spec"]["replicas"] == 14
        || request["operation"] == "DELETE" && request["name"] == "protected-by-webhook";
    if is_refused { ReviewReply::deny("guarded") } else { ReviewReply::allow() }
}

fn thing(name: &str, replicas: i64) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Thing", "metadata": {"name": name},
        "spec": {"replicas": replicas}})
}

async fn patch(client: &Client, path: &str, body: &Value) -> Result<HttpResponse, Problem> {
    let headers = [("content-type", "application/merge-patch+json")];
    client.send(Method::PATCH, path, &headers, body.to_string().into()).await
}

/// Every write that policy and webhook must see is denied where they deny it, and accepted otherwise.
async fn check_denials(client: &Client, webhook: &WebhookServer, phase: &str) {
    let name = format!("good-{phase}");
    let made = accepts(client.post(THINGS, &thing(&name, 1)).await).unwrap();
    assert_eq!(made["metadata"]["labels"]["seen"], "example.com-v1", "{made}");
    assert_eq!(made["metadata"]["annotations"]["seen"], "example.com/v1", "{made}");
    assert_eq!(made["apiVersion"], "example.com/v2", "{made}");
    assert_eq!(made["spec"], json!({"replicas": 1, "set": "by the policy"}));
    let calls = webhook.take_calls();
    let request = &calls.last().unwrap().review["request"];
    assert_eq!(request["kind"]["version"], "v1", "{request}");
    assert_eq!(request["requestKind"]["version"], "v2", "{request}");
    assert_eq!(request["object"]["apiVersion"], "example.com/v1", "{request}");

    let path = format!("{THINGS}/{name}");
    let scale = |replicas: i64| json!({"spec": {"replicas": replicas}});
    accepts(patch(client, &path, &scale(2)).await).unwrap();
    accepts(patch(client, &format!("{path}/status"), &json!({"status": {"phase": "good"}})).await).unwrap();
    accepts(patch(client, &format!("{path}/scale"), &scale(3)).await).unwrap();
    for (refused_by, replicas) in [("a policy", 13), ("a webhook", 14)] {
        let (code, reason) = if replicas == 13 { (422, "Invalid") } else { (403, "") };
        let name = format!("bad-{phase}");
        for (what, answer) in [
            ("create", client.post(THINGS, &thing(&name, replicas)).await),
            ("update", patch(client, &path, &scale(replicas)).await),
            ("scale", patch(client, &format!("{path}/scale"), &scale(replicas)).await),
        ] {
            let refused = rejects(answer, code, reason);
            let refused = refused.unwrap_or_else(|why| panic!("{what}, {phase}, {refused_by}: {why}"));
            assert!(refused["message"].as_str().unwrap().contains("guarded"), "{refused}");
        }
    }
    let bad = json!({"status": {"phase": "bad"}});
    rejects(patch(client, &format!("{path}/status"), &bad).await, 422, "Invalid").unwrap();
    for name in ["protected-by-policy", "protected-by-webhook"] {
        assert!(client.delete(&format!("{THINGS}/{name}")).await.unwrap().code >= 400, "{name}, {phase}");
    }
}

/// Denials continue after the version is no longer served.
async fn check_denials_without_the_version(client: &Client, webhook: &WebhookServer) {
    accepts(client.post(CRDS, &crd(true)).await).unwrap();
    eventually(PATIENCE, async || accepts(client.get(THINGS).await)).await.unwrap();
    for name in ["protected-by-policy", "protected-by-webhook"] {
        accepts(client.post(THINGS, &thing(name, 1)).await).unwrap();
    }
    check_denials(client, webhook, "served").await;

    let path = format!("{CRDS}/things.example.com");
    let mut now = accepts(client.get(&path).await).unwrap();
    now["spec"] = crd(false)["spec"].clone();
    accepts(client.json(Method::PUT, &path, &now).await).unwrap();
    let old = THINGS.replace("/v2/", "/v1/");
    let is_gone = async || match client.get(&old).await?.code {
        404 => Ok(()),
        code => Err(Problem::new(format!("v1 is still served: {code}"))),
    };
    eventually(PATIENCE, is_gone).await.unwrap();
    check_denials(client, webhook, "unserved").await;
}

#[tokio::test]
async fn policies_and_webhooks_apply_after_their_version_is_no_longer_served() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, review).await.unwrap();
    for (_, plural, object) in policies_and_webhooks(&webhook, "") {
        accepts(client.post(&format!("{REGISTRATION}/{plural}"), &object).await).unwrap();
    }
    check_denials_without_the_version(&client, &webhook).await;
}

/// Writes the manifests of each plugin to a folder of its own, and returns the flag for all.
fn write_manifests(home: &Path, objects: &[(&'static str, &'static str, Value)]) -> String {
    let plugins: Value = [
        ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration", "validatingadmission"),
        ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyConfiguration", "mutatingadmission"),
        ("ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration", "validatingwebhook"),
        ("MutatingAdmissionWebhook", "WebhookAdmissionConfiguration", "mutatingwebhook"),
    ]
    .iter()
    .map(|(plugin, kind, plural)| {
        let folder = home.join(plugin);
        std::fs::create_dir(&folder).unwrap();
        for (kind, _, object) in objects.iter().filter(|(_, name, _)| name.starts_with(plural)) {
            let mut object = object.clone();
            object["apiVersion"] = json!("admissionregistration.k8s.io/v1");
            object["kind"] = json!(kind);
            std::fs::write(folder.join(format!("{kind}.json")), object.to_string()).unwrap();
        }
        json!({"name": plugin, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "staticManifestsDir": folder}})
    })
    .collect();
    let configuration = json!({"apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration", "plugins": plugins});
    let file = home.join("admission.json");
    write_private(&file, &configuration.to_string()).unwrap();
    format!("--admission-control-config-file={}", file.display())
}

#[tokio::test]
async fn static_manifests_apply_after_their_version_is_no_longer_served() {
    let webhook = WebhookServer::start(ServingCertificate::Signed, review).await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let flag = write_manifests(home.path(), &policies_and_webhooks(&webhook, ".static.k8s.io"));
    let server = Server::serve(&[&flag]).await.unwrap();
    check_denials_without_the_version(&server.client().unwrap(), &webhook).await;
}

#[tokio::test]
async fn a_rule_for_exactly_an_unserved_version_applies_to_no_other() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, review).await.unwrap();
    for (_, plural, mut object) in policies_and_webhooks(&webhook, "") {
        match plural {
            "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
                object["spec"]["matchConstraints"]["matchPolicy"] = json!("Exact");
            }
            "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => {
                object["webhooks"][0]["matchPolicy"] = json!("Exact");
            }
            _ => {}
        }
        accepts(client.post(&format!("{REGISTRATION}/{plural}"), &object).await).unwrap();
    }
    accepts(client.post(CRDS, &crd(false)).await).unwrap();
    eventually(PATIENCE, async || accepts(client.get(THINGS).await)).await.unwrap();
    let made = accepts(client.post(THINGS, &thing("any", 13)).await).unwrap();
    assert!(made["metadata"]["labels"].is_null(), "{made}");
    assert!(webhook.take_calls().is_empty());
}
