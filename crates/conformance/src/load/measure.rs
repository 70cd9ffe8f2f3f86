//! The list of measurements, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use rustls::ClientConfig;
use serde_json::json;

use super::registered;
use super::requests::{LoadConnections, LoadLimit};
use crate::server::{cpu_time, resident_kib};
use crate::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use crate::{Problem, Result};

/// The number of concurrent watches in the fan-out, and of events that each of them receives.
const WATCHERS: usize = 100;
const EVENTS: u64 = 200;

#[derive(Clone, Debug)]
pub struct MeasuredServer {
    /// The base URL, `https://HOST:PORT`.
    pub url: String,
    /// The trusted CA, and the client certificate.
    pub tls: ClientConfig,
    /// The bearer token of the administrator.
    pub token: Option<String>,
    /// The processes whose memory is added up.
    pub pids: Vec<u32>,
    /// The time from start to ready, if it is known.
    pub start: Option<Duration>,
    /// The duration of each rate measurement.
    pub time: Duration,
}

/// Name and figure, in the order measured. Rates are per second, memory is in MB; names say the unit of times.
pub type Figures = Vec<(&'static str, Option<f64>)>;

/// Measures one server in a namespace that it creates. Of the most important requests it also measures the CPU time.
pub async fn run(subject: &MeasuredServer) -> Result<Figures> {
    let wires = LoadConnections::connect(&subject.url, &subject.tls, subject.token.as_deref()).await?;
    let mut figures: Figures = vec![
        ("start to ready, ms", subject.start.map(|time| time.as_secs_f64() * 1000.0)),
        ("memory idle, MB", memory(&subject.pids)),
    ];
    let nanoseconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    let namespace = format!("load-{:x}", nanoseconds & 0xffff_ffff);
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    wires
        .once(
            &Method::POST,
            "/api/v1/namespaces",
            json!({"metadata": {"name": namespace}}).to_string().into(),
        )
        .await?;

    let create = |from: u64| {
        let maps = maps.clone();
        move |number: u64| {
            let map = json!({"metadata": {"name": format!("m{:06}", from + number), "labels": {"run": "load"}}, "data": {"key": "value", "number": number.to_string()}});
            (Method::POST, maps.clone(), Bytes::from(map.to_string()))
        }
    };
    let read = |path: String| move |_: u64| (Method::GET, path.clone(), Bytes::new());
    let time = LoadLimit::Time(subject.time);

    let rate = subject.flood(&wires, LoadLimit::Count(3000), create(0)).await?;
    figures.extend(rate.named("create ConfigMap, durable /s", "  CPU time, µs"));
    let rate = subject.flood(&wires, time, read(format!("{maps}/m000042"))).await?;
    figures.extend(rate.named("get /s", "  CPU time of a get, µs"));
    let rate = subject.flood(&wires, time, read(maps.clone())).await?;
    figures.extend(rate.named("list 3,000 /s", "  CPU time of a list of 3,000, µs"));
    wires.flood(LoadLimit::Count(10_000), create(3000)).await?;
    let rate = subject.flood(&wires, time, read(maps.clone())).await?;
    figures.extend(rate.named("list 13,000 /s", "  CPU time of a list of 13,000, µs"));
    let rate = subject.flood(&wires, time, read(format!("{maps}?limit=500"))).await?;
    figures.extend(rate.named("list 500 of 13,000 /s", "  CPU time of a list of 500, µs"));
    figures.push(("memory after 13,000, MB", memory(&subject.pids)));

    let rate = subject.flood(&wires, time, dry_run_pod(&namespace)).await?;
    figures.extend(rate.named("create Pod, dry run /s", "  CPU time of a dry run, µs"));
    let rate = subject.flood(&wires, time, access_review(&namespace)).await?;
    figures.extend(rate.named("SubjectAccessReview /s", "  CPU time of a review, µs"));
    figures.push(("watch fan-out, events /s", Some(fan_out(&wires, &namespace).await?)));
    figures.push(("memory at the end, MB", memory(&subject.pids)));
    figures.extend(registered::run(subject, &wires, &namespace).await?);
    Ok(figures)
}

/// The rate of requests, and the CPU time of the server for each, in microseconds.
struct MeasuredRate {
    per_second: f64,
    cpu: Option<f64>,
}

impl MeasuredRate {
    fn named(self, rate: &'static str, cpu: &'static str) -> Figures {
        vec![(rate, Some(self.per_second)), (cpu, self.cpu)]
    }
}

impl MeasuredServer {
    /// Like [`LoadConnections::flood`], with the CPU time of all processes of the server.
    async fn flood(
        &self,
        wires: &LoadConnections,
        until: LoadLimit,
        make: impl Fn(u64) -> (Method, String, Bytes) + Clone + Send + 'static,
    ) -> Result<MeasuredRate> {
        let used = || self.pids.iter().map(|pid| cpu_time(*pid)).sum::<Option<Duration>>();
        let before = used();
        let rate = wires.flood(until, make).await?;
        #[expect(clippy::cast_precision_loss, reason = "an average")]
        let requests = rate.requests.max(1) as f64;
        let used = used().zip(before).filter(|_| !self.pids.is_empty());
        let cpu = used.map(|(after, before)| after.saturating_sub(before).as_secs_f64() * 1e6 / requests);
        Ok(MeasuredRate { per_second: rate.per_second, cpu })
    }
}

/// Dry runs per second that call one webhook each. The first request, which opens connections and requests tokens, is not
/// counted.
pub async fn webhook_rate(subject: &MeasuredServer) -> Result<f64> {
    let wires = LoadConnections::connect(&subject.url, &subject.tls, subject.token.as_deref()).await?;
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await?;
    let configuration = json!({"metadata": {"name": "load"}, "webhooks": [{
        "name": "load.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": webhook.url("/review"), "caBundle": webhook.ca_bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    wires.once(&Method::POST, path, configuration.to_string().into()).await?;
    let maps = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let body = Bytes::from(json!({"metadata": {"name": "load"}, "data": {"key": "value"}}).to_string());
    wires.once(&Method::POST, maps, body.clone()).await?;
    let ask = move |_: u64| (Method::POST, maps.to_owned(), body.clone());
    Ok(wires.flood(LoadLimit::Time(subject.time), ask).await?.per_second)
}

/// A typical pod manifest.
pub(super) fn dry_run_pod(
    namespace: &str,
) -> impl Fn(u64) -> (Method, String, Bytes) + Clone + Send + 'static {
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "load-", "labels": {"app": "load", "tier": "front"}},
        "spec": {"serviceAccountName": "default", "containers": [
            {"name": "app", "image": "registry.example.com/app:1.2.3", "ports": [{"containerPort": 8080}],
             "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
             "env": [{"name": "A", "value": "1"}, {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
             "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
             "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            {"name": "side", "image": "registry.example.com/side:4"},
            {"name": "log", "image": "registry.example.com/log:5"}],
          "volumes": [{"name": "data", "emptyDir": {}}]},
    });
    let body = Bytes::from(pod.to_string());
    move |_| (Method::POST, path.clone(), body.clone())
}

fn access_review(namespace: &str) -> impl Fn(u64) -> (Method, String, Bytes) + Clone + Send + 'static {
    let review = json!({"spec": {"user": "somebody", "groups": ["some", "groups"],
        "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "pods", "name": "p"}}});
    let body = Bytes::from(review.to_string());
    move |_| (Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(), body.clone())
}

/// Events delivered per second to many watches while objects are created.
async fn fan_out(wires: &LoadConnections, namespace: &str) -> Result<f64> {
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    let seen = Arc::new(AtomicU64::new(0));
    for number in 0..WATCHERS {
        wires.watch(number, &format!("{secrets}?watch=1&resourceVersion=0"), Arc::clone(&seen)).await?;
    }
    let all = WATCHERS as u64 * EVENTS;
    let started = Instant::now();
    let creation = wires.flood(LoadLimit::Count(EVENTS), move |number| {
        let secret = json!({"metadata": {"name": format!("s{number}")}, "stringData": {"k": "v"}});
        (Method::POST, secrets.clone(), Bytes::from(secret.to_string()))
    });
    creation.await?;
    while seen.load(Ordering::Relaxed) < all {
        if started.elapsed() > Duration::from_mins(1) {
            return Err(Problem::new(format!("only {} of {all} events came", seen.load(Ordering::Relaxed))));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let per_second = all as f64 / started.elapsed().as_secs_f64();
    Ok(per_second)
}

pub(super) fn memory(pids: &[u32]) -> Option<f64> {
    let kib: Option<u64> = pids.iter().map(|pid| resident_kib(*pid)).sum();
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    kib.filter(|_| !pids.is_empty()).map(|kib| kib as f64 * 1024.0 / 1e6)
}
