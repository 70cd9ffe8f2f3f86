//! Reloading: every way to change a folder leads to the right policies, and an invalid folder leaves the last valid ones active.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use conformance::{Client, Server, accepts, eventually};

use crate::folder::{Folders, counted, denied, refusing, rename_onto, tries};

pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Waits until names that begin with `word` are denied by the policy.
pub(crate) async fn refuses(client: &Client, policy: &str, word: &str) {
    let words = format!("'{policy}.static.k8s.io'");
    eventually(SOON, async || {
        let status = conformance::rejects(tries(client, word).await, 422, "Invalid")?;
        if status["message"].as_str().is_some_and(|said| said.contains(&words)) {
            return Ok(());
        }
        Err(conformance::Problem::new(status.to_string()))
    })
    .await
    .unwrap();
}

pub(crate) async fn allows(client: &Client, word: &str) {
    eventually(SOON, async || accepts(tries(client, word).await)).await.unwrap();
}

pub(crate) const RELOADS: &str = "apiserver_manifest_admission_config_controller_automatic_reloads_total";
pub(crate) const KEP_RELOADS: &str = "apiserver_admission_manifest_config_automatic_reloads_total";

async fn server_with_guard_policy(folders: &Folders) -> (Server, Client) {
    folders.write("guard.yaml", &refusing("guard", "zero"));
    let server = folders.server().await;
    let client = server.client().unwrap();
    denied(tries(&client, "zero").await, "guard", "guard-binding", "no zero");
    (server, client)
}

#[tokio::test]
async fn overwritten_renamed_added_and_removed_files_are_reloaded() {
    let folders = Folders::new();
    let (_server, client) = server_with_guard_policy(&folders).await;
    folders.write("guard.yaml", &refusing("guard", "one"));
    refuses(&client, "guard", "one").await;
    allows(&client, "zero").await;
    rename_onto(&folders.policies().join("guard.yaml"), &refusing("guard", "two"));
    refuses(&client, "guard", "two").await;
    allows(&client, "one").await;
    folders.write("more.yaml", &refusing("more", "three"));
    refuses(&client, "more", "three").await;
    refuses(&client, "guard", "two").await;
    fs::remove_file(folders.policies().join("more.yaml")).unwrap();
    allows(&client, "three").await;
    refuses(&client, "guard", "two").await;
}

