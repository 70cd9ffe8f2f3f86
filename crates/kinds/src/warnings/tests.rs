use api::GroupKind;
use value::json::parse;

use crate::table::behavior;

fn warned(group: &str, kind: &str, object: &str) -> Vec<String> {
    behavior(&GroupKind::new(group, kind)).warnings_on_write(&parse(object.as_bytes()).unwrap(), None)
}

#[test]
fn non_canonical_ip_addresses_produce_warnings() {
    let slice = r#"{"metadata":{},"addressType":"IPv6","endpoints":[{"addresses":["2001:DB8::1"]}]}"#;
    assert_eq!(
        warned("discovery.k8s.io", "EndpointSlice", slice),
        [
            r#"endpoints[0].addresses[0]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")"#
        ]
    );
    let managed = slice.replace(r#""metadata":{}"#, r#""metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}}"#);
    assert!(warned("discovery.k8s.io", "EndpointSlice", &managed).is_empty());
    let kind = GroupKind::new("", "Pod");
    let pod = parse(br#"{"status":{"podIPs":[{"ip":"010.0.0.1"}]}}"#).unwrap();
    assert_eq!(
        behavior(&kind).warnings_on_status(&pod),
        [r#"status.podIPs[0].ip: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1""#]
    );
}

#[test]
fn pod_template_warnings_are_repeated_only_when_the_template_changes() {
    let kind = GroupKind::new("apps", "Deployment");
    let with = |generation: u8| {
        let text = format!(
            r#"{{"metadata":{{"name":"d","generation":{generation}}},"spec":{{"template":{{"spec":{{"nodeSelector":{{"beta.kubernetes.io/os":"x"}}}}}}}}}}"#
        );
        parse(text.as_bytes()).unwrap()
    };
    let words = r#"spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead"#;
    assert_eq!(behavior(&kind).warnings_on_write(&with(1), None), [words]);
    assert!(behavior(&kind).warnings_on_write(&with(1), Some(&with(1))).is_empty());
    assert_eq!(behavior(&kind).warnings_on_write(&with(2), Some(&with(1))), [words]);
}

#[test]
fn webhook_rules_for_excluded_resources_produce_warnings() {
    let hook = r#"{"metadata":{"name":"w"},"webhooks":[{"rules":[{"apiGroups":["authorization.k8s.io"],"resources":["subjectaccessreviews","pods"]}]}]}"#;
    assert_eq!(
        warned("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", hook),
        [
            "webhooks[0].rules[0]: subjectaccessreviews.authorization.k8s.io is excluded from admission webhooks; this rule will have no effect"
        ]
    );
    assert!(
        warned(
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            &hook.replace("\"pods\"", "\"*\"")
        )
        .is_empty()
    );
}

#[test]
fn a_quota_with_requests_above_limits_produces_a_warning() {
    assert_eq!(
        warned("", "ResourceQuota", r#"{"spec":{"hard":{"cpu":"4","limits.cpu":"2"}}}"#),
        ["ResourceQuota cpu (4) should be less than limits.cpu (2)"]
    );
    assert!(warned("", "ResourceQuota", r#"{"spec":{"hard":{"cpu":"2","limits.cpu":"2"}}}"#).is_empty());
}

#[test]
fn warnings_about_excluded_resources_take_linear_steps_in_groups_and_resources() {
    let steps_of = |count: usize| {
        let list = |last: &str| -> Vec<String> {
            (0..count).map(|i| format!("n{i}")).chain([last.to_owned(), last.to_owned()]).collect()
        };
        let rule = value::Value::map([
            ("apiGroups", value::Value::list(list("authentication.k8s.io"))),
            ("resources", value::Value::list(list("tokenreviews"))),
        ]);
        let hook = value::Value::map([("rules", value::Value::list([rule]))]);
        let configuration = value::Value::map([("webhooks", value::Value::list([hook]))]);
        let kind = GroupKind::new("admissionregistration.k8s.io", "ValidatingWebhookConfiguration");
        value::steps::of(|| {
            assert_eq!(behavior(&kind).warnings_on_write(&configuration, None).len(), 1);
        })
    };
    let (short, long) = (steps_of(1000), steps_of(10_000));
    assert!(long <= 15 * short, "{short} steps, then {long}");
}

#[test]
fn deprecated_annotations_of_containers_produce_warnings_in_reverse_order() {
    let pod = r#"{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/a":"runtime/default",
        "container.apparmor.security.beta.kubernetes.io/b":"runtime/default"}},"spec":{"containers":[
        {"name":"a","securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}},
        {"name":"b","securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}}]}}"#;
    let words = |name: &str| {
        format!(
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
        )
    };
    assert_eq!(warned("", "Pod", pod)[..2], [words("b"), words("a")]);
}
