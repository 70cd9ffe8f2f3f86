//! Starts a server with the example files of `docs/reference/configuration.md`.

use std::path::Path;

use audit::AuditPolicy;
use authn::StaticTokens;
use server::{Authorization, Ephemeral};

const DIRECTORY: &str = "/etc/portcullis";

/// The fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language, text.join("\n") + "\n"));
        }
    }
    blocks
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_with_the_examples_of_the_configuration_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let shown = directory.path().display().to_string();
    let mut files = Vec::new();
    for (language, text) in blocks(&page) {
        let name = match language {
            "json" => "abac.jsonl".to_owned(),
            "text" => "tokens.csv".to_owned(),
            _ => {
                let first = text.lines().next().unwrap();
                let name = first.strip_prefix("# /etc/portcullis/");
                name.unwrap_or_else(|| panic!("the first line of a block must be its path: {first}"))
                    .to_owned()
            }
        };
        let path = directory.path().join(&name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text.replace(DIRECTORY, &shown)).unwrap();
        files.push(name);
    }
    assert_eq!(files.len(), 15, "{files:?}");

    let read = |name: &str| std::fs::read(directory.path().join(name)).unwrap();
    AuditPolicy::parse(&read("audit-policy.yaml")).unwrap();
    let tokens = String::from_utf8(read("tokens.csv")).unwrap();
    let (_, warnings) = StaticTokens::parse("tokens.csv", &tokens).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let path = |name: &str| directory.path().join(name);
    let server = Ephemeral::start_with(|config| {
        config.admission.configuration_file = Some(path("admission.yaml"));
        config.authorization = Authorization::File {
            path: path("authorization.yaml"),
            policy_file: path("abac.jsonl").display().to_string(),
        };
        let off_by_default =
            ["EventRateLimit", "PodNodeSelector", "PodTolerationRestriction", "ImagePolicyWebhook"];
        config.admission.enable = off_by_default.map(str::to_owned).to_vec();
        config.admission.strict_manifests = true;
    })
    .await
    .unwrap();
    server.running.stop().await;
}
