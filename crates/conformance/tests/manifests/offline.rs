//! `portcullis check`: the loader and the messages of the server, without a server.

use std::fs;
use std::time::Duration;

use conformance::server::run_to_end;
use serde_json::json;

use crate::folder::{Folders, check, hash_in_force, refusing};
use crate::gates::refused;

/// The maximum number of files in a folder.
const MOST_FILES: usize = 100_000;

async fn run(args: &[&str]) -> (i32, String) {
    let mut all = vec!["check"];
    all.extend(args);
    let (code, said) = run_to_end(&all, Duration::from_mins(1)).await.unwrap();
    (code.unwrap(), said)
}

#[tokio::test]
async fn a_valid_folder_is_reported_with_exit_code_count_and_hash() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let folder = folders.policies();
    let (code, report) = check(&[folder.to_str().unwrap(), "--plugin", "ValidatingAdmissionPolicy"]).await;
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["valid"], true);
    assert_eq!(report["folders"][0]["objects"], 2);
    let server = folders.server().await;
    let hash = hash_in_force(&server.client().unwrap(), "ValidatingAdmissionPolicy").await;
    assert_eq!(report["folders"][0]["hash"], json!(hash));
}

#[tokio::test]
async fn problems_are_those_that_stop_the_server_in_all_output_formats() {
    let folders = Folders::new();
    folders.write("a.yaml", &refusing("a", "x").replace("a.static.k8s.io", "a"));
    folders.write("b.yaml", &refusing("b", "x").replace("  validations:", "  validation:"));
    let folder = folders.policies();
    let shown = folder.to_str().unwrap();
    let said = refused(&[&folders.flag()]).await;
    let (code, text) = run(&[shown, "--plugin", "ValidatingAdmissionPolicy"]).await;
    assert_eq!(code, 1);
    // Every line of the report is in the log of a server that does not start.
    for line in text.lines().filter(|line| line.contains("-->") || line.contains("^^^")) {
        assert!(said.contains(line), "{line}\n is not in\n{said}");
    }
    assert!(text.contains(&format!("--> {shown}/a.yaml:4:9")), "{text}");
    assert!(text.contains("help: call it a.static.k8s.io"), "{text}");
    let (code, report) = check(&[shown]).await;
    assert_eq!((code, &report["valid"]), (1, &json!(false)));
    let problems = report["folders"][0]["problems"].as_array().unwrap();
    assert!(
        problems.iter().any(|p| p["field"] == "metadata.name" && p["line"] == 4 && p["column"] == 9),
        "{report}"
    );
    let (code, github) = run(&[shown, "-o", "github"]).await;
    assert_eq!(code, 1);
    assert!(github.contains(&format!("::error file={shown}/b.yaml,line=12,col=3::")), "{github}");
}

#[tokio::test]
async fn a_folder_is_checked_for_its_plugin() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let folder = folders.policies();
    let folder = folder.to_str().unwrap();
    let (code, text) = run(&[folder, "--plugin", "MutatingAdmissionPolicy"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("unsupported resource type *v1.ValidatingAdmissionPolicy"), "{text}");
    assert_eq!(run(&[folder]).await.0, 0, "without a plugin all six kinds are fine");
}

#[tokio::test]
async fn an_admission_configuration_is_checked_with_its_folders() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let config = folders.config();
    let config = config.to_str().unwrap();
    let (code, report) = check(&["--config", config]).await;
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["folders"].as_array().unwrap().len(), 4);
    // An object in the folder of another plugin is reported, as the server reports it.
    folders.write_for("MutatingAdmissionPolicy", "guard.yaml", &refusing("guard", "bad"));
    let (code, text) = run(&["--config", config]).await;
    assert_eq!(code, 1);
    assert!(text.contains("MutatingAdmissionPolicy/guard.yaml"), "{text}");
    assert!(refused(&[&folders.flag()]).await.contains("MutatingAdmissionPolicy/guard.yaml"));

    let text = fs::read_to_string(config).unwrap().replace("staticManifestsDir", "staticManifestDir");
    fs::write(config, text).unwrap();
    let (code, said) = run(&["--config", config]).await;
    assert_eq!(code, 1);
    let words = "unknown field \"staticManifestDir\"";
    assert!(said.contains(words), "{said}");
    assert!(refused(&[&folders.flag()]).await.contains(&words.replace('"', "\\\"")));
}

#[tokio::test]
async fn an_authorization_configuration_is_checked_too() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("authz.yaml");
    let good = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: RBAC, name: rbac}\n";
    fs::write(&path, good).unwrap();
    let shown = path.to_str().unwrap();
    let (code, report) = check(&["--authorization-config", shown]).await;
    assert_eq!(
        (code, &report["valid"], &report["files"][0]["file"]),
        (0, &json!(true), &json!(shown)),
        "{report}"
    );
    fs::write(&path, good.replace("type: RBAC", "type: RBAK")).unwrap();
    let (code, text) = run(&["--authorization-config", shown]).await;
    assert_eq!(code, 1);
    assert!(text.contains(&format!("{shown}:4:")) && text.contains("RBAK"), "{text}");
    let said = refused(&[&format!("--authorization-config={shown}")]).await;
    assert!(said.contains("RBAK"), "{said}");
    let (_, github) = run(&["--authorization-config", shown, "--output", "github"]).await;
    assert!(github.contains(&format!("::error file={shown},line=4,col=")), "{github}");
}

#[tokio::test]
async fn a_usage_error_has_its_own_exit_code() {
    assert_eq!(run(&[]).await.0, 2);
    assert_eq!(run(&["/tmp", "--plugin", "Nothing"]).await.0, 2);
    assert_eq!(run(&["--config", "x", "--plugin", "ValidatingAdmissionPolicy"]).await.0, 2);
    let (code, said) = run(&["/nowhere/at/all"]).await;
    assert_eq!(code, 1, "a folder that is not there is a problem of the folder");
    assert!(said.contains("no such file or directory"), "{said}");
}

#[tokio::test]
async fn a_named_pipe_is_rejected_without_reading_it() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let pipe = folders.policies().join("pipe.yaml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let (code, said) = run(&[folders.policies().to_str().unwrap()]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("pipe.yaml") && said.contains("it is not a regular file"), "{said}");
    let said = refused(&[&folders.flag()]).await;
    assert!(said.contains("it is not a regular file"), "{said}");
    fs::remove_file(&pipe).unwrap();
    let (code, said) = run(&[folders.policies().to_str().unwrap()]).await;
    assert_eq!(code, 0, "{said}");
}

#[tokio::test]
async fn the_number_and_size_of_files_in_a_folder_is_limited() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let folder = folders.policies();
    let shown = folder.to_str().unwrap();
    // A sparse file uses no disk space.
    let large = fs::File::create(folder.join("large.yaml")).unwrap();
    large.set_len(1 << 40).unwrap();
    let (code, said) = run(&[shown]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("bytes together"), "{said}");
    fs::remove_file(folder.join("large.yaml")).unwrap();
    for number in 0..MOST_FILES {
        fs::File::create(folder.join(format!("{number}.yaml"))).unwrap();
    }
    let (code, said) = run(&[shown]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("it has more than {MOST_FILES} files")), "{said}");
    fs::remove_file(folder.join("0.yaml")).unwrap();
    let (code, said) = run(&[shown]).await;
    assert_eq!(code, 0, "{said}");
}
