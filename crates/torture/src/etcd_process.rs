//! A member of an etcd cluster.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use conformance::server::free_port;
use conformance::{Problem, Result};
use etcd::EtcdClient;
use grpc::{Channel, ChannelConfig, GrpcEndpoint, Retry};

use crate::process::Process;

/// Time limit of one call of a member.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Size of the file system of a member whose disk can be filled: etcd reserves 128 MiB for its log.
const SMALL_DISK: &str = "size=224m";
/// Bytes that are written at a time to fill a disk.
const FILLER_CHUNK: usize = 1 << 20;
const MAX_FILLER_CHUNKS: usize = 1024;

/// The part of etcd's status that tells which member leads.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct MemberStatus {
    #[prost(message, optional, tag = "1")]
    pub header: Option<MemberHeader>,
    /// The id of the leader; 0 without one.
    #[prost(uint64, tag = "5")]
    pub leader: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct MemberHeader {
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// A message without fields that are of interest here.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct NoFields {}

/// One member. Its process may end and be started again.
#[derive(Debug)]
pub struct EtcdMember {
    name: String,
    program: String,
    folder: PathBuf,
    client: SocketAddr,
    pub peer: SocketAddr,
    pub process: Process,
    /// The data is on a file system of its own, which is unmounted on drop.
    has_own_disk: bool,
}

impl Drop for EtcdMember {
    fn drop(&mut self) {
        self.process.kill();
        if self.has_own_disk {
            let _ = Command::new("umount").arg(self.data()).status();
        }
    }
}

impl EtcdMember {
    /// A member that is not started, with free ports.
    pub fn new(program: &str, name: &str, folder: &Path) -> Result<EtcdMember> {
        let (client, client_guard) = free_port()?;
        let (peer, peer_guard) = free_port()?;
        drop((client_guard, peer_guard));
        Ok(EtcdMember {
            name: name.to_owned(),
            program: program.to_owned(),
            folder: folder.to_owned(),
            client: SocketAddr::from(([127, 0, 0, 1], client)),
            peer: SocketAddr::from(([127, 0, 0, 1], peer)),
            process: Process::default(),
            has_own_disk: false,
        })
    }

    /// The address for clients, without a proxy.
    pub fn client_address(&self) -> SocketAddr {
        self.client
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn data(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Mounts a small file system for the data, before the first start. Needs root.
    pub fn use_small_disk(&mut self) -> Result<()> {
        fs::create_dir_all(self.data()).map_err(|e| Problem::at("a folder", e))?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", SMALL_DISK, "tmpfs"])
            .arg(self.data())
            .output()
            .map_err(|e| Problem::at("cannot run mount", e))?;
        if !mounted.status.success() {
            return Err(Problem::new(String::from_utf8_lossy(&mounted.stderr).trim()));
        }
        self.has_own_disk = true;
        Ok(())
    }

    pub fn has_own_disk(&self) -> bool {
        self.has_own_disk
    }

    /// Writes a file until the disk is full.
    pub fn fill_disk(&self) -> Result<()> {
        use std::io::Write as _;
        let path = self.data().join("filler");
        let mut filler = fs::File::create(path).map_err(|e| Problem::at("the filler", e))?;
        let chunk = vec![0; FILLER_CHUNK];
        for _ in 0..MAX_FILLER_CHUNKS {
            if filler.write_all(&chunk).is_err() {
                return Ok(());
            }
        }
        Err(Problem::new("the disk does not become full"))
    }

    pub fn free_disk(&self) {
        let _ = fs::remove_file(self.data().join("filler"));
    }

    /// Starts the process. `peers` are the names of all members and the URLs that they advertise to each other.
    pub fn start(&mut self, peers: &[(String, String)]) -> Result<()> {
        let url = |address: SocketAddr| format!("http://{address}");
        let own = peers.iter().find(|(name, _)| *name == self.name).map(|(_, url)| url.as_str());
        let own = own.ok_or_else(|| Problem::new("the member is not in its cluster"))?;
        let cluster: Vec<String> = peers.iter().map(|(name, url)| format!("{name}={url}")).collect();
        let mut command = Command::new(&self.program);
        command
            .args(["--name", &self.name])
            .arg("--data-dir")
            .arg(self.data().join("etcd"))
            // A killed process loses nothing that it has written; only a crash of the machine would.
            .args(["--unsafe-no-fsync", "--log-level=warn", "--snapshot-count=2000"])
            .args(["--listen-client-urls", &url(self.client), "--advertise-client-urls", &url(self.client)])
            .args(["--listen-peer-urls", &url(self.peer), "--initial-advertise-peer-urls", own])
            .args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state=new"]);
        let log = self.folder.join(format!("{}.log", self.name));
        self.process.start(&mut command, &log)
    }
}

/// A connection to these addresses that notices silence soon.
pub fn direct_channel(addresses: &[SocketAddr]) -> Result<Channel> {
    let endpoints: std::result::Result<Vec<_>, _> =
        addresses.iter().map(|address| GrpcEndpoint::parse(&format!("http://{address}"), None)).collect();
    let endpoints = endpoints.map_err(|e| Problem::at("an address", e))?;
    Ok(Channel::new(ChannelConfig {
        dial_timeout: Duration::from_secs(2),
        keepalive: Duration::from_secs(1),
        keepalive_timeout: Duration::from_secs(2),
        ..ChannelConfig::new(endpoints)
    }))
}

/// A client without a proxy.
pub fn direct_client(addresses: &[SocketAddr]) -> Result<EtcdClient> {
    Ok(EtcdClient::new(direct_channel(addresses)?, CALL_TIMEOUT))
}

pub async fn member_status(address: SocketAddr) -> Result<MemberStatus> {
    let channel = direct_channel(&[address])?;
    let call = channel.unary(
        "/etcdserverpb.Maintenance/Status",
        &NoFields {},
        Retry::NotSentOnly,
        Duration::from_secs(1),
    );
    call.await.map_err(|e| Problem::at("the status of a member", e))
}

/// Defragments the database of the member at this address, which answers nothing else meanwhile.
pub async fn defragment(address: SocketAddr) -> Result<()> {
    let channel = direct_channel(&[address])?;
    let call = channel.unary(
        "/etcdserverpb.Maintenance/Defragment",
        &NoFields {},
        Retry::NotSentOnly,
        Duration::from_secs(20),
    );
    call.await.map(|_: NoFields| ()).map_err(|e| Problem::at("defragment", e))
}
