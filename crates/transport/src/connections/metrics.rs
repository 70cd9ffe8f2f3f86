//! Metrics of client connections.

use prometheus::{IntCounter, IntCounterVec, IntGauge};
use runtime::MetricRegistry;

/// Counters and gauges of client connections, shared by all listeners.
#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    open: IntGauge,
    limit: IntGauge,
    closed: IntCounterVec,
    stalled_streams: IntCounter,
    accept_errors: IntCounter,
}

impl ConnectionMetrics {
    pub fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        Ok(ConnectionMetrics {
            open: registry.gauge("apiserver_connections_open", "Number of open client connections.")?,
            limit: registry.gauge(
                "apiserver_connections_limit",
                "Number of client connections that may be open.",
            )?,
            closed: registry.counter_vec(
                "apiserver_connections_closed_total",
                "Number of client connections that were closed because there were too many (by reason: idle, handshake, per_address, long_running) or because answers were not read (stalled).",
                &["reason"],
            )?,
            stalled_streams: registry.counter(
                "apiserver_stalled_streams_total",
                "Number of HTTP/2 streams that were reset because their answers were not read.",
            )?,
            accept_errors: registry.counter(
                "apiserver_accept_errors_total",
                "Number of client connections that could not be accepted.",
            )?,
        })
    }

    pub(super) fn set_open(&self, open: usize) {
        self.open.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }

    pub(super) fn closed(&self, reason: &str, count: usize) {
        self.closed.with_label_values(&[reason]).inc_by(count as u64);
    }

    pub fn stream_stalled(&self) {
        self.stalled_streams.inc();
    }

    pub(super) fn accept_failed(&self) {
        self.accept_errors.inc();
    }
}
