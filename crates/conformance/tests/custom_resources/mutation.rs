//! Mutating webhooks and policies with a rule for `v1`, on custom resources that clients write in `v2`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use conformance::{Client, Hook, HookReply, HookRequest, HttpResponse, Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};

use super::conversion::{answer, convert_host};
use super::{crd, define};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Sets `spec.note`, or `status.note` in a request for the status, of the object as `v1`.
fn mutate(asked: &HookRequest) -> HookReply {
    let request = &asked.body["request"];
    assert_eq!(request["kind"]["version"], "v1", "{request}");
    assert_eq!(request["requestKind"]["version"], "v2", "{request}");
    assert_eq!(request["object"]["apiVersion"], format!("{}/v1", request["kind"]["group"].as_str().unwrap()));
    let field = if request["requestSubResource"] == "status" { "status" } else { "spec" };
    let patch = json!([{"op": "add", "path": format!("/{field}/note"), "value": "webhook"}]).to_string();
    HookReply::Json(
        200,
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": request["uid"], "allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(patch)}}),
    )
}

/// A CRD of hosts with this conversion strategy and storage version.
fn hosts(hook: &Hook, group: &str, strategy: &str, stored: &str) -> Value {
    let text = json!({"type": "string"});
    let own = |name: &str| match (strategy, name) {
        ("None", _) => json!({"host": text, "port": text, "note": text}),
        (_, "v1") => json!({"hostPort": text, "note": text}),
        _ => json!({"host": text, "port": text, "note": text}),
    };
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == stored, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": own(name)},
                "status": {"type": "object", "properties": {"note": text, "seen": text}}}}}})
    };
    let mut body = crd(group, "hosts", "Host", &json!([version("v1"), version("v2")]));
    if strategy == "Webhook" {
        body["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("{}/convert", hook.url), "caBundle": BASE64_STANDARD.encode(&hook.authority)},
        }});
    }
    body
}

