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

/// A policy for the resources of the core group with one validation for each expression.
fn policy(resources: &[&str], expressions: impl IntoIterator<Item = String>) -> Value {
    let resources: Vec<String> = resources.iter().map(|&name| name.to_owned()).collect();
    let mut spec = spec(&[String::new()], &["v1".to_owned()], &resources);
    let validation = |expression: String| Value::map([("expression", expression)]);
    spec.set_at(&["validations"], Value::List(expressions.into_iter().map(validation).collect()));
    Value::map([("spec", spec)])
}

/// The warnings: field and text.
fn warnings_of(policy: &Value) -> Vec<(String, String)> {
    let text = |warning: &Value, field: &str| warning.str_at(&[field]).unwrap().to_owned();
    let warnings = type_check(policy, &BuiltInKinds);
    warnings.iter().map(|warning| (text(warning, "fieldRef"), text(warning, "warning"))).collect()
}

const WRONG_FOR_BOTH: &str = "/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'a'\n | object.a == 1\n | ......^\n\n/v1, Kind=Pod: ERROR: <input>:1:7: undefined field 'a'\n | object.a == 1\n | ......^\n";

#[test]
fn type_warnings_quote_every_wrong_expression_for_every_kind() {
    let policy =
        policy(&["pods", "configmaps"], ["object.a == 1", "true", "object.a == 1"].map(str::to_owned));
    let warning = |field: &str| (field.to_owned(), WRONG_FOR_BOTH.to_owned());
    let expected = vec![warning("spec.validations[0].expression"), warning("spec.validations[2].expression")];
    assert_eq!(warnings_of(&policy), expected);
}

#[test]
fn type_warnings_are_complete_until_they_exceed_their_size() {
    let wrong = |n: usize| (0..100).map(|i| format!("object.f{n}x{i} == 1")).collect::<Vec<_>>().join(" || ");
    let many = policy(
        &["pods", "services", "nodes", "secrets", "configmaps", "endpoints"],
        std::iter::once("object.a == 1".to_owned()).chain((0..20).map(wrong)),
    );
    let warnings = warnings_of(&many);
    let bytes: usize = warnings.iter().map(|(field, text)| field.len() + text.len()).sum();
    assert!(bytes > MAX_WARNING_BYTES / 2 && bytes < MAX_WARNING_BYTES + 1000, "{bytes}");
    let (first, last) = (warnings.first().unwrap(), warnings.last().unwrap());
    assert!(first.1.ends_with("\n | ......^\n"), "{first:?}");
    assert!(last.1.ends_with("\nfurther type checks and their errors are left out"), "{last:?}");
}

#[test]
fn type_checking_stops_after_a_number_of_checks() {
    let checks = MAX_CHECKED_BYTES / (CHECK_OVERHEAD + "true".len());
    let of = |count: usize| policy(&["pods"], std::iter::repeat_n("true".to_owned(), count));
    assert_eq!(warnings_of(&of(checks)), []);
    let (field, text) = (format!("spec.validations[{checks}].expression"), LEFT_OUT.to_owned());
    assert_eq!(warnings_of(&of(checks + 1000)), [(field, text)]);
}

#[test]
fn type_checking_counts_variables_once_for_each_kind() {
    let with_variables = |bytes: usize| {
        let mut policy = policy(&["pods", "configmaps"], ["object.a == 1".to_owned()]);
        let variable =
            Value::map([("name", "v".to_owned()), ("expression", format!("'{}'", "a".repeat(bytes)))]);
        policy.set_at(&["spec", "variables"], Value::list([variable]));
        policy
    };
    let field = "spec.validations[0].expression".to_owned();
    assert_eq!(warnings_of(&with_variables(1000)), [(field.clone(), WRONG_FOR_BOTH.to_owned())]);
    let large = warnings_of(&with_variables(MAX_CHECKED_BYTES / 3 * 2));
    assert_eq!(large, [(field, LEFT_OUT.to_owned())]);
}
