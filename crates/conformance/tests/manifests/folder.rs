//! Folders of manifests, and servers over them.

use std::fs;
use std::path::{Path, PathBuf};

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
        let root = TempDir::new().unwrap();
        let mut plugins = Vec::new();
        for (plugin, kind) in PLUGINS {
            let folder = root.path().join(plugin);
            fs::create_dir(&folder).unwrap();
            plugins.push(json!({"name": plugin, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "staticManifestsDir": folder,
            }}));
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

    /// The flag that names the file.
    pub(crate) fn flag(&self) -> String {
        format!("--admission-control-config-file={}", self.root.path().join("admission.yaml").display())
    }

    /// Any other place beside the folders.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) async fn server(&self) -> Server {
        Server::serve(&[&self.flag(), NO_ACCOUNTS]).await.unwrap()
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
