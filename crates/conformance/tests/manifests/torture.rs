//! A folder is changed in every way while requests are sent: no request is decided by a mixture of versions, and the result
//! equals that of a fresh start on the same folder.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conformance::{Client, Problem, eventually};

use crate::folder::{Folders, check, counted, hash_in_force, refusing, tries};
use crate::reload::{RELOADS, SOON};

const PLUGIN: &str = "ValidatingAdmissionPolicy";

/// The number of changes; thousands in the full run.
fn change_count() -> usize {
    std::env::var("PORTCULLIS_ROUNDS").ok().and_then(|rounds| rounds.parse::<usize>().ok()).unwrap_or(1) * 20
}

/// Two policies of one version that warn about every request. A request with warnings of two versions, or with only one warning,
/// was decided by a mixture.
fn policies_of_version(version: usize) -> String {
    let warning = |policy: &str| {
        refusing(policy, "")
            .replace("no ", &format!("version {version};"))
            .replace("validationActions: [Deny]", "validationActions: [Warn]")
    };
    format!("{}---\n{}", warning("first"), warning("second"))
}

async fn versions_in_warnings(client: &Client) -> Result<Vec<String>, Problem> {
    let answer = tries(client, "any").await?;
    if answer.code != 201 {
        return Err(Problem::new(answer.text()));
    }
    let warnings = answer.headers.get_all("warning").iter().filter_map(|warning| warning.to_str().ok());
    let version = |text: &str| {
        let (_, rest) = text.split_once("version ")?;
        Some(rest.split(';').next()?.to_owned())
    };
    Ok(warnings.filter_map(version).collect())
}

/// Changes the folder in a random way. Returns whether its content is valid afterwards.
fn change_folder(folders: &Folders, number: usize) -> bool {
    let folder = folders.policies();
    let file = folder.join("set.yaml");
    let text = policies_of_version(number);
    match number % 12 {
        // Overwritten in place, as simple editors do.
        0 => fs::write(&file, &text).unwrap(),
        // Renamed onto the file, with the temporary file inside or outside of the folder.
        1 => {
            fs::write(folder.join("set.yaml.tmp"), &text).unwrap();
            fs::rename(folder.join("set.yaml.tmp"), &file).unwrap();
        }
        2 => {
            fs::write(folders.beside("set.yaml"), &text).unwrap();
            fs::rename(folders.beside("set.yaml"), &file).unwrap();
        }
        // Removed, and added with another name.
        3 => {
            fs::remove_file(&file).unwrap();
            fs::write(folders.beside("x"), &text).unwrap();
            fs::rename(folders.beside("x"), folder.join("other.json.yml")).unwrap();
        }
        4 => {
            fs::write(folders.beside("x"), &text).unwrap();
            fs::rename(folders.beside("x"), &file).unwrap();
            fs::remove_file(folder.join("other.json.yml")).unwrap();
        }
        // Invalid content: malformed YAML, a duplicate name, a missing policy.
        5 => {
            fs::write(folder.join("bad.yaml"), "a: [").unwrap();
            return false;
        }
        6 => {
            fs::write(folder.join("bad.yaml"), &text).unwrap();
            return false;
        }
        7 => {
            fs::remove_file(folder.join("bad.yaml")).unwrap();
            fs::write(&file, &text).unwrap();
        }
        // Symbolic links that are swapped, as in config map volumes.
        8 | 9 => {
            let version = format!("..v{number}");
            fs::create_dir(folder.join(&version)).unwrap();
            fs::write(folder.join(&version).join("set.yaml"), &text).unwrap();
            symlink(&version, folder.join("..data_tmp")).unwrap();
            fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
            if number % 12 == 8 {
                symlink("..data/set.yaml", folder.join("..link")).unwrap();
                fs::rename(folder.join("..link"), &file).unwrap();
            }
        }
        // The folder is replaced as a whole.
        10 => {
            let (fresh, away) = (folders.beside("fresh"), folders.beside("away"));
            let _ = fs::remove_dir_all(&away);
            fs::create_dir(&fresh).unwrap();
            fs::write(fresh.join("set.yaml"), &text).unwrap();
            fs::rename(&folder, &away).unwrap();
            fs::rename(&fresh, &folder).unwrap();
        }
        // The folder is emptied.
        _ => fs::remove_file(&file).unwrap(),
    }
    true
}

