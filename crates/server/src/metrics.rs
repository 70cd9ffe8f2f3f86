//! The `/metrics` page, with the names, labels and buckets of kube-apiserver.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Encoder, HistogramVec, IntCounterVec, IntGaugeVec, TextEncoder};
use runtime::{MetricRegistry, ProcessMetrics, format_bounds_as_go, register_build_info};

mod addresses;
mod authentication;
mod claims;
mod custom;
mod etcd_calls;
mod features;
pub(crate) mod object_series;
mod storage;
#[cfg(test)]
mod tests;

pub use addresses::AddressMetrics;
pub use authentication::{AuthenticationMetrics, Outcomes};
pub use claims::ClaimMetrics;
pub use custom::{ConversionResult, CustomMetrics};
pub use etcd_calls::EtcdMetrics;
pub use storage::StorageMetrics;

use requests::request_info::RequestInfo;

/// The metrics of the server. Subsystems register more in [`Metrics::registry`].
pub struct Metrics {
    registry: MetricRegistry,
    requests: IntCounterVec,
    durations: HistogramVec,
    response_sizes: HistogramVec,
    in_flight: IntGaugeVec,
    in_queue: IntGaugeVec,
    long_running: IntGaugeVec,
    dropped: IntCounterVec,
    watch_events: IntCounterVec,
    deprecated: IntGaugeVec,
    admin_access: IntCounterVec,
    leaders: IntGaugeVec,
    /// Former name of `resource_objects`.
    storage_objects: IntGaugeVec,
    resource_objects: IntGaugeVec,
    pub authentication: Arc<AuthenticationMetrics>,
    /// Metrics of custom resources and of webhook certificates.
    pub custom: Arc<CustomMetrics>,
    pub storage: StorageMetrics,
    pub etcd: Arc<EtcdMetrics>,
    pub addresses: Arc<AddressMetrics>,
    pub claims: Arc<ClaimMetrics>,
    process: ProcessMetrics,
}

const REQUEST_LABELS: &[&str] =
    &["code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"];
const DURATION_LABELS: &[&str] =
    &["component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"];
const RESOURCE_LABELS: &[&str] =
    &["component", "group", "resource", "scope", "subresource", "verb", "version"];

const DURATION_BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
const SIZE_BUCKETS: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

#[derive(Debug)]
pub struct Finished<'a> {
    pub info: &'a RequestInfo,
    /// True if the resource is served. Unknown resource names are client input and do not become labels.
    pub known: bool,
    pub code: u16,
    pub dry_run: bool,
    pub took: Duration,
    /// Size of the response body in bytes, if known in advance.
    pub size: Option<u64>,
}

