use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use authn::User;
use runtime::MetricRegistry;

use super::{END_WITHIN, EndSignal, LongRunningKind, LongRunningRequest, LongRunningRequests, limit};
use crate::byte_budget::BudgetAccount;

const WATCH: LongRunningKind = LongRunningKind { is_watch: true, is_proxied: false };
const OTHER: LongRunningKind = LongRunningKind { is_watch: false, is_proxied: false };

fn requests(limit: usize) -> Arc<LongRunningRequests> {
    LongRunningRequests::with_limits(&MetricRegistry::new(), limit, limit).unwrap()
}

fn account(user: &User) -> BudgetAccount {
    BudgetAccount::of(user, IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Begins watches of a user on these connections.
fn watch(
    requests: &Arc<LongRunningRequests>,
    name: &str,
    connections: impl IntoIterator<Item = u64>,
) -> Vec<LongRunningRequest> {
    let account = account(&User::named(name));
    connections
        .into_iter()
        .map(|connection| requests.begin(&account, connection, WATCH, 0).unwrap())
        .collect()
}

/// The requests that exist, and those of them that were not asked to end.
fn counts(requests: &LongRunningRequests) -> (usize, usize) {
    let running = requests.lock();
    (running.total, running.continuing)
}

/// Which of the requests have been ended.
fn ended(requests: &mut [LongRunningRequest]) -> Vec<usize> {
    let ended = requests.iter_mut().map(|request| request.ended.try_recv().is_ok()).enumerate();
    ended.filter(|(_, ended)| *ended).map(|(number, _)| number).collect()
}

#[test]
fn the_limit_depends_on_connections_and_memory() {
    assert_eq!(limit(768, Some(24 << 30)), 24_576);
    assert_eq!(limit(16_384, Some(2 << 30)), 16_384);
    assert_eq!(limit(16_384, None), 524_288);
    assert_eq!(limit(16, Some(1 << 20)), 1000);
}

#[test]
fn above_the_limit_the_oldest_watches_of_the_account_with_the_most_end() {
    let requests = requests(100);
    let mut bob = watch(&requests, "bob", 0..5);
    let mut alice = watch(&requests, "alice", [100; 90]);
    assert_eq!((ended(&mut bob), ended(&mut alice)), (vec![], vec![]), "95 are not too many");
    let mut carol = watch(&requests, "carol", [200, 201]);
    assert_eq!((ended(&mut bob), ended(&mut alice), ended(&mut carol)), (vec![], vec![0, 1], vec![]));
    assert_eq!(counts(&requests), (97, 95));
    // More watches of the same account end its own ones.
    let mut more = watch(&requests, "alice", [100; 3]);
    assert_eq!(ended(&mut alice), [2, 3, 4]);
    assert_eq!((ended(&mut bob), ended(&mut more)), (vec![], vec![]));
    drop((alice, more));
    assert_eq!(requests.lock().total, 7);
    drop((bob, carol));
    let running = requests.lock();
    assert_eq!((running.total, running.continuing, running.accounts.len()), (0, 0, 0));
}

#[test]
fn requests_that_were_asked_to_end_count_until_they_are_dropped() {
    let requests = requests(100);
    let bob = watch(&requests, "bob", 0..5);
    let mut alice = watch(&requests, "alice", [100; 95]);
    assert_eq!(ended(&mut alice), [0, 1, 2, 3, 4]);
    let running = || counts(&requests);
    assert_eq!(running(), (100, 95));
    let begin = |name: &str| requests.begin(&account(&User::named(name)), 7, WATCH, 0);
    let refused = begin("alice").unwrap_err();
    assert_eq!(refused.code(), 429);
    assert_eq!((running(), ended(&mut alice)), ((100, 95), vec![]), "a refused request ends no others");
    let own = begin("bob").unwrap();
    assert_eq!((running(), ended(&mut alice)), ((101, 95), vec![5]), "users that have fewer are not refused");
    // Those that have ended make room.
    drop(alice.drain(..2));
    assert_eq!(running(), (99, 95));
    alice.push(begin("alice").unwrap());
    drop((bob, own, alice));
    assert_eq!(running(), (0, 0));
    assert!(requests.lock().accounts.is_empty());
}

#[tokio::test]
async fn a_stream_is_asked_that_its_request_must_end_and_not_that_it_ends_itself() {
    let requests = requests(1000);
    let mut all = watch(&requests, "alice", [1, 2]);
    let mut signals: Vec<_> = all.iter_mut().map(|request| request.take_end_signal().unwrap()).collect();
    let mut is_asked = async |at: usize| {
        let signal: &mut EndSignal = &mut signals[at];
        std::future::poll_fn(|context| std::task::Poll::Ready(signal.poll_ended(context).is_ready())).await
    };
    assert!(!is_asked(0).await);
    drop(all.pop());
    assert!(!is_asked(1).await);
    assert_eq!(requests.end_on_connections(1), [1]);
    assert!(is_asked(0).await);
    let mut last = all.pop();
    tokio::time::timeout(END_WITHIN, LongRunningRequest::must_end(&mut last)).await.expect("it must end");
}

#[test]
fn connections_of_the_account_with_the_most_are_freed_as_a_whole() {
    let requests = requests(1000);
    // Many watches on one connection need only one.
    let mut controller = watch(&requests, "controller", [1; 50]);
    let mut greedy = watch(&requests, "greedy", [2, 3, 2, 4, 3]);
    assert_eq!(requests.end_on_connections(2), [2, 3]);
    assert_eq!((ended(&mut greedy), ended(&mut controller)), (vec![0, 1, 2, 4], vec![]));
    assert_eq!(requests.end_on_connections(9).len(), 2, "there are no more");
    assert!(requests.end_on_connections(1).is_empty());
}

#[test]
fn administrators_and_cluster_components_are_ended_last() {
    let requests = requests(1000);
    let admin = account(&User::named("admin").in_groups([authn::names::MASTERS]));
    let mut spared: Vec<_> =
        (10..20).map(|connection| requests.begin(&admin, connection, WATCH, 0).unwrap()).collect();
    spared.extend(watch(&requests, "system:serviceaccount:kube-system:proxy", 20..60));
    spared.extend(watch(&requests, "system:kube-controller-manager", 60..90));
    spared.extend(watch(&requests, "system:kube-scheduler", 90..110));
    spared.extend(watch(&requests, "system:node:n1", 110..112));
    // Each of many small accounts has less.
    let mut others = Vec::new();
    for number in 0..30 {
        others.extend(watch(&requests, &format!("system:serviceaccount:ns{number}:a"), [1000 + number]));
    }
    others.extend(watch(&requests, "system:bootstrap:abcdef", [2000]));
    others.extend(watch(&requests, "alice", [3000]));
    assert_eq!(requests.end_on_connections(32).len(), 32);
    assert_eq!((ended(&mut others).len(), ended(&mut spared)), (32, vec![]));
    assert_eq!(requests.end_on_connections(1), [20], "the kube-system account has most");
}

#[test]
fn a_node_is_spared_up_to_the_watches_that_a_kubelet_needs() {
    let requests = requests(6000);
    let mut node = watch(&requests, "system:node:n1", [1; 2048]);
    let mut greedy = watch(&requests, "system:node:n2", (0..3000).map(|number| number % 16));
    let mut alice = watch(&requests, "alice", [100; 700]);
    assert_eq!((ended(&mut node).len(), ended(&mut greedy).len(), ended(&mut alice).len()), (0, 48, 0));
    drop(greedy);
    // By connections, too.
    let mut spread = watch(&requests, "system:node:n3", 200..217);
    assert_eq!(requests.end_on_connections(1), [200], "a node on 17 connections");
    assert_eq!(requests.end_on_connections(1), [100]);
    assert_eq!((ended(&mut node).len(), ended(&mut spread).len(), ended(&mut alice).len()), (0, 1, 700));
}

#[test]
fn watches_are_ended_before_other_long_running_requests_of_the_account() {
    let requests = requests(1000);
    let alice = account(&User::named("alice"));
    let mut both =
        vec![requests.begin(&alice, 1, OTHER, 0).unwrap(), requests.begin(&alice, 2, WATCH, 0).unwrap()];
    assert_eq!(requests.end_on_connections(1), [2]);
    assert_eq!(ended(&mut both), [1]);
    assert_eq!(requests.end_on_connections(1), [1]);
}

#[test]
fn a_watch_with_large_parameters_counts_as_several() {
    let requests = requests(100);
    let mut bob = watch(&requests, "bob", 0..20);
    let alice = account(&User::named("alice"));
    let large = |bytes| requests.begin(&alice, 100, WATCH, bytes).unwrap();
    let mut alices = vec![large(16 * 1024 - 1), large(16 * 1024), large(70 * 16 * 1024)];
    assert_eq!(counts(&requests), (94, 94));
    assert_eq!((ended(&mut bob), ended(&mut alices)), (vec![], vec![]));
    // Alice has fewer watches than Bob, but more units.
    alices.push(large(2 * 16 * 1024));
    assert_eq!((ended(&mut bob), ended(&mut alices)), (vec![], vec![0, 1]));
    assert_eq!(counts(&requests), (97, 94));
    drop(alices);
    assert_eq!(counts(&requests), (20, 20));
    drop(bob);
    assert!(requests.lock().accounts.is_empty());
}

#[test]
fn proxied_requests_have_a_lower_limit_because_each_may_hold_a_descriptor() {
    let requests = LongRunningRequests::with_limits(&MetricRegistry::new(), 1000, 10).unwrap();
    let mut bob = watch(&requests, "bob", 0..5);
    let alice = account(&User::named("alice"));
    let begin = || {
        let kind = LongRunningKind { is_watch: false, is_proxied: true };
        requests.begin(&alice, 100, kind, 0).unwrap()
    };
    let mut tunnels: Vec<_> = (0..9).map(|_| begin()).collect();
    assert_eq!(ended(&mut tunnels), Vec::<usize>::new());
    tunnels.push(begin());
    assert_eq!((ended(&mut tunnels), ended(&mut bob)), (vec![0], vec![]));
    drop(tunnels);
    assert_eq!(counts(&requests), (5, 5));
}
