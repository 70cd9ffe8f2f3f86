use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::estimate::WorkEstimate;

/// Records the names of requests that are dispatched after waiting, in order.
#[derive(Clone, Debug)]
struct Named(&'static str, Rc<RefCell<Vec<&'static str>>>);

impl RequestTicket for Named {
    fn dispatched(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

/// One queue per flow, so that the hash is the index of the queue.
fn queuing(queues: u32, length_limit: u32) -> Queuing {
    Queuing::Queue { dealer: Dealer::new(queues, 1).unwrap(), queues, length_limit }
}

struct LoggedLevel {
    set: QueueSet<Named>,
    log: Rc<RefCell<Vec<&'static str>>>,
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl LoggedLevel {
    fn new(queuing: Queuing, limit: u64) -> Self {
        let mut set = QueueSet::new(queuing, Duration::ZERO);
        set.flow("schema");
        set.configure(Duration::ZERO, queuing, limit, limit.max(1));
        LoggedLevel { set, log: Rc::default() }
    }

    fn start(&mut self, now: u64, name: &'static str, hash: u64, work: WorkEstimate) -> ArrivalDecision {
        let ticket = Named(name, Rc::clone(&self.log));
        let arrival = RequestArrival {
            flow: 0,
            distinguisher: name.into(),
            hash,
            work,
            interested_watches: None,
            is_watch: false,
            is_resumed: false,
            ticket,
        };
        self.set.start(ms(now), arrival)
    }

    #[track_caller]
    fn executes(&mut self, now: u64, name: &'static str, hash: u64, seats: u64) -> RequestId {
        match self.start(now, name, hash, WorkEstimate::seats(seats)) {
            ArrivalDecision::Executing(id) => id,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[track_caller]
    fn waits(&mut self, now: u64, name: &'static str, hash: u64, seats: u64) -> RequestId {
        match self.start(now, name, hash, WorkEstimate::seats(seats)) {
            ArrivalDecision::Waiting(id) => id,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn dispatched(&self) -> Vec<&'static str> {
        self.log.borrow_mut().drain(..).collect()
    }

    fn next_dispatch(&self, queue: u32) -> String {
        self.set.queue(queue).next_dispatch.to_string()
    }
}

#[test]
fn virtual_time_and_charges_are_as_computed_by_hand() {
    let mut level = LoggedLevel::new(queuing(2, 10), 1);
    // One request of queue 0 executes, one waits in each queue.
    let first = level.executes(0, "first", 0, 1);
    assert_eq!(level.next_dispatch(0), "0.00300000ss", "charged with the estimate of 3 ms");
    level.waits(0, "second", 0, 1);
    level.waits(0, "other", 1, 1);
    assert_eq!(level.next_dispatch(1), "0.00000000ss");
    // Two active queues share one seat: R advances by half a seat-second per second.
    let finished = level.set.finish(ms(10), first);
    assert_eq!(finished, Ended { linger: None, is_idle: false });
    assert_eq!(level.set.current_r().to_string(), "0.00500000ss");
    // Queue 0 was charged with the actual 10 ms; queue 1 would finish at 3 ms and is served first.
    assert_eq!(level.dispatched(), ["other"]);
    assert_eq!(level.next_dispatch(0), "0.01000000ss");
    assert_eq!(level.next_dispatch(1), "0.00300000ss");
}

#[test]
fn an_idle_queue_accumulates_no_credit() {
    let mut level = LoggedLevel::new(queuing(2, 10), 1);
    let busy = level.executes(0, "busy", 0, 1);
    level.waits(1, "next", 0, 1);
    // R is at 1 s: one queue, one seat, all the time.
    level.waits(1000, "late", 1, 1);
    assert_eq!(level.next_dispatch(1), "1.00000000ss");
    level.set.finish(ms(1000), busy);
    // Queue 0 used its whole second, so both have equal start times; the queue that was not served last is first.
    assert_eq!(level.next_dispatch(0), "1.00000000ss");
    assert_eq!(level.dispatched(), ["late"]);
}

#[test]
fn a_flow_with_many_requests_does_not_delay_one_with_few() {
    let mut level = LoggedLevel::new(queuing(2, 100), 1);
    let mut executing = level.executes(0, "e", 0, 1);
    let mut waiting: Vec<RequestId> = (0..50).map(|_| level.waits(0, "elephant", 0, 1)).collect();
    let mouse = level.waits(1, "mouse", 1, 1);
    let mut order = Vec::new();
    for turn in 1..=3 {
        level.set.finish(ms(10 * turn), executing);
        let next = level.dispatched();
        executing = if next == ["mouse"] { mouse } else { waiting.remove(0) };
        order.extend(next);
    }
    assert_eq!(order, ["mouse", "elephant", "elephant"]);
}

#[test]
fn a_request_waits_in_the_shortest_queue_of_its_hand() {
    let dealer = Dealer::new(4, 2).unwrap();
    let mut level = LoggedLevel::new(Queuing::Queue { dealer, queues: 4, length_limit: 10 }, 1);
    level.executes(0, "e", 0, 1);
    // Hash 0 deals queues 0 and 1.
    level.waits(0, "a", 0, 5);
    level.waits(0, "b", 0, 1);
    level.waits(0, "c", 0, 1);
    let lengths: Vec<usize> = (0..4).map(|queue| level.set.queue(queue).waiting.len()).collect();
    assert_eq!(lengths.iter().sum::<usize>(), 3);
    assert_eq!(lengths[2..], [0, 0]);
    assert!(lengths[0] == 2 || lengths[1] == 2, "both small ones avoid the large one: {lengths:?}");
}

#[test]
fn a_request_is_rejected_when_its_queue_is_full() {
    let mut level = LoggedLevel::new(queuing(1, 1), 1);
    let first = level.executes(0, "a", 0, 1);
    level.waits(0, "b", 0, 1);
    assert_eq!(
        level.start(0, "c", 0, WorkEstimate::ONE_SEAT),
        ArrivalDecision::Rejected(RejectReason::QueueFull)
    );
    level.set.finish(ms(1), first);
    assert_eq!(level.dispatched(), ["b"]);
    level.waits(2, "d", 0, 1);
    let flow = &level.set.flows()[0];
    assert_eq!(flow.rejected_for(RejectReason::QueueFull), 1);
    assert_eq!((flow.dispatched, flow.executing, flow.in_queue), (2, 1, Some(1)));
    assert_eq!((flow.waited.count(), flow.waited_in_vain.count()), (2, 1));
}

#[test]
fn a_level_without_queues_refuses_what_does_not_fit() {
    let mut level = LoggedLevel::new(Queuing::Reject, 3);
    let two = level.executes(0, "a", 0, 2);
    assert_eq!(
        level.start(0, "b", 0, WorkEstimate::seats(2)),
        ArrivalDecision::Rejected(RejectReason::ConcurrencyLimit)
    );
    level.executes(0, "c", 0, 1);
    level.set.finish(ms(1), two);
    level.executes(1, "d", 0, 2);
}

#[test]
fn without_seats_a_rejecting_level_runs_one_request_and_a_queuing_level_none() {
    let mut level = LoggedLevel::new(Queuing::Reject, 0);
    let only = level.executes(0, "a", 0, 1);
    assert!(matches!(level.start(0, "b", 0, WorkEstimate::ONE_SEAT), ArrivalDecision::Rejected(_)));
    level.set.finish(ms(1), only);
    level.executes(1, "c", 0, 1);

    let mut level = LoggedLevel::new(queuing(1, 10), 0);
    let waiting = level.waits(0, "a", 0, 1);
    assert_eq!(level.set.withdraw(ms(15_000), waiting), Withdrawn::Removed);
    assert_eq!(level.set.counts.canceled, 1);
    assert_eq!(level.set.flows()[0].rejected_for(RejectReason::TimeOut), 1);
}

#[test]
fn an_exempt_level_has_no_limit_and_reports_its_usage() {
    let mut level = LoggedLevel::new(Queuing::Exempt, 0);
    for _ in 0..100 {
        level.executes(0, "a", 0, 10);
    }
    assert_eq!(
        level.set.load(),
        LevelLoad { waiting: 0, executing: 100, seats_in_use: 1000, seats_waiting: 0 }
    );
    assert_eq!(level.set.flows()[0].waited.count(), 0, "no request waits, so nothing is observed");
}

#[test]
fn a_wide_request_waits_for_its_seats_and_is_not_overtaken() {
    let mut level = LoggedLevel::new(queuing(2, 10), 4);
    let a = level.executes(0, "a", 0, 2);
    let b = level.executes(0, "b", 1, 1);
    level.waits(0, "wide", 0, 4);
    level.set.finish(ms(1), b);
    assert_eq!(level.dispatched(), Vec::<&str>::new());
    assert!(level.set.flows()[0].no_accommodation > 0);
    level.set.finish(ms(2), a);
    assert_eq!(level.dispatched(), ["wide"]);
    assert_eq!(level.set.load().seats_in_use, 4);
}

#[test]
fn a_request_wider_than_the_level_runs_alone() {
    let mut level = LoggedLevel::new(queuing(1, 10), 2);
    let a = level.executes(0, "a", 0, 1);
    level.waits(0, "wide", 0, 5);
    level.set.finish(ms(1), a);
    assert_eq!(level.dispatched(), ["wide"]);
    level.waits(1, "b", 0, 1);
}

#[test]
fn final_seats_are_occupied_for_a_while_after_the_request() {
    let mut level = LoggedLevel::new(queuing(1, 10), 2);
    let work = WorkEstimate { initial_seats: 1, final_seats: 4, additional_latency: ms(5) };
    let ArrivalDecision::Executing(id) = level.start(0, "a", 0, work) else { panic!() };
    // 4 seats for 5 ms become 2 seats for 10 ms, because there are only 2.
    assert_eq!(level.set.load().seats_in_use, 2);
    level.waits(1, "b", 0, 1);
    assert_eq!(level.set.finish(ms(2), id), Ended { linger: Some(ms(10)), is_idle: false });
    assert_eq!(level.set.load(), LevelLoad { waiting: 1, executing: 0, seats_in_use: 2, seats_waiting: 1 });
    level.set.release(ms(12), id);
    assert_eq!(level.dispatched(), ["b"]);
    assert_eq!(level.set.load().seats_in_use, 1);
}

#[test]
fn a_suspended_request_gives_its_seats_up_and_comes_back_through_its_queue() {
    let mut level = LoggedLevel::new(queuing(1, 10), 1);
    let work = WorkEstimate { initial_seats: 1, final_seats: 1, additional_latency: ms(5) };
    let ArrivalDecision::Executing(id) = level.start(0, "a", 0, work) else { panic!() };
    level.waits(0, "b", 0, 1);
    let (ended, again) = level.set.suspend(ms(1), id);
    assert_eq!(ended, Ended { linger: None, is_idle: false });
    assert_eq!(level.dispatched(), ["b"]);
    let again = again.unwrap();
    assert_eq!((again.work, again.distinguisher.as_str(), again.is_resumed), (work, "a", true));
    let ArrivalDecision::Waiting(_) = level.set.start(ms(2), again) else { panic!() };
    let flow = &level.set.flows()[0];
    assert_eq!(flow.dispatched, 2, "it is not counted twice");
    assert_eq!(flow.executed.count(), 0, "it has not ended yet");
}

#[test]
fn removed_queues_drain_before_they_disappear() {
    let mut level = LoggedLevel::new(queuing(4, 10), 1);
    let a = level.executes(0, "a", 3, 1);
    level.waits(0, "b", 3, 1);
    level.set.configure(ms(1), queuing(2, 10), 1, 1);
    assert_eq!(level.set.queue_count(), 4);
    level.set.finish(ms(2), a);
    assert_eq!(level.dispatched(), ["b"]);
    let (b, _) = level.set.requests().next().unwrap();
    level.set.finish(ms(3), b);
    assert_eq!(level.set.queue_count(), 2);
    assert!(level.set.is_idle());
}

#[test]
fn increasing_the_seats_dispatches_waiting_requests_immediately() {
    let mut level = LoggedLevel::new(queuing(1, 10), 1);
    level.executes(0, "a", 0, 1);
    level.waits(0, "b", 0, 1);
    level.waits(0, "c", 0, 1);
    level.set.configure(ms(1), queuing(1, 10), 3, 3);
    assert_eq!(level.dispatched(), ["b", "c"]);
}

#[test]
fn a_request_that_needs_seats_set_aside_closes_the_fast_path_until_most_seats_are_free() {
    let mut level = LoggedLevel::new(queuing(4, 10), 16);
    let fast = Arc::clone(level.set.fast_path());
    assert!(fast.enter(0, 1), "an idle level has a fast path");
    let first = level.executes(0, "first", 0, 8);
    assert!(fast.is_open(), "eight seats are for the queues");
    let second = level.executes(0, "second", 1, 7);
    assert!(!fast.is_open() && !fast.enter(0, 1));
    level.waits(0, "third", 2, 1);
    assert!(fast.leave(0, ms(1)));
    level.set.left_fast_path(ms(1));
    assert_eq!(level.dispatched(), ["third"], "its seat goes to who waits");
    level.set.finish(ms(2), first);
    assert!(!fast.is_open(), "eight of sixteen seats are in use");
    level.set.finish(ms(3), second);
    assert!(fast.is_open());
}

#[test]
fn a_request_wider_than_the_level_waits_for_those_on_the_fast_path() {
    let mut level = LoggedLevel::new(queuing(4, 10), 16);
    let fast = Arc::clone(level.set.fast_path());
    assert!(fast.enter(0, 1));
    level.waits(0, "wide", 0, 20);
    assert!(fast.leave(0, ms(1)));
    level.set.left_fast_path(ms(1));
    assert_eq!(level.dispatched(), ["wide"]);
    assert!(!fast.enter(0, 1));
}

#[test]
fn a_level_without_queues_uses_seats_set_aside_before_it_refuses() {
    let mut level = LoggedLevel::new(Queuing::Reject, 16);
    let fast = Arc::clone(level.set.fast_path());
    assert!(fast.enter(0, 1));
    level.executes(0, "fits", 0, 15);
    assert_eq!(
        level.start(0, "too many", 0, WorkEstimate::ONE_SEAT),
        ArrivalDecision::Rejected(RejectReason::ConcurrencyLimit)
    );
}

#[test]
fn the_fast_path_is_in_the_statistics_of_the_level() {
    let mut level = LoggedLevel::new(queuing(4, 10), 16);
    let fast = Arc::clone(level.set.fast_path());
    let counters = level.set.fast_counters(0);
    for took in [ms(2), ms(4)] {
        assert!(fast.enter(0, 1));
        counters.start(0);
        counters.finish(0, took);
        assert!(!fast.leave(0, took));
    }
    assert!(fast.enter(0, 1));
    counters.start(0);
    level.set.take_fast_counts();
    let flow = &level.set.flows()[0];
    assert_eq!((flow.dispatched, flow.executing, flow.executing_seats), (3, 1, 1));
    assert_eq!((flow.executed.count(), flow.executed.sum()), (2, 0.006));
    assert_eq!((flow.waited.count(), flow.waited.sum()), (3, 0.0));
    assert_eq!(flow.estimated_seats.count(), 3);
    assert_eq!(level.set.load(), LevelLoad { executing: 1, seats_in_use: 1, ..LevelLoad::default() });
    assert_eq!(level.set.counts.dispatched, 3);
    // A longer request is counted in its own bucket.
    level.set.finished_on_fast_path(0, ms(40));
    assert!(!fast.leave(0, ms(40)));
    let flow = &level.set.flows()[0];
    assert_eq!((flow.executing, flow.executing_seats, flow.executed.count()), (0, 0, 3));
    // One request executed for 46 of 100 ms.
    let period = level.set.end_period(ms(100));
    assert!((period.average - 0.46).abs() < 1e-9, "{period:?}");
    assert!((period.max - 1.0).abs() < 1e-9);
    assert!((level.set.gauges.executing.read(ms(100)).sum() - 0.46 * 100e6 / 16.0).abs() < 1.0);
    assert_eq!(level.set.take_fast_use(ms(100)), (46_000_000, 1));
}

#[test]
fn a_long_fast_path_request_counts_as_one_seat_in_the_statistics() {
    let mut level = LoggedLevel::new(queuing(4, 10), 16);
    let fast = Arc::clone(level.set.fast_path());
    assert!(fast.enter(0, 1));
    level.set.end_period(ms(990));
    level.set.configure(ms(990), queuing(4, 10), 16, 16);
    // The request took the whole second and is reported ten milliseconds after the gauges were read.
    assert!(!fast.leave(0, ms(1000)));
    let period = level.set.end_period(ms(1000));
    assert!(period.max <= 1.0 && period.average <= 1.0, "{period:?}");
}

#[test]
fn statistics_of_deleted_flow_schemas_are_bounded() {
    let mut level = LoggedLevel::new(queuing(1, 10), 1);
    for number in 0..2000 {
        level.set.retire_flows();
        level.set.flow("schema");
        level.set.flow(&format!("schema-{number}"));
    }
    assert!(level.set.flows().len() <= RETAINED_FLOWS);
    assert_eq!(level.set.flows()[0].schema, "schema", "one that exists keeps its number");
}

#[derive(Clone, Debug)]
enum Step {
    Start { hash: u64, initial: u64, last: u64, latency: u64 },
    Finish(usize),
    Withdraw(usize),
    Suspend(usize),
    EnterFastPath(usize),
    LeaveFastPath(usize),
    Limit(u64),
    Queues(u32),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        6 => (0_u64..40, 1_u64..5, 0_u64..4, 0_u64..8)
            .prop_map(|(hash, initial, last, latency)| Step::Start { hash, initial, last, latency }),
        4 => (0_usize..64).prop_map(Step::Finish),
        1 => (0_usize..64).prop_map(Step::Withdraw),
        1 => (0_usize..64).prop_map(Step::Suspend),
        2 => (0_usize..4).prop_map(Step::EnterFastPath),
        2 => (0_usize..64).prop_map(Step::LeaveFastPath),
        1 => prop_oneof![0_u64..12, 0_u64..40].prop_map(Step::Limit),
        1 => (1_u32..9).prop_map(Step::Queues),
    ];
    proptest::collection::vec((0_u64..20, step), 1..200)
}

proptest! {
    /// Seats in use never exceed the limit, every request ends, and no state is left when all have ended.
    #[test]
    fn no_request_is_lost_and_no_seat_is_given_twice(steps in steps()) {
        let (mut limit, mut queues) = (16, 4);
        let mut level = LoggedLevel::new(queuing(queues, 5), limit);
        let mut now = 0;
        let mut known: BTreeSet<RequestId> = BTreeSet::new();
        let mut lingering: BTreeSet<RequestId> = BTreeSet::new();
        let mut fast: Vec<usize> = Vec::new();
        let (mut arrived, mut rejected, mut ended) = (0, 0, 0);
        for (passed, step) in steps {
            now += passed;
            let nth = |n: usize| known.iter().nth(n % known.len().max(1)).copied();
            let before = level.set.load().seats_in_use;
            match step {
                Step::Start { hash, initial, last, latency } => {
                    arrived += 1;
                    let latency = if last > 0 { latency } else { 0 };
                    let work = WorkEstimate { initial_seats: initial, final_seats: last, additional_latency: ms(latency) };
                    match level.start(now, "x", hash, work) {
                        ArrivalDecision::Executing(id) | ArrivalDecision::Waiting(id) => drop(known.insert(id)),
                        ArrivalDecision::Rejected(_) => rejected += 1,
                    }
                }
                Step::Finish(n) => if let Some(id) = nth(n)
                    && level.set.request(id).unwrap().is_executing() {
                        ended += 1;
                        known.remove(&id);
                        if level.set.finish(ms(now), id).linger.is_some() {
                            lingering.insert(id);
                        }
                    },
                Step::Suspend(n) => if let Some(id) = nth(n)
                    && level.set.request(id).unwrap().is_executing() {
                        ended += 1;
                        known.remove(&id);
                        prop_assert_eq!(level.set.suspend(ms(now), id).0.linger, None);
                    },
                Step::Withdraw(n) => if let Some(id) = nth(n)
                    && level.set.withdraw(ms(now), id) == Withdrawn::Removed {
                        ended += 1;
                        known.remove(&id);
                    },
                Step::EnterFastPath(shard) => if level.set.fast_path().enter(shard, 1) {
                    prop_assert_eq!(level.set.load().waiting, 0, "no request overtakes a waiting one");
                    fast.push(shard);
                },
                Step::LeaveFastPath(n) => if !fast.is_empty() {
                    let shard = fast.swap_remove(n % fast.len());
                    if level.set.fast_path().leave(shard, ms(1)) {
                        level.set.left_fast_path(ms(now));
                    }
                },
                Step::Limit(new) => {
                    limit = new;
                    level.set.configure(ms(now), queuing(queues, 5), limit, 1);
                }
                Step::Queues(new) => {
                    queues = new;
                    level.set.configure(ms(now), queuing(queues, 5), limit, 1);
                }
            }
            if let Some(id) = lingering.pop_first() {
                level.set.release(ms(now), id);
            }
            let load = level.set.load();
            prop_assert!(load.seats_in_use <= limit.max(before) || load.executing == 1, "{:?} of {}", load, limit);
            let occupied: u64 = level.set.requests().filter(|(_, r)| r.started.is_some()).map(|(_, r)| r.work.max_seats()).sum();
            prop_assert_eq!(load.seats_in_use, occupied + fast.len() as u64);
            prop_assert!(load.waiting == 0 || !level.set.fast_path().is_open());
            prop_assert_eq!(load.waiting, level.set.requests().filter(|(_, r)| r.started.is_none()).count());
            prop_assert_eq!(known.len() + rejected + ended, arrived);
        }
        // End all remaining requests.
        for shard in fast {
            if level.set.fast_path().leave(shard, ms(1)) {
                level.set.left_fast_path(ms(now));
            }
        }
        for id in known {
            now += 1;
            if level.set.leave(ms(now), id).linger.is_some() {
                level.set.release(ms(now), id);
            }
        }
        for id in lingering {
            level.set.release(ms(now), id);
        }
        prop_assert_eq!(level.set.load(), LevelLoad::default());
        prop_assert_eq!(level.set.requests().count(), 0);
        prop_assert_eq!(level.set.active_queues, 0);
        prop_assert_eq!(level.set.queue_seats_in_use, 0);
        let flow = &level.set.flows()[0];
        prop_assert_eq!((flow.executing, flow.executing_seats, flow.in_queue_seats), (0, 0, 0));
    }

    /// With one seat and steady demand, two flows are served in turn, regardless of their numbers of requests.
    #[test]
    fn two_flows_with_demand_get_the_same_number_of_turns(many in 10_usize..60, took in 1_u64..20) {
        let mut level = LoggedLevel::new(queuing(2, 1000), 1);
        let mut executing = level.executes(0, "first", 0, 1);
        for _ in 0..many {
            level.waits(0, "many", 0, 1);
        }
        for _ in 0..10 {
            level.waits(0, "few", 1, 1);
        }
        let mut turns = Vec::new();
        for turn in 1..=10_u64 {
            level.set.finish(ms(turn * took), executing);
            turns.extend(level.dispatched());
            executing = level.set.requests().find(|(_, r)| r.is_executing()).unwrap().0;
        }
        let few = turns.iter().filter(|name| **name == "few").count();
        prop_assert!((4..=6).contains(&few), "{:?}", turns);
    }
}
