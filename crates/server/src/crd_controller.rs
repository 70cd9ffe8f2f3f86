//! Serves stored CRDs, maintains their status, and deletes their objects when a CRD is deleted.
//!
//! One task follows the CRDs in the store and updates the custom part of the catalog. A second task writes their status through the
//! request pipeline: accepted names, the `Established` condition and, when a CRD is deleted, the progress of deleting its objects.
//! INVARIANT: a resource is served only after the `Established` condition of its CRD is stored, and a client that has seen the condition
//! can use the resource at once: requests that the catalog knows no answer to wait until it reflects the store.

mod cleanup;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use catalog::encode;
use catalog::keys::{self, CRDS};
use catalog::unreadable::{Concern, Unreadable};
use catalog::{Catalog, CrdRevisions, CustomKinds, SchemaEpoch};
use crd::{CrdSource, CustomResourceDefinition};
use storage::{ChangeKind as Change, ListWatch, ListWatchUpdate, Store, StoredEntry};
use tokio::sync::{mpsc, watch};
use tracing::debug;
use value::{Str, Value};

use crate::consistent_reads;
use crate::state::State;

use status::CrdStatusWriter;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Polling interval while writers still use a former schema.
const SETTLE: Duration = Duration::from_millis(20);
/// How long such a request waits for the catalog.
const CATCH_UP: Duration = Duration::from_secs(3);
/// Delay before a failed status write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The store revision up to which the catalog reflects CRDs.
#[derive(Clone, Debug)]
pub(crate) struct CrdProgress {
    revision: watch::Receiver<u64>,
    /// The highest revision that a caller of [`CrdProgress::caught_up`] waits for.
    wanted: watch::Sender<u64>,
}

impl CrdProgress {
    /// Receives the revision after every CRD change that the catalog reflects.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.clone()
    }

    /// Waits until the catalog reflects every CRD that any server has acknowledged: for a request for an unknown resource, which costs the
    /// backend as much as the read of a known one. Fails after some seconds, because it is not known then that there is no such resource.
    pub(crate) async fn catch_up(&self, store: &Store) -> Result<(), Status> {
        let store = store.of(CRDS);
        if consistent_reads::catch_up(store).await?.is_none() && self.catch_up_with_memory(store).await {
            return Ok(());
        }
        Err(Status::unavailable("this server has not received all CustomResourceDefinitions yet; try again"))
    }

    /// Waits until the catalog reflects every CRD that memory has; false if it does not after some seconds.
    pub(crate) async fn catch_up_with_memory(&self, store: &Store) -> bool {
        let store = store.of(CRDS);
        tokio::time::timeout(CATCH_UP, self.caught_up(store, store.revision())).await.is_ok()
    }

    /// Waits until the catalog reflects the CRDs at `revision`, which may be the revision of any write.
    pub(crate) async fn caught_up(&self, store: &Store, revision: u64) {
        if *self.revision.borrow() >= revision {
            return;
        }
        store.reached(revision).await;
        self.wanted.send_replace(revision);
        self.reached(revision).await;
    }

    /// Waits until the catalog reflects the CRD written at `revision`.
    pub(crate) async fn reached(&self, revision: u64) {
        let _ = self.revision.clone().wait_for(|reached| *reached >= revision).await;
    }
}

/// The stored bytes of a CRD, shared with the store. They are decoded again when a schema is compiled.
#[derive(Debug)]
struct StoredCrdSource(Arc<StoredEntry>);

impl CrdSource for StoredCrdSource {
    fn load(&self) -> Option<Value> {
        encode::tree(&self.0).ok()
    }
}

/// Follows CRDs in the store and updates the catalog.
pub(crate) struct CrdInformer {
    /// The keys of all stored CRDs, to detect deletions after a relist.
    seen: BTreeSet<Arc<str>>,
    events: ListWatch,
    sender: watch::Sender<u64>,
    /// The revision that a caller of [`CrdProgress::caught_up`] waits for.
    asked: watch::Receiver<u64>,
}

