//! Three etcd members and several servers, with a proxy on every link between them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use conformance::{Problem, Result};
use tokio::time::Instant;

use crate::etcd_process::{EtcdMember, member_status};
use crate::link::{LinkKind, ProxyLink};
use crate::server_process::{ServerFiles, ServerProcess, wait_until_ready};

pub const MEMBERS: usize = 3;

/// How long the cluster may take to elect its first leader.
const ELECTION: Duration = Duration::from_mins(1);
/// How long a server may take to become ready at the start of a run, in a debug build on a busy machine.
const READY: Duration = Duration::from_secs(90);

/// The processes and links of one run.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Mutex<EtcdMember>>,
    /// The ids of the members in hexadecimal, as their requests to each other name them.
    member_ids: Vec<String>,
    /// The names of the members and the URLs that they advertise to each other.
    peers: Vec<(String, String)>,
    pub peer_links: Vec<ProxyLink>,
    /// By server and member.
    pub client_links: Vec<Vec<ProxyLink>>,
    servers: Vec<Mutex<ServerProcess>>,
    /// Why no disk can be filled, if so.
    pub small_disk: std::result::Result<(), String>,
}

/// The programs and processes of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig<'a> {
    pub etcd: &'a str,
    pub binary: &'a Path,
    pub folder: &'a Path,
    pub servers: usize,
    /// Environment variables of the servers.
    pub environment: &'a [(String, String)],
}

impl Cluster {
    /// Starts the members, waits for a leader, and prepares the servers, which [`Cluster::start_servers`] starts.
    pub async fn start(config: &ClusterConfig<'_>) -> Result<Cluster> {
        let mut members = Vec::new();
        let mut peer_links = Vec::new();
        let mut peers = Vec::new();
        for index in 0..MEMBERS {
            let member = EtcdMember::new(config.etcd, &format!("m{index}"), config.folder)?;
            let link = ProxyLink::open(LinkKind::Peer, member.peer).await?;
            peers.push((member.name().to_owned(), link.url()));
            peer_links.push(link);
            members.push(member);
        }
        let small_disk = members.last_mut().map_or(Ok(()), EtcdMember::use_small_disk);
        for member in &mut members {
            member.start(&peers)?;
        }
        let addresses: Vec<SocketAddr> = members.iter().map(EtcdMember::client_address).collect();
        let member_ids = wait_for_leader(&addresses).await?;
        let files = ServerFiles::write(config.folder)?;
        let mut servers = Vec::new();
        let mut client_links = Vec::new();
        for index in 0..config.servers {
            let mut links = Vec::new();
            for address in &addresses {
                links.push(ProxyLink::open(LinkKind::Client, *address).await?);
            }
            // Every server prefers another member.
            let mut urls: Vec<String> = links.iter().map(ProxyLink::url).collect();
            urls.rotate_left(index % MEMBERS);
            let server = ServerProcess::new(index, config.binary, &files, &urls, config.environment)?;
            servers.push(Mutex::new(server));
            client_links.push(links);
        }
        Ok(Cluster {
            members: members.into_iter().map(Mutex::new).collect(),
            member_ids,
            peers,
            peer_links,
            client_links,
            servers,
            small_disk: small_disk.map_err(|problem| problem.to_string()),
        })
    }

    pub async fn start_servers(&self) -> Result<()> {
        for server in 0..self.servers.len() {
            self.server(server, ServerProcess::start).unwrap_or(Ok(()))?;
        }
        for url in self.server_urls() {
            wait_until_ready(&url, READY).await?;
        }
        Ok(())
    }

    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    pub fn server_urls(&self) -> Vec<String> {
        (0..self.servers.len()).filter_map(|index| self.server(index, |server| server.url())).collect()
    }

    /// Calls a function with a server; `None` if there is none with this index.
    pub fn server<T>(&self, index: usize, run: impl FnOnce(&mut ServerProcess) -> T) -> Option<T> {
        let server = self.servers.get(index)?;
        Some(run(&mut server.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub fn member<T>(&self, index: usize, run: impl FnOnce(&mut EtcdMember) -> T) -> Option<T> {
        let member = self.members.get(index)?;
        Some(run(&mut member.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub fn member_id(&self, index: usize) -> &str {
        self.member_ids.get(index).map_or("", String::as_str)
    }

    /// The addresses of the members for clients, without proxies.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        (0..MEMBERS).filter_map(|index| self.member(index, |member| member.client_address())).collect()
    }

    /// The index of the member that leads; `None` if no member knows one.
    pub async fn leader(&self) -> Option<usize> {
        for address in self.addresses() {
            if let Ok(status) = member_status(address).await
                && status.leader != 0
            {
                let leader = format!("{:x}", status.leader);
                return self.member_ids.iter().position(|id| *id == leader);
            }
        }
        None
    }

    /// Starts a member again.
    pub fn start_member(&self, index: usize) -> Result<()> {
        self.member(index, |member| member.start(&self.peers)).unwrap_or(Ok(()))
    }

    /// Ends all faults of links, resumes all processes, and starts those that have ended.
    pub fn heal(&self) -> Result<()> {
        for link in self.peer_links.iter().chain(self.client_links.iter().flatten()) {
            link.heal();
        }
        for index in 0..MEMBERS {
            let is_running = self.member(index, |member| {
                member.free_disk();
                member.process.resume();
                member.process.is_running()
            });
            if is_running == Some(false) {
                self.start_member(index)?;
            }
        }
        for index in 0..self.servers.len() {
            self.server(index, |server| {
                server.process.resume();
                if server.process.is_running() { Ok(()) } else { server.start() }
            })
            .unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

/// Waits until all members know a leader; returns their ids.
async fn wait_for_leader(addresses: &[SocketAddr]) -> Result<Vec<String>> {
    let deadline = Instant::now() + ELECTION;
    let mut ids = Vec::new();
    for address in addresses {
        let id = loop {
            match member_status(*address).await {
                Ok(status) if status.leader != 0 => break status.header.unwrap_or_default().member_id,
                Ok(_) | Err(_) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok(_) => return Err(Problem::new("the etcd members elect no leader")),
                Err(problem) => return Err(problem),
            }
        };
        ids.push(format!("{id:x}"));
    }
    Ok(ids)
}
