//! `docs/enforce-policies-from-files.md`, run from its first block to its last.
//!
//! A `yaml` block is written to the file whose name is the last one before it. An `sh` block is run; one that starts a server keeps it
//! running. A `text` block has lines that the block before it must print, in the end: commands are tried again for a while.

use std::path::Path;
use std::process::{Command, Output};

use conformance::{Problem, Server, eventually};

use crate::reload::SOON;

const PAGE: &str = include_str!("../../../../docs/enforce-policies-from-files.md");

struct Block<'a> {
    language: &'a str,
    text: String,
    /// The last name in backticks before it.
    name: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut open = false;
    let mut name = "";
    for line in page.lines() {
        match (open, line.strip_prefix("```")) {
            (false, Some(language)) => blocks.push(Block { language, text: String::new(), name }),
            (true, None) => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            (false, None) => name = line.rsplit('`').nth(1).unwrap_or(name),
            (true, Some(_)) => {}
        }
        open ^= line.starts_with("```");
    }
    blocks
}

/// Runs commands in the folder, with the binary and the administrator of the server.
fn run(folder: &Path, kubeconfig: &Path, commands: &str) -> Output {
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell.args(["-e", "-c", commands]).current_dir(folder).env("PATH", path).env("KUBECONFIG", kubeconfig);
    shell.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_task_page_does_what_it_says() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path();
    let etc = root.join("etc");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::os::unix::fs::symlink(conformance::server::binary().unwrap(), root.join("bin/portcullis")).unwrap();
    // A test has no `/etc/kubernetes`.
    let here = |text: &str| text.replace("/etc/kubernetes", etc.to_str().unwrap());
    let mut server: Option<Server> = None;
    let mut kubeconfig = root.join("none");
    let blocks = blocks(PAGE);
    let (mut commands, mut expectations) = (0, 0);
    for (index, block) in blocks.iter().enumerate() {
        let expected = blocks.get(index + 1).filter(|next| next.language == "text");
        match block.language {
            "yaml" => {
                let path = root.join(here(block.name));
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, here(&block.text)).unwrap();
            }
            "sh" if block.text.starts_with("portcullis up ") => {
                let words: Vec<&str> = block.text.split_whitespace().skip(2).collect();
                let started = Server::up_in_folder(root, &words).await.unwrap();
                kubeconfig = started.kubeconfig().unwrap();
                server = Some(started);
            }
            "sh" => {
                if block.text.contains("--config admission.yaml") {
                    let policies = etc.join("admission/validating-policies");
                    std::fs::create_dir_all(&policies).unwrap();
                    std::fs::copy(root.join("releases/1/deny-privileged.yaml"), policies.join("p.yaml"))
                        .unwrap();
                }
                commands += 1;
                let Some(expected) = expected else {
                    let output = run(root, &kubeconfig, &block.text);
                    assert!(output.status.success(), "{}\n{}", block.text, said(&output));
                    continue;
                };
                expectations += 1;
                eventually(SOON, async || {
                    let output = said(&run(root, &kubeconfig, &block.text));
                    match expected.text.lines().find(|line| !output.contains(line)) {
                        None => Ok(()),
                        Some(line) => Err(Problem::new(format!("{line}\n  is not in\n{output}"))),
                    }
                })
                .await
                .unwrap();
            }
            "text" => {}
            other => panic!("a block of unknown language {other}"),
        }
    }
    assert_eq!((blocks.len(), commands, expectations), (23, 11, 8), "no block is lost");
    drop(server);
}
