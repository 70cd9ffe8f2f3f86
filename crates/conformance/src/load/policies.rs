//! Load measurements of static policies: start time with many of them, cost per request, and the delay until a change takes
//! effect.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use tempfile::TempDir;

use super::Figures;
use super::measure::dry_run_pod;
use super::requests::{LoadConnections, LoadLimit, Rate};
use crate::client::{Trust, tls};
use crate::server::{ADMIN_TOKEN, Server, resident_kib};
use crate::{Problem, Result};

/// Starts that are timed. The fastest counts, because slower ones measure other work of the machine.
const STARTS: usize = 3;
/// Changes that are timed. The median counts.
const CHANGES: usize = 15;
/// The interval between changes of a file while requests are timed.
const PAUSE: Duration = Duration::from_millis(100);

/// A policy with its binding for pods, or for a resource that no request uses.
fn policy(number: usize, resource: &str, forbidden: &str) -> String {
    format!(
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: policy-{number}.static.k8s.io
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      resources: ["{resource}"]
  validations:
  - expression: "!has(object.metadata.labels) || !('{forbidden}-{number}' in object.metadata.labels)"
    message: "forbidden"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: binding-{number}.static.k8s.io
spec:
  policyName: policy-{number}.static.k8s.io
  validationActions: [Deny]
"#
    )
}

fn fill(folder: &Path, count: usize, resource: &str) -> Result<()> {
    for number in 0..count {
        let path = folder.join(format!("policy-{number:05}.yaml"));
        fs::write(&path, policy(number, resource, "forbidden")).map_err(|e| Problem::at("a policy", e))?;
    }
    Ok(())
}

/// A folder with `count` policies, one per file, and the flag that names it.
struct PolicyFolder {
    root: TempDir,
    flag: String,
}

impl PolicyFolder {
    fn of(count: usize, resource: &str) -> Result<Self> {
        let root = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
        let folder = root.path().join("policies");
        fs::create_dir(&folder).map_err(|e| Problem::at("a folder", e))?;
        fill(&folder, count, resource)?;
        let file = root.path().join("admission.yaml");
        let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [{"name": "ValidatingAdmissionPolicy", "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ValidatingAdmissionPolicyConfiguration",
                "staticManifestsDir": folder}}]});
        fs::write(&file, text.to_string()).map_err(|e| Problem::at("a file", e))?;
        Ok(PolicyFolder { flag: format!("--admission-control-config-file={}", file.display()), root })
    }

    fn policies(&self) -> std::path::PathBuf {
        self.root.path().join("policies")
    }

    /// Replaces the file of a policy atomically by a rename.
    fn change(&self, number: usize, resource: &str, forbidden: &str) -> Result<()> {
        let fresh = self.root.path().join("fresh");
        fs::write(&fresh, policy(number, resource, forbidden)).map_err(|e| Problem::at("a policy", e))?;
        let path = self.policies().join(format!("policy-{number:05}.yaml"));
        fs::rename(&fresh, path).map_err(|e| Problem::at("a policy", e))
    }

    async fn serve(&self) -> Result<(Server, LoadConnections)> {
        let server = Server::serve(&[&self.flag]).await?;
        let wires =
            LoadConnections::connect(&server.url, &tls(Trust::Anything, None)?, Some(ADMIN_TOKEN)).await?;
        Ok((server, wires))
    }
}

