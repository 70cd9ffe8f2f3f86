//! Bugs that a build with the feature `planted-bugs` has if the environment variable `PORTCULLIS_PLANTED_BUG` names them, so that
//! `cargo xtask torture etcd --planted` can show that it finds them.

use std::sync::OnceLock;

#[cfg(not(debug_assertions))]
compile_error!(
    "the feature `planted-bugs` is for `cargo xtask torture etcd --planted`, never for a release build"
);

/// A consistent read does not wait for the newest revision.
pub const SKIP_FRESHNESS: &str = "skip-freshness";
/// A watch that resumes skips the first revision.
pub const RESUME_LATE: &str = "resume-late";
/// A write whose answer was lost is sent again.
pub const RETRY_WRITE: &str = "retry-write";
/// A write does not compare the revision that it replaces.
pub const STALE_COMPARE: &str = "stale-compare";
/// A key with a time to live is written without a lease.
pub const LOST_LEASE: &str = "lost-lease";

/// A request is checked against its quotas and not charged.
pub const SKIP_CHARGE: &str = "skip-charge";
/// A cluster IP that is allocated to another Service counts as free.
pub const SHARED_ADDRESS: &str = "shared-address";
/// The node ports that a Service takes are not stored.
pub const LOST_PORTS: &str = "lost-ports";

/// True if the environment variable names this bug.
pub fn is_planted(bug: &str) -> bool {
    static PLANTED: OnceLock<Option<String>> = OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("PORTCULLIS_PLANTED_BUG").ok());
    planted.as_deref() == Some(bug)
}
