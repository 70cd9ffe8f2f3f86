//! Metrics of the allocation of cluster IPs and node ports.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use runtime::MetricRegistry;

use service_addresses::PortCounts;

/// Allocations of cluster IPs and node ports, and repairs of node ports.
#[derive(Debug)]
pub struct AddressMetrics {
    allocated_ips: IntGaugeVec,
    available_ips: IntGaugeVec,
    ip_allocations: IntCounterVec,
    ip_errors: IntCounterVec,
    ip_durations: HistogramVec,
    allocated_ports: IntGauge,
    available_ports: IntGauge,
    port_allocations: IntCounterVec,
    port_errors: IntCounterVec,
    repair_port_errors: IntCounterVec,
    repair_failures: IntCounter,
}

impl AddressMetrics {
    pub fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        Ok(AddressMetrics {
            allocated_ips: registry.gauge_vec(
                "kube_apiserver_clusterip_allocator_allocated_ips",
                "[ALPHA] Gauge measuring the number of allocated IPs for Services",
                &["cidr"],
            )?,
            available_ips: registry.gauge_vec(
                "kube_apiserver_clusterip_allocator_available_ips",
                "[ALPHA] Gauge measuring the number of available IPs for Services",
                &["cidr"],
            )?,
            ip_allocations: registry.counter_vec(
                "kube_apiserver_clusterip_allocator_allocation_total",
                "[ALPHA] Number of Cluster IPs allocations",
                &["cidr", "scope"],
            )?,
            ip_errors: registry.counter_vec(
                "kube_apiserver_clusterip_allocator_allocation_errors_total",
                "[ALPHA] Number of errors trying to allocate Cluster IPs",
                &["cidr", "scope"],
            )?,
            ip_durations: registry.histogram_vec(
                "kube_apiserver_clusterip_allocator_allocation_duration_seconds",
                "[ALPHA] Duration in seconds to allocate a Cluster IP by ServiceCIDR",
                &["cidr"],
                prometheus::DEFAULT_BUCKETS,
            )?,
            allocated_ports: registry.gauge(
                "kube_apiserver_nodeport_allocator_allocated_ports",
                "[ALPHA] Gauge measuring the number of allocated NodePorts for Services",
            )?,
            available_ports: registry.gauge(
                "kube_apiserver_nodeport_allocator_available_ports",
                "[ALPHA] Gauge measuring the number of available NodePorts for Services",
            )?,
            port_allocations: registry.counter_vec(
                "kube_apiserver_nodeport_allocator_allocation_total",
                "[ALPHA] Number of NodePort allocations",
                &["scope"],
            )?,
            port_errors: registry.counter_vec(
                "kube_apiserver_nodeport_allocator_allocation_errors_total",
                "[ALPHA] Number of errors trying to allocate NodePort",
                &["scope"],
            )?,
            repair_port_errors: registry.counter_vec(
                "apiserver_nodeport_repair_port_errors_total",
                "[ALPHA] Number of errors detected on ports by the repair loop broken down by type of error: leak, repair, full, outOfRange, duplicate, unknown",
                &["type"],
            )?,
            repair_failures: registry.counter(
                "apiserver_nodeport_repair_reconcile_errors_total",
                "[ALPHA] Number of reconciliation failures on the nodeport repair reconcile loop",
            )?,
        })
    }

    /// Removes the gauges of all ranges, before those of the present ranges are set.
    pub(crate) fn forget_ranges(&self) {
        self.allocated_ips.reset();
        self.available_ips.reset();
    }

    /// Sets the number of allocated addresses of a range with `size` addresses.
    pub(crate) fn set_addresses(&self, cidr: &str, allocated: u64, size: u64) {
        let int = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.allocated_ips.with_label_values(&[cidr]).set(int(allocated));
        self.available_ips.with_label_values(&[cidr]).set(int(size.saturating_sub(allocated)));
    }

    /// Counts an allocated address. `scope` is `static` if it was requested, `dynamic` otherwise.
    pub(crate) fn allocated(&self, cidr: &str, scope: &str, took: Duration) {
        self.ip_allocations.with_label_values(&[cidr, scope]).inc();
        self.ip_durations.with_label_values(&[cidr]).observe(took.as_secs_f64());
    }

    pub(crate) fn allocation_failed(&self, cidr: &str, scope: &str) {
        self.ip_errors.with_label_values(&[cidr, scope]).inc();
    }

    pub(crate) fn count_ports(&self, counts: PortCounts) {
        let PortCounts { requested, chosen, requested_failed, chosen_failed } = counts;
        for (counter, scope, count) in [
            (&self.port_allocations, "static", requested),
            (&self.port_allocations, "dynamic", chosen),
            (&self.port_errors, "static", requested_failed),
            (&self.port_errors, "dynamic", chosen_failed),
        ] {
            if count > 0 {
                counter.with_label_values(&[scope]).inc_by(count);
            }
        }
    }

    /// Sets the number of allocated ports of a range with `size` ports.
    pub(crate) fn set_ports(&self, allocated: usize, size: u32) {
        let allocated = i64::try_from(allocated).unwrap_or(i64::MAX);
        self.allocated_ports.set(allocated);
        self.available_ports.set(i64::from(size).saturating_sub(allocated));
    }

    /// Counts a port with a problem. `kind` is the label `type`.
    pub(crate) fn port_error(&self, kind: &str) {
        self.repair_port_errors.with_label_values(&[kind]).inc();
    }

    pub(crate) fn port_repair_failed(&self) {
        self.repair_failures.inc();
    }
}
