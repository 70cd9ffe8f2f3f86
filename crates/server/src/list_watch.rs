//! [`ListWatch`]: a watch of the store that lists again when it falls behind.

use std::sync::Arc;

use storage::{Event, ListPage, Store, Watch, WatchError};
use tracing::warn;

/// Follows everything under a prefix of keys.
pub(crate) struct ListWatch {
    store: Store,
    watch: Watch,
}

/// One step of a [`ListWatch`].
pub(crate) enum Update {
    Event(Arc<Event>),
    /// More changed than the history of the store holds: everything there is now. What is missing was deleted.
    Relisted(ListPage),
}

impl ListWatch {
    /// Lists what there is under `prefix`; [`ListWatch::next`] continues from there.
    pub(crate) fn start(store: &Store, prefix: &str) -> (ListPage, ListWatch) {
        let (page, watch) = store.list_and_watch(prefix);
        (page, ListWatch { store: store.clone(), watch })
    }

    /// Waits for the next change; `None` once the store is closed.
    pub(crate) async fn next(&mut self) -> Option<Update> {
        match self.watch.next().await {
            Ok(event) => Some(Update::Event(event)),
            Err(WatchError::Closed) => None,
            Err(error) => {
                let prefix = self.watch.scope();
                warn!(%error, prefix, "a watch fell behind: listing everything again");
                let (page, watch) = self.store.list_and_watch(prefix);
                self.watch = watch;
                Some(Update::Relisted(page))
            }
        }
    }
}
