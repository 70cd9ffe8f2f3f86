//! The file: a table of rows by revision, and a metadata table with its format.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageError,
    TableDefinition, TableError, TableHandle, WriteTransaction,
};

use crate::backend::{DecidedChange, Feed, Range, RangePage, StoredRecord};
use crate::error::{OpenError, ReadError};
use crate::key;
use crate::migration_marker::MigrationMarker;
use crate::record::{Change, StoredEntry};
use crate::table::StoredEntries;

use super::FORMAT;
use super::disk::Medium;
use super::fault::{Error, Fault, damaged, guarded};
use super::migrate::{self, Rekey};
use super::row::{self, LogRow};

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
/// Key in `META`: the magic and the version of the format.
const IS: &str = "format";
const MAGIC: &[u8] = b"portcullis store";
/// Key in `META`: the revision up to which replaced rows are removed.
const COMPACTED: &str = "compacted";
/// Key in `META`: the marker of a migration that is not complete.
const MIGRATION: &str = "migration";
/// The format of a file that a migration has not completed. No version of the program reads it as a store.
pub(super) const INCOMPLETE: u32 = u32::MAX;
/// Number of rows applied to the feed at a time.
const REPLAY: usize = 1024;

/// The open store file.
pub(super) struct Log {
    database: Database,
}

/// A row that was replaced, or that records a deletion: it can be removed once `at` is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replaced {
    pub(super) at: u64,
    pub(super) row: u64,
}

#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) append: Vec<(u64, Vec<u8>)>,
    pub(super) remove: Vec<u64>,
    pub(super) compacted: Option<u64>,
}

impl Log {
    /// Opens the file and checks its format. Creates the file if there is none, and migrates one of the previous format if `rekey`
    /// is given.
    pub(super) fn open(medium: &Medium, rekey: Option<Rekey>) -> Result<Log, OpenError> {
        let path = medium.path();
        match (Log::find(medium)?, rekey) {
            (None, _) => Log::make(medium, &StoredEntries::default(), 0, |_| None)
                .map_err(|fault| fault.opening(&path)),
            (Some((log, FORMAT)), _) => Ok(log),
            (Some((log, migrate::FROM)), Some(rekey)) => migrate::migrate(log, medium, rekey),
            (Some((log, found)), _) => Err(log.unusable(path, found)),
        }
    }

    /// Why a file of another format than [`FORMAT`] cannot be used.
    pub(super) fn unusable(&self, path: PathBuf, found: u32) -> OpenError {
        if found != INCOMPLETE {
            return OpenError::Format { path, found, known: FORMAT };
        }
        match self.marker() {
            Ok(Some(marker)) => {
                let location = format!("the data directory `{}`", path.parent().unwrap_or(&path).display());
                OpenError::IncompleteMigration { location, resume: marker.resume }
            }
            Ok(None) => OpenError::Format { path, found, known: FORMAT },
            Err(fault) => fault.opening(&path),
        }
    }

    /// The marker of a migration that has begun to fill this file; `None` if there is none, or one of another version.
    pub(super) fn marker(&self) -> Result<Option<MigrationMarker>, Fault> {
        guarded(|| {
            let reading = self.database.begin_read()?;
            let meta = reading.open_table(META)?;
            let marker = meta.get(MIGRATION)?;
            Ok(marker.and_then(|marker| MigrationMarker::decode(marker.value())))
        })
    }

    /// Marks a file that [`Log::begin`] has created as the target of a migration.
    pub(super) fn mark(&self, marker: &MigrationMarker) -> Result<(), Fault> {
        guarded(|| {
            let transaction = self.database.begin_write()?;
            transaction.open_table(META)?.insert(MIGRATION, marker.encode().as_slice())?;
            Ok(transaction.commit()?)
        })
    }

    /// Removes the mark, and makes this a store at `revision`.
    pub(super) fn complete(&self, revision: u64) -> Result<(), Fault> {
        guarded(|| {
            let transaction = self.database.begin_write()?;
            write_meta(&transaction, FORMAT, revision)?;
            transaction.open_table(META)?.remove(MIGRATION)?;
            Ok(transaction.commit()?)
        })
    }

