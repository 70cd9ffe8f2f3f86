//! The write path: mutate, prepare, validate, admit, store.
//!
//! `Draft` → [`Mutated`] → [`Admitted`] → [`WriteOutcome`]: only its own stage can construct [`Mutated`] and [`Admitted`], and each
//! stage needs the result of the one before, so a write that skips a stage does not compile. Deletions, bindings and evictions have
//! proof types of their own ([`admitted`]). `mutate` and `admit` are files of their own; this one stores, and is the only file that
//! commits to the store (a tidy check enforces that), both for client requests and for writes of this process.

use std::sync::Arc;
use std::time::Duration;

use admission::{WriteFence, WriteGuard};
use api::field::quote;
use api::{Status, meta};
use catalog::encode;
use catalog::keys::{ServerKey, UnreachableKey};
use catalog::{ServedResource, StoredObject, Subresource, Working};
use storage::{
    Change, CommitError, Committed, Expect, Fence, Record, Store, StoredEntry, Write, WritePriority,
};
use value::{Value, json};

mod admit;
pub mod admitted;
mod admitted_namespace;
mod commit_status;
mod metadata;
mod mutate;
mod posted;
mod time_mark;

pub use admitted::{Admitted, AdmittedDelete, AdmittedPost, MarkProof, Marked, Mutated};
pub use commit_status::OPTIMISTIC_LOCK;
use commit_status::commit_status;
pub(crate) use metadata::remove_server_metadata;
pub use metadata::set_namespace;
pub use posted::Posted;
pub(crate) use time_mark::TimeMark;

use self::admitted_namespace::AdmittedNamespace;
use crate::call::Call;
use crate::consistent_reads;
use crate::device_access;
use crate::offline::OfflineStore;
use crate::ownership::{self, FieldTracking};
use crate::state::State;

/// Context of one write, shared by all stages.
#[derive(Clone, Copy)]
pub struct WriteContext<'a> {
    pub state: &'a State,
    pub kind: &'a ServedResource,
    pub subresource: Subresource,
    /// The write options in the shape that admission sees.
    pub options: &'a Value,
    pub dry_run: bool,
    /// Decides whether the write is recorded in `metadata.managedFields`.
    pub tracking: FieldTracking<'a>,
}

/// Result of a successful write.
#[derive(Debug)]
pub enum WriteOutcome {
    /// The stored entry; the old one if the update changed nothing.
    Entry(Arc<StoredEntry>),
    /// The object that would be stored, for a dry run.
    DryRun(Working),
}

#[derive(Debug)]
pub enum StoreError {
    /// Another write changed or created the object first.
    Conflict,
    Refused(Status),
    /// The store failed. The write may have happened, so it must not be attempted again, even if the object has changed.
    Failed(Status),
}

