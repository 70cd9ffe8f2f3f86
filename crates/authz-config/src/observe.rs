//! Authorization metrics, under the names of Kubernetes and of KEP-3221, and the [`AuthorizationObserver`] that feeds them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use authz::config::AuthorizerType;
use authz::{AuthorizationObserver, Decision, Denial, Permit, WebhookEvaluation};
use prometheus::{
    CounterVec, GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, exponential_buckets,
    register_counter_vec_with_registry,
};
use runtime::MetricRegistry;
use runtime::identity;

pub struct AuthorizationMetrics {
    /// Value of the label `apiserver_id_hash`.
    id_hash: String,
    attempts: IntCounterVec,
    durations: HistogramVec,
    decisions: IntCounterVec,
    webhook_evaluations: IntCounterVec,
    webhook_durations: HistogramVec,
    fail_open: IntCounterVec,
    condition_errors: IntCounterVec,
    condition_exclusions: IntCounterVec,
    condition_durations: HistogramVec,
    reloads: IntCounterVec,
    reload_times: GaugeVec,
    config_info: IntGaugeVec,
    steps: StepMetrics,
}

/// The metrics under the names of KEP-3221, which count the same events.
struct StepMetrics {
    invocations: IntCounterVec,
    webhook_calls: IntCounterVec,
    webhook_seconds: CounterVec,
    webhook_errors: IntCounterVec,
    reload_failures: IntCounter,
}

impl StepMetrics {
    fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        Ok(StepMetrics {
            invocations: registry.counter_vec(
                "apiserver_authorization_step_invocations_total",
                "[ALPHA] Total number of times an authorizer was asked, split by authorizer and decision (KEP-3221).",
                &["mode", "decision"],
            )?,
            webhook_calls: registry.counter_vec(
                "apiserver_authorization_step_webhook_invocations_total",
                "[ALPHA] Total number of answered requests to authorization webhooks (KEP-3221).",
                &["name", "code", "decision"],
            )?,
            webhook_seconds: register_counter_vec_with_registry!(
                "apiserver_authorization_step_webhook_duration_total_seconds",
                "[ALPHA] Total round trip time of requests to authorization webhooks, in seconds (KEP-3221).",
                &["name", "code", "decision"],
                registry
            )?,
            webhook_errors: registry.counter_vec(
                "apiserver_authorization_step_webhook_error_total",
                "[ALPHA] Total number of erroneous answers of authorization webhooks (KEP-3221).",
                &["name", "code", "decision"],
            )?,
            reload_failures: registry.counter(
                "apiserver_authorization_step_configuration_reload_failure_count",
                "[ALPHA] Number of times a changed authorization configuration could not be used (KEP-3221).",
            )?,
        })
    }
}