impl Metrics {
    /// Registers all metrics. `started` is the start time of the process in seconds since the Unix epoch.
    pub fn new(started: f64) -> Result<Self, prometheus::Error> {
        let registry = MetricRegistry::new();
        register_build_info(&registry)?;
        Ok(Metrics {
            requests: registry.counter_vec(
                "apiserver_request_total",
                "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
                REQUEST_LABELS,
            )?,
            durations: registry.histogram_vec(
                "apiserver_request_duration_seconds",
                "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
                DURATION_LABELS,
                DURATION_BUCKETS,
            )?,
            response_sizes: registry.histogram_vec(
                "apiserver_response_sizes",
                "[STABLE] Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
                RESOURCE_LABELS,
                SIZE_BUCKETS,
            )?,
            in_flight: registry.gauge_vec(
                "apiserver_current_inflight_requests",
                "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
                &["request_kind"],
            )?,
            in_queue: registry.gauge_vec(
                "apiserver_current_inqueue_requests",
                "[ALPHA] Maximal number of queued requests in this apiserver per request kind in last second.",
                &["request_kind"],
            )?,
            long_running: registry.gauge_vec(
                "apiserver_longrunning_requests",
                "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
                RESOURCE_LABELS,
            )?,
            dropped: registry.counter_vec(
                "apiserver_dropped_requests_total",
                "Number of requests dropped with 'Try again later' response, by request kind.",
                &["request_kind"],
            )?,
            watch_events: registry.counter_vec(
                "apiserver_watch_events_total",
                "[BETA] Number of events sent in watch clients",
                &["group", "resource", "version"],
            )?,
            storage_objects: registry.gauge_vec(
                "apiserver_storage_objects",
                "[STABLE] Number of stored objects at the time of last check split by kind.",
                &["resource"],
            )?,
            resource_objects: registry.gauge_vec(
                "apiserver_resource_objects",
                "[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
                &["group", "resource"],
            )?,
            deprecated: registry.gauge_vec(
                "apiserver_requested_deprecated_apis",
                "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
                &["group", "removed_release", "resource", "subresource", "version"],
            )?,
            admin_access: registry.counter_vec(
                "apiserver_device_admin_access_total",
                "Number of objects that request admin access to devices: created ones, and those rejected because their namespace does not allow it.",
                &["allowed", "kind"],
            )?,
            leaders: registry.gauge_vec(
                "leader_election_master_status",
                "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            )?,
            authentication: Arc::new(AuthenticationMetrics::new(&registry)?),
            custom: Arc::new(CustomMetrics::new(&registry)?),
            storage: StorageMetrics::new(&registry)?,
            etcd: Arc::new(EtcdMetrics::new(&registry)?),
            addresses: Arc::new(AddressMetrics::new(&registry)?),
            claims: Arc::new(ClaimMetrics::new(&registry)?),
            process: ProcessMetrics::new(&registry, started)?,
            registry,
        })
    }

    pub fn registry(&self) -> &MetricRegistry {
        &self.registry
    }

    /// Records a request for a deprecated version; `removed` is the release that removes it.
    pub fn requested_deprecated(&self, info: &RequestInfo, removed: &str) {
        let labels =
            [info.group.as_str(), removed, info.resource.as_str(), info.subresource.as_str(), &info.version];
        self.deprecated.with_label_values(&labels).set(1);
    }

    /// Counts an object that requests admin access to devices: `allowed` if created, otherwise rejected.
    pub fn admin_access(&self, kind: &str, allowed: bool) {
        self.admin_access.with_label_values(&[bool_label(allowed), kind]).inc();
    }

    /// Shows whether this process leads by the Lease of this name.
    pub fn set_leader(&self, lease: &str, is_leader: bool) {
        self.leaders.with_label_values(&[lease]).set(i64::from(is_leader));
    }

    pub fn finished(&self, request: &Finished<'_>) {
        let info = request.info;
        let labels = RequestLabels::of(info, request.known);
        let code = request.code.to_string();
        let dry_run = if request.dry_run { "All" } else { "" };
        let by_code = [
            code.as_str(),
            "apiserver",
            dry_run,
            labels.group,
            labels.resource,
            labels.scope,
            labels.subresource,
            labels.verb,
            labels.version,
        ];
        self.requests.with_label_values(&by_code).inc();
        if request.code == 429 {
            self.dropped
                .with_label_values(&[if info.is_read_only() { "readOnly" } else { "mutating" }])
                .inc();
        }
        if info.is_long_running() {
            return;
        }
        let [_, of_any_code @ ..] = &by_code;
        self.durations.with_label_values(of_any_code).observe(request.took.as_secs_f64());
        if info.is_read_only()
            && let Some(size) = request.size
        {
            #[expect(clippy::cast_precision_loss, reason = "a histogram of sizes")]
            self.response_sizes.with_label_values(&labels.all()).observe(size as f64);
        }
    }

    /// Counts a long-running request until the result is dropped.
    pub fn long_running(&self, info: &RequestInfo) -> GaugeGuard {
        let gauge = self.long_running.with_label_values(&RequestLabels::of(info, true).all());
        gauge.inc();
        GaugeGuard(gauge)
    }

    /// The counter of watch events sent for a resource.
    pub fn watch_events(&self, info: &RequestInfo) -> prometheus::IntCounter {
        self.watch_events.with_label_values(&[info.group.as_str(), &info.resource, &info.version])
    }

    /// Renders the page, with the current values of `in_flight`, `in_queue` and `objects`.
    pub fn page(
        &self,
        in_flight: (usize, usize),
        in_queue: Option<(usize, usize)>,
        objects: &[(String, usize)],
    ) -> Vec<u8> {
        let int = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.in_flight.with_label_values(&["readOnly"]).set(int(in_flight.0));
        self.in_flight.with_label_values(&["mutating"]).set(int(in_flight.1));
        if let Some((reading, mutating)) = in_queue {
            self.in_queue.with_label_values(&["readOnly"]).set(int(reading));
            self.in_queue.with_label_values(&["mutating"]).set(int(mutating));
        }
        self.storage_objects.reset();
        self.resource_objects.reset();
        for (resource, count) in objects {
            // A custom resource may have the same group and plural as a built-in one.
            self.storage_objects.with_label_values(&[resource.as_str()]).add(int(*count));
            let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
            self.resource_objects.with_label_values(&[group, plural]).add(int(*count));
        }
        self.process.read();
        let mut out = Vec::with_capacity(64 * 1024);
        // Writing to memory cannot fail; a family that cannot be encoded truncates the page but does not stop
        // the server.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        format_bounds_as_go(out)
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

/// The value of a label that is true or false.
pub(crate) fn bool_label(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// Decrements a gauge on drop.
#[derive(Debug)]
pub struct GaugeGuard(prometheus::IntGauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

struct RequestLabels<'a> {
    group: &'a str,
    resource: &'a str,
    scope: &'a str,
    subresource: &'a str,
    verb: &'a str,
    version: &'a str,
}

impl<'a> RequestLabels<'a> {
    fn of(info: &'a RequestInfo, known: bool) -> Self {
        // Client-chosen strings must not become labels: a client could exhaust memory with them.
        if !info.is_resource || !known {
            let verb = match info.verb.as_str() {
                "get" | "list" | "watch" => "GET",
                "post" | "create" => "POST",
                "put" | "update" => "PUT",
                "patch" => "PATCH",
                "delete" | "deletecollection" => "DELETE",
                "head" => "HEAD",
                _ => "other",
            };
            return RequestLabels { group: "", resource: "", scope: "", subresource: "", verb, version: "" };
        }
        let scope = if !info.name.is_empty() || info.verb == "create" {
            "resource"
        } else if info.namespace.is_empty() {
            "cluster"
        } else {
            "namespace"
        };
        let verb = match info.verb.as_str() {
            "get" => "GET",
            "list" => "LIST",
            "watch" => "WATCH",
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" => "DELETE",
            "deletecollection" => "DELETECOLLECTION",
            "proxy" => "CONNECT",
            _ => "other",
        };
        RequestLabels {
            group: &info.group,
            resource: &info.resource,
            scope,
            subresource: &info.subresource,
            verb,
            version: &info.version,
        }
    }

    fn all(&self) -> [&'a str; 7] {
        ["apiserver", self.group, self.resource, self.scope, self.subresource, self.verb, self.version]
    }
}
