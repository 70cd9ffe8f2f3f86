use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};

use super::{ActiveWatches, is_refused};

#[test]
fn health_metrics_and_api_servers_are_served_to_the_end() {
    let agent = |agent: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers
    };
    for path in ["/readyz", "/readyz/ping", "/livez", "/healthz", "/metrics", "/metrics/slis"] {
        assert!(!is_refused(path, &HeaderMap::new()), "{path}");
    }
    for path in ["/api/v1/pods", "/version", "/"] {
        assert!(is_refused(path, &HeaderMap::new()), "{path}");
        assert!(is_refused(path, &agent("kubectl/v1.37.0")), "{path}");
        assert!(!is_refused(path, &agent("kube-apiserver/v1.37.0")), "{path}");
    }
}

#[test]
fn watches_end_within_the_grace_period_and_few_watches_end_sooner() {
    let watches = ActiveWatches::default();
    let grace = Duration::from_secs(10);
    assert_eq!(watches.spread(grace), Duration::ZERO);
    let active: Vec<_> = (0..1000).map(|_| watches.begin()).collect();
    assert_eq!(watches.spread(grace), Duration::from_secs(5));
    assert_eq!(watches.spread(Duration::from_secs(3)), Duration::from_secs(3));
    assert_eq!(watches.spread(Duration::ZERO), Duration::ZERO);
    drop(active);
    assert_eq!(watches.spread(grace), Duration::ZERO);
}
