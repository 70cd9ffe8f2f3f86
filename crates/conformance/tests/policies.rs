//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies on a running server: every denial names policy and binding, and the
//! request succeeds without them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use conformance::{Client, HttpResponse, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn policy(client: &Client, name: &str, spec: Value) {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    accepts(client.post(&format!("{GROUP}/validatingadmissionpolicies"), &object).await).unwrap();
}

async fn binding(client: &Client, name: &str, spec: Value) {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    accepts(client.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &object).await).unwrap();
}

async fn create_mutating_policy(client: &Client, name: &str, spec: Value) {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    accepts(client.post(&format!("{GROUP}/mutatingadmissionpolicies"), &object).await).unwrap();
    let object = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    accepts(client.post(&format!("{GROUP}/mutatingadmissionpolicybindings"), &object).await).unwrap();
}

/// Deletes a binding and waits until its policy has no effect.
async fn delete_binding(
    client: &Client,
    kind: &str,
    name: &str,
    probe: impl AsyncFn() -> Result<HttpResponse, Problem>,
) -> Value {
    accepts(client.delete(&format!("{GROUP}/{kind}/{name}")).await).unwrap();
    eventually(SOON, async || accepts(probe().await)).await.unwrap()
}

fn match_constraints(resources: &Value, operations: &Value) -> Value {
    json!({"resourceRules": [{"apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": operations, "resources": resources}]})
}

fn map(name: &str, data: &Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

/// The message of a denial by a policy and a binding.
fn denial(what: &str, policy: &str, binding: &str, why: &str) -> String {
    format!(
        "{what} is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}"
    )
}

#[tokio::test]
async fn a_policy_is_active_from_the_creation_of_its_binding_until_its_deletion() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    policy(
        &client,
        "short",
        json!({
            "matchConstraints": match_constraints(&json!(["configmaps"]), &json!(["CREATE", "UPDATE", "DELETE"])),
            "validations": [
                {"expression": "request.operation == 'DELETE' || size(object.data) < 2", "message": "too many", "reason": "Forbidden"},
                {"expression": "request.operation != 'DELETE' || !has(oldObject.metadata.labels)", "messageExpression": "'has labels: ' + string(size(oldObject.metadata.labels))"},
            ],
        }),
    )
    .await;
    let many = map("many", &json!({"a": "1", "b": "2"}));
    let dry = format!("{MAPS}?dryRun=All");
    accepts(client.post(&dry, &many).await).unwrap();
    binding(&client, "everywhere", json!({"policyName": "short", "validationActions": ["Deny"]})).await;
    let status = rejects(client.post(&dry, &many).await, 403, "Forbidden").unwrap();
    assert_eq!(status["message"], denial("configmaps \"many\"", "short", "everywhere", "too many"));
    assert_eq!(status["details"]["kind"], "configmaps");
    accepts(client.post(MAPS, &map("few", &json!({"a": "1"}))).await).unwrap();

    let path = format!("{MAPS}/few");
    let patch = json!({"data": {"b": "2"}});
    let merge = [("content-type", "application/merge-patch+json")];
    let body = || bytes::Bytes::from(patch.to_string());
    let status = rejects(client.send(Method::PATCH, &path, &merge, body()).await, 403, "Forbidden").unwrap();
    assert_eq!(status["message"], denial("configmaps \"few\"", "short", "everywhere", "too many"));
    let labels = bytes::Bytes::from(json!({"metadata": {"labels": {"a": "b"}}}).to_string());
    accepts(client.send(Method::PATCH, &path, &merge, labels).await).unwrap();
    let status = rejects(client.delete(&path).await, 422, "Invalid").unwrap();
    assert_eq!(status["message"], denial("configmaps \"few\"", "short", "everywhere", "has labels: 1"));
    let status = rejects(client.delete(MAPS).await, 422, "Invalid").unwrap();
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("ValidatingAdmissionPolicy 'short' with binding 'everywhere'")
    );

    delete_binding(&client, "validatingadmissionpolicybindings", "everywhere", async || {
        client.post(&dry, &many).await
    })
    .await;
    accepts(client.delete(&path).await).unwrap();
}

