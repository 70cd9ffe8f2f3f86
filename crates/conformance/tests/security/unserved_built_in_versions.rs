//! Policies and webhooks for an unserved version of a built-in resource apply to its objects.

use std::time::Duration;

use conformance::webhook::{ReviewCall, ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const PATIENCE: Duration = Duration::from_secs(30);

/// Rules for the unserved versions `v1beta1` of ResourceClaimTemplates and `v1` of HorizontalPodAutoscalers.
fn rules(operations: &[&str]) -> Value {
    json!([
        {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1beta1"], "operations": operations,
            "resources": ["resourceclaimtemplates"]},
        {"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "operations": operations,
            "resources": ["horizontalpodautoscalers"]},
    ])
}

/// Denies the device class `evil` and the utilization 66, at their field paths in the unserved versions.
const GUARD: &str = "request.operation == 'DELETE' ? oldObject.metadata.name != 'kept' : \
    object.kind == 'ResourceClaimTemplate' ? \
        object.apiVersion == 'resource.k8s.io/v1beta1' && \
        object.spec.spec.devices.requests.all(r, r.deviceClassName != 'evil') : \
        object.apiVersion == 'autoscaling/v1' && object.spec.targetCPUUtilizationPercentage != 66";

async fn guard(client: &Client, webhook: &WebhookServer, match_policy: &str) {
    let writes = ["CREATE", "UPDATE", "DELETE"];
    let hook = |name: &str, path: &str, operations: &[&str]| {
        json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "matchPolicy": match_policy,
            "rules": rules(operations),
            "clientConfig": {"url": webhook.url(path), "caBundle": webhook.ca_bundle}})
    };
    for (plural, object) in [
        (
            "validatingadmissionpolicies",
            json!({"metadata": {"name": "guard"}, "spec": {"failurePolicy": "Fail",
                "matchConstraints": {"matchPolicy": match_policy, "resourceRules": rules(&writes)},
                "validations": [{"expression": GUARD, "message": "guarded by a policy"}]}}),
        ),
        (
            "validatingadmissionpolicybindings",
            json!({"metadata": {"name": "guard"}, "spec": {"policyName": "guard", "validationActions": ["Deny"]}}),
        ),
        (
            "mutatingadmissionpolicies",
            json!({"metadata": {"name": "label"}, "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "matchConstraints": {"matchPolicy": match_policy, "resourceRules": rules(&["CREATE"])},
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{metadata: Object.metadata{labels: {'seen': object.apiVersion.replace('/', '-')}}}"}}]}}),
        ),
        (
            "mutatingadmissionpolicybindings",
            json!({"metadata": {"name": "label"}, "spec": {"policyName": "label"}}),
        ),
        (
            "validatingwebhookconfigurations",
            json!({"metadata": {"name": "guard"}, "webhooks": [hook("guard.example.com", "/review", &writes)]}),
        ),
        (
            "mutatingwebhookconfigurations",
            json!({"metadata": {"name": "patch"}, "webhooks": [hook("patch.example.com", "/patch", &["CREATE"])]}),
        ),
    ] {
        accepts(client.post(&format!("{REGISTRATION}/{plural}"), &object).await).unwrap();
    }
}

/// Denies the device class `bad` and the utilization 77; as a mutating webhook, writes the version of the received object into an
/// annotation.
fn review(call: &ReviewCall) -> ReviewReply {
    let request = &call.review["request"];
    let object = &request["object"];
    if call.target.starts_with("/patch") {
        let seen = json!({"seen": object["apiVersion"]});
        return ReviewReply::patch(&json!([{"op": "add", "path": "/metadata/annotations", "value": seen}]));
    }
    let class = &object["spec"]["spec"]["devices"]["requests"][0]["deviceClassName"];
    let is_refused = class == "bad" || object["spec"]["targetCPUUtilizationPercentage"] == 77;
    if is_refused { ReviewReply::deny("guarded by a webhook") } else { ReviewReply::allow() }
}

fn template(name: &str, class: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class}}]}}}})
}

