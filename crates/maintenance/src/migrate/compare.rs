//! Compares the copy with the source.

use std::time::Duration;

use super::item::{ItemReader, MigrationItem};
use super::tally::StoreTally;
use super::{MigrateError, MigrationStep, now};

/// Reads the source and the target side by side. An object that expires may be missing in the target once its time has come; `expires`
/// is that time for an object of the source. `digest` is that of the whole source.
pub(super) async fn verify(
    source: &mut ItemReader<'_>,
    target: &mut ItemReader<'_>,
    expires: impl Fn(&MigrationItem) -> Option<Duration>,
    digest: &str,
) -> Result<MigrationStep, MigrateError> {
    let (mut in_source, mut in_target) = (StoreTally::default(), StoreTally::default());
    let mut expired = 0_u64;
    let mut copy = target.next().await?;
    while let Some(item) = source.next().await? {
        let found = match copy.take() {
            Some(found) if found.key < item.key => return Err(differs(&found, "only in the copy")),
            Some(found) if found.key > item.key => {
                copy = Some(found);
                None
            }
            found => found,
        };
        let Some(found) = found else {
            if expires(&item).is_none_or(|time| time > now()) {
                return Err(differs(&item, "missing in the copy"));
            }
            expired += 1;
            continue;
        };
        if found.record != item.record {
            return Err(differs(&item, "not equal"));
        }
        in_source.add(&item);
        in_target.add(&found);
        copy = target.next().await?;
    }
    if let Some(found) = copy {
        return Err(differs(&found, "only in the copy"));
    }
    let (source_digest, _) = in_source.finish();
    let (target, resources) = in_target.finish();
    // Without expired objects, the copy must have the digest that the scan has found.
    if target != source_digest || (expired == 0 && target != digest) {
        let source_digest = if expired == 0 { digest.to_owned() } else { source_digest };
        return Err(MigrateError::DigestDiffers { source_digest, target });
    }
    Ok(MigrationStep::Verified { digest: target, resources })
}

fn differs(item: &MigrationItem, how: &'static str) -> MigrateError {
    MigrateError::Differs { key: item.key.to_string(), how }
}
