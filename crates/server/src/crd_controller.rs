//! Serves stored CRDs, maintains their status, and deletes their objects when a CRD is deleted.
//!
//! One task follows the CRDs in the store and updates the custom part of the catalog. A second task writes their status through the
//! request pipeline: accepted names, the `Established` condition and, when a CRD is deleted, the progress of deleting its objects.
//! INVARIANT: a CRD is in the catalog before its status says `Established`, so that a client that has seen the condition can use
//! the resource at once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::field::aggregate;
use api::{Status, meta};
use authn::InternalIdentity;
use crd::names::{self, CLEANUP, NamesInUse, OVERLAPPING};
use crd::{CrdSource, CustomResourceDefinition};
use storage::{ChangeKind as Change, Store, StoredEntry};
use tokio::sync::{Semaphore, mpsc, watch};
use tracing::{debug, warn};
use value::{Str, Value};

use crate::catalog::{Catalog, CustomKinds, SchemaEpoch};
use crate::client::Client;
use crate::encode;
use crate::keys::CRDS;
use crate::list_watch::{ListWatch, Update};
use crate::state::State;
use crate::unreadable::{Concern, Unreadable};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Interval of checks whether the objects of a deleted CRD are gone.
const POLL: Duration = Duration::from_millis(250);
/// Time after which the status reports that objects of a deleted CRD remain.
const PATIENCE: Duration = Duration::from_mins(1);
/// Conflict retries when the status of a terminating CRD is written, before the whole cleanup is retried.
const ATTEMPTS: usize = 10;
/// Maximum number of concurrent status writes.
const WRITERS: usize = 32;
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
struct Stored(Arc<StoredEntry>);

impl CrdSource for Stored {
    fn load(&self) -> Option<Value> {
        encode::tree(&self.0).ok()
    }
}

/// Follows CRDs in the store and updates the catalog.
pub(crate) struct Informer {
    /// The keys of all stored CRDs, to detect deletions after a relist.
    seen: BTreeSet<Arc<str>>,
    events: ListWatch,
    sender: watch::Sender<u64>,
}

/// Loads the stored CRDs into the catalog.
pub(crate) fn load(store: &Store, unreadable: &Unreadable, catalog: &Catalog) -> (CrdProgress, Informer) {
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
    (CrdProgress { revision }, Informer { seen, events, sender })
}

