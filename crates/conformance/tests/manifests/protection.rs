//! Protection from mistakes: expressions with unknown fields, policies without effect, and truncated files.

use std::fs;

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use serde_json::{Value, json};

use crate::folder::{Folders, check, counted, denied, refusing, rename_onto, tries};
use crate::gates::refused;
use crate::reload::{KEP_RELOADS, RELOADS, SOON, allows, refuses};

const PLUGIN: &str = "\"ValidatingAdmissionPolicy\"";
const REMOVED: &str = "apiserver_admission_manifest_config_removed_objects_total";
const TIMES: &str = "apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds";

/// A policy for pods whose expression has a typo, with its binding.
fn policy_with_typo() -> String {
    refusing("typo", "x")
        .replace("configmaps", "pods")
        .replace("!object.metadata.name.startsWith('x')", "object.spec.contianers.size() > 0")
}

/// The entry of `/debug/admission` for the folder of validating policies.
async fn folder_state(client: &Client) -> Value {
    let headers = [("accept", "application/json")];
    let path = "/debug/admission?plugin=ValidatingAdmissionPolicy";
    let answer = client.send(http::Method::GET, path, &headers, bytes::Bytes::new()).await.unwrap();
    answer.json()["plugins"][0]["manifests"].clone()
}

async fn wait_for_metric(client: &Client, family: &str, words: &[&str], wanted: u64) {
    eventually(SOON, async || match counted(client, family, words).await {
        found if found == wanted => Ok(()),
        found => Err(Problem::new(format!("{family} {words:?}: {found}, not {wanted}"))),
    })
    .await
    .unwrap();
}

/// The time of the last reload with this result.
async fn last_reload_time(client: &Client, status: &str) -> f64 {
    let page = client.get("/metrics").await.unwrap().text();
    let line = page
        .lines()
        .find(|line| line.starts_with(TIMES) && line.contains(PLUGIN) && line.contains(status))
        .unwrap_or_default();
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn restoring_the_active_content_clears_the_failure() {
    let folders = Folders::new();
    let good = refusing("guard", "zero");
    folders.write("guard.yaml", &good);
    let server = folders.server().await;
    let client = server.client().unwrap();
    folders.write("guard.yaml", "a: [");
    wait_for_metric(&client, RELOADS, &[PLUGIN, "\"failure\""], 1).await;
    let state = folder_state(&client).await;
    assert_eq!(state["lastReload"]["status"], "failure", "{state}");
    assert!(state["lastFailure"]["error"].to_string().contains("guard.yaml"), "{state}");

    rename_onto(&folders.policies().join("guard.yaml"), &good);
    wait_for_metric(&client, RELOADS, &[PLUGIN, "\"success\""], 2).await;
    assert_eq!(counted(&client, KEP_RELOADS, &[PLUGIN, "\"success\""]).await, 2);
    assert!(last_reload_time(&client, "success").await > last_reload_time(&client, "failure").await);
    let state = folder_state(&client).await;
    assert_eq!(state["lastReload"]["status"], "success", "{state}");
    assert!(state.get("lastFailure").is_none(), "{state}");
    denied(tries(&client, "zero").await, "guard", "guard-binding", "no zero");

    // The failure is also cleared after the folder was missing for a while.
    fs::rename(folders.policies(), folders.beside("away")).unwrap();
    eventually(SOON, async || match folder_state(&client).await["lastReload"]["status"].as_str() {
        Some("failure") => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    })
    .await
    .unwrap();
    fs::rename(folders.beside("away"), folders.policies()).unwrap();
    wait_for_metric(&client, RELOADS, &[PLUGIN, "\"success\""], 3).await;
    assert!(folder_state(&client).await.get("lastFailure").is_none());
}

#[tokio::test]
async fn typos_in_expressions_cause_warnings_in_every_output() {
    let folders = Folders::new();
    folders.write("typo.yaml", &policy_with_typo());
    let folder = folders.policies();
    let folder = folder.to_str().unwrap();
    let words = "undefined field 'contianers'";
    let (code, report) = check(&[folder]).await;
    assert_eq!((code, &report["valid"]), (0, &json!(true)), "{report}");
    let warning = &report["folders"][0]["warnings"][0];
    assert_eq!((&warning["line"], &warning["field"]), (&json!(13), &json!("spec.validations[0].expression")));
    assert!(warning["message"].as_str().unwrap().contains(words), "{warning}");
    let (code, report) = check(&["--strict", folder]).await;
    assert_eq!((code, &report["valid"]), (1, &json!(false)), "{report}");
    let problem = &report["folders"][0]["problems"][0];
    assert!(problem["message"].as_str().unwrap().contains(words), "{problem}");

    let server = folders.server().await;
    let client = server.client().unwrap();
    let log = server.log();
    let line = log.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("WARN") && line.contains("typo.yaml:13:17"), "{line}");
    let state = folder_state(&client).await;
    assert!(state["warnings"][0]["message"].to_string().contains(words), "{state}");
    assert_eq!(state["warnings"][0]["line"], 13);
    let text = client.get("/debug/admission").await.unwrap().text();
    assert!(text.contains(words), "{text}");
    let warnings = "apiserver_admission_manifest_config_warnings";
    assert_eq!(counted(&client, warnings, &[PLUGIN]).await, 1);
    // The warned effect: every pod is denied.
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    rejects(client.post("/api/v1/namespaces/default/pods?dryRun=All", &pod).await, 422, "Invalid").unwrap();

    folders.write("typo.yaml", &policy_with_typo().replace("contianers", "containers"));
    wait_for_metric(&client, warnings, &[PLUGIN], 0).await;
    accepts(client.post("/api/v1/namespaces/default/pods?dryRun=All", &pod).await).unwrap();
    assert_eq!(check(&["--strict", folder]).await.0, 0);
}