/// Loads the stored CRDs into the catalog.
pub(crate) fn load(store: &Store, unreadable: &Unreadable, catalog: &Catalog) -> (CrdProgress, CrdInformer) {
    let (page, events) = ListWatch::start(store, CRDS);
    let mut seen = BTreeSet::new();
    let mut crds = Vec::with_capacity(page.entries.len());
    let mut unknown = Vec::new();
    for entry in &page.entries {
        match read(entry, catalog) {
            Ok(crd) => crds.push((crd, revisions_of(entry))),
            Err(why) => {
                unreadable.note(entry, &why, Some(Concern::CustomResourceDefinition));
                unknown.push(keys::name(&entry.key));
            }
        }
        seen.insert(Arc::clone(&entry.key));
    }
    catalog.change_custom(|custom| {
        for (crd, revisions) in crds {
            let epoch =
                if store.is_shared() { SchemaEpoch::never() } else { SchemaEpoch::after(page.revision) };
            custom.set(crd, revisions, epoch);
        }
        for name in unknown {
            custom.set_unreadable(name);
        }
        true
    });
    let (sender, revision) = watch::channel(page.revision);
    let (wanted, asked) = watch::channel(0);
    (CrdProgress { revision, wanted }, CrdInformer { seen, events, sender, asked })
}

fn read(entry: &Arc<StoredEntry>, catalog: &Catalog) -> Result<CustomResourceDefinition, Status> {
    Ok(read_tree(&encode::tree(entry)?, entry, catalog))
}

/// Runs work on a stored CRD that may change the catalog: in the heavy lane if the CRD is large, or if the work would block this thread until
/// such a change is done. Fails if the work panics there.
async fn read_in_lane<T: Send + 'static>(
    state: &State,
    entry: &StoredEntry,
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let size = if state.apis.catalog.is_changing() { usize::MAX } else { entry.body.len() };
    let done = state.serving.heavy.run(size, work).await;
    done.unwrap_or_else(|| Err(Status::internal("reading the CustomResourceDefinition panicked")))
}

/// Reads `crd`, of which `entry` is the stored form. Its versions whose group version this server serves itself are not served: as in
/// kube-apiserver, whose requests for such a group version never reach a custom resource. Otherwise the author of a CRD could give the
/// kinds of that group version, such as those of policies, another resource in discovery.
fn read_tree(crd: &Value, entry: &Arc<StoredEntry>, catalog: &Catalog) -> CustomResourceDefinition {
    let source: Arc<dyn CrdSource> = Arc::new(StoredCrdSource(Arc::clone(entry)));
    let mut read = CustomResourceDefinition::read(crd, &source, kinds::table::overlapping);
    let group = read.group.clone();
    if read.withdraw(|version| catalog.served().is_served(&group, version)) {
        debug!(
            crd = %read.name,
            "versions of a CRD are not served, because their group version is served by built-in resources; use another group or version"
        );
    }
    read
}

/// Puts a CRD, read from `entry`, into the catalog. Compiled schemas are reused if the spec did not change.
fn put(state: &State, custom: &mut CustomKinds, crd: CustomResourceDefinition, entry: &StoredEntry) {
    let before = custom.crd(&crd.name);
    let epoch = match (custom.epoch(&crd.name), before) {
        (Some(epoch), Some(before)) if crd.has_spec_of(before) => {
            crd.reuse(before);
            // With an unchanged schema, objects that are known to conform to it still do.
            epoch
        }
        _ if state.storage.store.is_shared() => SchemaEpoch::never(),
        (Some(former), _) => SchemaEpoch::instead_of(&former),
        (None, _) => SchemaEpoch::after(state.storage.store.revision()),
    };
    custom.set(crd, revisions_of(entry), epoch);
}

fn revisions_of(entry: &StoredEntry) -> CrdRevisions {
    CrdRevisions { created: entry.created, changed: entry.revision }
}

/// Ends the transition to a new schema: once no writer uses the former one, later writes are known to conform to the new one.
fn settle(state: &State, name: &str) {
    let Some(epoch) = state.apis.catalog.custom().epoch(name) else { return };
    let store = state.storage.store.clone();
    if epoch.settle(|| store.revision()) {
        return;
    }
    tokio::spawn(async move {
        while !epoch.settle(|| store.revision()) {
            tokio::time::sleep(SETTLE).await;
        }
    });
}

