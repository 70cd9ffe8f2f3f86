//! Informers: what the server derives from stored objects, kept at what is stored.
//!
//! An informer reads everything in its scope once and then each change, in order. A writer that must see its own effect (who
//! may do what, after a role was changed) waits for [`InformerProgress::reached`]. An object that cannot be read is as good as absent to
//! what is derived, and is noted in [`Unreadable`], where whatever decides by it finds that it must refuse.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::{Entry, Event, Kind as Change, ListPage, Store};
use tokio::sync::watch;
use value::Value;

use crate::encode;
use crate::list_watch::{ListWatch, Update};
use crate::unreadable::{Concern, Unreadable};

/// How far an informer has come.
#[derive(Clone, Debug)]
pub(crate) struct InformerProgress {
    revision: watch::Receiver<u64>,
}

impl InformerProgress {
    /// Waits until the informer has seen what was written at `revision`.
    pub(crate) async fn reached(&self, revision: u64) {
        // The sender lives as long as the server; when that stops, nobody needs to wait any more.
        let _ = self.revision.clone().wait_for(|r| *r >= revision).await;
    }
}

/// How far the index of roles and bindings has come, by the plural name of each of its resources.
pub(crate) struct RoleInformers(pub(crate) [(&'static str, InformerProgress); 4]);

impl RoleInformers {
    /// Waits until the authorizer knows what was written to a resource at `revision`, so that a caller who has changed a role
    /// sees the change in the next request.
    pub(crate) async fn reached(&self, plural: &str, revision: u64) {
        for (_, followed) in self.0.iter().filter(|(of, _)| *of == plural) {
            followed.reached(revision).await;
        }
    }
}

/// Hears of every change: `(old, new)`.
type Apply = Box<dyn Fn(Option<&Value>, Option<&Value>) + Send>;

/// Where unreadable objects are noted, and what decides by those that an informer follows.
#[derive(Clone)]
pub(crate) struct Notes {
    pub(crate) unreadable: Arc<Unreadable>,
    pub(crate) concern: Option<Concern>,
}

impl Notes {
    /// For an informer whose objects something decides by.
    pub(crate) fn of(unreadable: &Arc<Unreadable>, concern: Concern) -> Self {
        Notes { unreadable: Arc::clone(unreadable), concern: Some(concern) }
    }

    /// For an informer that takes what it follows as a hint.
    pub(crate) fn hints(unreadable: &Arc<Unreadable>) -> Self {
        Notes { unreadable: Arc::clone(unreadable), concern: None }
    }
}

/// Reads what is in `scope` now, and then follows it.
pub(crate) fn start_informer(
    store: &Store,
    scope: &str,
    notes: Notes,
    apply: impl Fn(Option<&Value>, Option<&Value>) + Send + 'static,
) -> InformerProgress {
    let mut informer = Informer { seen: BTreeMap::new(), notes, apply: Box::new(apply) };
    let (page, events) = ListWatch::start(store, scope);
    informer.catch_up(&page);
    let (sender, revision) = watch::channel(page.revision);
    tokio::spawn(run(informer, events, sender));
    InformerProgress { revision }
}

struct Informer {
    /// What `apply` has heard of last, by key.
    seen: BTreeMap<Arc<str>, Arc<Entry>>,
    notes: Notes,
    apply: Apply,
}

impl Informer {
    /// Brings what was heard of to what there is.
    fn catch_up(&mut self, page: &ListPage) {
        let there: BTreeMap<Arc<str>, Arc<Entry>> =
            page.entries.iter().map(|entry| (Arc::clone(&entry.key), Arc::clone(entry))).collect();
        for (key, old) in &self.seen {
            if !there.contains_key(key) {
                self.apply(Some(old), None);
            }
        }
        for (key, new) in &there {
            let old = self.seen.get(key);
            if old.is_none_or(|old| old.revision != new.revision) {
                self.apply(old, Some(new));
            }
        }
        self.seen = there;
    }

    fn hear(&mut self, event: &Event) {
        let key = Arc::clone(&event.entry.key);
        if event.kind == Change::Deleted {
            self.apply(self.seen.get(&key), None);
            self.seen.remove(&key);
        } else {
            self.apply(self.seen.get(&key), Some(&event.entry));
            self.seen.insert(key, Arc::clone(&event.entry));
        }
    }

    /// Tells of a change. What cannot be read is noted, and is told as if it were not there: what was derived from it before must
    /// not stay.
    fn apply(&self, old: Option<&Arc<Entry>>, new: Option<&Arc<Entry>>) {
        let old = old.and_then(|old| encode::tree(old).ok());
        let new = new.and_then(|new| {
            let Notes { unreadable, concern } = &self.notes;
            encode::tree(new).map_err(|why| unreadable.note(new, &why, concern.clone())).ok()
        });
        if old.is_some() || new.is_some() {
            (self.apply)(old.as_ref(), new.as_ref());
        }
    }
}

async fn run(mut informer: Informer, mut events: ListWatch, revision: watch::Sender<u64>) {
    while let Some(update) = events.next().await {
        let reached = match update {
            Update::Event(event) => {
                informer.hear(&event);
                event.revision
            }
            Update::Relisted(page) => {
                informer.catch_up(&page);
                page.revision
            }
        };
        let _ = revision.send(reached);
    }
}
