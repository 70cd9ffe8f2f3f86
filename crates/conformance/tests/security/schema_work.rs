//! Small objects that are expensive because of a schema, a rule or a policy: the work is bounded, runs on the heavy lane and ends
//! with the request.

use std::time::Duration;

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_mins(1);

/// The value of a metric without labels.
async fn metric(client: &Client, name: &str) -> u64 {
    let metrics = client.get("/metrics").await.unwrap().text();
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

async fn lane_requests(client: &Client) -> u64 {
    metric(client, "portcullis_large_requests_total").await
}

pub(crate) fn crd(plural: &str, spec: &Value) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural, "listKind": format!("{plural}list"), "singular": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec},
            }}}],
        },
    })
}

/// Waits until requests for objects of a CRD no longer compile its schema. Status changes of the CRD may cause a second
/// compilation.
async fn is_compiled(client: &Client, path: &str) {
    let no_longer_large = async || {
        let before = lane_requests(client).await;
        accepts(client.get(path).await)?;
        match lane_requests(client).await - before {
            0 => Ok(()),
            _ => Err(Problem::new(format!("{path}: the schema was compiled"))),
        }
    };
    eventually(PATIENCE, no_longer_large).await.unwrap();
}

/// Creates a CRD, waits until it is served and compiled, and returns the path of its objects.
async fn define(client: &Client, plural: &str, spec: &Value) -> String {
    let path = format!("/apis/example.com/v1/namespaces/default/{plural}");
    accepts(client.post(CRDS, &crd(plural, spec)).await).unwrap();
    is_compiled(client, &path).await;
    path
}

fn object(plural: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": plural, "metadata": {"name": name}, "spec": spec})
}

/// A pattern with one active state for each `a` among the last 39,000 characters.
fn many_states() -> String {
    format!("a{}c", "[ab]{1000}".repeat(39))
}

/// Sends a request that would take minutes, with a timeout of one second.
async fn check_canceled_on_the_heavy_lane(client: &Client, path: &str, body: &Value) {
    let [requests, canceled] =
        ["requests_total", "requests_cancelled_total"].map(|n| format!("portcullis_large_{n}"));
    let before = [metric(client, &requests).await, metric(client, &canceled).await];
    let answer = tokio::time::timeout(PATIENCE, client.post(&format!("{path}?timeout=1s"), body)).await;
    rejects(answer.expect("the request did not end with its time"), 504, "Timeout").unwrap();
    let has_ended = async || {
        let now = [metric(client, &requests).await, metric(client, &canceled).await];
        let running = metric(client, "portcullis_large_requests_running").await;
        if now > before && now[1] > before[1] && running == 0 {
            return Ok(());
        }
        Err(Problem::new(format!("requests and canceled: {before:?}, then {now:?}; running: {running}")))
    };
    eventually(PATIENCE, has_ended).await.unwrap();
}

#[tokio::test]
async fn patterns_of_a_schema_with_many_states_are_matched_on_the_heavy_lane_until_the_request_ends() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let patterns: Value =
        (0..4).map(|i| json!({"pattern": format!("{}{{{}}}", many_states(), i + 1)})).collect();
    let texts = define(&client, "texts", &json!({"type": "string", "allOf": patterns})).await;
    // Below the 64 KiB from which bodies count as large.
    let text = "ab".repeat(30_000);
    check_canceled_on_the_heavy_lane(&client, &texts, &object("texts", "long", &json!(text))).await;
    let before = lane_requests(&client).await;
    let status =
        rejects(client.post(&texts, &object("texts", "short", &json!("abab"))).await, 422, "Invalid")
            .unwrap();
    assert!(status["message"].as_str().unwrap().contains("should match 'a[ab]{1000}"), "{status}");
    assert_eq!(lane_requests(&client).await, before, "a short text is little work");
}

#[tokio::test]
async fn validation_with_many_steps_moves_to_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let alternatives = |count: usize| {
        let mut all = vec![json!({"minimum": 2}); count];
        all.push(json!({"minimum": 1}));
        json!({"type": "array", "items": {"type": "integer", "anyOf": all}})
    };
    let many = define(&client, "many", &alternatives(1000)).await;
    for (name, count, in_lane) in [("small", 10, false), ("large", 1000, true)] {
        let before = lane_requests(&client).await;
        accepts(client.post(&many, &object("many", name, &json!(vec![1; count]))).await).unwrap();
        assert_eq!(lane_requests(&client).await > before, in_lane, "{name}");
        let changed = json!({"spec": vec![2; count]});
        let headers = [("content-type", "application/merge-patch+json")];
        let path = format!("{many}/{name}");
        let patch = client.send(http::Method::PATCH, &path, &headers, changed.to_string().into()).await;
        accepts(patch).unwrap();
    }
    let endless = define(&client, "endless", &alternatives(100_000)).await;
    check_canceled_on_the_heavy_lane(&client, &endless, &object("endless", "x", &json!(vec![0; 20_000])))
        .await;
}

#[tokio::test]
async fn enums_with_large_values_run_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let value = |last: usize| {
        let mut list = vec![0; 1000];
        list.push(last);
        json!(list)
    };
    let allowed: Value = (0..50).map(value).collect();
    let items = json!({"type": "array", "items": {"type": "integer"}, "enum": allowed});
    let lists = define(&client, "lists", &json!({"type": "array", "items": items})).await;
    for (name, count, in_lane) in [("one", 1, false), ("twenty", 20, true)] {
        let before = lane_requests(&client).await;
        accepts(client.post(&lists, &object("lists", name, &json!(vec![value(49); count]))).await).unwrap();
        assert_eq!(lane_requests(&client).await > before, in_lane, "{name}");
    }
    let wrong = object("lists", "wrong", &json!([value(50)]));
    rejects(client.post(&lists, &wrong).await, 422, "Invalid").unwrap();
}

