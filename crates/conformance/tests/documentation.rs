//! `README.md` and `docs/`: every block is run, or parsed where the page says why it is not run.
//!
//! `conformance::documentation` describes the languages and directives. A new page needs a line in [`pages!`] and one in
//! `docs/SUMMARY.md`; pages of `docs/reference` and `docs/decisions` need only the latter.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use conformance::Server;
use conformance::documentation::{BlockLanguage, DocPage, check_blocks, repository, run};

const GUARD: &str = include_str!("../../../docs/examples/guard-admin-access-labels.yaml");

fn parse(name: &str) -> DocPage {
    let text = fs::read_to_string(repository().join(name)).unwrap();
    DocPage::parse(name, &text).unwrap_or_else(|problem| panic!("{problem}"))
}

fn run_page(name: &str) {
    if let Err(problem) = run(&parse(name), &[]) {
        panic!("{problem}");
    }
}

/// One test per page, and their list.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                run_page($page);
            }
        )*
    };
}

pages! {
    the_readme_works: "README.md",
    the_introduction_works: "docs/README.md",
    the_quick_start_works: "docs/tasks/quick-start.md",
    enforcing_policies_from_files_works: "docs/tasks/enforce-policies-from-files.md",
    authorizing_with_a_chain_works: "docs/tasks/authorize-with-a-chain.md",
    debugging_devices_with_admin_access_works: "docs/tasks/debug-devices-with-admin-access.md",
    testing_a_controller_or_policy_works: "docs/tasks/test-a-controller-or-policy.md",
    custom_resources_page_commands_work: "docs/tasks/custom-resources.md",
    audit_page_commands_work: "docs/tasks/audit.md",
    operate_page_commands_work: "docs/tasks/operate.md",
    backing_up_and_restoring_works: "docs/tasks/back-up-and-restore.md",
    running_several_servers_on_etcd_works: "docs/tasks/run-several-servers-on-etcd.md",
    taking_over_a_kubeadm_cluster_works: "docs/tasks/take-over-a-kubeadm-cluster.md",
    migrating_between_stores_works: "docs/tasks/migrate-between-stores.md",
    path_of_a_request_page_commands_work: "docs/concepts/path-of-a-request.md",
    static_manifests_page_commands_work: "docs/concepts/static-manifests.md",
    priority_and_fairness_page_commands_work: "docs/concepts/priority-and-fairness.md",
    storage_page_commands_work: "docs/concepts/storage.md",
    several_servers_page_commands_work: "docs/concepts/several-servers.md",
}

/// Pages that tests elsewhere run.
const RUN_ELSEWHERE: [(&str, &str); 1] =
    [("docs/tasks/authenticate-to-webhooks.md", "crates/conformance/tests/webhook_auth/page.rs")];
/// Every page in these folders is run by one test.
const FOLDERS: [&str; 2] = ["docs/reference/", "docs/decisions/"];

/// The Markdown files of a folder and of those in it, by their paths below the root of the repository.
fn markdown_below(folder: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(repository().join(folder)).into_iter().flatten() {
        let entry = entry.unwrap();
        let name = format!("{}/{}", folder.trim_end_matches('/'), entry.file_name().into_string().unwrap());
        if entry.path().is_dir() {
            found.extend(markdown_below(&name));
        } else if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            found.insert(name);
        }
    }
    found
}

/// The pages of the book, and the README.
fn all_pages() -> BTreeSet<String> {
    let mut pages = markdown_below("docs");
    pages.remove("docs/SUMMARY.md");
    pages.insert("README.md".to_owned());
    pages
}

#[test]
fn reference_pages_and_decision_records_work() {
    for folder in FOLDERS {
        for page in markdown_below(folder) {
            run_page(&page);
        }
    }
}

#[test]
fn every_page_is_run_by_a_test_and_listed_in_the_summary() {
    let summary = fs::read_to_string(repository().join("docs/SUMMARY.md")).unwrap();
    for (page, test) in RUN_ELSEWHERE {
        let name = page.rsplit('/').next().unwrap();
        assert!(
            fs::read_to_string(repository().join(test)).unwrap().contains(name),
            "{test} does not run {page}"
        );
    }
    for page in all_pages() {
        let run = PAGES.contains(&page.as_str())
            || RUN_ELSEWHERE.iter().any(|(other, _)| *other == page)
            || FOLDERS.iter().any(|folder| page.starts_with(folder));
        assert!(run, "{page} is not run: add it to `pages!`");
        if let Some(chapter) = page.strip_prefix("docs/") {
            assert!(summary.contains(&format!("]({chapter})")), "{page} is not listed in docs/SUMMARY.md");
        }
    }
}

