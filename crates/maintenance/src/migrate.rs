//! Copies all data between the embedded store of a stopped server and etcd.
//!
//! A migration has these steps, in both directions; each refuses before anything that the following ones do:
//!
//! 1. **scan**: every object of the source is decoded, converted and hashed. One that cannot be is an error that names its key.
//! 2. **check** the target: it is empty, or has the marker of this migration (same revision and digest of the source).
//! 3. **mark** it: from here on no server starts from it.
//! 4. **copy** what is not there.
//! 5. **verify**: the target is read back and compared with the source, object by object and by digest.
//! 6. **complete**: etcd as the source has not changed; the marker is removed.
//!
//! An end of the process at any moment leaves the source as it was, and the target empty, marked or complete. Objects that expire keep
//! their remaining time. The keys with which servers show that they run are not copied.

mod compare;
mod etcd_source;
mod item;
mod steps;
mod tally;
#[cfg(test)]
mod tests;
mod to_directory;
mod to_etcd;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catalog::etcd_config::{ETCD_CALL_TIMEOUT, EtcdStorage};
use catalog::keys;
use etcd::{EtcdKeys, MigrationError};
use runtime::ConfigError;
use storage::OpenError;
use storage::embedded::ImportError;

use crate::OfflineError;

pub use steps::MigrationStep;

/// The source and the target of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationDirection {
    ToEtcd {
        /// Data directory of a stopped server.
        from: PathBuf,
        to: Box<EtcdStorage>,
    },
    ToDirectory {
        from: Box<EtcdStorage>,
        /// A directory that does not exist or is empty.
        to: PathBuf,
    },
}

/// The flags of `portcullis migrate`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct MigrationOptions {
    /// The command line, which is shown where an incomplete migration is found.
    pub command: String,
    /// Copy to an etcd whose revision is lower than the source's (`--allow-revision-rollback`).
    pub allow_revision_rollback: bool,
    /// Raise the revision of etcd above the source's (`--advance-revision`).
    pub advance_revision: bool,
    /// Leave out keys of unknown resources instead of refusing (`--leave-out-unknown-keys`).
    pub leave_out_unknown: bool,
    /// Time to live in etcd of Events without one in the source (`--event-ttl`); zero for none.
    pub event_ttl: Duration,
    /// Only scan and check (`--dry-run`).
    pub dry_run: bool,
}

/// The reason why a migration failed. The source is as it was.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Offline(#[from] OfflineError),
    #[error("cannot read the source: {0}")]
    Source(OpenError),
    #[error("the store in `{}` has the former format {found}; start and stop this version of Portcullis on it once, which converts it", path.display())]
    FormerFormat { path: PathBuf, found: u32 },
    #[error(transparent)]
    Etcd(#[from] MigrationError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error("there are no objects in the source, {0}: check the flags; nothing is copied")]
    NothingToCopy(String),
    #[error("the object at `{key}` cannot be copied: {why}")]
    Unreadable { key: String, why: String },
    #[error("{}; repair or delete them in the source; nothing was copied", .0.join("\n"))]
    UnreadableObjects(Vec<String>),
    #[error(
        "the key `{0}` in the source is of no resource that this version knows; pass --leave-out-unknown-keys to leave such keys out"
    )]
    UnknownKey(String),
    #[error("a server is using the source: {0}; stop all servers before you migrate")]
    Running(String),
    #[error("the source has changed since revision {revision}: `{key}` was {change}; {advice}")]
    SourceChanged { revision: u64, key: String, change: &'static str, advice: String },
    #[error(
        "the target is not empty: it has the key `{key}`; use another etcd or another --etcd-prefix, or delete all keys below `{directory}`"
    )]
    NotEmpty { key: String, directory: String },
    #[error(
        "the target has an incomplete copy of another state of a source (revision {found}; this source is at {revision}); complete it with `{resume}`, or {discard}"
    )]
    OtherMigration { found: u64, revision: u64, resume: String, discard: String },
    #[error(
        "the revision of etcd, {found}, is lower than the source's, {wanted}: resourceVersions would go back, and clients that continue from one would miss changes. \
         Pass --advance-revision to raise etcd's revision first ({} writes), or --allow-revision-rollback to copy anyway; then restart all clients and controllers, so that \
         they list again", wanted - found
    )]
    RevisionRollback { found: u64, wanted: u64 },
    #[error(
        "the revision of etcd, {found}, is lower than the source's by more than {limit}, too far for --advance-revision. Raise it with `etcdutl snapshot restore --bump-revision {} --mark-compacted`, \
         or pass --allow-revision-rollback and restart all clients and controllers", wanted - found
    )]
    TooFar { found: u64, wanted: u64, limit: u64 },
    #[error(
        "`{0}` was written in the target by another process; delete the target's data and run the command again"
    )]
    Occupied(String),
    #[error(
        "the copy differs from the source: `{key}` is {how}; delete the target's data and run the command again"
    )]
    Differs { key: String, how: &'static str },
    #[error(
        "the digest of the copy is {target}, and that of the source {source_digest}; delete the target's data and run the command again"
    )]
    DigestDiffers { source_digest: String, target: String },
    #[error("{0}; run the same command again to resume")]
    Interrupted(String),
}

/// Copies all data. `report` is called after each step.
pub async fn migrate(
    direction: &MigrationDirection,
    options: &MigrationOptions,
    report: &mut dyn FnMut(MigrationStep),
) -> Result<(), MigrateError> {
    match direction {
        MigrationDirection::ToEtcd { from, to } => to_etcd::migrate(from, to, options, report).await,
        MigrationDirection::ToDirectory { from, to } => {
            to_directory::migrate(from, to, options, report).await
        }
    }
}

async fn open_etcd(config: &EtcdStorage) -> Result<EtcdKeys, MigrateError> {
    let (channel, root) = (config.channel()?, keys::ROOT.trim_end_matches('/'));
    Ok(EtcdKeys::open(channel, ETCD_CALL_TIMEOUT, &config.prefix, root).await?)
}

/// How etcd is named in messages.
fn etcd_name(config: &EtcdStorage, directory: &str) -> String {
    format!("etcd {} below `{directory}`", config.servers.join(","))
}

/// The time since the Unix epoch.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
