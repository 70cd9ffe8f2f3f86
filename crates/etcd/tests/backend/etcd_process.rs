//! An etcd process for the tests.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use etcd::{EtcdBackend, EtcdConfig, ValueCodec};
use grpc::{Channel, ChannelConfig, GrpcEndpoint};
use storage::Record;
use tempfile::TempDir;

/// An etcd member, killed on drop.
pub(crate) struct EtcdProcess {
    child: Child,
    pub(crate) url: String,
    peer_url: String,
    program: String,
    data: TempDir,
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl EtcdProcess {
    /// Starts the program in `PORTCULLIS_ETCD`, or `etcd` of the search path, and waits until it answers. `None` if the variable is
    /// `left-out`: `cargo xtask setup` found no etcd and has reported it.
    pub(crate) async fn start() -> Option<EtcdProcess> {
        let program = std::env::var("PORTCULLIS_ETCD").unwrap_or_else(|_| "etcd".to_owned());
        if program == "left-out" {
            return None;
        }
        // Another process may take a port before etcd does: then etcd ends.
        for _ in 0..5 {
            if let Some(started) = EtcdProcess::spawn(&program).answering().await {
                return Some(started);
            }
        }
        panic!("etcd does not start")
    }

    fn spawn(program: &str) -> EtcdProcess {
        let [url, peer_url] = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
        EtcdProcess::spawn_on(program, tempfile::tempdir().unwrap(), url, peer_url)
    }

    fn spawn_on(program: &str, data: TempDir, client: String, peer: String) -> EtcdProcess {
        let child = Command::new(program)
            .args(["--data-dir", data.path().to_str().unwrap(), "--unsafe-no-fsync", "--log-level=error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{program}` (set PORTCULLIS_ETCD): {error}"));
        EtcdProcess { child, url: client, peer_url: peer, program: program.to_owned(), data }
    }

    /// Ends the process, and starts one with the same addresses that has this data instead.
    pub(crate) async fn replace_data(self, data: TempDir) -> EtcdProcess {
        let (program, url, peer_url) = (self.program.clone(), self.url.clone(), self.peer_url.clone());
        drop(self);
        EtcdProcess::spawn_on(&program, data, url, peer_url).answering().await.unwrap()
    }

    /// Ends the process, copies its data and starts it again. Returns the copy.
    pub(crate) async fn back_up(mut self) -> (EtcdProcess, TempDir) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for target in [&original, &copy] {
            let from = self.data.path().join(".");
            let copied = Command::new("cp").arg("-r").arg(from).arg(target.path()).status().unwrap();
            assert!(copied.success());
        }
        (self.replace_data(original).await, copy)
    }

    /// Waits until this process answers; `None` if it has ended.
    async fn answering(mut self) -> Option<EtcdProcess> {
        let probe = etcd::EtcdClient::new(Channel::new(self.channel()), Duration::from_secs(1));
        let request = etcd::messages::RangeRequest { key: "a".into(), ..Default::default() };
        for _ in 0..1500 {
            let answers = probe.range(&request).await.is_ok();
            if self.child.try_wait().unwrap().is_some() {
                return None;
            }
            if answers {
                return Some(self);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("etcd does not answer")
    }

    pub(crate) fn channel(&self) -> ChannelConfig {
        ChannelConfig::new(vec![GrpcEndpoint::parse(&self.url, None).unwrap()])
    }

    /// Stops the process without ending it: its connections stay open, and it does not answer.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        // Its threads stop one after the other.
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = || {
            let mut tasks =
                std::fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().path().join("status"));
            tasks.all(|status| {
                std::fs::read_to_string(status).is_ok_and(|status| status.contains("State:\tT"))
            })
        };
        let begin = Instant::now();
        while !is_stopped() {
            assert!(begin.elapsed() < Duration::from_secs(10), "the process does not stop");
            std::thread::yield_now();
        }
    }

    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    pub(crate) fn backend(&self) -> EtcdBackend {
        EtcdBackend::new(config(self.channel()))
    }
}

pub(crate) fn config(channel: ChannelConfig) -> EtcdConfig {
    EtcdConfig {
        channel,
        prefix: "/registry".to_owned(),
        store_root: "/registry".to_owned(),
        codec: Arc::new(RecordCodec),
        compaction_interval: Duration::ZERO,
        call_timeout: Duration::from_secs(10),
        lease_reuse: Duration::from_mins(1),
    }
}

/// Stores records as they are: the offset of the revision, the length of the body, the body and the facts.
struct RecordCodec;

impl ValueCodec for RecordCodec {
    fn encode(&self, _: &str, record: &Record) -> Result<Bytes, String> {
        let mut value = BytesMut::new();
        value.put_u32(record.revision_at);
        value.put_u32(u32::try_from(record.body.len()).unwrap());
        value.put(record.body.clone());
        value.put(record.facts.clone());
        Ok(value.freeze())
    }

    fn decode(&self, _: &str, _: u64, value: &Bytes) -> Option<Record> {
        let mut value = value.clone();
        let revision_at = value.get_u32();
        let length = value.get_u32() as usize;
        let body = value.split_to(length);
        Some(Record { body, revision_at, facts: value })
    }
}
