//! Decides with which events a watch begins.

use std::sync::Arc;

use api::Status;
use requests::options::{ListOptions, revision as parse_revision};
use storage::{Store, StoredEntry, Watch, WatchError, WatchFrom};

use crate::consistent_reads;
use crate::handlers::list::too_large;

/// The first events of a watch.
pub(super) enum WatchStart {
    /// These entries as ADDED events, then the changes after them.
    Entries(Vec<Arc<StoredEntry>>, Watch),
    /// The changes after this revision.
    Events(Watch, u64),
    /// A single error event, then the watch ends.
    Error(Status),
}

impl WatchStart {
    /// [`Watch::lineage`]; an error event has none.
    pub(super) fn lineage(&self) -> u64 {
        match self {
            WatchStart::Entries(_, watch) | WatchStart::Events(watch, _) => watch.lineage(),
            WatchStart::Error(_) => 0,
        }
    }
}

/// Waits until memory is as current as a watch with `sendInitialEvents=true` requires: at its revision, or without one at the newest.
/// Returns the error event if that takes too long.
pub(super) async fn wait_for_initial_state(
    store: &Store,
    options: &ListOptions,
) -> Result<Option<WatchStart>, Status> {
    if options.send_initial_events != Some(true) {
        return Ok(None);
    }
    let behind = match parse_revision(&options.resource_version).map_err(Status::plain)? {
        None if options.resource_version.is_empty() => consistent_reads::catch_up(store).await?,
        // Revision 0 accepts any state.
        None => None,
        Some(revision) => (!consistent_reads::reaches(store, revision).await).then_some(revision),
    };
    Ok(behind.map(|revision| WatchStart::Error(too_large(revision, store.revision()))))
}

/// Decides how a watch begins. `now` returns the current revision of the store.
pub(super) fn start_watch(
    store: &Store,
    options: &ListOptions,
    scope: &str,
    now: impl Fn() -> u64,
) -> Result<WatchStart, Status> {
    let revision = parse_revision(&options.resource_version).map_err(Status::plain)?.unwrap_or(0);
    let initial = match options.send_initial_events {
        Some(send) => send,
        None => revision == 0,
    };
    let current = now();
    if revision > current {
        if initial {
            return Ok(WatchStart::Error(too_large(revision, current)));
        }
        // Without initial events, wait for the events after that revision.
        match store.watch(scope, WatchFrom::Now) {
            Ok(watch) if revision > now() => return Ok(WatchStart::Events(watch, revision)),
            // The store reached the revision meanwhile and may be past it: begin at the revision as usual.
            Ok(_) => {}
            Err(e) => return Ok(WatchStart::Error(Status::internal(e))),
        }
    }
    if initial {
        let (page, watch) = store.list_and_watch(scope);
        return Ok(WatchStart::Entries(page.entries.iter().cloned().collect(), watch));
    }
    let from = if revision == 0 { WatchFrom::Now } else { WatchFrom::Revision(revision) };
    Ok(match store.watch(scope, from) {
        Ok(watch) => WatchStart::Events(watch, revision),
        Err(WatchError::Compacted { oldest }) => {
            WatchStart::Error(Status::expired(format!("too old resource version: {revision} ({oldest})")))
        }
        Err(e) => WatchStart::Error(Status::internal(e)),
    })
}
