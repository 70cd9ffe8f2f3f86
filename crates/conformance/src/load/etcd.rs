//! Load measurements of the store: the embedded one, and three members of etcd that write to disk.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::json;
use tempfile::TempDir;

use super::measure::{Figures, MeasuredServer, memory};
use super::requests::{LoadConnections, LoadLimit};
use crate::client::{Trust, tls};
use crate::etcd_process::EtcdProcess;
use crate::server::{ADMIN_TOKEN, Server};
use crate::{Problem, Result};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Objects that are created, read and listed.
const OBJECTS: u64 = 3000;
/// Objects that a server loads at its start.
const LOADED: u64 = 100_000;
/// Requests one after the other whose median is a latency.
const SERIAL: usize = 500;
const SERIAL_LISTS: usize = 100;
const MEMBERS: usize = 3;

/// The names of the figures of one store. "Any version" means `resourceVersion=0`: a read that does not ask the store whether memory is
/// current.
pub(super) struct EtcdFigureNames {
    pub(super) create: &'static str,
    pub(super) get: &'static str,
    pub(super) get_any: &'static str,
    pub(super) list: &'static str,
    pub(super) list_any: &'static str,
    pub(super) serial_get: &'static str,
    pub(super) serial_get_any: &'static str,
    pub(super) serial_list: &'static str,
    pub(super) serial_list_any: &'static str,
    pub(super) start: &'static str,
    pub(super) memory: &'static str,
}

pub(super) const EMBEDDED: EtcdFigureNames = EtcdFigureNames {
    create: "embedded: create 1 KiB /s",
    get: "embedded: get /s",
    get_any: "embedded: get, any version /s",
    list: "embedded: list 3,000 /s",
    list_any: "embedded: list, any version /s",
    serial_get: "embedded: get, ms",
    serial_get_any: "embedded: get, any version, ms",
    serial_list: "embedded: list 3,000, ms",
    serial_list_any: "embedded: list, any version, ms",
    start: "embedded: start, 100,000, ms",
    memory: "embedded: memory, 100,000, MB",
};

pub(super) const ETCD: EtcdFigureNames = EtcdFigureNames {
    create: "etcd: create 1 KiB /s",
    get: "etcd: get /s",
    get_any: "etcd: get, any version /s",
    list: "etcd: list 3,000 /s",
    list_any: "etcd: list, any version /s",
    serial_get: "etcd: get, ms",
    serial_get_any: "etcd: get, any version, ms",
    serial_list: "etcd: list 3,000, ms",
    serial_list_any: "etcd: list, any version, ms",
    start: "etcd: start, 100,000, ms",
    memory: "etcd: memory, 100,000, MB",
};

/// Measures the built binary on both stores. `servers` are the URLs of running members of etcd, which a reference may use at the same
/// time; without them, three members are started. `None` if there is no etcd.
pub async fn stores(time: Duration, servers: Option<&str>) -> Result<Option<Figures>> {
    let members = match servers {
        Some(_) => Vec::new(),
        None => match EtcdProcess::start_members(MEMBERS).await? {
            Some(members) => members,
            None => return Ok(None),
        },
    };
    let urls = members.iter().map(|member| member.url.clone()).collect::<Vec<_>>().join(",");
    let etcd = format!("--etcd-servers={}", servers.unwrap_or(&urls));
    let mut figures = both_sizes(time, &[], &EMBEDDED).await?;
    // Other servers may use the same members.
    figures.extend(both_sizes(time, &[&etcd, "--etcd-prefix=/load"], &ETCD).await?);
    Ok(Some(figures))
}

pub async fn reference_on_etcd(server: &MeasuredServer) -> Result<Figures> {
    let wires = LoadConnections::connect(&server.url, &server.tls, server.token.as_deref()).await?;
    requests(&wires, server.time, &ETCD).await
}

/// Measures a server with few objects, then the start with many.
async fn both_sizes(time: Duration, flags: &[&str], names: &EtcdFigureNames) -> Result<Figures> {
    let folder = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
    let server = Server::serve_at(folder.path(), flags).await?;
    let wires = connect(&server).await?;
    let mut figures = requests(&wires, time, names).await?;
    wires.flood(LoadLimit::Count(LOADED - OBJECTS), move |number| create(OBJECTS + number)).await?;
    drop((wires, server));
    let server = Server::serve_at(folder.path(), flags).await?;
    figures.push((names.start, Some(server.took.as_secs_f64() * 1000.0)));
    figures.push((names.memory, memory(&[server.pid()])));
    Ok(figures)
}

async fn connect(server: &Server) -> Result<LoadConnections> {
    LoadConnections::connect(&server.url, &tls(Trust::Anything, None)?, Some(ADMIN_TOKEN)).await
}

async fn requests(wires: &LoadConnections, time: Duration, names: &EtcdFigureNames) -> Result<Figures> {
    let mut figures = Figures::new();
    let rate = wires.flood(LoadLimit::Count(OBJECTS), create).await?;
    figures.push((names.create, Some(rate.per_second)));
    let read = |path: String| move |_: u64| (Method::GET, path.clone(), Bytes::new());
    let consistent = format!("{MAPS}/load-000042");
    let any = format!("{consistent}?resourceVersion=0");
    let (list, list_any) = (MAPS.to_owned(), format!("{MAPS}?resourceVersion=0"));
    for (name, path) in
        [(names.get, &consistent), (names.get_any, &any), (names.list, &list), (names.list_any, &list_any)]
    {
        let rate = wires.flood(LoadLimit::Time(time), read(path.clone())).await?;
        figures.push((name, Some(rate.per_second)));
    }
    for (name, path, count) in [
        (names.serial_get, &consistent, SERIAL),
        (names.serial_get_any, &any, SERIAL),
        (names.serial_list, &list, SERIAL_LISTS),
        (names.serial_list_any, &list_any, SERIAL_LISTS),
    ] {
        figures.push((name, Some(serial_latency(wires, path, count).await?)));
    }
    Ok(figures)
}

/// The median latency of one request after the other, in milliseconds.
async fn serial_latency(wires: &LoadConnections, path: &str, count: usize) -> Result<f64> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        wires.once(&Method::GET, path, Bytes::new()).await?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times.get(count / 2).copied().unwrap_or_default().as_secs_f64() * 1000.0)
}

/// The request that creates a ConfigMap of about 1 KiB.
fn create(number: u64) -> (Method, String, Bytes) {
    let data = "0123456789abcdef".repeat(48);
    let map = json!({"metadata": {"name": format!("load-{number:06}")}, "data": {"key": data}});
    (Method::POST, MAPS.to_owned(), Bytes::from(map.to_string()))
}