/// Registers a webhook and two policies, each for the objects with its name as the label `mutation`.
async fn register(client: &Client, hook: &Hook, groups: &[String]) {
    let rule = json!({"apiGroups": groups, "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["hosts", "hosts/status"]});
    let selector = |name: &str| json!({"matchLabels": {"mutation": name}});
    let configuration = json!({"metadata": {"name": "webhook"}, "webhooks": [{
        "name": "hosts.example.com", "rules": [rule], "objectSelector": selector("webhook"),
        "matchPolicy": "Equivalent", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("{}/mutate", hook.url), "caBundle": BASE64_STANDARD.encode(&hook.authority)},
    }]});
    accepts(client.post(&format!("{REGISTRATION}/mutatingwebhookconfigurations"), &configuration).await)
        .unwrap();
    let patch = "[JSONPatch{op: 'add', path: (has(request.subResource) ? '/status' : '/spec') + '/note', \
                 value: object.apiVersion.endsWith('/v1') ? 'jsonpatch' : 'wrong version'}]";
    let apply = "has(request.subResource) ? Object{status: Object.status{note: 'apply'}} \
                 : Object{spec: Object.spec{note: object.apiVersion.endsWith('/v1') ? 'apply' : 'wrong version'}}";
    for (name, mutation) in [
        ("jsonpatch", json!({"patchType": "JSONPatch", "jsonPatch": {"expression": patch}})),
        ("apply", json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": apply}})),
    ] {
        let constraints =
            json!({"matchPolicy": "Equivalent", "resourceRules": [rule], "objectSelector": selector(name)});
        let policy = json!({"metadata": {"name": name}, "spec": {"reinvocationPolicy": "Never",
            "failurePolicy": "Fail", "matchConstraints": constraints, "mutations": [mutation]}});
        accepts(client.post(&format!("{REGISTRATION}/mutatingadmissionpolicies"), &policy).await).unwrap();
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
        accepts(client.post(&format!("{REGISTRATION}/mutatingadmissionpolicybindings"), &binding).await)
            .unwrap();
    }
}

#[tokio::test]
async fn mutations_of_another_version_are_converted_back() {
    let hook = Hook::start(|asked| {
        if asked.body["kind"] == "AdmissionReview" {
            return mutate(asked);
        }
        let wanted = asked.body["request"]["desiredAPIVersion"].as_str().unwrap_or_default();
        let objects = asked.body["request"]["objects"].as_array().cloned().unwrap_or_default();
        answer(asked, objects.iter().map(|object| convert_host(object, wanted)).collect())
    })
    .await
    .unwrap();
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let mut groups = Vec::new();
    for strategy in ["None", "Webhook"] {
        for stored in ["v1", "v2"] {
            let group = format!("{}-{stored}.example.com", strategy.to_lowercase());
            define(&client, &hosts(&hook, &group, strategy, stored)).await;
            groups.push(group);
        }
    }
    register(&client, &hook, &groups).await;
    for group in &groups {
        for mutation in ["webhook", "jsonpatch", "apply"] {
            every_write_is_mutated(&client, group, mutation).await;
        }
    }
}

/// Writes a host in `v2` in all ways, and expects the mutation in the response and in both versions.
async fn every_write_is_mutated(client: &Client, group: &str, mutation: &str) {
    let path = format!("/apis/{group}/v2/namespaces/default/hosts");
    let one = format!("{path}/{mutation}");
    let host = |note: &str| {
        json!({"apiVersion": format!("{group}/v2"), "kind": "Host",
            "metadata": {"name": mutation, "labels": {"mutation": mutation}},
            "spec": {"host": "one.example", "port": "80", "note": note}})
    };
    let patch = async |path: &str, media: &str, body: Value| {
        client.send(Method::PATCH, path, &[("content-type", media)], body.to_string().into()).await
    };
    let check = async |written: conformance::Result<HttpResponse>, field: &str, case: &str| {
        let written =
            accepts(written).unwrap_or_else(|problem| panic!("{group} {mutation} {case}: {problem}"));
        assert_eq!(written["apiVersion"], format!("{group}/v2"), "{case}");
        assert_eq!(written[field]["note"], mutation, "{group} {case}: {written}");
        assert_eq!(written["spec"]["host"], "one.example", "{group} {case}: {written}");
        for version in ["v1", "v2"] {
            let read = accepts(client.get(&one.replace("/v2/", &format!("/{version}/"))).await).unwrap();
            assert_eq!(read["apiVersion"], format!("{group}/{version}"));
            assert_eq!(read[field]["note"], mutation, "{group} {case}: {read}");
        }
        written
    };
    let mut written = check(client.post(&path, &host("sent")).await, "spec", "create").await;
    written["spec"]["note"] = json!("sent");
    check(client.json(Method::PUT, &one, &written).await, "spec", "update").await;
    let merge = json!({"spec": {"note": "sent", "port": "81"}});
    check(patch(&one, "application/merge-patch+json", merge).await, "spec", "merge patch").await;
    let list = json!([{"op": "replace", "path": "/spec/note", "value": "sent"}]);
    check(patch(&one, "application/json-patch+json", list).await, "spec", "JSON patch").await;
    let applying = format!("{one}?fieldManager=m&force=true");
    let apply = "application/apply-patch+yaml";
    check(patch(&applying, apply, host("applied")).await, "spec", "apply").await;
    let status = format!("{one}/status");
    let merge = json!({"status": {"seen": "yes"}});
    let mut written =
        check(patch(&status, "application/merge-patch+json", merge).await, "status", "status patch").await;
    assert_eq!(written["status"]["seen"], "yes");
    written["status"] = json!({"note": "sent"});
    check(client.json(Method::PUT, &status, &written).await, "status", "status update").await;
    let mut applied = host("applied");
    applied["status"] = json!({"note": "sent"});
    let applying = format!("{status}?fieldManager=s&force=true");
    check(patch(&applying, apply, applied).await, "status", "status apply").await;
    accepts(client.delete(&one).await).unwrap();
    let created = patch(&format!("{one}?fieldManager=m"), apply, host("applied")).await;
    check(created, "spec", "create by apply").await;
}

#[tokio::test]
async fn a_webhook_url_with_an_unclosed_bracket_is_invalid() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let path = format!("{REGISTRATION}/mutatingwebhookconfigurations");
    let configuration = |url: &str| {
        json!({"metadata": {"name": "w"}, "webhooks": [{"name": "w.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": url}}]})
    };
    let refused =
        rejects(client.post(&path, &configuration("https://[::1/x")).await, 422, "Invalid").unwrap();
    let words = "webhooks[0].clientConfig.url: Required value: url must be a valid URL: \
                 parse \"https://[::1/x\": missing ']' in host; desired format: https://host[/path]";
    assert!(refused["message"].as_str().unwrap().contains(words), "{refused}");
    accepts(client.post(&path, &configuration("https://[::1]/x")).await).unwrap();
}
