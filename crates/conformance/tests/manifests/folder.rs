//! Folders of manifests, and servers over them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conformance::server::{run_to_end, write_private};
use conformance::{Client, Server, rejects};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Config maps of the default namespace.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Four folders, one for each plugin, and the file that names them.
pub(crate) struct Folders {
    root: TempDir,
}

/// The plugins, with the kind of their configuration.
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

    /// The same, with a kubeconfig for both webhook plugins.
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

    /// The folder of a plugin.
    pub(crate) fn of(&self, plugin: &str) -> PathBuf {
        self.root.path().join(plugin)
    }

    /// The folder of validating policies.
    pub(crate) fn policies(&self) -> PathBuf {
        self.of("ValidatingAdmissionPolicy")
    }

    /// Writes a file of validating policies.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.policies().join(name), text).unwrap();
    }

    /// Writes a file for a plugin.
    pub(crate) fn write_for(&self, plugin: &str, name: &str, text: &str) {
        fs::write(self.of(plugin).join(name), text).unwrap();
    }

    /// The file that names the folders.
    pub(crate) fn config(&self) -> PathBuf {
        self.root.path().join("admission.yaml")
    }

    /// The flag that names the file.
    pub(crate) fn flag(&self) -> String {
        format!("--admission-control-config-file={}", self.config().display())
    }

    /// Any other place beside the folders.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) async fn server(&self) -> Server {
        self.server_with(&[]).await
    }

    /// The same with further flags.
    pub(crate) async fn server_with(&self, flags: &[&str]) -> Server {
        let flag = self.flag();
        let mut all = vec![flag.as_str(), NO_ACCOUNTS];
        all.extend(flags);
        Server::serve(&all).await.unwrap()
    }
}

/// Pods are created without waiting for the accounts of their namespace.
pub(crate) const NO_ACCOUNTS: &str = "--disable-admission-plugins=ServiceAccount";

/// A policy with its binding that refuses config maps whose names begin with `word`.
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

/// A dry run: nothing is left behind.
pub(crate) async fn tries(client: &Client, name: &str) -> conformance::Result<conformance::client::Answer> {
    client.post(&format!("{MAPS}?dryRun=All"), &map(name)).await
}

/// The refusal must name the policy and its binding.
pub(crate) fn denied(
    answer: conformance::Result<conformance::client::Answer>,
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

/// Replaces a file by a rename, as careful writers do.
pub(crate) fn rename_onto(path: &Path, text: &str) {
    let fresh = path.with_extension("fresh");
    fs::write(&fresh, text).unwrap();
    fs::rename(&fresh, path).unwrap();
}

/// The sum of the series of a family whose labels hold these words.
pub(crate) async fn counted(client: &Client, family: &str, words: &[&str]) -> u64 {
    let page = client.get("/metrics").await.unwrap().text();
    page.lines()
        .filter(|line| line.starts_with(family) && words.iter().all(|word| line.contains(word)))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// The hash in force of a plugin, as the metric shows it.
pub(crate) async fn hash_in_force(client: &Client, plugin: &str) -> String {
    let family = "apiserver_manifest_admission_config_controller_last_config_info{";
    let page = client.get("/metrics").await.unwrap().text();
    let plugin = format!("plugin=\"{plugin}\"");
    let line =
        page.lines().find(|line| line.starts_with(family) && line.contains(&plugin)).unwrap_or_default();
    let hash = line.split_once(",hash=\"").and_then(|(_, rest)| rest.split_once('"'));
    hash.map(|(hash, _)| hash.to_owned()).unwrap_or_default()
}

/// Offline: what `check` says, as JSON, and its exit code.
pub(crate) async fn check(args: &[&str]) -> (i32, Value) {
    let mut all = vec!["check", "--output", "json"];
    all.extend(args);
    let (code, said) = run_to_end(&all, Duration::from_mins(1)).await.unwrap();
    let line = said.lines().find(|line| line.starts_with('{')).unwrap_or(&said);
    (code.unwrap(), serde_json::from_str(line).unwrap_or(Value::Null))
}