impl WriteContext<'_> {
    /// Stores an admitted object. `old` is the entry that it replaces: an update that changes nothing is not written.
    pub async fn store(
        &self,
        call: &Call,
        admitted: Admitted,
        old: Option<&Arc<StoredEntry>>,
    ) -> Result<WriteOutcome, StoreError> {
        let Admitted { key, mut object, stored, expect, address_claims, namespace } = admitted;
        if self.is_service() && object.str_at(&["spec", "type"]) == Some("ExternalName") {
            // The field is validated but not stored for this type.
            object.remove_at(&["spec", "internalTrafficPolicy"]);
        }
        self.kind.shapes().fill_working(&mut object);
        let name = meta::name(&object).to_owned();
        let mut stored = match stored {
            Some(stored) => stored,
            None => self.to_storage(&object).await?,
        };
        let mut record = self.encode_for_store(&stored);
        let fits = record.as_ref().is_ok_and(|record| record.size() <= self.state.storage.store.max_record());
        if !fits && matches!(self.tracking, FieldTracking::Updates(_)) {
            // Drop managed fields rather than refuse an object that fits without them.
            ownership::remove_managed_fields(&mut object);
            stored.remove_managed_fields();
            record = self.encode_for_store(&stored);
        }
        let record = record.map_err(refuse_depth)?;
        if let Some(old) = old
            && old.record() == record
        {
            return Ok(if self.dry_run {
                WriteOutcome::DryRun(self.reread(stored).await?)
            } else {
                WriteOutcome::Entry(Arc::clone(old))
            });
        }
        if self.dry_run {
            let store = &self.state.storage.store;
            if expect == Expect::Absent
                && consistent_reads::entry(store, &key).await.map_err(StoreError::Refused)?.is_some()
            {
                return Err(StoreError::Conflict);
            }
            return Ok(WriteOutcome::DryRun(self.reread(stored).await?));
        }
        let priority = self.priority(call, &object, expect);
        let write = Write { key, expect, change: Change::Put(record), priority, ttl: self.ttl() };
        if let Some(address_claims) = &address_claims {
            address_claims.check_age().map_err(StoreError::Refused)?;
        }
        let after_commit = address_claims.map(|address_claims| {
            move |end| async move {
                match end {
                    CommitEnd::Stored => address_claims.commit().await,
                    CommitEnd::Refused => address_claims.revert().await,
                    CommitEnd::Unknown => address_claims.abandon(),
                }
            }
        });
        let entry = self.commit(call, GuardedWrite { write, namespace }, &name, after_commit).await?;
        // Count created objects, not updates of their status.
        if expect == Expect::Absent && device_access::asks_admin(self.kind, &object) {
            self.state.metrics.admin_access(&self.kind.stored.kind, true);
        }
        Ok(WriteOutcome::Entry(entry))
    }

    async fn to_storage(self, object: &Working) -> Result<StoredObject, StoreError> {
        self.state.converter(self.kind).to_storage(object).await.map_err(StoreError::Refused)
    }

    /// Encodes an object for the store. Fails if it nests deeper than [`json::MAX_DEPTH`], the limit of every reader: managed fields nest
    /// deeper than the object they describe, and admission, defaults and conversion may add levels to the request body.
    fn encode_for_store(&self, stored: &StoredObject) -> Result<Record, TooDeep> {
        if stored.depth() > json::MAX_DEPTH {
            return Err(TooDeep);
        }
        Ok(self.kind.record(stored))
    }

    /// The object that a dry run returns.
    async fn reread(&self, stored: StoredObject) -> Result<Working, StoreError> {
        self.state.converter(self.kind).reread(stored).await.map_err(StoreError::Refused)
    }

    fn is_service(&self) -> bool {
        self.kind.is_built_in("", "Service")
    }

    /// Deletes the object at `old`; a dry run deletes nothing. The handler waits until the deletion is in force, at the revision of the
    /// returned entry ([`State::in_force`]), because one request may delete many objects.
    pub async fn delete(
        &self,
        call: &Call,
        admitted: AdmittedDelete,
        old: &Arc<StoredEntry>,
        name: &str,
    ) -> Result<Arc<StoredEntry>, StoreError> {
        if !admitted.is_for(old) {
            return Err(StoreError::Conflict);
        }
        if self.dry_run {
            return Ok(Arc::clone(old));
        }
        let expect = Expect::Revision(old.revision);
        let service = if self.is_service() { encode::tree(old).ok() } else { None };
        let addresses = &self.state.addresses;
        let after_commit = service.map(|service| {
            let addresses = addresses.clone();
            move |end| async move {
                if end == CommitEnd::Stored {
                    addresses.release(&service).await;
                }
            }
        });
        // A deletion does not need free space.
        let priority = WritePriority::Ordinary;
        let write = Write { key: Arc::clone(&old.key), expect, change: Change::Delete, priority, ttl: None };
        self.write(call, write.into(), name, after_commit).await
    }

    /// Replaces the object at `old` by one that differs only in fields that the server sets. They are not validated; the request that
    /// caused them was admitted.
    pub async fn store_mark(
        &self,
        call: &Call,
        proof: MarkProof<'_>,
        old: &Arc<StoredEntry>,
        object: &Working,
        name: &str,
    ) -> Result<Marked, StoreError> {
        match proof {
            MarkProof::Delete(admitted) if !admitted.is_for(old) => return Err(StoreError::Conflict),
            MarkProof::Post(admitted) if !admitted.permits(self.kind, &old.key, self.dry_run) => {
                let why = format!("the request was not admitted for {} {}", self.kind.resource, quote(name));
                return Err(StoreError::Refused(Status::internal(why)));
            }
            MarkProof::Delete(_) | MarkProof::Post(_) => {}
        }
        let over = old.revision;
        if self.dry_run {
            return Ok(Marked { outcome: WriteOutcome::DryRun(object.clone()), over });
        }
        let mut stored = self.to_storage(object).await?;
        let record = match self.encode_for_store(&stored) {
            Ok(record) => record,
            Err(TooDeep) => {
                stored.remove_managed_fields();
                self.encode_for_store(&stored).map_err(refuse_depth)?
            }
        };
        let expect = Expect::Revision(old.revision);
        let priority = self.priority(call, object, expect);
        let write = Write {
            key: Arc::clone(&old.key),
            expect,
            change: Change::Put(record),
            priority,
            ttl: self.ttl(),
        };
        let outcome = WriteOutcome::Entry(self.commit(call, write.into(), name, NOTHING_TO_RELEASE).await?);
        Ok(Marked { outcome, over })
    }

    /// The time to live of the object: every write of an Event begins it anew.
    fn ttl(&self) -> Option<Duration> {
        let is_event = (self.kind.stored.group.as_str(), self.kind.stored.kind.as_str()) == ("", "Event");
        self.state.storage.event_ttl.filter(|_| is_event)
    }

    /// Priority of a write when the store is full. Writes of this process continue, except ResourceClaims from templates: a user's pod can cause
    /// thousands of them, each as large as the template. Client writes continue that free space or keep the cluster running: writes of
    /// deletions and evictions, updates of objects that are being deleted, and renewals of existing leases.
    fn priority(&self, call: &Call, object: &Value, expect: Expect) -> WritePriority {
        let is_lease = self.kind.is_built_in("coordination.k8s.io", "Lease");
        let ends = meta::is_deleting(object)
            || matches!(call.info.verb.as_str(), "delete" | "deletecollection")
            || call.info.subresource == "eviction";
        let is_from_template =
            expect == Expect::Absent && self.kind.is_built_in("resource.k8s.io", "ResourceClaim");
        if *call.caller().via() == authn::AuthenticationMethod::Internal && !is_from_template {
            WritePriority::System
        } else if expect != Expect::Absent && (ends || is_lease) {
            WritePriority::Essential
        } else {
            WritePriority::Ordinary
        }
    }

    /// Commits and waits until the write is in force.
    async fn commit<F: Future<Output = ()> + Send + 'static>(
        &self,
        call: &Call,
        write: GuardedWrite,
        name: &str,
        after_commit: Option<impl FnOnce(CommitEnd) -> F + Send + 'static>,
    ) -> Result<Arc<StoredEntry>, StoreError> {
        let entry = self.write(call, write, name, after_commit).await?;
        self.state.in_force(self.kind, entry.revision).await;
        Ok(entry)
    }

    /// Commits and then runs `after_commit`, in a task of its own: if the client disconnects after the commit, `after_commit` must still
    /// run. The response waits for it.
    async fn write<F: Future<Output = ()> + Send + 'static>(
        &self,
        call: &Call,
        write: GuardedWrite,
        name: &str,
        after_commit: Option<impl FnOnce(CommitEnd) -> F + Send + 'static>,
    ) -> Result<Arc<StoredEntry>, StoreError> {
        call.effort.begin_write(call.deadline).map_err(StoreError::Refused)?;
        let (store, guards) = (self.state.storage.store.clone(), call.write_guards());
        let committed = tokio::spawn(async move {
            let outcome = guarded_commit(&store, write, &guards).await;
            if let Some(after_commit) = after_commit {
                after_commit(CommitEnd::of(&outcome)).await;
            }
            outcome
        });
        let committed = committed.await;
        if let Ok(outcome) = &committed
            && CommitEnd::of(outcome) == CommitEnd::Refused
        {
            call.effort.write_refused();
        }
        match committed {
            Ok(Ok(committed)) => Ok(committed.entry),
            Ok(Err(GuardedCommitError::Refused(status))) => Err(StoreError::Refused(status)),
            Ok(Err(GuardedCommitError::Store(CommitError::Conflict { .. }))) => Err(StoreError::Conflict),
            Ok(Err(GuardedCommitError::Store(e))) => {
                Err(StoreError::Failed(commit_status(&e, &self.kind.resource, name)))
            }
            Err(_) => Err(StoreError::Failed(Status::internal(
                "the write was not confirmed because the store is shutting down",
            ))),
        }
    }
}

