//! Migrates a file of the previous format to the current one.
//!
//! Format 1 has the same rows under other keys. The migration reads its live records, maps their keys, and writes them to a new file
//! that replaces the old one atomically. Until then the old file remains the store, so an interrupted migration starts again. Before
//! the replacement the old file gets a second name, under which it is preserved.

use std::collections::HashSet;
use std::sync::Arc;

use crate::backend::Feed;
use crate::error::OpenError;
use crate::key;
use crate::record::StoredEntry;
use crate::store::StoreOptions;
use crate::table::StoredEntries;
use crate::working_set::WorkingSet;

use super::FORMAT;
use super::disk::Medium;
use super::log::Log;

/// The format that can be migrated.
pub(super) const FROM: u32 = 1;

/// Returns the new key of each entry, in the order of the entries; an entry without one is left out.
pub type Rekey = Box<dyn FnOnce(&StoredEntries) -> Vec<Option<Arc<str>>> + Send>;

/// Migrates the file opened as `old` and opens the new one.
pub(super) fn migrate(old: Log, medium: &Medium, rekey: Rekey) -> Result<Log, OpenError> {
    let path = medium.path();
    tracing::info!(path = %path.display(), from = FROM, to = FORMAT, "migrating the store to a new format");
    let feed = Feed(Arc::new(WorkingSet::new(&StoreOptions::default())));
    old.load(&feed, &path)?;
    // Close the file, so that the preserved copy is complete.
    drop(old);
    let entries = feed.live();
    let live = rekeyed(&entries, rekey(&entries)).map_err(OpenError::Migration)?;
    medium.preserve(FROM).map_err(|source| OpenError::DataDirectory { path: path.clone(), source })?;
    let log = Log::make(medium, &live, feed.revision(), |_| None).map_err(|fault| fault.opening(&path))?;
    let left_out = entries.len() - live.len();
    tracing::info!(path = %path.display(), records = live.len(), left_out, "the store has been migrated");
    Ok(log)
}

fn rekeyed(entries: &StoredEntries, keys: Vec<Option<Arc<str>>>) -> Result<StoredEntries, String> {
    if keys.len() != entries.len() {
        return Err(format!("{} records were mapped to {} keys", entries.len(), keys.len()));
    }
    let mut given = HashSet::with_capacity(keys.len());
    let mut live = Vec::with_capacity(keys.len());
    for (entry, key) in entries.iter().zip(keys) {
        let Some(key) = key else { continue };
        if !key::is_key(&key) {
            return Err(format!(
                "the record `{}` would move to `{key}`, which is not a valid key",
                entry.key
            ));
        }
        if !given.insert(Arc::clone(&key)) {
            return Err(format!("two records would move to `{key}`"));
        }
        live.push(Arc::new(StoredEntry::new(key, entry.revision, entry.created, &entry.record())));
    }
    live.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(StoredEntries::from_vec(live))
}
