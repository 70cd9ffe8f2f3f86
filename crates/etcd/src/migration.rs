//! Reads and fills the keys of a store in etcd while no server uses them.
//!
//! A store that a migration fills has a marker, at a key outside of every prefix: kube-apiserver never sees it, and [`EtcdBackend`] does
//! not start before it is removed.
//!
//! [`EtcdBackend`]: crate::EtcdBackend

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use grpc::{Channel, ChannelConfig, GrpcCode, GrpcStatus};
use storage::{MigrationMarker, OpenError};
use tokio::task::JoinSet;

use crate::client::{EtcdClient, is_compacted};
use crate::key_space::KeySpace;
use crate::load::Pages;
use crate::messages::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, TxnRequest};
use crate::start::wait_for_members;

/// Attempts of a write whose outcome is unknown or that was not executed.
const ATTEMPTS: u32 = 6;
/// Pause before a failed write is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Writes at the same time that only raise the revision.
const ADVANCING: usize = 64;
/// Writes after which the history of the scratch key is discarded, so that the database does not grow.
const ADVANCE_STEP: u64 = 50_000;
/// A key outside of every prefix, written to raise the revision.
const SCRATCH_KEY: &[u8] = b"portcullis-migration-scratch";

/// Errors of reading or filling a store in etcd.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("etcd: {0}")]
    Etcd(GrpcStatus),
    #[error("etcd has compacted revision {0}, at which the migration reads")]
    Compacted(u64),
    #[error(
        "etcd has the mark of a migration of another version of Portcullis; complete it with that version, or delete the key `{0}`"
    )]
    OtherVersion(String),
    #[error("another migration to this prefix of etcd has begun")]
    OtherMigration,
}

impl From<GrpcStatus> for MigrationError {
    fn from(status: GrpcStatus) -> MigrationError {
        MigrationError::Etcd(status)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdValue {
    /// The key in the store, without the prefix that it has in etcd.
    pub key: Arc<str>,
    pub created: u64,
    pub revision: u64,
    /// 0 for a key that does not expire.
    pub lease: i64,
    pub value: Bytes,
}

/// The result of creating a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Stored,
    /// The key exists with another value, which stays.
    Occupied,
}

#[derive(Clone, Debug)]
pub struct EtcdKeys {
    client: EtcdClient,
    keys: KeySpace,
}

impl EtcdKeys {
    /// `prefix` and `store_root` as in [`EtcdConfig`](crate::EtcdConfig). Waits until a member answers, and fails if one is too old.
    pub async fn open(
        channel: ChannelConfig,
        call_timeout: Duration,
        prefix: &str,
        store_root: &str,
    ) -> Result<EtcdKeys, MigrationError> {
        let client = EtcdClient::new(Channel::new(channel), call_timeout);
        wait_for_members(&client).await?;
        Ok(EtcdKeys { client, keys: KeySpace::new(prefix, store_root) })
    }

    /// The directory in etcd that has all keys, such as `/registry/`.
    pub fn directory(&self) -> String {
        self.keys.directory()
    }

    pub fn marker_key(&self) -> String {
        String::from_utf8_lossy(&self.keys.migration_marker()).into_owned()
    }

    /// The current revision, confirmed by a quorum.
    pub async fn revision(&self) -> Result<u64, MigrationError> {
        let request = RangeRequest { key: self.keys.health(), ..RangeRequest::default() };
        let answer = self.client.range(&request).await?;
        Ok(u64::try_from(answer.header.unwrap_or_default().revision).unwrap_or_default())
    }

    /// Reads all keys at a revision, in key order.
    pub fn read(&self, revision: u64) -> EtcdReader {
        self.reader(Pages::new(self.client.clone(), &self.keys, signed(revision)), revision)
    }

    /// Like [`EtcdKeys::read`], with empty values.
    pub fn read_keys(&self, revision: u64) -> EtcdReader {
        self.reader(Pages::new(self.client.clone(), &self.keys, signed(revision)).keys_only(), revision)
    }

    fn reader(&self, pages: Pages, revision: u64) -> EtcdReader {
        EtcdReader { pages, keys: self.keys.clone(), revision, page: Vec::new().into_iter() }
    }

