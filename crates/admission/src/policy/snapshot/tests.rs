use value::{Map, Value};

use super::*;

#[test]
fn policy_with_too_many_resources_is_evaluated_for_every_request() {
    let list = |prefix: &str, count: usize| Value::list((0..count).map(|i| format!("{prefix}{i}")));
    let postings = |groups: usize, resources: usize| {
        let rule = Value::map([
            ("apiGroups", list("g", groups)),
            ("apiVersions", Value::list(["*"])),
            ("operations", Value::list(["*"])),
            ("resources", list("r", resources)),
        ]);
        let mut policy = Value::map([("metadata", Value::map([("name", "p")]))]);
        for selector in ["namespaceSelector", "objectSelector"] {
            policy.set_at(&["spec", "matchConstraints", selector], Map::new());
        }
        policy.set_at(&["spec", "matchConstraints", "resourceRules"], Value::list([rule]));
        let policy = Arc::new(ValidatingPolicy::compile(&policy));
        let index =
            PolicyIndex::of(&[BoundPolicy { source: PolicySource::Api, policy, bindings: Vec::new() }]);
        (index.by_both.values().map(Vec::len).sum::<usize>(), index.all.len())
    };
    assert_eq!(postings(10, 20), (200, 0));
    assert_eq!(postings(100_000, 100_000), (0, 1));
}
