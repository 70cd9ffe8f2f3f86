//! Runs groups of controllers only while this process leads, and while no other component that leads covers them.

use std::time::Duration;

use api::Status;
use api::time::Timestamp;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};
use value::Value;

use crate::election::{Election, ElectionWrite, ObservedLease, RENEW_DEADLINE, RETRY_JITTER, RETRY_PERIOD};

/// How long a group has to finish its current work before it is aborted.
///
/// Less than the time between the deadline of a leader and the moment when another candidate can begin.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(4);
/// How long a process that stops tries to release the Lease.
const RELEASE_LIMIT: Duration = Duration::from_secs(4);
const RELEASE_RETRY: Duration = Duration::from_millis(100);

/// Access to the Leases of one namespace, and what an election reports.
pub trait LeaseApi: Send + Sync + 'static {
    /// May be stale: a write based on it then fails with a conflict.
    fn get(&self, name: &str) -> Result<Option<Value>, Status>;

    fn create(&self, lease: &Value) -> impl Future<Output = Result<Value, Status>> + Send;

    /// Fails with a conflict if the Lease has another resourceVersion.
    fn update(&self, lease: &Value) -> impl Future<Output = Result<Value, Status>> + Send;

    /// The time to write into Leases.
    fn wall_time(&self) -> Timestamp;

    /// A random number in `0.0..1.0`.
    fn jitter(&self) -> f64;

    /// This process has become the leader, or has stopped leading, by this Lease.
    fn report(&self, lease: &Value, identity: &str, is_leader: bool) -> impl Future<Output = ()> + Send;
}

/// Starts the controllers of a group. They end when the receiver becomes true; the handle completes when their work has ended.
pub type StartGroup = Box<dyn Fn(watch::Receiver<bool>) -> JoinHandle<()> + Send>;

/// Controllers that start and stop together.
pub struct ControllerGroup {
    /// The name of the group in log lines.
    pub name: &'static str,
    /// The Lease of the component of Kubernetes that has the same controllers. While that component leads, the group does not run.
    pub component_lease: &'static str,
    pub start: StartGroup,
}

impl std::fmt::Debug for ControllerGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerGroup").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The candidate for the leadership of the controllers of a cluster.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub namespace: &'static str,
    pub lease: &'static str,
    /// Unique among all processes.
    pub identity: String,
}

