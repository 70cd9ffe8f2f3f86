//! The backend: loads, feeds, commits and reads old revisions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use grpc::{Channel, ChannelConfig, GrpcCode, GrpcStatus};
use storage::backend::{
    Backend, BoxFuture, CommitFailure, Feed, KeyPage, OwnWrite, Range, RangePage, Unavailable, WriteDecision,
};
use storage::{Change, Expect, OpenError, ReadError, Record, Write};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{EtcdClient, is_compacted, is_future, prefix_end};
use crate::compaction;
use crate::freshness::CurrentRevision;
use crate::key_space::{KeyFilter, KeySpace};
use crate::leases::Leases;
use crate::lineage::{Continuity, Expected, Lineage};
use crate::load::{Pages, after, stored_record};
use crate::messages::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, ResponseHeader, TxnRequest,
};
use crate::start::load_at_start;
use crate::watch::{WatchState, WatchTask};

/// How long a refused write waits for the watch to report the change that made it fail.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the current revision is read while memory is loaded again in between.
const MAX_READS: usize = 3;

/// A watch that is broken for longer makes the store unhealthy.
const MAX_BROKEN: Duration = Duration::from_secs(5);

/// Converts between records of the store and values in etcd.
pub trait ValueCodec: Send + Sync + 'static {
    /// The value to store; an error says why the record has none.
    fn encode(&self, key: &str, record: &Record) -> Result<Bytes, String>;

    /// The record of a value that was written at `revision`; `None` if the key belongs to another program. A value that cannot be decoded
    /// becomes a record that says so.
    fn decode(&self, key: &str, revision: u64, value: &Bytes) -> Option<Record>;
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
    /// How long one lease is reused for keys of the same time to live, at most (`--lease-reuse-duration-seconds`, 60 by default).
    pub lease_reuse: Duration,
}

/// A store in etcd, shared with other servers.
pub struct EtcdBackend {
    client: EtcdClient,
    leases: Leases,
    keys: KeySpace,
    codec: Arc<dyn ValueCodec>,
    compaction_interval: Duration,
    lineage: Arc<Lineage>,
    watch_state: watch::Sender<WatchState>,
    /// Counts the requests to load everything again.
    reloads: watch::Sender<u64>,
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
        let client = EtcdClient::new(Channel::new(config.channel), config.call_timeout);
        EtcdBackend {
            leases: Leases::new(client.clone(), config.lease_reuse),
            client,
            keys: KeySpace::new(&config.prefix, &config.store_root),
            codec: config.codec,
            compaction_interval: config.compaction_interval,
            lineage: Arc::new(Lineage::new()),
            watch_state: watch::Sender::new(WatchState::Watching),
            reloads: watch::Sender::new(0),
            running: Mutex::new(None),
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

    async fn decide(&self, write: Write) -> Result<WriteDecision, CommitFailure> {
        let feed = self.running(|running| running.feed.clone())?;
        loop {
            let expected = match write.expect {
                Expect::Absent => 0,
                Expect::Revision(revision) => revision,
                Expect::Any => feed.revisions(&write.key).map_or(0, |current| current.revision),
            };
            let before = feed.entry(&write.key);
            if expected == 0 && write.change == Change::Delete {
                return Ok(WriteDecision::Refused { at: feed.revision() });
            }
            let lease = self.lease(&write).await?;
            let request = self.transaction(&write, expected, lease)?;
            let continued = self.lineage.expected(|| feed.revision());
            let answer = match self.client.txn(&request).await {
                Ok(answer) => answer,
                Err(status) => {
                    if status.code == GrpcCode::NotFound {
                        self.leases.forget();
                    }
                    return Err(failure(status));
                }
            };
            let header = answer.header.unwrap_or_default();
            self.check_continuity(continued, &header).map_err(|Unavailable(why)| {
                // What memory has at this revision may be another change.
                if answer.succeeded { CommitFailure::Unknown(why) } else { CommitFailure::NotStored(why) }
            })?;
            let revision = u64::try_from(header.revision).unwrap_or_default();
            if answer.succeeded {
                let (key, change) = (Arc::clone(&write.key), write.change);
                return feed.committed(OwnWrite { key, change, revision, replaced: expected, before }).await;
            }
            let reached = tokio::time::timeout(REFUSAL_TIMEOUT, feed.reached(revision)).await;
            if reached.is_err() {
                return Err(CommitFailure::NotStored(
                    "etcd refused the write, and its watch does not report why".to_owned(),
                ));
            }
            if write.expect != Expect::Any {
                return Ok(WriteDecision::Refused { at: revision });
            }
        }
    }

    /// The transaction that kube-apiserver sends for this write: a create has no alternative, the others read the key if they fail.
    fn transaction(&self, write: &Write, expected: u64, lease: i64) -> Result<TxnRequest, CommitFailure> {
        let key = self.keys.etcd_key(&write.key);
        let change = match &write.change {
            Change::Put(record) => {
                let value = self.codec.encode(&write.key, record).map_err(CommitFailure::NotStored)?;
                Request::Put(PutRequest { key: key.clone(), value, lease })
            }
            Change::Delete => Request::DeleteRange(DeleteRangeRequest { key: key.clone() }),
        };
        let current = Request::Range(RangeRequest { key: key.clone(), ..RangeRequest::default() });
        let compare = vec![Compare::mod_revision(key, i64::try_from(expected).unwrap_or(i64::MAX))];
        #[cfg(feature = "planted-bugs")]
        let compare = if expected != 0 && crate::planted::is_planted(crate::planted::STALE_COMPARE) {
            Vec::new()
        } else {
            compare
        };
        Ok(TxnRequest {
            compare,
            success: vec![change.into()],
            failure: if expected == 0 { Vec::new() } else { vec![current.into()] },
        })
    }

    /// The lease of a write with a time to live; 0, which is none, for others.
    async fn lease(&self, write: &Write) -> Result<i64, CommitFailure> {
        let Some(ttl) = write.ttl.filter(|_| write.change != Change::Delete) else { return Ok(0) };
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::LOST_LEASE) {
            return Ok(0);
        }
        let granted = self.leases.lease(ttl).await;
        granted.map_err(|status| CommitFailure::NotStored(status.message))
    }