#[tokio::test]
async fn defaults_of_a_crd_are_validated_until_the_request_ends() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let with_defaults = |name: &str, count: usize| {
        let items = json!({"type": "integer", "anyOf": vec![json!({"minimum": 0}); count]});
        let items = json!({"type": "array", "default": vec![-1; count], "items": items});
        crd(name, &json!({"type": "object", "properties": {"list": items}}))
    };
    check_canceled_on_the_heavy_lane(&client, CRDS, &with_defaults("larges", 30_000)).await;
    let status = rejects(client.post(CRDS, &with_defaults("wrongs", 3)).await, 422, "Invalid").unwrap();
    assert!(status["message"].as_str().unwrap().contains("(anyOf)"), "{status}");
    let right = json!({"type": "integer", "default": 1, "anyOf": [{"minimum": 2}, {"minimum": 1}]});
    accepts(client.post(CRDS, &crd("rights", &right)).await).unwrap();
}

#[tokio::test]
async fn errors_of_a_schema_do_not_repeat_large_values() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let patterns: Value = (0..300).map(|i| json!({"pattern": format!("^c{i}")})).collect();
    let texts = define(&client, "texts", &json!({"type": "string", "allOf": patterns})).await;
    let answer = client.post(&texts, &object("texts", "long", &json!("x".repeat(200_000)))).await.unwrap();
    assert_eq!(answer.code, 422);
    assert!(answer.body.len() < 8 << 20, "{} bytes", answer.body.len());
    let status =
        rejects(client.post(&texts, &object("texts", "short", &json!("x"))).await, 422, "Invalid").unwrap();
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("'^c0'") && message.contains("'^c299'"),
        "short problems are all reported: {message:.500}"
    );
}

#[tokio::test]
async fn large_schemas_are_compiled_on_the_heavy_lane_once() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let rules: Value = (0..1000).map(|i| json!({"rule": format!("self != {i}")})).collect();
    let spec = json!({"type": "integer", "x-kubernetes-validations": rules});
    accepts(client.post(CRDS, &crd("ruled", &spec)).await).unwrap();
    let before = lane_requests(&client).await;
    let ruled = "/apis/example.com/v1/namespaces/default/ruled";
    eventually(PATIENCE, async || accepts(client.get(ruled).await)).await.unwrap();
    assert!(lane_requests(&client).await > before, "the first request compiles the schema");
    is_compiled(&client, ruled).await;
    let status =
        rejects(client.post(ruled, &object("ruled", "x", &json!(999))).await, 422, "Invalid").unwrap();
    assert!(status["message"].as_str().unwrap().contains("failed rule: self != 999"), "{status}");
}

/// Whether an error names the limit.
fn assert_names_limit(status: &Value) {
    let message = status["message"].as_str().unwrap();
    let limit = "matching the regular expressions of an evaluation takes more than 1000000 units of work";
    assert!(message.contains(limit), "{message:.1000}");
}

#[tokio::test]
async fn matching_in_rules_of_a_crd_is_bounded() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let rule = json!({"rule": format!("!self.matches('{}')", many_states())});
    let spec = json!({"type": "string", "maxLength": 65_536, "x-kubernetes-validations": [rule]});
    let texts = define(&client, "texts", &spec).await;
    let before = lane_requests(&client).await;
    accepts(client.post(&texts, &object("texts", "short", &json!("abab"))).await).unwrap();
    assert_eq!(lane_requests(&client).await, before);
    let long = object("texts", "long", &json!("ab".repeat(30_000)));
    assert_names_limit(&rejects(client.post(&texts, &long).await, 422, "Invalid").unwrap());
    assert!(lane_requests(&client).await > before);
}

/// Creates a policy for config maps and waits until it is active.
async fn enforce(client: &Client, validations: &Value) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": validations}});
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicies"), &policy).await).unwrap();
    let binding =
        json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), &binding).await)
        .unwrap();
}

fn map(name: &str, text: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": text}})
}

#[tokio::test]
async fn matching_in_policies_is_bounded() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    enforce(&client, &json!([{"expression": format!("!object.data.text.matches('{}')", many_states())}]))
        .await;
    assert_names_limit(
        &rejects(client.post(MAPS, &map("long", &"ab".repeat(30_000))).await, 422, "Invalid").unwrap(),
    );
    accepts(client.post(MAPS, &map("short", "abab")).await).unwrap();
}

#[tokio::test]
async fn expensive_policies_are_evaluated_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let list: Value = (0..60).collect::<Vec<u8>>().into();
    // About 700,000 units of cost, if the text is not empty.
    let expression =
        format!("object.data.text == '' || {list}.all(a, {list}.all(b, {list}.all(c, a + b != -c - 1)))");
    let validations: Value = vec![json!({"expression": expression}); 3].into();
    enforce(&client, &validations).await;
    for (name, text, in_lane) in [("cheap", "", false), ("expensive", "x", true)] {
        let before = lane_requests(&client).await;
        let answer = client.post(MAPS, &map(name, text)).await.unwrap();
        assert!(matches!(answer.code, 201 | 422), "{}", answer.text());
        assert_eq!(lane_requests(&client).await > before, in_lane, "{name}");
    }
}
