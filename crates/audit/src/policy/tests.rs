use authn::User;
use http::Method;
use requests::request_info::{Query, RequestInfo};

use super::{AuditPolicy, AuditStage, Level};

fn policy(rules: &str) -> Result<AuditPolicy, String> {
    AuditPolicy::parse(format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}").as_bytes())
}

fn info(method: &Method, url: &str) -> RequestInfo {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    RequestInfo::parse(method, path, &Query::parse(query))
}

/// The audit level of a request by `alice` of the group `devs`.
fn level(rules: &str, method: &Method, url: &str) -> Level {
    let user = User::named("alice").in_groups(["devs"]);
    policy(rules).unwrap().evaluate(Some(&user), &info(method, url)).level
}

/// Each rule precedes a catch-all at Metadata; level Request shows that the rule matched.
#[test]
fn an_audit_rule_matches_only_if_all_of_its_fields_match() {
    let cases: &[(&str, Method, &str, bool)] = &[
        ("users: [alice]", Method::GET, "/api", true),
        ("users: [bob]", Method::GET, "/api", false),
        ("userGroups: [ops, devs]", Method::GET, "/api", true),
        ("userGroups: [ops]", Method::GET, "/api", false),
        ("verbs: [list]", Method::GET, "/api/v1/pods", true),
        ("verbs: [list]", Method::GET, "/api/v1/namespaces/ns/pods/p", false),
        ("namespaces: [ns]", Method::GET, "/api/v1/namespaces/ns/pods", true),
        ("namespaces: [ns]", Method::GET, "/api/v1/pods", false),
        ("namespaces: ['']", Method::GET, "/api/v1/nodes", true),
        ("namespaces: ['']", Method::GET, "/healthz", false),
        ("resources: [{resources: [pods]}]", Method::GET, "/api/v1/pods", true),
        ("resources: [{resources: [pods]}]", Method::GET, "/apis/apps/v1/pods", false),
        (
            "resources: [{group: apps, resources: [deployments]}]",
            Method::GET,
            "/apis/apps/v1/deployments",
            true,
        ),
        ("resources: [{group: '*', resources: [pods]}]", Method::GET, "/apis/metrics.k8s.io/v1/pods", true),
        ("resources: [{group: apps}]", Method::GET, "/apis/apps/v1/anything", true),
        ("resources: [{group: apps}]", Method::GET, "/api/v1/pods", false),
        ("resources: [{resources: [pods]}]", Method::GET, "/api/v1/namespaces/ns/pods/p/log", false),
        ("resources: [{resources: [pods/log]}]", Method::GET, "/api/v1/namespaces/ns/pods/p/log", true),
        ("resources: [{resources: ['pods/*']}]", Method::GET, "/api/v1/namespaces/ns/pods/p/log", true),
        ("resources: [{resources: ['pods/*']}]", Method::GET, "/api/v1/namespaces/ns/pods/p", true),
        ("resources: [{resources: ['*/log']}]", Method::GET, "/api/v1/namespaces/ns/pods/p/log", true),
        ("resources: [{resources: ['*/log']}]", Method::GET, "/api/v1/namespaces/ns/pods/p/status", false),
        ("resources: [{resources: ['*']}]", Method::GET, "/api/v1/namespaces/ns/pods/p/status", true),
        (
            "resources: [{resources: [secrets], resourceNames: [s]}]",
            Method::GET,
            "/api/v1/namespaces/ns/secrets/s",
            true,
        ),
        (
            "resources: [{resources: [secrets], resourceNames: [s]}]",
            Method::GET,
            "/api/v1/namespaces/ns/secrets/t",
            false,
        ),
        ("nonResourceURLs: [/healthz]", Method::GET, "/healthz", true),
        ("nonResourceURLs: [/healthz]", Method::GET, "/healthz/ping", false),
        ("nonResourceURLs: ['/healthz*']", Method::GET, "/healthz/ping", true),
        ("nonResourceURLs: ['*']", Method::GET, "/version", true),
        ("nonResourceURLs: ['*']", Method::GET, "/api/v1/pods", false),
        ("users: [alice], verbs: [create]", Method::GET, "/api/v1/pods", false),
        ("users: [alice], verbs: [create]", Method::POST, "/api/v1/pods", true),
    ];
    for (rule, method, url, matches) in cases {
        let rules = format!("rules: [{{level: Request, {rule}}}, {{level: Metadata}}]");
        let expected = if *matches { Level::Request } else { Level::Metadata };
        assert_eq!(level(&rules, method, url), expected, "{rule} {url}");
    }
}

