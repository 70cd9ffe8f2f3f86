use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::Status;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use value::Backoff;
use value::{Str, Value};

use super::{Controller, ReconcileOutcome, run};
use crate::api::{
    AggregatedKinds, Api, ChangeStream, ClusterReader, ObjectChange, ObjectEvent, PatchBody, ResourceKind,
    TypedObjectRef, WatchSource,
};
use crate::fake::{FakeReader, kind, parse};

/// A watch that delivers a fixed sequence of events and then stays silent.
struct Script(VecDeque<ObjectEvent>);

impl ChangeStream for Script {
    async fn next(&mut self) -> ObjectEvent {
        match self.0.pop_front() {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

/// For each expected watch: the initial list and the events that follow.
type Scripts = Mutex<VecDeque<(Vec<ObjectChange>, Vec<ObjectEvent>)>>;

struct Scripted {
    fake: FakeReader,
    scripts: Scripts,
}

impl ClusterReader for Scripted {
    fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<ResourceKind>> {
        self.fake.kind(api_version, kind)
    }
    fn kinds(&self) -> Vec<Arc<ResourceKind>> {
        self.fake.kinds()
    }
    fn aggregated_kinds(&self) -> AggregatedKinds {
        self.fake.aggregated_kinds()
    }
    fn get(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status> {
        self.fake.get(object_ref)
    }
    fn metadata(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status> {
        self.fake.metadata(object_ref)
    }
    fn list(&self, kind: &ResourceKind, namespace: &str) -> Result<Vec<Value>, Status> {
        self.fake.list(kind, namespace)
    }
    fn list_by_field(&self, kind: &ResourceKind, field: &str, value: &str) -> Result<Vec<Value>, Status> {
        self.fake.list_by_field(kind, field, value)
    }
    fn names(&self, kind: &ResourceKind, namespace: &str) -> Vec<Str> {
        self.fake.names(kind, namespace)
    }
    fn count(&self, kind: &ResourceKind, namespace: &str) -> usize {
        self.fake.count(kind, namespace)
    }
    fn fresh_uid(&self) -> String {
        String::new()
    }

    fn now(&self) -> i64 {
        0
    }
}

impl Api for Scripted {
    type Watch = Script;

    fn watch(&self, _: &WatchSource) -> (Vec<ObjectChange>, Script) {
        let (initial, events) = self.scripts.lock().unwrap().pop_front().unwrap_or_default();
        (initial, Script(events.into()))
    }
    async fn create(&self, _: &ResourceKind, _: &str, _: &Value) -> Result<Value, Status> {
        Err(Status::internal("nothing is written here"))
    }
    async fn update(&self, _: &TypedObjectRef, _: &str, _: &Value) -> Result<Value, Status> {
        Err(Status::internal("nothing is written here"))
    }
    async fn patch(&self, _: &TypedObjectRef, _: &str, _: &PatchBody) -> Result<Value, Status> {
        Err(Status::internal("nothing is written here"))
    }
    async fn list_aggregated(&self, _: &ResourceKind, _: &str) -> Result<Vec<Value>, Status> {
        Err(Status::internal("there are no aggregated API servers"))
    }
    async fn delete(&self, _: &TypedObjectRef, _: &Value) -> Result<(), Status> {
        Err(Status::internal("nothing is written here"))
    }
    async fn delete_collection(&self, _: &ResourceKind, _: &str, _: &Value) -> Result<(), Status> {
        Err(Status::internal("nothing is written here"))
    }
}

/// Records reconciliations; keys named `bad` fail `failures` times, keys named `slow` take a second.
#[derive(Default)]
struct Tally {
    seen: Mutex<Vec<(Str, Duration)>>,
    restarts: AtomicUsize,
    busy: AtomicUsize,
    busiest: AtomicUsize,
    finished: AtomicUsize,
}

struct TalliedController {
    tally: Arc<Tally>,
    begun: Instant,
    failures: usize,
}

impl Controller for TalliedController {
    type Key = Str;
    const NAME: &'static str = "counting";
    const WORKERS: usize = 2;
    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(40));

    fn observe(&self, change: &ObjectChange) -> Vec<(Str, Duration)> {
        vec![(change.object_ref.name.clone(), Duration::ZERO)]
    }

    fn restart(&self, _: &WatchSource) {
        self.tally.restarts.fetch_add(1, Ordering::SeqCst);
    }

    async fn reconcile(&self, key: Str) -> Result<ReconcileOutcome<Str>, Status> {
        let tally = &self.tally;
        let attempts = {
            let mut seen = tally.seen.lock().unwrap();
            seen.push((key.clone(), self.begun.elapsed()));
            seen.iter().filter(|(k, _)| *k == key).count()
        };
        let busy = tally.busy.fetch_add(1, Ordering::SeqCst) + 1;
        tally.busiest.fetch_max(busy, Ordering::SeqCst);
        if key.starts_with("slow") {
            sleep(Duration::from_secs(1)).await;
        }
        tally.busy.fetch_sub(1, Ordering::SeqCst);
        tally.finished.fetch_add(1, Ordering::SeqCst);
        if key == "bad" && attempts <= self.failures {
            return Err(Status::internal("not yet"));
        }
        Ok(if key == "parent" {
            ReconcileOutcome::Keys(vec!["child".into()])
        } else {
            ReconcileOutcome::Done
        })
    }
}

fn change(name: &str) -> ObjectChange {
    let object_ref = kind("", "v1", "ConfigMap", "configmaps", true).object_ref("n", name);
    ObjectChange { object_ref, object: parse("{}"), deleted: false }
}

/// Runs a controller over these scripts for `wait` of paused time and returns its records.
async fn after(
    wait: Duration,
    scripts: Vec<(Vec<ObjectChange>, Vec<ObjectEvent>)>,
    failures: usize,
) -> Arc<Tally> {
    let api = Arc::new(Scripted { fake: FakeReader::new(&[]), scripts: Mutex::new(scripts.into()) });
    let tally = Arc::new(Tally::default());
    let (stop, stopped) = watch::channel(false);
    let controller = TalliedController { tally: Arc::clone(&tally), begun: Instant::now(), failures };
    let running = tokio::spawn(run(controller, api, vec![WatchSource::Owners], stopped));
    sleep(wait).await;
    stop.send(true).unwrap();
    running.await.unwrap();
    tally
}

fn names(tally: &Tally) -> Vec<Str> {
    tally.seen.lock().unwrap().iter().map(|(key, _)| key.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_controller_reconciles_listed_and_watched_objects() {
    let events = vec![ObjectEvent::Change(change("b")), ObjectEvent::Change(change("parent"))];
    let tally = after(Duration::from_secs(1), vec![(vec![change("a")], events)], 0).await;
    assert_eq!(names(&tally), ["a", "b", "parent", "child"]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_relists_after_missed_changes() {
    let scripts =
        vec![(vec![change("a")], vec![ObjectEvent::Lost]), (vec![change("a"), change("b")], vec![])];
    let tally = after(Duration::from_secs(1), scripts, 0).await;
    assert_eq!(tally.restarts.load(Ordering::SeqCst), 2);
    assert!(names(&tally).contains(&"b".into()));
}

#[tokio::test(start_paused = true)]
async fn failed_keys_are_retried_with_backoff_until_they_succeed() {
    let tally = after(Duration::from_secs(1), vec![(vec![change("bad")], vec![])], 4).await;
    let times: Vec<u128> = tally.seen.lock().unwrap().iter().map(|(_, at)| at.as_millis()).collect();
    let waits: Vec<u128> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits.len(), 4);
    for (wait, least) in waits.iter().zip([10, 20, 40, 40]) {
        assert!((least..least + 5).contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn controller_concurrency_is_limited_and_started_work_finishes_on_shutdown() {
    let all = (0..9).map(|n| change(&format!("slow-{n}"))).collect();
    let tally = after(Duration::from_millis(1500), vec![(all, vec![])], 0).await;
    assert_eq!(tally.busiest.load(Ordering::SeqCst), 2);
    assert_eq!(tally.seen.lock().unwrap().len(), 4, "two rounds of two had begun");
    assert_eq!(tally.finished.load(Ordering::SeqCst), 4, "and were finished before it stopped");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_with_the_server_ends_the_controller() {
    let api = Arc::new(Scripted {
        fake: FakeReader::new(&[]),
        scripts: Mutex::new(VecDeque::from([(vec![], vec![ObjectEvent::Closed])])),
    });
    let controller = TalliedController { tally: Arc::default(), begun: Instant::now(), failures: 0 };
    let (_stop, stopped) = watch::channel(false);
    tokio::time::timeout(Duration::from_secs(5), run(controller, api, vec![WatchSource::Owners], stopped))
        .await
        .expect("it ends");
}