#[tokio::test]
async fn bindings_deleted_as_a_collection_deny_nothing_afterwards() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let dry = format!("{MAPS}?dryRun=All");
    for number in 0..20 {
        let name = format!("none-{number}");
        let constraints = match_constraints(&json!(["configmaps"]), &json!(["CREATE"]));
        let spec = json!({"matchConstraints": constraints, "validations": [{"expression": "false"}]});
        policy(&client, &name, spec).await;
        binding(&client, &name, json!({"policyName": name, "validationActions": ["Deny"]})).await;
    }
    rejects(client.post(&dry, &map("any", &json!({}))).await, 422, "Invalid").unwrap();
    accepts(client.delete(&format!("{GROUP}/validatingadmissionpolicybindings")).await).unwrap();
    accepts(client.post(&dry, &map("any", &json!({}))).await).unwrap();
}

#[tokio::test]
async fn warnings_reach_the_client_and_parameters_are_current() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    policy(
        &client,
        "limited",
        json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": match_constraints(&json!(["secrets"]), &json!(["CREATE"])),
            "validations": [{"expression": "size(object.metadata.name) <= int(params.data.most)", "messageExpression": "'longer than ' + params.data.most"}],
        }),
    )
    .await;
    let reference = json!({"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"});
    binding(
        &client,
        "deny",
        json!({"policyName": "limited", "validationActions": ["Deny"], "paramRef": reference}),
    )
    .await;
    let secrets = "/api/v1/namespaces/default/secrets?dryRun=All";
    let secret = json!({"metadata": {"name": "abcdef"}});
    let status = rejects(client.post(secrets, &secret).await, 422, "Invalid").unwrap();
    let missing =
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_eq!(status["message"], denial("secrets \"abcdef\"", "limited", "deny", missing));
    // A parameter takes effect as soon as it exists.
    accepts(client.post(MAPS, &map("limit", &json!({"most": "3"}))).await).unwrap();
    let status = rejects(client.post(secrets, &secret).await, 422, "Invalid").unwrap();
    assert_eq!(status["message"], denial("secrets \"abcdef\"", "limited", "deny", "longer than 3"));
    let put = map("limit", &json!({"most": "6"}));
    accepts(client.json(Method::PUT, &format!("{MAPS}/limit"), &put).await).unwrap();
    accepts(client.post(secrets, &secret).await).unwrap();

    binding(
        &client,
        "warn",
        json!({"policyName": "limited", "validationActions": ["Warn"], "paramRef": reference}),
    )
    .await;
    let long = json!({"metadata": {"name": "abcdefgh"}});
    accepts(client.delete(&format!("{GROUP}/validatingadmissionpolicybindings/deny")).await).unwrap();
    let warning = "299 - \"Validation failed for ValidatingAdmissionPolicy 'limited' with binding 'warn': longer than 6\"";
    eventually(SOON, async || {
        let answer = client.post(secrets, &long).await?;
        let warned = answer.header("warning").to_owned();
        accepts(Ok(answer))?;
        if warned == warning { Ok(()) } else { Err(Problem::new(warned)) }
    })
    .await
    .unwrap();
    delete_binding(&client, "validatingadmissionpolicybindings", "warn", async || {
        client.post(secrets, &long).await
    })
    .await;
}

