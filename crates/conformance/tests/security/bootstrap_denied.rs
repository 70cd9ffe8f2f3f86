//! A policy or webhook that denies bootstrap objects does not prevent the server from starting.

use std::path::Path;
use std::time::{Duration, Instant};

use conformance::client::{Client, Credentials, Trust};
use conformance::server::{ADMIN_TOKEN, TOKENS, binary, free_port, write_private};
use conformance::{Problem, Server, accepts, eventually, rejects};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

const PATIENCE: Duration = Duration::from_secs(40);

/// A server that is started without waiting for readiness.
struct StartedServer {
    _child: Child,
    client: Client,
    home: TempDir,
}

/// An admission configuration with one folder of static policies or webhooks.
fn configure(home: &Path, plugin: &str, kind: &str) -> String {
    let file = home.join("admission.yaml");
    let folder = home.join("static");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: {plugin}\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: {kind}\n    staticManifestsDir: {}\n",
        folder.display()
    );
    write_private(&file, &text).unwrap();
    format!("--admission-control-config-file={}", file.display())
}

fn start(home: TempDir, flags: &[&str]) -> StartedServer {
    write_private(&home.path().join("tokens.csv"), TOKENS).unwrap();
    let (port, guard) = free_port().unwrap();
    drop(guard);
    let child = Command::new(binary().unwrap())
        .arg("serve")
        .args([
            "--bind-address=127.0.0.1",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
        ])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--data-dir={}", home.path().join("data").display()))
        .arg(format!("--cert-dir={}", home.path().join("certs").display()))
        .arg(format!("--token-auth-file={}", home.path().join("tokens.csv").display()))
        .args(flags)
        .stdin(std::process::Stdio::null())
        .stderr(std::fs::File::create(home.path().join("log")).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let url = format!("https://127.0.0.1:{port}");
    let client = Client::new(&url, Trust::Anything, Credentials::Token(ADMIN_TOKEN.into())).unwrap();
    StartedServer { _child: child, client, home }
}

impl StartedServer {
    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Repeats the request until it gets this status code.
    async fn wait_for_status_code(&self, client: &Client, path: &str, code: u16) -> String {
        eventually(PATIENCE, async || {
            let answer = client.get(path).await?;
            if answer.code == code {
                return Ok(answer.text());
            }
            Err(Problem::new(format!("{path}: {} {}", answer.code, answer.text())))
        })
        .await
        .unwrap_or_else(|problem| panic!("{problem}\n{}", self.log()))
    }
}

/// The manifest of a policy that denies what its expression refuses, and of its binding.
fn policy(name: &str, operations: &str, resource: &str, expression: &str, message: &str) -> String {
    format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}.static.k8s.io}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [''], apiVersions: [v1], operations: {operations}, resources: [{resource}]}}
  validations:
  - {{expression: '{expression}', message: {message}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}.static.k8s.io}}
spec: {{policyName: {name}.static.k8s.io, validationActions: [Deny]}}
"
    )
}

