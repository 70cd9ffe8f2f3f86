use std::sync::Mutex;
use std::time::Duration;

use super::effort::QUICK_STEPS;
use super::turns::{TURNS, TurnOrder};
use super::*;

fn user(name: &str) -> LaneAccount {
    LaneAccount { owner: name.into(), class: None }
}

fn service_account(namespace: &str) -> LaneAccount {
    LaneAccount { owner: namespace.into(), class: Some("service accounts") }
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_large_work_moves_to_the_heavy_lane_and_its_spawned_tasks_do_not() {
    let lane = HeavyLane::start(&MetricRegistry::new()).expect("the lane starts");
    for (size, in_lane) in [(LARGE, false), (LARGE + 1, true)] {
        let effort = Effort::default();
        let names = Arc::new(Mutex::new(Vec::new()));
        let (seen, inner) = (Arc::clone(&names), effort.clone());
        lane.drive(
            &effort,
            None,
            Box::pin(async move {
                inner.enter_lane(size).await;
                let own = thread_name();
                tokio::time::sleep(Duration::from_millis(1)).await;
                let spawned = tokio::spawn(async { thread_name() }).await.unwrap_or_default();
                seen.lock().expect("not poisoned").extend([own, spawned, thread_name()]);
            }),
        )
        .await;
        let names = names.lock().expect("not poisoned").clone();
        let moved: Vec<bool> = names.iter().map(|name| name.starts_with("heavy-lane")).collect();
        assert_eq!(moved, [in_lane, false, in_lane], "{size}: {names:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expensive_expressions_move_to_the_heavy_lane() {
    let lane = HeavyLane::start(&MetricRegistry::new()).expect("the lane starts");
    for (cost, in_lane) in [(QUICK_COST / 2, false), (QUICK_COST, true)] {
        let work = Box::pin(async move {
            let pace = admission::expression::YieldPacer::default();
            pace.add(cost);
            pace.yield_now().await;
            thread_name()
        });
        let name = lane.drive(&Effort::default(), None, work).await.unwrap_or_default();
        assert_eq!(name.starts_with("heavy-lane"), in_lane, "{cost}: {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_exceeds_the_quick_step_budget_restarts_in_the_heavy_lane() {
    let lane = HeavyLane::start(&MetricRegistry::new()).expect("the lane starts");
    for (steps, in_lane) in [(QUICK_STEPS, false), (QUICK_STEPS + 1, true)] {
        let effort = Effort::default();
        let inner = effort.clone();
        let work =
            Box::pin(async move { inner.spend(|budget| (budget.spend(steps).is_ok(), thread_name())).await });
        let (is_enough, name) = lane.drive(&effort, None, work).await.unwrap_or_default();
        assert!(is_enough, "{steps}");
        assert_eq!(name.starts_with("heavy-lane"), in_lane, "{steps}: {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_work_in_the_heavy_lane_ends_at_the_deadline() {
    let lane = HeavyLane::start(&MetricRegistry::new()).expect("the lane starts");
    let effort = Effort::default();
    let inner = effort.clone();
    let deadline = Instant::now() + Duration::from_millis(20);
    lane.drive(
        &effort,
        Some(deadline),
        Box::pin(async move {
            inner.enter_lane(usize::MAX).await;
            // The loop never awaits: only the cancellation ends it.
            while inner.check().is_ok() {
                std::hint::spin_loop();
            }
        }),
    )
    .await;
    assert_eq!(effort.check().expect_err("it was canceled").code(), 504);
    assert_eq!(lane.running.get(), 0);
}

#[tokio::test]
async fn a_waiting_request_does_not_use_a_turn_of_its_account() {
    let lane = Arc::new(HeavyLane::start(&MetricRegistry::new()).unwrap());
    let effort = || {
        let effort = Effort::default();
        effort.set_account(user("alice"));
        effort
    };
    let (answer, answered) = tokio::sync::watch::channel(false);
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..=TURNS {
        let (lane, effort) = (Arc::clone(&lane), effort());
        let (inner, answer, mut answered) = (effort.clone(), answer.clone(), answered.clone());
        requests.spawn(async move {
            let work = Box::pin(async move {
                inner.enter_lane(usize::MAX).await;
                // All other requests wait for the last one.
                if number == TURNS {
                    answer.send_replace(true);
                }
                answered.wait_for(|answered| *answered).await.is_ok()
            });
            lane.drive(&effort, None, work).await
        });
    }
    let all = tokio::time::timeout(Duration::from_secs(30), requests.join_all()).await;
    assert_eq!(all.expect("the requests block each other"), vec![Some(true); TURNS + 1]);
}

#[tokio::test]
async fn a_request_that_yields_keeps_its_turn() {
    let lane = Arc::new(HeavyLane::start(&MetricRegistry::new()).unwrap());
    let (ends, ended) = tokio::sync::watch::channel(false);
    let (rests, mut rested) = tokio::sync::mpsc::unbounded_channel();
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..=TURNS {
        let (lane, effort) = (Arc::clone(&lane), Effort::default());
        effort.set_account(user("alice"));
        let (inner, rests, ended) = (effort.clone(), rests.clone(), ended.clone());
        let work = Box::pin(async move {
            inner.enter_lane(usize::MAX).await;
            let pace = admission::expression::YieldPacer::default();
            while !*ended.borrow() {
                let _ = rests.send(number);
                pace.add(QUICK_COST);
                pace.yield_now().await;
            }
        });
        requests.spawn(async move { lane.drive(&effort, None, work).await });
    }
    let mut seen = Vec::new();
    while seen.len() < 100 {
        seen.extend(rested.recv().await);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() <= TURNS, "{seen:?}");
    ends.send_replace(true);
    assert_eq!(requests.join_all().await, vec![Some(()); TURNS + 1]);
}

/// Occupies all turns of alice with requests that only compute, until `ended` is true.
async fn occupy_turns(
    lane: &Arc<HeavyLane>,
    ended: &tokio::sync::watch::Receiver<bool>,
) -> tokio::task::JoinSet<Option<()>> {
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..TURNS {
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (lane, effort, ended) = (Arc::clone(lane), Effort::default(), ended.clone());
        effort.set_account(user("alice"));
        let inner = effort.clone();
        let work = Box::pin(async move {
            inner.enter_lane(usize::MAX).await;
            let _ = begun.send(());
            let pace = admission::expression::YieldPacer::default();
            while !*ended.borrow() {
                pace.add(QUICK_COST);
                pace.yield_now().await;
            }
        });
        requests.spawn(async move { lane.drive(&effort, None, work).await });
        has_begun.await.unwrap();
    }
    requests
}

#[tokio::test]
async fn a_request_that_holds_a_lock_needs_no_turn_until_it_releases_it() {
    let lane = Arc::new(HeavyLane::start(&MetricRegistry::new()).unwrap());
    let (ends, ended) = tokio::sync::watch::channel(false);
    let lock = Arc::new(tokio::sync::Mutex::new(()));
    let held = Arc::clone(&lock).lock_owned().await;
    let (waits, waiting) = tokio::sync::oneshot::channel();
    let effort = Effort::default();
    effort.set_account(user("alice"));
    let (inner, own, other) = (effort.clone(), Arc::clone(&lock), Arc::clone(&lane));
    let work = Box::pin(async move {
        inner.enter_lane(usize::MAX).await;
        without_turn(async {
            let _ = waits.send(());
            let _held = own.lock().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        })
        .await;
    });
    let mut locked = tokio::spawn(async move { other.drive(&effort, None, work).await });
    waiting.await.unwrap();
    let requests = occupy_turns(&lane, &ended).await;
    // The request gets the lock while the others of its account have all turns.
    drop(held);
    let bob = tokio::time::timeout(Duration::from_secs(30), lock.lock());
    drop(bob.await.expect("the lock is never released"));
    let after = tokio::time::timeout(Duration::from_millis(50), &mut locked);
    assert!(after.await.is_err(), "after the lock it needs a turn");
    ends.send_replace(true);
    assert_eq!(locked.await.unwrap(), Some(()));
    assert_eq!(requests.join_all().await, vec![Some(()); TURNS]);
}

#[tokio::test]
async fn a_request_that_has_waited_takes_a_turn_again() {
    const REQUESTS: usize = TURNS + 3;
    let lane = Arc::new(HeavyLane::start(&MetricRegistry::new()).unwrap());
    let (answer, answered) = tokio::sync::watch::channel(false);
    let (ends, ended) = tokio::sync::watch::channel(false);
    let (waits, mut waiting) = tokio::sync::mpsc::unbounded_channel();
    let (rests, mut rested) = tokio::sync::mpsc::unbounded_channel();
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        let (lane, effort) = (Arc::clone(&lane), Effort::default());
        effort.set_account(user("alice"));
        let (inner, mut answered, ended) = (effort.clone(), answered.clone(), ended.clone());
        let (waits, rests) = (waits.clone(), rests.clone());
        let work = Box::pin(async move {
            inner.enter_lane(usize::MAX).await;
            let _ = waits.send(());
            let _ = answered.wait_for(|answered| *answered).await;
            let pace = admission::expression::YieldPacer::default();
            while !*ended.borrow() {
                let _ = rests.send(number);
                pace.add(QUICK_COST);
                pace.yield_now().await;
            }
        });
        requests.spawn(async move { lane.drive(&effort, None, work).await });
    }
    for _ in 0..REQUESTS {
        waiting.recv().await;
    }
    answer.send_replace(true);
    let mut seen = Vec::new();
    while seen.len() < 200 {
        seen.extend(rested.recv().await);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() <= TURNS, "{seen:?}");
    ends.send_replace(true);
    assert_eq!(requests.join_all().await, vec![Some(()); REQUESTS]);
    while !lane.turns.is_unused() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_without_a_turn_ends_at_its_deadline() {
    let lane = HeavyLane::start(&MetricRegistry::new()).unwrap();
    let alice = user("alice");
    let mut held = Vec::new();
    for _ in 0..TURNS {
        held.push(lane.turns.take(&alice, TurnOrder::Entering).await);
    }
    let effort = Effort::default();
    effort.set_account(alice);
    let inner = effort.clone();
    let work = Box::pin(async move {
        inner.enter_lane(usize::MAX).await;
        while inner.check().is_ok() {
            tokio::task::yield_now().await;
        }
        true
    });
    let deadline = Instant::now() + Duration::from_millis(20);
    assert_eq!(lane.drive(&effort, Some(deadline), work).await, Some(true));
}

#[tokio::test]
async fn turns_in_the_heavy_lane_are_counted_per_account_and_idle_accounts_are_dropped() {
    let turns = Arc::new(AccountTurns::new(4));
    let (alice, bob) = (user("alice"), user("bob"));
    let held = [turns.take(&alice, TurnOrder::Entering).await, turns.take(&alice, TurnOrder::Entering).await];
    let wait = |order| {
        let (turns, alice) = (Arc::clone(&turns), alice.clone());
        tokio::spawn(async move { turns.take(&alice, order).await })
    };
    let abandoned = wait(TurnOrder::Returning);
    let entering = wait(TurnOrder::Entering);
    tokio::task::yield_now().await;
    let returning = wait(TurnOrder::Returning);
    tokio::task::yield_now().await;
    assert!(!entering.is_finished() && !returning.is_finished(), "a third request of the account waits");
    drop(turns.take(&bob, TurnOrder::Entering).await);
    abandoned.abort();
    assert!(abandoned.await.is_err());
    let [first, second] = held;
    drop(first);
    // The one that has run before comes first, and one that has ended gets no turn.
    let returned = returning.await.unwrap();
    tokio::task::yield_now().await;
    assert!(!entering.is_finished());
    drop(returned);
    drop(entering.await.unwrap());
    drop(second);
    assert!(turns.is_unused());
}

#[tokio::test]
async fn accounts_of_a_class_share_turns_and_leave_the_lane_to_others() {
    let turns = Arc::new(AccountTurns::new(4));
    let mut held = Vec::new();
    for namespace in ["a", "b", "c", "d"] {
        held.push(turns.take(&service_account(namespace), TurnOrder::Entering).await);
    }
    let wait = |account: LaneAccount, order| {
        let turns = Arc::clone(&turns);
        tokio::spawn(async move { turns.take(&account, order).await })
    };
    let entering = wait(service_account("e"), TurnOrder::Entering);
    tokio::task::yield_now().await;
    let returning = wait(service_account("f"), TurnOrder::Returning);
    tokio::task::yield_now().await;
    assert!(!entering.is_finished() && !returning.is_finished(), "a fifth account of the class waits");
    // Users, and accounts of other classes, do not wait for it. A user may have the name of an account of the class.
    let other = LaneAccount { owner: "a".into(), class: Some("anonymous clients") };
    for account in [user("alice"), user("a"), other] {
        for _ in 0..TURNS {
            held.push(turns.take(&account, TurnOrder::Entering).await);
        }
    }
    drop(held.remove(0));
    let returned = returning.await.unwrap();
    tokio::task::yield_now().await;
    assert!(!entering.is_finished());
    drop(returned);
    drop(entering.await.unwrap());
    drop(held);
    assert!(turns.is_unused());
}

#[tokio::test]
async fn accounts_of_a_class_get_turns_one_after_the_other() {
    let turns = Arc::new(AccountTurns::new(1));
    let first = turns.take(&service_account("many"), TurnOrder::Entering).await;
    let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = tokio::task::JoinSet::new();
    for namespace in ["many"; 20].into_iter().chain(["few"; 2]) {
        let (turns, done) = (Arc::clone(&turns), done.clone());
        waiting.spawn(async move {
            let turn = turns.take(&service_account(namespace), TurnOrder::Entering).await;
            let _ = done.send(namespace);
            drop(turn);
        });
        tokio::task::yield_now().await;
    }
    drop((first, done));
    let mut served = Vec::new();
    while let Some(namespace) = order.recv().await {
        served.push(namespace);
    }
    assert_eq!(served.len(), 22);
    let last = served.iter().rposition(|namespace| *namespace == "few").unwrap();
    assert!(last < 6, "the few requests come after {last} others: {served:?}");
    waiting.join_all().await;
    assert!(turns.is_unused());
}

#[tokio::test]
async fn large_requests_of_many_accounts_of_a_class_run_a_few_at_a_time() {
    const NAMESPACES: usize = 40;
    let lane = Arc::new(HeavyLane::start(&MetricRegistry::new()).unwrap());
    let most = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).max(2 * TURNS);
    let (ends, ended) = tokio::sync::watch::channel(false);
    let (rests, mut rested) = tokio::sync::mpsc::unbounded_channel();
    let mut requests = tokio::task::JoinSet::new();
    let mut begin = |account: LaneAccount| {
        let (lane, effort) = (Arc::clone(&lane), Effort::default());
        effort.set_account(account.clone());
        let (inner, rests, ended) = (effort.clone(), rests.clone(), ended.clone());
        let work = Box::pin(async move {
            inner.enter_lane(usize::MAX).await;
            let pace = admission::expression::YieldPacer::default();
            while !*ended.borrow() {
                let _ = rests.send(account.clone());
                pace.add(QUICK_COST);
                pace.yield_now().await;
            }
        });
        requests.spawn(async move { lane.drive(&effort, None, work).await });
    };
    for number in 0..NAMESPACES {
        begin(service_account(&number.to_string()));
    }
    begin(user("alice"));
    let mut seen = std::collections::HashSet::new();
    // The request of a user does not wait for them.
    while !seen.contains(&user("alice")) {
        seen.extend(rested.recv().await);
    }
    for _ in 0..1000 {
        seen.extend(rested.recv().await);
    }
    seen.remove(&user("alice"));
    assert!(seen.len() <= most, "{} accounts ran at once", seen.len());
    ends.send_replace(true);
    assert_eq!(requests.join_all().await, vec![Some(()); NAMESPACES + 1]);
}
