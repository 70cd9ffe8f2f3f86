//! From etcd to the embedded store.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use catalog::etcd_config::EtcdStorage;
use catalog::etcd_values::KubernetesValues;
use storage::MigrationMarker;
use storage::backend::StoredRecord;
use storage::embedded::{ExpiringRecord, ImportDirectory, StoreImport};

use super::compare::verify;
use super::etcd_source::{check_identity_lease, check_leases, check_unchanged};
use super::item::{ItemReader, MigrationItem};
use super::to_etcd::scan;
use super::{MigrateError, MigrationOptions, MigrationStep, etcd_name, now, open_etcd};

pub(super) async fn migrate(
    from: &EtcdStorage,
    to: &Path,
    options: &MigrationOptions,
    report: &mut dyn FnMut(MigrationStep),
) -> Result<(), MigrateError> {
    ImportDirectory::check(to)?;
    // A directory without a store is created after the scan, so that a refused migration leaves nothing behind.
    let begun = if storage::is_store(to) { Some(ImportDirectory::lock(to)?) } else { None };
    let marker = begun.as_ref().and_then(|begun| begun.marker().cloned());

    let etcd = open_etcd(from).await?;
    let source = etcd_name(from, &etcd.directory());
    if let Some(MigrationMarker { resume, .. }) = etcd.marker().await? {
        let location = format!("the source, {source},");
        return Err(MigrateError::Source(storage::OpenError::IncompleteMigration { location, resume }));
    }
    let revision = match &marker {
        Some(marker) => marker.source_revision,
        None => etcd.revision().await?,
    };
    let codec = KubernetesValues::default();
    let read = || ItemReader::of_etcd(&etcd, revision, &codec, options.leave_out_unknown);

    let mut reader = read();
    let mut revisions = Renumbering::new(revision);
    let scanned = scan(&mut reader, |item| {
        revisions.add(item);
        if marker.is_none() { check_identity_lease(item) } else { Ok(()) }
    });
    let scanned = scanned.await?;
    check_leases(&etcd, &reader.server_leases).await?;
    let objects = scanned.objects();
    let (digest, _) = scanned.finish();
    if objects == 0 {
        return Err(MigrateError::NothingToCopy(source));
    }
    report(MigrationStep::Scanned { source, revision, objects, digest: digest.clone() });
    reader.report_left_out(report);

    let advice = format!("stop all servers, remove `{}` and run the command again", to.display());
    if let Some(marker) = &marker {
        check_is_same(marker, revision, &digest, to)?;
        check_unchanged(&etcd, revision, &advice).await?;
        report(MigrationStep::Resuming);
    }
    if options.dry_run {
        report(MigrationStep::Checked { target: format!("the directory `{}`", to.display()) });
        return Ok(());
    }
    let marker = marker.unwrap_or_else(|| MigrationMarker {
        source_revision: revision,
        digest: digest.clone(),
        target_revision: 0,
        resume: options.command.clone(),
    });
    let begun = match begun {
        Some(begun) => begun,
        None => ImportDirectory::lock(to)?,
    };
    let mut import = begun.open(&marker)?;
    report(copy(&mut read(), &mut import, &revisions).await?);
    let mut copy = ItemReader::of_import(import.entries()?, &codec);
    let verified = verify(&mut read(), &mut copy, |item| item.expires, &digest).await?;
    drop(copy);
    report(verified);

    let current = check_unchanged(&etcd, revision, &advice).await?;
    // Above every revision that a client can have seen: one that continues from an older revision gets 410 and lists again.
    let revision = current.max(revisions.last) + 1;
    import.complete(revision)?;
    report(MigrationStep::Completed { target: format!("the directory `{}`", to.display()), revision });
    Ok(())
}

fn check_is_same(
    marker: &MigrationMarker,
    revision: u64,
    digest: &str,
    to: &Path,
) -> Result<(), MigrateError> {
    if marker.digest == digest {
        return Ok(());
    }
    Err(MigrateError::OtherMigration {
        found: marker.source_revision,
        revision,
        resume: marker.resume.clone(),
        discard: format!("remove the directory `{}`", to.display()),
    })
}

async fn copy(
    source: &mut ItemReader<'_>,
    import: &mut StoreImport,
    revisions: &Renumbering,
) -> Result<MigrationStep, MigrateError> {
    let (mut written, mut present, mut expired) = (0, 0, 0);
    while let Some(item) = source.next().await? {
        if import.contains(&item.key) {
            present += 1;
        } else if item.expires.is_some_and(|time| time <= now()) {
            expired += 1;
        } else {
            let revision = revisions.of(&item);
            let MigrationItem { key, created, record, expires, .. } = item;
            import
                .put(ExpiringRecord { stored: StoredRecord { key, revision, created, record }, expires })?;
            written += 1;
        }
    }
    import.flush()?;
    Ok(MigrationStep::Copied { written, present, expired })
}

/// Assigns the revisions in the embedded store, which has one object per revision. An object keeps its revision in etcd. If one
/// transaction of etcd wrote several objects, which API servers do not do, all but the first get revisions after the last one in use.
struct Renumbering {
    seen: HashSet<u64>,
    new: HashMap<Arc<str>, u64>,
    /// The last revision in use.
    last: u64,
}

impl Renumbering {
    fn new(revision: u64) -> Self {
        Renumbering { seen: HashSet::new(), new: HashMap::new(), last: revision }
    }

    fn add(&mut self, item: &MigrationItem) {
        if !self.seen.insert(item.revision) {
            self.last += 1;
            self.new.insert(Arc::clone(&item.key), self.last);
        }
    }

    fn of(&self, item: &MigrationItem) -> u64 {
        self.new.get(&item.key).copied().unwrap_or(item.revision)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use storage::Record;

    use super::{MigrationItem, Renumbering};

    fn item(key: &str, revision: u64) -> MigrationItem {
        MigrationItem {
            key: Arc::from(key),
            resource: String::new(),
            created: revision,
            revision,
            record: Record { body: Bytes::new(), revision_at: 0, facts: Bytes::new() },
            value: Bytes::new(),
            expires: None,
        }
    }

    #[test]
    fn only_objects_that_share_a_revision_get_a_new_one() {
        let mut revisions = Renumbering::new(10);
        let items = [item("a", 3), item("b", 5), item("c", 3), item("d", 3)];
        for item in &items {
            revisions.add(item);
        }
        assert_eq!(items.each_ref().map(|item| revisions.of(item)), [3, 5, 11, 12]);
        assert_eq!(revisions.last, 12);
    }
}
