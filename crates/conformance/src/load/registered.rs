//! Load measurements of API policies: the cost of creating a pod with none, a hundred and a thousand matching policies, and ten
//! thousand that do not match. The processor time per request is measured too, because the rate depends on other work of the
//! machine.

use std::time::Instant;

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::measure::{Figures, MeasuredServer, dry_run_pod, memory};
use super::requests::{LoadConnections, LoadLimit};
use crate::Result;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
/// Expressions that are assigned to policies in turn; the pod satisfies all of them.
const EXPRESSIONS: [&str; 5] = [
    "object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",
    "has(object.metadata.labels) && 'app' in object.metadata.labels",
    "object.spec.containers.all(c, c.image.matches('^registry[.]example[.]com/[a-z0-9/-]+:[a-z0-9.]+$'))",
    "!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
    "request.userInfo.username != 'nobody'",
];

/// The number of policies, their resource, and the names of the figures: rate, processor time, memory.
type Round = (u64, &'static str, [&'static str; 3]);

const ROUNDS: [Round; 4] = [
    (0, "pods", ["dry run, no API policy /s", "its processor time, us", "its memory, MB"]),
    (100, "pods", ["dry run, 100 API policies /s", "100: processor time, us", "100: memory, MB"]),
    (1000, "pods", ["dry run, 1,000 API policies /s", "1,000: processor time, us", "1,000: memory, MB"]),
    (
        10_000,
        "secrets",
        ["dry run, 10,000 others /s", "10,000 others: time, us", "10,000 others: memory, MB"],
    ),
];

/// Measures one case and deletes its policies.
pub(super) async fn run(
    subject: &MeasuredServer,
    wires: &LoadConnections,
    namespace: &str,
) -> Result<Figures> {
    let mut figures = Figures::new();
    for (count, resource, [rate, time, bytes]) in ROUNDS {
        register(wires, count, resource).await?;
        // The first requests compile policies and are not measured.
        wires.flood(LoadLimit::Count(200), dry_run_pod(namespace)).await?;
        let (begun, spent) = (Instant::now(), processor_seconds(&subject.pids));
        let flood = wires.flood(LoadLimit::Time(subject.time), dry_run_pod(namespace)).await?;
        let requests = flood.per_second * begun.elapsed().as_secs_f64();
        let spent = processor_seconds(&subject.pids).zip(spent).map(|(after, before)| after - before);
        figures.push((rate, Some(flood.per_second)));
        figures.push((time, spent.map(|seconds| seconds * 1e6 / requests.max(1.0))));
        figures.push((bytes, memory(&subject.pids)));
        for kind in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
            let one =
                move |number: u64| (Method::DELETE, format!("{GROUP}/{kind}/load-{number:05}"), Bytes::new());
            wires.flood(LoadLimit::Count(count), one).await?;
        }
    }
    Ok(figures)
}

/// Measures a fresh server, so that its memory is that of the policies.
pub async fn registered(subject: &MeasuredServer) -> Result<Figures> {
    let wires = LoadConnections::connect(&subject.url, &subject.tls, subject.token.as_deref()).await?;
    run(subject, &wires, "default").await
}

/// Creates `count` policies with their bindings.
async fn register(wires: &LoadConnections, count: u64, resource: &'static str) -> Result<()> {
    let metadata = |number: u64| json!({"name": format!("load-{number:05}")});
    let policy = move |number: u64| {
        let expression = EXPRESSIONS.get(usize::try_from(number).unwrap_or(0) % EXPRESSIONS.len());
        let object = json!({"metadata": metadata(number), "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}]},
            "validations": [{"expression": expression}],
        }});
        (Method::POST, format!("{GROUP}/validatingadmissionpolicies"), Bytes::from(object.to_string()))
    };
    let binding = move |number: u64| {
        let spec = json!({"policyName": format!("load-{number:05}"), "validationActions": ["Deny"]});
        let object = json!({"metadata": metadata(number), "spec": spec});
        (Method::POST, format!("{GROUP}/validatingadmissionpolicybindings"), Bytes::from(object.to_string()))
    };
    wires.flood(LoadLimit::Count(count), policy).await?;
    wires.flood(LoadLimit::Count(count), binding).await?;
    Ok(())
}

/// The processor time of the processes; `None` where `/proc` is missing.
fn processor_seconds(pids: &[u32]) -> Option<f64> {
    /// Clock ticks per second in `/proc`; the same on every Linux system.
    const TICKS: f64 = 100.0;
    let mut sum = 0.0;
    for pid in pids {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The fields after the program name, which may contain spaces: the state is the first, times are the 12th and 13th.
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ').skip(11);
        let mut ticks = || fields.next()?.parse::<u32>().ok();
        sum += f64::from(ticks()?) + f64::from(ticks()?);
    }
    (!pids.is_empty()).then_some(sum / TICKS)
}
