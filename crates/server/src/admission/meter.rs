//! The metrics of admission, with Kubernetes' names, labels and buckets.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use admission::{
    AdmissionMetrics, AdmissionPhase, MatchConditionLabels, Operation, PluginId, PolicyErrorType,
    WebhookLabels, WebhookRejection,
};
use prometheus::{Histogram, HistogramVec, IntCounterVec};
use runtime::{MetricRegistry, SummaryMetric};

use crate::metrics::bool_label;

/// Higher status codes are counted as this one, so that a webhook cannot create any number of series.
const MAX_CODE: u16 = 600;

/// Series per plugin: one for each operation, phase, and rejected or not.
const TURNS: usize = 4 * 2 * 2;

/// All metrics of the admission chain.
pub(crate) struct AdmissionMeter {
    start: Instant,
    steps: HistogramVec,
    step_summary: SummaryMetric<3>,
    plugins: HistogramVec,
    /// The series of `plugins`, by position of the plugin in the chain. Every request passes about twenty plugins, and finding a
    /// series by its labels costs more than most of them take.
    plugin_series: Vec<[OnceLock<Histogram>; TURNS]>,
    condition_errors: IntCounterVec,
    condition_exclusions: IntCounterVec,
    condition_seconds: HistogramVec,
    decisions: Decisions,
    manifests: ManifestMeter,
}

/// Metrics of the decisions of policies and webhooks.
struct Decisions {
    webhooks: WebhookMeter,
    policies: PolicyMeter,
}

struct WebhookMeter {
    durations: HistogramVec,
    /// A copy of `durations` under its name in KEP-6060; `None` for manifests.
    latency: Option<HistogramVec>,
    requests: IntCounterVec,
    rejections: IntCounterVec,
    fail_open: IntCounterVec,
}

struct PolicyMeter {
    checks: IntCounterVec,
    check_seconds: HistogramVec,
    mutation_checks: IntCounterVec,
    mutation_seconds: HistogramVec,
}

/// Metrics of the decisions of objects from manifest files, under the names of KEP-5793.
struct ManifestMeter {
    start: Instant,
    decisions: Decisions,
}

const BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const WEBHOOK_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const CONDITION_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const POLICY_BUCKETS: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];
const POLICY_LABELS: &[&str] = &["enforcement_action", "error_type", "policy", "policy_binding"];
const MUTATION_LABELS: &[&str] = &["error_type", "policy", "policy_binding"];
const CONDITION_LABELS: &[&str] = &["kind", "name", "operation", "type"];

impl AdmissionMeter {
    pub(crate) fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let step_summary = registry.registered(SummaryMetric::new(
            "apiserver_admission_step_admission_duration_seconds_summary",
            "[ALPHA] Admission sub-step latency summary in seconds, broken out for each operation and API resource and step type (validate or admit).",
            ["operation", "rejected", "type"],
        )?)?;
        let start = Instant::now();
        Ok(AdmissionMeter {
            start,
            decisions: Decisions::new(registry, false)?,
            manifests: ManifestMeter { start, decisions: Decisions::new(registry, true)? },
            steps: registry.histogram_vec(
                "apiserver_admission_step_admission_duration_seconds",
                "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
                &["operation", "rejected", "type"],
                BUCKETS,
            )?,
            step_summary,
            plugins: registry.histogram_vec(
                "apiserver_admission_controller_admission_duration_seconds",
                "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
                &["name", "operation", "rejected", "type"],
                BUCKETS,
            )?,
            plugin_series: (0..admission::PluginChain::PLUGIN_COUNT).map(|_| Default::default()).collect(),
            condition_errors: registry.counter_vec(
                "apiserver_admission_match_condition_evaluation_errors_total",
                "[ALPHA] Admission match condition evaluation errors count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
                CONDITION_LABELS,
            )?,
            condition_exclusions: registry.counter_vec(
                "apiserver_admission_match_condition_exclusions_total",
                "[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
                CONDITION_LABELS,
            )?,
            condition_seconds: registry.histogram_vec(
                "apiserver_admission_match_condition_evaluation_seconds",
                "[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
                CONDITION_LABELS,
                CONDITION_BUCKETS,
            )?,
        })
    }
}

