//! `docs/authenticate-to-webhooks.md`: its commands are run, and what they print is what the page says, with the webhooks in Rust, Go
//! and Python.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use conformance::server::free_port;
use conformance::{Problem, Server, accepts, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::setting::{account, accounts, kube_client};
use crate::webhook_example::{self, Flags};
use webhook_auth::verify::{Configuration, Dialect};
use webhook_auth::{ClientConfig, ConfigurationKind};

const PAGE: &str = include_str!("../../../../docs/authenticate-to-webhooks.md");
const PORT: &str = "8443";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The blocks of a section: their language and their text, without the indentation of a list.
fn blocks(section: &str) -> Vec<(String, String)> {
    let (_, rest) = PAGE.split_once(&format!("\n## {section}\n")).unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap_or((rest, ""));
    let mut blocks: Vec<(String, String)> = Vec::new();
    let mut indent = None;
    for line in section.lines() {
        match (indent, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                indent = Some(line.len() - line.trim_start().len());
                blocks.push((language.to_owned(), String::new()));
            }
            (Some(_), Some(_)) => indent = None,
            (Some(indent), None) => {
                let text = &mut blocks.last_mut().unwrap().1;
                text.push_str(line.get(indent..).unwrap_or_default());
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// A webhook that runs until it is dropped.
enum Running {
    Task(JoinHandle<()>),
    Process(std::process::Child),
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Running::Task(task) => task.abort(),
            Running::Process(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Runs a program, whose failure is the test's.
fn run(program: &str, args: &[&str], folder: &Path) -> Output {
    let output = Command::new(program).args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Whether a program can do what a test needs; if not, the test says so and ends.
fn has(program: &str, args: &[&str], what: &str) -> bool {
    let found = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        eprintln!("left out, because there is no {what}");
    }
    has
}

/// Runs the commands of the example, and compares what they print. `start` starts the webhook with the flags of the page.
async fn follow(start: impl AsyncFn(Vec<String>, &Path) -> Running) {
    if !has("kubectl", &["create", "token", "--help"], "kubectl that creates tokens")
        || !has("openssl", &["version"], "openssl")
        || !has("curl", &["--version"], "curl")
    {
        return;
    }
    let server = Server::up().await.unwrap();
    let kubeconfig = server.kubeconfig().unwrap();
    let folder = TempDir::new().unwrap();
    let (port, guard) = free_port().unwrap();
    drop(guard);
    let port = port.to_string();
    let mut script = String::from("set -e\n");
    let mut running = None;
    let mut checked = 0;
    let shell = async |script: String| {
        let mut command = tokio::process::Command::new("bash");
        command.arg("-c").arg(script).current_dir(folder.path()).env("KUBECONFIG", &kubeconfig);
        let output = command.output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let blocks = blocks("Example");
    let mut blocks = blocks.iter().peekable();
    while let Some((language, text)) = blocks.next() {
        assert_eq!(language, "sh", "{text}");
        let text = text.replace(PORT, &port);
        if text.contains("--example webhook") {
            let (_, server, _) =
                shell("kubectl config view -o jsonpath='{.clusters[0].cluster.server}'".to_owned()).await;
            let text = text.replace("\\\n", " ").replace("\"$SERVER\"", &server);
            let (_, flags) = text.split_once(" -- ").unwrap();
            let flags = flags.trim().trim_end_matches(" &").split_whitespace().map(str::to_owned).collect();
            running = Some(start(flags, folder.path()).await);
            let url = format!("https://localhost:{port}/metrics");
            let up = format!("curl -sf --cacert tls.crt {url}");
            eventually(Duration::from_mins(1), async || {
                let (answers, ..) = shell(up.clone()).await;
                answers.then_some(()).ok_or_else(|| Problem::new("the webhook does not answer"))
            })
            .await
            .unwrap();
            continue;
        }
        // Variables and functions of earlier blocks are known, and what they print is not seen again.
        let known = text.lines().take_while(|line| !line.starts_with("echo")).collect::<Vec<_>>().join("\n");
        let (ended_well, out, err) = shell(format!("{script}\n{text}")).await;
        if text.contains("ask()") {
            script.push_str(&known);
            script.push('\n');
        }
        let expected = blocks.next_if(|(language, _)| language == "text");
        match expected {
            None => assert!(ended_well, "{text}\n{err}"),
            Some((_, lines)) => {
                for line in lines.replace(PORT, &port).lines().filter(|line| !line.trim().is_empty()) {
                    assert!(out.contains(line.trim()), "`{line}` is not in\n{out}\n{err}\nof\n{text}");
                    checked += 1;
                }
            }
        }
    }
    assert!(running.is_some());
    assert_eq!(checked, 14, "a line of the page was lost");
}

#[tokio::test]
async fn the_page_is_right_with_the_webhook_in_rust() {
    follow(async |flags, folder| {
        let absolute = flags.into_iter().map(|word| match folder.join(&word) {
            file if file.is_file() => file.display().to_string(),
            _ => word,
        });
        let flags = Flags::read(absolute).unwrap();
        let listener = TcpListener::bind(flags.get("listen").unwrap()).await.unwrap();
        Running::Task(tokio::spawn(async move {
            webhook_example::serve(&flags, listener).await.unwrap();
        }))
    })
    .await;
}

#[tokio::test]
async fn the_page_is_right_with_the_webhook_in_go() {
    if !has("go", &["version"], "go: the webhook in Go") {
        return;
    }
    follow(async |flags, folder| {
        let program = folder.join("webhook");
        let source = repository().join("go/webhookauth");
        run("go", &["build", "-o", program.to_str().unwrap(), "./examples/webhook"], &source);
        Running::Process(Command::new(program).args(flags).current_dir(folder).spawn().unwrap())
    })
    .await;
}

const CRYPTOGRAPHY: [&str; 2] = ["-c", "import cryptography"];

#[tokio::test]
async fn the_page_is_right_with_the_webhook_in_python() {
    if !has("python3", &CRYPTOGRAPHY, "python3 with cryptography: the webhook in Python") {
        return;
    }
    follow(async |flags, folder| {
        let package = repository().join("python/webhookauth");
        let mut command = Command::new("python3");
        command.arg(package.join("examples/webhook.py")).args(flags);
        command.env("PYTHONPATH", &package).env("PYTHONDONTWRITEBYTECODE", "1");
        Running::Process(command.current_dir(folder).spawn().unwrap())
    })
    .await;
}

/// The packages' own tests, with the vectors that the Rust crate passes.
#[test]
fn the_go_package_passes_its_tests_and_the_vectors() {
    if has("go", &["version"], "go: the tests of go/webhookauth") {
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
    if has("python3", &CRYPTOGRAPHY, "python3 with cryptography: the tests of python/webhookauth") {
        let output =
            run("python3", &["-B", "-m", "unittest", "-v"], &repository().join("python/webhookauth"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("test_tokens") && text.trim_end().ends_with("OK"), "{text}");
    }
}

/// The roles of the page let an aggregated API server have tokens for its group, in both dialects, and nothing else.
#[tokio::test]
async fn the_roles_of_the_page_are_enough_for_an_aggregated_api_server() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let yaml = blocks("Aggregated API servers");
    let (_, yaml) = yaml.iter().find(|(language, _)| language == "yaml").unwrap();
    let objects: Vec<Value> =
        yaml.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect();
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
    let place = ClientConfig::url("https://guard.example/");

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
        tokens(&own, account, "ninja.turtles.ai").token(&bound, &place).await.unwrap();
        tokens(&own, account, "*").token(&bound, &place).await.unwrap_err();
        tokens(&own, account, "apps").token(&bound, &place).await.unwrap_err();
        tokens(&own, "turtles-apiserver", "ninja.turtles.ai").token(&bound, &place).await.unwrap_err();
        tokens(&stranger, account, "ninja.turtles.ai").token(&bound, &place).await.unwrap_err();
    }
}
