//! From the embedded store to etcd.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catalog::etcd_config::EtcdStorage;
use catalog::etcd_values::KubernetesValues;
use catalog::keys;
use etcd::{EtcdKeys, MigrationError, PutOutcome};
use storage::MigrationMarker;
use storage::embedded::{FORMAT, StoppedStore};
use tokio::task::JoinSet;

use super::compare::verify;
use super::item::{ItemReader, MigrationItem};
use super::tally::StoreTally;
use super::{MigrateError, MigrationOptions, MigrationStep, etcd_name, now, open_etcd};
use crate::store_directory;

/// Writes at the same time.
const WRITES: usize = 64;
/// Objects after which progress is reported.
const REPORT_EVERY: u64 = 20_000;
/// The longest distance over which the revision of etcd is raised: one write each, some minutes in all.
const MAX_ADVANCE: u64 = 1_000_000;
/// Objects that cannot be copied and are named.
pub(super) const MAX_NAMED: usize = 20;

pub(super) async fn migrate(
    from: &Path,
    to: &EtcdStorage,
    options: &MigrationOptions,
    report: &mut dyn FnMut(MigrationStep),
) -> Result<(), MigrateError> {
    let directory = store_directory(from)?;
    let store = StoppedStore::open(&directory).map_err(MigrateError::Source)?;
    if store.format() != FORMAT {
        return Err(MigrateError::FormerFormat { path: directory, found: store.format() });
    }
    let codec = KubernetesValues { media_type: to.media_type, ..KubernetesValues::default() };
    let read = || ItemReader::of_stopped(store.entries(), &codec, options.leave_out_unknown);

    let mut reader = read();
    let scanned = scan(&mut reader, |_| Ok(())).await?;
    let objects = scanned.objects();
    let (digest, _) = scanned.finish();
    let source = format!("the store in `{}`", directory.display());
    if objects == 0 {
        return Err(MigrateError::NothingToCopy(source));
    }
    report(MigrationStep::Scanned { source, revision: store.revision(), objects, digest: digest.clone() });
    reader.report_left_out(report);

    let etcd = open_etcd(to).await?;
    let source_revision = store.revision();
    let mut target =
        EtcdTarget { etcd: &etcd, source_revision, digest: &digest, options, report: &mut *report };
    let marker = target.check().await?;
    if options.dry_run {
        (target.report)(MigrationStep::Checked { target: etcd_name(to, &etcd.directory()) });
        return Ok(());
    }
    target.begin(marker).await?;
    let time_to_live = EventTimeToLive { started: now(), ttl: options.event_ttl };
    target.copy(&mut read(), objects, &time_to_live).await?;
    let revision = etcd.revision().await?;
    let mut copy = ItemReader::of_etcd(&etcd, revision, &codec, false);
    let verified = verify(&mut read(), &mut copy, |item| time_to_live.expires(item), &digest).await?;
    report(verified);

    // A client that continues from a revision of the source gets 410 and lists again: the history in etcd begins here.
    etcd.compact(revision).await?;
    etcd.complete().await?;
    let revision = etcd.revision().await?;
    report(MigrationStep::Completed { target: etcd_name(to, &etcd.directory()), revision });
    Ok(())
}

/// Reads the whole source. Every object that cannot be copied is an error; `check` may refuse further ones.
pub(super) async fn scan(
    reader: &mut ItemReader<'_>,
    mut check: impl FnMut(&MigrationItem) -> Result<(), MigrateError>,
) -> Result<StoreTally, MigrateError> {
    let mut tally = StoreTally::default();
    let mut unreadable = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(item)) => {
                check(&item)?;
                tally.add(&item);
            }
            Ok(None) => break,
            Err(error @ (MigrateError::Unreadable { .. } | MigrateError::UnknownKey(_))) => {
                unreadable.push(error.to_string());
                if unreadable.len() == MAX_NAMED {
                    unreadable.push("there may be more".to_owned());
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    if unreadable.is_empty() { Ok(tally) } else { Err(MigrateError::UnreadableObjects(unreadable)) }
}

/// Events without a time to live get one in etcd, where kube-apiserver does not delete them otherwise.
struct EventTimeToLive {
    started: Duration,
    ttl: Duration,
}

impl EventTimeToLive {
    fn expires(&self, item: &MigrationItem) -> Option<Duration> {
        let is_event = item.key.starts_with(keys::EVENTS) && !self.ttl.is_zero();
        item.expires.or_else(|| is_event.then(|| self.started.saturating_add(self.ttl)))
    }
}

struct EtcdTarget<'a> {
    etcd: &'a EtcdKeys,
    source_revision: u64,
    digest: &'a str,
    options: &'a MigrationOptions,
    report: &'a mut dyn FnMut(MigrationStep),
}

