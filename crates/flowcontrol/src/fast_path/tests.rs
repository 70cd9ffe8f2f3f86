use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::shard::shard;

const MICROSECOND: Duration = Duration::from_micros(1);

#[test]
fn half_of_the_seats_are_set_aside_in_equal_parts() {
    let fast = FastPath::default();
    assert!(!fast.enter(0, 1), "a fast path is closed at first");
    fast.open(16);
    assert_eq!(fast.occupied(), 8);
    assert!(fast.enter(0, 1) && fast.enter(0, 1));
    assert!(!fast.enter(0, 1), "each shard has two of eight seats");
    assert!(fast.enter(1, 1));
    assert_eq!(fast.in_use(), 3);
    assert!(!fast.leave(0, MICROSECOND));
    assert!(fast.enter(0, 1));
}

#[test]
fn a_level_of_few_seats_has_no_fast_path() {
    let fast = FastPath::default();
    fast.open(7);
    assert!(!fast.is_open());
    fast.open(8);
    assert!(fast.is_open());
}

#[test]
fn the_fast_path_is_refused_while_more_requests_are_present_than_seats() {
    let fast = FastPath::default();
    fast.open(16);
    assert!(fast.enter(0, 16));
    assert!(!fast.enter(0, 17));
    fast.open_without_limit();
    assert!(fast.enter(0, u64::MAX));
}

#[test]
fn requests_still_on_a_closed_fast_path_keep_occupying_their_seats() {
    let fast = FastPath::default();
    fast.open(16);
    assert!(fast.enter(0, 1) && fast.enter(1, 1));
    fast.close();
    assert_eq!(fast.occupied(), 2);
    assert!(!fast.enter(0, 1));
    assert!(fast.leave(0, MICROSECOND), "the leaving request learns that another may wait");
    assert!(fast.leave(1, MICROSECOND));
    assert_eq!(fast.occupied(), 0);
    assert_eq!(fast.nanoseconds(), 2000);
}

#[test]
fn the_seat_high_watermark_is_reset_when_read() {
    let fast = FastPath::default();
    fast.open(64);
    assert!(fast.enter(0, 1) && fast.enter(0, 1) && !fast.leave(0, MICROSECOND));
    assert_eq!(fast.take_most(), 2);
    assert_eq!(fast.take_most(), 1);
}

#[test]
fn counters_add_up_over_all_threads() {
    let counters = Arc::new(FastCounters::default());
    let before = counters.sums();
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let counters = Arc::clone(&counters);
            thread::spawn(move || {
                for _ in 0..1000 {
                    counters.start(shard());
                    counters.finish(shard(), MICROSECOND);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let sums = counters.sums().since(before);
    assert_eq!((sums.started, sums.finished, sums.nanoseconds), (6000, 6000, 6_000_000));
}

/// A waiter notices that a seat becomes free, in any interleaving of leaving and closing.
#[test]
fn a_seat_released_while_the_fast_path_closes_is_never_missed() {
    for _ in 0..2000 {
        let fast = Arc::new(FastPath::default());
        fast.open(8);
        assert!(fast.enter(0, 1));
        let other = Arc::clone(&fast);
        let leaving = thread::spawn(move || other.leave(0, MICROSECOND));
        fast.close();
        let is_free = fast.occupied() == 0;
        let must_look = leaving.join().unwrap();
        assert!(is_free || must_look);
    }
}