    /// The seconds until a lease ends; `None` if it has ended.
    pub async fn lease_time_to_live(&self, id: i64) -> Result<Option<u64>, MigrationError> {
        Ok(self.client.lease_time_to_live(id).await?)
    }

    pub async fn grant_lease(&self, seconds: u64) -> Result<i64, MigrationError> {
        let mut attempt = 1;
        loop {
            match self.client.grant_lease(signed(seconds)).await {
                Ok(id) => return Ok(id),
                Err(status) if attempt == ATTEMPTS => return Err(status.into()),
                // A lease that was granted unnoticed ends by itself.
                Err(_) => pause(&mut attempt).await,
            }
        }
    }

    /// The marker of an incomplete migration to this prefix.
    pub async fn marker(&self) -> Result<Option<MigrationMarker>, MigrationError> {
        let key = self.keys.migration_marker();
        let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let Some(found) = self.client.range(&request).await?.kvs.into_iter().next() else { return Ok(None) };
        let other_version = || MigrationError::OtherVersion(String::from_utf8_lossy(&key).into_owned());
        MigrationMarker::decode(&found.value).map(Some).ok_or_else(other_version)
    }

    /// Marks the prefix before its first key is written.
    pub async fn mark(&self, marker: &MigrationMarker) -> Result<(), MigrationError> {
        match self.create(&self.keys.migration_marker(), &marker.encode().into(), 0).await? {
            PutOutcome::Stored => Ok(()),
            PutOutcome::Occupied => Err(MigrationError::OtherMigration),
        }
    }

    /// Creates a key of the store. If it exists with the same value, it counts as stored.
    pub async fn put(&self, key: &str, value: &Bytes, lease: i64) -> Result<PutOutcome, MigrationError> {
        self.create(&self.keys.etcd_key(key), value, lease).await
    }

    /// In the transaction with which kube-apiserver creates a key. After a failure it is tried again: if the failed attempt has stored
    /// the key, then its value is equal.
    async fn create(&self, key: &Bytes, value: &Bytes, lease: i64) -> Result<PutOutcome, MigrationError> {
        let put = Request::Put(PutRequest { key: key.clone(), value: value.clone(), lease });
        let transaction = TxnRequest {
            compare: vec![Compare::mod_revision(key.clone(), 0)],
            success: vec![put.into()],
            failure: Vec::new(),
        };
        if self.repeated(&transaction).await? {
            return Ok(PutOutcome::Stored);
        }
        let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let found = self.client.range(&request).await?.kvs.into_iter().next();
        let is_equal = found.is_some_and(|found| found.value == *value);
        Ok(if is_equal { PutOutcome::Stored } else { PutOutcome::Occupied })
    }

    /// Raises the revision of etcd to at least `revision` by writing a key that no server reads. The caller bounds the distance.
    pub async fn advance(&self, revision: u64) -> Result<u64, MigrationError> {
        let mut current = self.revision().await?;
        while current < revision {
            let writes = (revision - current).min(ADVANCE_STEP);
            let mut tasks = JoinSet::new();
            for _ in 0..writes {
                if tasks.len() >= ADVANCING {
                    joined(tasks.join_next().await)?;
                }
                let keys = self.clone();
                tasks.spawn(async move { keys.write_scratch().await });
            }
            while let Some(task) = tasks.join_next().await {
                joined(Some(task))?;
            }
            current = self.revision().await?;
            self.compact(current).await?;
        }
        self.delete(Bytes::from_static(SCRATCH_KEY)).await?;
        self.revision().await
    }

    async fn write_scratch(&self) -> Result<(), MigrationError> {
        let key = Bytes::from_static(SCRATCH_KEY);
        let put = Request::Put(PutRequest { key, value: Bytes::new(), lease: 0 });
        // Without a condition: it does no harm if it happens twice.
        self.repeated(&TxnRequest { compare: Vec::new(), success: vec![put.into()], failure: Vec::new() })
            .await
            .map(drop)
    }

