use super::{HEADROOM, SpaceQuota};
use crate::record::WritePriority::{Essential, Ordinary, System};

const LIMIT: u64 = 8 << 20;

#[test]
fn the_alarm_is_raised_when_full_and_cleared_below_a_lower_mark() {
    let quota = SpaceQuota::new(LIMIT);
    assert!(quota.admits(Ordinary, LIMIT - 10, LIMIT));
    assert!(!quota.is_raised());
    assert!(!quota.admits(Ordinary, LIMIT, LIMIT + 1));
    assert!(quota.is_raised());
    quota.settle(LIMIT - 10);
    assert!(!quota.admits(Ordinary, LIMIT - 10, LIMIT - 9), "until enough is free");
    quota.settle(LIMIT / 20 * 19);
    assert!(!quota.is_raised());
    assert!(quota.admits(Ordinary, LIMIT / 2, LIMIT / 2 + 1));
}

#[test]
fn a_large_write_that_does_not_fit_leaves_room_for_small_ones() {
    let quota = SpaceQuota::new(LIMIT);
    assert!(!quota.admits(Ordinary, LIMIT / 2, LIMIT + 1));
    assert!(!quota.is_raised());
    assert!(quota.admits(Ordinary, LIMIT / 2, LIMIT / 2 + 1));
}

#[test]
fn the_storage_quota_always_admits_writes_that_do_not_grow_the_store() {
    let quota = SpaceQuota::new(LIMIT);
    quota.load(10 * LIMIT);
    assert!(quota.is_raised());
    assert!(quota.admits(Ordinary, 10 * LIMIT, 10 * LIMIT));
    assert!(quota.admits(Ordinary, 10 * LIMIT, 10 * LIMIT - 1));
    assert!(!quota.admits(Ordinary, 10 * LIMIT, 10 * LIMIT + 1));
}

#[test]
fn essential_and_system_writes_have_headroom_of_their_own() {
    let quota = SpaceQuota::new(LIMIT);
    let (half, all) = (LIMIT + HEADROOM.0 / 2, LIMIT + HEADROOM.0);
    assert!(quota.admits(Essential, LIMIT, half));
    assert!(!quota.admits(Essential, half, half + 1));
    assert!(quota.admits(System, half, all), "what is left is the server's alone");
    assert!(!quota.admits(System, all, all + 1));
    quota.load(10 * LIMIT);
    assert!(
        quota.admits(System, 10 * LIMIT, 10 * LIMIT + HEADROOM.0),
        "a lowered quota does not stop the server"
    );
}
