//! Metrics of the storage size and quota.

use prometheus::{IntGauge, IntGaugeVec, Opts};

use crate::metrics::MetricRegistry;
use storage::Space;

/// Size, quota and alarm of the store.
#[derive(Debug)]
pub struct StorageMetrics {
    size: IntGaugeVec,
    live: IntGauge,
    quota: IntGauge,
    alarm: IntGauge,
}

impl StorageMetrics {
    pub fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let metrics = StorageMetrics {
            size: IntGaugeVec::new(
                Opts::new(
                    "apiserver_storage_size_bytes",
                    "[STABLE] Size of the storage database file physically allocated in bytes.",
                ),
                &["storage_cluster_id"],
            )?,
            live: IntGauge::new(
                "apiserver_storage_live_bytes",
                "Bytes of stored objects, as --quota-backend-bytes counts them.",
            )?,
            quota: IntGauge::new(
                "apiserver_storage_quota_bytes",
                "Bytes of stored objects above which writes are refused; 0 if there is no limit.",
            )?,
            alarm: IntGauge::new(
                "apiserver_storage_quota_alarm",
                "1 if writes are refused because the store is full, 0 otherwise.",
            )?,
        };
        registry.register(Box::new(metrics.size.clone()))?;
        registry.register(Box::new(metrics.live.clone()))?;
        registry.register(Box::new(metrics.quota.clone()))?;
        registry.register(Box::new(metrics.alarm.clone()))?;
        Ok(metrics)
    }

    /// Sets all gauges from the store's current usage.
    pub fn show(&self, space: &Space) {
        let int = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.size.with_label_values(&["etcd-0"]).set(int(space.file));
        self.live.set(int(space.live));
        self.quota.set(int(space.quota.unwrap_or(0)));
        self.alarm.set(i64::from(space.alarm));
    }
}