#[tokio::test]
async fn symbolic_links_swapped_as_in_config_map_volumes_are_followed() {
    let folders = Folders::new();
    let folder = folders.policies();
    for (version, word) in [("v1", "one"), ("v2", "two")] {
        fs::create_dir(folder.join(version)).unwrap();
        fs::write(folder.join(version).join("guard.yaml"), refusing("guard", word)).unwrap();
    }
    symlink("v1", folder.join("..data")).unwrap();
    symlink("..data/guard.yaml", folder.join("guard.yaml")).unwrap();
    let server = folders.server().await;
    let client = server.client().unwrap();
    denied(tries(&client, "one").await, "guard", "guard-binding", "no one");
    symlink("v2", folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    refuses(&client, "guard", "two").await;
    allows(&client, "one").await;
}

/// Links that lead out of the folder through another link that is swapped: noticed before the regular check of every minute.
#[tokio::test]
async fn swapped_links_outside_of_the_folder_are_noticed() {
    let folders = Folders::new();
    let releases = folders.beside("releases");
    for (version, word) in [("v1", "one"), ("v2", "two"), ("v3", "three")] {
        fs::create_dir_all(releases.join(version)).unwrap();
        fs::write(releases.join(version).join("guard.yaml"), refusing("guard", word)).unwrap();
    }
    symlink("v1", releases.join("current")).unwrap();
    symlink(releases.join("current/guard.yaml"), folders.policies().join("guard.yaml")).unwrap();
    let server = folders.server().await;
    let client = server.client().unwrap();
    denied(tries(&client, "one").await, "guard", "guard-binding", "no one");
    for (version, word, before) in [("v2", "two", "one"), ("v3", "three", "two")] {
        symlink(version, releases.join("next")).unwrap();
        fs::rename(releases.join("next"), releases.join("current")).unwrap();
        refuses(&client, "guard", word).await;
        allows(&client, before).await;
    }
}

/// The folder itself is a symbolic link that is replaced.
#[tokio::test]
async fn a_folder_that_is_a_symbolic_link_is_followed() {
    let folders = Folders::new();
    let folder = folders.policies();
    for (version, word) in [("v1", "one"), ("v2", "two")] {
        fs::create_dir(folders.beside(version)).unwrap();
        fs::write(folders.beside(version).join("guard.yaml"), refusing("guard", word)).unwrap();
    }
    fs::remove_dir(&folder).unwrap();
    symlink(folders.beside("v1"), &folder).unwrap();
    let server = folders.server().await;
    let client = server.client().unwrap();
    denied(tries(&client, "one").await, "guard", "guard-binding", "no one");
    symlink(folders.beside("v2"), folders.beside("next")).unwrap();
    fs::rename(folders.beside("next"), &folder).unwrap();
    refuses(&client, "guard", "two").await;
    allows(&client, "one").await;
    fs::write(folders.beside("v2").join("guard.yaml"), refusing("guard", "three")).unwrap();
    refuses(&client, "guard", "three").await;
}

#[tokio::test]
async fn a_replaced_folder_is_loaded_and_a_missing_one_changes_nothing() {
    let folders = Folders::new();
    let (_server, client) = server_with_guard_policy(&folders).await;
    let (folder, away, fresh) = (folders.policies(), folders.beside("away"), folders.beside("fresh"));
    fs::rename(&folder, &away).unwrap();
    eventually(SOON, async || match counted(&client, RELOADS, &["\"failure\""]).await {
        0 => Err(conformance::Problem::new("no failure was counted")),
        _ => Ok(()),
    })
    .await
    .unwrap();
    denied(tries(&client, "zero").await, "guard", "guard-binding", "no zero");
    fs::create_dir(&fresh).unwrap();
    fs::write(fresh.join("guard.yaml"), refusing("guard", "one")).unwrap();
    fs::rename(&fresh, &folder).unwrap();
    refuses(&client, "guard", "one").await;
    allows(&client, "zero").await;
}

#[tokio::test]
async fn invalid_manifests_are_counted_and_leave_the_last_valid_set() {
    let folders = Folders::new();
    let (server, client) = server_with_guard_policy(&folders).await;
    let plugin = "\"ValidatingAdmissionPolicy\"";
    assert_eq!(counted(&client, RELOADS, &[plugin, "\"success\""]).await, 1, "the first load counts");
    let bad = [
        "a: [\n".to_owned(),
        refusing("guard", "one").replace("  validations:", "  validation:"),
        refusing("guard", "one").replace("guard.static.k8s.io", "guard"),
        refusing("guard", "one").replace("!object", "!!nothing.object"),
        "apiVersion: v1\nkind: ConfigMap\n".to_owned(),
    ];
    for (index, text) in bad.iter().enumerate() {
        let before = counted(&client, RELOADS, &[plugin, "\"failure\""]).await;
        folders.write("guard.yaml", text);
        eventually(SOON, async || match counted(&client, RELOADS, &[plugin, "\"failure\""]).await {
            now if now > before => Ok(()),
            _ => Err(conformance::Problem::new(format!("bad file {index} was not counted"))),
        })
        .await
        .unwrap();
        denied(tries(&client, "zero").await, "guard", "guard-binding", "no zero");
    }
    assert!(counted(&client, KEP_RELOADS, &[plugin, "\"failure\""]).await >= 5);
    assert!(server.log().contains("guard.yaml:12:3"), "{}", server.log());
    folders.write("guard.yaml", &refusing("guard", "one"));
    refuses(&client, "guard", "one").await;
}

#[tokio::test]
async fn an_emptied_folder_is_accepted_with_a_warning() {
    let folders = Folders::new();
    let (server, client) = server_with_guard_policy(&folders).await;
    fs::remove_file(folders.policies().join("guard.yaml")).unwrap();
    allows(&client, "zero").await;
    assert!(server.log().contains("removed=2"), "{}", server.log());
    let info = "apiserver_manifest_admission_config_controller_last_config_info";
    assert_eq!(counted(&client, info, &["ValidatingAdmissionPolicy", "hash=\"\""]).await, 1);
}
