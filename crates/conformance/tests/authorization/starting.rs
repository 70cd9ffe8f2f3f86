//! Authorization configurations and flags that stop the start, and their error messages.

use std::time::Duration;

use conformance::accepts;
use conformance::server::run_to_end;

use super::chain::{AuthorizerWebhook, Files, WITHOUT_CONTROLLERS, by_user, metrics, review};

const MANY_WRONG: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: RBAC
- type: Webhook
  name: hook
  webhook:
    timeout: 31s
    subjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: InClusterConfig}
    matchConditionSubjectAccessReviewVersion: v1
    matchConditions:
    - expression: request.user.groups.size() > 0
";

/// The error output of a server that does not start.
async fn start_error(files: &Files, flags: &[&str]) -> String {
    let config = format!("--authorization-config-file={}", files.path("authz.yaml").display());
    let data = format!("--data-dir={}", files.path("data").display());
    let certs = format!("--cert-dir={}", files.path("certs").display());
    let mut args = vec!["serve", &data, &certs, "--secure-port=0", "--bind-address=127.0.0.1"];
    if files.path("authz.yaml").exists() {
        args.push(&config);
    }
    args.extend(flags);
    let (code, said) = run_to_end(&args, Duration::from_secs(30)).await.unwrap();
    assert_eq!(code, Some(1), "{said}");
    said
}

#[tokio::test]
async fn all_configuration_errors_are_reported_with_positions_and_field_paths() {
    let files = Files::new();
    files.put("authz.yaml", MANY_WRONG);
    let said = start_error(&files, &[]).await;
    for words in [
        "authz.yaml:4:3: authorizers[0].name: Required value (add `name: rbac`)",
        "authz.yaml:8:5: authorizers[1].timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
        "authorizers[1].connectionInfo.type: Invalid value: \"InClusterConfig\": the API server cannot use its own SubjectAccessReview API to authorize requests",
        "the groups are request.groups; request.user is a string",
        r#""command failed" err="[authorizers[0].name: Required value, authorizers[1].timeout: Invalid value: \"31s\": must be > 0s and <= 30s, "#,
    ] {
        assert!(said.contains(words), "{words}\n{said}");
    }
}

#[tokio::test]
async fn a_configuration_file_together_with_authorization_flags_is_rejected() {
    let files = Files::new();
    files.put("authz.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: RBAC\n  name: rbac\n");
    for flag in [
        "--authorization-mode=RBAC",
        "--authorization-webhook-config-file=/x",
        "--authorization-webhook-version=v1beta1",
        "--authorization-webhook-cache-authorized-ttl=5m0s",
        "--authorization-webhook-cache-unauthorized-ttl=30s",
    ] {
        let said = start_error(&files, &[flag]).await;
        let words = "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined";
        assert!(said.contains(words), "{flag}: {said}");
    }
}

#[tokio::test]
async fn with_the_feature_gate_off_flags_configure_authorization() {
    for gate in ["AuthorizationConfigFromFile", "StructuredAuthorizationConfiguration"] {
        let gates = format!("--feature-gates={gate}=false");
        let server = conformance::Server::serve(&[&gates, "--authorization-mode=RBAC"]).await.unwrap();
        accepts(server.client().unwrap().get("/api/v1/nodes").await).unwrap();
        assert_eq!(review(&server, "alice", "default").await["allowed"], false);
        let files = Files::new();
        files.put("authz.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: RBAC\n  name: rbac\n");
        let said = start_error(&files, &[&gates]).await;
        assert!(said.contains(&format!("--authorization-config: the feature gate {gate} is off")), "{said}");
    }
}

#[tokio::test]
async fn abac_without_a_policy_file_is_rejected_with_the_name_of_its_flag() {
    let files = Files::new();
    let said = start_error(&files, &["--authorization-mode=ABAC"]).await;
    assert!(said.contains("not passed (set --authorization-policy-file)"), "{said}");
    files.put("authz.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: ABAC\n  name: abac\n");
    let said = start_error(&files, &[]).await;
    let words =
        "--authorization-policy-file: missing; the authorizer type ABAC needs the file of its policies";
    assert!(said.contains(words), "{said}");
    let path = files.path("authz.yaml").display().to_string();
    let (code, said) =
        run_to_end(&["authz", "check", "--config", &path], Duration::from_secs(30)).await.unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--policy-file") && said.contains("--authorization-policy-file"), "{said}");
}