/// The warnings of a server that is started on the folder now.
async fn versions_after_restart(folders: &Folders) -> Vec<String> {
    let server = folders.server().await;
    versions_in_warnings(&server.client().unwrap()).await.unwrap()
}

/// Whether the folder contains a manifest.
fn has_manifest(folder: &Path) -> bool {
    ["set.yaml", "other.json.yml"].iter().any(|name| folder.join(name).exists())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_sees_a_mixture_of_versions_while_the_folder_changes() {
    let folders = Folders::new();
    folders.write("set.yaml", &policies_of_version(0));
    let server = folders.server().await;
    let client = server.client().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let askers: Vec<_> = (0..3)
        .map(|_| {
            let (client, over) = (server.client().unwrap(), Arc::clone(&over));
            tokio::spawn(async move {
                let (mut asked, mut seen) = (0_usize, BTreeSet::new());
                while !over.load(Ordering::Relaxed) {
                    let met = versions_in_warnings(&client).await.unwrap();
                    let different: BTreeSet<&String> = met.iter().collect();
                    assert!(met.is_empty() || met.len() == 2 && different.len() == 1, "a mixture: {met:?}");
                    seen.extend(met);
                    asked += 1;
                }
                (asked, seen.len())
            })
        })
        .collect();
    let mut in_force = vec!["0".to_owned(); 2];
    for number in 1..=change_count() {
        let failures = counted(&client, RELOADS, &[PLUGIN, "\"failure\""]).await;
        let usable = change_folder(&folders, number);
        let (code, report) = check(&[folders.policies().to_str().unwrap(), "--plugin", PLUGIN]).await;
        assert_eq!(code == 0, usable, "change {number}: {report}");
        if usable {
            let wanted = report["folders"][0]["hash"].as_str().unwrap().to_owned();
            eventually(SOON, async || match hash_in_force(&client, PLUGIN).await {
                hash if hash == wanted => Ok(()),
                hash => Err(Problem::new(format!("change {number}: {hash} is in force, not {wanted}"))),
            })
            .await
            .unwrap();
            in_force =
                if has_manifest(&folders.policies()) { vec![number.to_string(); 2] } else { Vec::new() };
        } else {
            eventually(SOON, async || match counted(&client, RELOADS, &[PLUGIN, "\"failure\""]).await {
                now if now > failures => Ok(()),
                _ => Err(Problem::new(format!("change {number} was not counted"))),
            })
            .await
            .unwrap();
        }
        let met = versions_in_warnings(&client).await.unwrap();
        assert_eq!(met, in_force, "change {number}");
        if usable && number % 6 == 1 {
            assert_eq!(met, versions_after_restart(&folders).await, "change {number} and a fresh start");
        }
    }
    over.store(true, Ordering::Relaxed);
    for asker in askers {
        let (asked, seen) = asker.await.unwrap();
        assert!(asked > 0 && seen > 1, "{asked} requests met {seen} versions");
    }
}

/// Changes without waiting in between: only the final state is known.
#[tokio::test(flavor = "multi_thread")]
async fn after_rapid_changes_the_last_version_of_the_manifests_is_active() {
    let folders = Folders::new();
    folders.write("set.yaml", &policies_of_version(0));
    let server = folders.server().await;
    let client = server.client().unwrap();
    let file = folders.policies().join("set.yaml");
    for burst in 1..=change_count() / 4 {
        for step in 0..50 {
            let number = burst * 1000 + step;
            match step % 3 {
                0 => fs::write(&file, policies_of_version(number)).unwrap(),
                1 => fs::write(&file, "a: [").unwrap(),
                _ => {
                    fs::write(folders.beside("x"), policies_of_version(number)).unwrap();
                    fs::rename(folders.beside("x"), &file).unwrap();
                }
            }
        }
        let last = burst * 1000 + 999;
        fs::write(&file, policies_of_version(last)).unwrap();
        eventually(SOON, async || match versions_in_warnings(&client).await? {
            met if met == [last.to_string(), last.to_string()] => Ok(()),
            met => Err(Problem::new(format!("burst {burst}: {met:?}"))),
        })
        .await
        .unwrap();
    }
}