/// Runs the groups until `stop` becomes true. Without a candidate this process is the only one, and always leads.
pub async fn lead<L: LeaseApi>(
    leases: L,
    candidate: Option<Candidate>,
    groups: Vec<ControllerGroup>,
    mut stop: watch::Receiver<bool>,
) {
    let election = candidate.map(|own| Election::new(own.namespace, own.lease, own.identity));
    let groups = groups.into_iter();
    let groups = groups.map(|group| RunningGroup { group, lease: ObservedLease::default(), running: None });
    let mut leadership = Leadership { leases, election, groups: groups.collect(), was_leader: false };
    while !*stop.borrow() {
        let is_leader = leadership.renew().await;
        leadership.apply(is_leader).await;
        tokio::select! {
            () = sleep(leadership.pause()) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    leadership.apply(false).await;
    leadership.release().await;
}

struct Leadership<L> {
    leases: L,
    /// `None` if this process has no competitors.
    election: Option<Election>,
    groups: Vec<RunningGroup>,
    was_leader: bool,
}

struct RunningGroup {
    group: ControllerGroup,
    /// The Lease of the component of Kubernetes with the same controllers.
    lease: ObservedLease,
    running: Option<(watch::Sender<bool>, JoinHandle<()>)>,
}

impl<L: LeaseApi> Leadership<L> {
    /// Acquires or renews the Lease. Returns whether this process leads now.
    async fn renew(&mut self) -> bool {
        let Some(election) = &mut self.election else { return true };
        // A renewal that takes longer does not keep the leadership.
        let deadline = election.deadline().unwrap_or_else(|| Instant::now() + RENEW_DEADLINE);
        match timeout_at(deadline, attempt(&self.leases, election)).await {
            Ok(Ok(())) => {}
            // Another candidate was faster, or the Lease that was read is outdated.
            Ok(Err(error)) if error.code() == 409 => {}
            Ok(Err(error)) => {
                warn!(
                    lease = election.name(),
                    error = error.message(),
                    "cannot write the Lease of leader election; retrying. The leader stops its controllers if it cannot renew the Lease"
                );
            }
            Err(_) => {
                warn!(lease = election.name(), "cannot write the Lease of leader election in time; retrying");
            }
        }
        election.is_leader(Instant::now())
    }

    /// Starts and stops the groups, and reports a change of the leader.
    async fn apply(&mut self, is_leader: bool) {
        let mut ending = JoinSet::new();
        for group in &mut self.groups {
            let other = self.leases.get(group.group.component_lease);
            // A Lease that cannot be read may be held.
            let is_covered = match &other {
                Ok(lease) => {
                    group.lease.observe(lease.as_ref(), Instant::now());
                    group.lease.holder(Instant::now()).is_some()
                }
                Err(_) => true,
            };
            match (is_leader && !is_covered, &group.running) {
                (true, None) => group.start(),
                (false, Some(_)) => {
                    info!(
                        group = group.group.name,
                        is_leader,
                        runs_elsewhere = is_covered,
                        "stopping a group of controllers, because another process leads or runs it"
                    );
                    ending.extend(group.running.take().map(end));
                }
                _ => {}
            }
        }
        while ending.join_next().await.is_some() {}
        let before = std::mem::replace(&mut self.was_leader, is_leader);
        let Some(election) = self.election.as_ref().filter(|_| before != is_leader) else { return };
        let (lease, identity) = (election.name(), election.identity());
        if is_leader {
            info!(lease, identity, "this server became the leader");
        } else {
            info!(lease, identity, "this server is no longer the leader");
        }
        if let Ok(Some(lease)) = self.leases.get(election.name()) {
            self.leases.report(&lease, election.identity(), is_leader).await;
        }
    }

    /// Time until the next attempt.
    fn pause(&self) -> Duration {
        let jitter = if self.was_leader { 0.0 } else { RETRY_JITTER * self.leases.jitter() };
        RETRY_PERIOD.mul_f64(1.0 + jitter)
    }

    /// Gives the Lease up, so that another candidate need not wait until it expires.
    async fn release(&mut self) {
        let Some(election) = &self.election else { return };
        let released = timeout(RELEASE_LIMIT, async {
            loop {
                let lease = self.leases.get(election.name())?;
                let wall = self.leases.wall_time();
                let Some(lease) = lease.and_then(|lease| election.released(&lease, wall)) else {
                    return Ok(());
                };
                match self.leases.update(&lease).await {
                    // The Lease in memory is older than the last renewal.
                    Err(status) if status.code() == 409 => sleep(RELEASE_RETRY).await,
                    written => return written.map(drop),
                }
            }
        });
        match released.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(
                    lease = election.name(),
                    error = error.message(),
                    "cannot release the Lease; it expires in 15 seconds"
                );
            }
            Err(_) => {
                warn!(lease = election.name(), "cannot release the Lease in time; it expires in 15 seconds");
            }
        }
    }
}

impl RunningGroup {
    fn start(&mut self) {
        info!(group = self.group.name, "starting a group of controllers");
        let (stop, stopped) = watch::channel(false);
        self.running = Some((stop, (self.group.start)(stopped)));
    }
}

/// Ends a group: its controllers finish their current work, or are aborted after [`STOP_LIMIT`].
async fn end((stop, mut group): (watch::Sender<bool>, JoinHandle<()>)) {
    let _ = stop.send(true);
    if timeout(STOP_LIMIT, &mut group).await.is_err() {
        group.abort();
        let _ = group.await;
    }
}

/// One attempt to acquire or renew the Lease.
async fn attempt(leases: &impl LeaseApi, election: &mut Election) -> Result<(), Status> {
    let stored = leases.get(election.name())?;
    let began = Instant::now();
    match election.attempt(stored.as_ref(), began, leases.wall_time()) {
        Some(ElectionWrite::Create(lease)) => leases.create(&lease).await?,
        Some(ElectionWrite::Update(lease)) => leases.update(&lease).await?,
        None => return Ok(()),
    };
    election.written(began);
    Ok(())
}

#[cfg(test)]
mod tests;
