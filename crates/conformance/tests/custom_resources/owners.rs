//! managedFields of custom resources where the schema is open, as observed from a real kube-apiserver.

use conformance::{Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};

use super::{crd, define};

const APPLY: [(&str, &str); 1] = [("content-type", "application/apply-patch+yaml")];

fn managed_fields(object: &Value) -> Vec<(&str, &Value)> {
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().map(|entry| (entry["manager"].as_str().unwrap(), &entry["fieldsV1"])).collect()
}

#[tokio::test]
async fn managed_fields_contain_an_empty_list_but_not_a_missing_one() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles?fieldManager=me";
    let role = |name: &str, rules: Option<Value>| {
        let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
        if let Some(rules) = rules {
            role["rules"] = rules;
        }
        role
    };
    let made = accepts(client.post(roles, &role("empty", Some(json!([])))).await).unwrap();
    assert_eq!(managed_fields(&made), [("me", &json!({"f:rules": {}}))]);
    assert_eq!(made["rules"], Value::Null);
    let made = accepts(client.post(roles, &role("absent", None)).await).unwrap();
    assert_eq!(managed_fields(&made), []);
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/applied?fieldManager=me";
    let config = role("applied", Some(json!([]))).to_string();
    let made = accepts(client.send(Method::PATCH, path, &APPLY, config.into()).await).unwrap();
    assert_eq!(managed_fields(&made), [("me", &json!({"f:rules": {}}))]);
}

#[tokio::test]
async fn managed_fields_list_preserved_unknown_fields_individually() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}}},
            },
            "closed": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
    }}}]);
    define(&client, &crd("open.example.com", "bags", "Bag", &versions)).await;
    let bags = "/apis/open.example.com/v1/namespaces/default/bags/b";
    let config = |body: Value| {
        let mut config =
            json!({"apiVersion": "open.example.com/v1", "kind": "Bag", "metadata": {"name": "b"}});
        for (field, value) in body.as_object().unwrap() {
            config[field] = value.clone();
        }
        config.to_string()
    };
    let apply = async |manager: &str, body: Value| {
        let path = format!("{bags}?fieldManager={manager}");
        client.send(Method::PATCH, &path, &APPLY, config(body).into()).await
    };
    let first =
        json!({"spec": {"known": {"a": "x", "more": {"deep": 1}}, "free": {"k": "v"}, "list": [1, 2]}});
    let made = accepts(apply("one", first).await).unwrap();
    assert_eq!(made["spec"]["known"]["more"]["deep"], 1);
    // Another manager may add a field beside it, and may not change it.
    let made = accepts(
        apply("two", json!({"spec": {"free": {"other": "w"}, "known": {"more": {"wide": 2}}}})).await,
    )
    .unwrap();
    assert_eq!(made["spec"]["free"], json!({"k": "v", "other": "w"}));
    assert_eq!(made["spec"]["known"], json!({"a": "x", "more": {"deep": 1, "wide": 2}}));
    let status =
        rejects(apply("two", json!({"spec": {"free": {"k": "mine"}, "list": [3]}})).await, 409, "Conflict")
            .unwrap();
    assert_eq!(
        status["message"],
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.list\n- .spec.free.k"
    );
    // A field that is no longer applied is removed; the other manager's field stays.
    let made = accepts(apply("one", json!({"spec": {"known": {"a": "x"}}})).await).unwrap();
    assert_eq!(made["spec"], json!({"free": {"other": "w"}, "known": {"a": "x", "more": {"wide": 2}}}));
    let answer = apply("one", json!({"closed": {"a": "x", "b": "y"}})).await.unwrap();
    assert_eq!(answer.code, 500);
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains(".closed.b: field not declared in schema"), "{message}");
}

/// A status that is dropped because it has a subresource is not validated.
#[tokio::test]
async fn objects_that_do_not_match_their_schema_get_no_managed_fields() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let versions = json!([{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"a": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": "self.a != 'bad'"}]},
        "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
    }}}}]);
    define(&client, &crd("misfit.example.com", "bags", "Bag", &versions)).await;
    let bag = |name: &str, n: Value| {
        json!({"apiVersion": "misfit.example.com/v1", "kind": "Bag", "metadata": {"name": name},
            "spec": {"a": "x"}, "status": {"n": n}})
    };
    let bags = "/apis/misfit.example.com/v1/namespaces/default/bags?fieldManager=me";
    let fitting = accepts(client.post(bags, &bag("fits", json!(1))).await).unwrap();
    assert_eq!(managed_fields(&fitting), [("me", &json!({"f:spec": {".": {}, "f:a": {}}}))]);
    let made = accepts(client.post(bags, &bag("misfit", json!("x"))).await).unwrap();
    assert_eq!(made["metadata"].get("managedFields"), None);
    // A change of an object with owners keeps the other owners.
    let path = "/apis/misfit.example.com/v1/namespaces/default/bags/fits?fieldManager=other";
    let mut changed = bag("fits", json!("x"));
    changed["spec"]["a"] = json!("y");
    changed["metadata"]["resourceVersion"] = fitting["metadata"]["resourceVersion"].clone();
    let changed = accepts(
        client
            .send(Method::PUT, path, &[("content-type", "application/json")], changed.to_string().into())
            .await,
    )
    .unwrap();
    assert_eq!(managed_fields(&changed), [("me", &json!({"f:spec": {".": {}, "f:a": {}}}))]);
    let page = client.get("/metrics").await.unwrap().text();
    let count = |family: &str| {
        let line = format!("apiserver_cel_{family}_duration_seconds_count ");
        page.lines().find_map(|l| l.strip_prefix(&line)).and_then(|n| n.parse::<u32>().ok()).unwrap()
    };
    assert!(count("compilation") >= 1, "{page}");
    assert_eq!(count("evaluation"), 6, "the whole object and its spec, three times");
}
