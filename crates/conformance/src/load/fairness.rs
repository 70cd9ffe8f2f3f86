//! Whether a flow keeps its share beside one with a hundred times its load, by the time that its requests wait in queues.
//!
//! The two flows share a priority level with 8 seats. Each has a flow schema of its own, so that metrics tell them apart. First the small
//! flow is alone, then the large one is there, too; the ratio of what the small flow waits is what counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::measure::Figures;
use super::requests::LoadConnections;
use crate::client::{Trust, tls};
use crate::server::{ADMIN_TOKEN, Server};
use crate::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use crate::{Problem, Result};

/// Requests of the small flow at a time: more than there are seats, so that it waits even when it is alone.
const SMALL: usize = 32;
/// The large flow has this many times as many requests.
const TIMES: usize = 100;
/// Concurrent requests on one connection.
const STREAMS: usize = 100;
/// The delay of the webhook's answer.
const WEBHOOK: Duration = Duration::from_millis(20);
/// The time for both flows to fill their queues.
const WARM_UP: Duration = Duration::from_secs(2);

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Measures the built binary twice: with a slow webhook, and with CPU-bound requests, for which the rates of both flows are
/// printed.
pub async fn fairness(time: Duration) -> Result<Figures> {
    let (alone, beside, _) = both_flows(time, true).await?;
    let mut figures: Figures = vec![
        ("webhook: small alone waits, ms", Some(alone.waited() * 1000.0)),
        ("webhook: beside large, ms", Some(beside.waited() * 1000.0)),
        ("webhook: times longer", (alone.waited() > 0.0).then(|| beside.waited() / alone.waited())),
    ];
    let (alone, beside, large) = both_flows(time, false).await?;
    figures.extend([
        ("processor: small alone /s", Some(alone.per_second(time))),
        ("processor: beside large /s", Some(beside.per_second(time))),
        ("processor: large /s", Some(large.per_second(time))),
    ]);
    Ok(figures)
}

/// Measures the small flow alone, then both flows, and returns the ratio.
async fn both_flows(time: Duration, with_webhook: bool) -> Result<(FlowTotals, FlowTotals, FlowTotals)> {
    let server = Server::serve(&["--max-requests-inflight=4", "--max-mutating-requests-inflight=4"]).await?;
    let config = tls(Trust::Anything, None)?;
    let connect = async |token: &str| LoadConnections::connect(&server.url, &config, Some(token)).await;
    let admin = connect(ADMIN_TOKEN).await?;
    prepare(&admin).await?;
    let webhook = if with_webhook { Some(wait_in_webhook(&admin).await?) } else { None };
    let stop = Arc::new(AtomicBool::new(false));
    let mut requests = JoinSet::new();
    keep_busy(&connect("bobtoken").await?, SMALL, &mut requests, &stop);
    let (alone, _) = served(&admin, time).await?;
    for _ in 0..(SMALL * TIMES).div_ceil(STREAMS) {
        keep_busy(&connect("alicetoken").await?, STREAMS, &mut requests, &stop);
    }
    let (beside, large) = served(&admin, time).await?;
    stop.store(true, Ordering::Relaxed);
    requests.abort_all();
    drop(webhook);
    Ok((alone, beside, large))
}

/// The number of dispatched requests of one flow and the sum of their waiting times.
#[derive(Clone, Copy, Debug)]
struct FlowTotals {
    requests: f64,
    seconds_waited: f64,
}

impl FlowTotals {
    /// The average waiting time of a request in seconds.
    fn waited(self) -> f64 {
        self.seconds_waited / self.requests.max(1.0)
    }

    fn per_second(self, time: Duration) -> f64 {
        self.requests / time.as_secs_f64()
    }
}

/// A priority level with almost all shares, and a flow schema for each flow.
async fn prepare(admin: &LoadConnections) -> Result<()> {
    let post = async |path: &str, object: Value| {
        admin.once(&Method::POST, path, Bytes::from(object.to_string())).await.map(drop)
    };
    let role = json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]});
    post(&format!("{RBAC}/clusterroles"), role).await?;
    let binding = json!({"metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "Group", "name": "system:authenticated"}]});
    post(&format!("{RBAC}/clusterrolebindings"), binding).await?;
    // As in the suggested levels, with longer queues.
    let queuing = json!({"queues": 128, "handSize": 6, "queueLengthLimit": 1000});
    let limited = json!({"nominalConcurrencyShares": 100_000, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": queuing}});
    let level = json!({"metadata": {"name": "load"}, "spec": {"type": "Limited", "limited": limited}});
    post(&format!("{GROUP}/prioritylevelconfigurations"), level).await?;
    for (name, user) in [("small", "bob"), ("large", "alice")] {
        let rule = json!({
            "subjects": [{"kind": "User", "user": {"name": user}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
        });
        let schema = json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": 100,
            "priorityLevelConfiguration": {"name": "load"}, "distinguisherMethod": {"type": "ByUser"}, "rules": [rule]}});
        post(&format!("{GROUP}/flowschemas"), schema).await?;
    }
    Ok(())
}

/// Registers a slow webhook for every write.
async fn wait_in_webhook(admin: &LoadConnections) -> Result<WebhookServer> {
    let webhook =
        WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::AllowAfter(WEBHOOK)).await?;
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": [{
        "name": "slow.example.com",
        "clientConfig": {"url": webhook.url("/"), "caBundle": webhook.ca_bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    admin.once(&Method::POST, path, Bytes::from(configuration.to_string())).await?;
    Ok(webhook)
}

/// Keeps `count` requests in flight. A rejected request is sent again after a short delay.
fn keep_busy(wires: &LoadConnections, requests: usize, tasks: &mut JoinSet<()>, stop: &Arc<AtomicBool>) {
    for _ in 0..requests {
        let (wires, stop) = (wires.clone(), Arc::clone(stop));
        tasks.spawn(async move {
            let map = Bytes::from_static(br#"{"metadata":{"generateName":"load-"}}"#);
            while !stop.load(Ordering::Relaxed) {
                if wires.once(&Method::POST, MAPS, map.clone()).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        });
    }
}

/// The numbers of served requests of the small and the large flow during a period.
async fn served(admin: &LoadConnections, time: Duration) -> Result<(FlowTotals, FlowTotals)> {
    tokio::time::sleep(WARM_UP).await;
    let before = (reading(admin, "small").await?, reading(admin, "large").await?);
    tokio::time::sleep(time).await;
    let after = (reading(admin, "small").await?, reading(admin, "large").await?);
    let between = |before: FlowTotals, after: FlowTotals| FlowTotals {
        requests: after.requests - before.requests,
        seconds_waited: after.seconds_waited - before.seconds_waited,
    };
    let (small, large) = (between(before.0, after.0), between(before.1, after.1));
    if small.requests < 1.0 {
        return Err(Problem::new("no request of the small flow was served"));
    }
    Ok((small, large))
}

async fn reading(admin: &LoadConnections, schema: &str) -> Result<FlowTotals> {
    let page = admin.once(&Method::GET, "/metrics", Bytes::new()).await?;
    let page = String::from_utf8_lossy(&page);
    let value = |suffix: &str| {
        let name = format!("apiserver_flowcontrol_request_wait_duration_seconds_{suffix}{{");
        let label = format!("flow_schema=\"{schema}\"");
        let lines = page.lines().filter(|line| {
            line.starts_with(&name) && line.contains(&label) && line.contains("execute=\"true\"")
        });
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>()
    };
    Ok(FlowTotals { requests: value("count"), seconds_waited: value("sum") })
}
