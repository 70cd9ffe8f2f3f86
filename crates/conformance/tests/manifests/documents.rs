//! The configuration files of KEP-5793, of its documentation page and of our README, unchanged.

use std::fs;

use conformance::{Server, accepts};
use serde_json::{Value, json};

use crate::folder::{NO_ACCOUNTS, check, denied, refusing, tries};
use crate::reload::refuses;

const KEP: &str = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: "<path-to-kubeconfig>"
    staticManifestsDir: "/etc/kubernetes/admission/validating/"
- name: MutatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: "<path-to-kubeconfig>"
    staticManifestsDir: "/etc/kubernetes/admission/mutating/"
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ValidatingAdmissionPolicyConfiguration
    staticManifestsDir: "/etc/kubernetes/admission/policies/"
- name: MutatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: MutatingAdmissionPolicyConfiguration
    staticManifestsDir: "/etc/kubernetes/admission/mutating-policies/"
"#;

const PAGE: &str = r#"
# This is an example AdmissionConfiguration that configures all four admission
# plugins to load manifest-based admission control from static files on disk.
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: "<path-to-kubeconfig>"
    staticManifestsDir: "/etc/kubernetes/admission/validating-webhooks/"
- name: MutatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: "<path-to-kubeconfig>"
    staticManifestsDir: "/etc/kubernetes/admission/mutating-webhooks/"
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ValidatingAdmissionPolicyConfiguration
    staticManifestsDir: "/etc/kubernetes/admission/validating-policies/"
- name: MutatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: MutatingAdmissionPolicyConfiguration
    staticManifestsDir: "/etc/kubernetes/admission/mutating-policies/"
"#;

/// Only paths are replaced: a test has no `/etc/kubernetes`.
#[tokio::test]
async fn the_documented_configurations_load_all_four_folders() {
    for (text, policies, folders) in [
        (KEP, "policies", ["validating", "mutating", "policies", "mutating-policies"]),
        (
            PAGE,
            "validating-policies",
            ["validating-webhooks", "mutating-webhooks", "validating-policies", "mutating-policies"],
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        let admission = root.path().join("admission");
        for folder in folders {
            fs::create_dir_all(admission.join(folder)).unwrap();
        }
        fs::write(admission.join(policies).join("guard.yaml"), refusing("guard", "bad")).unwrap();
        let kubeconfig = root.path().join("kubeconfig");
        fs::write(&kubeconfig, "apiVersion: v1\nkind: Config\n").unwrap();
        let file = root.path().join("admission.yaml");
        let text = text
            .replace("<path-to-kubeconfig>", kubeconfig.to_str().unwrap())
            .replace("/etc/kubernetes/admission", admission.to_str().unwrap());
        fs::write(&file, text).unwrap();
        let (code, report) = check(&["--config", file.to_str().unwrap()]).await;
        assert_eq!(code, 0, "{report}");
        let flag = format!("--admission-control-config-file={}", file.display());
        let server = Server::serve(&[&flag, NO_ACCOUNTS]).await.unwrap();
        let client = server.client().unwrap();
        denied(tries(&client, "bad").await, "guard", "guard-binding", "no bad");
        accepts(tries(&client, "good").await).unwrap();
        let ready = client.get("/readyz?verbose").await.unwrap().text();
        for plugin in [
            "ValidatingAdmissionWebhook",
            "MutatingAdmissionWebhook",
            "ValidatingAdmissionPolicy",
            "MutatingAdmissionPolicy",
        ] {
            assert!(ready.contains(plugin), "{plugin} is not in\n{ready}");
        }
        // A file that is added while the server runs takes effect, and its removal does too.
        fs::write(admission.join(policies).join("more.yaml"), refusing("more", "worse")).unwrap();
        refuses(&client, "more", "worse").await;
    }
    let free = Server::serve(&[NO_ACCOUNTS]).await.unwrap();
    accepts(tries(&free.client().unwrap(), "bad").await).unwrap();
}

/// The policy of the README denies what it says, and an edit changes the answer while the server runs.
#[tokio::test]
async fn the_policy_of_the_readme_denies_and_an_edit_changes_it() {
    let policy = include_str!("../../../../docs/examples/policies/no-latest.yaml");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no-latest.yaml");
    fs::write(&file, policy).unwrap();
    let (code, report) = check(&[folder.path().to_str().unwrap()]).await;
    assert_eq!(code, 0, "{report}");
    let server = Server::up_with(&["--policies", folder.path().to_str().unwrap()]).await.unwrap();
    let client = server.client().unwrap();
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    let pod = |image: &str| -> Value {
        json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": image}]}})
    };
    denied(
        client.post(pods, &pod("nginx:latest")).await,
        "no-latest",
        "no-latest",
        "pin the image to a version",
    );
    accepts(client.post(pods, &pod("nginx:1.29")).await).unwrap();
    fs::write(&file, policy.replace(":latest", ":1.29")).unwrap();
    conformance::eventually(crate::reload::SOON, async || {
        accepts(client.post(pods, &pod("nginx:latest")).await)
    })
    .await
    .unwrap();
    denied(
        client.post(pods, &pod("nginx:1.29")).await,
        "no-latest",
        "no-latest",
        "pin the image to a version",
    );
    fs::remove_file(&file).unwrap();
    conformance::eventually(crate::reload::SOON, async || {
        accepts(client.post(pods, &pod("nginx:1.29")).await)
    })
    .await
    .unwrap();
}
