//! The task pages of `docs/`: their commands are run, and what they name exists.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use conformance::server::free_port;
use conformance::task_page;

const CHAIN: &str = include_str!("../../../docs/authorize-with-a-chain.md");
const DEVICES: &str = include_str!("../../../docs/debug-devices-with-admin-access.md");
const GUARD: &str = include_str!("../../../docs/policies/guard-admin-access-labels.yaml");

/// Runs a page on free ports instead of those it names.
fn run(page: &str, ports: &[&str], programs: &[&'static str]) {
    let missing = task_page::missing(programs);
    if !missing.is_empty() {
        println!("left out: the page needs {}", missing.join(", "));
        return;
    }
    let mut guards = Vec::new();
    let mut free: Vec<String> = Vec::new();
    // A number with one of the page's ports in it would be replaced in turn.
    while free.len() < ports.len() {
        let (port, guard) = free_port().unwrap();
        guards.push(guard);
        let port = port.to_string();
        free.extend((!ports.iter().any(|own| port.contains(own))).then_some(port));
    }
    drop(guards);
    let replaced: Vec<(&str, &str)> = ports.iter().copied().zip(free.iter().map(String::as_str)).collect();
    task_page::run(page, &replaced).unwrap();
}

#[test]
fn the_commands_of_authorize_with_a_chain_work_as_shown() {
    run(CHAIN, &["6443", "9443"], &["kubectl", "python3", "openssl"]);
}

#[test]
fn the_commands_of_debug_devices_with_admin_access_work_as_shown() {
    run(DEVICES, &["6443"], &["kubectl"]);
    // The page shows the policy that ships.
    assert!(DEVICES.contains(GUARD.trim_end()));
}

/// Every file of a folder and of those in it.
fn sources(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_metric_that_a_page_names_exists() {
    let mut code = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src"), &mut code);
    for (page, text) in [("authorize-with-a-chain", CHAIN), ("debug-devices-with-admin-access", DEVICES)] {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let prefixes = ["apiserver_", "resourceclaim_", "dynamic_resource_allocation_"];
        let metrics: Vec<&str> =
            words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).collect();
        assert!(metrics.len() > 5, "{page}");
        let shown: String = task_page::blocks(text).into_iter().filter_map(|block| block.output).collect();
        for metric in metrics {
            // Either a name in the code, or in the output that the page shows and its commands print.
            let exists = code.contains(&format!("\"{metric}\"")) || shown.contains(&format!("{metric}{{"));
            assert!(exists, "{page} names `{metric}`, which does not exist");
        }
    }
}