/// A write, and what admission requires when it is stored.
struct GuardedWrite {
    write: Write,
    /// The namespace of a new object.
    namespace: Option<AdmittedNamespace>,
}

impl From<Write> for GuardedWrite {
    fn from(write: Write) -> Self {
        GuardedWrite { write, namespace: None }
    }
}

enum GuardedCommitError {
    /// A guard of admission refused the write; it is not stored.
    Refused(Status),
    Store(CommitError),
}

/// Commits if the guards of admission still permit it. The guards are released by the caller, when the commit has ended.
async fn guarded_commit(
    store: &Store,
    write: GuardedWrite,
    guards: &[Arc<dyn WriteGuard>],
) -> Result<Committed, GuardedCommitError> {
    for guard in guards {
        guard.check().await.map_err(GuardedCommitError::Refused)?;
    }
    // Only the plugin ResourceQuota has fences, one for each write.
    let of_quota = guards.iter().find_map(|guard| guard.fence());
    let of_quota = of_quota.map(|WriteFence { key, revision }| Fence { key: key.as_str().into(), revision });
    let commit = fenced_commit(store, write, of_quota);
    match guards.iter().filter_map(|guard| guard.time_limit()).min() {
        Some(limit) => tokio::time::timeout(limit, commit).await.unwrap_or_else(|_| {
            let late = CommitError::TimedOut("the write took too long".to_owned());
            Err(GuardedCommitError::Store(late))
        }),
        None => commit.await,
    }
}