fn scaler(name: &str, utilization: u32) -> Value {
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": utilization}}}]}})
}

async fn check_denials(client: &Client, phase: &str) {
    let name = format!("good-{phase}");
    for (path, object, seen) in [
        (TEMPLATES, template(&name, "good"), "resource.k8s.io/v1beta1"),
        (SCALERS, scaler(&name, 50), "autoscaling/v1"),
    ] {
        let made = accepts(client.post(path, &object).await).unwrap();
        assert_eq!(made["metadata"]["labels"]["seen"], seen.replace('/', "-"), "{made}");
        assert_eq!(made["metadata"]["annotations"]["seen"], seen, "{made}");
        // An object that mutations saw in another version is stored as it was sent.
        assert_eq!(made["apiVersion"], object["apiVersion"], "{made}");
        let requests = |object: &Value| {
            object["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"].clone()
        };
        assert_eq!(requests(&made), requests(&object), "{made}");
        assert_eq!(made["spec"]["metrics"], object["spec"]["metrics"], "{made}");
    }
    for (path, object) in [
        (TEMPLATES, template("bad", "evil")),
        (TEMPLATES, template("bad", "bad")),
        (SCALERS, scaler("bad", 66)),
        (SCALERS, scaler("bad", 77)),
    ] {
        let refused = client.post(path, &object).await.unwrap();
        assert!([403, 422].contains(&refused.code), "{phase}: {object}: {}", refused.code);
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(text.contains("guarded by a"), "{phase}: {text}");
    }
    let change = json!({"spec": scaler("", 66)["spec"]}).to_string();
    let headers = [("content-type", "application/merge-patch+json")];
    let changed = client.send(Method::PATCH, &format!("{SCALERS}/{name}"), &headers, change.into()).await;
    rejects(changed, 422, "Invalid").unwrap();
    rejects(client.delete(&format!("{TEMPLATES}/kept")).await, 422, "Invalid").unwrap();
}

#[tokio::test]
async fn rules_for_a_built_in_version_that_is_not_served_match() {
    let server = Server::serve(&["--runtime-config=autoscaling/v1=false"]).await.unwrap();
    let client = server.client().unwrap();
    for path in [SCALERS.replace("/v2/", "/v1/"), TEMPLATES.replace("/v1/", "/v1beta1/")] {
        assert_eq!(client.get(&path).await.unwrap().code, 404, "{path}");
    }
    let webhook = WebhookServer::start(ServingCertificate::Signed, review).await.unwrap();
    accepts(client.post(TEMPLATES, &template("kept", "good")).await).unwrap();
    guard(&client, &webhook, "Equivalent").await;
    check_denials(&client, "alone").await;

    // A CRD with the group, names and version of the rule is another resource, and changes nothing.
    let crd = json!({
        "metadata": {"name": "resourceclaimtemplates.resource.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {
            "group": "resource.k8s.io", "scope": "Namespaced",
            "names": {"plural": "resourceclaimtemplates", "singular": "resourceclaimtemplate",
                "kind": "ResourceClaimTemplate", "listKind": "ResourceClaimTemplateList"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    accepts(client.post(CRDS, &crd).await).unwrap();
    let custom = TEMPLATES.replace("/v1/", "/v1beta1/");
    eventually(PATIENCE, async || accepts(client.get(&custom).await)).await.unwrap();
    check_denials(&client, "beside-a-crd").await;
}

#[tokio::test]
async fn rules_for_exactly_a_built_in_version_that_is_not_served_match_no_other() {
    let server = Server::serve(&["--runtime-config=autoscaling/v1=false"]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, review).await.unwrap();
    guard(&client, &webhook, "Exact").await;
    accepts(client.post(TEMPLATES, &template("any", "evil")).await).unwrap();
    accepts(client.post(SCALERS, &scaler("any", 77)).await).unwrap();
    assert!(webhook.take_calls().is_empty());
}
