//! Whether a flow keeps its share beside one with a hundred times its load, by the time that its requests wait in queues.
//!
//! The two flows share a priority level with 8 seats. Each has a flow schema of its own, so that metrics tell them apart. First the small flow is
//! alone, then the large one is there, too; the ratio of what the small flow waits is what counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::measure::Figures;
use super::requests::Wires;
use crate::client::{Trust, tls};
use crate::server::{ADMIN_TOKEN, Server};
use crate::webhook::{Proof, Reply, WebhookServer};
use crate::{Problem, Result};

/// Requests of the small flow at a time: more than there are seats, so that it waits even when it is alone.
const SMALL: usize = 32;
/// How many times as many the large flow has.
const TIMES: usize = 100;
/// Requests at a time on one connection.
const STREAMS: usize = 200;
/// How long the webhook takes.
const WEBHOOK: Duration = Duration::from_millis(20);
/// Time for both flows to fill their queues.
const WARM_UP: Duration = Duration::from_secs(2);

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Measures the built binary: with a webhook that waits, and with work for the processor alone.
pub async fn fairness(time: Duration) -> Result<Figures> {
    let mut figures = Figures::new();
    for (webhook, names) in [
        (true, ["webhook: small alone waits, ms", "webhook: beside large, ms", "webhook: times longer"]),
        (false, ["processor: alone waits, ms", "processor: beside large, ms", "processor: times longer"]),
    ] {
        let server =
            Server::serve(&["--max-requests-inflight=4", "--max-mutating-requests-inflight=4"]).await?;
        let config = tls(Trust::Anything, None)?;
        let connect = async |token: &str| Wires::connect(&server.url, &config, Some(token)).await;
        let admin = connect(ADMIN_TOKEN).await?;
        prepare(&admin).await?;
        let waiting = if webhook { Some(wait_in_webhook(&admin).await?) } else { None };
        let stop = Arc::new(AtomicBool::new(false));
        let mut small = JoinSet::new();
        keep_busy(&connect("bobtoken").await?, SMALL, &mut small, &stop);
        let alone = waited(&admin, time).await?;
        let mut large = JoinSet::new();
        for _ in 0..(SMALL * TIMES).div_ceil(STREAMS) {
            keep_busy(&connect("alicetoken").await?, STREAMS, &mut large, &stop);
        }
        let beside = waited(&admin, time).await?;
        stop.store(true, Ordering::Relaxed);
        large.abort_all();
        small.abort_all();
        drop(waiting);
        let ratio = (alone > 0.0).then(|| beside / alone);
        let [alone_name, beside_name, ratio_name] = names;
        figures.push((alone_name, Some(alone * 1000.0)));
        figures.push((beside_name, Some(beside * 1000.0)));
        figures.push((ratio_name, ratio));
    }
    Ok(figures)
}

/// A level with nearly all shares, and a schema for each flow.
async fn prepare(admin: &Wires) -> Result<()> {
    let post = async |path: &str, object: Value| {
        admin.once(&Method::POST, path, Bytes::from(object.to_string())).await.map(drop)
    };
    let role = json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]});
    post(&format!("{RBAC}/clusterroles"), role).await?;
    let binding = json!({"metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "Group", "name": "system:authenticated"}]});
    post(&format!("{RBAC}/clusterrolebindings"), binding).await?;
    let queuing = json!({"queues": 64, "handSize": 6, "queueLengthLimit": 1000});
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

/// Makes every write wait in a webhook.
async fn wait_in_webhook(admin: &Wires) -> Result<WebhookServer> {
    let webhook = WebhookServer::start(Proof::Signed, |_| Reply::AllowAfter(WEBHOOK)).await?;
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

/// Keeps so many requests under way. A refused one is sent again, after a moment.
fn keep_busy(wires: &Wires, requests: usize, tasks: &mut JoinSet<()>, stop: &Arc<AtomicBool>) {
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

/// How long requests of the small flow waited on average, in seconds, measured for a while.
async fn waited(admin: &Wires, time: Duration) -> Result<f64> {
    tokio::time::sleep(WARM_UP).await;
    let (sum, count) = reading(admin).await?;
    tokio::time::sleep(time).await;
    let (sum_then, count_then) = reading(admin).await?;
    if count_then <= count {
        return Err(Problem::new("no request of the small flow was served"));
    }
    Ok((sum_then - sum) / (count_then - count))
}

async fn reading(admin: &Wires) -> Result<(f64, f64)> {
    let page = admin.once(&Method::GET, "/metrics", Bytes::new()).await?;
    let page = String::from_utf8_lossy(&page);
    let value = |suffix: &str| {
        let name = format!("apiserver_flowcontrol_request_wait_duration_seconds_{suffix}{{");
        let of_small = |line: &&str| line.starts_with(&name) && line.contains("flow_schema=\"small\"");
        let values = page.lines().filter(of_small).filter_map(|line| line.rsplit_once(' '));
        values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum::<f64>()
    };
    Ok((value("sum"), value("count")))
}
