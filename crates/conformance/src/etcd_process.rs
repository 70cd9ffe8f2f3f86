//! An etcd process for the suites that need one, and access to its keys.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::server::free_port;
use crate::{Problem, Result};

/// The time limit for the start; generous, because test machines are busy.
const READY: Duration = Duration::from_mins(1);
/// Starts, each with other ports: another process may take a port before etcd does.
const STARTS: usize = 5;

/// The etcd of the tests: `PORTCULLIS_ETCD`, or `etcd` of the search path. `None`, with a message, if the variable is `left-out`:
/// `cargo xtask setup` found no etcd and has reported it.
pub fn etcd_program() -> Option<String> {
    let program = std::env::var("PORTCULLIS_ETCD").unwrap_or_else(|_| "etcd".to_owned());
    if program == "left-out" {
        println!("left out: there is no etcd");
        return None;
    }
    Some(program)
}

/// An etcd member, killed when dropped.
#[derive(Debug)]
pub struct EtcdProcess {
    child: Child,
    /// The base URL, `http://127.0.0.1:PORT`.
    pub url: String,
    address: String,
    program: String,
    /// The arguments besides the data directory.
    arguments: Vec<String>,
    data: TempDir,
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a member writes to disk before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    Synced,
    NotSynced,
}

impl EtcdProcess {
    /// Starts a cluster of one member, which does not sync its writes, and waits until it answers; `None` if tests with etcd are left
    /// out.
    pub async fn start() -> Result<Option<EtcdProcess>> {
        let started = EtcdProcess::start_cluster(1, Durability::NotSynced).await?;
        Ok(started.and_then(|mut members| members.pop()))
    }

    /// Starts a cluster of members that sync their writes, and waits until all answer; `None` if tests with etcd are left out.
    pub async fn start_members(count: usize) -> Result<Option<Vec<EtcdProcess>>> {
        EtcdProcess::start_cluster(count, Durability::Synced).await
    }

