//! The backend: loads, feeds, commits and reads old revisions.

mod commit;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use grpc::{Channel, ChannelConfig, GrpcStatus};
use storage::backend::{
    Backend, BackendFuture, CommitFailure, Feed, KeyPage, Range, RangePage, Unavailable, WriteDecision,
};
use storage::{Fence, OpenError, ReadError, Record, Write};
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{EtcdClient, is_compacted, is_future, prefix_end};
use crate::compaction;
use crate::freshness::CurrentRevision;
use crate::key_space::{KeyFilter, KeySpace};
use crate::leases::Leases;
use crate::lineage::{Continuity, ExpectedLineage, Lineage};
use crate::load::{Pages, after, stored_record};
use crate::messages::{RangeRequest, ResponseHeader};
use crate::observer::{EtcdObserver, ObservedCalls};
use crate::start::load_at_start;
use crate::watch::{WatchState, WatchTask};

/// How often the current revision is read while memory is loaded again in between.
const MAX_READS: usize = 3;

/// A watch that is broken for longer makes the store unhealthy.
const MAX_BROKEN: Duration = Duration::from_secs(5);

/// Converts between records of the store and values in etcd.
pub trait ValueCodec: Send + Sync + 'static {
    /// The value to store; an error says why the record has none.
    fn encode(&self, key: &str, record: &Record) -> Result<Bytes, String>;

    /// The value with which a key is created, if that is not the one of an update.
    fn encode_new(&self, key: &str, record: &Record) -> Result<Bytes, String> {
        self.encode(key, record)
    }

    /// The record of a value that was written at `revision`; `None` if the key belongs to another program. A value that cannot be decoded
    /// becomes a record that says so.
    fn decode(&self, key: &str, revision: u64, value: &Bytes) -> Option<Record>;
}

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
    /// How long one lease is reused for keys of the same time to live, at most (`--lease-reuse-duration-seconds`, 60 by default).
    pub lease_reuse: Duration,
    /// Receives reports of what the backend does; `()` for none.
    pub observer: Arc<dyn EtcdObserver>,
}

/// A store in etcd, shared with other servers.
pub struct EtcdBackend {
    client: EtcdClient,
    leases: Leases,
    keys: KeySpace,
    codec: Arc<dyn ValueCodec>,
    observer: Arc<dyn EtcdObserver>,
    compaction_interval: Duration,
    lineage: Arc<Lineage>,
    watch_state: watch::Sender<WatchState>,
    /// Counts the requests to load everything again.
    reloads: watch::Sender<u64>,
    running: Mutex<Option<RunningTasks>>,
    /// True if the service compares several keys in one transaction; not set until that was asked.
    has_fences: OnceCell<bool>,
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
        let keys = KeySpace::new(&config.prefix, &config.store_root);
        let observed = ObservedCalls::new(keys.clone(), Arc::clone(&config.observer));
        let client = EtcdClient::new(Channel::new(config.channel), config.call_timeout).observed(observed);
        EtcdBackend {
            leases: Leases::new(client.clone(), config.lease_reuse, Arc::clone(&config.observer)),
            client,
            keys,
            codec: config.codec,
            observer: config.observer,
            compaction_interval: config.compaction_interval,
            lineage: Arc::new(Lineage::new()),
            watch_state: watch::Sender::new(WatchState::Watching),
            reloads: watch::Sender::new(0),
            running: Mutex::new(None),
            has_fences: OnceCell::new(),
        }
    }

    /// Limits the backend to these keys of the store; it ignores others that are in etcd.
    #[must_use]
    pub fn limited_to(self, owned: KeyFilter) -> EtcdBackend {
        EtcdBackend { keys: self.keys.limited_to(owned), ..self }
    }

    fn running<T>(&self, read: impl FnOnce(&RunningTasks) -> T) -> Result<T, Unavailable> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(read).ok_or_else(|| Unavailable("the store is closed".to_owned()))
    }

    /// The current revision of etcd. Fails and starts to load everything again if etcd no longer has the data that is in memory.
    async fn current(&self) -> Result<u64, Unavailable> {
        let (current, feed) = self.running(|running| (running.current.clone(), running.feed.clone()))?;
        for _ in 0..MAX_READS {
            let expected = self.lineage.expected(|| feed.revision());
            let header = current.read().await.map_err(|status| Unavailable(status.message))?;
            if self.check_continuity(expected, &header)? {
                return Ok(u64::try_from(header.revision).unwrap_or_default());
            }
        }
        Err(Unavailable("all objects are being loaded from etcd again".to_owned()))
    }

    /// Checks whether an answer belongs to the data in memory. Fails and starts to load everything again if the data in etcd was replaced.
    /// False if everything was loaded again after the request was sent: the answer may belong to the replaced data.
    fn check_continuity(
        &self,
        expected: ExpectedLineage,
        header: &ResponseHeader,
    ) -> Result<bool, Unavailable> {
        match self.lineage.check(expected, header) {
            Continuity::Continued => Ok(true),
            Continuity::Reloaded => Ok(false),
            Continuity::Replaced(why) => {
                tracing::error!(reason = %why, "the data in etcd was replaced; loading it again");
                self.leases.forget();
                self.reload();
                Err(Unavailable(format!("the data in etcd was replaced: {why}; loading it again")))
            }
        }
    }

    /// Reads a range in pages, so that no answer of etcd is larger than a page.
    async fn read_range(&self, range: Range) -> Result<RangePage, ReadError> {
        let mut pages = Pages::of(self.client.clone(), self.request(&range));
        let mut records = Vec::new();
        while let Some(page) = pages.next().await.map_err(|status| self.read_error(&range, status))? {
            records.extend(page.iter().filter_map(|kv| stored_record(&self.keys, self.codec.as_ref(), kv)));
        }
        Ok(RangePage { records, remaining: pages.remaining() })
    }

    async fn read_key_revisions(&self, range: Range) -> Result<KeyPage, ReadError> {
        let request = RangeRequest { keys_only: true, ..self.request(&range) };
        let answer = self.client.range(&request).await;
        let answer = answer.map_err(|status| self.read_error(&range, status))?;
        let keys: Vec<(Arc<str>, u64)> = answer
            .kvs
            .iter()
            .filter_map(|kv| Some((self.keys.store_key(&kv.key)?, u64::try_from(kv.mod_revision).ok()?)))
            .collect();
        let more = keys.last().filter(|_| answer.more).map(|(key, _)| Arc::clone(key));
        if answer.more && more.is_none() {
            return Err(ReadError::Unavailable(format!("no key below {} belongs to the store", range.scope)));
        }
        Ok(KeyPage { keys, more })
    }

    fn request(&self, range: &Range) -> RangeRequest {
        let scope = self.keys.etcd_key(&range.scope);
        let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
        let is_directory = range.scope.ends_with('/');
        RangeRequest {
            range_end: if is_directory { prefix_end(&scope) } else { Bytes::new() },
            key: range.after.as_ref().map_or(scope, |key| after(&self.keys.etcd_key(key))),
            // kine refuses a larger limit for one key.
            limit: if is_directory { limit } else { 1 },
            revision: i64::try_from(range.revision).unwrap_or(i64::MAX),
            ..RangeRequest::default()
        }
    }

    fn read_error(&self, range: &Range, status: GrpcStatus) -> ReadError {
        if is_compacted(&status) {
            return ReadError::Compacted { oldest: range.revision + 1 };
        }
        match self.running(|running| running.feed.revision()) {
            Ok(current) if is_future(&status) => ReadError::Future { current },
            _ => ReadError::Unavailable(status.message),
        }
    }
}

