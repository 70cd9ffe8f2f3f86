//! Tests of loading configuration files, including error messages.

use std::sync::Arc;

use super::*;
use crate::conditions::{AuthorizerMatchCondition, ConditionCompileError, ConditionInput, ConditionsResult};
use expect_test::{Expect, expect};

/// Compiles only expressions that begin with the word `true`, `false` or `fail`.
struct Fake;

struct Fixed(String);

impl ConditionCompiler for Fake {
    fn compile(&self, expression: &str) -> Result<Arc<dyn AuthorizerMatchCondition>, ConditionCompileError> {
        match expression.split_whitespace().next() {
            Some("true" | "false" | "fail") => Ok(Arc::new(Fixed(expression.to_owned()))),
            _ => Err(ConditionCompileError::Invalid("compilation failed: no".to_owned())),
        }
    }
}

impl AuthorizerMatchCondition for Fixed {
    fn evaluate(&self, _: &ConditionInput<'_>) -> Result<bool, String> {
        match self.0.split_whitespace().next() {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err("no such key".to_owned()),
        }
    }

    fn expression(&self) -> &str {
        &self.0
    }
}

fn read(
    text: &str,
    required: &[AuthorizerType],
) -> Result<AuthorizationConfiguration, AuthorizationConfigError> {
    let kubeconfig = |path: &str| {
        if path == "/gone" {
            Err("error loading file: stat /gone: no such file or directory".to_owned())
        } else {
            Ok(())
        }
    };
    check(text, &kubeconfig, required).map(|checked| checked.configuration)
}

fn check(
    text: &str,
    kubeconfig: &dyn Fn(&str) -> Result<(), String>,
    required: &[AuthorizerType],
) -> Result<CheckedConfiguration, AuthorizationConfigError> {
    load(text.as_bytes(), &Environment { compiler: &Fake, kubeconfig, required })
}

fn refused(text: &str, expected: &Expect) {
    expected.assert_eq(&read(text, &[]).map(|_| ()).unwrap_err().to_string());
}

/// A file with one webhook, without the field that begins with `without`, and with `more` at the end of its section.
fn webhook(version: &str, without: &str, more: &str) -> String {
    let mut fields = String::new();
    for line in [
        "timeout: 3s",
        "authorizedTTL: 5m",
        "unauthorizedTTL: 30s",
        "subjectAccessReviewVersion: v1",
        "matchConditionSubjectAccessReviewVersion: v1",
        "failurePolicy: NoOpinion",
        "connectionInfo: {type: KubeConfigFile, kubeConfigFile: /k}",
    ] {
        if without.is_empty() || !line.starts_with(without) {
            fields.push_str("    ");
            fields.push_str(line);
            fields.push('\n');
        }
    }
    format!(
        "apiVersion: apiserver.config.k8s.io/{version}\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: wh\n  webhook:\n{fields}{more}"
    )
}

fn authorizers(list: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n{list}")
}

