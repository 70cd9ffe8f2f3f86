//! etcd as the source: it must not change while it is copied.

use std::time::Duration;

use api::time::Timestamp;
use catalog::encode;
use catalog::keys::IDENTITY_LEASES;
use etcd::EtcdKeys;
use value::Value;

use super::item::{MigrationItem, ServerLease};
use super::{MigrateError, now};

/// A server whose Lease was not renewed for this long has stopped: servers renew their Leases every 10 seconds.
const RENEWED: Duration = Duration::from_secs(25);

/// Fails if one of these keys has not expired: a server refreshes them as long as it runs.
pub(super) async fn check_leases(keys: &EtcdKeys, leases: &[ServerLease]) -> Result<(), MigrateError> {
    for ServerLease { key, lease } in leases {
        if *lease != 0
            && let Some(seconds) = keys.lease_time_to_live(*lease).await?
        {
            return Err(MigrateError::Running(format!(
                "its key `{key}` exists and expires {seconds} seconds after the server ends"
            )));
        }
    }
    Ok(())
}

/// Fails if this is the Lease of an API server that renewed it recently.
pub(super) fn check_identity_lease(item: &MigrationItem) -> Result<(), MigrateError> {
    if !item.key.starts_with(IDENTITY_LEASES) {
        return Ok(());
    }
    let Ok(lease) = encode::parse_body(&item.key, &item.record.body) else { return Ok(()) };
    match renewed_ago(&lease, now()) {
        Some(ago) if ago < RENEWED => Err(MigrateError::Running(format!(
            "its Lease `{}` was renewed {} seconds ago; if the server has just ended, try again in {} seconds",
            item.key,
            ago.as_secs(),
            RENEWED.saturating_sub(ago).as_secs() + 1
        ))),
        _ => Ok(()),
    }
}

/// The time since a Lease was renewed; `None` if it says none. Clocks may differ, so that a time ahead is a recent one.
pub(super) fn renewed_ago(lease: &Value, now: Duration) -> Option<Duration> {
    let renewed = Timestamp::parse_micro(lease.str_at(&["spec", "renewTime"])?).ok()?;
    let renewed = Duration::from_micros(u64::try_from(renewed.micros()).ok()?);
    Some(now.saturating_sub(renewed))
}

/// Fails if a key of the source was written or deleted since `revision`; keys with a lease may have expired. Returns the current
/// revision, which also counts changes of other keys in etcd.
pub(super) async fn check_unchanged(
    keys: &EtcdKeys,
    revision: u64,
    advice: &str,
) -> Result<u64, MigrateError> {
    let current = keys.revision().await?;
    if current == revision {
        return Ok(current);
    }
    let changed = |key: &str, change| MigrateError::SourceChanged {
        revision,
        key: key.to_owned(),
        change,
        advice: advice.to_owned(),
    };
    let (mut before, mut after) = (keys.read_keys(revision), keys.read_keys(current));
    let mut now = after.next().await?;
    while let Some(old) = before.next().await? {
        match &now {
            Some(new) if new.key < old.key => return Err(changed(&new.key, "created")),
            Some(new) if new.key == old.key => {
                if new.revision != old.revision {
                    return Err(changed(&new.key, "changed"));
                }
                now = after.next().await?;
            }
            _ if old.lease == 0 => return Err(changed(&old.key, "deleted")),
            _ => {}
        }
    }
    match now {
        Some(new) => Err(changed(&new.key, "created")),
        None => Ok(current),
    }
}
