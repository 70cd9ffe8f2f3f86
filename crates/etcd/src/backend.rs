//! The backend: loads, feeds, commits and reads old revisions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use grpc::{Channel, ChannelConfig, GrpcStatus};
use storage::backend::{Backend, BoxFuture, Feed, Range, RangePage, Unavailable, WriteDecision};
use storage::{Change, Expect, OpenError, ReadError, Record, StoreEvent, Write};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{EtcdClient, is_compacted, is_future, prefix_end};
use crate::compaction;
use crate::freshness::CurrentRevision;
use crate::key_space::KeySpace;
use crate::load::{after, load, stored_record};
use crate::messages::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, TxnRequest};
use crate::version::check_members;
use crate::watch::{WatchState, WatchTask};

/// How long a committed write waits for the watch to report it.
const ECHO_TIMEOUT: Duration = Duration::from_secs(10);

/// A watch that is broken for longer makes the store unhealthy.
const MAX_BROKEN: Duration = Duration::from_secs(5);

/// Converts between records of the store and values in etcd.
pub trait ValueCodec: Send + Sync + 'static {
    /// The value to store; an error says why the record has none.
    fn encode(&self, key: &str, record: &Record) -> Result<Bytes, String>;

    /// The record of a value. It must represent any bytes: a value that cannot be decoded becomes a record that says so.
    fn decode(&self, key: &str, value: &Bytes) -> Record;
}

/// Configuration of the backend.
pub struct EtcdConfig {
    pub channel: ChannelConfig,
    /// The first part of all keys in etcd (`--etcd-prefix`).
    pub prefix: String,
    /// The first part of all keys of the store, without a slash at the end.
    pub store_root: String,
    pub codec: Arc<dyn ValueCodec>,
    /// Interval of compactions; zero for none.
    pub compaction_interval: Duration,
    /// Longest time for one call of etcd.
    pub call_timeout: Duration,
}

/// A store in etcd, shared with other servers.
pub struct EtcdBackend {
    client: EtcdClient,
    keys: KeySpace,
    codec: Arc<dyn ValueCodec>,
    compaction_interval: Duration,
    /// The highest revision that a reader waits for.
    wanted: watch::Sender<u64>,
    watch_state: watch::Sender<WatchState>,
    running: Mutex<Option<RunningTasks>>,
}

