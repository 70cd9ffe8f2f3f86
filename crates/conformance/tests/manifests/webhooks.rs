//! Webhooks from manifest files: examples, credentials, reloading, and unreachable endpoints.

use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use conformance::hook::{Hook, HookReply, HookRequest};
use conformance::server::free_port;
use conformance::{Server, accepts, eventually, rejects};
use serde_json::{Value, json};

use crate::folder::{Folders, MAPS, NO_ACCOUNTS, counted, map, tries};
use crate::reload::SOON;

/// A configuration with one webhook for created and updated config maps, with further lines.
pub(crate) fn configuration(kind: &str, name: &str, hook: &Hook, more: &str) -> String {
    format!(
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: {kind}
metadata:
  name: {name}.static.k8s.io
webhooks:
- name: {name}.example.com
  clientConfig:
    url: "{}/{name}"
    caBundle: {}
  rules:
  - apiGroups: [""]
    apiVersions: ["v1"]
    operations: ["CREATE", "UPDATE"]
    resources: ["configmaps"]
  admissionReviewVersions: ["v1"]
  sideEffects: None
  {more}
"#,
        hook.url,
        BASE64_STANDARD.encode(&hook.authority)
    )
}

fn answer(asked: &HookRequest, response: &Value) -> HookReply {
    let mut response = response.clone();
    response["uid"] = asked.body["request"]["uid"].clone();
    HookReply::Json(
        200,
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
    )
}

/// Denies objects whose names begin with `bad`.
async fn start_denying_webhook() -> Hook {
    Hook::start(|asked| {
        let name = asked.body["request"]["object"]["metadata"]["name"].as_str().unwrap_or_default();
        let allowed = !name.starts_with("bad");
        answer(asked, &json!({"allowed": allowed, "status": {"message": "not this name", "code": 403}}))
    })
    .await
    .unwrap()
}

/// The denial must name the webhook.
fn check_denial(answer: conformance::Result<conformance::client::HttpResponse>) -> conformance::Result<()> {
    let status = rejects(answer, 403, "")?;
    let words = "admission webhook \"guard.example.com\" denied the request: not this name";
    if status["message"] == words {
        return Ok(());
    }
    Err(conformance::Problem::new(status.to_string()))
}

/// Adds a label with the last segment of the requested path.
async fn start_labeling_webhook() -> Hook {
    Hook::start(|asked| {
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"by": asked.path.trim_start_matches('/')}}]);
        let patch = BASE64_STANDARD.encode(patch.to_string());
        answer(asked, &json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    })
    .await
    .unwrap()
}

/// Both examples, with the webhook of this test instead of the one at `platform`.
fn examples(hook: &Hook) -> [(&'static str, &'static str, String); 2] {
    let rest = |name: &str| {
        format!(
            r#"webhooks:
- name: "security.platform.example.com"
  clientConfig:
    url: "{}/{name}"
    caBundle: "{}"
  rules:
  - apiGroups: [""]
    apiVersions: ["v1"]
    operations: ["CREATE", "UPDATE"]
    resources: ["pods"]
  admissionReviewVersions: ["v1"]
  sideEffects: None
  failurePolicy: Fail
"#,
            hook.url,
            BASE64_STANDARD.encode(&hook.authority)
        )
    };
    let page = format!(
        r#"# This is an example ValidatingWebhookConfiguration that calls an external
# URL-based webhook endpoint to validate pod creation and updates.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: "example-security-webhook.static.k8s.io"
  annotations:
    kubernetes.io/description: "Validate pod creation and updates via external webhook"
{}"#,
        rest("page")
    );
    let kep = format!(
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: "platform.security-webhook.static.k8s.io"
{}"#,
        rest("kep")
    );
    [("page", "example-security-webhook", page), ("kep", "platform.security-webhook", kep)]
}

