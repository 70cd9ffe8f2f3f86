use std::time::Duration;

use ::admission::webhook::WebhookEndpoint;
use storage::{Memory, Store, StoreOptions};

use super::*;
use crate::metrics::Metrics;

#[test]
fn paths_are_cleaned_as_the_client_of_kubernetes_does() {
    for (path, cleaned) in [
        ("", "/"),
        ("/", "/"),
        ("/review", "/review"),
        ("/review/", "/review"),
        ("//a//b/", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/../..", "/"),
    ] {
        assert_eq!(clean_path(path), cleaned, "{path}");
    }
}

#[test]
fn time_limits_are_whole_seconds_rounded_up() {
    assert_eq!(go_seconds(Duration::from_secs(10)), "10s");
    assert_eq!(go_seconds(Duration::from_millis(9001)), "10s");
    assert_eq!(go_seconds(Duration::from_millis(1)), "1s");
    assert_eq!(go_seconds(Duration::from_mins(1)), "1m0s");
}

#[test]
fn webhook_urls_use_their_own_host_and_http2_only_on_loopback() {
    let located = locate(&WebhookEndpoint::Url("https://hooks.example:8443/a/".into())).unwrap();
    assert_eq!(located.origin, "https://hooks.example:8443");
    assert_eq!((located.host_port.as_str(), located.path.as_str()), ("hooks.example:8443", "/a"));
    assert!(located.http1_only);
    let local = locate(&WebhookEndpoint::Url("https://127.0.0.1/x".into())).unwrap();
    assert_eq!(local.host_port, "127.0.0.1:443");
    assert!(!local.http1_only);
    assert!(!locate(&WebhookEndpoint::Url("https://[::1]:1/x".into())).unwrap().http1_only);
    assert!(locate(&WebhookEndpoint::Unset).is_err());
}

#[test]
fn webhook_services_are_called_by_their_cluster_dns_name() {
    let endpoint =
        WebhookEndpoint::Service { namespace: "ns".into(), name: "svc".into(), port: 443, path: "p".into() };
    let located = locate(&endpoint).unwrap();
    assert_eq!(located.origin, "https://svc.ns.svc:443");
    assert_eq!(located.path, "/p");
    assert!(located.http1_only);
}

fn transport(store: Store) -> WebhookTransport {
    let metrics = Metrics::new(0.0).unwrap().custom;
    WebhookTransport::new(store, KubeconfigCredentials::default(), None, metrics, Loopback::disconnected())
}

#[tokio::test]
async fn only_the_most_recent_webhook_targets_are_cached() {
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    let transport = transport(store);
    for port in 1..=MAX_TARGETS + 10 {
        let endpoint = WebhookEndpoint::Url(format!("https://127.0.0.1:{port}/").into());
        let webhook = WebhookTarget { endpoint, ca_bundle: Vec::new() };
        let located = locate(&webhook.endpoint).unwrap();
        let endpoint = transport.endpoint(&webhook, &located).unwrap();
        transport.target((webhook, None), endpoint).unwrap();
    }
    let targets = transport.targets.lock().unwrap();
    assert_eq!(targets.by_endpoint.len(), MAX_TARGETS);
    let oldest = WebhookTarget {
        endpoint: WebhookEndpoint::Url("https://127.0.0.1:1/".into()),
        ca_bundle: Vec::new(),
    };
    assert!(!targets.by_endpoint.contains_key(&(oldest, None)));
}

/// Concurrent callers build targets outside the lock, but must all end up with the same connections.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_for_a_webhook_target_share_one_cached_target() {
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    let transport = Arc::new(transport(store));
    let webhook = WebhookTarget {
        endpoint: WebhookEndpoint::Url("https://127.0.0.1:1/".into()),
        ca_bundle: Vec::new(),
    };
    let asking: Vec<_> = (0..16)
        .map(|_| {
            let (transport, webhook) = (std::sync::Arc::clone(&transport), webhook.clone());
            tokio::task::spawn_blocking(move || {
                let located = locate(&webhook.endpoint).unwrap();
                let endpoint = transport.endpoint(&webhook, &located).unwrap();
                transport.target((webhook, None), endpoint).unwrap();
            })
        })
        .collect();
    for asked in asking {
        asked.await.unwrap();
    }
    assert_eq!(transport.targets.lock().unwrap().by_endpoint.len(), 1);
}
