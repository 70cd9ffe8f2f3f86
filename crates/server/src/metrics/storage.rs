//! Metrics of the storage size and quota.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};

use api::GroupResource;

use runtime::MetricRegistry;
use storage::Space;

/// Size, quota and alarm of the store.
#[derive(Debug)]
pub struct StorageMetrics {
    size: IntGaugeVec,
    live: IntGauge,
    quota: IntGauge,
    alarm: IntGauge,
    consistency_checks: IntCounterVec,
}

impl StorageMetrics {
    pub fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        Ok(StorageMetrics {
            size: registry.gauge_vec(
                "apiserver_storage_size_bytes",
                "[STABLE] Size of the storage database file physically allocated in bytes.",
                &["storage_cluster_id"],
            )?,
            live: registry.gauge(
                "apiserver_storage_live_bytes",
                "Bytes of stored objects, as --quota-backend-bytes counts them.",
            )?,
            quota: registry.gauge(
                "apiserver_storage_quota_bytes",
                "Bytes of stored objects above which writes are refused; 0 if there is no limit.",
            )?,
            alarm: registry.gauge(
                "apiserver_storage_quota_alarm",
                "1 if writes are refused because the store is full, 0 otherwise.",
            )?,
            consistency_checks: registry.counter_vec(
                "apiserver_storage_consistency_checks_total",
                "[ALPHA] Counter for status of consistency checks between etcd and watch cache",
                &["group", "resource", "status"],
            )?,
        })
    }

    /// Counts a comparison of memory with etcd: `success`, `failure` (they differ) or `error` (not compared).
    pub(crate) fn consistency_checked(&self, resource: &GroupResource, status: &str) {
        let labels = [resource.group.as_str(), resource.resource.as_str(), status];
        self.consistency_checks.with_label_values(&labels).inc();
    }

    /// Sets all gauges from the store's current usage and the sizes of its databases, where they are known.
    pub fn show(&self, space: &Space, sizes: &[Option<u64>]) {
        let int = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.size.reset();
        for (index, size) in sizes.iter().enumerate() {
            if let Some(size) = size {
                self.size.with_label_values(&[&format!("etcd-{index}")]).set(int(*size));
            }
        }
        self.live.set(int(space.live));
        self.quota.set(int(space.quota.unwrap_or(0)));
        self.alarm.set(i64::from(space.alarm));
    }
}
