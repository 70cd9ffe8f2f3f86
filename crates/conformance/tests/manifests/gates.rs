//! The feature gate, reserved names, and configurations that stop the start.

use std::time::Duration;

use conformance::server::run_to_end;
use conformance::{Server, accepts, rejects};
use serde_json::json;

use crate::folder::{Folders, NO_ACCOUNTS, refusing};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub(crate) const OFF: &str = "--feature-gates=ManifestBasedAdmissionControlConfig=false";

/// The last lines of the log of a server that does not start.
pub(crate) async fn refused(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let certs = format!("--cert-dir={}", folder.path().join("certs").display());
    let mut args = vec!["serve", "--bind-address=127.0.0.1", "--secure-port=0", &data, &certs];
    args.extend(flags);
    let (code, said) = run_to_end(&args, Duration::from_mins(1)).await.unwrap();
    assert!(code.is_some_and(|code| code != 0), "it started: {said}");
    said
}

#[tokio::test]
async fn reserved_names_are_rejected_with_the_feature_gate_and_cause_a_warning_without_it() {
    let body = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
            "validations": [{"expression": "true"}]}})
    };
    let on = Server::serve(&[NO_ACCOUNTS]).await.unwrap();
    let client = on.client().unwrap();
    let status = rejects(client.post(POLICIES, &body("x.static.k8s.io")).await, 422, "Invalid").unwrap();
    let words = "reserved for static manifest-based configurations";
    assert!(status["message"].as_str().unwrap().contains(words), "{status}");
    accepts(client.post(POLICIES, &body("x.static.k8s.io.mine")).await).unwrap();

    let off = Server::serve(&[NO_ACCOUNTS, OFF]).await.unwrap();
    let answer = off.client().unwrap().post(POLICIES, &body("x.static.k8s.io")).await.unwrap();
    assert_eq!(answer.code, 201, "{}", answer.text());
    assert!(answer.header("warning").contains(words), "{}", answer.header("warning"));
}

#[tokio::test]
async fn static_manifests_dir_is_rejected_while_the_feature_gate_is_off() {
    let folders = Folders::new();
    let said = refused(&[&folders.flag(), OFF]).await;
    assert!(
        said.contains(
            "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled"
        ),
        "{said}"
    );
}

#[tokio::test]
async fn static_manifests_dir_for_a_disabled_plugin_stops_the_start() {
    let folders = Folders::new();
    let said = refused(&[&folders.flag(), "--disable-admission-plugins=ValidatingAdmissionPolicy"]).await;
    assert!(said.contains("staticManifestsDir") && said.contains("ValidatingAdmissionPolicy"), "{said}");
}

#[tokio::test]
async fn invalid_manifests_stop_the_start_and_all_are_named() {
    let folders = Folders::new();
    folders.write("a.yaml", &refusing("a", "x").replace("a.static.k8s.io", "a"));
    folders.write("b.yaml", &refusing("b", "x").replace("  validations:", "  validation:"));
    let said = refused(&[&folders.flag()]).await;
    let folder = folders.policies();
    for position in ["a.yaml:4:9", "b.yaml:12:3"] {
        let position = format!("{}/{position}", folder.display());
        assert!(said.contains(&position), "{position} is not in\n{said}");
    }
    assert!(said.contains("must have a name ending with \\\".static.k8s.io\\\""), "{said}");
    assert!(
        said.contains(
            "\"command failed\" err=\"failed to apply admission: failed to initialize admission plugin"
        ),
        "{said}"
    );
}

#[tokio::test]
async fn a_relative_or_missing_static_manifests_dir_stops_the_start() {
    let folders = Folders::new();
    for (path, words) in
        [("relative", "must be an absolute file path"), ("/nowhere/at/all", "unable to read")]
    {
        let file = folders.beside("bad.yaml");
        let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [{"name": "ValidatingAdmissionPolicy", "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ValidatingAdmissionPolicyConfiguration",
                "staticManifestsDir": path}}]});
        std::fs::write(&file, text.to_string()).unwrap();
        let said = refused(&[&format!("--admission-control-config-file={}", file.display())]).await;
        assert!(said.contains("staticManifestsDir: Invalid value") && said.contains(words), "{said}");
    }
}
