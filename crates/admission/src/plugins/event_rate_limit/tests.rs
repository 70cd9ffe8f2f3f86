use std::sync::atomic::{AtomicU64, Ordering};

use api::{GroupResource, GroupVersionKind};
use authn::User;
use value::yaml;

use super::*;
use crate::VersionedObject;
use crate::fake_cluster::FakeCluster;

const HEAD: &str = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n";

fn read(rest: &str) -> Result<Vec<EventLimit>, String> {
    limits(format!("{HEAD}{rest}").as_bytes())
}

#[test]
fn limits_are_read_strictly() {
    let read_limits =
        read("limits: [{type: User, qps: 5, burst: 10}, {type: Server, qps: 1, burst: 2, cacheSize: 7}]");
    let sizes: Vec<usize> = read_limits.unwrap().iter().map(|limit| limit.size).collect();
    assert_eq!(sizes, [4096, 7]);
    assert_eq!(read("").unwrap_err(), "limits: Invalid value: null: must not be empty");
    assert_eq!(limits_without_configuration().unwrap_err(), "limits: Invalid value: null: must not be empty");
    let why = read("limits: [{type: Users, qps: 0, burst: -1, cacheSize: -1}]").unwrap_err();
    for part in [
        r#"limits[0].type: Unsupported value: "Users": supported values: "Namespace", "Server", "SourceAndObject", "User""#,
        "limits[0].burst: Invalid value: -1: must be positive",
        "limits[0].qps: Invalid value: 0: must be positive",
        "limits[0].cacheSize: Invalid value: -1: must not be negative",
    ] {
        assert!(why.contains(part), "{part} in {why}");
    }
    assert_eq!(
        read("limits: [{type: User, qps: 5, brust: 1, burst: 1}]").unwrap_err(),
        "strict decoding error: unknown field \"limits[0].brust\""
    );
    assert_eq!(
        read("limits: [{type: User, qps: many, burst: 1}]").unwrap_err(),
        "json: cannot unmarshal string into Go struct field Limit.limits.qps of type int32"
    );
    assert!(
        limits(b"apiVersion: v1\nkind: Configuration")
            .unwrap_err()
            .contains("no kind \"Configuration\" is registered")
    );
}

/// The plugin and its clock, in milliseconds.
fn plugin(text: &str) -> (EventRateLimit, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(0));
    let hand = Arc::clone(&now);
    let clock: MonotonicClock = Arc::new(move || Duration::from_millis(hand.load(Ordering::Relaxed)));
    (EventRateLimit::new(&read(text).unwrap(), clock), now)
}

fn write(
    plugin: &EventRateLimit,
    user: &str,
    namespace: &str,
    event: &str,
    dry_run: bool,
) -> Result<(), String> {
    let (user, options) = (User::named(user), Value::Null);
    let kind = GroupVersionKind::new("", "v1", "Event");
    let attributes = AdmissionAttributes {
        user: &user,
        operation: crate::Operation::Create,
        kind: kind.clone(),
        stored_kind: kind,
        resource: GroupResource::new("", "events"),
        version: "v1".into(),
        subresource: "".into(),
        namespace: namespace.into(),
        name: "e".into(),
        old_object: VersionedObject::absent(),
        options: &options,
        dry_run,
        now: 0,
        deadline: None,
        budget: value::Budget::UNLIMITED,
        snapshot: crate::AdmissionSnapshot::default(),
    };
    let event = yaml::read(event.as_bytes()).unwrap().value;
    plugin
        .validate(&attributes, Some(&event), &FakeCluster::default(), &mut AdmissionNotes::default())
        .map_err(|status| format!("{} {}", status.code(), status.message()))
}

#[test]
fn events_are_limited_to_the_burst_and_then_to_qps() {
    let (plugin, now) = plugin("limits: [{type: Server, qps: 2, burst: 3}]");
    let ask = || write(&plugin, "ann", "team", "{}", false);
    for _ in 0..3 {
        assert_eq!(ask(), Ok(()));
    }
    let refused = Err("429 Too many requests: limit reached on type Server for key ".to_owned());
    assert_eq!(ask(), refused);
    assert_eq!(write(&plugin, "ann", "team", "{}", true), Ok(()));
    now.store(500, Ordering::Relaxed);
    assert_eq!(ask(), Ok(()));
    assert_eq!(ask(), refused);
    now.store(60_000, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(ask(), Ok(()));
    }
    assert_eq!(ask(), refused);
}

#[test]
fn each_namespace_and_user_has_its_own_limit_and_all_exceeded_limits_are_reported() {
    let (plugin, _) = plugin(
        "limits: [{type: Namespace, qps: 1, burst: 1}, {type: User, qps: 1, burst: 2}, {type: SourceAndObject, qps: 1, burst: 9}]",
    );
    let ask = |user, namespace| write(&plugin, user, namespace, "{}", false);
    assert_eq!(ask("ann", "a"), Ok(()));
    assert_eq!(ask("ann", "b"), Ok(()));
    assert_eq!(ask("bob", "c"), Ok(()));
    assert_eq!(
        ask("ann", "b"),
        Err("429 Too many requests: [limit reached on type Namespace for key b, limit reached on type User for key ann]".to_owned())
    );
}

#[test]
fn source_and_object_limit_evicts_the_least_recently_used_bucket() {
    let (plugin, _) = plugin("limits: [{type: SourceAndObject, qps: 1, burst: 1, cacheSize: 2}]");
    let ask = |host: &str| {
        let event = format!(
            "{{source: {{component: kubelet, host: {host}}}, involvedObject: {{kind: Pod, namespace: ns, name: p, uid: u, apiVersion: v1}}}}"
        );
        write(&plugin, "ann", "n", &event, false)
    };
    assert_eq!(ask("h1"), Ok(()));
    assert_eq!(ask("h2"), Ok(()));
    assert_eq!(
        ask("h1"),
        Err("429 Too many requests: limit reached on type SourceAndObject for key kubeleth1Podnspuv1"
            .to_owned())
    );
    // The bucket of `h2` is the least recently used. It is evicted, so `h2` gets a new, full bucket.
    assert_eq!(ask("h3"), Ok(()));
    assert_eq!(ask("h2"), Ok(()));
}