#[tokio::test]
async fn documented_webhooks_are_called_with_the_credentials_of_the_kubeconfig() {
    let hook = start_denying_webhook().await;
    let host = hook.url.trim_start_matches("https://").to_owned();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\nusers: [{{name: \"{host}\", user: {{token: secret-of-the-webhook}}}}]\n"
    );
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (path, _, text) in examples(&hook) {
        let folders = Folders::with_credentials(Some(&kubeconfig));
        folders.write_for("ValidatingAdmissionWebhook", "webhook.yaml", &text);
        let server = folders.server().await;
        let client = server.client().unwrap();
        let status = rejects(client.post(pods, &pod("bad")).await, 403, "").unwrap();
        let words = "admission webhook \"security.platform.example.com\" denied the request: not this name";
        assert_eq!(status["message"], words);
        accepts(client.post(pods, &pod("good")).await).unwrap();
        let asked = hook.take();
        assert_eq!(asked.len(), 2);
        for asked in asked {
            assert_eq!(asked.path, format!("/{path}"));
            assert_eq!(asked.headers["authorization"], "Bearer secret-of-the-webhook");
        }
        // `/debug/admission` shows no credentials.
        let page = client.get("/debug/admission").await.unwrap().text();
        assert!(page.contains("security.platform.example.com") && !page.contains("secret-of-the-webhook"));
    }
    let free = Server::serve(&[NO_ACCOUNTS]).await.unwrap();
    accepts(free.client().unwrap().post(pods, &pod("bad")).await).unwrap();
}

#[tokio::test]
async fn webhooks_of_both_kinds_are_reloaded() {
    let (guard, labeler) = (start_denying_webhook().await, start_labeling_webhook().await);
    let folders = Folders::new();
    let mutating = |name: &str| configuration("MutatingWebhookConfiguration", name, &labeler, "");
    let validating = |name: &str| configuration("ValidatingWebhookConfiguration", name, &guard, "");
    folders.write_for("MutatingAdmissionWebhook", "m.yaml", &mutating("one"));
    let server = folders.server().await;
    let client = server.client().unwrap();
    let label = async |name: &str| {
        let made = accepts(tries(&client, name).await)?;
        Ok::<_, conformance::Problem>(
            made["metadata"]["labels"]["by"].as_str().unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(label("bad").await.unwrap(), "one", "nothing refuses it yet");
    folders.write_for("MutatingAdmissionWebhook", "m.yaml", &mutating("two"));
    eventually(SOON, async || match label("good").await?.as_str() {
        "two" => Ok(()),
        other => Err(conformance::Problem::new(other)),
    })
    .await
    .unwrap();
    folders.write_for("ValidatingAdmissionWebhook", "v.yaml", &validating("guard"));
    eventually(SOON, async || check_denial(tries(&client, "bad").await)).await.unwrap();
    // A service reference makes the file invalid: the last valid one stays active.
    let failures = ["\"ValidatingAdmissionWebhook\"", "\"failure\""];
    let service = validating("guard")
        .replace(&format!("url: \"{}/guard\"", guard.url), "service: {namespace: default, name: guard}");
    folders.write_for("ValidatingAdmissionWebhook", "v.yaml", &service);
    eventually(SOON, async || match counted(&client, crate::reload::RELOADS, &failures).await {
        0 => Err(conformance::Problem::new("no failure was counted")),
        _ => Ok(()),
    })
    .await
    .unwrap();
    check_denial(tries(&client, "bad").await).unwrap();
    for (plugin, file) in [("MutatingAdmissionWebhook", "m.yaml"), ("ValidatingAdmissionWebhook", "v.yaml")] {
        fs::remove_file(folders.of(plugin).join(file)).unwrap();
    }
    eventually(SOON, async || match label("bad").await?.as_str() {
        "" => Ok(()),
        other => Err(conformance::Problem::new(other)),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn mutating_policies_are_reloaded() {
    let policy = |value: &str| {
        format!(
            r#"apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: label.static.k8s.io
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["configmaps"]}}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{{metadata: Object.metadata{{labels: {{"by": "{value}"}}}}}}'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: label-binding.static.k8s.io
spec:
  policyName: label.static.k8s.io
"#
        )
    };
    let folders = Folders::new();
    folders.write_for("MutatingAdmissionPolicy", "label.yaml", &policy("one"));
    let server = folders.server().await;
    let client = server.client().unwrap();
    let label = async || {
        let made = accepts(tries(&client, "any").await).unwrap();
        made["metadata"]["labels"]["by"].as_str().unwrap_or_default().to_owned()
    };
    let becomes = async |wanted: &str| {
        eventually(SOON, async || match label().await {
            label if label == wanted => Ok(()),
            label => Err(conformance::Problem::new(label)),
        })
        .await
        .unwrap();
    };
    assert_eq!(label().await, "one");
    folders.write_for("MutatingAdmissionPolicy", "label.yaml", &policy("two"));
    becomes("two").await;
    folders.write_for(
        "MutatingAdmissionPolicy",
        "label.yaml",
        &policy("three").replace("Object{", "Object{{"),
    );
    eventually(SOON, async || {
        match counted(&client, crate::reload::RELOADS, &["\"MutatingAdmissionPolicy\"", "\"failure\""]).await
        {
            0 => Err(conformance::Problem::new("no failure was counted")),
            _ => Ok(()),
        }
    })
    .await
    .unwrap();
    assert_eq!(label().await, "two", "the last good set stays");
    folders.write_for("MutatingAdmissionPolicy", "label.yaml", &policy("four"));
    becomes("four").await;
    let family = "apiserver_mutating_admission_manifest_policy_check_total";
    assert!(counted(&client, family, &["policy=\"label.static.k8s.io\""]).await >= 3);
    fs::remove_file(folders.of("MutatingAdmissionPolicy").join("label.yaml")).unwrap();
    becomes("").await;
}

/// The rows about webhooks in both troubleshooting tables.
#[tokio::test]
async fn an_unreachable_webhook_follows_its_failure_policy_and_is_counted() {
    let (port, listener) = free_port().unwrap();
    drop(listener);
    let hook = start_denying_webhook().await;
    let unreachable = |text: String| text.replace(&hook.url, &format!("https://127.0.0.1:{port}"));
    let folders = Folders::new();
    let write = |policy: &str, reachable: bool| {
        let text = configuration(
            "ValidatingWebhookConfiguration",
            "guard",
            &hook,
            &format!("failurePolicy: {policy}"),
        );
        let text = if reachable { text } else { unreachable(text) };
        folders.write_for("ValidatingAdmissionWebhook", "guard.yaml", &text);
    };
    write("Fail", false);
    let server = folders.server().await;
    let client = server.client().unwrap();
    let status = rejects(tries(&client, "good").await, 500, "InternalError").unwrap();
    let said = status["message"].as_str().unwrap();
    assert!(
        said.contains("failed calling webhook \"guard.example.com\"") && said.contains("connection refused"),
        "{said}"
    );
    let name = "name=\"guard.example.com\"";
    for family in [
        "apiserver_admission_webhook_rejection_count",
        "apiserver_admission_manifest_webhook_rejection_count",
    ] {
        assert_eq!(counted(&client, family, &[name, "calling_webhook_error"]).await, 1, "{family}");
    }
    // The page `/debug/admission` shows the last error.
    let page = client.get("/debug/admission?plugin=ValidatingAdmissionWebhook").await.unwrap().text();
    assert!(page.contains("connection refused"), "{page}");

    write("Ignore", false);
    eventually(SOON, async || accepts(tries(&client, "bad").await)).await.unwrap();
    for family in [
        "apiserver_admission_webhook_fail_open_count",
        "apiserver_admission_manifest_webhook_fail_open_count",
    ] {
        assert!(counted(&client, family, &[name]).await >= 1, "{family}");
    }
    // The endpoint works again, and the webhook decides.
    write("Fail", true);
    eventually(SOON, async || check_denial(tries(&client, "bad").await)).await.unwrap();
    accepts(client.post(MAPS, &map("good")).await).unwrap();
    let requests = "apiserver_admission_manifest_webhook_request_total";
    assert!(counted(&client, requests, &[name, "rejected=\"true\"", "code=\"403\""]).await >= 1);
    assert!(counted(&client, requests, &[name, "rejected=\"false\"", "code=\"200\""]).await >= 1);
    let seconds = "apiserver_admission_manifest_webhook_admission_duration_seconds_count";
    assert!(counted(&client, seconds, &[name]).await >= 3);
}

/// An API webhook is called only if no static webhook denies.
#[tokio::test]
async fn static_webhooks_are_called_before_api_webhooks() {
    let folders = Folders::new();
    let (strict, late) = (start_denying_webhook().await, start_denying_webhook().await);
    let kind = "ValidatingWebhookConfiguration";
    let text = configuration(kind, "guard", &strict, "");
    folders.write_for("ValidatingAdmissionWebhook", "guard.yaml", &text);
    let server = folders.server().await;
    let client = server.client().unwrap();
    let registered = json!({"metadata": {"name": "api"}, "webhooks": [{
        "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": late.url, "caBundle": BASE64_STANDARD.encode(&late.authority)},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    accepts(client.post(path, &registered).await).unwrap();
    eventually(SOON, async || {
        accepts(tries(&client, "good").await)?;
        match late.take().len() {
            0 => Err(conformance::Problem::new("the webhook of the API is not asked yet")),
            _ => Ok(()),
        }
    })
    .await
    .unwrap();
    strict.take();
    check_denial(tries(&client, "bad").await).unwrap();
    assert_eq!((strict.take().len(), late.take().len()), (1, 0));
}