    async fn start_cluster(count: usize, durability: Durability) -> Result<Option<Vec<EtcdProcess>>> {
        let Some(program) = etcd_program() else { return Ok(None) };
        'starts: for _ in 0..STARTS {
            let mut members = Vec::with_capacity(count);
            for member in EtcdProcess::spawn(&program, count, durability)? {
                match member.answering().await? {
                    Some(member) => members.push(member),
                    None => continue 'starts,
                }
            }
            return Ok(Some(members));
        }
        Err(Problem::new("etcd ends at its start"))
    }

    fn spawn(program: &str, count: usize, durability: Durability) -> Result<Vec<EtcdProcess>> {
        let mut ports = Vec::with_capacity(count);
        for _ in 0..count {
            ports.push((free_port()?, free_port()?));
        }
        let names: Vec<(String, String)> = ports
            .iter()
            .enumerate()
            .map(|(number, (_, (peer, _)))| (format!("member-{number}"), format!("http://127.0.0.1:{peer}")))
            .collect();
        let cluster: Vec<String> = names.iter().map(|(name, peer)| format!("{name}={peer}")).collect();
        let cluster = cluster.join(",");
        let addresses: Vec<String> =
            ports.iter().map(|((client, _), _)| format!("127.0.0.1:{client}")).collect();
        drop(ports);
        let spawn = |((name, peer), address): (&(String, String), String)| {
            let url = format!("http://{address}");
            let mut arguments = vec![
                "--log-level=error".to_owned(),
                format!("--name={name}"),
                format!("--listen-client-urls={url}"),
                format!("--advertise-client-urls={url}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster={cluster}"),
            ];
            if durability == Durability::NotSynced {
                arguments.push("--unsafe-no-fsync".to_owned());
            }
            let data = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
            let child = spawn_on(program, &arguments, &data)?;
            Ok(EtcdProcess { child, url, address, program: program.to_owned(), arguments, data })
        };
        names.iter().zip(addresses).map(spawn).collect()
    }

    /// Ends the process, and starts one with the same addresses that has this data instead.
    pub async fn replace_data(mut self, data: TempDir) -> Result<EtcdProcess> {
        self.end();
        self.child = spawn_on(&self.program, &self.arguments, &data)?;
        self.data = data;
        self.answering().await?.ok_or_else(|| Problem::new("etcd ends at its start"))
    }

    /// Ends the process, copies its data and starts it again. Returns the copy.
    pub async fn back_up(mut self) -> Result<(EtcdProcess, TempDir)> {
        self.end();
        let folder = || TempDir::new().map_err(|e| Problem::at("a folder", e));
        let (original, copy) = (folder()?, folder()?);
        for target in [&original, &copy] {
            let from = self.data.path().join(".");
            let copied = Command::new("cp").arg("-r").arg(from).arg(target.path()).status();
            if !copied.map_err(|e| Problem::at("cannot run cp", e))?.success() {
                return Err(Problem::new("cannot copy the data of etcd"));
            }
        }
        Ok((self.replace_data(original).await?, copy))
    }

    /// Stops the process without ending it: its connections stay open, and it does not answer.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")?;
        // Its threads stop one after the other.
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = || -> Result<bool> {
            let tasks = std::fs::read_dir(&tasks).map_err(|e| Problem::at(&tasks, e))?;
            let mut paths = tasks.flatten().map(|task| task.path().join("status"));
            Ok(paths.all(|status| {
                std::fs::read_to_string(status).is_ok_and(|status| status.contains("State:\tT"))
            }))
        };
        let begin = Instant::now();
        while !is_stopped()? {
            if begin.elapsed() > Duration::from_secs(10) {
                return Err(Problem::new("etcd does not stop"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Continues a paused process.
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        if !sent.map_err(|e| Problem::at("cannot run kill", e))?.success() {
            return Err(Problem::new("cannot send a signal to etcd"));
        }
        Ok(())
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until this process answers; `None` if it has ended.
    async fn answering(mut self) -> Result<Option<EtcdProcess>> {
        let deadline = Instant::now() + READY;
        loop {
            let answers = self.revision().await.is_ok();
            if self.child.try_wait().map_err(|e| Problem::at("waiting", e))?.is_some() {
                return Ok(None);
            }
            if answers {
                return Ok(Some(self));
            }
            if Instant::now() > deadline {
                return Err(Problem::new(format!("etcd does not answer within {READY:?}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Calls a method of etcd's JSON gateway, such as `kv/range`. Keys and values in it are base64.
    pub async fn call(&self, method: &str, body: &Value) -> Result<Value> {
        let stream = TcpStream::connect(&self.address).await.map_err(|e| Problem::at("etcd", e))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| Problem::at("etcd", e))?;
        tokio::spawn(connection);
        let request = Request::post(format!("/v3/{method}"))
            .header("host", &self.address)
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|e| Problem::at("etcd", e))?;
        let response = sender.send_request(request).await.map_err(|e| Problem::at("etcd", e))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|e| Problem::at("etcd", e))?.to_bytes();
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body);
            return Err(Problem::new(format!("etcd answers {method} with {status}: {text}")));
        }
        serde_json::from_slice(&body).map_err(|e| Problem::at("etcd's answer", e))
    }

    /// The current revision of the store.
    pub async fn revision(&self) -> Result<u64> {
        let answer = self.call("kv/range", &json!({"key": BASE64_STANDARD.encode("health")})).await?;
        let revision = answer.pointer("/header/revision").and_then(Value::as_str);
        revision.and_then(|revision| revision.parse().ok()).ok_or_else(|| Problem::new("no revision"))
    }

    /// Writes a key without a lease.
    pub async fn put(&self, key: &str, value: impl AsRef<[u8]>) -> Result<()> {
        let body = json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)});
        self.call("kv/put", &body).await.map(drop)
    }

    /// Deletes all keys that begin with a prefix.
    pub async fn delete_prefix(&self, prefix: &str) -> Result<()> {
        self.call("kv/deleterange", &range(prefix)).await.map(drop)
    }

    /// The keys that begin with a prefix, with their values.
    pub async fn list(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let answer = self.call("kv/range", &range(prefix)).await?;
        let decode = |value: Option<&Value>| {
            BASE64_STANDARD
                .decode(value.and_then(Value::as_str).unwrap_or_default())
                .map_err(|e| Problem::at("etcd's answer", e))
        };
        let found = answer.get("kvs").and_then(Value::as_array).cloned().unwrap_or_default();
        let entry = |kv: &Value| {
            let key = String::from_utf8_lossy(&decode(kv.get("key"))?).into_owned();
            Ok((key, decode(kv.get("value"))?))
        };
        found.iter().map(entry).collect()
    }
}

fn spawn_on(program: &str, arguments: &[String], data: &TempDir) -> Result<Child> {
    Command::new(program)
        .arg("--data-dir")
        .arg(data.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Problem::at(&format!("cannot start `{program}` (set PORTCULLIS_ETCD)"), e))
}

/// The request for all keys that begin with a prefix, which must not end with the byte 255.
fn range(prefix: &str) -> Value {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    json!({"key": BASE64_STANDARD.encode(prefix), "range_end": BASE64_STANDARD.encode(end)})
}
