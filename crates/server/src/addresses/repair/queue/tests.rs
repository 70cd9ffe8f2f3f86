use std::time::Duration;

use tokio::time::Instant;

use super::{RepairKey, RepairQueue};

fn key(last: u8) -> RepairKey {
    RepairKey::Address(std::net::Ipv4Addr::new(10, 0, 0, last).into())
}

#[test]
fn keys_are_taken_when_they_are_due() {
    let now = Instant::now();
    let mut queue = RepairQueue::default();
    queue.add(key(1), now + Duration::from_mins(1));
    queue.add(key(2), now);
    assert_eq!(queue.take(now), Some((key(2), 0)));
    assert_eq!(queue.take(now), None);
    queue.add(key(1), now);
    assert_eq!(queue.take(now), Some((key(1), 0)), "a key moves to an earlier time");
    assert_eq!(queue.due(), None);
}

#[test]
fn a_removed_key_is_not_taken() {
    let now = Instant::now();
    let mut queue = RepairQueue::default();
    queue.add(key(1), now);
    queue.remove(&key(1));
    assert_eq!(queue.take(now), None);
}

#[test]
fn failures_delay_a_key_longer_and_longer() {
    let now = Instant::now();
    let mut queue = RepairQueue::default();
    queue.retry(key(1), 1, now);
    let first = queue.due().unwrap();
    queue.retry(key(1), 20, now);
    assert!(first > now && queue.due().unwrap() > first);
    assert_eq!(queue.take(now + Duration::from_mins(1)), Some((key(1), 20)));
}
