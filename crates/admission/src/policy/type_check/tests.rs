use super::*;

fn spec(groups: &[String], versions: &[String], resources: &[String]) -> Value {
    let list = |texts: &[String]| Value::list(texts.iter().cloned());
    let rule = Value::map([
        ("apiGroups", list(groups)),
        ("apiVersions", list(versions)),
        ("resources", list(resources)),
    ]);
    Value::map([("matchConstraints", Value::map([("resourceRules", Value::list([rule]))]))])
}

/// Returns the kinds of a policy's `spec`, if `is_one` decides which resources exist, and the number of lookups.
fn found(spec: &Value, is_one: impl Fn(&str) -> bool) -> (Vec<String>, usize) {
    let mut looked_up = 0;
    let kinds = kinds(spec, |group, version, resource| {
        looked_up += 1;
        is_one(resource).then(|| GroupVersionKind::new(group, version, resource)).into_iter().collect()
    });
    (kinds.into_iter().map(|kind| kind.kind.to_string()).collect(), looked_up)
}

#[test]
fn type_checking_limits_the_number_of_kinds_and_lookups() {
    let names =
        |prefix: &str, count: usize| (0..count).map(|i| format!("{prefix}{i:03}")).collect::<Vec<_>>();
    let one = |text: &str| vec![text.to_owned()];
    let (kinds, looked_up) =
        found(&spec(&one("g"), &names("v", 2), &["Pods".into(), "a/b".into(), "*".into()]), |_| true);
    assert_eq!((kinds, looked_up), (vec!["pods".to_owned(), "pods".to_owned()], 2));
    let (kinds, looked_up) = found(&spec(&one("g"), &one("v"), &names("r", 100)), |_| true);
    assert_eq!((kinds.len(), looked_up), (MAX_KINDS, MAX_KINDS));
    let all = spec(&names("g", 100), &names("v", 100), &names("r", 100));
    assert_eq!(found(&all, |_| false), (Vec::new(), MAX_LOOKUPS));
    let long = spec(&one("g"), &one("v"), &["r".repeat(MAX_NAME_BYTES + 1), "r".repeat(MAX_NAME_BYTES)]);
    assert_eq!(found(&long, |_| true), (vec!["r".repeat(MAX_NAME_BYTES)], 1));
}
