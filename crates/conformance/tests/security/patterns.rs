//! Short regular expressions that are expensive to compile: in selectors, schemas, rules, policies and data.

use std::time::Duration;

use conformance::{Client, Server, accepts, eventually, rejects};
use serde_json::{Value, json};

use crate::schema_work::crd;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const PATIENCE: Duration = Duration::from_secs(30);

/// The pattern of a DNS subdomain, which is common in schemas.
const ORDINARY: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// A claim with selectors that each match a text with this many different patterns.
fn claim(name: &str, selectors: usize, patterns: usize, pattern: &str) -> Value {
    let selector = |s: usize| {
        let calls: Vec<String> = (0..patterns).map(|i| format!("'a'.matches('{pattern}{s}x{i}')")).collect();
        json!({"cel": {"expression": calls.join(" || ")}})
    };
    let selectors: Value = (0..selectors).map(selector).collect();
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "c", "selectors": selectors}},
    ]}}})
}

/// Whether an error names the limit.
fn assert_names_limit(status: &Value, limit: &str) {
    let message = status["message"].as_str().unwrap();
    assert!(message.contains(&format!("{limit} units of work")), "{message:.500}");
}

#[tokio::test]
async fn patterns_in_selectors_of_a_claim_are_bounded() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    // 8 KB that took 1.4 s: one expression that is too expensive, one such pattern, and expressions that are too
    // expensive together.
    for (selectors, patterns, pattern, limit) in [
        (1, 200, r"[\\pL\\pN]{18}", "more than 1000000"),
        (1, 1, &"a{1000}".repeat(1001), "more than 1000000"),
        (32, 8, r"[\\pL\\pN]{18}", "more than 5000000"),
    ] {
        let answer = client.post(CLAIMS, &claim("large", selectors, patterns, pattern)).await;
        assert_names_limit(&rejects(answer, 422, "Invalid").unwrap(), limit);
    }
    accepts(client.post(CLAIMS, &claim("ordinary", 32, 20, ORDINARY)).await).unwrap();
    accepts(client.post(CLAIMS, &claim("unicode", 1, 5, r"^\\p{L}{1,63}$")).await).unwrap();
    // Classes that occur often are read once.
    accepts(client.post(CLAIMS, &claim("repeated", 1, 1, r"[\\pL\\pN]{90}")).await).unwrap();
    let folded = format!("(?i){}", r"\\pL".repeat(200));
    accepts(client.post(CLAIMS, &claim("folded", 1, 1, &folded)).await).unwrap();
}

fn with_patterns(count: usize, pattern: &str) -> Value {
    let field = |i: usize| (format!("f{i}"), json!({"type": "string", "pattern": format!("{pattern}x{i}")}));
    let properties: serde_json::Map<String, Value> = (0..count).map(field).collect();
    json!({"type": "object", "properties": properties})
}

#[tokio::test]
async fn patterns_of_a_schema_have_a_common_limit() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let large = crd("larges", &with_patterns(1000, r"[\pL\pN]{18}"));
    assert_names_limit(&rejects(client.post(CRDS, &large).await, 422, "Invalid").unwrap(), "5000000");
    let ordinary = crd("ordinaries", &with_patterns(1000, &ORDINARY.replace("\\\\", "\\")));
    accepts(client.post(CRDS, &ordinary).await).unwrap();
}

/// A CRD whose rule matches a text with every pattern of the object.
async fn define_matcher(client: &Client) -> &'static str {
    const MATCHERS: &str = "/apis/example.com/v1/namespaces/default/matchers";
    let text = json!({"type": "string", "maxLength": 64});
    let spec = json!({
        "type": "object",
        "properties": {"patterns": {"type": "array", "maxItems": 1000, "items": text}},
        "x-kubernetes-validations": [{"rule": "self.patterns.all(p, !'a'.matches(p) || 'a'.find(p) == 'b')"}],
    });
    accepts(client.post(CRDS, &crd("matchers", &spec)).await).unwrap();
    eventually(PATIENCE, async || accepts(client.get(MATCHERS).await)).await.unwrap();
    MATCHERS
}

fn matcher(name: &str, patterns: impl IntoIterator<Item = String>) -> Value {
    let patterns: Value = patterns.into_iter().map(Value::from).collect();
    json!({"apiVersion": "example.com/v1", "kind": "matchers", "metadata": {"name": name},
        "spec": {"patterns": patterns}})
}

#[tokio::test]
async fn patterns_of_a_custom_resource_are_bounded_and_compiled_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let matchers = define_matcher(&client).await;
    let large = matcher("large", (0..1000).map(|i| format!(r"q[\pL\pN]{{18}}x{i}")));
    let status = rejects(client.post(matchers, &large).await, 422, "Invalid").unwrap();
    assert_names_limit(&status, "500000");
    assert!(status["message"].as_str().unwrap().contains("self.patterns.all"), "{status}");
    accepts(client.post(matchers, &matcher("many", (0..500).map(|i| format!("^x{i}$")))).await).unwrap();
    let same = std::iter::repeat_n(r"^\pL{60}$".to_owned(), 1000);
    accepts(client.post(matchers, &matcher("same", same)).await).unwrap();
    let metrics = client.get("/metrics").await.unwrap().text();
    let line = metrics.lines().find(|line| line.starts_with("portcullis_large_requests_total")).unwrap();
    assert!(line.rsplit(' ').next().unwrap().parse::<u64>().unwrap() >= 3, "{line}");
}

#[tokio::test]
async fn patterns_that_a_policy_takes_from_an_object_are_bounded() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let validation = json!({"expression": "object.data.patterns.split(',').all(p, !'a'.matches(p))"});
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}});
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicies"), &policy).await).unwrap();
    let binding =
        json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), &binding).await)
        .unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |name: &str, patterns: Vec<String>| json!({"metadata": {"name": name}, "data": {"patterns": patterns.join(",")}});
    let large = map("large", (0..100).map(|i| format!(r"q[\pL\pN]{{18}}x{i}")).collect());
    let status = rejects(client.post(maps, &large).await, 422, "Invalid").unwrap();
    assert_names_limit(&status, "500000");
    accepts(client.post(maps, &map("small", (0..100).map(|i| format!("^x{i}$")).collect())).await).unwrap();
}
