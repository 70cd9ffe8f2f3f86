//! Informers: keep state that is derived from stored objects up to date.
//!
//! An informer reads every object in its scope once and then applies each change in order. A writer that must see the effect of its
//! own write (for example authorization after a role change) waits for [`InformerProgress::reached`]. An object that cannot be decoded
//! counts as absent for the derived state, and is recorded in [`Unreadable`], so that decisions that depend on it are denied.
//!
//! If applying a change panics, the derived state may be wrong. Then an informer with a [`Concern`] ends, and all decisions with that concern
//! are denied until the server is restarted; one without continues with the next change.
//!
//! Large changes are applied on a blocking thread, because decoding them, and compiling their expressions, takes long: no request waits
//! for that on a worker thread.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use api::Status;
use catalog::encode;
use catalog::keys;
use catalog::unreadable::{Concern, Unreadable};
use storage::{ChangeKind as Change, ListPage, ListWatch, ListWatchUpdate, Store, StoreEvent, StoredEntry};
use tokio::sync::watch;
use tracing::error;
use value::{Str, Value};

use crate::consistent_reads;

/// The store revision up to which an informer has applied changes.
#[derive(Clone, Debug)]
pub(crate) struct InformerProgress {
    /// Wakes the informer to look how far its watch has come: revisions at which none of its objects changed bring it no event.
    asked: watch::Sender<()>,
    revision: watch::Receiver<u64>,
}

impl InformerProgress {
    /// Waits until the informer has applied the changes up to `revision`.
    pub(crate) async fn reached(&self, revision: u64) {
        // The channel closes when the server stops, or when decisions that depend on the informer are denied: then waiting is pointless.
        let _ = self.revision.clone().wait_for(|r| *r >= revision).await;
    }

    /// Waits until the informer has applied every change of its objects up to `revision`, which may be the revision of any write. The
    /// caller must set a time limit.
    pub(crate) async fn caught_up(&self, store: &Store, revision: u64) {
        if *self.revision.borrow() < revision {
            store.reached(revision).await;
            self.asked.send_replace(());
            self.reached(revision).await;
        }
    }
}