/// Starts `portcullis up` with the policies of the folders, which must end with exit code 1, and returns its output.
async fn up_start_error(folders: &Folders, flags: &[&str]) -> String {
    let (data, policies) = (folders.beside("up"), folders.policies());
    let (data, policies) = (data.to_str().unwrap(), policies.to_str().unwrap());
    let mut arguments = vec!["up", "--data-dir", data, "--secure-port=0", "--policies", policies];
    arguments.extend(flags);
    let (code, output) = conformance::server::run_to_end(&arguments, SOON).await.unwrap();
    assert_eq!(code, Some(1), "{output}");
    output
}

#[tokio::test]
async fn with_strict_manifests_warnings_are_errors() {
    let folders = Folders::new();
    let only = folders.beside("only.yaml");
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionPolicy", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ValidatingAdmissionPolicyConfiguration",
            "staticManifestsDir": folders.policies(),
        }}],
    });
    fs::write(&only, configuration.to_string()).unwrap();
    let flag = format!("--admission-control-config-file={}", only.display());
    folders.write("typo.yaml", &policy_with_typo());
    let said = refused(&[&flag, "--strict-manifests"]).await;
    assert!(said.contains("undefined field 'contianers'"), "{said}");
    let said = up_start_error(&folders, &["--strict-manifests"]).await;
    assert!(said.contains("undefined field 'contianers'"), "{said}");
    // An empty folder, and a policy without a binding.
    fs::remove_file(folders.policies().join("typo.yaml")).unwrap();
    assert!(refused(&[&flag, "--strict-manifests"]).await.contains("the directory has no objects"));

    folders.write("guard.yaml", &refusing("guard", "zero"));
    let server = Server::serve(&[&flag, "--strict-manifests", crate::folder::NO_ACCOUNTS]).await.unwrap();
    let client = server.client().unwrap();
    // Truncated at `---`: the binding is missing.
    folders.write("guard.yaml", refusing("guard", "zero").split("---").next().unwrap());
    wait_for_metric(&client, RELOADS, &[PLUGIN, "\"failure\""], 1).await;
    assert!(server.log().contains("has no binding"), "{}", server.log());
    denied(tries(&client, "zero").await, "guard", "guard-binding", "no zero");
}

#[tokio::test]
async fn manifests_without_effect_cause_warnings() {
    let folders = Folders::new();
    folders.write("lone.yaml", refusing("lone", "x").split("---").next().unwrap());
    folders.write_for(
        "ValidatingAdmissionWebhook",
        "hook.yaml",
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: h.static.k8s.io}\nwebhooks:\n- name: h.example.com\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  clientConfig:\n    url: https://127.0.0.1:1/\n    caBundle: bm8gY2VydGlmaWNhdGU=\n",
    );
    let server = folders.server().await;
    let log = server.log();
    for words in [
        "lone.yaml:1:1: ValidatingAdmissionPolicy \\\"lone.static.k8s.io\\\" has no binding",
        "hook.yaml:10:15: ValidatingWebhookConfiguration",
        "has no PEM-encoded certificate in it",
        "MutatingAdmissionPolicy: the directory has no objects",
    ] {
        assert!(log.contains(words), "{words}\n is not in\n{log}");
    }
    let (code, report) = check(&["--config", folders.config().to_str().unwrap()]).await;
    let all: usize =
        report["folders"].as_array().unwrap().iter().map(|f| f["warnings"].as_array().unwrap().len()).sum();
    assert_eq!((code, all), (0, 4), "{report}");
    // A binding without its policy is invalid.
    folders.write("lone.yaml", refusing("lone", "x").split("---\n").nth(1).unwrap());
    let (code, report) = check(&[folders.policies().to_str().unwrap()]).await;
    assert_eq!(code, 1, "{report}");
}

