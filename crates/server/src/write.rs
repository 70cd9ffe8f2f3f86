//! The write path: mutate, prepare, validate, admit, store.
//!
//! `Draft` → [`Mutated`] → [`Admitted`] → [`WriteOutcome`]: only its own stage can construct [`Mutated`] and [`Admitted`], and each
//! stage needs the result of the one before, so a write that skips a stage does not compile. Deletions, bindings and evictions have
//! proof types of their own ([`admitted`]). `mutate` and `admit` are files of their own; this one stores, and is the only file that
//! commits to the store (a tidy check enforces that), both for client requests and for writes of this process.

use std::sync::Arc;
use std::time::Duration;

use admission::WriteGuard;
use api::field::quote;
use api::{GroupResource, Status, meta};
use catalog::encode;
use catalog::{ServedResource, Subresource, Working};
use storage::{Change, CommitError, Committed, Expect, Record, Store, StoredEntry, Write, WritePriority};
use value::{Value, json};

mod admit;
pub mod admitted;
mod metadata;
mod mutate;
mod posted;
mod time_mark;

pub use admitted::{Admitted, AdmittedDelete, AdmittedPost, MarkProof, Marked, Mutated};
pub(crate) use metadata::remove_server_metadata;
pub use metadata::set_namespace;
pub use mutate::BYTES_OF_ENTRY;
pub use posted::Posted;
pub(crate) use time_mark::TimeMark;

