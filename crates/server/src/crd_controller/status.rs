//! Writes the status of CRDs: accepted names, and the `NamesAccepted` and `Established` conditions.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{Status, meta};
use authn::InternalIdentity;
use catalog::encode;
use catalog::keys::{self, CRDS};
use crd::names::{self, CLEANUP, NamesInUse};
use storage::StoredEntry;
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, warn};
use value::{Str, Value};

use super::{PATH, RETRY_DELAY, put, read_in_lane, read_tree, settle};
use crate::client::LoopbackClient;
use crate::state::State;

/// Maximum number of concurrent status writes.
const WRITERS: usize = 32;

/// A CRD with its new status, not yet written.
struct NewStatus {
    crd: Value,
    /// The accepted names changed, so that other CRDs may get the former ones.
    names_changed: bool,
}

/// Writes the status of CRDs, and deletes the objects of terminating ones.
pub(super) struct CrdStatusWriter {
    pub(super) state: Arc<State>,
    pub(super) client: LoopbackClient,
    /// The CRDs whose objects are being deleted.
    emptying: Mutex<HashSet<Str>>,
    /// The CRDs whose status is being written, and whether each changed in the meantime.
    writing: Mutex<HashMap<Str, bool>>,
    writers: Arc<Semaphore>,
    again: mpsc::UnboundedSender<Str>,
}