/// Commits if the fence of the quotas is unchanged and the namespace of a new object still accepts it. Attempts it again after harmless
/// changes of the namespace, such as of its labels.
async fn fenced_commit(
    store: &Store,
    GuardedWrite { write, namespace }: GuardedWrite,
    of_quota: Option<Fence>,
) -> Result<Committed, GuardedCommitError> {
    let mut refused = None;
    let mut why = "the namespace changes all the time";
    for _ in 0..CONFLICT_ATTEMPTS {
        let of_namespace = match &namespace {
            Some(namespace) => {
                let fence = namespace.fence(store, &write.key, refused.is_some()).await;
                Some(fence.map_err(GuardedCommitError::Refused)?)
            }
            None => None,
        };
        if refused.is_some() && refused == of_namespace {
            why = if of_quota.is_some() {
                "the quota was checked too long ago"
            } else {
                "the namespace has changed"
            };
            break;
        }
        let fences: Vec<Fence> = of_quota.iter().chain(&of_namespace).cloned().collect();
        match store.commit_fenced(write.clone(), fences).await {
            Err(CommitError::Fenced) => {}
            outcome => return outcome.map_err(GuardedCommitError::Store),
        }
        if of_namespace.is_none() {
            why = "the quota was checked too long ago";
            break;
        }
        refused = of_namespace;
    }
    Err(GuardedCommitError::Refused(Status::timeout(format!("{why}; try again"), 0)))
}

/// Deletes a key from a store that no server uses and returns the former entry, if any. There is no admission: this is how an unreadable
/// object is removed.
pub(crate) async fn remove_offline(
    store: &OfflineStore,
    key: &str,
) -> Result<Option<Arc<StoredEntry>>, CommitError> {
    remove(store.store(), key).await
}

/// Writes data of the servers, which is no object of the API, so that no admission applies. With a `ttl`, it is deleted after that time
/// unless it is written again.
pub async fn put_server_data(
    store: &Store,
    key: &ServerKey,
    expect: Expect,
    record: Record,
    ttl: Option<Duration>,
) -> Result<Arc<StoredEntry>, CommitError> {
    let (change, priority) = (Change::Put(record), WritePriority::System);
    let write = Write { key: key.as_str().into(), expect, change, priority, ttl };
    store.commit(write).await.map(|committed| committed.entry)
}

/// Deletes data of the servers. False if it does not exist.
pub async fn remove_server_data(store: &Store, key: &ServerKey) -> Result<bool, CommitError> {
    remove(store, key.as_str()).await.map(|removed| removed.is_some())
}

/// Deletes an object of a CRD that no request can reach. There is no admission, because no request could ask for it. False if it does not
/// exist.
pub(crate) async fn remove_unreachable(store: &Store, key: &UnreachableKey) -> Result<bool, CommitError> {
    remove(store, key.as_str()).await.map(|removed| removed.is_some())
}

async fn remove(store: &Store, key: &str) -> Result<Option<Arc<StoredEntry>>, CommitError> {
    let Some(entry) = store.get(key) else { return Ok(None) };
    let (expect, change, priority) = (Expect::Any, Change::Delete, WritePriority::System);
    let write = Write { key: Arc::clone(&entry.key), expect, change, priority, ttl: None };
    store.commit(write).await.map(|_| Some(entry))
}

/// The outcome of an attempted write, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitEnd {
    Stored,
    Refused,
    /// The write may have happened.
    Unknown,
}

impl CommitEnd {
    fn of(outcome: &Result<Committed, GuardedCommitError>) -> Self {
        let error = match outcome {
            Ok(_) => return CommitEnd::Stored,
            Err(GuardedCommitError::Refused(_)) => return CommitEnd::Refused,
            Err(GuardedCommitError::Store(error)) => error,
        };
        match error {
            CommitError::Unknown(_) | CommitError::TimedOut(_) => CommitEnd::Unknown,
            CommitError::Conflict { .. }
            | CommitError::Fenced
            | CommitError::Unavailable(_)
            | CommitError::Invalid(_)
            | CommitError::TooLarge { .. }
            | CommitError::OverQuota { .. }
            | CommitError::Closed => CommitEnd::Refused,
        }
    }
}

/// For writes that hold no addresses.
const NOTHING_TO_RELEASE: Option<fn(CommitEnd) -> std::future::Ready<()>> = None;

/// An object nests deeper than [`json::MAX_DEPTH`].
struct TooDeep;

fn refuse_depth(_: TooDeep) -> StoreError {
    StoreError::Refused(Status::bad_request("the object cannot be stored: exceeded max depth"))
}

/// Maximum number of attempts to write an object while other writes change it.
pub(crate) const CONFLICT_ATTEMPTS: usize = 16;