use crate::call::Call;
use crate::consistent_reads;
use crate::device_access;
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
        let Admitted { key, mut object, expect, held } = admitted;
        if self.is_service() && object.str_at(&["spec", "type"]) == Some("ExternalName") {
            // The field is validated but not stored for this type.
            object.remove_at(&["spec", "internalTrafficPolicy"]);
        }
        self.kind.fill_working(&mut object);
        let name = meta::name(&object).to_owned();
        let mut record = self.record(&object).await?;
        let fits = record.as_ref().is_ok_and(|record| record.size() <= self.state.storage.store.max_record());
        if !fits && matches!(self.tracking, FieldTracking::Updates(_)) {
            // Drop managed fields rather than refuse an object that fits without them.
            ownership::remove_managed_fields(&mut object);
            record = self.record(&object).await?;
        }
        let record = record.map_err(refuse_depth)?;
        if let Some(old) = old
            && old.record() == record
        {
            return Ok(if self.dry_run {
                WriteOutcome::DryRun(self.reread(object).await?)
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
            return Ok(WriteOutcome::DryRun(self.reread(object).await?));
        }
        let priority = self.priority(call, &object, expect);
        let write = Write { key, expect, change: Change::Put(record), priority, ttl: self.ttl() };
        if let Some(held) = &held {
            held.check_age().map_err(StoreError::Refused)?;
        }
        let then = held.map(|held| {
            move |end| async move {
                match end {
                    CommitEnd::Stored => held.commit().await,
                    CommitEnd::Refused => held.revert().await,
                    CommitEnd::Unknown => held.abandon(),
                }
            }
        });
        let entry = self.commit(call, write, &name, then).await?;
        // Count created objects, not updates of their status.
        if expect == Expect::Absent && device_access::asks_admin(self.kind, &object) {
            self.state.metrics.admin_access(&self.kind.stored.kind, true);
        }
        Ok(WriteOutcome::Entry(entry))
    }

    /// Encodes an object for the store. Fails if it nests deeper than [`json::MAX_DEPTH`], the limit of every reader: managed fields nest
    /// deeper than the object they describe, and admission, defaults and conversion may add levels to the request body.
    async fn record(&self, object: &Working) -> Result<Result<Record, TooDeep>, StoreError> {
        let converter = self.state.converter(self.kind);
        let stored = converter.to_storage(object).await.map_err(StoreError::Refused)?;
        if stored.depth() > json::MAX_DEPTH {
            return Ok(Err(TooDeep));
        }
        Ok(Ok(self.kind.record(&stored)))
    }

    /// The object that a dry run returns.
    async fn reread(&self, object: Working) -> Result<Working, StoreError> {
        self.state.converter(self.kind).reread(object).await.map_err(StoreError::Refused)
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
        let then = service.map(|service| {
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
        self.write(call, write, name, then).await
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
        let record = match self.record(object).await? {
            Ok(record) => record,
            Err(TooDeep) => {
                let mut object = object.clone();
                ownership::remove_managed_fields(&mut object);
                self.record(&object).await?.map_err(refuse_depth)?
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
        let outcome = WriteOutcome::Entry(self.commit(call, write, name, NOTHING_TO_RELEASE).await?);
        Ok(Marked { outcome, over })
    }

    /// The time to live of the object: every write of an Event begins it anew.
    fn ttl(&self) -> Option<Duration> {
        let is_event = (self.kind.stored.group.as_str(), self.kind.stored.kind.as_str()) == ("", "Event");
        self.state.storage.event_ttl.filter(|_| is_event)
    }

    /// Priority of a write when the store is full. Writes of this process continue. So do client writes that free space or keep the cluster
    /// running: writes of deletions and evictions, updates of objects that are being deleted, and renewals of existing leases.
    fn priority(&self, call: &Call, object: &Value, expect: Expect) -> WritePriority {
        let is_lease = self.kind.is_built_in("coordination.k8s.io", "Lease");
        let ends = meta::is_deleting(object)
            || matches!(call.info.verb.as_str(), "delete" | "deletecollection")
            || call.info.subresource == "eviction";
        if *call.caller().via() == authn::AuthenticationMethod::Internal {
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
        write: Write,
        name: &str,
        then: Option<impl FnOnce(CommitEnd) -> F + Send + 'static>,
    ) -> Result<Arc<StoredEntry>, StoreError> {
        let entry = self.write(call, write, name, then).await?;
        self.state.in_force(self.kind, entry.revision).await;
        Ok(entry)
    }

    /// Commits and then runs `then`, in a task of its own: if the client disconnects after the commit, `then` must still run. The response
    /// waits for it.
    async fn write<F: Future<Output = ()> + Send + 'static>(
        &self,
        call: &Call,
        write: Write,
        name: &str,
        then: Option<impl FnOnce(CommitEnd) -> F + Send + 'static>,
    ) -> Result<Arc<StoredEntry>, StoreError> {
        call.effort.begin_write(call.deadline).map_err(StoreError::Refused)?;
        let (store, guards) = (self.state.storage.store.clone(), call.write_guards());
        let committed = tokio::spawn(async move {
            let outcome = guarded_commit(&store, write, &guards).await;
            if let Some(then) = then {
                then(CommitEnd::of(&outcome)).await;
            }
            outcome
        });
        match committed.await {
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

enum GuardedCommitError {
    /// A guard of admission refused the write; nothing was sent to the store.
    Refused(Status),
    Store(CommitError),
}

/// Commits if the guards of admission still permit it. The guards are released by the caller, when the commit has ended.
async fn guarded_commit(
    store: &Store,
    write: Write,
    guards: &[Arc<dyn WriteGuard>],
) -> Result<Committed, GuardedCommitError> {
    for guard in guards {
        guard.check().await.map_err(GuardedCommitError::Refused)?;
    }
    let outcome = match guards.iter().filter_map(|guard| guard.time_limit()).min() {
        Some(limit) => tokio::time::timeout(limit, store.commit(write))
            .await
            .unwrap_or_else(|_| Err(CommitError::TimedOut("the write took too long".to_owned()))),
        None => store.commit(write).await,
    };
    outcome.map_err(GuardedCommitError::Store)
}

/// Deletes a key from a store that no server uses and returns the former entry, if any. There is no admission: this is how an unreadable
/// object is removed. See [`crate::offline`].
pub(crate) async fn remove_offline(
    store: &Store,
    key: &str,
) -> Result<Option<Arc<StoredEntry>>, CommitError> {
    let Some(entry) = store.get(key) else { return Ok(None) };
    let (expect, change, priority) = (Expect::Any, Change::Delete, WritePriority::System);
    let write = Write { key: Arc::clone(&entry.key), expect, change, priority, ttl: None };
    store.commit(write).await.map(|_| Some(entry))
}

/// Replaces a key that belongs to the servers and not to the API, such as the allocated node ports. There is no admission.
pub(crate) async fn commit_server_owned(
    store: &Store,
    key: &str,
    expect: Expect,
    record: Record,
) -> Result<Arc<StoredEntry>, CommitError> {
    let (change, priority) = (Change::Put(record), WritePriority::System);
    let write = Write { key: key.into(), expect, change, priority, ttl: None };
    store.commit(write).await.map(|committed| committed.entry)
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

/// Writes a key that belongs to the server and is not an object of the API, so that no admission applies. It replaces `stored` and is
/// deleted after `ttl` unless it is written again.
pub(crate) async fn put_internal(
    store: &Store,
    key: &str,
    stored: Option<&StoredEntry>,
    record: Record,
    ttl: Duration,
) -> Result<(), CommitError> {
    let expect = stored.map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
    let (change, priority) = (Change::Put(record), WritePriority::System);
    store.commit(Write { key: key.into(), expect, change, priority, ttl: Some(ttl) }).await.map(drop)
}

/// Deletes a key that [`put_internal`] wrote. False if it does not exist.
pub(crate) async fn remove_internal(store: &Store, key: &str) -> Result<bool, CommitError> {
    remove_offline(store, key).await.map(|removed| removed.is_some())
}

/// An object nests deeper than [`json::MAX_DEPTH`].
struct TooDeep;

fn refuse_depth(_: TooDeep) -> StoreError {
    StoreError::Refused(Status::bad_request("the object cannot be stored: exceeded max depth"))
}

/// kube-apiserver's message for a conflict of `resourceVersion`.
pub const OPTIMISTIC_LOCK: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

fn commit_status(error: &CommitError, resource: &GroupResource, name: &str) -> Status {
    match error {
        CommitError::Conflict { .. } => Status::conflict(resource, name, OPTIMISTIC_LOCK),
        CommitError::TooLarge { limit, .. } => Status::too_large(format!("limit is {limit}")),
        CommitError::Invalid(why) => Status::bad_request(why.clone()),
        // Begins with etcd's message, which clients and operators recognize, and adds the remedy.
        CommitError::OverQuota { live, quota } => Status::plain(format!(
            "etcdserver: mvcc: database space exceeded: the store holds {live} bytes of objects and its quota is {quota}; delete objects or raise --quota-backend-bytes"
        )),
        CommitError::Unavailable(_) | CommitError::Closed => {
            tracing::error!(error = %error, %resource, name, "cannot store a write; the object is unchanged. Check the storage backend");
            match error {
                // As kube-apiserver: the client gets etcd's message, such as that etcd is full. Other reasons are for the log only.
                CommitError::Unavailable(why) if why.starts_with("etcdserver: ") => {
                    Status::plain(why.clone())
                }
                _ => Status::internal("the store cannot write; nothing was changed"),
            }
        }
        // As kube-apiserver: the client gets etcd's message and cannot know whether the write happened.
        CommitError::Unknown(why) => {
            tracing::error!(error = %error, %resource, name, "the store did not confirm a write; the object may have changed. Check the storage backend");
            Status::plain(why.clone())
        }
        CommitError::TimedOut(_) => {
            tracing::error!(error = %error, %resource, name, "the store did not confirm a write in time; the object may have changed. Check the storage backend");
            Status::timeout(
                "request did not complete within requested timeout - context deadline exceeded",
                0,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use api::GroupResource;
    use storage::CommitError;

    use super::commit_status;

    #[test]
    fn clients_get_the_reason_of_etcd_and_not_that_of_a_disk() {
        let resource = GroupResource::new("", "configmaps");
        let status = |why: &str| commit_status(&CommitError::Unavailable(why.to_owned()), &resource, "a");
        let full = status("etcdserver: mvcc: database space exceeded");
        assert_eq!((full.code(), full.message()), (500, "etcdserver: mvcc: database space exceeded"));
        let disk = status("I/O error: No space left on device (os error 28)");
        let expected = "Internal error occurred: the store cannot write; nothing was changed";
        assert_eq!((disk.code(), disk.message()), (500, expected));
    }
}