    /// Opens the file, whatever its format is. `None` if there is none.
    pub(super) fn find(medium: &Medium) -> Result<Option<(Log, u32)>, OpenError> {
        let opened = guarded(|| {
            let Some(database) = medium.open()? else { return Ok(None) };
            let log = Log { database };
            let format = log.identify()?;
            Ok(Some((log, format)))
        });
        opened.map_err(|fault| fault.opening(&medium.path()))
    }

    /// Creates a new file without rows beside the current one, at `revision`.
    pub(super) fn begin(medium: &Medium, format: u32, revision: u64) -> Result<Log, Fault> {
        guarded(|| {
            let log = Log { database: medium.begin()? };
            let transaction = log.database.begin_write()?;
            write_meta(&transaction, format, revision)?;
            transaction.open_table(LOG)?;
            transaction.commit()?;
            Ok(log)
        })
    }

    /// Counts the rows of all revisions.
    pub(super) fn rows(&self) -> Result<u64, Fault> {
        guarded(|| Ok(self.database.begin_read()?.open_table(LOG)?.len()?))
    }

    /// Writes a new file with the entries that are live at `revision`, and replaces the current file with it. `deadline` is the time
    /// at which an entry expires, since the Unix epoch.
    pub(super) fn make(
        medium: &Medium,
        live: &StoredEntries,
        revision: u64,
        deadline: impl Fn(&StoredEntry) -> Option<Duration>,
    ) -> Result<Log, Fault> {
        guarded(|| {
            let log = Log { database: medium.begin()? };
            log.write(live, revision, &deadline)?;
            medium.replace()?;
            Ok(log)
        })
    }

    /// Replays the file into the feed. Returns the compacted revision and the rows replaced since.
    pub(super) fn load(&self, feed: &Feed, path: &Path) -> Result<(u64, VecDeque<Replaced>), OpenError> {
        guarded(|| self.replay(feed)).map_err(|fault| fault.opening(path))
    }

    /// Commits one transaction. It is durable on return.
    pub(super) fn commit(&self, changes: &Changes) -> Result<(), Fault> {
        guarded(|| {
            let transaction = self.database.begin_write()?;
            {
                let mut log = transaction.open_table(LOG)?;
                for revision in &changes.remove {
                    log.remove(revision)?;
                }
                for (revision, row) in &changes.append {
                    log.insert(revision, row.as_slice())?;
                }
            }
            if let Some(compacted) = changes.compacted {
                transaction.open_table(META)?.insert(COMPACTED, compacted.to_le_bytes().as_slice())?;
            }
            Ok(transaction.commit()?)
        })
    }

    /// Removes rows after `revision`: writes that were reported as failed. Returns the last remaining revision.
    pub(super) fn cut(&self, revision: u64) -> Result<u64, Fault> {
        let last = guarded(|| {
            let reading = self.database.begin_read()?;
            let last = reading.open_table(LOG)?.last()?.map_or(0, |(last, _)| last.value());
            Ok(last.max(compacted(&reading)?))
        })?;
        if last > revision {
            self.commit(&Changes { remove: (revision + 1..=last).collect(), ..Changes::default() })?;
        }
        Ok(last.min(revision))
    }

    /// A view of the file that later transactions do not change.
    pub(super) fn snapshot(&self) -> Result<Snapshot, ReadError> {
        let reading = guarded(|| Ok(self.database.begin_read()?));
        reading.map(Snapshot).map_err(|fault| ReadError::Unavailable(fault.message))
    }

