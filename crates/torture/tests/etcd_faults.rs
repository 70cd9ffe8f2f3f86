//! A short run of the fault harness; `cargo xtask torture etcd` is the long one.

use conformance::etcd_process::etcd_program;
use conformance::random::env_number;
use tempfile::TempDir;
use torture::faults::{FaultKind, FaultLengths};
use torture::run::{RunConfig, run};

/// Rounds without `PORTCULLIS_ROUNDS`: every kind of fault once, within three minutes on two cores.
const ROUNDS: u64 = 16;

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_two_servers_see_only_what_etcd_stored_under_faults() {
    let Some(etcd) = etcd_program() else { return };
    let folder = TempDir::new().unwrap();
    let config = RunConfig {
        etcd,
        binary: conformance::server::binary().unwrap(),
        folder: folder.path().to_owned(),
        servers: 2,
        rounds: env_number("PORTCULLIS_ROUNDS", ROUNDS),
        seed: env_number("PORTCULLIS_SEED", 1),
        faults: FaultKind::ALL.to_vec(),
        lengths: FaultLengths::Short,
        environment: Vec::new(),
    };
    let report = Box::pin(run(&config)).await.unwrap();
    println!("{report}");
    if !report.violations.is_empty() {
        let path = folder.keep();
        panic!("PORTCULLIS_SEED={}: see {}\n{report}", config.seed, path.join("violations.txt").display());
    }
    // A run in which little happened proves nothing.
    assert!(report.changes > 500 && report.events > 500, "{report}");
}
