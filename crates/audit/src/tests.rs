use std::net::IpAddr;
use std::sync::Arc;

use authn::User;
use http::{HeaderMap, HeaderValue, Method};
use requests::request_info::{Query, RequestInfo};
use runtime::MetricRegistry;
use value::{Value, json};

use super::event::{source_ips, user_agent};
use super::{
    Audit, AuditConfig, AuditLogFormat, AuditLogMode, AuditPolicy, AuditRecord, LogConfig, RecordedRequest,
    Rotation,
};

struct RecordedAudit {
    audit: Option<Arc<Audit>>,
    path: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

impl RecordedAudit {
    fn new(rules: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}");
        let config = AuditConfig {
            policy: AuditPolicy::parse(policy.as_bytes()).unwrap(),
            log: LogConfig {
                path: Some(path.clone()),
                rotation: Rotation { max_megabytes: 0, max_days: 0, max_backups: 0, compress: false },
                format: AuditLogFormat::Json,
                mode: AuditLogMode::Blocking,
                max_event: None,
            },
        };
        let audit = Audit::open(Some(config), &MetricRegistry::new()).unwrap();
        RecordedAudit { audit, path, _directory: directory }
    }

    fn record(&self, method: &Method, uri: &str) -> AuditRecord {
        let record = AuditRecord::begin(self.audit.as_ref(), "id".into());
        let info = RequestInfo::parse(method, uri, &Query::default());
        let user = User::named("alice");
        let (headers, peer) = (HeaderMap::new(), IpAddr::from([127, 0, 0, 1]));
        record.open(Some(&user), RecordedRequest { uri, info: &info, headers: &headers, peer });
        record
    }

    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        text.lines().map(|line| json::parse(line.as_bytes()).unwrap()).collect()
    }
}

fn secret() -> Value {
    json::parse(
        br#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","managedFields":[{}]},"data":{"k":"c2VjcmV0"}}"#,
    )
    .unwrap()
}

#[tokio::test]
async fn audit_events_contain_only_the_objects_their_level_allows() {
    for (level, request, response) in
        [("Metadata", false, false), ("Request", true, false), ("RequestResponse", true, true)]
    {
        let log = RecordedAudit::new(&format!("[{{level: {level}}}]"));
        let record = log.record(&Method::POST, "/api/v1/namespaces/n/secrets");
        record.request_object(&secret());
        record.response_object(&value::write::to_vec(&secret()).into());
        record.complete(201).await;
        let event = &log.events()[0];
        assert_eq!(event.get("requestObject").is_some(), request, "{level}");
        assert_eq!(event.get("responseObject").is_some(), response, "{level}");
        assert_eq!(event.str_at(&["objectRef", "name"]), Some("s"), "{level}");
    }
    let log = RecordedAudit::new("[{level: None}]");
    let record = log.record(&Method::POST, "/api/v1/namespaces/n/secrets");
    record.request_object(&secret());
    record.complete(201).await;
    assert!(log.events().is_empty());
}

#[tokio::test]
async fn managed_fields_are_left_out_where_the_policy_says_so() {
    let log = RecordedAudit::new("[{level: RequestResponse, omitManagedFields: true}]");
    let record = log.record(&Method::POST, "/api/v1/namespaces/n/secrets");
    record.request_object(&secret());
    let list = Value::map([("kind", Value::from("List")), ("items", Value::List(vec![secret()]))]);
    record.response_object(&value::write::to_vec(&list).into());
    record.complete(201).await;
    assert!(!std::fs::read_to_string(&log.path).unwrap().contains("managedFields"));
}

#[tokio::test]
async fn an_audit_annotation_keeps_its_first_value() {
    let log = RecordedAudit::new("[{level: Metadata}]");
    let record = log.record(&Method::GET, "/version");
    record.annotate("a/b", "first");
    record.annotate("a/b", "second");
    record.annotate("a/c", "other");
    record.complete(200).await;
    let annotations = log.events()[0].at(&["annotations"]).cloned().unwrap();
    assert_eq!(annotations, Value::map([("a/b", "first"), ("a/c", "other")]));
}

#[tokio::test]
async fn a_streaming_response_is_audited_as_complete_when_it_ends() {
    let log = RecordedAudit::new("[{level: Metadata, omitStages: [RequestReceived]}]");
    let record = log.record(&Method::GET, "/api/v1/pods");
    record.received().await.unwrap();
    record.started(200).await;
    let closing = record.complete_at_end();
    assert_eq!(log.events().len(), 1);
    drop(closing);
    log.audit.as_ref().unwrap().close();
    let stages: Vec<String> =
        log.events().iter().map(|e| e.str_at(&["stage"]).unwrap_or_default().to_owned()).collect();
    assert_eq!(stages, ["ResponseStarted", "ResponseComplete"]);
}

#[tokio::test]
async fn a_panic_is_audited_in_the_panic_stage() {
    let log = RecordedAudit::new("[{level: Metadata}]");
    let record = log.record(&Method::GET, "/version");
    record.panicked("boom").await;
    let event = &log.events()[0];
    assert_eq!(event.str_at(&["stage"]), Some("Panic"));
    assert_eq!(event.str_at(&["responseStatus", "message"]), Some("APIServer panic'd: boom"));
    assert_eq!(event.int_at(&["responseStatus", "code"]), Some(500));
}

#[test]
fn source_ips_list_forwarded_addresses_and_then_the_connections_address() {
    let check = |forwarded: &str, real: &str, expected: &[&str]| {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_str(forwarded).unwrap());
        headers.insert("x-real-ip", HeaderValue::from_str(real).unwrap());
        let ips: Vec<String> =
            source_ips(&headers, [127, 0, 0, 1].into()).iter().map(ToString::to_string).collect();
        assert_eq!(ips, expected);
    };
    check("", "", &["127.0.0.1"]);
    check("1.2.3.4, nonsense, ::1", "", &["1.2.3.4", "::1", "127.0.0.1"]);
    check("1.2.3.4", "1.2.3.4", &["1.2.3.4", "127.0.0.1"]);
    check("1.2.3.4", "5.6.7.8", &["1.2.3.4", "5.6.7.8", "127.0.0.1"]);
    check("1.2.3.4, 127.0.0.1", "", &["1.2.3.4", "127.0.0.1"]);
}

#[test]
fn a_long_user_agent_is_cut() {
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", HeaderValue::from_str(&"x".repeat(2000)).unwrap());
    assert_eq!(user_agent(&headers), format!("{}...TRUNCATED", "x".repeat(1024)));
    headers.insert("user-agent", HeaderValue::from_static("kubectl"));
    assert_eq!(user_agent(&headers), "kubectl");
}