/// Registers Kubernetes' metrics or, with `manifests`, their counterparts of KEP-5793.
#[derive(Clone, Copy)]
struct MetricFamilies<'a> {
    registry: &'a MetricRegistry,
    manifests: bool,
}

impl MetricFamilies<'_> {
    /// The name of a metric; `{manifest}` in the template is where the counterparts have `manifest_`.
    fn name(self, template: &str) -> String {
        template.replace("{manifest}", if self.manifests { "manifest_" } else { "" })
    }

    fn help(self, stability: &str, help: &str) -> String {
        if self.manifests {
            format!("[ALPHA] Of what comes from manifest files: {help}")
        } else {
            format!("[{stability}] {help}")
        }
    }
}

impl Decisions {
    fn new(registry: &MetricRegistry, manifests: bool) -> Result<Self, prometheus::Error> {
        let families = MetricFamilies { registry, manifests };
        Ok(Decisions { webhooks: WebhookMeter::new(families)?, policies: PolicyMeter::new(families)? })
    }
}

impl WebhookMeter {
    fn new(families: MetricFamilies<'_>) -> Result<Self, prometheus::Error> {
        Ok(WebhookMeter {
            durations: families.registry.histogram_vec(
                &families.name("apiserver_admission_{manifest}webhook_admission_duration_seconds"),
                &families.help(
                "STABLE",
                "Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
                ),
                &["name", "operation", "rejected", "type"],
                WEBHOOK_BUCKETS,
            )?,
            latency: if families.manifests {
                None
            } else {
                Some(families.registry.histogram_vec(
                    "apiserver_admission_webhook_latency_seconds",
                    "[ALPHA] The name by which KEP-6060 calls apiserver_admission_webhook_admission_duration_seconds; both count the same calls.",
                    &["name", "operation", "rejected", "type"],
                    WEBHOOK_BUCKETS,
                )?)
            },
            requests: families.registry.counter_vec(
                &families.name("apiserver_admission_{manifest}webhook_request_total"),
                &families.help(
                "ALPHA",
                "Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                ),
                &["code", "name", "operation", "rejected", "type"],
            )?,
            rejections: families.registry.counter_vec(
                &families.name("apiserver_admission_{manifest}webhook_rejection_count"),
                &families.help(
                "ALPHA",
                "Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                ),
                &["error_type", "name", "operation", "rejection_code", "type"],
            )?,
            fail_open: families.registry.counter_vec(
                &families.name("apiserver_admission_{manifest}webhook_fail_open_count"),
                &families.help(
                "ALPHA",
                "Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).",
                ),
                &["name", "type"],
            )?,
        })
    }

    fn called(&self, webhook: &WebhookLabels<'_>, code: u16, rejected: bool, took: Duration) {
        let code = code.min(MAX_CODE).to_string();
        let WebhookLabels { name, phase, operation } = *webhook;
        let (operation, rejected, phase) = (operation.as_str(), bool_label(rejected), phase.webhook_label());
        self.requests.with_label_values(&[&code, name, operation, rejected, phase]).inc();
        let labels = [name, operation, rejected, phase];
        for histogram in [Some(&self.durations), self.latency.as_ref()].into_iter().flatten() {
            histogram.with_label_values(&labels).observe(took.as_secs_f64());
        }
    }

    fn rejected(&self, webhook: &WebhookLabels<'_>, why: WebhookRejection, code: u16) {
        let code = code.min(MAX_CODE).to_string();
        let WebhookLabels { name, phase, operation } = *webhook;
        let labels = [why.as_str(), name, operation.as_str(), &code, phase.webhook_label()];
        self.rejections.with_label_values(&labels).inc();
    }

    fn failed_open(&self, name: &str, phase: AdmissionPhase) {
        self.fail_open.with_label_values(&[name, phase.webhook_label()]).inc();
    }
}

impl PolicyMeter {
    fn new(families: MetricFamilies<'_>) -> Result<Self, prometheus::Error> {
        Ok(PolicyMeter {
            checks: families.registry.counter_vec(
                &families.name("apiserver_validating_admission_{manifest}policy_check_total"),
                &families.help(
                "BETA",
                "Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
                ),
                POLICY_LABELS,
            )?,
            check_seconds: families.registry.histogram_vec(
                &families.name("apiserver_validating_admission_{manifest}policy_check_duration_seconds"),
                &families.help(
                "BETA",
                "Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
                ),
                POLICY_LABELS,
                POLICY_BUCKETS,
            )?,
            mutation_checks: families.registry.counter_vec(
                &families.name("apiserver_mutating_admission_{manifest}policy_check_total"),
                &families.help(
                "ALPHA",
                "Mutation admission policy check total, labeled by policy and further identified by binding.",
                ),
                MUTATION_LABELS,
            )?,
            mutation_seconds: families.registry.histogram_vec(
                &families.name("apiserver_mutating_admission_{manifest}policy_check_duration_seconds"),
                &families.help(
                "ALPHA",
                "Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
                ),
                MUTATION_LABELS,
                POLICY_BUCKETS,
            )?,
        })
    }

    fn checked(&self, policy: &str, binding: &str, error: PolicyErrorType, action: &str, took: Duration) {
        let labels = [action, error.as_str(), policy, binding];
        self.checks.with_label_values(&labels).inc();
        self.check_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    fn mutation_checked(&self, policy: &str, binding: &str, error: PolicyErrorType, took: Duration) {
        let labels = [error.as_str(), policy, binding];
        self.mutation_checks.with_label_values(&labels).inc();
        self.mutation_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }
}

/// The methods that both implementations of `AdmissionMetrics` forward to their own `Decisions`.
macro_rules! decisions {
    () => {
        fn webhook(&self, webhook: &WebhookLabels<'_>, code: u16, rejected: bool, took: Duration) {
            self.decisions.webhooks.called(webhook, code, rejected, took);
        }

        fn webhook_rejected(&self, webhook: &WebhookLabels<'_>, why: WebhookRejection, code: u16) {
            self.decisions.webhooks.rejected(webhook, why, code);
        }

        fn webhook_failed_open(&self, name: &str, phase: AdmissionPhase) {
            self.decisions.webhooks.failed_open(name, phase);
        }

        fn policy_checked(
            &self,
            policy: &str,
            binding: &str,
            error: PolicyErrorType,
            action: &str,
            took: Duration,
        ) {
            self.decisions.policies.checked(policy, binding, error, action, took);
        }

        fn mutation_checked(&self, policy: &str, binding: &str, error: PolicyErrorType, took: Duration) {
            self.decisions.policies.mutation_checked(policy, binding, error, took);
        }
    };
}

impl AdmissionMetrics for ManifestMeter {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    decisions!();
}

fn condition_labels<'a>(conditions: &MatchConditionLabels<'a>) -> [&'a str; 4] {
    [conditions.kind, conditions.name, conditions.operation.as_str(), conditions.phase]
}

impl AdmissionMetrics for AdmissionMeter {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn phase(&self, phase: AdmissionPhase, operation: Operation, rejected: bool, took: Duration) {
        let labels = [operation.as_str(), bool_label(rejected), phase.as_str()];
        self.steps.with_label_values(&labels).observe(took.as_secs_f64());
        self.step_summary.observe(labels, took, self.start.elapsed());
    }

    fn plugin(
        &self,
        link: PluginId,
        phase: AdmissionPhase,
        operation: Operation,
        rejected: bool,
        took: Duration,
    ) {
        let series = || {
            let labels = [link.name, operation.as_str(), bool_label(rejected), phase.as_str()];
            self.plugins.with_label_values(&labels)
        };
        let turn = (operation as usize * 2 + phase as usize) * 2 + usize::from(rejected);
        match self.plugin_series.get(link.position).and_then(|turns| turns.get(turn)) {
            Some(found) => found.get_or_init(series).observe(took.as_secs_f64()),
            None => series().observe(took.as_secs_f64()),
        }
    }

    fn conditions_evaluated(&self, conditions: &MatchConditionLabels<'_>, took: Duration) {
        self.condition_seconds.with_label_values(&condition_labels(conditions)).observe(took.as_secs_f64());
    }

    fn condition_failed(&self, conditions: &MatchConditionLabels<'_>) {
        self.condition_errors.with_label_values(&condition_labels(conditions)).inc();
    }

    fn conditions_excluded(&self, conditions: &MatchConditionLabels<'_>) {
        self.condition_exclusions.with_label_values(&condition_labels(conditions)).inc();
    }

    fn static_manifests(&self) -> Option<&dyn AdmissionMetrics> {
        Some(&self.manifests)
    }

    decisions!();
}
