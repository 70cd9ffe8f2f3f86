use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::time::Timestamp;
use api::{Status, StatusReason, meta};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use value::{Value, json};

use super::{Candidate, ControllerGroup, LeaseApi, lead};

const LEASE: &str = "portcullis-controllers";
/// The longest time until a candidate notices that the Lease is free.
const RETRY: Duration = Duration::from_millis(4500);

/// The Leases that all servers share, and who runs controllers.
#[derive(Default)]
struct SharedLeases {
    leases: Mutex<BTreeMap<String, Value>>,
    /// The servers whose group runs, and all that ever started one.
    running: Mutex<Vec<&'static str>>,
    started: Mutex<Vec<&'static str>>,
    reports: Mutex<Vec<String>>,
}

impl SharedLeases {
    fn running(&self) -> Vec<&'static str> {
        self.running.lock().unwrap().clone()
    }

    fn write(&self, lease: &Value, is_new: bool) -> Result<Value, Status> {
        let mut leases = self.leases.lock().unwrap();
        let stored = leases.get(meta::name(lease)).map_or("", |stored| meta::resource_version(stored));
        let expected = if is_new { "" } else { meta::resource_version(lease) };
        if stored != expected {
            return Err(Status::failure(409, StatusReason::Conflict, "conflict"));
        }
        let mut lease = lease.clone();
        meta::set(&mut lease, "resourceVersion", format!("{stored}i"));
        leases.insert(meta::name(&lease).to_owned(), lease.clone());
        Ok(lease)
    }

    fn holder(&self) -> Option<String> {
        let leases = self.leases.lock().unwrap();
        leases.get(LEASE)?.str_at(&["spec", "holderIdentity"]).map(str::to_owned)
    }

    /// Writes the Lease of another component, as if that component renewed it.
    fn renew_component(&self, name: &str, turn: u64) {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"holderIdentity":"other","leaseDurationSeconds":15,"renewTime":"{turn}"}}}}"#
        );
        self.leases.lock().unwrap().insert(name.to_owned(), json::parse(text.as_bytes()).unwrap());
    }
}

struct Access {
    shared: Arc<SharedLeases>,
    name: &'static str,
    is_partitioned: Arc<AtomicBool>,
    /// The difference of this server's clock, in seconds.
    skew: i64,
    since: Instant,
}

impl LeaseApi for Access {
    fn get(&self, name: &str) -> Result<Option<Value>, Status> {
        Ok(self.shared.leases.lock().unwrap().get(name).cloned())
    }

    async fn create(&self, lease: &Value) -> Result<Value, Status> {
        self.shared.write(lease, true)
    }

    async fn update(&self, lease: &Value) -> Result<Value, Status> {
        if self.is_partitioned.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.shared.write(lease, false)
    }

    fn wall_time(&self) -> Timestamp {
        let micros = i64::try_from(self.since.elapsed().as_micros()).unwrap();
        Timestamp::from_micros(self.skew * 1_000_000 + micros)
    }

    fn jitter(&self) -> f64 {
        0.5
    }

    async fn report(&self, _: &Value, identity: &str, is_leader: bool) {
        assert_eq!(identity, self.name);
        self.shared.reports.lock().unwrap().push(format!("{identity} {is_leader}"));
    }
}