    /// Fails, and lets everything be loaded again, if the answer is not that of the cluster in memory. False if memory was loaded again
    /// since the request was sent: then it may be that of a cluster that was replaced.
    fn check_continuity(&self, expected: Expected, header: &ResponseHeader) -> Result<bool, Unavailable> {
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

/// The failure of a transaction. etcd answers some requests with a code that says it did not execute them; after others, such as a
/// timeout, the write may still happen.
fn failure(status: GrpcStatus) -> CommitFailure {
    let is_refused = matches!(
        status.code,
        GrpcCode::InvalidArgument
            | GrpcCode::NotFound
            | GrpcCode::PermissionDenied
            | GrpcCode::ResourceExhausted
            | GrpcCode::FailedPrecondition
            | GrpcCode::OutOfRange
            | GrpcCode::Unimplemented
            | GrpcCode::Unauthenticated
    );
    if is_refused || !status.may_have_run {
        CommitFailure::NotStored(status.message)
    } else if status.code == GrpcCode::DeadlineExceeded {
        CommitFailure::TimedOut(status.message)
    } else {
        CommitFailure::Unknown(status.message)
    }
}

impl Backend for EtcdBackend {
    fn start(&self, feed: Feed) -> BoxFuture<'_, Result<(), OpenError>> {
        Box::pin(async move {
            let loaded = load_at_start(&self.client, &self.keys, &self.codec).await?;
            self.lineage.load(&loaded.header, || feed.load(loaded.revision, 0, loaded.records));
            let watch = WatchTask {
                client: self.client.clone(),
                keys: self.keys.clone(),
                codec: Arc::clone(&self.codec),
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

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<WriteDecision, CommitFailure>> {
        Box::pin(self.decide(write))
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangePage, ReadError>> {
        Box::pin(self.read_range(range))
    }

    fn key_revisions(&self, range: Range) -> Option<BoxFuture<'_, Result<KeyPage, ReadError>>> {
        Some(Box::pin(self.read_key_revisions(range)))
    }

    fn reload(&self) {
        self.reloads.send_modify(|reloads| *reloads += 1);
    }

    /// The database of one member. Those of the others may differ a little.
    fn database_bytes(&self) -> Option<BoxFuture<'_, Result<u64, Unavailable>>> {
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

    fn latest(&self) -> Option<BoxFuture<'_, Result<u64, Unavailable>>> {
        Some(Box::pin(async move {
            let (current, feed) = self.running(|running| (running.current.clone(), running.feed.clone()))?;
            for _ in 0..MAX_READS {
                let expected = self.lineage.expected(|| feed.revision());
                let header = current.read().await.map_err(|status| Unavailable(status.message))?;
                if self.check_continuity(expected, &header)? {
                    return Ok(u64::try_from(header.revision).unwrap_or_default());
                }
            }
            Err(Unavailable("all objects are being loaded from etcd again".to_owned()))
        }))
    }

    /// Reads a key with a quorum, as kube-apiserver's health checks do. The key need not exist.
    fn probe(&self) -> Option<BoxFuture<'_, Result<(), Unavailable>>> {
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

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        })
    }
}
