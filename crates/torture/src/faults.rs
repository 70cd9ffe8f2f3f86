//! Faults: which kinds there are, which one comes next, and how it is injected.

use std::time::Duration;

use conformance::Result;
use conformance::random::Dice;

use crate::cluster::{Cluster, MEMBERS};
use crate::etcd_process::defragment;
use crate::link::{Flow, LinkFault, ProxyLink};
use crate::recorder::Recorder;
use crate::server_process::ServerProcess;

/// How long the recorder may take to catch up before a compaction.
const RECORDED: Duration = Duration::from_secs(30);
/// Interval of repeated resets.
const RESET_EVERY: Duration = Duration::from_millis(250);

/// A kind of fault. Client links are between a server and a member, peer links between members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    ClientDelay,
    ClientBlackhole,
    /// Requests arrive and answers do not, or the reverse.
    ClientHalfOpen,
    ClientReset,
    PeerDelay,
    /// One member is cut off from the others.
    PeerBlackhole,
    /// One member sends and does not receive, or the reverse.
    PeerHalfOpen,
    PeerReset,
    MemberPause,
    MemberKill,
    ServerPause,
    ServerKill,
    Compaction,
    /// The events that a server misses meanwhile are compacted.
    CompactionWhileCutOff,
    Defragment,
    DiskFull,
}

impl FaultKind {
    pub const ALL: [FaultKind; 16] = [
        FaultKind::ClientDelay,
        FaultKind::ClientBlackhole,
        FaultKind::ClientHalfOpen,
        FaultKind::ClientReset,
        FaultKind::PeerDelay,
        FaultKind::PeerBlackhole,
        FaultKind::PeerHalfOpen,
        FaultKind::PeerReset,
        FaultKind::MemberPause,
        FaultKind::MemberKill,
        FaultKind::ServerPause,
        FaultKind::ServerKill,
        FaultKind::Compaction,
        FaultKind::CompactionWhileCutOff,
        FaultKind::Defragment,
        FaultKind::DiskFull,
    ];

    fn has_member(self) -> bool {
        !matches!(
            self,
            FaultKind::ServerPause
                | FaultKind::ServerKill
                | FaultKind::Compaction
                | FaultKind::CompactionWhileCutOff
                | FaultKind::DiskFull
        )
    }
}

/// How long faults last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultLengths {
    /// At most 3.5 seconds.
    Short,
    /// One fault in eight lasts 5 to 60 seconds: longer than the timeouts of calls, leases, elections and address claims.
    Mixed,
}

impl FaultLengths {
    fn next(self, dice: &mut Dice) -> Duration {
        let short = Duration::from_millis(500 + dice.roll(4) * 1000);
        match self {
            FaultLengths::Mixed if dice.roll(8) == 0 => Duration::from_secs(5 + dice.roll(56)),
            _ => short,
        }
    }
}

/// One fault with its target and duration.
#[derive(Clone, Debug)]
pub struct InjectedFault {
    pub kind: FaultKind,
    /// The member that leads when the fault begins, instead of `member`.
    is_at_leader: bool,
    member: usize,
    server: usize,
    /// All links of the server, instead of the one to the member; or the second of two directions.
    is_wide: bool,
    /// Connections are reset when the fault ends, so that what they held back is lost.
    ends_with_reset: bool,
    time: Duration,
}

impl InjectedFault {
    /// The next fault of a schedule.
    pub fn next(dice: &mut Dice, kind: FaultKind, servers: usize, lengths: FaultLengths) -> InjectedFault {
        InjectedFault {
            kind,
            is_at_leader: kind.has_member() && dice.roll(2) == 0,
            member: dice.index(MEMBERS),
            server: dice.index(servers),
            is_wide: dice.roll(2) == 0,
            ends_with_reset: dice.roll(2) == 0,
            time: lengths.next(dice),
        }
    }

    /// Injects the fault, waits, and ends it.
    pub async fn inject(&self, cluster: &Cluster, recorder: &Recorder) -> Result<()> {
        let mut member = self.member;
        if self.is_at_leader {
            member = cluster.leader().await.unwrap_or(member);
        }
        match self.kind {
            FaultKind::ClientDelay
            | FaultKind::ClientBlackhole
            | FaultKind::ClientHalfOpen
            | FaultKind::ClientReset => self.client_fault(cluster, member).await,
            FaultKind::PeerDelay
            | FaultKind::PeerBlackhole
            | FaultKind::PeerHalfOpen
            | FaultKind::PeerReset => self.peer_fault(cluster, member).await,
            FaultKind::MemberPause => {
                cluster.member(member, |member| member.process.pause());
                tokio::time::sleep(self.time).await;
                cluster.member(member, |member| member.process.resume());
            }
            FaultKind::MemberKill => {
                cluster.member(member, |member| member.process.kill());
                tokio::time::sleep(self.time).await;
                cluster.start_member(member)?;
            }
            FaultKind::ServerPause => {
                cluster.server(self.server, |server| server.process.pause());
                tokio::time::sleep(self.time).await;
                cluster.server(self.server, |server| server.process.resume());
            }
            FaultKind::ServerKill => {
                cluster.server(self.server, |server| server.process.kill());
                tokio::time::sleep(self.time / 4).await;
                cluster.server(self.server, ServerProcess::start).unwrap_or(Ok(()))?;
                tokio::time::sleep(self.time).await;
            }
            FaultKind::Compaction => {
                compact(recorder).await?;
                tokio::time::sleep(self.time / 4).await;
            }
            FaultKind::CompactionWhileCutOff => {
                let links = cluster.client_links.get(self.server).map_or(&[][..], Vec::as_slice);
                for link in links {
                    link.set(LinkFault::both(Flow::Hold));
                }
                tokio::time::sleep(self.time).await;
                compact(recorder).await?;
                for link in links {
                    link.reset();
                    link.heal();
                }
            }
            FaultKind::Defragment => {
                if let Some(address) = cluster.addresses().get(member) {
                    // A member that another fault has stopped cannot be defragmented.
                    let _ = defragment(*address).await;
                }
            }
            FaultKind::DiskFull => fill_disk(cluster, self.time).await?,
        }
        Ok(())
    }

