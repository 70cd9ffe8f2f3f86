use serde_json::Value;

use super::{NONE, Story, config_map, delete, key, seen};
use crate::checker::Rule;
use crate::history::{Outcome, WatchBegin, WatchMessage};

const START: WatchBegin = WatchBegin::After { revision: 1, is_resumed: false };

fn event(kind: &str, revision: u64, name: &str, object: &Value) -> WatchMessage {
    WatchMessage::Event { at: 1000, kind: kind.to_owned(), key: key(name), seen: seen(revision, object) }
}

fn bookmark(revision: u64) -> WatchMessage {
    WatchMessage::Bookmark { revision, is_initial_end: false }
}

fn initial_end(revision: u64) -> WatchMessage {
    WatchMessage::Bookmark { revision, is_initial_end: true }
}

/// Creates at 2, updates at 3, deletes at 4; and the three events.
fn life() -> (Story, [WatchMessage; 3]) {
    let mut story = Story::default();
    let first = story.created(2, "t-a", 1);
    let second = story.updated(3, "t-a", (2, 2));
    story.remove(4, "t-a").operation(delete("t-a", Some(3)), Outcome::Deleted { uid: "u1".to_owned() });
    let events = [
        event("ADDED", 2, "t-a", &first),
        event("MODIFIED", 3, "t-a", &second),
        event("DELETED", 4, "t-a", &second),
    ];
    (story, events)
}

#[test]
fn a_watch_with_all_events_in_order_is_accepted() {
    let (mut story, events) = life();
    story.watch(START, events.to_vec());
    let [_, modified, deleted] = events;
    story.watch(
        WatchBegin::After { revision: 2, is_resumed: true },
        vec![modified, bookmark(3), deleted, bookmark(9)],
    );
    assert_eq!(story.broken(), NONE);
}

#[test]
fn a_missing_event_is_rejected() {
    let (mut story, [added, _, deleted]) = life();
    story.watch(START, vec![added, deleted]);
    assert_eq!(story.broken(), [Rule::WatchReliable]);
}

#[test]
fn a_watch_that_resumes_too_late_is_rejected() {
    let (mut story, [_, _, deleted]) = life();
    story.watch(WatchBegin::After { revision: 2, is_resumed: true }, vec![deleted]);
    assert_eq!(story.broken(), [Rule::WatchResumable]);
}

#[test]
fn an_event_that_is_delivered_twice_is_rejected() {
    let (mut story, [added, modified, _]) = life();
    story.watch(START, vec![added, modified.clone(), modified]);
    assert_eq!(story.broken(), [Rule::WatchUnique]);
}

#[test]
fn an_event_that_comes_too_late_is_rejected() {
    let (mut story, [added, modified, _]) = life();
    story.watch(WatchBegin::After { revision: 2, is_resumed: true }, vec![modified, added]);
    assert_eq!(story.broken(), [Rule::WatchOrder]);
}

#[test]
fn an_event_with_another_type_content_or_revision_than_the_change_is_rejected() {
    let second = config_map(2, 1, "next");
    for wrong in [
        event("ADDED", 3, "t-a", &second),
        event("MODIFIED", 3, "t-a", &config_map(2, 1, "other")),
        event("MODIFIED", 3, "t-b", &second),
    ] {
        let (mut story, _) = life();
        story.watch(WatchBegin::After { revision: 2, is_resumed: false }, vec![wrong]);
        assert_eq!(story.broken(), [Rule::WatchContent]);
    }
}

#[test]
fn a_bookmark_must_not_be_ahead_of_undelivered_events() {
    let (mut story, [added, modified, deleted]) = life();
    story.watch(START, vec![added.clone(), bookmark(2), modified.clone(), deleted]);
    assert_eq!(story.broken(), NONE);
    story.watch(START, vec![added, bookmark(3), modified]);
    assert!(story.broken().contains(&Rule::WatchBookmark));
}

#[test]
fn a_bookmark_must_not_go_back() {
    let (mut story, [added, modified, _]) = life();
    story.watch(START, vec![added, modified, bookmark(2)]);
    assert_eq!(story.broken(), [Rule::WatchBookmark]);
}

#[test]
fn initial_events_are_the_newest_state() {
    let mut story = Story::default();
    let first = story.created(2, "t-a", 1);
    let second = story.updated(3, "t-a", (2, 2));
    let old = event("ADDED", 2, "t-a", &first);
    let new = event("ADDED", 3, "t-a", &second);
    for (messages, broken) in [
        (vec![new.clone(), initial_end(3)], vec![]),
        (vec![new.clone()], vec![]),
        (vec![old.clone(), initial_end(3)], vec![Rule::WatchReliable]),
        (vec![initial_end(3)], vec![Rule::WatchReliable]),
        (vec![old, initial_end(2)], vec![Rule::ConsistentRead]),
        (vec![event("MODIFIED", 3, "t-a", &second), initial_end(3)], vec![Rule::WatchContent]),
    ] {
        story.watch(WatchBegin::InitialEvents, messages.clone());
        assert_eq!(story.broken(), broken, "{messages:?}");
        story.history.streams.pop();
    }
}
