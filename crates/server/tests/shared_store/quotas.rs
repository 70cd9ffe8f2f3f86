//! Quotas with two servers.

use std::time::{Duration, Instant};

use api::{Status, meta};
use server::client::LoopbackClient;
use storage::shared_memory::{CommitHold, HoldPoint};
use tokio::task::JoinHandle;
use value::Value;

use crate::servers::{MAPS, PATIENCE, PODS, Servers, parse, pod};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// The number of pods that a quota counts.
async fn counted_pods(servers: &Servers, name: &str) -> Option<i64> {
    let quota = servers.one.get(&format!("{QUOTAS}/{name}")).await.unwrap();
    quota.str_at(&["status", "used", "pods"]).map(|count| count.parse().unwrap())
}

async fn create_pod_quota(servers: &Servers, hard: i64) {
    let quota = format!(r#"{{"metadata":{{"name":"q"}},"spec":{{"hard":{{"pods":"{hard}"}}}}}}"#);
    servers.create_known(QUOTAS, &quota).await;
    // The controller would set this after some seconds.
    let status = format!(r#"{{"status":{{"hard":{{"pods":"{hard}"}},"used":{{"pods":"0"}}}}}}"#);
    servers.one.merge_patch(&format!("{QUOTAS}/q/status"), &parse(&status)).await.unwrap();
    servers.stream.resume();
    servers.two.get(&format!("{QUOTAS}/q")).await.unwrap();
}

/// Creates pods through a server until its quota is exhausted; returns how many were created. A conflict with the other server is
/// repeated, as clients do.
async fn create_pods(client: LoopbackClient, prefix: &str) -> usize {
    let mut created = 0;
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "the quota is not exhausted");
        let object = parse(&pod(&format!("{prefix}{created}"), ""));
        match client.create(PODS, &object).await {
            Ok(_) => created += 1,
            Err(status) if status.code() == 403 => {
                assert!(status.message().contains("exceeded quota: q"), "{status}");
                return created;
            }
            Err(status) => assert_eq!(status.code(), 409, "{status}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_admits_exactly_its_limit_while_two_servers_create() {
    const LIMIT: i64 = 25;
    let servers = Servers::start().await;
    create_pod_quota(&servers, LIMIT).await;
    let racing = [(&servers.one, "a"), (&servers.two, "b"), (&servers.one, "c"), (&servers.two, "d")]
        .map(|(client, prefix)| tokio::spawn(create_pods(client.clone(), prefix)));
    let mut created = 0;
    for creating in racing {
        created += creating.await.unwrap();
    }
    assert_eq!(i64::try_from(created).unwrap(), LIMIT);
    assert_eq!(servers.one.get(PODS).await.unwrap().list_at(&["items"]).len(), created);
    assert_eq!(counted_pods(&servers, "q").await, Some(LIMIT));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_admits_exactly_its_limit_on_a_server_with_old_usage_in_memory() {
    const LIMIT: i64 = 10;
    let servers = Servers::start().await;
    create_pod_quota(&servers, LIMIT).await;
    // The second server learns of the charges of the first only when it asks or writes.
    servers.stream.deliver_on_request();
    let first = create_pods(servers.one.clone(), "a").await;
    assert_eq!(i64::try_from(first).unwrap(), LIMIT);
    let refused = servers.two.create(PODS, &parse(&pod("late", ""))).await.unwrap_err();
    assert_eq!(refused.code(), 403, "{refused}");
    // Released usage that it does not know of is available at once.
    servers.stream.deliver_on_request();
    let released = parse(r#"{"status":{"used":{"pods":"9"}}}"#);
    servers.one.delete(&format!("{PODS}/a0"), &parse(r#"{"gracePeriodSeconds":0}"#)).await.unwrap();
    servers.one.merge_patch(&format!("{QUOTAS}/q/status"), &released).await.unwrap();
    assert_eq!(create_pods(servers.two.clone(), "b").await, 1);
    assert_eq!(counted_pods(&servers, "q").await, Some(LIMIT));
}

const QUOTA_KEY: &str = "/registry/resourcequotas/default/q";

/// Creates a quota for one pod, and waits until the controller has counted.
async fn create_counted_quota(servers: &Servers) {
    let quota = parse(r#"{"metadata":{"name":"q"},"spec":{"hard":{"pods":"1"}}}"#);
    servers.one.create(QUOTAS, &quota).await.unwrap();
    let begin = Instant::now();
    while counted_pods(servers, "q").await != Some(0) {
        assert!(begin.elapsed() < PATIENCE, "the quota is not counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn create_pod(client: &LoopbackClient, name: &str) -> JoinHandle<Result<Value, Status>> {
    let (client, object) = (client.clone(), parse(&pod(name, "")));
    tokio::spawn(async move { client.create(PODS, &object).await })
}

async fn reached(hold: &mut CommitHold) {
    tokio::time::timeout(PATIENCE, hold.reached()).await.unwrap();
}

/// A quota for one pod, and a creation of the pod `a` that has been charged and whose commit is held.
struct HeldCreation {
    servers: Servers,
    hold: CommitHold,
    creation: JoinHandle<Result<Value, Status>>,
}

impl HeldCreation {
    /// Holds the commit of a creation through the server that `through` chooses.
    async fn start(point: HoldPoint, through: impl Fn(&Servers) -> &LoopbackClient) -> HeldCreation {
        let servers = Box::pin(Servers::start()).await;
        create_counted_quota(&servers).await;
        let mut hold = servers.service.hold_next_commit("/registry/pods/default/a", point);
        let creation = create_pod(through(&servers), "a");
        reached(&mut hold).await;
        HeldCreation { servers, hold, creation }
    }
}

/// Waits until the server gives up a write that the store does not answer.
async fn timed_out(creation: JoinHandle<Result<Value, Status>>) {
    let refused = creation.await.unwrap().unwrap_err();
    assert_eq!(refused.code(), 504, "{refused}");
}

/// Creates the pod `b` through the first server as soon as the quota admits it.
async fn create_when_released(servers: &Servers) {
    let begin = Instant::now();
    while let Err(status) = servers.one.create(PODS, &parse(&pod("b", ""))).await {
        assert!(matches!(status.code(), 403 | 409), "{status}");
        assert!(begin.elapsed() < PATIENCE, "the charge is not released");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn pod_names(servers: &Servers) -> Vec<String> {
    let list = servers.one.get(PODS).await.unwrap();
    list.list_at(&["items"]).iter().map(|pod| meta::name(pod).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_pauses_after_its_charge_does_not_exceed_the_quota() {
    let servers = Servers::start().await;
    create_counted_quota(&servers).await;
    servers.one.create(MAPS, &parse(r#"{"metadata":{"name":"m"}}"#)).await.unwrap();
    let mut hold = servers.service.hold_next_commit(QUOTA_KEY, HoldPoint::BeforeAnswer);
    let paused = create_pod(&servers.two, "a");
    reached(&mut hold).await;
    // A deletion triggers a recount at once.
    servers.one.delete(&format!("{MAPS}/m"), &parse("{}")).await.unwrap();
    create_when_released(&servers).await;
    hold.release();
    let late = paused.await.unwrap();
    assert_eq!(pod_names(&servers).await, ["b"]);
    let late = late.unwrap_err();
    // Where this test takes longer than the time limit of the plugin, that refuses the pod.
    let reasons = ["the quota was checked too long ago; try again", "resource quota evaluation timed out"];
    assert!(reasons.iter().any(|reason| late.message().contains(reason)), "{late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_commit_does_not_exceed_the_quota() {
    let HeldCreation { servers, hold, creation } =
        HeldCreation::start(HoldPoint::BeforeDecision, |servers| &servers.two).await;
    create_when_released(&servers).await;
    hold.release();
    let late = creation.await.unwrap();
    assert_eq!(pod_names(&servers).await, ["b"]);
    let late = late.unwrap_err();
    assert_eq!(late.code(), 504, "{late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_the_store_executes_after_its_charge_was_released_does_not_exceed_the_quota() {
    let HeldCreation { servers, hold, creation } =
        HeldCreation::start(HoldPoint::InNetwork, |servers| &servers.two).await;
    timed_out(creation).await;
    create_when_released(&servers).await;
    let decided = servers.service.refusals();
    hold.release();
    let begin = Instant::now();
    while servers.service.refusals() == decided && pod_names(&servers).await == ["b"] {
        assert!(begin.elapsed() < PATIENCE, "the write does not arrive");
        tokio::task::yield_now().await;
    }
    assert_eq!(pod_names(&servers).await, ["b"]);
    // The fence refuses only the writes that were charged before.
    servers.one.delete(&format!("{PODS}/b"), &parse(r#"{"gracePeriodSeconds":0}"#)).await.unwrap();
    create_when_released(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_the_store_executes_late_is_stored_if_its_charge_was_not_released() {
    let HeldCreation { servers, hold, creation } =
        HeldCreation::start(HoldPoint::InNetwork, |servers| &servers.two).await;
    timed_out(creation).await;
    hold.release();
    let begin = Instant::now();
    while pod_names(&servers).await != ["a"] {
        assert!(begin.elapsed() < PATIENCE, "the write does not arrive");
        tokio::task::yield_now().await;
    }
    let refused = servers.one.create(PODS, &parse(&pod("b", ""))).await.unwrap_err();
    assert_eq!(refused.code(), 403, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_client_has_left_does_not_exceed_the_quota() {
    // Through the server that also recounts: it knows of its own writes even if no client waits for them.
    let HeldCreation { servers, hold, creation } =
        HeldCreation::start(HoldPoint::BeforeDecision, |servers| &servers.one).await;
    creation.abort();
    create_when_released(&servers).await;
    hold.release();
    assert_eq!(pod_names(&servers).await, ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_this_server_has_not_received_is_enforced() {
    let servers = Servers::start().await;
    servers.stream.pause();
    let quota = parse(r#"{"metadata":{"name":"q"},"spec":{"hard":{"pods":"0"}}}"#);
    servers.one.create(QUOTAS, &quota).await.unwrap();
    let status = parse(r#"{"status":{"hard":{"pods":"0"},"used":{"pods":"0"}}}"#);
    servers.one.merge_patch(&format!("{QUOTAS}/q/status"), &status).await.unwrap();
    let begin = Instant::now();
    loop {
        let answer = servers.two.create(&format!("{PODS}?dryRun=All"), &parse(&pod("a", ""))).await;
        match answer {
            Err(status) if status.code() == 403 => {
                assert!(status.message().contains("exceeded quota: q"), "{status}");
                return;
            }
            _ => assert!(begin.elapsed() < PATIENCE, "the quota is not enforced: {answer:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_count_of_a_quota_includes_writes_that_were_under_way() {
    let servers = Servers::start().await;
    let mut hold = servers.service.hold_next_commit("/registry/pods/default/a", HoldPoint::BeforeDecision);
    let early = create_pod(&servers.two, "a");
    reached(&mut hold).await;
    let quota = parse(r#"{"metadata":{"name":"q"},"spec":{"hard":{"pods":"1"}}}"#);
    servers.one.create(QUOTAS, &quota).await.unwrap();
    let begin = Instant::now();
    // Until the limits are in the status, a quota is not enforced, as in Kubernetes.
    while servers.one.get(&format!("{QUOTAS}/q")).await.unwrap().at(&["status", "hard"]).is_none() {
        assert!(begin.elapsed() < PATIENCE, "the quota is not published");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut hold = Some(hold);
    loop {
        let refused = servers.one.create(PODS, &parse(&pod("b", ""))).await;
        if let Some(hold) = hold.take() {
            hold.release();
        }
        match refused {
            Err(status) if status.message().contains("status unknown for quota: q") => {}
            Err(status) => {
                assert!(status.message().contains("exceeded quota: q"), "{status}");
                break;
            }
            Ok(_) => panic!("the quota is exceeded"),
        }
        assert!(begin.elapsed() < PATIENCE, "the quota is not counted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    early.await.unwrap().unwrap();
    assert_eq!(pod_names(&servers).await, ["a"]);
}