#[test]
fn the_first_matching_audit_rule_decides_and_the_default_level_is_none() {
    let rules = "rules: [{level: RequestResponse, users: [alice]}, {level: Metadata, verbs: [get]}]";
    assert_eq!(level(rules, &Method::GET, "/version"), Level::RequestResponse);
    let user = User::named("bob");
    let policy = policy(rules).unwrap();
    assert_eq!(policy.evaluate(Some(&user), &info(&Method::GET, "/version")).level, Level::Metadata);
    assert_eq!(policy.evaluate(Some(&user), &info(&Method::POST, "/version")).level, Level::None);
}

#[test]
fn an_unauthenticated_request_matches_no_audit_rule_for_users_or_groups() {
    let rules = policy(
        "rules: [{level: Request, users: ['']}, {level: Request, userGroups: ['']}, {level: Metadata}]",
    );
    assert_eq!(rules.unwrap().evaluate(None, &info(&Method::GET, "/version")).level, Level::Metadata);
}

#[test]
fn omitted_stages_are_united_and_a_rule_overrides_omit_managed_fields() {
    let policy = policy(
        "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n- {level: Metadata, verbs: [get], omitStages: [Panic], omitManagedFields: false}\n- {level: Metadata}",
    )
    .unwrap();
    let decision = policy.evaluate(None, &info(&Method::GET, "/version"));
    assert_eq!(decision.omit_stages, [AuditStage::RequestReceived, AuditStage::Panic]);
    assert!(!decision.omit_managed_fields);
    let decision = policy.evaluate(None, &info(&Method::POST, "/version"));
    assert_eq!(decision.omit_stages, [AuditStage::RequestReceived]);
    assert!(decision.omit_managed_fields);
}

#[test]
fn unknown_and_duplicate_audit_policy_fields_are_ignored_as_in_kubernetes() {
    let plain = policy("rules: [{level: Metadata, users: [bob]}, {level: None}]").unwrap();
    for rules in [
        "rules: [{level: Metadata, users: [bob], resource: [pods]}, {level: None}]\nmore: 1",
        "rules: []\nrules: [{level: Request, users: [bob], level: Metadata}, {level: None}]",
    ] {
        assert_eq!(policy(rules).unwrap(), plain, "{rules}");
    }
    // Known fields are still validated.
    assert_eq!(policy("rules: [{levle: None}]").unwrap_err(), "rules[0].level: Required value");
}

#[test]
fn invalid_audit_policies_are_rejected_with_kubernetes_messages() {
    let check = |rules: &str, expected: &str| assert_eq!(policy(rules).unwrap_err(), expected, "{rules}");
    check("rules: []", "loaded illegal policy with 0 rules");
    check("rules: [{}]", "rules[0].level: Required value");
    check(
        "rules: [{level: All}]",
        r#"rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", "Request", "RequestResponse""#,
    );
    check(
        "omitStages: [Never]\nrules: [{level: None}]",
        r#"omitStages[0]: Invalid value: "Never": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
    );
    check(
        "rules: [{level: None, nonResourceURLs: [healthz]}]",
        r#"rules[0].nonResourceURLs[0]: Invalid value: "healthz": non-resource URL rules must begin with a '/' character"#,
    );
    check(
        "rules: [{level: None, nonResourceURLs: ['/a*b']}]",
        r#"rules[0].nonResourceURLs[0]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule"#,
    );
    check(
        "rules: [{level: None, nonResourceURLs: [/a], namespaces: [ns]}]",
        r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#,
    );
    check(
        "rules: [{level: None, resources: [{resourceNames: [nm]}]}]",
        r#"rules[0].resources.resourceNames: Invalid value: ["nm"]: using resourceNames requires at least one resource"#,
    );
    check(
        "rules: [{level: None, resources: [{group: rbac.authorization.k8s.io/v1beta1}]}]",
        "rules[0].resources.group: Invalid value: \"rbac.authorization.k8s.io/v1beta1\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    );
    check(
        "rules: [{level: None, users: x}]",
        "failed decoding: json: cannot unmarshal string into Go struct field PolicyRule.rules.users of type []string",
    );
    let wrong = AuditPolicy::parse(b"apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]")
        .unwrap_err();
    assert_eq!(
        wrong,
        r#"failed decoding: no kind "Policy" is registered for version "audit.k8s.io/v1beta1" in scheme "k8s.io/apiserver/pkg/audit/scheme.go:30""#
    );
    for unversioned in ["rules: []", ""] {
        let wrong = AuditPolicy::parse(unversioned.as_bytes()).unwrap_err();
        assert_eq!(wrong, "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy");
    }
    let wrong = AuditPolicy::parse(b"apiVersion: audit.k8s.io/v1\nkind: Event").unwrap_err();
    assert_eq!(wrong, "failed decoding: converting (v1.Event) to (audit.Policy): unknown conversion");
    assert!(AuditPolicy::parse(b"apiVersion: audit.k8s.io/v1\nrules: [{level: None}]").is_ok());
}
