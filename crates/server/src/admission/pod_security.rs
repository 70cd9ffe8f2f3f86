//! The metrics of PodSecurity, with Kubernetes' names and labels.

use admission::plugins::pod_security::PodSecurityMetrics;
use prometheus::IntCounterVec;
use runtime::MetricRegistry;

pub(crate) struct PodSecurityCounters {
    evaluations: IntCounterVec,
    exemptions: IntCounterVec,
    errors: IntCounterVec,
}

impl PodSecurityCounters {
    /// Registers the metrics, with the series that kube-apiserver creates at start.
    pub(crate) fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let evaluations = registry.counter_vec(
            "pod_security_evaluations_total",
            "[ALPHA] Number of policy evaluations that occurred, not counting ignored or exempt requests.",
            &[
                "decision",
                "policy_level",
                "policy_version",
                "mode",
                "request_operation",
                "resource",
                "subresource",
            ],
        )?;
        let exemptions = registry.counter_vec(
            "pod_security_exemptions_total",
            "[ALPHA] Number of exempt requests, not counting ignored or out of scope requests.",
            &["request_operation", "resource", "subresource"],
        )?;
        let errors = registry.counter_vec(
            "pod_security_errors_total",
            "[ALPHA] Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation.",
            &["fatal", "request_operation", "resource", "subresource"],
        )?;
        for operation in ["create", "update"] {
            evaluations.with_label_values(&[
                "allow",
                "privileged",
                "latest",
                "enforce",
                operation,
                "pod",
                "",
            ]);
            for resource in ["pod", "controller"] {
                exemptions.with_label_values(&[operation, resource, ""]);
            }
        }
        Ok(PodSecurityCounters { evaluations, exemptions, errors })
    }
}

impl PodSecurityMetrics for PodSecurityCounters {
    fn evaluation(&self, labels: [&str; 7]) {
        self.evaluations.with_label_values(&labels).inc();
    }

    fn exemption(&self, labels: [&str; 3]) {
        self.exemptions.with_label_values(&labels).inc();
    }

    fn error(&self, labels: [&str; 4]) {
        self.errors.with_label_values(&labels).inc();
    }
}