    /// Reads the version of the file's format.
    fn identify(&self) -> Result<u32, Error> {
        let reading = self.database.begin_read()?;
        match reading.open_table(META) {
            Ok(meta) => {
                let found = meta.get(IS)?.ok_or(Error::Foreign("it records no store format".to_owned()))?;
                let version = found.value().strip_prefix(MAGIC).and_then(|version| version.try_into().ok());
                let version =
                    version.ok_or(Error::Foreign("its format record is not that of a store".to_owned()))?;
                Ok(u32::from_le_bytes(version))
            }
            Err(TableError::TableDoesNotExist(_)) => {
                Err(Error::Foreign(match reading.list_tables()?.next() {
                    Some(table) => format!("it is a database with a table `{}`", table.name()),
                    None => "it is an empty database".to_owned(),
                }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the initial content of an empty file.
    fn write(
        &self,
        live: &StoredEntries,
        revision: u64,
        deadline: &impl Fn(&StoredEntry) -> Option<Duration>,
    ) -> Result<(), Error> {
        let transaction = self.database.begin_write()?;
        write_meta(&transaction, FORMAT, revision)?;
        {
            let mut log = transaction.open_table(LOG)?;
            for entry in live {
                let (key, revision, created) = (Arc::clone(&entry.key), entry.revision, entry.created);
                let done = DecidedChange { key, revision, created, change: Change::Put(entry.record()) };
                let row =
                    row::encode(&done, 0, deadline(entry)).ok_or_else(|| damaged("a row is too long"))?;
                log.insert(revision, row.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn replay(&self, feed: &Feed) -> Result<(u64, VecDeque<Replaced>), Error> {
        let reading = self.database.begin_read()?;
        let log = reading.open_table(LOG)?;
        let compacted = compacted(&reading)?;
        let mut base: Vec<DecidedChange> = Vec::new();
        let mut newer = None;
        let mut rows = log.range::<u64>(..)?;
        let mut count = 0_u64;
        for row in rows.by_ref() {
            let row = read(row)?;
            count += 1;
            if row.done.revision > compacted {
                newer = Some(row);
                break;
            }
            row.expire(feed);
            base.push(row.done);
        }
        let (base, mut trail) = newest(base);
        feed.load(compacted.max(1), compacted, base);
        let mut pending: Vec<DecidedChange> = Vec::new();
        let mut touched: HashMap<Arc<str>, u64> = HashMap::new();
        let rest = newer.into_iter().map(Ok).chain(rows.map(|row| {
            count += 1;
            read(row)
        }));
        for row in rest {
            let row = row?;
            row.expire(feed);
            let LogRow { done, previous, .. } = row;
            let live = match touched.get(&done.key) {
                Some(revision) => *revision,
                None => feed.revisions(&done.key).map_or(0, |revisions| revisions.revision),
            };
            if live != previous {
                return Err(not_there(done.revision, previous));
            }
            remember(&mut trail, &done, Some(previous).filter(|previous| *previous > 0));
            let revision = if done.change == Change::Delete { 0 } else { done.revision };
            touched.insert(Arc::clone(&done.key), revision);
            pending.push(done);
            if pending.len() >= REPLAY {
                touched.clear();
                drop(feed.apply(std::mem::take(&mut pending)));
            }
        }
        drop(feed.apply(pending));
        if count != log.len()? {
            return Err(damaged("rows are missing"));
        }
        Ok((compacted, trail))
    }
}

/// Writes the format of a file, and the revision up to which it has no history.
fn write_meta(transaction: &WriteTransaction, format: u32, compacted: u64) -> Result<(), Error> {
    let mut meta = transaction.open_table(META)?;
    meta.insert(IS, [MAGIC, &format.to_le_bytes()].concat().as_slice())?;
    meta.insert(COMPACTED, compacted.to_le_bytes().as_slice())?;
    Ok(())
}

/// The newest row of each key, unless it is a deletion; and the rows that a crash has left behind during
/// compaction.
fn newest(mut rows: Vec<DecidedChange>) -> (Vec<StoredRecord>, VecDeque<Replaced>) {
    rows.sort_unstable_by(|a, b| a.key.cmp(&b.key).then(a.revision.cmp(&b.revision)));
    let mut live: Vec<StoredRecord> = Vec::with_capacity(rows.len());
    let mut trail = VecDeque::new();
    for done in rows {
        let replaced = live.pop_if(|last| last.key == done.key).map(|last| last.revision);
        remember(&mut trail, &done, replaced);
        let DecidedChange { key, revision, created, change } = done;
        if let Change::Put(record) = change {
            live.push(StoredRecord { key, revision, created, record });
        }
    }
    trail.make_contiguous().sort_unstable_by_key(|replaced| replaced.at);
    (live, trail)
}

/// A consistent view of the file.
pub(super) struct Snapshot(ReadTransaction);

impl Snapshot {
    /// The revision of the file, and its live keys with the revisions of their rows, in key order.
    pub(super) fn live(&self) -> Result<(u64, BTreeMap<Arc<str>, u64>), Fault> {
        guarded(|| {
            let compacted = compacted(&self.0)?;
            let log = self.0.open_table(LOG)?;
            let mut live = BTreeMap::new();
            let (mut last, mut count) = (compacted.max(1), 0);
            for row in log.range::<u64>(..)? {
                let LogRow { done: DecidedChange { key, revision, change, .. }, previous, .. } = read(row)?;
                let replaced = live.get(&key).copied().unwrap_or(0);
                if revision > compacted && replaced != previous {
                    return Err(not_there(revision, previous));
                }
                match change {
                    Change::Put(_) => drop(live.insert(key, revision)),
                    Change::Delete => drop(live.remove(&key)),
                }
                last = last.max(revision);
                count += 1;
            }
            if count != log.len()? {
                return Err(damaged("rows are missing"));
            }
            Ok((last, live))
        })
    }

    /// Fails if there is no row of this revision, or if it cannot be decoded.
    pub(super) fn row(&self, revision: u64) -> Result<LogRow, Fault> {
        guarded(|| {
            let log = self.0.open_table(LOG)?;
            let row = log.get(revision)?.ok_or_else(|| damaged("rows are missing"))?;
            let row = row::decode(revision, row.value());
            row.ok_or_else(|| undecodable(revision))
        })
    }

    /// Reads a part of the key space at a revision, by replaying the file up to it.
    pub(super) fn range(&self, range: &Range) -> Result<RangePage, ReadError> {
        let found = guarded(|| {
            let oldest = compacted(&self.0)?;
            if range.revision < oldest {
                return Ok(Err(ReadError::Compacted { oldest }));
            }
            let mut live = BTreeMap::new();
            for row in self.0.open_table(LOG)?.range(..=range.revision)? {
                let done = read(row)?.done;
                let is_wanted = range.after.as_deref().is_none_or(|after| *done.key > *after);
                if is_wanted && key::covers(&range.scope, &done.key) {
                    done.apply_to(&mut live);
                }
            }
            let remaining = live.len().saturating_sub(range.limit) as u64;
            Ok(Ok(RangePage { records: live.into_values().take(range.limit).collect(), remaining }))
        });
        found.map_err(|fault| ReadError::Unavailable(fault.message))?
    }
}

/// Adds the rows that become removable once this change's revision is compacted.
pub(super) fn remember(trail: &mut VecDeque<Replaced>, done: &DecidedChange, replaced: Option<u64>) {
    let at = done.revision;
    trail.extend(replaced.map(|row| Replaced { at, row }));
    if done.change == Change::Delete {
        trail.push_back(Replaced { at, row: at });
    }
}

type RowGuard<T> = redb::AccessGuard<'static, T>;

fn read(row: Result<(RowGuard<u64>, RowGuard<&[u8]>), StorageError>) -> Result<LogRow, Error> {
    let (revision, bytes) = row?;
    let revision = revision.value();
    row::decode(revision, bytes.value()).ok_or_else(|| undecodable(revision))
}

fn undecodable(revision: u64) -> Error {
    damaged(&format!("the row of revision {revision} cannot be decoded"))
}

fn not_there(revision: u64, previous: u64) -> Error {
    damaged(&format!("the row of revision {revision} replaces revision {previous}, which is missing"))
}

fn compacted(reading: &ReadTransaction) -> Result<u64, Error> {
    let meta = reading.open_table(META)?;
    let Some(bytes) = meta.get(COMPACTED)? else { return Ok(0) };
    let bytes = bytes.value().try_into().map_err(|_| damaged("the compacted revision is not a number"))?;
    Ok(u64::from_le_bytes(bytes))
}
