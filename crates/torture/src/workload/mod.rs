//! The clients: they write, read and watch through all servers, and record every request with its answer.

mod api;
mod config_maps;
mod quotas;
mod services;
mod watches;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conformance::random::Dice;
use conformance::{Client, Problem, Result, accepts, eventually};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use api::RecordingClient;

use crate::clock::RunClock;
use crate::history::{ClientOperation, Outcome, QuotaLimit, WatchStream};
use crate::keys;
use crate::recorder::Recorder;
use crate::server_process::client_of;

/// The namespaces of the workload. The second has a quota.
pub(crate) const NAMESPACE: &str = "torture";
pub(crate) const QUOTA_NAMESPACE: &str = "quota";

/// The hard limits of the quota, by resource.
const HARD: [(&str, usize); 2] = [("configmaps", 6), ("pods", 4)];

/// How long the objects that the workload needs may take to exist.
const SET_UP: Duration = Duration::from_mins(1);

/// State that all clients of a run share.
#[derive(Debug)]
pub struct Session {
    pub clock: RunClock,
    urls: Vec<String>,
    operations: Mutex<Vec<ClientOperation>>,
    streams: Mutex<Vec<WatchStream>>,
    last_write: AtomicU64,
    /// The highest revision in any answer so far.
    seen: AtomicU64,
    /// Writers and readers end when this is true.
    stopping: watch::Sender<bool>,
    /// Watches end when they have reached this revision.
    watch_until: watch::Sender<Option<u64>>,
}

impl Session {
    pub fn new(clock: RunClock, urls: Vec<String>) -> Arc<Session> {
        Arc::new(Session {
            clock,
            urls,
            operations: Mutex::default(),
            streams: Mutex::default(),
            last_write: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            stopping: watch::Sender::new(false),
            watch_until: watch::Sender::new(None),
        })
    }

    pub fn stop_operations(&self) {
        self.stopping.send_replace(true);
    }

    pub fn stop_watches_at(&self, revision: u64) {
        self.watch_until.send_replace(Some(revision));
    }

    pub fn take_operations(&self) -> Vec<ClientOperation> {
        std::mem::take(&mut self.operations.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn take_streams(&self) -> Vec<WatchStream> {
        std::mem::take(&mut self.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    fn next_write(&self) -> u64 {
        self.last_write.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    fn record(&self, operation: ClientOperation) {
        let revision = match &operation.outcome {
            Outcome::Stored(seen) | Outcome::Object(Some(seen)) => seen.revision,
            Outcome::Listed { revision, .. } => *revision,
            _ => 0,
        };
        self.seen.fetch_max(revision, Ordering::Relaxed);
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    }

    fn record_stream(&self, stream: WatchStream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }
}

/// The tasks of all clients.
#[derive(Debug, Default)]
pub struct Clients {
    pub operations: JoinSet<()>,
    pub watches: JoinSet<()>,
}

/// Starts several clients for every server.
pub fn start(session: &Arc<Session>, seed: u64) -> Result<Clients> {
    let mut clients = Clients::default();
    let mut next = 0;
    for server in 0..session.urls.len() {
        let mut client = || {
            next += 1;
            let dice = Dice::new(seed.wrapping_mul(1000).wrapping_add(next));
            Ok::<_, Problem>((
                RecordingClient::new(session, usize::try_from(next).unwrap_or(0), server)?,
                dice,
            ))
        };
        for _ in 0..3 {
            let (client, dice) = client()?;
            clients.operations.spawn(config_maps::run(client, dice));
        }
        let (service_client, dice) = client()?;
        clients.operations.spawn(services::run(service_client, dice));
        for (resource, _) in HARD {
            let (quota_client, dice) = client()?;
            clients.operations.spawn(quotas::run(quota_client, dice, resource));
        }
        for resource in ["configmaps", "services"] {
            let (watch_client, dice) = client()?;
            clients.watches.spawn(watches::run(watch_client, dice, resource));
        }
    }
    Ok(clients)
}

/// Creates the namespaces and the quota, and waits until the quota is in force.
pub async fn set_up(url: &str, recorder: &Recorder) -> Result<Vec<QuotaLimit>> {
    let client = client_of(url)?;
    for namespace in [NAMESPACE, QUOTA_NAMESPACE] {
        let object = json!({"metadata": {"name": namespace}});
        eventually(SET_UP, async || accepts(client.post("/api/v1/namespaces", &object).await)).await?;
    }
    let hard: Value = HARD.iter().map(|(name, hard)| ((*name).to_owned(), json!(hard.to_string()))).collect();
    let quota = json!({"metadata": {"name": "limit"}, "spec": {"hard": hard}});
    let quotas = format!("/api/v1/namespaces/{QUOTA_NAMESPACE}/resourcequotas");
    accepts(client.post(&quotas, &quota).await)?;
    eventually(SET_UP, async || {
        exists(&client, &format!("/api/v1/namespaces/{QUOTA_NAMESPACE}/serviceaccounts/default")).await
    })
    .await?;
    eventually(SET_UP, async || {
        let quota = accepts(client.get(&format!("{quotas}/limit")).await)?;
        if quota.pointer("/status/used/configmaps").is_some() {
            Ok(())
        } else {
            Err(Problem::new(format!("the quota is not counted: {quota}")))
        }
    })
    .await?;
    let since = recorder.catch_up(SET_UP).await?;
    let limit = |(resource, hard): (&str, usize)| QuotaLimit {
        prefix: keys::prefix(resource, QUOTA_NAMESPACE),
        hard,
        since,
    };
    Ok(HARD.into_iter().map(limit).collect())
}

async fn exists(client: &Client, path: &str) -> Result<()> {
    accepts(client.get(path).await).map(drop)
}
