//! The progress of a migration, as shown to its user.

use std::collections::BTreeMap;
use std::fmt;

/// A completed step; its text has a line per fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationStep {
    /// All objects of the source can be copied.
    Scanned {
        source: String,
        revision: u64,
        objects: u64,
        digest: String,
    },
    /// Keys that are not copied.
    LeftOut {
        key: String,
        why: &'static str,
    },
    /// An earlier run has begun this migration.
    Resuming,
    /// The revision of etcd was raised.
    Advanced {
        from: u64,
        to: u64,
    },
    /// Revisions of the target are lower than those of the source.
    RolledBack {
        from: u64,
        to: u64,
    },
    /// Progress while objects are written.
    Copying {
        objects: u64,
        of: u64,
    },
    Copied {
        written: u64,
        present: u64,
        expired: u64,
    },
    /// The target was read back and is equal.
    Verified {
        digest: String,
        resources: BTreeMap<String, u64>,
    },
    /// The target would be filled, if this were not a dry run.
    Checked {
        target: String,
    },
    Completed {
        target: String,
        revision: u64,
    },
}

impl fmt::Display for MigrationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MigrationStep::Scanned { source, revision, objects, digest } => {
                write!(f, "source: {source}, revision {revision}, {objects} keys, digest {digest}")
            }
            MigrationStep::LeftOut { key, why } => write!(f, "left out: {key} ({why})"),
            MigrationStep::Resuming => write!(f, "resuming an incomplete migration"),
            MigrationStep::Advanced { from, to } => {
                write!(f, "advanced the revision of etcd from {from} to {to}")
            }
            MigrationStep::RolledBack { from, to } => write!(
                f,
                "warning: revisions go back from {from} to {to}; restart all clients and controllers before they use the target"
            ),
            MigrationStep::Copying { objects, of } => write!(f, "copied {objects} of {of} keys"),
            MigrationStep::Copied { written, present, expired } => write!(
                f,
                "copied: {written} keys written, {present} were there already, {expired} had expired"
            ),
            MigrationStep::Verified { digest, resources } => {
                let total: u64 = resources.values().sum();
                write!(f, "verified: {total} keys are equal, digest {digest}")?;
                let width = resources.keys().map(String::len).max().unwrap_or_default();
                resources
                    .iter()
                    .try_for_each(|(resource, count)| write!(f, "\n  {resource:<width$}  {count}"))
            }
            MigrationStep::Checked { target } => {
                write!(f, "dry run: {target} can be the target; nothing was written")
            }
            MigrationStep::Completed { target, revision } => {
                write!(f, "migrated to {target}, revision {revision}")
            }
        }
    }
}
