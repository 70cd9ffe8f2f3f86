//! `docs/tasks/authenticate-to-webhooks.md`: its blocks are run with the webhooks in Rust, Go and Python.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use conformance::documentation::{self, BlockLanguage, DocPage, repository};
use conformance::{Problem, Server, accepts, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::site::{account, accounts, kube_client};
use crate::webhook_example::{self, WebhookFlags};
use webhook_auth::verify::{Configuration, Dialect};
use webhook_auth::{ClientConfig, ConfigurationKind};

const PAGE: &str = "docs/tasks/authenticate-to-webhooks.md";
/// The command of the page that starts the webhook, up to its flags.
const WEBHOOK: &str = "cargo run -p webhook-auth --example webhook --";

fn page() -> DocPage {
    let text = fs::read_to_string(repository().join(PAGE)).unwrap();
    assert!(text.contains(WEBHOOK), "the page starts the webhook in another way");
    DocPage::parse(PAGE, &text).unwrap()
}

/// Runs a program, whose failure is the test's.
fn run(program: &str, args: &[&str], folder: &Path) -> Output {
    let output = Command::new(program).args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Whether a program can do what a test needs; if not, the test reports that it is left out.
fn is_available(program: &str, args: &[&str], what: &str) -> bool {
    let found = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        eprintln!("left out, because there is no {what}");
    }
    has
}

/// Runs the page with another command instead of [`WEBHOOK`].
#[expect(clippy::panic, reason = "a test fails by panicking")]
async fn run_page(webhook: String) {
    let running = move || documentation::run(&page(), &[(WEBHOOK, &webhook)]);
    if let Err(problem) = tokio::task::spawn_blocking(running).await.unwrap() {
        panic!("{problem}");
    }
}

/// The webhook runs in this process, because examples are not built for tests. A script hands its flags over.
#[tokio::test]
async fn webhook_authentication_page_commands_work_with_the_rust_webhook() {
    let folder = TempDir::new().unwrap();
    let (script, flags) = (folder.path().join("webhook"), folder.path().join("flags"));
    let text = format!(
        "#!/bin/sh\n{{ pwd; printf '%s\\n' \"$@\"; }} > {0}.new\nmv {0}.new {0}\nexec sleep 1000000\n",
        flags.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let serving = async {
        let text = eventually(Duration::from_mins(2), async || {
            fs::read_to_string(&flags).map_err(|e| Problem::at("the flags of the webhook", e))
        });
        let text = text.await.unwrap();
        let (folder, words) = text.split_once('\n').unwrap();
        let absolute = words.lines().map(|word| match Path::new(folder).join(word) {
            file if file.is_file() => file.display().to_string(),
            _ => word.to_owned(),
        });
        let flags = WebhookFlags::read(absolute).unwrap();
        let listener = TcpListener::bind(flags.get("listen").unwrap()).await.unwrap();
        webhook_example::serve(&flags, listener).await.unwrap();
    };
    tokio::select! {
        () = run_page(script.display().to_string()) => {}
        () = serving => panic!("the webhook ended before the page"),
    }
}

#[tokio::test]
async fn webhook_authentication_page_commands_work_with_the_go_webhook() {
    if !is_available("go", &["version"], "go: the webhook in Go") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("webhook");
    let source = repository().join("go/webhookauth");
    run("go", &["build", "-o", program.to_str().unwrap(), "./examples/webhook"], &source);
    run_page(program.display().to_string()).await;
}

const CRYPTOGRAPHY: [&str; 2] = ["-c", "import cryptography"];

#[tokio::test]
async fn webhook_authentication_page_commands_work_with_the_python_webhook() {
    if !is_available("python3", &CRYPTOGRAPHY, "python3 with cryptography: the webhook in Python") {
        return;
    }
    // The shell of the page may have another Python, with the Kubernetes client.
    let python = run("sh", &["-c", "command -v python3"], Path::new("/"));
    let python = String::from_utf8_lossy(&python.stdout).trim().to_owned();
    let package = repository().join("python/webhookauth").display().to_string();
    run_page(format!(
        "env PYTHONPATH={package} PYTHONDONTWRITEBYTECODE=1 {python} {package}/examples/webhook.py"
    ))
    .await;
}

/// The packages' own tests, with the vectors that the Rust crate passes.
#[test]
fn the_go_package_passes_its_tests_and_the_vectors() {
    if is_available("go", &["version"], "go: the tests of go/webhookauth") {
        let source = repository().join("go/webhookauth");
        run("go", &["vet", "./..."], &source);
        let output = run("go", &["test", "-v", "-run", "TestTokens", "./..."], &source);
        let passed = String::from_utf8_lossy(&output.stdout).matches("--- PASS: TestTokens/").count();
        assert_eq!(passed, 142);
        run("go", &["test", "./..."], &source);
    }
}

#[test]
fn the_python_package_passes_its_tests_and_the_vectors() {
    if is_available("python3", &CRYPTOGRAPHY, "python3 with cryptography: the tests of python/webhookauth") {
        let output =
            run("python3", &["-B", "-m", "unittest", "-v"], &repository().join("python/webhookauth"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("test_tokens") && text.trim_end().ends_with("OK"), "{text}");
    }
}

/// The roles of the page let an aggregated API server have tokens for its group, in both dialects, and nothing else.
#[tokio::test]
async fn documented_roles_let_an_aggregated_api_server_get_tokens_for_its_group_only() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let page = page();
    let objects = page
        .blocks
        .iter()
        .find(|block| block.language == BlockLanguage::Yaml && block.text.contains("kind: Namespace"));
    let objects = objects.unwrap().text.split("\n---\n");
    let objects: Vec<Value> = objects.map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    assert_eq!(objects.len(), 9);
    for object in &objects {
        let (kind, version) = (object["kind"].as_str().unwrap(), object["apiVersion"].as_str().unwrap());
        let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let plural = format!("{}s", kind.to_lowercase());
        let path = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        };
        accepts(client.post(&path, object).await).unwrap();
    }
    // The KEP's dialect wants an APIService of the group.
    let service = json!({"metadata": {"name": "v1.ninja.turtles.ai"}, "spec": {"group": "ninja.turtles.ai", "version": "v1",
        "groupPriorityMinimum": 10, "versionPriority": 10, "insecureSkipTLSVerify": true,
        "service": {"namespace": "turtles", "name": "none"}}});
    accepts(client.post("/apis/apiregistration.k8s.io/v1/apiservices", &service).await).unwrap();
    let hooks = json!({"metadata": {"name": "splinter"}, "webhooks": [{"name": "guard.example.com",
        "clientConfig": {"url": "https://guard.example/"}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": ["ninja.turtles.ai"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]}]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let made = accepts(client.post(configurations, &hooks).await).unwrap();
    let bound = Configuration {
        kind: ConfigurationKind::Validating,
        name: "splinter".to_owned(),
        uid: made["metadata"]["uid"].as_str().unwrap().to_owned(),
    };
    let config = ClientConfig::url("https://guard.example/");

    let path = format!("{}/turtles-apiserver/token", accounts("turtles"));
    let own = accepts(client.post(&path, &json!({"spec": {}})).await).unwrap();
    let own = kube_client(&server.url, own["status"]["token"].as_str().unwrap()).await;
    let stranger = account(&client, "turtles", "stranger").await;
    let stranger = kube_client(&server.url, &stranger).await;
    for dialect in [Dialect::Attestations, Dialect::AttestationClaims] {
        let tokens = |kube: &kube::Client, account: &str, group: &str| {
            webhook_auth::client::WebhookTokens::in_dialect(kube.clone(), "turtles", account, group, dialect)
        };
        let account = "turtles-webhook-auth";
        tokens(&own, account, "ninja.turtles.ai").token(&bound, &config).await.unwrap();
        tokens(&own, account, "*").token(&bound, &config).await.unwrap_err();
        tokens(&own, account, "apps").token(&bound, &config).await.unwrap_err();
        tokens(&own, "turtles-apiserver", "ninja.turtles.ai").token(&bound, &config).await.unwrap_err();
        tokens(&stranger, account, "ninja.turtles.ai").token(&bound, &config).await.unwrap_err();
    }
}
