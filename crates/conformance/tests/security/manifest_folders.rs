//! A folder of static manifests that is being written is not loaded half-written.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use conformance::server::{run_to_end, write_private};
use conformance::{Client, Problem, Server, accepts, eventually};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(30);
const RELOADS: &str = "apiserver_manifest_admission_config_controller_automatic_reloads_total";

/// A policy that denies config maps of one name.
fn refusing(name: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: no-{name}.static.k8s.io}}\nspec:\n  matchConstraints:\n    resourceRules:\n    - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}\n  validations:\n  - {{expression: \"object.metadata.name != '{name}'\"}}\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: no-{name}.static.k8s.io}}\nspec: {{policyName: no-{name}.static.k8s.io, validationActions: [Deny]}}\n"
    )
}

/// Threads that overwrite files of a folder continuously with valid content.
struct Writers {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(folder: &Path) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let write = |n: usize| {
            let (over, file) = (Arc::clone(&over), folder.join(format!("more-{n}.yaml")));
            move || {
                let mut count = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    count += 1;
                    let text = format!("{}# {count}\n", refusing(&format!("part-{n}")));
                    let new = file.with_extension("new");
                    std::fs::write(&new, text).unwrap();
                    std::fs::rename(&new, &file).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        };
        let threads = (0..4).map(|n| std::thread::spawn(write(n))).collect();
        Writers { over, threads }
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// An admission configuration that names a folder.
fn configure(home: &Path) -> (PathBuf, String) {
    let folder = home.join("static");
    std::fs::create_dir(&folder).unwrap();
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionPolicy", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ValidatingAdmissionPolicyConfiguration",
            "staticManifestsDir": folder,
        }}],
    });
    let file = home.join("admission.yaml");
    write_private(&file, &configuration.to_string()).unwrap();
    (folder, format!("--admission-control-config-file={}", file.display()))
}

async fn failures(client: &Client) -> u64 {
    let page = client.get("/metrics").await.unwrap().text();
    let of = |line: &str| line.starts_with(RELOADS) && line.contains("status=\"failure\"");
    let line = page.lines().find(|line| of(line));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

async fn refuses(client: &Client, name: &str) -> bool {
    let map = json!({"metadata": {"name": name}});
    client.post(&format!("{MAPS}?dryRun=All"), &map).await.unwrap().code == 422
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_keeps_changing_is_a_failure_and_the_last_valid_set_stays() {
    let home = tempfile::tempdir().unwrap();
    let (folder, flag) = configure(home.path());
    std::fs::write(folder.join("guard.yaml"), refusing("bad")).unwrap();
    let server = Server::serve(&[&flag]).await.unwrap();
    let client = server.client().unwrap();
    assert!(refuses(&client, "bad").await);
    let before = failures(&client).await;
    let writers = Writers::start(&folder);
    eventually(PATIENCE, async || match failures(&client).await {
        now if now > before => Ok(()),
        now => Err(Problem::new(format!("{now} failures were counted"))),
    })
    .await
    .unwrap();
    assert!(refuses(&client, "bad").await, "the last good set stays in force");
    let log = server.log();
    assert!(log.contains("is still being written"), "{log}");
    writers.stop();
    // The final content is active, all of it.
    for name in ["part-0", "part-1", "part-2", "part-3", "bad"] {
        eventually(PATIENCE, async || {
            let is_refused = refuses(&client, name).await;
            is_refused.then_some(()).ok_or_else(|| Problem::new(format!("{name} passes")))
        })
        .await
        .unwrap();
    }
    accepts(client.post(&format!("{MAPS}?dryRun=All"), &json!({"metadata": {"name": "good"}})).await)
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_start_on_a_folder_that_keeps_changing() {
    let home = tempfile::tempdir().unwrap();
    let (folder, flag) = configure(home.path());
    let writers = Writers::start(&folder);
    let data = format!("--data-dir={}", home.path().join("data").display());
    let certs = format!("--cert-dir={}", home.path().join("certs").display());
    let tokens = home.path().join("tokens.csv");
    write_private(&tokens, "t,admin,admin,system:masters\n").unwrap();
    let tokens = format!("--token-auth-file={}", tokens.display());
    let args = [
        "serve",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--authorization-mode=RBAC",
        &data,
        &certs,
        &tokens,
        &flag,
    ];
    let ended = run_to_end(&args, PATIENCE).await;
    writers.stop();
    let (code, said) = ended.unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is still being written"), "{said}");
}