/// Measures the built binary; each rate for `time`.
pub async fn run(time: Duration) -> Result<Figures> {
    let mut figures = Figures::new();
    for (count, ready, memory) in [
        (0, "ready with no policies, ms", "memory with no policies, MB"),
        (100, "ready with 100 policies, ms", "memory with 100 policies, MB"),
        (1_000, "ready with 1,000 policies, ms", "memory with 1,000 policies, MB"),
        (10_000, "ready with 10,000 policies, ms", "memory with 10,000 policies, MB"),
    ] {
        let folder = PolicyFolder::of(count, "pods")?;
        let path = folder.policies();
        let path = path.to_str().ok_or_else(|| Problem::new("the folder has no name"))?;
        let mut quickest: Option<Duration> = None;
        let mut resident = None;
        for _ in 0..STARTS {
            let server = Server::up_with(&["--policies", path]).await?;
            resident = resident_kib(server.pid());
            quickest = Some(quickest.map_or(server.took, |quickest| quickest.min(server.took)));
        }
        figures.push((ready, quickest.map(milliseconds)));
        #[expect(clippy::cast_precision_loss, reason = "megabytes")]
        figures.push((memory, resident.map(|kib| kib as f64 * 1024.0 / 1e6)));
    }
    for (count, resource, name) in [
        (0, "pods", "dry-run pods, no policies /s"),
        (100, "pods", "dry-run pods, 100 match /s"),
        (1_000, "pods", "dry-run pods, 1,000 match /s"),
        (1_000, "secrets", "dry-run pods, 1,000 others /s"),
    ] {
        let folder = PolicyFolder::of(count, resource)?;
        let (_server, wires) = folder.serve().await?;
        let rate = wires.flood(LoadLimit::Time(time), dry_run_pod("default")).await?;
        figures.push((name, Some(rate.per_second)));
    }
    reload(time, &mut figures).await?;
    Ok(figures)
}

/// Changes one of 1,000 files: the delay until it takes effect, and the latency of other requests meanwhile.
async fn reload(time: Duration, figures: &mut Figures) -> Result<()> {
    let folder = PolicyFolder::of(1_000, "pods")?;
    let (_server, wires) = folder.serve().await?;
    let maps = "/api/v1/namespaces/default/pods?dryRun=All";
    let mut took = Vec::new();
    for change in 0..CHANGES {
        let number = change * 37 % 1_000;
        let word = format!("changed{change}");
        let label = format!("{word}-{number}");
        let pod = json!({"metadata": {"name": "p", "labels": {label: "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let body = bytes::Bytes::from(pod.to_string());
        wires.once(&Method::POST, maps, body.clone()).await?;
        let begun = Instant::now();
        folder.change(number, "pods", &word)?;
        loop {
            match wires.once(&Method::POST, maps, body.clone()).await {
                Err(problem) if problem.to_string().contains("denied request: forbidden") => break,
                Err(problem) => return Err(problem),
                Ok(_) if begun.elapsed() > Duration::from_secs(30) => {
                    return Err(Problem::new("a change has not decided in half a minute"));
                }
                Ok(_) => {}
            }
        }
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    figures.push(("change decides, 1 of 1,000, ms", took.get(CHANGES / 2).copied().map(milliseconds)));
    figures.push(("the slowest of them, ms", took.last().copied().map(milliseconds)));

    let mut quantiles = |names: [&'static str; 2], rate: &Rate| {
        for (name, quantile) in names.into_iter().zip([rate.p50, rate.p99]) {
            figures.push((name, Some(milliseconds(quantile))));
        }
    };
    let pods = dry_run_pod("default");
    let before = wires.flood(LoadLimit::Time(time), pods.clone()).await?;
    quantiles(["dry run before reloads, p50 ms", "dry run before reloads, p99 ms"], &before);
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let during = async {
        let rate = wires.flood(LoadLimit::Time(time), pods.clone()).await;
        let _ = stop.send(());
        rate
    };
    let changing = async {
        let mut change = 0;
        while stopped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty) {
            change += 1;
            folder.change(change % 1_000, "pods", &format!("again{change}"))?;
            tokio::time::sleep(PAUSE).await;
        }
        Ok::<_, Problem>(())
    };
    let (during, changed) = tokio::join!(during, changing);
    changed?;
    quantiles(["dry run during reloads, p50 ms", "dry run during reloads, p99 ms"], &during?);
    let after = wires.flood(LoadLimit::Time(time), pods).await?;
    quantiles(["dry run after reloads, p50 ms", "dry run after reloads, p99 ms"], &after);
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
