//! Reads that see every write that any server has acknowledged.
//!
//! Memory is always current on a store that only this process writes to, and these functions return at once. On a shared store (etcd)
//! memory follows a watch and may be behind. There, as in kube-apiserver, a GET or LIST without `resourceVersion` asks the backend for
//! its newest revision and waits until memory has reached it; a write begins with the entry in memory, but a refusal or a no-op that
//! this entry causes counts only if it is the newest one ([`BaseEntry`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Status;
use catalog::ServedResource;
use catalog::keys;
use storage::{ListAt, ListRequest, ReadError, Store, StoredEntry};
use value::Value;

use crate::state::State;
use crate::write::TimeMark;

/// How long a read waits for memory to reach a revision, as in kube-apiserver.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Waits until memory has every write to one cluster that was acknowledged before this call. If it has not after some seconds, returns
/// the revision to read from the backend instead. With `--etcd-servers-overrides`, [`Store::of`] selects the cluster.
pub(crate) async fn catch_up(store: &Store) -> Result<Option<u64>, Status> {
    if !store.is_shared() {
        return Ok(None);
    }
    #[cfg(feature = "planted-bugs")]
    if etcd::planted::is_planted(etcd::planted::SKIP_FRESHNESS) {
        return Ok(None);
    }
    let latest = store.latest_revision().await.map_err(|error| unreadable(&error))?;
    Ok((!reaches(store, latest).await).then_some(latest))
}

/// Waits until memory has every write that was acknowledged before this call, in all clusters; false if it has not after some seconds.
pub(crate) async fn catch_up_everywhere(store: &Store) -> Result<bool, Status> {
    let mut has_all = true;
    for cluster in store.clusters() {
        has_all &= catch_up(cluster).await?.is_none();
    }
    Ok(has_all)
}

/// Waits until memory has every write that was acknowledged before this call, in all clusters: for a decision that is made on memory and
/// must not be made on an older state.
pub(crate) async fn require_current(store: &Store) -> Result<(), Status> {
    if catch_up_everywhere(store).await? {
        return Ok(());
    }
    Err(Status::unavailable("this server has not received all changes from the store yet; try again"))
}

/// Catches up for decisions that are too frequent to ask the backend every time.
#[derive(Debug, Default)]
pub(crate) struct RecentCatchUp(Mutex<Option<TimeMark>>);

impl RecentCatchUp {
    /// How old the answer of the backend may be.
    const MAX_AGE: Duration = Duration::from_millis(100);

    /// Waits until memory has every write that was acknowledged before the returned time. If it has not after some seconds, also returns
    /// the revision to read from the backend instead. `store` must be the same cluster in all calls.
    pub(crate) async fn catch_up(&self, store: &Store) -> Result<(TimeMark, Option<u64>), Status> {
        if let Some(known) = self.last().as_ref().copied().filter(|known| known.elapsed() < Self::MAX_AGE) {
            return Ok((known, None));
        }
        let known = TimeMark::now();
        let behind = catch_up(store).await?;
        if behind.is_none() {
            *self.last() = Some(known);
        }
        Ok((known, behind))
    }

    fn last(&self) -> MutexGuard<'_, Option<TimeMark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits some seconds for memory to reach `revision`; false if it has not.
pub(crate) async fn reaches(store: &Store, revision: u64) -> bool {
    store.revision() >= revision || tokio::time::timeout(PATIENCE, store.reached(revision)).await.is_ok()
}

/// The revision at which a list sees every acknowledged write.
pub(crate) async fn list_at(store: &Store) -> Result<ListAt, Status> {
    Ok(catch_up(store).await?.map_or(ListAt::Latest, ListAt::Exact))
}

/// All entries in `scope`, with every acknowledged write.
pub(crate) async fn entries(store: &Store, scope: &str) -> Result<Vec<Arc<StoredEntry>>, Status> {
    let at = list_at(store.of(scope)).await?;
    entries_at(store, scope, at).await
}

/// All entries in `scope` at a revision.
pub(crate) async fn entries_at(
    store: &Store,
    scope: &str,
    at: ListAt,
) -> Result<Vec<Arc<StoredEntry>>, Status> {
    let page = store.list(ListRequest { at, ..ListRequest::all(scope) }).await;
    Ok(page.map_err(|error| unreadable(&error))?.entries.iter().cloned().collect())
}

/// The newest entry of a key.
pub(crate) async fn entry(store: &Store, key: &str) -> Result<Option<Arc<StoredEntry>>, Status> {
    if !store.is_shared() {
        return Ok(store.get(key));
    }
    Ok(entries(store, key).await?.pop())
}

/// The message of the backend without a reason, as kube-apiserver passes on errors of etcd.
fn unreadable(error: &ReadError) -> Status {
    Status::plain(match error {
        ReadError::Unavailable(why) => why.clone(),
        other => other.to_string(),
    })
}

/// The entry that a change of a key is based on.
pub(crate) struct BaseEntry<'s> {
    store: &'s Store,
    key: &'s str,
    entry: Option<Arc<StoredEntry>>,
    /// The entry was the newest one when the request had begun.
    is_current: bool,
}

