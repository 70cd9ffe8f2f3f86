use std::collections::BTreeMap;
use std::time::Duration;

use authn::User;
use runtime::MetricRegistry;

use super::{AuditBatch, AuditLog, AuditLogFormat, AuditLogMode, Counters, LogConfig, throttle};
use crate::event::{AuditObjectRef, Event};
use crate::file::Rotation;
use crate::policy::{AuditStage, Level};

fn event() -> Event {
    Event {
        level: Level::RequestResponse,
        id: "an-id".into(),
        uri: "/api/v1/pods".to_owned(),
        verb: "list".into(),
        user: User::named("alice").in_groups(["devs", "ops"]),
        impersonated: None,
        source_ips: vec![[10, 0, 0, 1].into()],
        user_agent: "kubectl".to_owned(),
        object: None,
        status: None,
        request_object: Some(vec![b'7'; 2000].into()),
        response_object: None,
        received: 1_700_000_000_100_000,
        annotations: BTreeMap::new(),
    }
}

fn config(path: &std::path::Path, mode: AuditLogMode) -> LogConfig {
    LogConfig {
        path: Some(path.to_owned()),
        rotation: Rotation { max_megabytes: 0, max_days: 0, max_backups: 0, compress: false },
        format: AuditLogFormat::Json,
        mode,
        max_event: None,
    }
}

fn counters() -> Counters {
    Counters::register(&MetricRegistry::new()).unwrap()
}

#[tokio::test]
async fn a_blocking_log_has_the_line_when_it_returns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let log = AuditLog::open(config(&path, AuditLogMode::Blocking), counters()).unwrap();
    assert!(log.write(&event(), AuditStage::ResponseComplete, 0).await);
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    log.write_later(&event(), AuditStage::ResponseComplete, 0);
    log.close();
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn audit_write_errors_are_counted_and_fail_requests_only_in_strict_mode() {
    // Every write to `/dev/full` fails.
    let full = std::path::Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    for (mode, goes_on) in [(AuditLogMode::Blocking, true), (AuditLogMode::BlockingStrict, false)] {
        let counters = counters();
        let log = AuditLog::open(config(full, mode), counters.clone()).unwrap();
        assert_eq!(log.write(&event(), AuditStage::RequestReceived, 0).await, goes_on);
        assert_eq!(counters.errors.with_label_values(&["log"]).get(), 1);
    }
}

#[tokio::test]
async fn audit_events_are_dropped_and_counted_when_the_batch_queue_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    // The writer waits for a batch of ten longer than the test lasts, so no event leaves the queue.
    let batch = AuditBatch { buffer: 2, max_size: 10, max_wait: Duration::from_hours(1), throttle: None };
    let counters = counters();
    let log = AuditLog::open(config(&path, AuditLogMode::Batch(batch)), counters.clone()).unwrap();
    for _ in 0..3 {
        assert!(log.write(&event(), AuditStage::ResponseComplete, 0).await);
    }
    assert_eq!(counters.errors.with_label_values(&["buffered"]).get(), 1);
    log.close();
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    log.write_later(&event(), AuditStage::ResponseComplete, 0);
    assert_eq!(counters.errors.with_label_values(&["buffered"]).get(), 2);
}

#[tokio::test]
async fn an_oversized_audit_event_drops_its_objects_and_then_truncates_its_texts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let counters = counters();
    let written = async |event: &Event, max| {
        let config = LogConfig { max_event: Some(max), ..config(&path, AuditLogMode::Blocking) };
        let log = AuditLog::open(config, counters.clone()).unwrap();
        log.write(event, AuditStage::ResponseComplete, 0).await;
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().last().unwrap().to_owned()
    };
    assert!(written(&event(), 5000).await.contains("requestObject"));
    let text = written(&event(), 1000).await;
    assert!(!text.contains("requestObject") && text.contains(r#""requestURI":"/api/v1/pods""#), "{text}");
    assert!(text.contains(r#""annotations":{"audit.k8s.io/truncated":"true"}"#), "{text}");

    // All fields that a client chooses, at every level.
    let long = |character: &str| character.repeat(6000);
    let mut padded = event();
    padded.level = Level::Metadata;
    padded.request_object = None;
    padded.id = long("<").into();
    padded.uri = format!("/api/v1/pods?{}", long("&"));
    padded.source_ips = vec!["10.0.0.1".parse().unwrap(); 1000];
    padded.source_ips.push("10.0.0.2".parse().unwrap());
    padded.user.groups = vec!["g".into(); 1000];
    padded.user.extra =
        (0..100).map(|i| (format!("{i}{}", long("é")).into(), vec![long("x").into()])).collect();
    padded.object = Some(AuditObjectRef { name: long("n").into(), ..AuditObjectRef::default() });
    padded.annotations = (0..100).map(|i| (i.to_string(), long("<"))).collect();
    let text = written(&padded, 10_000).await;
    assert!(text.len() <= 10_000, "{}", text.len());
    for part in [
        r#""requestURI":"/api/v1/pods?"#,
        r#""username":"alice""#,
        r#""verb":"list""#,
        "10.0.0.2",
        "truncated",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // A limit smaller than any possible event.
    let text = written(&padded, 1).await;
    assert!(text.len() < 10_000 && text.contains(r#""username":"alice""#), "{text}");
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 4);
}

#[test]
fn the_legacy_form_is_one_line_of_text() {
    let line = String::from_utf8(event().legacy(AuditStage::RequestReceived)).unwrap();
    assert_eq!(
        line,
        "2023-11-14T22:13:20.1Z AUDIT: id=\"an-id\" stage=\"RequestReceived\" ip=\"10.0.0.1\" method=\"list\" user=\"alice\" groups=\"\\\"devs\\\",\\\"ops\\\"\" as=\"<self>\" asgroups=\"<lookup>\" user-agent=\"kubectl\" namespace=\"<none>\" uri=\"/api/v1/pods\" response=\"<deferred>\"\n"
    );
}

#[test]
fn a_throttle_lets_a_burst_pass_and_then_one_at_a_time() {
    let second = Duration::from_secs(1);
    let mut bucket = throttle(second, 2);
    let start = second;
    assert_eq!([0, 0, 1, 2].map(|_| bucket.reserve(start).as_secs()), [0, 0, 1, 2]);
    // After a pause the bucket is full again, and not more than full.
    let later = start + second * 100;
    assert_eq!([0, 0, 1].map(|_| bucket.reserve(later).as_secs()), [0, 0, 1]);
}
