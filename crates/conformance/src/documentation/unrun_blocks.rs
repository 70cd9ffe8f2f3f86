//! Parses the blocks of a page that are not run.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use http::Method;
use serde_json::Value;

use super::programs::missing_programs;
use super::{BlockLanguage, DocPage};
use crate::server::binary;
use crate::{Problem, Result, Server};

/// Groups of the configuration files that an API server reads, and of those of other components. They are not served.
const CONFIGURATION_GROUPS: [&str; 8] = [
    "apiserver.config.k8s.io",
    "apiserver.k8s.io",
    "audit.k8s.io",
    "eventratelimit.admission.k8s.io",
    "kubelet.config.k8s.io",
    "kubescheduler.config.k8s.io",
    "pod-security.admission.config.k8s.io",
    "podtolerationrestriction.admission.k8s.io",
];

/// Checks every block of a page that is marked `not-run`: commands are valid bash, data parses, Kubernetes objects pass a strict
/// dry run of `server`, and configuration files pass `portcullis check`. Returns the number of blocks.
pub async fn check_blocks(page: &DocPage, server: &Server) -> Result<usize> {
    let mut checked = 0;
    for block in page.blocks.iter().filter(|block| block.not_run.is_some()) {
        let outcome = match block.language {
            BlockLanguage::Shell => parse_with("bash", &["-n"], &block.text),
            BlockLanguage::Console => {
                let commands: String = block.transcript().into_iter().map(|(command, _)| command).collect();
                parse_with("bash", &["-n"], &commands)
            }
            BlockLanguage::Python => {
                if missing_programs(&["python3".to_owned()])?.is_empty() {
                    parse_with(
                        "python3",
                        &["-c", "import ast, sys; ast.parse(sys.stdin.read())"],
                        &block.text,
                    )
                } else {
                    println!("left out: {}:{} needs python3", page.name, block.line);
                    Ok(())
                }
            }
            BlockLanguage::Json => {
                serde_json::from_str::<Value>(&block.text).map(drop).map_err(|e| Problem::at("not JSON", e))
            }
            BlockLanguage::Yaml => yaml(&block.text, server).await,
            BlockLanguage::Rust => Err(Problem::new("rust blocks are doc tests; use the tag `rust,no_run`")),
            BlockLanguage::Text => Ok(()),
        };
        outcome.map_err(|problem| Problem::new(format!("{}:{}: {problem}", page.name, block.line)))?;
        checked += 1;
    }
    Ok(checked)
}

/// The end of names that the API refuses, because they are reserved for manifest files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

async fn yaml(text: &str, server: &Server) -> Result<()> {
    let is_static = |line: &str| line.trim_start().starts_with("name: ") && line.ends_with(STATIC_SUFFIX);
    if text.lines().any(is_static) {
        return check_file(&["check"], text, PassAs::Folder);
    }
    for document in text.split("\n---\n") {
        let value: Value = serde_saphyr::from_str(document).map_err(|e| Problem::at("not YAML", e))?;
        let (Some(version), Some(kind)) = (text_at(&value, "apiVersion"), text_at(&value, "kind")) else {
            continue;
        };
        let group = version.split_once('/').map_or("", |(group, _)| group);
        match (group, kind) {
            ("", "Config") => {}
            ("apiserver.config.k8s.io" | "apiserver.k8s.io", "AuthorizationConfiguration") => {
                check_file(&["authz", "check", "--without-kubeconfigs", "--config"], document, PassAs::File)?;
            }
            ("apiserver.config.k8s.io", "AdmissionConfiguration") => {
                check_file(&["check", "--config"], document, PassAs::File)?;
            }
            (group, _) if CONFIGURATION_GROUPS.contains(&group) => {}
            _ => dry_run(&value, version, kind, server).await?,
        }
    }
    Ok(())
}

/// Creates the object in a dry run that refuses unknown and duplicate fields. A namespace or name that does not exist is no failure.
async fn dry_run(object: &Value, version: &str, kind: &str, server: &Server) -> Result<()> {
    let client = server.client()?;
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let resources: Value =
        serde_json::from_str(&client.get(&root).await?.text()).map_err(|e| Problem::at(&root, e))?;
    let resources = resources.get("resources").and_then(Value::as_array);
    let resource = resources.into_iter().flatten().find(|resource| {
        text_at(resource, "kind") == Some(kind)
            && text_at(resource, "name").is_some_and(|name| !name.contains('/'))
    });
    let resource = resource.ok_or_else(|| Problem::new(format!("{version} has no kind `{kind}`")))?;
    let name = text_at(resource, "name").unwrap_or_default();
    let path = match resource.get("namespaced").and_then(Value::as_bool) {
        Some(true) => format!("{root}/namespaces/default/{name}"),
        _ => format!("{root}/{name}"),
    };
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("namespace");
    }
    let path = format!("{path}?dryRun=All&fieldValidation=Strict");
    let answer = client.json(Method::POST, &path, &object).await?;
    if matches!(answer.code, 200 | 201) {
        return Ok(());
    }
    Err(Problem::new(format!("a dry run of this {kind} is refused with {}: {}", answer.code, answer.text())))
}

fn text_at<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// The last argument of a `portcullis` command that checks a file.
#[derive(Clone, Copy)]
enum PassAs {
    File,
    /// The folder that has nothing but the file in it.
    Folder,
}

fn check_file(command: &[&str], text: &str, pass_as: PassAs) -> Result<()> {
    let folder = tempfile::tempdir().map_err(|e| Problem::at("a folder", e))?;
    let file = folder.path().join("example.yaml");
    fs::write(&file, text).map_err(|e| Problem::at("a file", e))?;
    let path = match pass_as {
        PassAs::File => file.as_path(),
        PassAs::Folder => folder.path(),
    };
    let output =
        Command::new(binary()?).args(command).arg(path).output().map_err(|e| Problem::at("portcullis", e))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let report = format!("{}{}", text(&output.stdout), text(&output.stderr));
    // The files that an example names, or that a flag would name, do not exist here. No other error is accepted.
    let is_about_files = |line: &str| line.contains("no such file") || line.contains("needs a policy file");
    let is_count = |line: &str| line.ends_with(" problem") || line.ends_with(" problems");
    let mut errors = report.lines().filter(|line| line.starts_with("error: ") && !is_count(line)).peekable();
    let lacks_only_files = errors.peek().is_some() && errors.all(is_about_files);
    if output.status.success() || lacks_only_files {
        return Ok(());
    }
    Err(Problem::new(format!("`portcullis {}` refuses this:\n{report}", command.join(" "))))
}

/// Gives the text to a program that only parses it.
fn parse_with(program: &str, args: &[&str], text: &str) -> Result<()> {
    let mut command = Command::new(program);
    let child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| Problem::at(program, e))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes()).map_err(|e| Problem::at(program, e))?;
    }
    let output = child.wait_with_output().map_err(|e| Problem::at(program, e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Problem::new(format!("{program} cannot parse this:\n{}", String::from_utf8_lossy(&output.stderr))))
}