impl<'s> BaseEntry<'s> {
    /// Begins with the entry in memory.
    pub(crate) fn in_memory(store: &'s Store, key: &'s str) -> BaseEntry<'s> {
        BaseEntry { store, key, entry: store.get(key), is_current: !store.is_shared() }
    }

    /// Begins with the newest entry: for a change whose base the store does not verify, such as that of a dry run.
    pub(crate) async fn newest(store: &'s Store, key: &'s str) -> Result<BaseEntry<'s>, Status> {
        Ok(BaseEntry { entry: entry(store, key).await?, store, key, is_current: true })
    }

    /// Begins a write: with the entry in memory, because the store verifies its revision, or for a dry run with the newest.
    pub(crate) async fn for_write(
        store: &'s Store,
        key: &'s str,
        dry_run: bool,
    ) -> Result<BaseEntry<'s>, Status> {
        if dry_run { BaseEntry::newest(store, key).await } else { Ok(BaseEntry::in_memory(store, key)) }
    }

    pub(crate) fn entry(&self) -> Option<Arc<StoredEntry>> {
        self.entry.clone()
    }

    /// Replaces the entry by the newest one unless it is known to be the newest. True if that is another entry: then the change must be
    /// decided again.
    pub(crate) async fn has_changed(&mut self) -> Result<bool, Status> {
        if self.is_current {
            return Ok(false);
        }
        let newest = entry(self.store, self.key).await?;
        let revision = |entry: &Option<Arc<StoredEntry>>| entry.as_ref().map(|entry| entry.revision);
        let has_changed = revision(&newest) != revision(&self.entry);
        (self.entry, self.is_current) = (newest, true);
        Ok(has_changed)
    }

    /// Takes the entry from memory after the store refused a write: a commit that is refused returns when memory has the reason.
    pub(crate) fn reread(&mut self) {
        (self.entry, self.is_current) = (self.store.get(self.key), true);
    }
}

impl State {
    /// Catches up if memory lacks an object that admission needs to admit the creation of `object`: its namespace and, for a pod, its
    /// service account, runtime class and priority class.
    pub(crate) async fn catch_up_for_admission(
        &self,
        kind: &ServedResource,
        namespace: &str,
        object: &Value,
    ) -> Result<(), Status> {
        let store = &self.storage.store;
        if !store.is_shared() {
            return Ok(());
        }
        for key in keys_for_admission(kind, namespace, object) {
            if store.get(&key).is_none() {
                catch_up(store.of(&key)).await?;
            }
        }
        Ok(())
    }

    /// The stored bytes of the objects that admission may need to admit `object`. It decodes them, and may copy their content into the
    /// object.
    pub(crate) fn size_for_admission(&self, kind: &ServedResource, namespace: &str, object: &Value) -> usize {
        let store = &self.storage.store;
        let keys = keys_for_admission(kind, namespace, object);
        let sizes = keys.iter().filter_map(|key| store.get(key)).map(|entry| entry.body.len());
        sizes.fold(0, usize::saturating_add)
    }
}

/// The keys of the objects that admission needs to admit the creation of `object`: see [`State::catch_up_for_admission`].
fn keys_for_admission(kind: &ServedResource, namespace: &str, object: &Value) -> Vec<String> {
    let mut needed = Vec::new();
    if !namespace.is_empty() {
        needed.extend(keys::built_in("", "namespaces").map(|prefix| format!("{prefix}{namespace}")));
    }
    if kind.is_built_in("", "Pod") {
        let account = object.str_at(&["spec", "serviceAccountName"]).filter(|name| !name.is_empty());
        needed.push(keys::namespaced(keys::SERVICE_ACCOUNTS, namespace, account.unwrap_or("default")));
        for (field, group, resource) in [
            ("runtimeClassName", "node.k8s.io", "runtimeclasses"),
            ("priorityClassName", "scheduling.k8s.io", "priorityclasses"),
        ] {
            let name = object.str_at(&["spec", field]).filter(|name| !name.is_empty());
            let prefix = keys::built_in(group, resource);
            needed.extend(prefix.zip(name).map(|(prefix, name)| format!("{prefix}{name}")));
        }
    }
    needed
}

#[cfg(test)]
mod tests;
