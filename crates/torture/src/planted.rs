//! The bugs that a server built with the feature `planted-bugs` can have, and the rules that they break.

use crate::checker::Rule;
use crate::faults::FaultKind;

/// The environment variable that chooses the bug.
pub const VARIABLE: &str = "PORTCULLIS_PLANTED_BUG";

/// A bug, and how it shows.
#[derive(Clone, Copy, Debug)]
pub struct PlantedBug {
    /// The value of [`VARIABLE`].
    pub name: &'static str,
    /// The faults under which it shows.
    pub faults: &'static [FaultKind],
    /// The rule that the checker must report as broken.
    pub breaks: Rule,
}

pub const PLANTED_BUGS: [PlantedBug; 8] = [
    PlantedBug { name: "skip-freshness", faults: &[FaultKind::ClientDelay], breaks: Rule::ConsistentRead },
    PlantedBug { name: "resume-late", faults: &[FaultKind::ClientReset], breaks: Rule::WatchReliable },
    PlantedBug { name: "retry-write", faults: &[FaultKind::ClientReset], breaks: Rule::RefusedWrite },
    PlantedBug { name: "stale-compare", faults: &[FaultKind::ClientDelay], breaks: Rule::GuardedWrite },
    PlantedBug { name: "lost-lease", faults: &[FaultKind::Compaction], breaks: Rule::Lease },
    PlantedBug { name: "skip-charge", faults: &[FaultKind::ClientDelay], breaks: Rule::Quota },
    PlantedBug { name: "shared-address", faults: &[FaultKind::ClientDelay], breaks: Rule::UniqueClusterIp },
    PlantedBug { name: "lost-ports", faults: &[FaultKind::ClientDelay], breaks: Rule::UniqueNodePort },
];
