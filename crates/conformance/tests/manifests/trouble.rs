//! The rows of the documents' tables of troubles and risks that no other file here is about.
//!
//! | row | where |
//! |---|---|
//! | invalid manifest at start-up; silent failures | `gates`, and here |
//! | duplicate names | here |
//! | invalid manifest on reload; policies not enforced after an update | `reload` |
//! | webhook endpoint unreachable | `webhooks` |
//! | files that cannot be read, at start-up and on reload | here |
//! | configuration drift | here |
//! | reserved suffix | `gates` |
//! | name collisions | here |
//! | versioning | here |
//! | debugging difficulty | `seen` |

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use conformance::{Server, accepts, eventually, rejects};
use serde_json::json;

use crate::folder::{Folders, NO_ACCOUNTS, counted, denied, hash_in_force, refusing, tries};
use crate::gates::{OFF, refused};
use crate::reload::{KEP_RELOADS, RELOADS, SOON, refuses};

#[tokio::test]
async fn a_duplicate_name_in_two_files_stops_the_start() {
    let folders = Folders::new();
    folders.write("a.yaml", &refusing("guard", "x"));
    folders.write("b.yaml", &refusing("guard", "y"));
    let said = refused(&[&folders.flag()]).await;
    let (a, b) = (folders.policies().join("a.yaml"), folders.policies().join("b.yaml"));
    let words = format!(
        "duplicate name \\\"guard.static.k8s.io\\\" found in file \\\"{}\\\" (previously seen in \\\"{}\\\")",
        b.display(),
        a.display()
    );
    assert!(said.contains(&words), "{words}\n is not in\n{said}");
    assert!(said.contains(&format!("{}:4:9", b.display())), "{said}");
}

#[tokio::test]
async fn manifests_in_a_version_other_than_v1_stop_the_start() {
    let folders = Folders::new();
    folders.write(
        "a.yaml",
        &refusing("a", "x")
            .replace("admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"),
    );
    let said = refused(&[&folders.flag()]).await;
    assert!(said.contains("a.yaml") && said.contains("v1beta1"), "{said}");
}

/// A symbolic link to itself cannot be read even by root, as which tests may run.
#[tokio::test]
async fn an_unreadable_file_stops_the_start_and_leaves_the_last_valid_set_on_reload() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let loop_ = folders.policies().join("loop.yaml");
    symlink("loop.yaml", &loop_).unwrap();
    let said = refused(&[&folders.flag()]).await;
    assert!(said.contains("loop.yaml") && said.contains("too many levels of symbolic links"), "{said}");
    fs::remove_file(&loop_).unwrap();

    let server = folders.server().await;
    let client = server.client().unwrap();
    let plugin = "\"ValidatingAdmissionPolicy\"";
    let fails = async |words: &str| {
        let before = counted(&client, RELOADS, &[plugin, "\"failure\""]).await;
        eventually(SOON, async || match counted(&client, RELOADS, &[plugin, "\"failure\""]).await {
            now if now > before || server.log().contains(words) => Ok(()),
            _ => Err(conformance::Problem::new("no failure was counted")),
        })
        .await
        .unwrap();
        assert!(server.log().contains(words), "{}", server.log());
        denied(tries(&client, "bad").await, "guard", "guard-binding", "no bad");
    };
    symlink("loop.yaml", &loop_).unwrap();
    fails("too many levels of symbolic links").await;
    assert!(counted(&client, KEP_RELOADS, &[plugin, "\"failure\""]).await >= 1);
    fs::remove_file(&loop_).unwrap();

    let secret = folders.policies().join("secret.yaml");
    fs::write(folders.beside("secret"), refusing("secret", "word")).unwrap();
    fs::set_permissions(folders.beside("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    let is_superuser = fs::read(folders.beside("secret")).is_ok();
    fs::rename(folders.beside("secret"), &secret).unwrap();
    if !is_superuser {
        fails("permission denied").await;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    }
    refuses(&client, "secret", "word").await;
}

#[tokio::test]
async fn different_manifests_on_two_servers_have_different_hashes() {
    let (one, two) = (Folders::new(), Folders::new());
    one.write("guard.yaml", &refusing("guard", "bad"));
    two.write("other-name.yaml", &refusing("guard", "bad"));
    let servers = [one.server().await, two.server().await];
    let [first, second] = [servers[0].client().unwrap(), servers[1].client().unwrap()];
    let plugin = "ValidatingAdmissionPolicy";
    let same = hash_in_force(&first, plugin).await;
    assert!(same.starts_with("sha256:"), "{same}");
    assert_eq!(same, hash_in_force(&second, plugin).await, "the same content has the same hash");
    two.write("other-name.yaml", &refusing("guard", "worse"));
    refuses(&second, "guard", "worse").await;
    let drifted = hash_in_force(&second, plugin).await;
    assert!(drifted.starts_with("sha256:") && drifted != same, "{drifted}");
    // Each server decides by its own files.
    denied(tries(&first, "bad").await, "guard", "guard-binding", "no bad");
    accepts(tries(&second, "bad").await).unwrap();
}

/// An API object that has the name of a manifest because it was created while the gate was off. Both are evaluated.
#[tokio::test]
async fn an_api_object_and_a_manifest_with_the_same_name_are_both_active() {
    let home = tempfile::tempdir().unwrap();
    let (policies, bindings) = (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    );
    let name = "guard.static.k8s.io";
    let mut before = Server::serve_at(home.path(), &[NO_ACCOUNTS, OFF]).await.unwrap();
    let client = before.client().unwrap();
    let policy = json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "!object.metadata.name.startsWith('api')", "message": "by the api"}]}});
    accepts(client.post(policies, &policy).await).unwrap();
    let binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    accepts(client.post(bindings, &binding).await).unwrap();
    before.kill().unwrap();

    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "manifest"));
    let server = Server::serve_at(home.path(), &[NO_ACCOUNTS, &folders.flag()]).await.unwrap();
    let client = server.client().unwrap();
    denied(tries(&client, "manifest").await, "guard", "guard-binding", "no manifest");
    let status = rejects(tries(&client, "api").await, 422, "Invalid").unwrap();
    let words =
        format!("ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: by the api");
    assert!(status["message"].as_str().unwrap().contains(&words), "{status}");
    // Removing the API object leaves the manifest active.
    accepts(client.delete(&format!("{policies}/{name}")).await).unwrap();
    eventually(SOON, async || accepts(tries(&client, "api").await)).await.unwrap();
    denied(tries(&client, "manifest").await, "guard", "guard-binding", "no manifest");
}

/// The gate is on, off and on again: manifests leave no state outside of their files.
#[tokio::test]
async fn manifests_apply_again_after_the_feature_gate_was_off() {
    let home = tempfile::tempdir().unwrap();
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let flag = folders.flag();
    for (flags, guarded) in [(vec![flag.as_str()], true), (vec![OFF], false), (vec![flag.as_str()], true)] {
        let mut all = vec![NO_ACCOUNTS];
        all.extend(flags);
        let mut server = Server::serve_at(home.path(), &all).await.unwrap();
        let client = server.client().unwrap();
        if guarded {
            denied(tries(&client, "bad").await, "guard", "guard-binding", "no bad");
        } else {
            accepts(tries(&client, "bad").await).unwrap();
        }
        server.kill().unwrap();
    }
}