impl CrdStatusWriter {
    pub(super) fn new(state: &Arc<State>, again: mpsc::UnboundedSender<Str>) -> Arc<Self> {
        Arc::new(CrdStatusWriter {
            client: LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer),
            state: Arc::clone(state),
            emptying: Mutex::default(),
            writing: Mutex::default(),
            writers: Arc::new(Semaphore::new(WRITERS)),
            again,
        })
    }

    pub(super) async fn run(self: Arc<Self>, mut changed: mpsc::UnboundedReceiver<Str>) {
        let mut stop = self.state.stopping();
        loop {
            let name = tokio::select! {
                name = changed.recv() => name,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let Some(name) = name else { return };
            if let Some(changed_meanwhile) = self.writing().get_mut(&name) {
                *changed_meanwhile = true;
                continue;
            }
            let key = keys::cluster_scoped(CRDS, &name);
            let decided = match self.state.storage.store.get(&key) {
                None => {
                    self.recheck_group(&name);
                    continue;
                }
                Some(entry) => {
                    let (writer, stored) = (Arc::clone(&self), Arc::clone(&entry));
                    read_in_lane(&self.state, &entry, move || writer.decide(&stored)).await
                }
            };
            match decided {
                Ok(None) => {}
                Ok(Some(change)) => {
                    // Writes run in parallel: CRDs are often created by the hundred, and each write waits for the disk.
                    let Ok(permit) = Arc::clone(&self.writers).acquire_owned().await else { return };
                    self.writing().insert(name.clone(), false);
                    let writer = Arc::clone(&self);
                    tokio::spawn(async move {
                        let outcome = writer.write(&name, change).await;
                        drop(permit);
                        if writer.writing().remove(&name) == Some(true) {
                            let _ = writer.again.send(name.clone());
                        }
                        if let Err(status) = outcome {
                            writer.retry(name, &status);
                        }
                    });
                }
                Err(status) => self.retry(name, &status),
            }
        }
    }

    fn writing(&self) -> MutexGuard<'_, HashMap<Str, bool>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Retries after a delay. After a 404 or 409 the informer sends the CRD again, so no retry is needed.
    fn retry(&self, name: Str, status: &Status) {
        debug!(crd = %name, error = %status, "cannot write the status of a CRD; retrying");
        if !matches!(status.code(), 404 | 409) {
            self.send_later(name);
        }
    }

    fn send_later(&self, name: Str) {
        let again = self.again.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RETRY_DELAY).await;
            let _ = again.send(name);
        });
    }

    pub(super) fn now(&self) -> String {
        api::time::Timestamp::from_seconds(self.state.now()).time()
    }

    /// Computes the new status of a CRD; `None` if it needs no update. The accepted names are in the catalog at once. Calls must be
    /// sequential, because a name is accepted only if no other CRD has it.
    fn decide(self: &Arc<Self>, entry: &Arc<StoredEntry>) -> Result<Option<NewStatus>, Status> {
        let name = Str::from(keys::name(&entry.key));
        let mut crd = encode::tree(entry)?;
        if meta::is_deleting(&crd) && meta::finalizers(&crd).any(|found| found == CLEANUP) {
            let is_first = self.emptying.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
            if is_first {
                let writer = Arc::clone(self);
                tokio::spawn(async move {
                    if let Err(status) = writer.delete_all_objects(&name).await {
                        warn!(crd = %name, error = %status, "cannot delete all objects of a deleted CRD; retrying");
                    }
                    writer.emptying.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                    // Retry what is left, as long as the CRD exists.
                    if writer.state.storage.store.get(&keys::cluster_scoped(CRDS, &name)).is_some() {
                        tokio::time::sleep(RETRY_DELAY).await;
                        let _ = writer.again.send(name);
                    }
                });
            }
            return Ok(None);
        }
        let custom = self.state.apis.catalog.custom();
        if custom.unreadable(group_of(&crd)).is_some() {
            // Retry later: whether names are free is unknown while a CRD of the group cannot be decoded.
            self.send_later(name);
        }
        let lost_kind = custom.lost_kind(meta::name(&crd));
        let Some(status) = names::status(
            &crd,
            lost_kind,
            || self.names_in_use(&crd),
            kinds::table::overlapping,
            &self.now(),
        ) else {
            return Ok(None);
        };
        let names_changed = crd.at(&["status", "acceptedNames"]) != status.get("acceptedNames");
        crd.set_at(&["status"], status);
        self.reserve_names(&crd, entry);
        Ok(Some(NewStatus { crd, names_changed }))
    }

    /// Stores a new status, and rechecks other CRDs of the group if names became free.
    async fn write(&self, name: &str, change: NewStatus) -> Result<(), Status> {
        self.client.update(&format!("{PATH}/{name}/status"), &change.crd).await?;
        if change.names_changed {
            self.recheck_group(name);
        }
        Ok(())
    }

    /// Puts the accepted names of a CRD into the catalog, so that no other CRD gets them while the status is being stored. It is not
    /// served before that (see the invariant of [`super`]).
    fn reserve_names(&self, crd: &Value, entry: &Arc<StoredEntry>) {
        let mut read = read_tree(crd, entry, &self.state.apis.catalog);
        self.state.apis.catalog.change_custom(|custom| {
            read.established &= custom.crd(&read.name).is_some_and(|before| before.established);
            // If the CRD was changed or deleted in the meantime, the informer updates the catalog.
            let stored = self.state.storage.store.get(&entry.key);
            let is_current = stored.is_some_and(|stored| stored.revision == entry.revision);
            if is_current {
                put(&self.state, custom, read, entry);
            }
            is_current
        });
        settle(&self.state, keys::name(&entry.key));
    }

    /// The names that other CRDs of the group have.
    fn names_in_use(&self, crd: &Value) -> NamesInUse {
        let mut taken = NamesInUse::default();
        let group = group_of(crd);
        let custom = self.state.apis.catalog.custom();
        if let Some(unreadable) = custom.unreadable(group) {
            taken.add_unreadable(unreadable);
        }
        for other in custom.of_group(group).filter(|other| other.name != meta::name(crd)) {
            taken.add(&other.names);
        }
        taken
    }

    /// Rechecks the CRDs of the same group whose names were not accepted: a name may have become free.
    fn recheck_group(&self, name: &str) {
        let Some((_, group)) = name.split_once('.') else { return };
        let custom = self.state.apis.catalog.custom();
        for other in custom.of_group(group).filter(|other| other.name != name && !other.names_accepted) {
            let _ = self.again.send(other.name.clone());
        }
    }
}

fn group_of(crd: &Value) -> &str {
    crd.str_at(&["spec", "group"]).unwrap_or_default()
}
