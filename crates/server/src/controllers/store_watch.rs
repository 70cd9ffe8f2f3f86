//! A controller's watch on the store. Large changes are decoded in the heavy lane.

use std::sync::Arc;

use catalog::{Sent, keys};
use controllers::{ChangeStream, ObjectChange, ObjectEvent};
use storage::{ChangeKind, StoredEntry, WatchError};
use value::{Str, Value};

use super::{StoredKinds, skim};
use crate::state::State;

/// A watch on the store that filters by key before it decodes objects.
pub(super) struct StoreWatch {
    pub(super) events: storage::Watch,
    pub(super) changes: Arc<ChangeReader>,
}

/// Reads the changes that a watch reports.
pub(super) struct ChangeReader {
    pub(super) filter: WatchFilter,
    pub(super) kinds: Arc<StoredKinds>,
    pub(super) state: Arc<State>,
}

pub(super) enum WatchFilter {
    All,
    Named(Str),
    Owners,
}

impl ChangeReader {
    /// Rejects entries by their key alone.
    pub(super) fn rejects(&self, key: &str) -> bool {
        match &self.filter {
            WatchFilter::All => false,
            WatchFilter::Named(name) => keys::name(key) != name.as_str(),
            WatchFilter::Owners => key.starts_with(keys::EVENTS),
        }
    }

    /// The change to report for an entry whose key is not rejected, or `None` if the filter rejects its content. `old` is the entry before
    /// the change.
    pub(super) fn change(
        &self,
        entry: &StoredEntry,
        old: Option<&StoredEntry>,
        deleted: bool,
    ) -> Option<ObjectChange> {
        let object = match &self.filter {
            WatchFilter::All | WatchFilter::Named(_) => self.decode(entry),
            WatchFilter::Owners => {
                let concerns =
                    deleted || skim::concerns_owners(entry) || old.is_some_and(skim::concerns_owners);
                if !concerns {
                    return None;
                }
                skim::metadata(entry).ok()
            }
        };
        Some(ObjectChange {
            object_ref: self.kinds.object_ref(&self.state.apis.catalog, &entry.key)?,
            object: object?,
            deleted,
        })
    }

    fn decode(&self, entry: &StoredEntry) -> Option<Value> {
        let kind = self.kinds.object_ref(&self.state.apis.catalog, &entry.key)?.kind;
        let served = self.state.apis.catalog.find(&kind.group, &kind.version, &kind.plural)?;
        served.shapes().show_unconverted(entry).map(Sent::into_value).ok()
    }
}

impl ChangeStream for StoreWatch {
    async fn next(&mut self) -> ObjectEvent {
        loop {
            // The filter may skip many events in a row; yield regularly, so that other tasks can run.
            tokio::task::coop::consume_budget().await;
            let event = match self.events.next().await {
                Ok(event) => event,
                Err(WatchError::Closed) => return ObjectEvent::Closed,
                Err(_) => return ObjectEvent::Lost,
            };
            if self.changes.rejects(&event.entry.key) {
                continue;
            }
            let deleted = event.kind == ChangeKind::Deleted;
            let size = event.entry.body.len() + event.previous.as_ref().map_or(0, |old| old.body.len());
            let changes = Arc::clone(&self.changes);
            let read = move || changes.change(&event.entry, event.previous.as_deref(), deleted);
            match self.changes.state.serving.heavy.run(size, read).await {
                Some(Some(change)) => return ObjectEvent::Change(change),
                Some(None) => {}
                None => return ObjectEvent::Closed,
            }
        }
    }
}