#[test]
fn valid_authorization_configuration_is_accepted_in_every_version() {
    for version in ["v1alpha1", "v1beta1", "v1"] {
        let more = "    matchConditions:\n    - expression: 'true'\n- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n";
        let configuration = read(&webhook(version, "", more), &[AuthorizerType::Rbac]).unwrap();
        let names: Vec<_> =
            configuration.authorizers.iter().map(|a| (a.kind.as_str(), a.name.as_str())).collect();
        assert_eq!(names, [("Webhook", "wh"), ("Node", "node"), ("RBAC", "rbac")]);
        let webhook = configuration.authorizers[0].webhook.as_ref().unwrap();
        assert_eq!(webhook.timeout, Duration::from_secs(3));
        assert_eq!(webhook.authorized_ttl, Some(Duration::from_mins(5)));
        assert_eq!(format!("{:?}", webhook.conditions), r#"["true"]"#);
    }
}

#[test]
fn webhook_ttls_have_defaults_and_caching_can_be_disabled() {
    let text =
        webhook("v1", "authorizedTTL", "    cacheUnauthorizedRequests: false\n    authorizedTTL: 0s\n");
    let configuration = read(&text, &[]).unwrap();
    let webhook = configuration.authorizers[0].webhook.as_ref().unwrap();
    assert_eq!(webhook.authorized_ttl, Some(Duration::from_mins(5)));
    assert_eq!(webhook.unauthorized_ttl, None);
    refused(
        &webhook_text("authorizedTTL", "    authorizedTTL: -1s\n"),
        &expect![[r#"authorizers[0].authorizedTTL: Invalid value: "-1s": must be > 0s"#]],
    );
}

fn webhook_text(without: &str, more: &str) -> String {
    webhook("v1", without, more)
}

#[test]
fn missing_required_fields_of_authorizers_are_rejected() {
    refused("", &expect!["authorizers: Required value: at least one authorization mode must be defined"]);
    let required = |field: &str, expected: &Expect| refused(&webhook_text(field, ""), expected);
    required("timeout", &expect!["authorizers[0].timeout: Required value"]);
    required(
        "subjectAccessReviewVersion",
        &expect!["authorizers[0].subjectAccessReviewVersion: Required value"],
    );
    required("failurePolicy", &expect!["authorizers[0].failurePolicy: Required value"]);
    required("connectionInfo", &expect!["authorizers[0].connectionInfo.type: Required value"]);
    refused(
        &webhook_text("matchCondition", "    matchConditions:\n    - expression: 'true'\n"),
        &expect![
            "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"
        ],
    );
    refused(
        &authorizers("- {type: Webhook, name: w}\n- {type: RBAC, name: rbac, webhook: {}}\n- {name: x}\n"),
        &expect![[
            r#"[authorizers[0].webhook: Required value: required when type=Webhook, authorizers[1].webhook: Invalid value: "non-null": may only be specified when type=Webhook, authorizers[2].type: Required value]"#
        ]],
    );
}

#[test]
fn v1alpha1_accepts_webhook_name_and_defaults_of_kep_3221() {
    let text = "apiVersion: apiserver.config.k8s.io/v1alpha1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  webhook:
    name: wh
    timeout: 3s
    subjectAccessReviewVersion: v1
    connectionInfo: {type: KubeConfig, kubeConfigFile: /k}
    matchConditions:
    - expression: 'true'
";
    let configuration = read(text, &[]).unwrap();
    assert_eq!(configuration.authorizers[0].name, "wh");
    let webhook = configuration.authorizers[0].webhook.as_ref().unwrap();
    assert_eq!(webhook.failure_policy, FailurePolicy::NoOpinion);
    refused(
        &text.replace("v1alpha1", "v1"),
        &expect![[
            r#"failed to load AuthorizationConfiguration from file: strict decoding error: unknown field "authorizers[0].webhook.name""#
        ]],
    );
}

#[test]
fn unsupported_enum_values_are_rejected() {
    refused(
        &webhook_text("subjectAccess", "    subjectAccessReviewVersion: v2\n"),
        &expect![[
            r#"authorizers[0].subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1""#
        ]],
    );
    refused(
        &webhook_text("failurePolicy", "    failurePolicy: deny\n"),
        &expect![[
            r#"authorizers[0].failurePolicy: Unsupported value: "deny": supported values: "NoOpinion", "Deny""#
        ]],
    );
    refused(
        &webhook_text("connectionInfo", "    connectionInfo: {type: Http, kubeConfigFile: /x}\n"),
        &expect![[
            r#"authorizers[0].connectionInfo.type: Unsupported value: {"Type":"Http","KubeConfigFile":"/x"}: supported values: "InClusterConfig", "KubeConfigFile""#
        ]],
    );
    refused(
        &authorizers("- {type: X, name: x}\n"),
        &expect![[
            r#"authorizers[0].type: Unsupported value: "X": supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook""#
        ]],
    );
}

#[test]
fn invalid_connection_info_is_rejected() {
    let connection = |info: &str| webhook_text("connectionInfo", &format!("    connectionInfo: {info}\n"));
    refused(
        &connection("{type: KubeConfigFile}"),
        &expect!["authorizers[0].connectionInfo.kubeConfigFile: Required value"],
    );
    refused(
        &connection("{type: KubeConfigFile, kubeConfigFile: relative}"),
        &expect![[
            r#"authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "relative": must be an absolute path"#
        ]],
    );
    refused(
        &connection("{type: KubeConfigFile, kubeConfigFile: /gone}"),
        &expect![[
            r#"authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "/gone": error loading file: stat /gone: no such file or directory"#
        ]],
    );
    let error = read(&connection("{type: InClusterConfig}"), &[]).unwrap_err();
    expect![[r#"
        authz.yaml:13:22: authorizers[0].connectionInfo.type: Invalid value: "InClusterConfig": the API server cannot use its own SubjectAccessReview API to authorize requests (use type KubeConfigFile with a kubeConfigFile)"#]]
    .assert_eq(&error.located("authz.yaml").join("\n"));
}

#[test]
fn authorizer_names_are_unique_and_only_webhooks_may_choose_theirs() {
    refused(
        &authorizers("- {type: RBAC, name: rbac}\n- {type: RBAC, name: two}\n"),
        &expect![[r#"authorizers[1].type: Duplicate value: "RBAC""#]],
    );
    refused(
        &authorizers("- {type: RBAC, name: x}\n"),
        &expect!["expected name rbac for authorizer RBAC instead of x"],
    );
    refused(
        &authorizers("- {type: Node, name: a}\n- {type: RBAC, name: a}\n"),
        &expect![[r#"authorizers[1].name: Duplicate value: "a""#]],
    );
    assert_eq!(
        read(
            &authorizers("- {type: RBAC, name: rbac}\n"),
            &[AuthorizerType::Rbac, AuthorizerType::Node, AuthorizerType::Abac]
        )
        .unwrap_err()
        .to_string(),
        "missing required types: [ABAC Node]"
    );
}

#[test]
fn every_invalid_match_condition_is_reported_and_at_most_64_are_accepted() {
    let conditions = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(|e| format!("    - expression: \"{e}\"")).collect();
        webhook_text("", &format!("    matchConditions:\n{}\n", list.join("\n")))
    };
    refused(
        &conditions(&["bad", "true", "", "true"]),
        &expect![[
            r#"[authorizers[0].matchConditions[0].expression: Invalid value: "bad": compilation failed: no, authorizers[0].matchConditions[2].expression: Required value, authorizers[0].matchConditions[3].expression: Duplicate value: "true"]"#
        ]],
    );
    let many: Vec<String> = (0..65).map(|i| format!("true {i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(read(&conditions(&many[..64]), &[]).is_ok());
    refused(
        &conditions(&many),
        &expect!["authorizers[0].matchConditions: Too many: 65: must have at most 64 items"],
    );
    let error = read(&conditions(&["!('x' in request.user.groups)"]), &[]).unwrap_err();
    let hint = error.problems()[0].hint.as_deref();
    assert_eq!(hint, Some("the groups are request.groups; request.user is a string"));
}

#[test]
fn authorization_configuration_is_decoded_strictly_with_gos_error_messages() {
    let rbac = "- {type: RBAC, name: rbac}\n";
    let prefix = "failed to load AuthorizationConfiguration from file: ";
    let check = |text: &str, expected: &Expect| {
        let error = read(text, &[]).map(|_| ()).unwrap_err().to_string();
        expected.assert_eq(error.strip_prefix(prefix).unwrap());
    };
    check(
        &authorizers(&format!("{rbac}metadata: {{}}\nextra: 1\n")),
        &expect![[r#"strict decoding error: unknown field "extra", unknown field "metadata""#]],
    );
    check(
        &authorizers("- {type: RBAC, name: rbac, priority: 1}\n"),
        &expect![[r#"strict decoding error: unknown field "authorizers[0].priority""#]],
    );
    check(
        &authorizers("- type: RBAC\n  name: rbac\n  name: rbac\n"),
        &expect![[r#"
            strict decoding error: yaml: unmarshal errors:
              line 6: key "name" already set in map"#]],
    );
    check(
        &authorizers("- {type: 7, name: rbac}\n"),
        &expect![
            "json: cannot unmarshal number into Go struct field AuthorizerConfiguration.authorizers.type of type string"
        ],
    );
    check(
        &authorizers("- {type: RBAC, name: y}\n"),
        &expect![
            "json: cannot unmarshal bool into Go struct field AuthorizerConfiguration.authorizers.name of type string"
        ],
    );
    check(
        &webhook_text("", "    cacheAuthorizedRequests: \"no\"\n"),
        &expect![
            "json: cannot unmarshal string into Go struct field WebhookConfiguration.authorizers.webhook.cacheAuthorizedRequests of type bool"
        ],
    );
    check(
        &authorizers(" {}\n"),
        &expect![
            "json: cannot unmarshal object into Go struct field AuthorizationConfiguration.authorizers of type []v1.AuthorizerConfiguration"
        ],
    );
    check(&webhook_text("timeout", "    timeout: soon\n"), &expect![[r#"time: invalid duration "soon""#]]);
    check(
        "apiVersion: apiserver.config.k8s.io/v2\nkind: AuthorizationConfiguration\n",
        &expect![[
            r#"no kind "AuthorizationConfiguration" is registered for version "apiserver.config.k8s.io/v2" in scheme "k8s.io/apiserver/pkg/apis/apiserver/load/load.go:32""#
        ]],
    );
    check(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n",
        &expect!["expected AuthorizationConfiguration, got *apiserver.AuthenticationConfiguration"],
    );
    check(
        &webhook_text("timeout", "    timeout: 3\n"),
        &expect![
            "json: cannot unmarshal number into Go struct field WebhookConfiguration.authorizers.webhook.timeout of type string"
        ],
    );
    check("{", &expect!["couldn't get version/kind; json parse error: unexpected end of JSON input"]);
    check(
        "authorizers: []\n",
        &expect![[r"
        Object 'Kind' is missing in 'authorizers: []
        '"]],
    );
}

#[test]
fn unquoted_expression_with_a_yaml_tag_gets_a_hint() {
    let text = webhook_text("", "    matchConditions:\n    - expression: !('a' in request.groups)\n");
    let error = read(&text, &[]).unwrap_err();
    let hint = error.problems()[0].hint.as_deref();
    assert_eq!(
        hint,
        Some("quote the expression: YAML gives its first character a meaning of its own"),
        "{error:?}"
    );
}

#[test]
fn a_false_match_condition_overrides_errors_and_errors_override_true() {
    let configuration = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(|e| format!("    - expression: '{e}'")).collect();
        let text = webhook_text("", &format!("    matchConditions:\n{}\n", list.join("\n")));
        let mut configuration = read(&text, &[]).unwrap();
        configuration.authorizers.remove(0).webhook.unwrap().conditions
    };
    let user = authn::User::named("alice");
    let attributes = crate::AuthorizationAttributes::resource("get", "", "pods");
    let evaluate = |list: &[&str]| configuration(list).evaluate(&user, &attributes);
    assert_eq!(evaluate(&["true"]), ConditionsResult::Yes);
    assert_eq!(evaluate(&["true", "fail", "false"]), ConditionsResult::No { failed: true });
    assert_eq!(evaluate(&["true", "false", "fail"]), ConditionsResult::No { failed: false });
    assert_eq!(
        evaluate(&["fail", "true", "fail 2"]),
        ConditionsResult::Failed("[cel evaluation error: expression 'fail' resulted in error: no such key, cel evaluation error: expression 'fail 2' resulted in error: no such key]".to_owned())
    );
}

#[test]
fn authorization_flags_become_an_authorizer_configuration() {
    let flags =
        |modes: &[&str]| Flags { modes: modes.iter().map(ToString::to_string).collect(), ..Flags::default() };
    let names = |flags: &Flags| -> Vec<String> {
        flags.configuration().unwrap().authorizers.iter().map(|a| a.name.to_string()).collect()
    };
    assert_eq!(names(&flags(&["Node", "RBAC"])), ["node", "rbac"]);
    let webhook = Flags {
        webhook_config_file: "/k".to_owned(),
        authorized_ttl: Duration::ZERO,
        ..flags(&["Webhook", "AlwaysDeny"])
    };
    assert_eq!(names(&webhook), ["default", "alwaysdeny"]);
    let configuration = webhook.configuration().unwrap();
    let hook = configuration.authorizers[0].webhook.as_ref().unwrap();
    assert_eq!((hook.version, hook.authorized_ttl), (SubjectAccessReviewVersion::V1Beta1, None));
    let errors = |flags: Flags| flags.configuration().map(|_| ()).unwrap_err().join("; ");
    expect!["at least one authorization-mode must be passed"].assert_eq(&errors(flags(&[])));
    expect![[r#"authorization-mode "rbac" is not a valid mode; authorization-mode ABAC's authorization policy file not passed; authorization-mode Webhook's authorization config file not passed; authorization-mode ["rbac" "ABAC" "Webhook" "RBAC" "RBAC"] has mode specified more than once"#]]
        .assert_eq(&errors(flags(&["rbac", "ABAC", "Webhook", "RBAC", "RBAC"])));
    let stray =
        Flags { policy_file: "p".to_owned(), webhook_config_file: "k".to_owned(), ..flags(&["RBAC"]) };
    expect!["cannot specify --authorization-policy-file without mode ABAC; cannot specify --authorization-webhook-config-file without mode Webhook"]
        .assert_eq(&errors(stray));
}

#[test]
fn authorizer_types_not_enabled_at_startup_are_rejected_on_reload() {
    use crate::{NoObserver, SharedAuthorizers, assemble};
    let shared = SharedAuthorizers {
        rbac: Some(Arc::default()),
        node: None,
        abac: None,
        observer: Arc::new(NoObserver),
    };
    let no_sender = |_: &str, _: &WebhookConfiguration| Err("no sender".to_owned());
    let build = |list: &str| assemble(&read(&authorizers(list), &[]).unwrap(), &shared, &no_sender);
    assert_eq!(
        build("- {type: RBAC, name: rbac}\n- {type: AlwaysDeny, name: alwaysdeny}\n").unwrap().steps().len(),
        2
    );
    assert_eq!(
        build("- {type: Node, name: node}\n").unwrap_err(),
        "authorizer type Node is not allowed if it was not enabled at initial server startup"
    );
    let webhook = read(&webhook_text("", ""), &[]).unwrap();
    assert_eq!(assemble(&webhook, &shared, &no_sender).unwrap_err(), "no sender");
}

#[test]
fn unknown_fields_are_reported_before_a_wrong_configuration_kind() {
    let of =
        |kind: &str, field: &str| format!("apiVersion: apiserver.config.k8s.io/v1\nkind: {kind}\n{field}");
    refused(
        &of("AuthenticationConfiguration", "authorizers: []\nmore: 1\n"),
        &expect![[
            r#"failed to load AuthorizationConfiguration from file: strict decoding error: unknown field "authorizers", unknown field "more""#
        ]],
    );
    refused(
        &of("AuthenticationConfiguration", "jwt: []\n"),
        &expect![[
            "failed to load AuthorizationConfiguration from file: expected AuthorizationConfiguration, got *apiserver.AuthenticationConfiguration"
        ]],
    );
}

#[test]
fn type_errors_name_the_first_field_in_gos_decoding_order() {
    let json = r#"{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthorizationConfiguration","authorizers":[{"type":1,"name":2}]}"#;
    refused(
        json,
        &expect![[
            "failed to load AuthorizationConfiguration from file: json: cannot unmarshal number into Go struct field AuthorizerConfiguration.authorizers.type of type string"
        ]],
    );
    refused(
        &authorizers("- {type: 1, name: 2}\n"),
        &expect![[
            "failed to load AuthorizationConfiguration from file: json: cannot unmarshal number into Go struct field AuthorizerConfiguration.authorizers.name of type string"
        ]],
    );
}

#[test]
fn capitalized_kind_field_is_rejected_as_unknown() {
    refused(
        "apiVersion: apiserver.config.k8s.io/v1\nKind: AuthorizationConfiguration\nauthorizers: [{type: RBAC, name: rbac}]\n",
        &expect![[
            r#"failed to load AuthorizationConfiguration from file: strict decoding error: unknown field "Kind""#
        ]],
    );
}

#[test]
fn ttl_of_zero_means_the_default_and_causes_a_warning() {
    let warnings = |more: &str| {
        let text = webhook("v1", "authorizedTTL", more);
        let text = text.replace("    unauthorizedTTL: 30s\n", "");
        let checked = check(&text, &|_| Ok(()), &[]).unwrap();
        let webhook = checked.configuration.authorizers[0].webhook.clone().unwrap();
        let warnings: Vec<String> = checked.warnings.iter().map(|warning| warning.located("f")).collect();
        (webhook.authorized_ttl, webhook.unauthorized_ttl, warnings.join("\n"))
    };
    let (five_minutes, half_a_minute) = (Some(Duration::from_mins(5)), Some(Duration::from_secs(30)));
    assert_eq!(warnings(""), (five_minutes, half_a_minute, String::new()));
    let (authorized, unauthorized, words) = warnings("    authorizedTTL: 0s\n    unauthorizedTTL: 0s\n");
    assert_eq!((authorized, unauthorized), (five_minutes, half_a_minute));
    expect![[r"
        f:12:5: authorizers[0].authorizedTTL: 0s is the default of 5m0s, it does not turn caching off (`cacheAuthorizedRequests: false` turns it off; only the flag --authorization-webhook-cache-authorized-ttl takes 0s for that)
        f:13:5: authorizers[0].unauthorizedTTL: 0s is the default of 30s, it does not turn caching off (`cacheUnauthorizedRequests: false` turns it off; only the flag --authorization-webhook-cache-unauthorized-ttl takes 0s for that)"]]
    .assert_eq(&words);
    let off = "    authorizedTTL: 0s\n    cacheAuthorizedRequests: false\n";
    assert_eq!(warnings(off), (None, half_a_minute, String::new()));
}

#[test]
fn v1alpha1_authorizer_names_are_optional_except_with_several_webhooks() {
    let names = |text: &str| {
        let configuration = read(text, &[])?;
        Ok::<_, AuthorizationConfigError>(
            configuration.authorizers.into_iter().map(|a| a.name).collect::<Vec<_>>(),
        )
    };
    let unnamed = |version: &str| {
        webhook(version, "", "").replace("  name: wh\n", "") + "- type: Node\n- type: RBAC\n- type: ABAC\n"
    };
    assert_eq!(names(&unnamed("v1alpha1")).unwrap(), ["default", "node", "rbac", "abac"]);
    for version in ["v1beta1", "v1"] {
        let refused = names(&unnamed(version)).unwrap_err().to_string();
        assert!(
            refused.contains("authorizers[0].name: Required value")
                && refused.contains("authorizers[2].name")
        );
    }
    let one = webhook("v1alpha1", "", "").replace("  name: wh\n", "");
    let list = one.split_once("authorizers:\n").unwrap().1;
    let refused = names(&format!("{one}{list}")).unwrap_err().to_string();
    assert_eq!(refused, "[authorizers[0].name: Required value, authorizers[1].name: Required value]");
    // A name that is set must still be the required one.
    let wrong = unnamed("v1alpha1").replace("- type: RBAC\n", "- type: RBAC\n  name: roles\n");
    let refused = names(&wrong).unwrap_err().to_string();
    assert_eq!(refused, "expected name rbac for authorizer RBAC instead of roles");
}
