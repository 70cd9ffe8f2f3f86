use std::sync::Mutex;
use std::time::Duration;

use value::Str;

use super::effort::{QUICK_COST, QUICK_STEPS};
use super::turns::TURNS;
use super::*;

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
    assert_eq!(effort.check().expect_err("it was cancelled").code(), 504);
    assert_eq!(lane.running.get(), 0);
}

#[tokio::test]
async fn a_waiting_request_does_not_use_a_turn_of_its_account() {
    let lane = Arc::new(HeavyLane::start(&MetricRegistry::new()).unwrap());
    let effort = || {
        let effort = Effort::default();
        effort.set_account(&Str::from("alice"));
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
        effort.set_account(&Str::from("alice"));
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

#[tokio::test]
async fn turns_in_the_heavy_lane_are_counted_per_account_and_idle_accounts_are_dropped() {
    let turns = Arc::new(AccountTurns::default());
    let (alice, bob) = (Str::from("alice"), Str::from("bob"));
    let held = [turns.take(&alice).await, turns.take(&alice).await];
    let waiting = tokio::spawn({
        let (turns, alice) = (Arc::clone(&turns), alice.clone());
        async move { turns.take(&alice).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished(), "a third request of the account waits");
    drop(turns.take(&bob).await);
    let [first, second] = held;
    drop(first);
    drop(waiting.await.unwrap());
    drop(second);
    assert!(turns.lock().is_empty());
}