impl EtcdTarget<'_> {
    /// Fails if the target has something else than a part of this migration, or a lower revision. Returns the marker that is there.
    async fn check(&mut self) -> Result<Option<MigrationMarker>, MigrateError> {
        let marker = self.etcd.marker().await?;
        let revision = match &marker {
            Some(marker) => {
                self.check_is_same(marker)?;
                marker.target_revision
            }
            None => {
                let revision = self.etcd.revision().await?;
                if let Some(found) = self.etcd.read_keys(revision).next().await? {
                    let key = keys::below_root(&found.key);
                    let directory = self.etcd.directory();
                    return Err(MigrateError::NotEmpty {
                        key: format!("{}{key}", directory.trim_end_matches('/')),
                        directory,
                    });
                }
                revision
            }
        };
        let (found, wanted) = (revision, self.source_revision);
        if found < wanted && !self.options.allow_revision_rollback {
            if !self.options.advance_revision {
                return Err(MigrateError::RevisionRollback { found, wanted });
            }
            if wanted - found > MAX_ADVANCE {
                return Err(MigrateError::TooFar { found, wanted, limit: MAX_ADVANCE });
            }
        }
        Ok(marker)
    }

    fn check_is_same(&self, marker: &MigrationMarker) -> Result<(), MigrateError> {
        if marker.source_revision == self.source_revision && marker.digest == self.digest {
            return Ok(());
        }
        Err(MigrateError::OtherMigration {
            found: marker.source_revision,
            revision: self.source_revision,
            resume: marker.resume.clone(),
            discard: format!(
                "delete all keys below `{}` and the key `{}`",
                self.etcd.directory(),
                self.etcd.marker_key()
            ),
        })
    }

    /// Raises the revision if needed, and marks the target.
    async fn begin(&mut self, marker: Option<MigrationMarker>) -> Result<(), MigrateError> {
        if marker.is_some() {
            (self.report)(MigrationStep::Resuming);
            return Ok(());
        }
        let mut revision = self.etcd.revision().await?;
        if revision < self.source_revision {
            let (from, to) = (self.source_revision, revision);
            if self.options.advance_revision {
                revision = self.etcd.advance(self.source_revision).await?;
                (self.report)(MigrationStep::Advanced { from: to, to: revision });
            } else {
                (self.report)(MigrationStep::RolledBack { from, to });
            }
        }
        let marker = MigrationMarker {
            source_revision: self.source_revision,
            digest: self.digest.to_owned(),
            target_revision: revision,
            resume: self.options.command.clone(),
        };
        Ok(self.etcd.mark(&marker).await?)
    }

    async fn copy(
        &mut self,
        source: &mut ItemReader<'_>,
        objects: u64,
        time_to_live: &EventTimeToLive,
    ) -> Result<(), MigrateError> {
        let present = self.present().await?;
        let (mut written, mut present_count, mut expired) = (0_u64, 0_u64, 0_u64);
        let mut leases = MinuteLeases::default();
        let mut writes = JoinSet::new();
        while let Some(item) = source.next().await? {
            if present.contains(&item.key) {
                present_count += 1;
                continue;
            }
            let lease = match time_to_live.expires(&item) {
                None => 0,
                Some(time) if time <= now() => {
                    expired += 1;
                    continue;
                }
                Some(time) => leases.lease(self.etcd, time).await?,
            };
            if writes.len() >= WRITES
                && let Some(write) = writes.join_next().await
            {
                stored(write)?;
            }
            let etcd = self.etcd.clone();
            writes.spawn(async move {
                let MigrationItem { key, value, .. } = item;
                let outcome = etcd.put(&key, &value, lease).await;
                (key, outcome)
            });
            written += 1;
            if written.is_multiple_of(REPORT_EVERY) {
                (self.report)(MigrationStep::Copying { objects: written + present_count, of: objects });
            }
        }
        while let Some(write) = writes.join_next().await {
            stored(write)?;
        }
        (self.report)(MigrationStep::Copied { written, present: present_count, expired });
        Ok(())
    }

    /// The keys that an earlier run has written.
    async fn present(&self) -> Result<HashSet<Arc<str>>, MigrateError> {
        let mut reader = self.etcd.read_keys(self.etcd.revision().await?);
        let mut present = HashSet::new();
        while let Some(found) = reader.next().await? {
            present.insert(found.key);
        }
        Ok(present)
    }
}

fn stored(
    write: Result<(Arc<str>, Result<PutOutcome, MigrationError>), tokio::task::JoinError>,
) -> Result<(), MigrateError> {
    let (key, outcome) = write.map_err(|error| MigrateError::Interrupted(error.to_string()))?;
    match outcome {
        Ok(PutOutcome::Stored) => Ok(()),
        Ok(PutOutcome::Occupied) => Err(MigrateError::Occupied(key.to_string())),
        Err(error) => Err(MigrateError::Interrupted(format!("`{key}` cannot be written: {error}"))),
    }
}

/// One lease for up to 1000 keys that expire in the same minute; they live until the end of that minute.
#[derive(Default)]
struct MinuteLeases(HashMap<u64, (i64, u32)>);

impl MinuteLeases {
    const SECONDS: u64 = 60;
    const MAX_KEYS: u32 = 1000;

    async fn lease(&mut self, etcd: &EtcdKeys, expires: Duration) -> Result<i64, MigrateError> {
        let minute = expires.as_secs() / Self::SECONDS + 1;
        if let Some((id, keys)) = self.0.get_mut(&minute).filter(|(_, keys)| *keys < Self::MAX_KEYS) {
            *keys += 1;
            return Ok(*id);
        }
        let seconds = (minute * Self::SECONDS).saturating_sub(now().as_secs()).max(1);
        let id = etcd.grant_lease(seconds).await?;
        self.0.insert(minute, (id, 1));
        Ok(id)
    }
}