fn read(entry: &Arc<StoredEntry>) -> Result<CustomResourceDefinition, Status> {
    let source: Arc<dyn CrdSource> = Arc::new(Stored(Arc::clone(entry)));
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

fn group_of(crd: &Value) -> &str {
    crd.str_at(&["spec", "group"]).unwrap_or_default()
}

impl Informer {
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
pub(crate) fn start(state: &Arc<State>, follower: Informer) {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(follower.run(Arc::clone(state), sender.clone()));
    let keeper = Arc::new(Keeper {
        client: Client::new(Arc::clone(state), InternalIdentity::ApiServer),
        state: Arc::clone(state),
        emptying: Mutex::default(),
        writing: Mutex::default(),
        writers: Arc::new(Semaphore::new(WRITERS)),
        again: sender,
    });
    tokio::spawn(keeper.run(receiver));
}

/// A CRD with its new status, not yet written.
struct NewStatus {
    crd: Value,
    /// The accepted names changed, so that other CRDs may get the former ones.
    names_changed: bool,
}

/// Writes the status of CRDs, and deletes the objects of terminating ones.
struct Keeper {
    state: Arc<State>,
    client: Client,
    /// The CRDs whose objects are being deleted.
    emptying: Mutex<HashSet<Str>>,
    /// The CRDs whose status is being written, and whether each changed in the meantime.
    writing: Mutex<HashMap<Str, bool>>,
    writers: Arc<Semaphore>,
    again: mpsc::UnboundedSender<Str>,
}

impl Keeper {
    async fn run(self: Arc<Self>, mut changed: mpsc::UnboundedReceiver<Str>) {
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
            match self.decide(&name) {
                Ok(None) => {}
                Ok(Some(change)) => {
                    // Writes run in parallel: CRDs are often created by the hundred, and each write waits for the disk.
                    let Ok(writer) = Arc::clone(&self.writers).acquire_owned().await else { return };
                    self.writing().insert(name.clone(), false);
                    let keeper = Arc::clone(&self);
                    tokio::spawn(async move {
                        let outcome = keeper.write(&name, change).await;
                        drop(writer);
                        if keeper.writing().remove(&name) == Some(true) {
                            let _ = keeper.again.send(name.clone());
                        }
                        if let Err(status) = outcome {
                            keeper.retry(name, &status);
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
        debug!(crd = %name, error = %status, "the status of a definition could not be written yet");
        if !matches!(status.code(), 404 | 409) {
            self.send_later(name);
        }
    }

    fn send_later(&self, name: Str) {
        let again = self.again.clone();
        tokio::spawn(async move {
            tokio::time::sleep(AGAIN).await;
            let _ = again.send(name);
        });
    }

    fn now(&self) -> String {
        api::time::Timestamp::from_seconds(self.state.now()).time()
    }

    /// Computes the new status of a CRD; `None` if it needs no update. The catalog is updated at once. Calls must be sequential,
    /// because a name is accepted only if no other CRD has it.
    fn decide(self: &Arc<Self>, name: &Str) -> Result<Option<NewStatus>, Status> {
        let Some(entry) = self.state.storage.store.get(&format!("{CRDS}{name}")) else {
            self.others_of_its_group(name);
            return Ok(None);
        };
        let mut crd = encode::tree(&entry)?;
        if meta::is_deleting(&crd) && meta::finalizers(&crd).any(|found| found == CLEANUP) {
            let is_first = self.emptying.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
            if is_first {
                let (keeper, name) = (Arc::clone(self), name.clone());
                tokio::spawn(async move {
                    if let Err(status) = keeper.empty(&name).await {
                        warn!(crd = %name, error = %status, "could not delete the objects of a deleted CRD yet; trying again");
                    }
                    keeper.emptying.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                    // Retry what is left, as long as the CRD exists.
                    if keeper.state.storage.store.get(&format!("{CRDS}{name}")).is_some() {
                        tokio::time::sleep(AGAIN).await;
                        let _ = keeper.again.send(name);
                    }
                });
            }
            return Ok(None);
        }
        let custom = self.state.apis.catalog.custom();
        if custom.unreadable(group_of(&crd)).is_some() {
            // Retry later: whether names are free is unknown while a CRD of the group cannot be decoded.
            self.send_later(name.clone());
        }
        let lost_kind = custom.lost_kind(meta::name(&crd));
        let Some(status) =
            names::status(&crd, lost_kind, || self.taken(&crd), kinds::table::overlapping, &self.now())
        else {
            return Ok(None);
        };
        let names_changed = crd.at(&["status", "acceptedNames"]) != status.get("acceptedNames");
        crd.set_at(&["status"], status);
        // Serve the CRD before its status says so (see the invariant above).
        self.serve(&crd, &entry);
        Ok(Some(NewStatus { crd, names_changed }))
    }

    /// Stores a new status, and rechecks other CRDs of the group if names became free.
    async fn write(&self, name: &str, change: NewStatus) -> Result<(), Status> {
        self.client.update(&format!("{PATH}/{name}/status"), &change.crd).await?;
        if change.names_changed {
            self.others_of_its_group(name);
        }
        Ok(())
    }

    fn serve(&self, crd: &Value, entry: &Arc<StoredEntry>) {
        let source: Arc<dyn CrdSource> = Arc::new(Stored(Arc::clone(entry)));
        let read = CustomResourceDefinition::read(crd, &source, kinds::table::overlapping);
        self.state.apis.catalog.change_custom(|custom| {
            // If the CRD was changed or deleted in the meantime, the informer updates the catalog.
            let stored = self.state.storage.store.get(&entry.key);
            let is_current = stored.is_some_and(|stored| stored.revision == entry.revision);
            if is_current {
                put(&self.state, custom, read, entry);
            }
            is_current
        });
        settle(&self.state, name_of(&entry.key));
    }

    /// The names that other CRDs of the group have.
    fn taken(&self, crd: &Value) -> NamesInUse {
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
    fn others_of_its_group(&self, name: &str) {
        let Some((_, group)) = name.split_once('.') else { return };
        let custom = self.state.apis.catalog.custom();
        for other in custom.of_group(group).filter(|other| other.name != name && !other.names_accepted) {
            let _ = self.again.send(other.name.clone());
        }
    }

    /// Deletes the objects of a CRD, then removes its cleanup finalizer.
    async fn empty(&self, name: &Str) -> Result<(), Status> {
        let progress = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
        let Some(crd) = self.say(name, progress, false).await? else { return Ok(()) };
        let established = crd
            .list_at(&["status", "conditions"])
            .iter()
            .any(|c| c.str_at(&["type"]) == Some("Established") && c.str_at(&["status"]) == Some("True"));
        let text = |path: &[&str]| crd.str_at(path).unwrap_or_default().to_owned();
        let (group, plural) = (text(&["spec", "group"]), text(&["spec", "names", "plural"]));
        let condition = if kinds::table::overlapping(&group, &plural).is_some() {
            ("False", OVERLAPPING.0, OVERLAPPING.1)
        } else if established {
            self.delete_objects(name, &group, &plural).await?;
            ("False", "InstanceDeletionCompleted", "removed all instances")
        } else {
            ("False", "NeverEstablished", "resource was never established")
        };
        self.say(name, condition, true).await.map(drop)
    }

    /// Writes the `Terminating` condition; removes the cleanup finalizer if `done`. `None` if the CRD no longer exists.
    async fn say(
        &self,
        name: &Str,
        condition: (&str, &str, &str),
        done: bool,
    ) -> Result<Option<Value>, Status> {
        let mut attempts = 0;
        loop {
            let Some(entry) = self.state.storage.store.get(&format!("{CRDS}{name}")) else { return Ok(None) };
            let mut crd = encode::tree(&entry)?;
            let mut status = crd.get("status").cloned().unwrap_or_default();
            names::set(&mut status, "Terminating", condition, &self.now());
            crd.set_at(&["status"], status);
            if done {
                let kept: Vec<Value> =
                    meta::finalizers(&crd).filter(|found| *found != CLEANUP).map(Value::from).collect();
                meta::set(&mut crd, "finalizers", Value::List(kept));
            }
            match self.client.update(&format!("{PATH}/{name}/status"), &crd).await {
                Ok(updated) => return Ok(Some(updated)),
                // After too many conflicts the error is returned; the caller retries later.
                Err(status) if status.code() == 409 && attempts < ATTEMPTS => attempts += 1,
                Err(status) if status.code() == 404 => return Ok(None),
                Err(status) => return Err(status),
            }
        }
    }

    async fn delete_objects(&self, name: &Str, group: &str, plural: &str) -> Result<(), Status> {
        let custom = self.state.apis.catalog.custom();
        let crd = custom.crd(name);
        let Some(kind) = crd.and_then(|crd| self.state.apis.catalog.reachable(crd)) else {
            let why = format!(
                "could not list instances: unable to find a custom resource client for {plural}.{group}"
            );
            self.say(name, ("True", "InstanceDeletionFailed", &why), false).await?;
            return Err(Status::internal(why));
        };
        let scope = kind.scope("");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut asked = HashSet::new();
        loop {
            let left = self.state.storage.store.snapshot(&scope);
            if left.entries.is_empty() {
                return Ok(());
            }
            let mut problems = Vec::new();
            for entry in &left.entries {
                let namespace = kind.namespace_of(&entry.key).to_owned();
                if !asked.insert((entry.key.clone(), entry.revision)) {
                    continue;
                }
                let object = entry.key.rsplit('/').next().unwrap_or_default();
                if let Err(status) = self.delete_one(&kind, &namespace, object).await {
                    problems.push(status.message().to_owned());
                }
            }
            if !problems.is_empty() {
                let why = format!("could not issue all deletes: {}", aggregate(problems));
                self.say(name, ("True", "InstanceDeletionFailed", &why), false).await?;
                return Err(Status::internal(why));
            }
            if tokio::time::Instant::now() > deadline {
                let why =
                    "could not confirm zero CustomResources remaining: timed out waiting for the condition";
                self.say(name, ("True", "InstanceDeletionCheck", why), false).await?;
                return Err(Status::internal(why));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Deletes one object through an internal path, which works even for versions that are not served.
    async fn delete_one(
        &self,
        kind: &crate::catalog::ServedResource,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        let (api_version, plural) = (kind.gvk.api_version(), &kind.resource.resource);
        let path = if kind.namespaced {
            format!("/apis/{api_version}/namespaces/{namespace}/{plural}/{name}")
        } else {
            format!("/apis/{api_version}/{plural}/{name}")
        };
        let options = Value::map([("kind", "DeleteOptions"), ("apiVersion", "v1")]);
        match self.client.delete(&path, &options).await {
            Err(status) if status.code() != 404 => Err(status),
            _ => Ok(()),
        }
    }
}