impl CrdInformer {
    /// Updates the catalog from a stored CRD, unless the catalog has it. A CRD that cannot be decoded is no longer served, requests for its
    /// resource are denied, and no other CRD gets its kind.
    async fn put(&mut self, state: &Arc<State>, entry: &Arc<StoredEntry>) {
        self.seen.insert(Arc::clone(&entry.key));
        let (changed, stored) = (Arc::clone(state), Arc::clone(entry));
        let work = move || {
            let crd = read(&stored, &changed.apis.catalog)?;
            changed.apis.catalog.change_custom(|custom| {
                // The known revision is higher if etcd was restored from a backup.
                let is_news = custom.revision(&crd.name).is_none_or(|known| known != stored.revision);
                if is_news {
                    put(&changed, custom, crd, &stored);
                }
                is_news
            });
            Ok(())
        };
        if let Err(why) = read_in_lane(state, entry, work).await {
            state.storage.unreadable.note(entry, &why, Some(Concern::CustomResourceDefinition));
            Self::stop_serving(state, &entry.key, CustomKinds::set_unreadable);
            return;
        }
        settle(state, keys::name(&entry.key));
        state.apis.openapi.forget_custom();
    }

    fn remove(&mut self, state: &State, key: &str) {
        self.seen.remove(key);
        Self::stop_serving(state, key, CustomKinds::remove);
    }

    fn stop_serving(state: &State, key: &str, change: impl FnOnce(&mut CustomKinds, &str)) {
        let name = keys::name(key);
        state.apis.catalog.change_custom(|custom| {
            change(custom, name);
            true
        });
        state.apis.conversions.forget(name);
        state.apis.openapi.forget_custom();
    }

    /// Follows the store until it closes. The names of changed CRDs are sent to `changed`.
    async fn run(mut self, state: Arc<State>, changed: mpsc::UnboundedSender<Str>) {
        let name_of = |key: &str| Str::from(keys::name(key));
        // Established CRDs that are not being deleted need no status update. At most starts, these are nearly all.
        let custom = state.apis.catalog.custom();
        for name in self.seen.iter().map(|key| name_of(key)) {
            let settled = custom
                .crd(&name)
                .is_some_and(|found| found.established && found.names_accepted && !found.terminating);
            if !settled {
                let _ = changed.send(name);
            }
        }
        loop {
            tokio::select! {
                biased;
                update = self.events.next() => match update {
                    Some(update) => {
                        if let ListWatchUpdate::Relisted(page) = &update {
                            // May be lower than before, if etcd was restored from a backup.
                            self.sender.send_modify(|reached| *reached = page.revision.min(*reached));
                        }
                        self.apply(&state, update, |key| drop(changed.send(name_of(key)))).await;
                    }
                    None => return,
                },
                Ok(()) = self.asked.changed() => {}
            }
            let progress = self.events.progress();
            self.sender
                .send_if_modified(|reached| std::mem::replace(reached, progress.max(*reached)) < progress);
        }
    }

    /// Updates the catalog. `changed` is called for the key of every CRD that may have changed.
    async fn apply(&mut self, state: &Arc<State>, update: ListWatchUpdate, changed: impl Fn(&str)) {
        match update {
            ListWatchUpdate::Event(event) => {
                let key = &event.entry.key;
                if event.kind == Change::Deleted {
                    self.remove(state, key);
                } else {
                    self.put(state, &event.entry).await;
                }
                changed(key);
            }
            ListWatchUpdate::Relisted(page) => {
                let there: BTreeSet<&Arc<str>> = page.entries.iter().map(|entry| &entry.key).collect();
                let gone: Vec<Arc<str>> =
                    self.seen.iter().filter(|key| !there.contains(key)).cloned().collect();
                for key in &gone {
                    self.remove(state, key);
                }
                for entry in &page.entries {
                    self.put(state, entry).await;
                    changed(&entry.key);
                }
            }
        }
    }
}

/// Starts the informer task and the status task.
pub(crate) fn start(state: &Arc<State>, informer: CrdInformer) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let following = tokio::spawn(informer.run(Arc::clone(state), sender.clone()));
    let storage = Arc::clone(&state.storage.unreadable);
    tokio::spawn(async move {
        if following.await.is_err_and(|ended| ended.is_panic()) {
            storage.note_unfollowed(CRDS, Concern::CustomResourceDefinition);
        }
    });
    tokio::spawn(CrdStatusWriter::new(state, sender).run(receiver));
}