#[tokio::test]
async fn objects_removed_from_manifests_are_counted_and_named() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "zero"));
    let server = folders.server().await;
    let client = server.client().unwrap();
    let objects = "apiserver_admission_manifest_config_objects";
    let policy = [PLUGIN, "kind=\"ValidatingAdmissionPolicy\""];
    assert_eq!(counted(&client, objects, &policy).await, 1);
    assert_eq!(counted(&client, objects, &[PLUGIN]).await, 2);
    assert_eq!(counted(&client, REMOVED, &[]).await, 0);
    let page = client.get("/metrics").await.unwrap().text();
    assert!(
        page.contains(&format!("{REMOVED}{{kind=\"ValidatingAdmissionPolicy\"")),
        "the series is there at 0"
    );
    // The file is truncated.
    folders.write("guard.yaml", "");
    allows(&client, "zero").await;
    wait_for_metric(&client, REMOVED, &policy, 1).await;
    wait_for_metric(&client, REMOVED, &[PLUGIN], 2).await;
    wait_for_metric(&client, objects, &[PLUGIN], 0).await;
    let log = server.log();
    let line = log.lines().find(|line| line.contains("a reload removed manifest-based objects")).unwrap();
    assert!(
        line.contains("WARN") && line.contains("ValidatingAdmissionPolicy/guard.static.k8s.io"),
        "{line}"
    );
}

#[tokio::test]
async fn a_list_of_expected_objects_protects_from_truncated_files() {
    let folders = Folders::new();
    let both = refusing("guard", "zero");
    folders.write("guard.yaml", &both);
    let folder = folders.policies();
    let shown = folder.to_str().unwrap();
    let (code, report) = check(&["--write-expected", shown]).await;
    assert_eq!(code, 0, "{report}");
    let list = fs::read_to_string(folder.join("expected-objects.txt")).unwrap();
    assert!(list.contains("\nValidatingAdmissionPolicyBinding/guard-binding.static.k8s.io\n"), "{list}");
    let server = folders.server().await;
    let client = server.client().unwrap();
    let mut failures = 0;
    let mut fails = async |words: &str| {
        failures += 1;
        wait_for_metric(&client, RELOADS, &[PLUGIN, "\"failure\""], failures).await;
        denied(tries(&client, "zero").await, "guard", "guard-binding", "no zero");
        let error = folder_state(&client).await["lastFailure"]["error"].to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(check(&[shown]).await.0, 1, "{words}: `check` says the same");
    };
    folders.write("guard.yaml", "");
    fails("is expected, but no file of the directory has it").await;
    folders.write("guard.yaml", both.split("---").next().unwrap());
    fails("ValidatingAdmissionPolicyBinding `guard-binding.static.k8s.io` is expected").await;
    let said = refused(&[&folders.flag()]).await;
    assert!(said.contains("expected-objects.txt:3:1"), "{said}");
    // The list itself is truncated or emptied.
    folders.write("guard.yaml", &both);
    folders.write("expected-objects.txt", "ValidatingAdmissionPolicy/guard.static.k8s.io\n");
    fails("is not listed in expected-objects.txt").await;
    folders.write("expected-objects.txt", "");
    fails("lists no objects").await;
    rename_onto(&folder.join("expected-objects.txt"), &list);
    wait_for_metric(&client, RELOADS, &[PLUGIN, "\"success\""], 2).await;

    // Removing the list while the server runs is rejected too.
    fs::remove_file(folder.join("expected-objects.txt")).unwrap();
    eventually(SOON, async || {
        let state = folder_state(&client).await;
        let gone = state["lastFailure"]["error"].to_string().contains("expected-objects.txt is gone");
        if gone { Ok(()) } else { Err(Problem::new(state.to_string())) }
    })
    .await
    .unwrap();

    // A change of both the list and the folder is accepted.
    rename_onto(&folder.join("expected-objects.txt"), &list.replace("guard", "other"));
    rename_onto(&folder.join("guard.yaml"), &refusing("other", "one"));
    refuses(&client, "other", "one").await;
    allows(&client, "zero").await;
}

#[tokio::test]
async fn manifest_errors_at_start_are_logged_once() {
    let folders = Folders::new();
    folders.write("a.yaml", &refusing("a", "x").replace("  validations:", "  validation:"));
    folders.write("b.yaml", &refusing("b", "x").replace("name: b.static.k8s.io", "labels: {}"));
    let serve = refused(&[&folders.flag()]).await;
    let up = up_start_error(&folders, &[]).await;
    for said in [serve, up] {
        for words in
            ["strict decoding error", "a.yaml:12:3", "metadata.name: Required value: name is required"]
        {
            assert_eq!(said.matches(words).count(), 1, "{words}\n{said}");
        }
        assert!(!said.contains("plugin=\"\"") && !said.contains("generateName"), "{said}");
        assert!(said.contains("\n12 |   validation:\n"), "the place is shown on lines of its own\n{said}");
    }
}

/// The whole start error is in one log line, so that it can be found in collected logs.
#[tokio::test]
async fn a_start_error_of_several_lines_is_one_line_of_the_log() {
    let folders = Folders::new();
    let text = refusing("a", "x");
    let without = text.split_once('\n').unwrap().1;
    folders.write("a.yaml", without);
    let said = refused(&[&folders.flag()]).await;
    let line = said.lines().find(|line| line.starts_with("\"command failed\" err=")).unwrap();
    let quoted = without.lines().next().unwrap();
    assert!(line.contains(&format!("Object 'apiVersion' is missing in '{quoted}\\n")), "{said}");
    assert!(line.ends_with("'\""), "{said}");
    assert!(said.contains("--> ") && said.contains("a.yaml:1:1"), "{said}");
}
