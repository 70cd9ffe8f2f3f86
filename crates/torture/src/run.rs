//! One run: a cluster, a workload, rounds of faults, and the verdict of the checker.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conformance::random::Dice;
use conformance::{Problem, Result};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::checker::{Rule, RuleViolation, check};
use crate::clock::RunClock;
use crate::cluster::{Cluster, ClusterConfig};
use crate::faults::{FaultKind, FaultLengths, InjectedFault};
use crate::history::{Expiration, Limits, Outcome, ReadAt, RunHistory};
use crate::keys::MASTER_LEASES;
use crate::recorder::Recorder;
use crate::report::RunReport;
use crate::server_process::{FORBIDDEN_DATA, wait_until_ready};
use crate::workload::{self, Clients, RecordingClient, Session};

/// How long a server may take to become ready after the last fault.
const RECOVERY: Duration = Duration::from_secs(90);
/// How long requests and watches may take to end after that.
const LAST_REQUESTS: Duration = Duration::from_mins(1);
/// How long the key of a server that ended may exist: its time to live of 15 seconds, and as long again if the leader changed.
const EXPIRY: Duration = Duration::from_secs(45);
/// How long the recorder may take to catch up at the end.
const RECORDED: Duration = Duration::from_mins(1);

/// The programs, rounds and faults of a run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    pub etcd: String,
    pub binary: PathBuf,
    /// For data and logs; must exist.
    pub folder: PathBuf,
    pub servers: usize,
    pub rounds: u64,
    pub seed: u64,
    pub faults: Vec<FaultKind>,
    pub lengths: FaultLengths,
    /// Environment variables of the servers.
    pub environment: Vec<(String, String)>,
}

/// Runs all rounds and checks the history. An error means that the run could not be made, not that a rule is broken.
pub async fn run(config: &RunConfig) -> Result<RunReport> {
    let clock = RunClock::start();
    let cluster = Cluster::start(&ClusterConfig {
        etcd: &config.etcd,
        binary: &config.binary,
        folder: &config.folder,
        servers: config.servers,
        environment: &config.environment,
    })
    .await?;
    let recorder = Recorder::start(&cluster.addresses(), clock)?;
    cluster.start_servers().await?;
    let urls = cluster.server_urls();
    let quotas = workload::set_up(urls.first().map_or("", String::as_str), &recorder).await?;
    let session = Session::new(clock, urls);
    let clients = workload::start(&session, config.seed)?;

    let mut report = RunReport { rounds: config.rounds, ..RunReport::default() };
    if let Err(why) = &cluster.small_disk {
        report.left_out.push(format!("DiskFull: no small file system can be mounted ({why})"));
    }
    Box::pin(inject_faults(config, &cluster, &recorder, &mut report)).await?;

    let mut recovery = Vec::new();
    let mut limits = Limits {
        quotas,
        forbidden_data: Some(FORBIDDEN_DATA.to_owned()),
        leased_prefixes: vec![MASTER_LEASES.to_owned()],
        expirations: Vec::new(),
    };
    recover(&cluster, &session, clients, &mut recovery).await?;
    limits.expirations.extend(end_last_server(&cluster, &recorder, clock).await);
    recorder.catch_up(RECORDED).await?;

    let history = RunHistory {
        changes: recorder.changes(),
        operations: session.take_operations(),
        streams: session.take_streams(),
        limits,
    };
    report.violations = check(&history);
    report.violations.extend(recovery);
    report.count(&history);
    report.write(&config.folder, &history)?;
    Ok(report)
}

/// The rounds: one or two faults at a time, then a moment without any.
async fn inject_faults(
    config: &RunConfig,
    cluster: &Cluster,
    recorder: &Recorder,
    report: &mut RunReport,
) -> Result<()> {
    let mut dice = Dice::new(config.seed);
    let is_possible = |kind: &FaultKind| *kind != FaultKind::DiskFull || cluster.small_disk.is_ok();
    let kinds: Vec<FaultKind> = config.faults.iter().copied().filter(is_possible).collect();
    // Every kind in turn, beginning anywhere, so that few rounds have many kinds; the second one at random.
    let first_kind = dice.index(kinds.len());
    let in_turn = kinds.iter().cycle().skip(first_kind);
    for (_, kind) in (0..config.rounds).zip(in_turn) {
        let next = |dice: &mut Dice, kind: FaultKind| {
            InjectedFault::next(dice, kind, cluster.server_count(), config.lengths)
        };
        let first = next(&mut dice, *kind);
        let second = match dice.pick(&kinds) {
            Some(second) if second != kind && dice.roll(3) == 0 => Some(next(&mut dice, *second)),
            _ => None,
        };
        let other = async {
            match &second {
                Some(fault) => fault.inject(cluster, recorder).await,
                None => Ok(()),
            }
        };
        let (one, two) = tokio::join!(first.inject(cluster, recorder), other);
        one.and(two)?;
        for fault in std::iter::once(first).chain(second) {
            *report.faults.entry(format!("{:?}", fault.kind)).or_default() += 1;
        }
        cluster.heal()?;
        tokio::time::sleep(Duration::from_millis(300 + dice.roll(1200))).await;
    }
    Ok(())
}

