//! Verifies a [`RunHistory`]: every answer that a client got must agree with what etcd stored, by revision.

mod limits;
mod reads;
#[cfg(test)]
mod tests;
mod watches;
mod writes;

use std::fmt;

use serde::Serialize;

use crate::history::RunHistory;
use crate::timeline::{Bounds, Timeline};

/// A guarantee of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Rule {
    /// An acknowledged write is stored once, at its revision, with its content.
    AcknowledgedWrite,
    /// A write replaces exactly the state that it names or was computed from.
    GuardedWrite,
    /// A refused write is not stored.
    RefusedWrite,
    /// A write without an answer is stored at most once.
    RepeatedWrite,
    /// A write has a higher revision than everything that a client saw before it began.
    WriteOrder,
    /// A conflict, "already exists" or "not found" was true at some moment of the request.
    RefusalReason,
    /// Only the workload's operations change its keys.
    UnexplainedChange,
    /// A read without `resourceVersion` sees a state that was current at some moment of the request.
    ConsistentRead,
    /// A read with `resourceVersion` sees a state that existed and is not older than requested.
    SessionRead,
    /// A watch delivers events in the order of their revisions.
    WatchOrder,
    /// A watch delivers no event twice.
    WatchUnique,
    /// A watch delivers every event between its start and the last one.
    WatchReliable,
    /// A watch that resumes after a revision begins with the first event after it.
    WatchResumable,
    /// An event of a watch is a change in etcd, with its type and content.
    WatchContent,
    /// A bookmark follows all events up to its revision, and none of them follows it.
    WatchBookmark,
    /// No two Services have one cluster IP.
    UniqueClusterIp,
    /// No two Services have one node port.
    UniqueNodePort,
    /// A ResourceQuota is never exceeded.
    Quota,
    /// No stored object violates the static policy.
    StaticPolicy,
    /// Keys that must expire have a lease, and expire.
    Lease,
    /// When the faults have ended, servers become ready, and reads and watches reach the newest state.
    Recovery,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A broken rule, with the moment or revision around which the history explains it.
#[derive(Clone, Debug, Serialize)]
pub struct RuleViolation {
    pub rule: Rule,
    pub message: String,
    pub at: Option<u64>,
    pub revision: Option<u64>,
}

impl fmt::Display for RuleViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.message)
    }
}

/// All violations of all rules except [`Rule::Recovery`], which is checked while the servers run.
pub fn check(history: &RunHistory) -> Vec<RuleViolation> {
    let timeline = Timeline::new(&history.changes);
    let context = Context { bounds: Bounds::new(history), timeline, history };
    let mut violations = Vec::new();
    writes::check(&context, &mut violations);
    reads::check(&context, &mut violations);
    watches::check(&context, &mut violations);
    limits::check(&context, &mut violations);
    violations
}

struct Context<'h> {
    history: &'h RunHistory,
    timeline: Timeline<'h>,
    bounds: Bounds,
}
