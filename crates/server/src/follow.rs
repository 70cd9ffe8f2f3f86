//! Followers: what the server derives from stored objects, kept at what is stored.
//!
//! A follower reads everything in its scope once and then each change, in order. A writer that must see its own effect (who
//! may do what, after a role was changed) waits for [`Followed::reached`].

use std::sync::Arc;

use storage::{Kind as Change, Store, Watch, WatchError};
use tokio::sync::watch;
use tracing::error;
use value::Value;

use crate::config::ConfigError;
use crate::encode;

/// How far a follower has come.
#[derive(Clone, Debug)]
pub struct Followed {
    revision: watch::Receiver<u64>,
}

impl Followed {
    /// Waits until the follower has seen what was written at `revision`.
    pub async fn reached(&self, revision: u64) {
        // The sender lives as long as the server; when that stops, nobody needs to wait any more.
        let _ = self.revision.clone().wait_for(|r| *r >= revision).await;
    }
}

/// Reads what is in `scope` now, and then follows it: `apply(old, new)`.
pub fn follow(
    store: &Store,
    scope: &str,
    apply: impl Fn(Option<&Value>, Option<&Value>) + Send + Sync + 'static,
) -> Result<Followed, ConfigError> {
    let (page, events) = store.list_and_watch(scope);
    for entry in page.entries.iter() {
        apply(None, Some(&encode::tree(entry).map_err(ConfigError::other)?));
    }
    let (sender, revision) = watch::channel(page.revision);
    tokio::spawn(run(events, sender, Arc::new(apply)));
    Ok(Followed { revision })
}

/// Should the watch be lost, the process ends: going on would mean to decide by what no longer holds.
async fn run(
    mut events: Watch,
    revision: watch::Sender<u64>,
    apply: Arc<dyn Fn(Option<&Value>, Option<&Value>) + Send + Sync>,
) {
    loop {
        let event = match events.next().await {
            Ok(event) => event,
            Err(WatchError::Closed) => return,
            Err(error) => {
                error!(%error, scope = events.scope(), "lost track of stored objects that decide who may do what");
                std::process::abort();
            }
        };
        let old = event.previous.as_deref().map(encode::tree).transpose();
        let new = if event.kind == Change::Deleted { Ok(None) } else { encode::tree(&event.entry).map(Some) };
        match (old, new) {
            (Ok(old), Ok(new)) => apply(old.as_ref(), new.as_ref()),
            (Err(error), _) | (_, Err(error)) => {
                error!(%error, "a stored object that decides who may do what cannot be read");
                std::process::abort();
            }
        }
        let _ = revision.send(event.revision);
    }
}