/// After the faults, all servers serve again, and all watches reach a last write.
async fn recover(
    cluster: &Cluster,
    session: &Arc<Session>,
    mut clients: Clients,
    violations: &mut Vec<RuleViolation>,
) -> Result<()> {
    let deadline = Instant::now() + RECOVERY;
    for (server, url) in cluster.server_urls().iter().enumerate() {
        // A server ends if etcd did not answer when it started, as under a service manager.
        let ready = loop {
            cluster.heal()?;
            match wait_until_ready(url, Duration::from_secs(5)).await {
                Ok(()) => break Ok(()),
                Err(problem) if Instant::now() > deadline => break Err(problem),
                Err(_) => {}
            }
        };
        if let Err(problem) = ready {
            violations.push(recovery(format!("server {server}: {problem}")));
        }
    }
    session.stop_operations();
    finish(&mut clients.operations, "clients do not end", violations).await;

    let mut last = 0;
    for server in 0..cluster.server_count() {
        let client = RecordingClient::new(session, 0, server)?;
        for resource in ["configmaps", "services"] {
            let name = format!("t-last-{server}");
            let object = json!({
                "apiVersion": "v1", "kind": if resource == "services" { "Service" } else { "ConfigMap" },
                "metadata": {"name": name},
            });
            let object = match resource {
                "services" => {
                    merged(object, &json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}))
                }
                _ => merged(object, &json!({"data": {"value": "last"}})),
            };
            let made = client.create(resource, workload::NAMESPACE, object).await;
            match made {
                Outcome::Stored(seen) => last = last.max(seen.revision),
                other => violations.push(recovery(format!("server {server} does not write: {other:?}"))),
            }
        }
    }
    for server in 0..cluster.server_count() {
        let client = RecordingClient::new(session, 0, server)?;
        let listed = client.list("configmaps", workload::NAMESPACE, ReadAt::Latest, 0).await;
        if !matches!(listed, Outcome::Listed { .. }) {
            violations.push(recovery(format!("server {server} does not list: {listed:?}")));
        }
    }
    // The watch of each resource reaches the last write of that resource, or a bookmark after it.
    session.stop_watches_at(last);
    finish(&mut clients.watches, "watches do not reach the last write", violations).await;
    Ok(())
}

fn merged(mut object: serde_json::Value, patch: &serde_json::Value) -> serde_json::Value {
    crate::history::merge(&mut object, patch);
    object
}

async fn finish(tasks: &mut JoinSet<()>, problem: &str, violations: &mut Vec<RuleViolation>) {
    let deadline = Instant::now() + LAST_REQUESTS;
    loop {
        match timeout_at(deadline, tasks.join_next()).await {
            Ok(None) => return,
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(error))) => violations.push(recovery(format!("a client failed: {error}"))),
            Err(_) => {
                violations.push(recovery(format!("{problem} in {LAST_REQUESTS:?}: {} left", tasks.len())));
                tasks.abort_all();
                return;
            }
        }
    }
}

fn recovery(message: String) -> RuleViolation {
    RuleViolation { rule: Rule::Recovery, message, at: None, revision: None }
}

/// Kills the last server and waits until its key in etcd expires. Returns the time at which it must be gone.
async fn end_last_server(cluster: &Cluster, recorder: &Recorder, clock: RunClock) -> Option<Expiration> {
    let last = cluster.server_count().checked_sub(1)?;
    let key = cluster.server(last, |server| server.master_lease())?;
    cluster.server(last, |server| server.process.kill());
    let exists = || {
        let changes = recorder.changes();
        changes.iter().rev().find(|change| change.key == key).is_some_and(|change| change.object.is_some())
    };
    let expired = async {
        while exists() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let _ = timeout(EXPIRY, expired).await;
    Some(Expiration { key, gone_by: clock.now() })
}

/// The folder of one run below `root`, empty.
pub fn run_folder(root: &Path, name: &str) -> Result<PathBuf> {
    let folder = root.join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| Problem::at("an old folder", e))?;
    }
    std::fs::create_dir_all(&folder).map_err(|e| Problem::at("a folder", e))?;
    Ok(folder)
}