impl Backend for EtcdBackend {
    fn start(&self, feed: Feed) -> BackendFuture<'_, Result<(), OpenError>> {
        Box::pin(async move {
            let loaded = load_at_start(&self.client, &self.keys, &self.codec).await?;
            self.lineage.load(&loaded.header, || feed.load(loaded.revision, 0, loaded.records));
            let watch = WatchTask {
                client: self.client.clone(),
                keys: self.keys.clone(),
                codec: Arc::clone(&self.codec),
                observer: Arc::clone(&self.observer),
                feed: feed.clone(),
                wanted: self.lineage.wanted(),
                lineage: Arc::clone(&self.lineage),
                reloads: self.reloads.subscribe(),
                state: self.watch_state.clone(),
                must_reach: 0,
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

    fn commit(&self, write: Write) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        Box::pin(self.decide(write, Vec::new()))
    }

    fn commit_fenced(
        &self,
        write: Write,
        fences: Vec<Fence>,
    ) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        Box::pin(self.decide(write, fences))
    }

    fn range(&self, range: Range) -> BackendFuture<'_, Result<RangePage, ReadError>> {
        Box::pin(self.read_range(range))
    }

    fn key_revisions(&self, range: Range) -> Option<BackendFuture<'_, Result<KeyPage, ReadError>>> {
        Some(Box::pin(self.read_key_revisions(range)))
    }

    fn reload(&self) {
        self.reloads.send_modify(|reloads| *reloads += 1);
    }

    /// The database of one member. Those of the others may differ a little.
    fn database_bytes(&self) -> Option<BackendFuture<'_, Result<u64, Unavailable>>> {
        Some(Box::pin(async move {
            let status = self.client.preferred_status().await;
            let status = status.map_err(|status| Unavailable(status.message))?;
            Ok(u64::try_from(status.db_size).unwrap_or_default())
        }))
    }

    /// Nothing to do: compaction follows the protocol of all servers.
    fn compact(&self, _: u64) {}

    fn is_shared(&self) -> bool {
        true
    }

    fn latest(&self) -> Option<BackendFuture<'_, Result<u64, Unavailable>>> {
        Some(Box::pin(self.current()))
    }

    /// Reads a key with a quorum, as kube-apiserver's health checks do. The key need not exist.
    fn probe(&self) -> Option<BackendFuture<'_, Result<(), Unavailable>>> {
        Some(Box::pin(async move {
            let feed = self.running(|running| running.feed.clone())?;
            let expected = self.lineage.expected(|| feed.revision());
            let request = RangeRequest { key: self.keys.health(), ..RangeRequest::default() };
            let answer = self.client.range(&request).await.map_err(|status| Unavailable(status.message))?;
            // So a watch that stalls is noticed also if there are no readers.
            self.check_continuity(expected, &answer.header.unwrap_or_default()).map(drop)
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

    fn close(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        })
    }
}
