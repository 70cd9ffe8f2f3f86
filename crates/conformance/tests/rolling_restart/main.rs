//! Several servers on one etcd are restarted one after the other behind a load balancer. No request may fail for clients that follow
//! `/readyz` (here the load balancer does) and GOAWAY.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod balancer;
mod http2_client;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use balancer::LoadBalancer;
use conformance::{EtcdProcess, Problem, Server, eventually};
use http::Method;
use http_body_util::BodyExt as _;
use http2_client::Http2Client;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVERS: usize = 2;
const WRITERS: usize = 3;
/// Writes that must be acknowledged before and after each restart.
const WRITES_BETWEEN: usize = 20;

/// The counters that all clients share.
#[derive(Default)]
struct ClientProgress {
    is_over: AtomicBool,
    written: AtomicUsize,
    read: AtomicUsize,
    /// Times that a client connected again.
    reconnected: AtomicUsize,
    /// Times that a watch ended and was resumed.
    resumed: AtomicUsize,
}

async fn serve(etcd: &EtcdProcess) -> Server {
    let etcd = format!("--etcd-servers={}", etcd.url);
    Server::serve(&[&etcd, "--shutdown-delay-duration=3s"]).await.unwrap()
}

/// Creates objects, and reads each of them: through any server it exists as soon as it was acknowledged.
async fn write(url: String, writer: usize, progress: Arc<ClientProgress>) -> Result<(), String> {
    let (mut to_write, mut to_read) = (Http2Client::new(&url), Http2Client::new(&url));
    let mut number = 0;
    while !progress.is_over.load(Ordering::Relaxed) {
        let name = format!("w{writer}-{number}");
        let map = json!({"metadata": {"name": name, "labels": {"written": "true"}}});
        let (code, answer) = to_write.json(Method::POST, MAPS, &map).await?;
        if code != 201 {
            return Err(format!("write {name}: {code} {answer}"));
        }
        progress.written.fetch_add(1, Ordering::Relaxed);
        let (code, answer) = to_read.json(Method::GET, &format!("{MAPS}/{name}"), &Value::Null).await?;
        if code != 200 {
            return Err(format!("read {name}: {code} {answer}"));
        }
        progress.read.fetch_add(1, Ordering::Relaxed);
        number += 1;
    }
    progress.reconnected.fetch_add(to_write.connections + to_read.connections - 2, Ordering::Relaxed);
    Ok(())
}

/// Watches the objects and resumes when a server ends the watch, until all writers have ended and each object was seen; returns the names
/// in order of arrival.
async fn watch(
    url: String,
    from: String,
    total: impl Fn() -> Option<usize>,
    progress: Arc<ClientProgress>,
) -> Result<Vec<String>, String> {
    let (mut client, mut names, mut revision) = (Http2Client::new(&url), Vec::new(), from);
    loop {
        let path = format!(
            "{MAPS}?watch=true&labelSelector=written%3Dtrue&resourceVersion={revision}&timeoutSeconds=300"
        );
        let answer = client.send(Method::GET, &path, &Value::Null).await?;
        if answer.status() != 200 {
            return Err(format!("watch: {}", answer.status()));
        }
        let (mut body, mut line) = (answer.into_body(), Vec::new());
        loop {
            if total().is_some_and(|total| names.len() >= total) {
                return Ok(names);
            }
            let Ok(frame) = tokio::time::timeout(Duration::from_millis(100), body.frame()).await else {
                continue;
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| format!("the watch breaks: {error}"))?;
            line.extend(frame.into_data().unwrap_or_default());
            while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                let event: Value = serde_json::from_slice(&line[..end]).map_err(|error| error.to_string())?;
                line.drain(..=end);
                if event["type"] != "ADDED" {
                    return Err(format!("an unexpected event: {event}"));
                }
                let metadata = &event["object"]["metadata"];
                metadata["resourceVersion"].as_str().unwrap().clone_into(&mut revision);
                names.push(metadata["name"].as_str().unwrap().to_owned());
            }
        }
        progress.resumed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until so many more writes are acknowledged.
async fn more_writes(progress: &ClientProgress) {
    let before = progress.written.load(Ordering::Relaxed);
    eventually(PATIENCE, async || match progress.written.load(Ordering::Relaxed) - before {
        written if written >= WRITES_BETWEEN => Ok(()),
        written => Err(Problem::new(format!("{written} writes"))),
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_servers_on_etcd_are_restarted_one_after_the_other() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let balancer = LoadBalancer::start().await;
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        let server = serve(&etcd).await;
        balancer.add(&server);
        servers.push(server);
    }
    let (_, list) = Http2Client::new(&balancer.url).json(Method::GET, MAPS, &Value::Null).await.unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let progress = Arc::new(ClientProgress::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(balancer.url.clone(), writer, Arc::clone(&progress))))
        .collect();
    let total = Arc::new(AtomicUsize::new(usize::MAX));
    let known = Arc::clone(&total);
    let total_of = move || Some(known.load(Ordering::Relaxed)).filter(|total| *total != usize::MAX);
    let watcher = tokio::spawn(watch(balancer.url.clone(), from, total_of, Arc::clone(&progress)));
    for _ in 0..SERVERS {
        more_writes(&progress).await;
        let mut old = servers.remove(0);
        old.terminate().unwrap();
        assert!(old.wait(PATIENCE).await.unwrap().success(), "{}", old.log());
        balancer.remove(&old);
        let new = serve(&etcd).await;
        balancer.add(&new);
        servers.push(new);
    }
    more_writes(&progress).await;
    progress.is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap().unwrap_or_else(|failure| panic!("{failure}"));
    }
    let written = progress.written.load(Ordering::Relaxed);
    total.store(written, Ordering::Relaxed);
    let seen = tokio::time::timeout(PATIENCE, watcher).await.expect("the watch misses objects").unwrap();
    let seen = seen.unwrap_or_else(|failure| panic!("{failure}"));
    let mut distinct = seen.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!((seen.len(), distinct.len()), (written, written), "an event is missing or repeated");
    for writer in 0..WRITERS {
        let own = format!("w{writer}-");
        let order: Vec<usize> =
            seen.iter().filter_map(|name| name.strip_prefix(&own)?.parse().ok()).collect();
        assert!(order.is_sorted(), "the events of a writer are out of order: {order:?}");
    }
    let counts =
        [&progress.read, &progress.reconnected, &progress.resumed].map(|count| count.load(Ordering::Relaxed));
    println!(
        "{written} writes, {} reads, {} connections opened again, {} watches resumed",
        counts[0], counts[1], counts[2]
    );
    // Every connection was to a server that was restarted meanwhile, or went to one.
    assert!(counts[1] >= SERVERS && counts[2] >= 1, "no client had to follow a restart");
}
