//! Flags about etcd whose effect shows only from outside.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use conformance::{EtcdProcess, Server};
use tokio::net::{TcpListener, TcpStream};

const OBJECTS: [&str; 2] = ["apiserver_storage_objects", "apiserver_resource_objects"];
const SIZE: &str = "apiserver_storage_size_bytes";

/// The metrics of these names that a server with these flags has.
async fn series(flags: &[&str]) -> Vec<&'static str> {
    let server = Server::serve(flags).await.unwrap();
    let metrics = server.client().unwrap().get("/metrics").await.unwrap().text();
    let has = |name: &&str| metrics.lines().any(|line| line.starts_with(&format!("{name}{{")));
    OBJECTS.into_iter().chain([SIZE]).filter(has).collect()
}

/// The flags that choose the store: the embedded one, and etcd unless such tests are left out.
async fn stores() -> (Vec<Vec<String>>, Option<EtcdProcess>) {
    let etcd = EtcdProcess::start().await.unwrap();
    let flag = etcd.as_ref().map(|etcd| vec![format!("--etcd-servers={}", etcd.url)]);
    ([Vec::new()].into_iter().chain(flag).collect(), etcd)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interval_of_zero_removes_the_metrics_that_are_polled() {
    let (stores, _etcd) = stores().await;
    for store in stores {
        let with = |flags: &[&'static str]| {
            let flags: Vec<String> =
                store.iter().cloned().chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
            async move { series(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await }
        };
        let (count, size) = ("--etcd-count-metric-poll-period", "--etcd-db-metric-poll-interval");
        let all: Vec<&str> = OBJECTS.into_iter().chain([SIZE]).collect();
        assert_eq!(with(&[count, "1h", size, "1h"]).await, all, "{store:?}");
        assert_eq!(with(&[count, "0"]).await, [SIZE], "{store:?}");
        assert_eq!(with(&[size, "0"]).await, OBJECTS, "{store:?}");
    }
}

/// The address of an etcd whose connections carry nothing at first.
async fn slow(etcd: &EtcdProcess, delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let target = etcd.url.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let target = target.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let Ok(mut server) = TcpStream::connect(target).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_loaded_late_is_reported_and_the_server_becomes_ready() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let slow = slow(&etcd, Duration::from_secs(1)).await;
    let servers = format!("--etcd-servers={slow}");
    for (limit, is_reported) in [("50ms", true), ("1h", false)] {
        let flags = [servers.as_str(), "--storage-initialization-timeout", limit];
        let server = Server::serve(&flags).await.unwrap();
        let log = server.log();
        let report = "the store is not loaded yet; the server becomes ready when it is";
        assert_eq!(log.contains(report), is_reported, "{limit}: {log}");
        assert_eq!(log.contains("--storage-initialization-timeout"), is_reported, "{limit}: {log}");
    }
}