#[tokio::test]
async fn mutations_change_the_stored_object_and_failures_deny() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    create_mutating_policy(
        &client,
        "proxied",
        json!({
            "reinvocationPolicy": "Never",
            "matchConstraints": match_constraints(&json!(["deployments"]), &json!(["CREATE"])),
            "matchConditions": [{"name": "wanted", "expression": "object.metadata.name != 'plain'"}],
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'proxy', image: 'proxy:1'}]}}}}"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression":
                    "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'count': string(size(object.spec.template.spec.containers))}}]"}},
            ],
        }),
    )
    .await;
    let deployment = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}},
            },
        })
    };
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let stored = accepts(client.post(path, &deployment("web")).await).unwrap();
    let containers = &stored["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[1]["name"], "proxy", "{stored}");
    // Objects that a mutation adds get their defaults.
    assert_eq!(containers[1]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(stored["metadata"]["labels"]["count"], "2");
    let plain = accepts(client.post(path, &deployment("plain")).await).unwrap();
    assert_eq!(plain["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);

    create_mutating_policy(
        &client,
        "failing",
        json!({
            "reinvocationPolicy": "Never",
            "matchConstraints": match_constraints(&json!(["configmaps"]), &json!(["CREATE"])),
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'k': object.data.nope}}"}}],
        }),
    )
    .await;
    let dry = format!("{MAPS}?dryRun=All");
    let status = rejects(client.post(&dry, &map("m", &json!({"a": "b"}))).await, 403, "Invalid").unwrap();
    assert_eq!(
        status["message"],
        "policy 'failing' with binding 'failing' denied request: expression 'Object{data: {'k': object.data.nope}}' resulted in error: no such key: nope"
    );
    let passed = delete_binding(&client, "mutatingadmissionpolicybindings", "failing", async || {
        client.post(&dry, &map("m", &json!({"a": "b"}))).await
    });
    assert_eq!(passed.await["data"], json!({"a": "b"}));
}

#[tokio::test]
async fn policies_are_active_before_the_first_answer_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    policy(
        &client,
        "never",
        json!({"matchConstraints": match_constraints(&json!(["configmaps"]), &json!(["CREATE"])), "validations": [{"expression": "object.metadata.name != 'x'", "message": "not x"}]}),
    )
    .await;
    binding(&client, "always", json!({"policyName": "never", "validationActions": ["Deny"]})).await;
    server.kill().unwrap();
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    let status = rejects(client.post(MAPS, &map("x", &json!({}))).await, 422, "Invalid").unwrap();
    assert_eq!(status["message"], denial("configmaps \"x\"", "never", "always", "not x"));
    accepts(client.post(MAPS, &map("y", &json!({}))).await).unwrap();
    delete_binding(&client, "validatingadmissionpolicybindings", "always", async || {
        client.post(MAPS, &map("x", &json!({}))).await
    })
    .await;
}

#[tokio::test]
async fn a_type_error_in_a_policy_is_reported_in_its_status() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    policy(
        &client,
        "typo",
        json!({"matchConstraints": match_constraints(&json!(["deployments"]), &json!(["CREATE"])), "validations": [{"expression": "object.spec.replcas > 1"}, {"expression": "object.spec.replicas > 1"}]}),
    )
    .await;
    let status = eventually(SOON, async || {
        let policy = accepts(client.get(&format!("{GROUP}/validatingadmissionpolicies/typo")).await)?;
        if policy["status"]["observedGeneration"] == policy["metadata"]["generation"] {
            Ok(policy["status"].clone())
        } else {
            Err(Problem::new("the status is not written yet"))
        }
    })
    .await
    .unwrap();
    assert_eq!(
        status["typeChecking"]["expressionWarnings"],
        json!([{
            "fieldRef": "spec.validations[0].expression",
            "warning": "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replcas'\n | object.spec.replcas > 1\n | ...........^\n",
        }])
    );
}

#[tokio::test]
async fn decision_metrics_have_the_names_of_kubernetes() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    policy(
        &client,
        "counted",
        json!({"matchConstraints": match_constraints(&json!(["configmaps"]), &json!(["CREATE"])), "validations": [{"expression": "object.metadata.name != 'x'"}]}),
    )
    .await;
    binding(&client, "counted-b", json!({"policyName": "counted", "validationActions": ["Deny"]})).await;
    rejects(client.post(MAPS, &map("x", &json!({}))).await, 422, "Invalid").unwrap();
    accepts(client.post(MAPS, &map("y", &json!({}))).await).unwrap();
    let page = client.get("/metrics").await.unwrap().text();
    let labels = r#"{enforcement_action="deny",error_type="invalid_error",policy="counted",policy_binding="counted-b"}"#;
    assert!(page.contains(&format!("apiserver_validating_admission_policy_check_total{labels} 1")), "{page}");
    let labels = labels.replace('}', r#",le="5e-07"}"#);
    let bucket = format!("apiserver_validating_admission_policy_check_duration_seconds_bucket{labels}");
    assert!(page.contains(&bucket), "{page}");
}