#[tokio::test]
async fn blocks_that_are_not_run_parse() {
    let server = Server::up().await.unwrap();
    for page in all_pages() {
        if let Err(problem) = check_blocks(&parse(&page), &server).await {
            panic!("{problem}");
        }
    }
}

#[tokio::test]
async fn blocks_that_do_not_parse_are_reported() {
    let server = Server::up().await.unwrap();
    for (language, text, expected) in [
        ("sh", "if true", "bash cannot parse this"),
        ("console", "$ (ls", "bash cannot parse this"),
        ("json", "{", "not JSON"),
        ("yaml", "a: [", "not YAML"),
        ("yaml", "apiVersion: v1\nkind: ConfigMaps", "v1 has no kind `ConfigMaps`"),
        ("yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ncolour: b", "unknown field"),
        (
            "yaml",
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\ncolour: b",
            "unknown field",
        ),
        ("yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration", "refuses this"),
        (
            "yaml",
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata:\n  name: a.static.k8s.io",
            "spec.validations",
        ),
    ] {
        let text = format!("<!-- not-run: a test -->\n```{language}\n{text}\n```\n");
        let page = DocPage::parse("page.md", &text).unwrap();
        let problem = check_blocks(&page, &server).await.unwrap_err().to_string();
        assert!(problem.starts_with("page.md:2: ") && problem.contains(expected), "{problem}");
    }
}

/// The crate `server` includes pages with Rust blocks in its documentation, so that they are doc tests.
#[test]
fn rust_blocks_are_doc_tests() {
    let library = fs::read_to_string(repository().join("crates/server/src/lib.rs")).unwrap();
    for page in all_pages() {
        if parse(&page).blocks.iter().any(|block| block.language == BlockLanguage::Rust) {
            let included = library.contains(&format!("include_str!(\"../../../{page}\")"));
            assert!(included, "{page} has Rust blocks, and crates/server/src/lib.rs does not include it");
        }
    }
}

#[test]
fn the_devices_page_shows_the_policy_that_ships() {
    let page =
        fs::read_to_string(repository().join("docs/tasks/debug-devices-with-admin-access.md")).unwrap();
    assert!(page.contains(GUARD.trim_end()));
}

/// Every source file of a folder and of those in it.
fn read_sources(folder: &Path, found: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// Whether code can make this name of a string literal, in which `{…}` is replaced by something.
fn literal_can_produce_name(literal: &str, name: &str) -> bool {
    let mut parts = literal.split('{').map(|part| part.split_once('}').map_or(part, |(_, fixed)| fixed));
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) if !part.is_empty() => rest = after,
            _ => return part.is_empty(),
        }
    }
    rest.is_empty()
}

#[test]
fn every_metric_that_a_page_names_exists() {
    const PREFIXES: [&str; 5] =
        ["apiserver_", "resourceclaim_", "dynamic_resource_allocation_", "portcullis_", "webhook_auth_"];
    let mut code = String::new();
    for directory in fs::read_dir(repository().join("crates")).unwrap() {
        let directory = directory.unwrap();
        // The suites name metrics without declaring any.
        if directory.file_name() != "conformance" && directory.file_name() != "torture" {
            read_sources(&directory.path().join("src"), &mut code);
        }
    }
    let has_prefix = |word: &str| PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    let literals: BTreeSet<&str> =
        code.split(['"', ' ', '\\']).filter(|literal| has_prefix(literal)).collect();
    for name in all_pages() {
        let text = fs::read_to_string(repository().join(&name)).unwrap();
        // A name that ends with an underscore stands for several: `family_*`.
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for metric in words.filter(|word| has_prefix(word) && !word.ends_with('_')) {
            // Histograms are declared without the suffixes of their series.
            let suffixes = ["_bucket", "_count", "_sum"];
            let family = suffixes.iter().find_map(|suffix| metric.strip_suffix(suffix)).unwrap_or(metric);
            let exists = literals.iter().any(|literal| {
                // A literal that ends with an underscore is put before others.
                let rest = metric.strip_prefix(literal).filter(|_| literal.ends_with('_'));
                rest.is_some_and(|rest| code.contains(&format!("\"{rest}\"")))
                    || literal_can_produce_name(literal, metric)
                    || literal_can_produce_name(literal, family)
            });
            assert!(exists, "{name} names `{metric}`, which does not exist");
        }
    }
}