const CONDITION_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const WEBHOOK_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl AuthorizationMetrics {
    /// Registers the metrics. `id` is the identity of the server.
    pub fn new(registry: &MetricRegistry, id: &str) -> Result<Arc<Self>, prometheus::Error> {
        Ok(Arc::new(AuthorizationMetrics {
            id_hash: identity::hash(id.as_bytes()),
            attempts: registry.counter_vec(
                "authorization_attempts_total",
                "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
                &["result"],
            )?,
            durations: registry.histogram_vec(
                "authorization_duration_seconds",
                "[ALPHA] Authorization duration in seconds broken out by result.",
                &["result"],
                &exponential_buckets(0.001, 2.0, 15)?,
            )?,
            decisions: registry.counter_vec(
                "apiserver_authorization_decisions_total",
                "[ALPHA] Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
                &["type", "name", "decision"],
            )?,
            webhook_evaluations: registry.counter_vec(
                "apiserver_authorization_webhook_evaluations_total",
                "[ALPHA] Round-trips to authorization webhooks.",
                &["name", "result"],
            )?,
            webhook_durations: registry.histogram_vec(
                "apiserver_authorization_webhook_duration_seconds",
                "[ALPHA] Request latency in seconds.",
                &["name", "result"],
                WEBHOOK_BUCKETS,
            )?,
            fail_open: registry.counter_vec(
                "apiserver_authorization_webhook_evaluations_fail_open_total",
                "[ALPHA] NoOpinion results due to webhook timeout or error.",
                &["name", "result"],
            )?,
            condition_errors: registry.counter_vec(
                "apiserver_authorization_match_condition_evaluation_errors_total",
                "[ALPHA] Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.",
                &["type", "name"],
            )?,
            condition_exclusions: registry.counter_vec(
                "apiserver_authorization_match_condition_exclusions_total",
                "[ALPHA] Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
                &["type", "name"],
            )?,
            condition_durations: registry.histogram_vec(
                "apiserver_authorization_match_condition_evaluation_seconds",
                "[ALPHA] Authorization match condition evaluation time in seconds, split by authorizer type and name.",
                &["type", "name"],
                CONDITION_BUCKETS,
            )?,
            reloads: registry.counter_vec(
                "apiserver_authorization_config_controller_automatic_reloads_total",
                "[BETA] Total number of automatic reloads of authorization configuration split by status and apiserver identity.",
                &["apiserver_id_hash", "status"],
            )?,
            reload_times: registry.float_gauge_vec(
                "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
                "[BETA] Timestamp of the last automatic reload of authorization configuration split by status and apiserver identity.",
                &["apiserver_id_hash", "status"],
            )?,
            config_info: registry.gauge_vec(
                "apiserver_authorization_config_controller_last_config_info",
                "[ALPHA] Information about the last applied authorization configuration with hash as label, split by apiserver identity.",
                &["apiserver_id_hash", "hash"],
            )?,
            steps: StepMetrics::new(registry)?,
        }))
    }

    /// Counts an authorization attempt with its result and duration.
    pub fn attempted(&self, outcome: &Result<Permit, Denial>, took: Duration) {
        let result = match outcome {
            Ok(_) => Decision::Allow.label(),
            Err(Denial::Denied { decision, .. }) => decision.label(),
            Err(Denial::Failed { .. }) => "error",
        };
        self.attempts.with_label_values(&[result]).inc();
        self.durations.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// The observer of one chain. `several`: the chain has more than one webhook, so the metrics of KEP-3221 must name them.
    pub(super) fn observer(self: &Arc<Self>, several: bool) -> Arc<dyn AuthorizationObserver> {
        Arc::new(ChainObserver { metrics: Arc::clone(self), several })
    }

    /// Records the hash of the configuration in force.
    pub fn in_force(&self, bytes: &[u8]) {
        self.config_info.reset();
        self.config_info.with_label_values(&[self.id_hash.as_str(), &identity::hash(bytes)]).set(1);
    }

    /// Counts a reload of the configuration and records its time.
    pub fn reloaded(&self, succeeded: bool) {
        let status = if succeeded { "success" } else { "failure" };
        self.reloads.with_label_values(&[self.id_hash.as_str(), status]).inc();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.reload_times.with_label_values(&[self.id_hash.as_str(), status]).set(now);
        if !succeeded {
            self.steps.reload_failures.inc();
        }
    }
}

struct ChainObserver {
    metrics: Arc<AuthorizationMetrics>,
    several: bool,
}

const WEBHOOK: &str = "Webhook";

/// The label value of a decision in KEP-3221.
fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "Allow",
        Decision::Deny => "Deny",
        Decision::NoOpinion => "NoOpinion",
    }
}

impl AuthorizationObserver for ChainObserver {
    fn decided(&self, kind: AuthorizerType, name: &str, decision: Decision) {
        if decision != Decision::NoOpinion {
            self.metrics.decisions.with_label_values(&[kind.as_str(), name, decision.label()]).inc();
        }
        let steps = &self.metrics.steps.invocations;
        match kind {
            AuthorizerType::Webhook if self.several => {
                steps.with_label_values(&[format!("webhook_{name}").as_str(), word(decision)]).inc();
            }
            AuthorizerType::Webhook => steps.with_label_values(&["webhook", word(decision)]).inc(),
            other => steps.with_label_values(&[other.as_str(), word(decision)]).inc(),
        }
    }

    fn evaluated(&self, evaluation: &WebhookEvaluation<'_>) {
        let WebhookEvaluation { name, result, status, decision, latency } = *evaluation;
        self.metrics.webhook_evaluations.with_label_values(&[name, result]).inc();
        self.metrics.webhook_durations.with_label_values(&[name, result]).observe(latency.as_secs_f64());
        // KEP-3221 counts answers only; requests without an answer are in `webhook_evaluations`.
        let Some(status) = status else { return };
        let code = format!("{}xx", status / 100);
        let labels = [name, code.as_str(), word(decision)];
        self.metrics.steps.webhook_calls.with_label_values(&labels).inc();
        self.metrics.steps.webhook_seconds.with_label_values(&labels).inc_by(latency.as_secs_f64());
        if status >= 400 {
            self.metrics.steps.webhook_errors.with_label_values(&labels).inc();
        }
    }

    fn failed_open(&self, name: &str, result: &'static str) {
        self.metrics.fail_open.with_label_values(&[name, result]).inc();
    }

    fn conditions_evaluated(&self, name: &str, took: Duration) {
        self.metrics.condition_durations.with_label_values(&[WEBHOOK, name]).observe(took.as_secs_f64());
    }

    fn condition_excluded(&self, name: &str) {
        self.metrics.condition_exclusions.with_label_values(&[WEBHOOK, name]).inc();
    }

    fn condition_failed(&self, name: &str) {
        self.metrics.condition_errors.with_label_values(&[WEBHOOK, name]).inc();
    }
}