/// Counts a group as running until it is dropped.
struct Runs(Arc<SharedLeases>, &'static str);

impl Runs {
    fn new(shared: &Arc<SharedLeases>, name: &'static str) -> Self {
        let mut running = shared.running.lock().unwrap();
        running.push(name);
        assert_eq!(running.len(), 1, "two servers run controllers: {running:?}");
        shared.started.lock().unwrap().push(name);
        Runs(Arc::clone(shared), name)
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.running.lock().unwrap().retain(|name| *name != self.1);
    }
}

struct Server {
    stop: watch::Sender<bool>,
    is_partitioned: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Server {
    fn start(shared: &Arc<SharedLeases>, name: &'static str, skew: i64) -> Self {
        Self::start_as(shared, name, skew, true, false)
    }

    fn start_as(
        shared: &Arc<SharedLeases>,
        name: &'static str,
        skew: i64,
        is_candidate: bool,
        is_stubborn: bool,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let is_partitioned = Arc::new(AtomicBool::new(false));
        let access = Access {
            shared: Arc::clone(shared),
            name,
            is_partitioned: Arc::clone(&is_partitioned),
            skew,
            since: Instant::now(),
        };
        let counts = Arc::clone(shared);
        let group = ControllerGroup {
            name: "controllers",
            component_lease: "kube-controller-manager",
            start: Box::new(move |mut stop| {
                let counts = Arc::clone(&counts);
                tokio::spawn(async move {
                    let _runs = Runs::new(&counts, name);
                    let _ = stop.wait_for(|stop| *stop).await;
                    if is_stubborn {
                        std::future::pending::<()>().await;
                    }
                })
            }),
        };
        let candidate = is_candidate.then(|| Candidate {
            namespace: "kube-system",
            lease: LEASE,
            identity: name.to_owned(),
        });
        let task = tokio::spawn(lead(access, candidate, vec![group], stopped));
        Server { stop, is_partitioned, task }
    }

    async fn stop(self) {
        let _ = self.stop.send(true);
        self.task.await.unwrap();
    }
}

/// Waits until `condition` holds; returns how long that took. Fails after two minutes.
async fn until(condition: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        sleep(Duration::from_millis(100)).await;
        assert!(start.elapsed() < Duration::from_mins(2));
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn one_of_three_servers_leads_whatever_their_clocks_show() {
    let shared = Arc::new(SharedLeases::default());
    let servers =
        [("a", 0), ("b", 3600), ("c", -3600)].map(|(name, skew)| Server::start(&shared, name, skew));
    until(|| !shared.running().is_empty()).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(shared.started.lock().unwrap().as_slice(), ["a"], "the leader never changed");
    assert_eq!(shared.running(), ["a"]);
    assert_eq!(shared.reports.lock().unwrap().as_slice(), ["a true"]);
    drop(servers);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_hands_over_at_once() {
    let shared = Arc::new(SharedLeases::default());
    let a = Server::start(&shared, "a", 0);
    until(|| shared.running() == ["a"]).await;
    let b = Server::start(&shared, "b", 0);
    a.stop().await;
    assert_eq!(shared.holder().as_deref(), Some(""), "released");
    let took = until(|| shared.running() == ["b"]).await;
    assert!(took <= RETRY, "{took:?}");
    assert_eq!(shared.reports.lock().unwrap().as_slice(), ["a true", "a false", "b true"]);
    b.stop().await;
    assert!(shared.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_its_work_before_another_begins() {
    for is_stubborn in [false, true] {
        let shared = Arc::new(SharedLeases::default());
        let a = Server::start_as(&shared, "a", 0, true, is_stubborn);
        until(|| shared.running() == ["a"]).await;
        let b = Server::start(&shared, "b", 0);
        sleep(Duration::from_secs(30)).await;
        a.is_partitioned.store(true, Ordering::Relaxed);
        let ended = until(|| shared.running().is_empty()).await;
        assert!(ended < Duration::from_secs(15), "{ended:?}");
        // `Runs::new` fails if both run.
        let took = ended + until(|| shared.running() == ["b"]).await;
        assert!(took <= Duration::from_secs(15) + RETRY, "{took:?}");
        a.is_partitioned.store(false, Ordering::Relaxed);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(shared.running(), ["b"], "the former leader does not take it back");
        drop((a, b));
    }
}

#[tokio::test(start_paused = true)]
async fn controllers_pause_while_the_component_of_kubernetes_leads() {
    let shared = Arc::new(SharedLeases::default());
    let server = Server::start(&shared, "a", 0);
    until(|| shared.running() == ["a"]).await;
    for turn in 0..30 {
        shared.renew_component("kube-controller-manager", turn);
        shared.renew_component("kube-scheduler", turn);
        sleep(Duration::from_secs(2)).await;
        assert!(shared.running().is_empty() || turn == 0, "kube-controller-manager leads");
    }
    assert_eq!(shared.holder().as_deref(), Some("a"), "the server stays the leader");
    let took = until(|| shared.running() == ["a"]).await;
    assert!((Duration::from_secs(12)..Duration::from_secs(18)).contains(&took), "{took:?}");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_only_server_of_a_store_leads_at_once_and_writes_no_lease() {
    let shared = Arc::new(SharedLeases::default());
    let server = Server::start_as(&shared, "a", 0, false, false);
    let took = until(|| shared.running() == ["a"]).await;
    assert!(took <= Duration::from_millis(100), "{took:?}");
    server.stop().await;
    assert!(shared.running().is_empty());
    assert_eq!(shared.holder(), None);
    assert!(shared.reports.lock().unwrap().is_empty());
}