/// Set by `start`, taken by `close`.
struct RunningTasks {
    feed: Feed,
    current: CurrentRevision,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for RunningTasks {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl EtcdBackend {
    pub fn new(config: EtcdConfig) -> EtcdBackend {
        EtcdBackend {
            client: EtcdClient::new(Channel::new(config.channel), config.call_timeout),
            keys: KeySpace::new(&config.prefix, &config.store_root),
            codec: config.codec,
            compaction_interval: config.compaction_interval,
            wanted: watch::Sender::new(0),
            watch_state: watch::Sender::new(WatchState::Watching),
            running: Mutex::new(None),
        }
    }

    /// Reads a key with a quorum, as kube-apiserver's health checks do. The key need not exist.
    pub async fn probe(&self) -> Result<(), GrpcStatus> {
        self.client
            .range(&RangeRequest { key: self.keys.health(), ..RangeRequest::default() })
            .await
            .map(drop)
    }

    fn running<T>(&self, read: impl FnOnce(&RunningTasks) -> T) -> Result<T, Unavailable> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(read).ok_or_else(|| Unavailable("the store is closed".to_owned()))
    }

    async fn decide(&self, write: Write) -> Result<WriteDecision, Unavailable> {
        let feed = self.running(|running| running.feed.clone())?;
        loop {
            let expected = match write.expect {
                Expect::Absent => 0,
                Expect::Revision(revision) => revision,
                Expect::Any => feed.revisions(&write.key).map_or(0, |current| current.revision),
            };
            if expected == 0 && write.change == Change::Delete {
                return Ok(WriteDecision::Refused { at: feed.revision() });
            }
            let request = self.transaction(&write, expected)?;
            let answer = self.client.txn(&request).await.map_err(|status| Unavailable(status.message))?;
            let revision = u64::try_from(answer.header.unwrap_or_default().revision).unwrap_or_default();
            self.want(revision);
            if answer.succeeded {
                return self.committed(&feed, revision).await;
            }
            let reached = tokio::time::timeout(ECHO_TIMEOUT, feed.reached(revision)).await;
            if reached.is_err() {
                return Err(Unavailable(
                    "etcd refused the write, and its watch does not report why".to_owned(),
                ));
            }
            if write.expect != Expect::Any {
                return Ok(WriteDecision::Refused { at: revision });
            }
        }
    }

    /// The transaction that kube-apiserver sends for this write: a create has no alternative, the others read the key if they fail.
    fn transaction(&self, write: &Write, expected: u64) -> Result<TxnRequest, Unavailable> {
        let key = self.keys.etcd_key(&write.key);
        let change = match &write.change {
            Change::Put(record) => {
                let value = self.codec.encode(&write.key, record).map_err(Unavailable)?;
                Request::Put(PutRequest { key: key.clone(), value, lease: 0 })
            }
            Change::Delete => Request::DeleteRange(DeleteRangeRequest { key: key.clone() }),
        };
        let current = Request::Range(RangeRequest { key: key.clone(), ..RangeRequest::default() });
        Ok(TxnRequest {
            compare: vec![Compare::mod_revision(key, i64::try_from(expected).unwrap_or(i64::MAX))],
            success: vec![change.into()],
            failure: if expected == 0 { Vec::new() } else { vec![current.into()] },
        })
    }

    /// The event of a committed write, once the watch has reported it, so that reads of this server see it.
    async fn committed(&self, feed: &Feed, revision: u64) -> Result<WriteDecision, Unavailable> {
        let event: Option<Arc<StoreEvent>> =
            tokio::time::timeout(ECHO_TIMEOUT, feed.event(revision)).await.ok().flatten();
        event.map(WriteDecision::Committed).ok_or_else(|| {
            Unavailable(format!(
                "the write is stored with revision {revision}, but the watch on etcd does not report it"
            ))
        })
    }

    /// Lets the watch ask for progress until it has reached `revision`.
    fn want(&self, revision: u64) {
        self.wanted.send_if_modified(|wanted| {
            let is_higher = revision > *wanted;
            *wanted = revision.max(*wanted);
            is_higher
        });
    }

    async fn read_range(&self, range: Range) -> Result<RangePage, ReadError> {
        let feed = self
            .running(|running| running.feed.clone())
            .map_err(|Unavailable(why)| ReadError::Unavailable(why))?;
        let scope = self.keys.etcd_key(&range.scope);
        let end = if range.scope.ends_with('/') { prefix_end(&scope) } else { Bytes::new() };
        let request = RangeRequest {
            key: range.after.map_or(scope, |key| after(&self.keys.etcd_key(&key))),
            range_end: end,
            limit: i64::try_from(range.limit).unwrap_or(i64::MAX),
            revision: i64::try_from(range.revision).unwrap_or(i64::MAX),
            ..RangeRequest::default()
        };
        let answer = self.client.range(&request).await.map_err(|status| {
            if is_compacted(&status) {
                ReadError::Compacted { oldest: range.revision + 1 }
            } else if is_future(&status) {
                ReadError::Future { current: feed.revision() }
            } else {
                ReadError::Unavailable(status.message)
            }
        })?;
        let remaining =
            u64::try_from(answer.count).unwrap_or_default().saturating_sub(answer.kvs.len() as u64);
        let records =
            answer.kvs.iter().filter_map(|kv| stored_record(&self.keys, self.codec.as_ref(), kv)).collect();
        Ok(RangePage { records, remaining })
    }
}

impl Backend for EtcdBackend {
    fn start(&self, feed: Feed) -> BoxFuture<'_, Result<(), OpenError>> {
        Box::pin(async move {
            check_members(&self.client).await.map_err(OpenError::Unavailable)?;
            let loaded = load(&self.client, &self.keys, &self.codec)
                .await
                .map_err(|status| OpenError::Unavailable(status.message))?;
            feed.load(loaded.revision, 0, loaded.records);
            let watch = WatchTask {
                client: self.client.clone(),
                keys: self.keys.clone(),
                codec: Arc::clone(&self.codec),
                feed: feed.clone(),
                wanted: self.wanted.subscribe(),
                state: self.watch_state.clone(),
            };
            let mut tasks = vec![tokio::spawn(watch.run())];
            if !self.compaction_interval.is_zero() {
                tasks.push(tokio::spawn(compaction::run(self.client.clone(), self.compaction_interval)));
            }
            let current = CurrentRevision::start(self.client.clone(), self.keys.health());
            let running = RunningTasks { feed, current, tasks };
            *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
            Ok(())
        })
    }

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<WriteDecision, Unavailable>> {
        Box::pin(self.decide(write))
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangePage, ReadError>> {
        Box::pin(self.read_range(range))
    }

    /// Nothing to do: compaction follows the protocol of all servers.
    fn compact(&self, _: u64) {}

    fn latest(&self) -> Option<BoxFuture<'_, Result<u64, Unavailable>>> {
        Some(Box::pin(async move {
            let current = self.running(|running| running.current.clone())?;
            let revision = current.read().await.map_err(|status| Unavailable(status.message))?;
            self.want(revision);
            Ok(revision)
        }))
    }

    fn health(&self) -> Result<(), Unavailable> {
        match &*self.watch_state.borrow() {
            WatchState::Broken { since, reason } if Instant::now().duration_since(*since) > MAX_BROKEN => {
                Err(Unavailable(reason.clone()))
            }
            _ => Ok(()),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        })
    }
}
