//! Shared setup: folders of static manifests, and servers that use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conformance::server::{run_to_end, write_private};
use conformance::{Client, Server, rejects};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The path of config maps in the default namespace.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Four folders, one for each plugin, and the configuration file that names them.
pub(crate) struct Folders {
    root: TempDir,
}

/// The plugins with the kind of their configuration.
const PLUGINS: [(&str, &str); 4] = [
    ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration"),
    ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyConfiguration"),
    ("ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration"),
    ("MutatingAdmissionWebhook", "WebhookAdmissionConfiguration"),
];

impl Folders {
    pub(crate) fn new() -> Self {
        Self::with_credentials(None)
    }

    /// Creates the folders and a kubeconfig for both webhook plugins.
    pub(crate) fn with_credentials(kubeconfig: Option<&str>) -> Self {
        let root = TempDir::new().unwrap();
        let mut plugins = Vec::new();
        for (plugin, kind) in PLUGINS {
            let folder = root.path().join(plugin);
            fs::create_dir(&folder).unwrap();
            let mut configuration = json!({
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "staticManifestsDir": folder,
            });
            if let Some(text) = kubeconfig.filter(|_| kind == "WebhookAdmissionConfiguration") {
                let path = root.path().join("kubeconfig");
                write_private(&path, text).unwrap();
                configuration["kubeConfigFile"] = json!(path);
            }
            plugins.push(json!({"name": plugin, "configuration": configuration}));
        }
        let file = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins,
        });
        fs::write(root.path().join("admission.yaml"), file.to_string()).unwrap();
        Folders { root }
    }

    pub(crate) fn of(&self, plugin: &str) -> PathBuf {
        self.root.path().join(plugin)
    }

    /// The folder of ValidatingAdmissionPolicy.
    pub(crate) fn policies(&self) -> PathBuf {
        self.of("ValidatingAdmissionPolicy")
    }

    /// Writes a file with validating policies.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.policies().join(name), text).unwrap();
    }

    /// Writes a file for a plugin.
    pub(crate) fn write_for(&self, plugin: &str, name: &str, text: &str) {
        fs::write(self.of(plugin).join(name), text).unwrap();
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.path().join("admission.yaml")
    }

    /// The flag that names the configuration file.
    pub(crate) fn flag(&self) -> String {
        format!("--admission-control-config-file={}", self.config().display())
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) async fn server(&self) -> Server {
        self.server_with(&[]).await
    }

    /// Starts a server with further flags.
    pub(crate) async fn server_with(&self, flags: &[&str]) -> Server {
        let flag = self.flag();
        let mut all = vec![flag.as_str(), NO_ACCOUNTS];
        all.extend(flags);
        Server::serve(&all).await.unwrap()
    }
}

/// Lets pods be created before the service accounts of their namespace exist.
pub(crate) const NO_ACCOUNTS: &str = "--disable-admission-plugins=ServiceAccount";

/// A policy with its binding that denies config maps whose names begin with `word`.
pub(crate) fn refusing(policy: &str, word: &str) -> String {
    format!(
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {policy}.static.k8s.io
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE"]
      resources: ["configmaps"]
  validations:
  - expression: "!object.metadata.name.startsWith('{word}')"
    message: "no {word}"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {policy}-binding.static.k8s.io
spec:
  policyName: {policy}.static.k8s.io
  validationActions: [Deny]
"#
    )
}

pub(crate) fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Creates a config map in a dry run.
pub(crate) async fn tries(
    client: &Client,
    name: &str,
) -> conformance::Result<conformance::client::HttpResponse> {
    client.post(&format!("{MAPS}?dryRun=All"), &map(name)).await
}

/// The denial must name the policy and its binding.
pub(crate) fn denied(
    answer: conformance::Result<conformance::client::HttpResponse>,
    policy: &str,
    binding: &str,
    message: &str,
) {
    let status = rejects(answer, 422, "Invalid").unwrap();
    let words = format!(
        "ValidatingAdmissionPolicy '{policy}.static.k8s.io' with binding '{binding}.static.k8s.io' denied request: {message}"
    );
    let said = status["message"].as_str().unwrap();
    assert!(said.contains(&words), "{said}\n  does not say\n{words}");
}

/// Replaces a file atomically by a rename.
pub(crate) fn rename_onto(path: &Path, text: &str) {
    let fresh = path.with_extension("fresh");
    fs::write(&fresh, text).unwrap();
    fs::rename(&fresh, path).unwrap();
}

/// The sum of the series of a metric whose labels contain these words.
pub(crate) async fn counted(client: &Client, family: &str, words: &[&str]) -> u64 {
    let page = client.get("/metrics").await.unwrap().text();
    page.lines()
        .filter(|line| line.starts_with(family) && words.iter().all(|word| line.contains(word)))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// The hash of a plugin's active manifests, from its metric.
pub(crate) async fn hash_in_force(client: &Client, plugin: &str) -> String {
    let family = "apiserver_manifest_admission_config_controller_last_config_info{";
    let page = client.get("/metrics").await.unwrap().text();
    let plugin = format!("plugin=\"{plugin}\"");
    let line =
        page.lines().find(|line| line.starts_with(family) && line.contains(&plugin)).unwrap_or_default();
    let hash = line.split_once(",hash=\"").and_then(|(_, rest)| rest.split_once('"'));
    hash.map(|(hash, _)| hash.to_owned()).unwrap_or_default()
}

/// The JSON report of `portcullis check` and its exit code.
pub(crate) async fn check(args: &[&str]) -> (i32, Value) {
    let mut all = vec!["check", "--output", "json"];
    all.extend(args);
    let (code, said) = run_to_end(&all, Duration::from_mins(1)).await.unwrap();
    let line = said.lines().find(|line| line.starts_with('{')).unwrap_or(&said);
    (code.unwrap(), serde_json::from_str(line).unwrap_or(Value::Null))
}