    /// The delay of bytes on a link: a part of the duration, so that some arrive meanwhile.
    fn delay(&self) -> Flow {
        Flow::Delay(self.time / 20)
    }

    async fn client_fault(&self, cluster: &Cluster, member: usize) {
        let all = cluster.client_links.get(self.server).map_or(&[][..], Vec::as_slice);
        let links: Vec<&ProxyLink> = all
            .iter()
            .enumerate()
            .filter(|(index, _)| self.is_wide || *index == member)
            .map(|(_, link)| link)
            .collect();
        let delay = self.delay();
        let fault = match self.kind {
            FaultKind::ClientBlackhole => LinkFault::both(Flow::Hold),
            FaultKind::ClientHalfOpen if self.time.as_secs().is_multiple_of(2) => {
                LinkFault { to_target: Flow::Pass, to_client: Flow::Hold }
            }
            FaultKind::ClientHalfOpen => LinkFault { to_target: Flow::Hold, to_client: Flow::Pass },
            // Answers are under way when the connection is reset.
            FaultKind::ClientReset => LinkFault { to_target: Flow::Pass, to_client: delay },
            _ => LinkFault::both(delay),
        };
        for link in &links {
            link.set(fault);
        }
        if self.kind == FaultKind::ClientReset {
            self.repeat_resets(&links).await;
        } else {
            tokio::time::sleep(self.time).await;
        }
        for link in links {
            if self.ends_with_reset {
                link.reset();
            }
            link.heal();
        }
    }

    async fn peer_fault(&self, cluster: &Cluster, member: usize) {
        let Some(own) = cluster.peer_links.get(member) else { return };
        let others = cluster.peer_links.iter().enumerate().filter(|(index, _)| *index != member);
        // Bytes that the member receives: to it on connections that others opened, and back to it on its own.
        let (receives, sends) = match self.kind {
            FaultKind::PeerDelay => (self.delay(), self.delay()),
            FaultKind::PeerBlackhole => (Flow::Hold, Flow::Hold),
            FaultKind::PeerHalfOpen if self.is_wide => (Flow::Hold, Flow::Pass),
            FaultKind::PeerHalfOpen => (Flow::Pass, Flow::Hold),
            _ => (Flow::Pass, Flow::Pass),
        };
        for (index, link) in others {
            own.set_from(cluster.member_id(index), LinkFault { to_target: receives, to_client: sends });
            link.set_from(cluster.member_id(member), LinkFault { to_target: sends, to_client: receives });
        }
        let links: Vec<&ProxyLink> = cluster.peer_links.iter().collect();
        if self.kind == FaultKind::PeerReset {
            self.repeat_resets(&[own]).await;
        } else {
            tokio::time::sleep(self.time).await;
        }
        for link in links {
            link.heal();
        }
        if self.ends_with_reset {
            own.reset();
        }
    }

    async fn repeat_resets(&self, links: &[&ProxyLink]) {
        let mut left = self.time;
        while left > Duration::ZERO {
            tokio::time::sleep(RESET_EVERY).await;
            for link in links {
                link.reset();
            }
            left = left.saturating_sub(RESET_EVERY);
        }
    }
}

/// Compacts to the current revision, after the recorder has everything up to it.
async fn compact(recorder: &Recorder) -> Result<()> {
    let revision = recorder.catch_up(RECORDED).await?;
    // A compaction that fails, for example without a leader, is no problem.
    let _ = recorder.client().compact(i64::try_from(revision).unwrap_or(i64::MAX)).await;
    Ok(())
}

/// Fills the disk of the member that has one of its own. The member ends when it cannot write, and is started again with free space.
async fn fill_disk(cluster: &Cluster, time: Duration) -> Result<()> {
    let with_disk = |index: &usize| cluster.member(*index, |member| member.has_own_disk()) == Some(true);
    let Some(index) = (0..MEMBERS).find(with_disk) else { return Ok(()) };
    cluster.member(index, |member| member.fill_disk()).unwrap_or(Ok(()))?;
    tokio::time::sleep(time.max(Duration::from_secs(2))).await;
    let is_running = cluster.member(index, |member| {
        member.free_disk();
        member.process.is_running()
    });
    if is_running == Some(false) {
        cluster.start_member(index)?;
    }
    Ok(())
}
