//! [`ListWatch`]: a watch of the store that relists when it falls behind.

use std::sync::Arc;

use tracing::warn;

use crate::error::WatchError;
use crate::record::StoreEvent;
use crate::store::{ListPage, Store};
use crate::watch::Watch;

/// Follows all keys with a common prefix.
#[derive(Debug)]
pub struct ListWatch {
    store: Store,
    watch: Watch,
}

#[derive(Debug)]
pub enum ListWatchUpdate {
    Event(Arc<StoreEvent>),
    /// The watch fell behind the store's history. These are all current entries; keys that are missing were deleted.
    Relisted(ListPage),
}

impl ListWatch {
    /// Lists the entries under `prefix`; [`ListWatch::next`] continues from that revision.
    pub fn start(store: &Store, prefix: &str) -> (ListPage, ListWatch) {
        let (page, watch) = store.list_and_watch(prefix);
        (page, ListWatch { store: store.clone(), watch })
    }

    /// The revision up to which all changes have been returned.
    pub fn progress(&self) -> u64 {
        self.watch.progress()
    }

    /// Waits for the next change; `None` once the store is closed.
    pub async fn next(&mut self) -> Option<ListWatchUpdate> {
        match self.watch.next().await {
            Ok(event) => Some(ListWatchUpdate::Event(event)),
            Err(WatchError::Closed) => None,
            Err(error) => {
                let prefix = self.watch.scope();
                warn!(%error, prefix, "an internal watch fell behind the event history; listing all objects again");
                let (page, watch) = self.store.list_and_watch(prefix);
                self.watch = watch;
                Some(ListWatchUpdate::Relisted(page))
            }
        }
    }
}
