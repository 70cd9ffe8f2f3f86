use std::time::Duration;

use tokio::time::Instant;
use value::Backoff;

use super::{KeyOutcome, WorkQueue};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));

fn queue() -> (WorkQueue<&'static str>, Instant) {
    (WorkQueue::new(BACKOFF), Instant::now())
}

#[test]
fn duplicate_additions_of_a_key_are_merged() {
    let (mut queue, now) = queue();
    queue.add("a", now, now);
    queue.add("b", now, now);
    queue.add("a", now, now);
    assert_eq!(queue.take(now), Some("a"));
    assert_eq!(queue.take(now), Some("b"));
    assert_eq!(queue.take(now), None);
}

#[test]
fn a_key_added_while_in_progress_is_requeued_afterwards() {
    let (mut queue, now) = queue();
    queue.add("a", now, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.add("a", now, now);
    assert_eq!(queue.take(now), None, "not while it is busy");
    queue.finish("a", KeyOutcome::Done, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.finish("a", KeyOutcome::Done, now);
    assert_eq!(queue.take(now), None);
    assert_eq!(queue.due(), None);
}

#[test]
fn a_delayed_key_waits_until_its_earliest_due_time() {
    let (mut queue, now) = queue();
    let later = now + Duration::from_secs(40);
    queue.add("a", later, now);
    queue.add("a", later + Duration::from_secs(1), now);
    assert_eq!(queue.due(), Some(later));
    assert_eq!(queue.take(now), None);
    assert_eq!(queue.take(later), Some("a"));
    queue.finish("a", KeyOutcome::Done, later);

    queue.add("a", later, now);
    queue.add("a", now, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.finish("a", KeyOutcome::Done, now);
    assert_eq!(queue.due(), None);
}

#[test]
fn failures_back_off_exponentially_up_to_the_cap_and_reset_on_success() {
    let (mut queue, now) = queue();
    queue.add("a", now, now);
    let mut at = now;
    for expected in [5, 10, 20] {
        assert_eq!(queue.take(at), Some("a"));
        queue.finish("a", KeyOutcome::Failed, at);
        assert_eq!(queue.due(), Some(at + Duration::from_millis(expected)));
        at += Duration::from_millis(expected);
    }
    assert_eq!(queue.take(at), Some("a"));
    assert_eq!(queue.finish("a", KeyOutcome::Done, at), 0);
    queue.add("a", at, at);
    assert_eq!(queue.take(at), Some("a"));
    assert_eq!(queue.finish("a", KeyOutcome::Failed, at), 1);
    assert_eq!(BACKOFF.after(40), Duration::from_secs(1));
    assert_eq!(BACKOFF.after(9), Duration::from_secs(1));
    assert_eq!(BACKOFF.after(8), Duration::from_millis(640));
}

#[test]
fn a_change_during_backoff_is_processed_immediately() {
    let (mut queue, now) = queue();
    queue.add("a", now, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.finish("a", KeyOutcome::Failed, now);
    queue.add("a", now, now);
    assert_eq!(queue.take(now), Some("a"));
    assert_eq!(queue.finish("a", KeyOutcome::Failed, now), 2, "the failures before are not forgotten");
}

#[test]
fn a_key_can_be_requeued_after_a_delay() {
    let (mut queue, now) = queue();
    queue.add("a", now, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.finish("a", KeyOutcome::After(Duration::from_secs(1)), now);
    assert_eq!(queue.take(now), None);
    assert_eq!(queue.take(now + Duration::from_secs(1)), Some("a"));
}
