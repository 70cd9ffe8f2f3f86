//! Metrics of the ResourceClaim controller, under the names of Kubernetes 1.34, which its documentation uses,
//! and those of 1.37.

use controllers::{ClaimLabels, ClaimObserver};
use prometheus::{IntCounter, IntCounterVec, IntGaugeVec};
use runtime::MetricRegistry;

use super::bool_label;

/// Metrics of the controller that creates ResourceClaims from templates.
pub struct ClaimMetrics {
    attempts: IntCounter,
    failures: IntCounter,
    creates: IntCounterVec,
    creates_by_owner: IntCounterVec,
    claims: [IntGaugeVec; 2],
}

impl ClaimMetrics {
    pub fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str| {
            let help = "[ALPHA] Number of ResourceClaims, by allocation state, admin access, and source: `resource_claim_template`, `extended_resource`, or empty for claims that users created.";
            registry.gauge_vec(name, help, &["admin_access", "allocated", "source"])
        };
        Ok(ClaimMetrics {
            attempts: registry.counter(
                "resourceclaim_controller_create_attempts_total",
                "[ALPHA] Number of attempts to create a ResourceClaim from a template (KEP-5018).",
            )?,
            failures: registry.counter(
                "resourceclaim_controller_create_failures_total",
                "[ALPHA] Number of failed attempts to create a ResourceClaim from a template (KEP-5018).",
            )?,
            creates: registry.counter_vec(
                "resourceclaim_controller_creates_total",
                "[ALPHA] Number of attempts to create a ResourceClaim from a template, by outcome and admin access.",
                &["admin_access", "status"],
            )?,
            creates_by_owner: registry.counter_vec(
                "dynamic_resource_allocation_resourceclaim_creates_total",
                "[ALPHA] Number of attempts to create a ResourceClaim from a template, by outcome, admin access and owner.",
                &["admin_access", "owner_api_group", "owner_api_kind", "status"],
            )?,
            claims: [
                gauge("resourceclaim_controller_resource_claims")?,
                gauge("dynamic_resource_allocation_resource_claims")?,
            ],
        })
    }
}

impl ClaimObserver for ClaimMetrics {
    fn created(&self, admin_access: bool, succeeded: bool) {
        let status = if succeeded { "success" } else { "failure" };
        self.attempts.inc();
        if !succeeded {
            self.failures.inc();
        }
        self.creates.with_label_values(&[bool_label(admin_access), status]).inc();
        self.creates_by_owner.with_label_values(&[bool_label(admin_access), "", "Pod", status]).inc();
    }

    fn add_claims(&self, labels: ClaimLabels, change: i64) {
        let ClaimLabels { allocated, admin_access, source } = labels;
        for claims in &self.claims {
            claims.with_label_values(&[bool_label(admin_access), bool_label(allocated), source]).add(change);
        }
    }
}
