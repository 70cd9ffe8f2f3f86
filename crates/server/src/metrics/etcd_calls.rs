//! Metrics of the calls of etcd, by kube-apiserver's names. Without etcd they have no series.

use std::time::Duration;

use catalog::etcd_values::resource_names_at;
use etcd::EtcdObserver;
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};
use runtime::MetricRegistry;

const RESOURCE_LABELS: &[&str] = &["group", "resource"];
const REQUEST_LABELS: &[&str] = &["group", "operation", "resource"];
const LEASE_BUCKETS: &[f64] = &[10.0, 50.0, 100.0, 500.0, 1000.0, 2500.0, 5000.0];

/// Calls, events and leases. What concerns all resources, such as the one watch on etcd, has empty labels.
#[derive(Debug)]
pub struct EtcdMetrics {
    durations: HistogramVec,
    requests: IntCounterVec,
    errors: IntCounterVec,
    events: IntCounterVec,
    /// Former name of `bookmarks`.
    bookmark_counts: IntGaugeVec,
    bookmarks: IntCounterVec,
    lease_objects: HistogramVec,
}

impl EtcdMetrics {
    pub fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        Ok(EtcdMetrics {
            durations: registry.histogram_vec(
                "etcd_request_duration_seconds",
                "[ALPHA] Etcd request latency in seconds for each operation and object type.",
                REQUEST_LABELS,
                super::DURATION_BUCKETS,
            )?,
            requests: registry.counter_vec(
                "etcd_requests_total",
                "[ALPHA] Etcd request counts for each operation and object type.",
                REQUEST_LABELS,
            )?,
            errors: registry.counter_vec(
                "etcd_request_errors_total",
                "[ALPHA] Etcd failed request counts for each operation and object type.",
                REQUEST_LABELS,
            )?,
            events: registry.counter_vec(
                "apiserver_storage_events_received_total",
                "[BETA] Number of etcd events received split by kind.",
                RESOURCE_LABELS,
            )?,
            bookmark_counts: registry.gauge_vec(
                "etcd_bookmark_counts",
                "[ALPHA] (Deprecated since 1.36.0) Number of etcd bookmarks (progress notify events) split by kind.",
                RESOURCE_LABELS,
            )?,
            bookmarks: registry.counter_vec(
                "etcd_bookmark_total",
                "[ALPHA] Number of etcd bookmarks (progress notify events) split by kind.",
                RESOURCE_LABELS,
            )?,
            lease_objects: registry.histogram_vec(
                "etcd_lease_object_counts",
                "[ALPHA] Number of objects attached to a single etcd lease.",
                &[],
                LEASE_BUCKETS,
            )?,
        })
    }
}

impl EtcdObserver for EtcdMetrics {
    fn request(&self, operation: &'static str, key: &str, is_success: bool, took: Duration) {
        let (group, resource) = match resource_names_at(key) {
            Some(names) => names,
            // A health check. kube-apiserver does not count it.
            None if operation == "get" => return,
            None => ("", ""),
        };
        let labels = [group, operation, resource];
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
        self.requests.with_label_values(&labels).inc();
        if !is_success {
            self.errors.with_label_values(&labels).inc();
        }
    }

    fn event(&self, key: &str) {
        if let Some((group, resource)) = resource_names_at(key) {
            self.events.with_label_values(&[group, resource]).inc();
        }
    }

    fn bookmark(&self) {
        self.bookmark_counts.with_label_values(&["", ""]).inc();
        self.bookmarks.with_label_values(&["", ""]).inc();
    }

    fn lease(&self, keys: u32) {
        self.lease_objects.with_label_values::<&str>(&[]).observe(f64::from(keys));
    }
}

#[cfg(test)]
mod tests;
