//! Followers: what the server derives from stored objects, kept at what is stored.
//!
//! A follower reads everything in its scope once and then each change, in order. A writer that must see its own effect (who
//! may do what, after a role was changed) waits for [`Followed::reached`].

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Status;
use storage::{Entry, Event, Kind as Change, ListPage, Store, Watch, WatchError};
use tokio::sync::watch;
use tracing::{error, warn};
use value::Value;

use crate::config::ConfigError;
use crate::encode;

/// How far a follower has come.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    revision: watch::Receiver<u64>,
}

impl Followed {
    /// Waits until the follower has seen what was written at `revision`.
    pub(crate) async fn reached(&self, revision: u64) {
        // The sender lives as long as the server; when that stops, nobody needs to wait any more.
        let _ = self.revision.clone().wait_for(|r| *r >= revision).await;
    }
}

/// Hears of every change: `(old, new)`.
type Apply = Box<dyn Fn(Option<&Value>, Option<&Value>) + Send>;

/// Reads what is in `scope` now, and then follows it.
pub(crate) fn follow(
    store: &Store,
    scope: &str,
    apply: impl Fn(Option<&Value>, Option<&Value>) + Send + 'static,
) -> Result<Followed, ConfigError> {
    let mut follower = Follower { store: store.clone(), seen: BTreeMap::new(), apply: Box::new(apply) };
    let (page, events) = store.list_and_watch(scope);
    follower.catch_up(&page).map_err(ConfigError::other)?;
    let (sender, revision) = watch::channel(page.revision);
    tokio::spawn(run(follower, events, sender));
    Ok(Followed { revision })
}

struct Follower {
    store: Store,
    /// What `apply` has heard of last, by key.
    seen: BTreeMap<Arc<str>, Arc<Entry>>,
    apply: Apply,
}

impl Follower {
    /// Brings what was heard of to what there is.
    fn catch_up(&mut self, page: &ListPage) -> Result<(), Status> {
        let there: BTreeMap<Arc<str>, Arc<Entry>> =
            page.entries.iter().map(|entry| (Arc::clone(&entry.key), Arc::clone(entry))).collect();
        for (key, old) in &self.seen {
            if !there.contains_key(key) {
                (self.apply)(Some(&encode::tree(old)?), None);
            }
        }
        for (key, new) in &there {
            let old = self.seen.get(key);
            if old.is_none_or(|old| old.revision != new.revision) {
                let old = old.map(|old| encode::tree(old)).transpose()?;
                (self.apply)(old.as_ref(), Some(&encode::tree(new)?));
            }
        }
        self.seen = there;
        Ok(())
    }

    fn hear(&mut self, event: &Event) -> Result<(), Status> {
        let key = Arc::clone(&event.entry.key);
        let old = self.seen.get(&key).map(|old| encode::tree(old)).transpose()?;
        if event.kind == Change::Deleted {
            (self.apply)(old.as_ref(), None);
            self.seen.remove(&key);
        } else {
            (self.apply)(old.as_ref(), Some(&encode::tree(&event.entry)?));
            self.seen.insert(key, Arc::clone(&event.entry));
        }
        Ok(())
    }
}

async fn run(mut follower: Follower, mut events: Watch, revision: watch::Sender<u64>) {
    loop {
        let heard = match events.next().await {
            Ok(event) => follower.hear(&event).map(|()| event.revision),
            Err(WatchError::Closed) => return,
            Err(error) => {
                // More changes came than the history holds: read everything anew.
                warn!(%error, scope = events.scope(), "a follower fell behind and reads everything again");
                let (page, again) = follower.store.list_and_watch(events.scope());
                let caught_up = follower.catch_up(&page).map(|()| page.revision);
                events = again;
                caught_up
            }
        };
        match heard {
            Ok(reached) => {
                let _ = revision.send(reached);
            }
            Err(error) => {
                // Going on would mean to decide by what no longer holds.
                error!(%error, "a stored object that decides who may do what cannot be read");
                std::process::abort();
            }
        }
    }
}