fn no_services() -> String {
    policy("no-services", "[CREATE]", "services", "false", "no services here")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_denies_bootstrap_objects_is_reported_until_it_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let flag = configure(home.path(), "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration");
    let policy = home.path().join("static/no-services.yaml");
    std::fs::write(&policy, no_services()).unwrap();
    let server = start(home, &[&flag, "--anonymous-auth=true"]);
    let admin = &server.client;
    let check = "poststarthook/bootstrap-controller";

    // It serves requests and is alive, but not ready.
    server.wait_for_status_code(admin, "/livez", 200).await;
    server.wait_for_status_code(admin, "/readyz", 500).await;
    eventually(PATIENCE, async || {
        let page = admin.get("/readyz?verbose").await?.text();
        let words =
            format!("[-]{check} failed: /api/v1/namespaces/default/services/kubernetes is not written");
        let named = page.contains(&words) && page.contains("no-services.static.k8s.io");
        if named { Ok(()) } else { Err(Problem::new(page)) }
    })
    .await
    .unwrap();
    accepts(admin.get("/api/v1/namespaces/default").await).unwrap();
    accepts(admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin").await).unwrap();
    rejects(admin.get("/api/v1/namespaces/default/services/kubernetes").await, 404, "NotFound").unwrap();
    let log = server.log();
    assert!(log.contains("no-services.static.k8s.io"), "{log}");

    // Other users do not see the names of policies.
    for token in [None, Some("bobtoken")] {
        let other = admin.as_token(token);
        for path in ["/readyz", "/readyz?verbose"] {
            let page = server.wait_for_status_code(&other, path, 500).await;
            assert!(page.contains(check) && page.contains("reason withheld"), "{page}");
            assert!(!page.contains("no-services") && !page.contains("/api/v1"), "{page}");
        }
        let page = server.wait_for_status_code(&other, &format!("/readyz/{check}?verbose"), 403).await;
        assert!(!page.contains("no-services"), "{page}");
    }

    // Without the policy, bootstrap continues, and the service gets its address.
    std::fs::remove_file(&policy).unwrap();
    server.wait_for_status_code(admin, "/readyz", 200).await;
    let service = accepts(admin.get("/api/v1/namespaces/default/services/kubernetes").await).unwrap();
    assert_eq!(service["spec"]["clusterIP"], "10.0.0.1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_never_answers_does_not_delay_the_start() {
    // A port that accepts connections and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let home = tempfile::tempdir().unwrap();
    let flag = configure(home.path(), "ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration");
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "silent.static.k8s.io"},
        "webhooks": [{
            "name": "silent.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "timeoutSeconds": 30,
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
        }],
    });
    let file = home.path().join("static/silent.json");
    std::fs::write(&file, hook.to_string()).unwrap();
    let began = Instant::now();
    let server = start(home, &[&flag]);
    let admin = &server.client;
    server.wait_for_status_code(admin, "/livez", 200).await;
    // Less than one webhook timeout: the start did not wait for it.
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    server.wait_for_status_code(admin, "/readyz", 500).await;

    // Missing roles grant nothing: alice cannot read discovery yet.
    let alice = admin.as_token(Some("alicetoken"));
    rejects(alice.get("/api/v1/namespaces").await, 403, "Forbidden").unwrap();
    rejects(alice.get("/apis").await, 403, "Forbidden").unwrap();

    // Without the webhook, all objects are written as soon as pending calls end.
    std::fs::remove_file(&file).unwrap();
    drop(silent);
    server.wait_for_status_code(admin, "/readyz", 200).await;
    accepts(alice.get("/apis").await).unwrap();
}

fn owner_label() -> String {
    let expression = "has(object.metadata.labels) && \"owner\" in object.metadata.labels";
    policy("owner-label", "[CREATE, UPDATE]", "namespaces", expression, "namespaces need an owner label")
}

/// A webhook at a port without a listener.
fn webhook_down(port: u16, group: &str, resources: &str) -> String {
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "down.static.k8s.io"},
        "webhooks": [{
            "name": "down.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [resources]}],
        }],
    });
    hook.to_string()
}

/// Whatever denies bootstrap objects, `serve` and `up` start, name it on `/readyz` and in the log, and become ready when it is
/// removed.
#[tokio::test(flavor = "multi_thread")]
async fn serve_and_up_start_and_name_what_denies_bootstrap_objects() {
    let (port, _guard) = free_port().unwrap();
    let policy = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration");
    let webhook = ("ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration");
    let webhook_for = |group, resources| {
        check_start_despite_denial(webhook, webhook_down(port, group, resources), "down.example.com")
    };
    tokio::join!(
        check_start_despite_denial(policy, owner_label(), "owner-label.static.k8s.io"),
        check_start_despite_denial(policy, no_services(), "no-services.static.k8s.io"),
        webhook_for("", "namespaces"),
        webhook_for("*", "*/*"),
    );
}

async fn check_start_despite_denial((plugin, kind): (&str, &str), manifest: String, name: &str) {
    let home = tempfile::tempdir().unwrap();
    let flag = configure(home.path(), plugin, kind);
    let folder = home.path().join("static");
    std::fs::write(folder.join("manifest.yaml"), &manifest).unwrap();
    let up = Server::up_with(&["--policies", folder.to_str().unwrap()]).await.unwrap();
    let serve = start(home, &[&flag]);
    let up_client = up.client().unwrap();
    serve.wait_for_status_code(&serve.client, "/livez", 200).await;
    for client in [&serve.client, &up_client] {
        eventually(PATIENCE, async || {
            let page = client.get("/readyz?verbose").await?;
            let named = page.code == 500 && page.text().contains(name);
            if named { Ok(()) } else { Err(Problem::new(page.text())) }
        })
        .await
        .unwrap();
        assert_eq!(client.get("/livez").await.unwrap().code, 200);
    }
    for log in [serve.log(), up.log()] {
        assert!(log.contains(name), "{name} is not in the log\n{log}");
    }
    std::fs::remove_file(folder.join("manifest.yaml")).unwrap();
    serve.wait_for_status_code(&serve.client, "/readyz", 200).await;
    serve.wait_for_status_code(&up_client, "/readyz", 200).await;
}
