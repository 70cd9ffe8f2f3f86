//! Columns of pods: status, readiness and restarts are computed from many fields.

use std::collections::HashSet;

use api::time::human_duration;
use value::{Map, Value};

use super::view::{View, cells, find_condition, moment};

const NODE_LOST: &str = "NodeLost";

pub(super) fn pod(v: &View<'_>) -> Vec<Value> {
    let summary = PodSummary::of(v);
    let restarts = match summary.last_restart {
        Some(when) if summary.restarts != 0 => {
            let ago = human_duration(v.now.saturating_sub(when));
            format!("{} ({ago} ago)", summary.restarts)
        }
        _ => summary.restarts.to_string(),
    };
    let ip = v.list(&["status", "podIPs"]).first().and_then(|ip| ip.str_at(&["ip"]));
    let ip = ip.or_else(|| v.get_text(&["status", "podIP"])).filter(|ip| !ip.is_empty());
    cells![
        v.name(),
        format!("{}/{}", summary.ready, summary.total),
        summary.reason,
        restarts,
        v.age(),
        ip.unwrap_or("<none>"),
        v.full_text_or(&["spec", "nodeName"], "<none>"),
        v.full_text_or(&["status", "nominatedNodeName"], "<none>"),
        readiness_gates(v),
    ]
}

/// Status column, readiness and restarts of a pod.
struct PodSummary {
    reason: String,
    total: usize,
    ready: usize,
    restarts: i64,
    last_restart: Option<i64>,
}

impl PodSummary {
    fn of(v: &View<'_>) -> Self {
        let init = v.list(&["spec", "initContainers"]);
        let sidecars = init.iter().filter(|c| is_sidecar(c)).count();
        let mut summary = PodSummary {
            reason: String::new(),
            total: v.list(&["spec", "containers"]).len() + sidecars,
            ready: 0,
            restarts: 0,
            last_restart: None,
        };
        let phase = v.text(&["status", "phase"]);
        let status_reason = v.text(&["status", "reason"]);
        v.full_text_or(&["status", "reason"], "").clone_into(&mut summary.reason);
        if summary.reason.is_empty() {
            phase.clone_into(&mut summary.reason);
        }
        let gated = |c: &&Value| {
            c.str_at(&["type"]) == Some("PodScheduled") && c.str_at(&["reason"]) == Some("SchedulingGated")
        };
        if v.list(&["status", "conditions"]).iter().any(|c| gated(&c)) {
            "SchedulingGated".clone_into(&mut summary.reason);
        }
        let initializing = summary.initialize(v, init);
        if !initializing || v.condition("Initialized") == Some("True") {
            summary.run(v);
        }
        if v.is_deleting() && status_reason == NODE_LOST {
            "Unknown".clone_into(&mut summary.reason);
        } else if v.is_deleting() && !matches!(phase, "Failed" | "Succeeded") {
            "Terminating".clone_into(&mut summary.reason);
        }
        summary
    }

    /// Processes the init containers up to the first unfinished one. Returns true if there is one.
    fn initialize(&mut self, v: &View<'_>, init: &[Value]) -> bool {
        // While a pod initializes, the restarts of all init containers count; after that, only those of sidecars.
        let (mut restarts, mut last) = (0, None);
        let mut waiting = false;
        let sidecars: HashSet<Option<&str>> =
            init.iter().filter(|c| is_sidecar(c)).map(|c| c.str_at(&["name"])).collect();
        for (i, status) in v.list(&["status", "initContainerStatuses"]).iter().enumerate() {
            let count = status.int_at(&["restartCount"]).unwrap_or_default();
            let ended = last_end(status);
            restarts += count;
            last = last.max(ended);
            let sidecar = sidecars.contains(&status.str_at(&["name"]));
            if sidecar {
                self.restarts += count;
                self.last_restart = self.last_restart.max(ended);
            }
            let terminated = terminated(status);
            if terminated.is_some_and(|t| exit_code(t) == 0) {
                continue;
            }
            if sidecar && status.bool_at(&["started"]) == Some(true) {
                self.ready += usize::from(status.bool_at(&["ready"]) == Some(true));
                continue;
            }
            self.reason = match (terminated, waiting_reason(status)) {
                (Some(terminated), _) => format!("Init:{}", ending(terminated)),
                (None, Some(reason)) if reason != "PodInitializing" => format!("Init:{reason}"),
                _ => format!("Init:{i}/{}", init.len()),
            };
            waiting = true;
            break;
        }
        if waiting && v.condition("Initialized") != Some("True") {
            self.restarts = restarts;
            self.last_restart = last;
        }
        waiting
    }

