//! Leader election with a Lease, by the rules of client-go: at most one process runs the controllers of a cluster.
//!
//! A candidate never compares the times in a Lease with its own clock. It measures, with its own clock, for how long the Lease has not
//! changed; when that exceeds the duration in the Lease, the holder has stopped. So clocks that differ do no harm.
//!
//! INVARIANT: a leader that cannot renew its Lease ends its work before another candidate can begin. It ends at [`RENEW_DEADLINE`] after
//! the start of the last successful renewal, plus [`crate::leadership::STOP_LIMIT`]; others begin at [`LEASE_DURATION`] after they saw that renewal.

use std::time::Duration;

use api::meta;
use api::time::Timestamp;
use tokio::time::Instant;
use tracing::warn;
use value::Value;

/// How long other candidates wait after the last renewal.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long a leader tries to renew before it stops its work.
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Time between two attempts to renew or to acquire the Lease.
pub(crate) const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// The longest duration that this process accepts in the Lease of another one. Components of Kubernetes write 15 seconds and renew every
/// two. Without this limit one write of a Lease could stop all controllers for years.
pub(crate) const MAX_DURATION: Duration = Duration::from_mins(1);
/// Fraction of [`RETRY_PERIOD`] that a candidate adds at random, so that candidates do not try at the same time.
pub(crate) const RETRY_JITTER: f64 = 1.2;

/// A Lease for leader election as this process has observed it.
#[derive(Debug, Default)]
pub(crate) struct ObservedLease {
    /// The content of the Lease, and when this process saw it for the first time.
    seen: Option<(Value, Instant)>,
    /// The holder and duration that were last reported as too long. A holder that renews its Lease every two seconds is reported once.
    reported: Option<(String, Duration)>,
}

impl ObservedLease {
    pub(crate) fn observe(&mut self, lease: Option<&Value>, now: Instant) {
        let spec = lease.map(|lease| lease.at(&["spec"]).cloned().unwrap_or_default());
        match (&self.seen, spec) {
            (Some((known, _)), Some(spec)) if *known == spec => {}
            (_, spec) => {
                if let (Some(lease), Some(spec)) = (lease, &spec)
                    && let Some((holder, duration)) = self.unreported_excess(spec)
                {
                    warn!(
                        lease = meta::name(lease),
                        holder,
                        seconds = duration.as_secs(),
                        limit = MAX_DURATION.as_secs(),
                        "the duration in a Lease of leader election is too long; the Lease expires after the limit. Delete it if its holder does not exist"
                    );
                }
                self.seen = spec.map(|spec| (spec, now));
            }
        }
    }

    /// The holder and the duration of a Lease that is too long, the first time that this holder has this duration.
    fn unreported_excess(&mut self, spec: &Value) -> Option<(&str, Duration)> {
        let duration = duration(spec);
        let holder = spec.str_at(&["holderIdentity"]).unwrap_or_default();
        let is_known = self.reported.as_ref().is_some_and(|known| known.0 == holder && known.1 == duration);
        if duration <= MAX_DURATION || is_known {
            return None;
        }
        let (holder, duration) = self.reported.insert((holder.to_owned(), duration));
        Some((holder, *duration))
    }

    /// The holder of the Lease, unless it has released the Lease or let it expire.
    pub(crate) fn holder(&self, now: Instant) -> Option<&str> {
        let (spec, since) = self.seen.as_ref()?;
        let holder = spec.str_at(&["holderIdentity"]).filter(|holder| !holder.is_empty())?;
        let duration = duration(spec).min(MAX_DURATION);
        (now.saturating_duration_since(*since) < duration).then_some(holder)
    }
}

fn duration(spec: &Value) -> Duration {
    let seconds = spec.int_at(&["leaseDurationSeconds"]).unwrap_or(0);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// A write that makes this process the leader, or keeps it the leader, if it succeeds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ElectionWrite {
    Create(Value),
    /// Has the resourceVersion of the Lease that the decision was made for.
    Update(Value),
}

#[derive(Debug)]
pub(crate) struct Election {
    namespace: &'static str,
    name: &'static str,
    /// Unique among all processes.
    identity: String,
    lease: ObservedLease,
    /// The start of the last write that succeeded, while this process is the leader.
    renewed: Option<Instant>,
}

impl Election {
    pub(crate) fn new(namespace: &'static str, name: &'static str, identity: String) -> Self {
        Election { namespace, name, identity, lease: ObservedLease::default(), renewed: None }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// The write with which this process acquires or renews the Lease; `None` while another process holds it. `wall` is the time to
    /// write into the Lease.
    pub(crate) fn attempt(
        &mut self,
        stored: Option<&Value>,
        now: Instant,
        wall: Timestamp,
    ) -> Option<ElectionWrite> {
        self.lease.observe(stored, now);
        if self.lease.holder(now).is_some_and(|holder| holder != self.identity) {
            self.renewed = None;
            return None;
        }
        let time = wall.micro_time();
        let Some(stored) = stored else {
            let mut lease = Value::map([("apiVersion", "coordination.k8s.io/v1"), ("kind", "Lease")]);
            meta::set(&mut lease, "name", self.name);
            meta::set(&mut lease, "namespace", self.namespace);
            lease.set_at(&["spec", "acquireTime"], time.clone());
            lease.set_at(&["spec", "leaseTransitions"], 0);
            self.hold(&mut lease, time);
            return Some(ElectionWrite::Create(lease));
        };
        let mut lease = stored.clone();
        if lease.str_at(&["spec", "holderIdentity"]) != Some(self.identity.as_str()) {
            let transitions = lease.int_at(&["spec", "leaseTransitions"]).unwrap_or(0);
            lease.set_at(&["spec", "leaseTransitions"], transitions.saturating_add(1));
            lease.set_at(&["spec", "acquireTime"], time.clone());
        }
        self.hold(&mut lease, time);
        Some(ElectionWrite::Update(lease))
    }

    fn hold(&self, lease: &mut Value, time: String) {
        lease.set_at(&["spec", "holderIdentity"], self.identity.as_str());
        lease.set_at(&["spec", "leaseDurationSeconds"], i64::try_from(LEASE_DURATION.as_secs()).unwrap_or(0));
        lease.set_at(&["spec", "renewTime"], time);
    }

    /// Notes that a write of [`Election::attempt`] succeeded. `began` is the time before it was sent.
    pub(crate) fn written(&mut self, began: Instant) {
        self.renewed = Some(began);
    }

    /// When a leader must have renewed the Lease or end its work; `None` if this process is not the leader.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.renewed.map(|renewed| renewed + RENEW_DEADLINE)
    }

    /// Ends the leadership of this process if its deadline has passed.
    pub(crate) fn is_leader(&mut self, now: Instant) -> bool {
        self.renewed = self.renewed.filter(|renewed| now < *renewed + RENEW_DEADLINE);
        self.renewed.is_some()
    }

    /// The Lease to write when the leader has ended its work, so that another candidate can begin at once; `None` if this process
    /// does not hold it.
    pub(crate) fn released(&self, stored: &Value, wall: Timestamp) -> Option<Value> {
        let is_held = stored.str_at(&["spec", "holderIdentity"]) == Some(self.identity.as_str());
        is_held.then(|| {
            let mut lease = stored.clone();
            lease.set_at(&["spec", "holderIdentity"], "");
            lease.set_at(&["spec", "leaseDurationSeconds"], 1);
            lease.set_at(&["spec", "acquireTime"], wall.micro_time());
            lease.set_at(&["spec", "renewTime"], wall.micro_time());
            lease
        })
    }
}

#[cfg(test)]
mod tests;