    /// Deletes a key if it exists, in the transaction with which kube-apiserver deletes one.
    async fn delete(&self, key: Bytes) -> Result<(), MigrationError> {
        let current = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        while let Some(found) = self.client.range(&current).await?.kvs.into_iter().next() {
            let transaction = TxnRequest {
                compare: vec![Compare::mod_revision(key.clone(), found.mod_revision)],
                success: vec![Request::DeleteRange(DeleteRangeRequest { key: key.clone() }).into()],
                failure: vec![Request::Range(current.clone()).into()],
            };
            if self.repeated(&transaction).await? {
                break;
            }
        }
        Ok(())
    }

    /// Sends a transaction until it is answered; true if its condition held.
    async fn repeated(&self, transaction: &TxnRequest) -> Result<bool, MigrationError> {
        let mut attempt = 1;
        loop {
            match self.client.txn(transaction).await {
                Ok(answer) => return Ok(answer.succeeded),
                Err(status) if attempt == ATTEMPTS || !is_transient(&status) => return Err(status.into()),
                Err(_) => pause(&mut attempt).await,
            }
        }
    }

    /// Discards the history before `revision`: a client that continues from an older revision must list again.
    pub async fn compact(&self, revision: u64) -> Result<(), MigrationError> {
        match self.client.compact(signed(revision)).await {
            Err(status) if !is_compacted(&status) => Err(status.into()),
            _ => Ok(()),
        }
    }

    /// Removes the marker: servers may use the store.
    pub async fn complete(&self) -> Result<(), MigrationError> {
        self.delete(self.keys.migration_marker()).await
    }
}

/// Reads keys page by page.
pub struct EtcdReader {
    pages: Pages,
    keys: KeySpace,
    revision: u64,
    page: std::vec::IntoIter<crate::messages::KeyValue>,
}

impl EtcdReader {
    /// The next key; `None` after the last. A key that is not text is an error that shows it.
    pub async fn next(&mut self) -> Result<Option<EtcdValue>, MigrationError> {
        loop {
            if let Some(kv) = self.page.next() {
                let key = self.keys.store_key(&kv.key).ok_or_else(|| {
                    let why = format!("the key `{}` is not valid UTF-8", kv.key.escape_ascii());
                    MigrationError::Open(OpenError::Unavailable(why))
                })?;
                let unsigned = |revision| u64::try_from(revision).unwrap_or_default();
                return Ok(Some(EtcdValue {
                    key,
                    created: unsigned(kv.create_revision),
                    revision: unsigned(kv.mod_revision),
                    lease: kv.lease,
                    value: kv.value,
                }));
            }
            match self.pages.next().await {
                Ok(Some(page)) => self.page = page.into_iter(),
                Ok(None) => return Ok(None),
                Err(status) if is_compacted(&status) => return Err(MigrationError::Compacted(self.revision)),
                Err(status) => return Err(status.into()),
            }
        }
    }
}

impl std::fmt::Debug for EtcdReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdReader").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// Fails if a migration has begun to fill the prefix and is not complete.
pub(crate) async fn check_no_marker(client: &EtcdClient, keys: &KeySpace) -> Result<(), OpenError> {
    let request = RangeRequest { key: keys.migration_marker(), ..RangeRequest::default() };
    let unavailable = |status: GrpcStatus| OpenError::Unavailable(status.message);
    let found = client.range(&request).await.map_err(unavailable)?.kvs.into_iter().next();
    match found {
        None => Ok(()),
        Some(found) => {
            let marker = MigrationMarker::decode(&found.value);
            Err(OpenError::IncompleteMigration {
                location: format!("etcd, below `{}`,", keys.directory()),
                resume: marker.map_or_else(|| "portcullis migrate".to_owned(), |marker| marker.resume),
            })
        }
    }
}

async fn pause(attempt: &mut u32) {
    *attempt += 1;
    tokio::time::sleep(RETRY).await;
}

fn joined(
    task: Option<Result<Result<(), MigrationError>, tokio::task::JoinError>>,
) -> Result<(), MigrationError> {
    match task {
        Some(Ok(result)) => result,
        Some(Err(error)) => Err(OpenError::Unavailable(error.to_string()).into()),
        None => Ok(()),
    }
}

/// The call may succeed when it is repeated.
fn is_transient(status: &GrpcStatus) -> bool {
    !status.may_have_run || matches!(status.code, GrpcCode::Unavailable | GrpcCode::DeadlineExceeded)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