#[tokio::test]
async fn a_ttl_of_zero_in_the_file_is_the_default_and_is_warned_about() {
    let hook = by_user("hook").await;
    let files = Files::new();
    let webhook =
        AuthorizerWebhook { fields: &["authorizedTTL: 0s"], ..AuthorizerWebhook::new("hook", &hook) };
    let server = files.serve_with(&[webhook]).await;
    for _ in 0..3 {
        assert_eq!(review(&server, "alice", "default").await["allowed"], true);
    }
    assert_eq!(hook.take().len(), 1, "cached for the default time");
    let words = "authorizers[0].authorizedTTL: 0s is the default of 5m0s, it does not turn caching off (`cacheAuthorizedRequests: false` turns it off";
    assert!(server.log().contains(words), "{}", server.log());
    let path = files.path("authz.yaml").display().to_string();
    let check = async || {
        let (code, said) =
            run_to_end(&["authz", "check", "--config", &path], Duration::from_secs(30)).await.unwrap();
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let said = check().await;
    assert!(said.contains("warning: ") && said.contains(words), "{said}");
    let off = AuthorizerWebhook {
        fields: &["authorizedTTL: 0s", "cacheAuthorizedRequests: false"],
        ..AuthorizerWebhook::new("hook", &hook)
    };
    files.put("authz.yaml", &files.configuration(&[off]));
    assert!(!check().await.contains("warning: "));
}

/// KEP-3221 shows Node and RBAC without names, and says that a single webhook needs none.
#[tokio::test]
async fn authorizer_names_are_optional_in_v1alpha1_and_required_in_v1() {
    let hook = by_user("hook").await;
    let files = Files::new();
    let unnamed = files
        .configuration(&[AuthorizerWebhook::new("hook", &hook)])
        .replace("  name: hook\n", "")
        .replace("- type: RBAC\n  name: rbac\n", "- type: Node\n- type: RBAC\n");
    files.put("authz.yaml", &unnamed);
    let said = start_error(&files, &[]).await;
    assert!(said.contains("authorizers[0].name: Required value"), "{said}");
    files.put("authz.yaml", &unnamed.replace("/v1\nkind", "/v1alpha1\nkind"));
    let server = files.serve().await;
    assert_eq!(review(&server, "alice", "default").await["reason"], "hook likes alice");
    assert_eq!(review(&server, "bob", "default").await["reason"], "default: hook shrugs");
    assert_eq!(metrics(&server, &["step_invocations_total", "mode=\"webhook\"", "Allow"]).await.len(), 1);
}

#[tokio::test]
async fn errors_of_several_authorization_modes_are_reported_together() {
    let files = Files::new();
    let said = start_error(&files, &["--authorization-mode=ABAC,Webhook,Nope"]).await;
    for words in [
        "authorization-mode ABAC's authorization policy file not passed",
        "authorization-mode Webhook's authorization config file not passed",
        "authorization-mode \\\"Nope\\\" is not a valid mode",
    ] {
        assert!(said.contains(words), "{words}\n{said}");
    }
    std::fs::write(files.path("policies"), "{\"user\": 3}\n").unwrap();
    let policies = format!("--authorization-policy-file={}", files.path("policies").display());
    let said = start_error(&files, &["--authorization-mode=ABAC", &policies]).await;
    assert!(said.contains("line 1: {\\\"user\\\": 3}: json: cannot unmarshal number"), "{said}");
}

#[tokio::test]
async fn the_modes_abac_and_webhook_work_by_flags() {
    let hook = by_user("hook").await;
    let files = Files::new();
    files.put("kubeconfig", &hook.kubeconfig("/hook", "hook-token"));
    let policy = r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"bob","namespace":"*","resource":"pods","apiGroup":"*","readonly":true}}"#;
    files.put("policies", policy);
    let kubeconfig = format!("--authorization-webhook-config-file={}", files.path("kubeconfig").display());
    let policies = format!("--authorization-policy-file={}", files.path("policies").display());
    let server = conformance::Server::serve(&[
        "--authorization-mode=ABAC,Webhook",
        &kubeconfig,
        &policies,
        "--authorization-webhook-version=v1",
        "--authorization-webhook-cache-authorized-ttl=0s",
        WITHOUT_CONTROLLERS,
    ])
    .await
    .unwrap();
    assert_eq!(review(&server, "bob", "default").await["allowed"], true);
    assert_eq!(hook.take().len(), 0);
    for _ in 0..2 {
        assert_eq!(review(&server, "alice", "default").await["reason"], "hook likes alice");
    }
    assert_eq!(hook.take().len(), 2);
    assert_eq!(
        review(&server, "dave", "default").await["reason"],
        "abac: No policy matched.\ndefault: hook shrugs"
    );
    // The server's own controllers need neither: all bootstrap objects exist.
    accepts(server.client().unwrap().get("/api/v1/namespaces/default/serviceaccounts").await).unwrap();
}

/// The second example of KEP-3221 with its field reference, corrected: quoted, with `request.groups`, and with names.
#[tokio::test]
async fn the_example_of_kep_3221_loads_and_decides() {
    let hook = by_user("hook").await;
    let files = Files::new();
    let configuration = files
        .configuration(&[AuthorizerWebhook {
            policy: "Deny",
            fields: &["timeout: 3s", "authorizedTTL: 30s", "unauthorizedTTL: 30s"],
            conditions: &[
                "has(request.resourceAttributes)",
                "request.resourceAttributes.namespace == 'kube-system'",
                "!('system:serviceaccounts:kube-system' in request.groups)",
            ],
            ..AuthorizerWebhook::new("super-important-kube-system-authorizer", &hook)
        }])
        .replace("- type: RBAC", "- type: Node\n  name: node\n- type: RBAC")
        .replace("/v1\nkind", "/v1alpha1\nkind");
    files.put("authz.yaml", &configuration);
    let server = files.serve().await;
    assert_eq!(review(&server, "alice", "kube-system").await["allowed"], true);
    assert_eq!(review(&server, "alice", "default").await["allowed"], false);
    assert_eq!(hook.take().len(), 1);
    // The uncorrected example is rejected with a hint how to fix it.
    let printed = configuration.replace(
        "\"!('system:serviceaccounts:kube-system' in request.groups)\"",
        "!('system:serviceaccounts:kube-system' in request.user.groups)",
    );
    files.put("authz.yaml", &printed);
    let said = start_error(&files, &[]).await;
    assert!(
        said.contains("quote the expression: YAML gives its first character a meaning of its own"),
        "{said}"
    );
}