/// Progress of the RBAC informers, by plural name of the resource.
pub(crate) struct RoleInformers(pub(crate) [(&'static str, InformerProgress); 4]);

impl RoleInformers {
    /// Waits until the authorizer reflects the writes to a resource up to `revision`, so that a caller who changed a role sees the
    /// effect in the next request.
    pub(crate) async fn reached(&self, plural: &str, revision: u64) {
        for (_, followed) in self.0.iter().filter(|(of, _)| *of == plural) {
            followed.reached(revision).await;
        }
    }

    /// Waits until the authorizer reflects every role and binding that any server has acknowledged: for a decision that passes
    /// permissions on, which kube-apiserver makes on what etcd has. Fails after some seconds.
    pub(crate) async fn catch_up(&self, store: &Store) -> Result<(), Status> {
        if !store.is_shared() {
            return Ok(());
        }
        consistent_reads::require_current(store).await?;
        let caught_up = async {
            for (plural, informer) in &self.0 {
                let Some(prefix) = keys::built_in(api::groups::RBAC, plural) else { continue };
                let cluster = store.of(prefix);
                informer.caught_up(cluster, cluster.revision()).await;
            }
        };
        let late = |_| Status::unavailable("this server has not applied all changes of roles yet; try again");
        tokio::time::timeout(consistent_reads::PATIENCE, caught_up).await.map_err(late)
    }
}

/// Changes of objects with more bytes than this are applied on a blocking thread. Compiling the expressions of a policy of this size takes
/// about a millisecond.
const LARGE_CHANGE: usize = 8 << 10;

/// Called with the old and the new object of every change.
type OnObjectChange = Box<dyn Fn(Option<&Value>, Option<&Value>) + Send>;

/// The registry for objects that cannot be decoded, and the decisions that depend on the objects of an informer.
#[derive(Clone)]
pub(crate) struct UnreadableConcern {
    pub(crate) unreadable: Arc<Unreadable>,
    pub(crate) concern: Option<Concern>,
    /// Called when the informer ends with a panic: withdraws access that the derived state grants.
    on_end: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl UnreadableConcern {
    /// For an informer whose objects decisions depend on.
    pub(crate) fn of(unreadable: &Arc<Unreadable>, concern: Concern) -> Self {
        UnreadableConcern { unreadable: Arc::clone(unreadable), concern: Some(concern), on_end: None }
    }

    /// For an informer whose objects grant access, which `withdraw` withdraws if the informer ends with a panic.
    pub(crate) fn of_grants(
        unreadable: &Arc<Unreadable>,
        withdraw: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        UnreadableConcern {
            on_end: Some(Arc::new(withdraw)),
            ..UnreadableConcern::of(unreadable, Concern::Authorization)
        }
    }

    /// For an informer whose events are only hints, so that an unreadable object denies no request.
    pub(crate) fn without_concern(unreadable: &Arc<Unreadable>) -> Self {
        UnreadableConcern { unreadable: Arc::clone(unreadable), concern: None, on_end: None }
    }

    /// Denies the decisions that depend on the objects in `scope`, after applying a change has panicked. Returns false if there are none.
    fn end(&self, scope: &str) -> bool {
        let Some(concern) = self.concern.clone() else {
            error!(scope, "applying a change of a stored object panicked; continuing with the next change");
            return false;
        };
        if let Some(on_end) = &self.on_end {
            on_end();
        }
        self.unreadable.note_unfollowed(scope, concern);
        true
    }
}

/// Reads the objects in `scope`, then applies changes in the background.
pub(crate) fn start_informer(
    store: &Store,
    scope: &str,
    notes: UnreadableConcern,
    apply: impl Fn(Option<&Value>, Option<&Value>) + Send + 'static,
) -> InformerProgress {
    let mut informer = Informer { scope: scope.into(), seen: BTreeMap::new(), notes, apply: Box::new(apply) };
    let (page, events) = ListWatch::start(store, scope);
    informer.catch_up(&page);
    let (sender, revision) = watch::channel(page.revision);
    let (asked, is_asked) = watch::channel(());
    tokio::spawn(run(informer, events, sender, is_asked));
    InformerProgress { asked, revision }
}

struct Informer {
    scope: Str,
    /// The entries that `apply` was last called with, by key.
    seen: BTreeMap<Arc<str>, Arc<StoredEntry>>,
    notes: UnreadableConcern,
    apply: OnObjectChange,
}

impl Informer {
    /// Applies an update, on a blocking thread if it is large. Returns `None` if the informer ends, because that panicked.
    async fn apply_update(self, update: ListWatchUpdate) -> Option<Self> {
        if self.size_of(&update) <= LARGE_CHANGE {
            return self.apply_here(&update);
        }
        tokio::task::spawn_blocking(move || self.apply_here(&update)).await.ok().flatten()
    }

    fn apply_here(mut self, update: &ListWatchUpdate) -> Option<Self> {
        let applied = catch_unwind(AssertUnwindSafe(|| match update {
            ListWatchUpdate::Event(event) => self.apply_event(event),
            ListWatchUpdate::Relisted(page) => self.catch_up(page),
        }));
        if applied.is_err() && self.notes.end(&self.scope) { None } else { Some(self) }
    }

    /// Bytes of the objects that an update makes this informer decode.
    fn size_of(&self, update: &ListWatchUpdate) -> usize {
        match update {
            ListWatchUpdate::Event(event) => {
                let old = self.seen.get(&event.entry.key).map_or(0, |old| old.body.len());
                old.saturating_add(event.entry.body.len())
            }
            ListWatchUpdate::Relisted(page) => {
                page.entries.iter().fold(0, |sum, entry| entry.body.len().saturating_add(sum))
            }
        }
    }

    /// Applies the differences between `seen` and a full list.
    fn catch_up(&mut self, page: &ListPage) {
        let there: BTreeMap<Arc<str>, Arc<StoredEntry>> =
            page.entries.iter().map(|entry| (Arc::clone(&entry.key), Arc::clone(entry))).collect();
        for (key, old) in &self.seen {
            if !there.contains_key(key) {
                self.apply(Some(old), None);
            }
        }
        for (key, new) in &there {
            let old = self.seen.get(key);
            // After etcd was restored from a backup, a revision may be that of another change.
            if old.is_none_or(|old| old.revision != new.revision || old.body != new.body) {
                self.apply(old, Some(new));
            }
        }
        self.seen = there;
    }

    fn apply_event(&mut self, event: &StoreEvent) {
        let key = Arc::clone(&event.entry.key);
        if event.kind == Change::Deleted {
            self.apply(self.seen.get(&key), None);
            self.seen.remove(&key);
        } else {
            self.apply(self.seen.get(&key), Some(&event.entry));
            self.seen.insert(key, Arc::clone(&event.entry));
        }
    }

    /// Passes a change on. An object that cannot be decoded is recorded and treated as deleted, so that state derived from its former
    /// content does not survive.
    fn apply(&self, old: Option<&Arc<StoredEntry>>, new: Option<&Arc<StoredEntry>>) {
        let old = old.and_then(|old| encode::tree(old).ok());
        let new = new.and_then(|new| {
            let UnreadableConcern { unreadable, concern, .. } = &self.notes;
            encode::tree(new).map_err(|why| unreadable.note(new, &why, concern.clone())).ok()
        });
        if old.is_some() || new.is_some() {
            (self.apply)(old.as_ref(), new.as_ref());
        }
    }
}

async fn run(
    mut informer: Informer,
    mut events: ListWatch,
    revision: watch::Sender<u64>,
    mut asked: watch::Receiver<()>,
) {
    loop {
        tokio::select! {
            biased;
            update = events.next() => {
                let Some(update) = update else { return };
                match informer.apply_update(update).await {
                    Some(applied) => informer = applied,
                    // It panicked, and decisions that depend on the derived state are denied.
                    None => return,
                }
            }
            Ok(()) = asked.changed() => {}
        }
        let progress = events.progress();
        revision.send_if_modified(|reached| std::mem::replace(reached, progress.max(*reached)) < progress);
    }
}

#[cfg(test)]
mod tests;
