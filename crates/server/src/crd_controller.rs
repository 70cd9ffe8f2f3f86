//! Serves stored CRDs, maintains their status, and deletes their objects when a CRD is deleted.
//!
//! One task follows the CRDs in the store and updates the custom part of the catalog. A second task writes their status through the
//! request pipeline: accepted names, the `Established` condition and, when a CRD is deleted, the progress of deleting its objects.
//! INVARIANT: a CRD is in the catalog before its status says `Established`, so that a client that has seen the condition can use
//! the resource at once.

mod cleanup;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use crd::{CrdSource, CustomResourceDefinition};
use storage::{ChangeKind as Change, Store, StoredEntry};
use tokio::sync::{mpsc, watch};
use value::{Str, Value};

use crate::catalog::{Catalog, CustomKinds, SchemaEpoch};
use crate::encode;
use crate::keys::CRDS;
use crate::list_watch::{ListWatch, Update};
use crate::state::State;
use crate::unreadable::{Concern, Unreadable};

use status::CrdStatusWriter;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Polling interval while writers still use a former schema.
const SETTLE: Duration = Duration::from_millis(20);
/// Delay before a failed status write is retried.
const AGAIN: Duration = Duration::from_secs(1);

/// The store revision up to which the catalog reflects CRDs.
#[derive(Clone, Debug)]
pub(crate) struct CrdProgress {
    revision: watch::Receiver<u64>,
}

impl CrdProgress {
    /// Receives the revision after every CRD change that the catalog reflects.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.clone()
    }

    /// Waits until the catalog reflects the CRDs stored up to `revision`.
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
}

/// Loads the stored CRDs into the catalog.
pub(crate) fn load(store: &Store, unreadable: &Unreadable, catalog: &Catalog) -> (CrdProgress, CrdInformer) {
    let (page, events) = ListWatch::start(store, CRDS);
    let mut seen = BTreeSet::new();
    let mut crds = Vec::with_capacity(page.entries.len());
    let mut unknown = Vec::new();
    for entry in &page.entries {
        match read(entry) {
            Ok(crd) => crds.push((crd, entry.revision)),
            Err(why) => {
                unreadable.note(entry, &why, Some(Concern::CustomResourceDefinition));
                unknown.push(name_of(&entry.key));
            }
        }
        seen.insert(Arc::clone(&entry.key));
    }
    // If two CRDs claim a kind, the older one gets it.
    crds.sort_by(|(a, _), (b, _)| a.created.cmp(&b.created));
    catalog.change_custom(|custom| {
        for (crd, revision) in crds {
            custom.set(crd, revision, SchemaEpoch::after(page.revision));
        }
        for name in unknown {
            custom.set_unreadable(name);
        }
        true
    });
    let (sender, revision) = watch::channel(page.revision);
    (CrdProgress { revision }, CrdInformer { seen, events, sender })
}

fn read(entry: &Arc<StoredEntry>) -> Result<CustomResourceDefinition, Status> {
    let source: Arc<dyn CrdSource> = Arc::new(StoredCrdSource(Arc::clone(entry)));
    Ok(CustomResourceDefinition::read(&encode::tree(entry)?, &source, kinds::table::overlapping))
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
        (Some(former), _) => SchemaEpoch::instead_of(&former),
        (None, _) => SchemaEpoch::after(state.storage.store.revision()),
    };
    custom.set(crd, entry.revision, epoch);
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

fn name_of(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

impl CrdInformer {
    /// Updates the catalog from a stored CRD, unless the catalog is newer: the status task serves a CRD before its status is stored.
    /// A CRD that cannot be decoded is no longer served, requests for its resource are denied, and no other CRD gets its kind.
    fn put(&mut self, state: &State, entry: &Arc<StoredEntry>) {
        let crd = match read(entry) {
            Ok(crd) => crd,
            Err(why) => {
                state.storage.unreadable.note(entry, &why, Some(Concern::CustomResourceDefinition));
                self.seen.insert(Arc::clone(&entry.key));
                Self::stop_serving(state, &entry.key, CustomKinds::set_unreadable);
                return;
            }
        };
        self.seen.insert(Arc::clone(&entry.key));
        state.apis.catalog.change_custom(|custom| {
            let is_news = custom.revision(&crd.name).is_none_or(|known| known < entry.revision);
            if is_news {
                put(state, custom, crd, entry);
            }
            is_news
        });
        settle(state, name_of(&entry.key));
        state.apis.openapi.forget_custom();
    }

    fn remove(&mut self, state: &State, key: &str) {
        self.seen.remove(key);
        Self::stop_serving(state, key, CustomKinds::remove);
    }

    fn stop_serving(state: &State, key: &str, change: impl FnOnce(&mut CustomKinds, &str)) {
        let name = name_of(key);
        state.apis.catalog.change_custom(|custom| {
            change(custom, name);
            true
        });
        state.apis.conversions.forget(name);
        state.apis.openapi.forget_custom();
    }

    /// Follows the store until it closes. The names of changed CRDs are sent to `changed`.
    async fn run(mut self, state: Arc<State>, changed: mpsc::UnboundedSender<Str>) {
        let name_of = |key: &str| Str::from(name_of(key));
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
        while let Some(update) = self.events.next().await {
            let reached = match update {
                Update::Event(event) => {
                    let key = Arc::clone(&event.entry.key);
                    if event.kind == Change::Deleted {
                        self.remove(&state, &key);
                    } else {
                        self.put(&state, &event.entry);
                    }
                    let _ = changed.send(name_of(&key));
                    event.revision
                }
                Update::Relisted(page) => {
                    let there: BTreeSet<&Arc<str>> = page.entries.iter().map(|entry| &entry.key).collect();
                    let gone: Vec<Arc<str>> =
                        self.seen.iter().filter(|key| !there.contains(key)).cloned().collect();
                    for key in &gone {
                        self.remove(&state, key);
                    }
                    for entry in &page.entries {
                        self.put(&state, entry);
                        let _ = changed.send(name_of(&entry.key));
                    }
                    page.revision
                }
            };
            let _ = self.sender.send(reached);
        }
    }
}

/// Starts the informer task and the status task.
pub(crate) fn start(state: &Arc<State>, informer: CrdInformer) {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(informer.run(Arc::clone(state), sender.clone()));
    tokio::spawn(CrdStatusWriter::new(state, sender).run(receiver));
}
