//! Records every change in etcd, by a watch that no fault of the links affects.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use catalog::etcd_values::KubernetesValues;
use conformance::{Problem, Result};
use etcd::messages::{KeyEvent, RangeRequest, WatchAction, WatchCreateRequest, WatchRequest};
use etcd::{EtcdClient, ValueCodec as _};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock::RunClock;
use crate::etcd_process::direct_client;
use crate::history::{EtcdChange, comparable};

/// A watch that reports nothing for this long is opened again at another member, which may be ahead.
const SILENCE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(100);

/// The changes so far, and the task that records more.
#[derive(Debug)]
pub struct Recorder {
    client: EtcdClient,
    changes: Arc<Mutex<Vec<EtcdChange>>>,
    /// The revision of the last change; an error if changes were lost.
    recorded: watch::Receiver<std::result::Result<u64, String>>,
    task: JoinHandle<()>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Recorder {
    /// Records from the first revision on. `members` are the addresses without proxies.
    pub fn start(members: &[SocketAddr], clock: RunClock) -> Result<Recorder> {
        let client = direct_client(members)?;
        let changes = Arc::default();
        let (sender, recorded) = watch::channel(Ok(0));
        let recording =
            Recording { client: client.clone(), clock, changes: Arc::clone(&changes), recorded: sender };
        Ok(Recorder { client, changes, recorded, task: tokio::spawn(recording.run()) })
    }

    /// Waits until everything up to etcd's current revision is recorded, and returns that revision.
    pub async fn catch_up(&self, time: Duration) -> Result<u64> {
        let deadline = Instant::now() + time;
        let current = loop {
            match self.client.range(&RangeRequest { key: "a".into(), ..RangeRequest::default() }).await {
                Ok(answer) => break u64::try_from(answer.header.unwrap_or_default().revision).unwrap_or(0),
                Err(error) if Instant::now() > deadline => {
                    return Err(Problem::at("etcd's revision", error));
                }
                Err(_) => {
                    self.client.prefer_another();
                    tokio::time::sleep(RETRY).await;
                }
            }
        };
        let mut recorded = self.recorded.clone();
        let reached = recorded.wait_for(|state| state.as_ref().map_or(true, |revision| *revision >= current));
        let reached = tokio::time::timeout_at(deadline, reached).await;
        match reached.map(|state| state.map(|state| state.clone())) {
            Ok(Ok(Ok(_))) => Ok(current),
            Ok(Ok(Err(lost))) => Err(Problem::new(lost)),
            Ok(Err(_)) | Err(_) => Err(Problem::new(format!("revision {current} is not recorded in time"))),
        }
    }

    pub fn revision(&self) -> u64 {
        self.recorded.borrow().as_ref().map_or(0, |revision| *revision)
    }

    /// A client without proxies, for compactions.
    pub fn client(&self) -> &EtcdClient {
        &self.client
    }

    pub fn changes(&self) -> Vec<EtcdChange> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The object in a value of any media type. Null for keys that are not Kubernetes', and for values that cannot be decoded, which no
/// operation of the workload has stored.
fn decoded(key: &str, revision: u64, value: &Bytes) -> Value {
    let record = KubernetesValues::default().decode(key, revision, value);
    record.and_then(|record| serde_json::from_slice(&record.body).ok()).unwrap_or(Value::Null)
}

struct Recording {
    client: EtcdClient,
    clock: RunClock,
    changes: Arc<Mutex<Vec<EtcdChange>>>,
    recorded: watch::Sender<std::result::Result<u64, String>>,
}

impl Recording {
    async fn run(self) {
        loop {
            if let Err(lost) = self.follow().await {
                self.recorded.send_modify(|state| *state = Err(lost));
                return;
            }
            self.client.prefer_another();
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Records one stream until it breaks. An error means that changes cannot be had any more.
    async fn follow(&self) -> std::result::Result<(), String> {
        let Ok(mut stream) = self.client.watch().await else { return Ok(()) };
        let after = self.recorded.borrow().clone()?;
        let create = WatchCreateRequest {
            key: Bytes::from_static(&[0]),
            range_end: Bytes::from_static(&[0]),
            start_revision: i64::try_from(after + 1).unwrap_or(i64::MAX),
            ..WatchCreateRequest::default()
        };
        let create = WatchRequest { action: Some(WatchAction::Create(create)) };
        // The stream ends when its last sender is dropped.
        let sender = stream.sender();
        if sender.send(&create).await.is_err() {
            return Ok(());
        }
        while let Ok(Ok(Some(response))) = tokio::time::timeout(SILENCE, stream.next()).await {
            if response.compact_revision > 0 {
                return Err(format!(
                    "changes after revision {after} were compacted before they were recorded"
                ));
            }
            if response.canceled {
                return Ok(());
            }
            self.record(response.events);
        }
        Ok(())
    }

    fn record(&self, events: Vec<KeyEvent>) {
        let at = self.clock.now();
        let changes: Vec<EtcdChange> = events.into_iter().filter_map(|event| change(event, at)).collect();
        let Some(last) = changes.last().map(|change| change.revision) else { return };
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).extend(changes);
        self.recorded.send_modify(|state| *state = Ok(last));
    }
}

fn change(event: KeyEvent, at: u64) -> Option<EtcdChange> {
    let is_deletion = event.is_deletion();
    let kv = event.kv?;
    let revision = u64::try_from(kv.mod_revision).ok()?;
    let key = String::from_utf8_lossy(&kv.key).into_owned();
    let object = (!is_deletion).then(|| comparable(decoded(&key, revision, &kv.value)));
    Some(EtcdChange { revision, key, object, lease: kv.lease, at })
}
