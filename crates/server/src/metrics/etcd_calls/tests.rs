use std::time::Duration;

use etcd::EtcdObserver as _;
use prometheus::TextEncoder;
use runtime::MetricRegistry;

use super::EtcdMetrics;

#[test]
fn calls_events_and_leases_have_the_series_of_kube_apiserver() {
    let registry = MetricRegistry::new();
    let metrics = EtcdMetrics::new(&registry).unwrap();
    let (short, long) = (Duration::from_millis(1), Duration::from_secs(90));
    metrics.request("create", "/registry/deployments/n/d", true, short);
    metrics.request("update", "/registry/example.com/things/n/t", false, long);
    metrics.request("update", "/registry/masterleases/192.0.2.1", true, short);
    metrics.request("update", "/registry/ranges/servicenodeports", true, short);
    metrics.request("list", "/registry/", true, short);
    metrics.request("getCurrentResourceVersion", "/registry/health", true, short);
    metrics.request("get", "/registry/health", true, short);
    metrics.event("/registry/services/specs/n/s");
    metrics.event("/registry/health");
    metrics.bookmark();
    metrics.lease(120);
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for expected in [
        r#"etcd_requests_total{group="apps",operation="create",resource="deployments"} 1"#,
        r#"etcd_requests_total{group="example.com",operation="update",resource="things"} 1"#,
        r#"etcd_request_errors_total{group="example.com",operation="update",resource="things"} 1"#,
        r#"etcd_requests_total{group="",operation="update",resource="apiServerIPInfo"} 1"#,
        r#"etcd_requests_total{group="",operation="update",resource="servicenodeportallocations"} 1"#,
        r#"etcd_requests_total{group="",operation="list",resource=""} 1"#,
        r#"etcd_requests_total{group="",operation="getCurrentResourceVersion",resource=""} 1"#,
        r#"etcd_request_duration_seconds_bucket{group="apps",operation="create",resource="deployments",le="0.005"} 1"#,
        r#"etcd_request_duration_seconds_bucket{group="example.com",operation="update",resource="things",le="60"} 0"#,
        r#"apiserver_storage_events_received_total{group="",resource="services"} 1"#,
        r#"etcd_bookmark_counts{group="",resource=""} 1"#,
        r#"etcd_bookmark_total{group="",resource=""} 1"#,
        r#"etcd_lease_object_counts_bucket{le="100"} 0"#,
        r#"etcd_lease_object_counts_bucket{le="500"} 1"#,
    ] {
        assert!(text.lines().any(|line| line == expected), "{expected} is missing in:\n{text}");
    }
    assert!(!text.contains(r#"operation="get""#), "{text}");
    assert_eq!(text.matches("etcd_request_errors_total{").count(), 1, "{text}");
}