    /// Processes the containers of a pod that has finished initialization.
    fn run(&mut self, v: &View<'_>) {
        let mut running = false;
        let mut failed = None;
        for status in v.list(&["status", "containerStatuses"]).iter().rev() {
            self.restarts += status.int_at(&["restartCount"]).unwrap_or_default();
            self.last_restart = self.last_restart.max(last_end(status));
            if let Some(reason) = waiting_reason(status) {
                reason.clone_into(&mut self.reason);
            } else if let Some(terminated) = terminated(status) {
                self.reason = ending(terminated);
                if exit_code(terminated) != 0 {
                    failed = Some(self.reason.clone());
                }
            } else if status.bool_at(&["ready"]) == Some(true) && status.at(&["state", "running"]).is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason != "Completed" {
            return;
        }
        // A container of the completed pod still runs: show `Running` if the pod is ready.
        if running && v.list(&["status", "conditions"]).iter().any(is_ready) {
            "Running".clone_into(&mut self.reason);
        } else if let Some(failed) = failed {
            self.reason = failed;
        } else if running {
            "NotReady".clone_into(&mut self.reason);
        }
    }
}

fn is_ready(condition: &Value) -> bool {
    condition.str_at(&["type"]) == Some("Ready") && condition.str_at(&["status"]) == Some("True")
}

/// Returns true for an init container that keeps running beside the others.
fn is_sidecar(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == Some("Always")
}

fn terminated(status: &Value) -> Option<&Value> {
    status.at(&["state", "terminated"]).filter(|t| !t.is_null())
}

fn waiting_reason(status: &Value) -> Option<&str> {
    status.str_at(&["state", "waiting", "reason"]).filter(|reason| !reason.is_empty())
}

fn exit_code(terminated: &Value) -> i64 {
    terminated.int_at(&["exitCode"]).unwrap_or_default()
}

/// How a container ended: its reason, else its signal, else its exit code.
fn ending(terminated: &Value) -> String {
    match terminated.str_at(&["reason"]) {
        Some(reason) if !reason.is_empty() => reason.to_owned(),
        _ => match terminated.int_at(&["signal"]) {
            Some(signal) if signal != 0 => format!("Signal:{signal}"),
            _ => format!("ExitCode:{}", exit_code(terminated)),
        },
    }
}

/// Time at which the container's previous run ended.
fn last_end(status: &Value) -> Option<i64> {
    moment(status.str_at(&["lastState", "terminated", "finishedAt"]))
}

/// Number of satisfied readiness gates, for example `1/2`.
fn readiness_gates(v: &View<'_>) -> String {
    let gates = v.list(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let conditions = v.list(&["status", "conditions"]);
    let open = |gate: &&Value| {
        let condition = find_condition(conditions, gate.str_at(&["conditionType"]).unwrap_or_default());
        condition.and_then(|c| c.str_at(&["status"])) == Some("True")
    };
    format!("{}/{}", gates.iter().filter(open).count(), gates.len())
}

/// Marks a finished pod as completed.
pub(super) fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match pod.str_at(&["status", "phase"]) {
        Some("Succeeded") => ("Succeeded", "The pod has completed successfully."),
        Some("Failed") => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    let mut condition = Map::new();
    condition.insert("message", message);
    condition.insert("reason", reason);
    condition.insert("status", "True");
    condition.insert("type", "Completed");
    vec![Value::Map(condition)]
}
