use super::{NONE, PREFIX, Story, config_map, key, seen};
use crate::checker::Rule;
use crate::history::{ClientRequest, Outcome, ReadAt, SeenObject};

fn get(name: &str, at: ReadAt) -> ClientRequest {
    ClientRequest::Get { key: key(name), at }
}

fn list(at: ReadAt) -> ClientRequest {
    ClientRequest::List { prefix: PREFIX.to_owned(), at, limit: 0 }
}

fn listed(revision: u64, items: &[(&str, SeenObject)]) -> Outcome {
    let items = items.iter().map(|(name, seen)| (key(name), seen.clone())).collect();
    Outcome::Listed { revision, items }
}

#[test]
fn a_consistent_get_sees_the_last_acknowledged_write() {
    let mut story = Story::default();
    let first = story.created(2, "t-a", 1);
    let second = story.updated(3, "t-a", (2, 2));
    story.operation(get("t-a", ReadAt::Latest), Outcome::Object(Some(seen(3, &second))));
    assert_eq!(story.broken(), NONE);
    story.operation(get("t-a", ReadAt::Latest), Outcome::Object(Some(seen(2, &first))));
    assert_eq!(story.broken(), [Rule::ConsistentRead]);
}

#[test]
fn a_consistent_get_may_see_either_state_of_a_concurrent_write() {
    for revision in [2, 3] {
        let mut story = Story::default();
        let first = story.created(2, "t-a", 1);
        let start = story.now;
        let second = story.updated(3, "t-a", (2, 2));
        let end = story.now + 1;
        let object = if revision == 2 { &first } else { &second };
        story.timed((start, end), get("t-a", ReadAt::Latest), Outcome::Object(Some(seen(revision, object))));
        assert_eq!(story.broken(), NONE, "{revision}");
    }
}

#[test]
fn a_consistent_get_must_not_miss_an_existing_object() {
    let mut story = Story::default();
    story.operation(get("t-a", ReadAt::Latest), Outcome::Object(None));
    story.created(2, "t-a", 1);
    assert_eq!(story.broken(), NONE, "it did not exist yet");
    story.operation(get("t-a", ReadAt::Latest), Outcome::Object(None));
    assert_eq!(story.broken(), [Rule::ConsistentRead]);
}

#[test]
fn a_get_must_not_return_what_was_never_stored() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.operation(get("t-a", ReadAt::Any), Outcome::Object(Some(seen(2, &config_map(1, 1, "other")))));
    assert_eq!(story.broken(), [Rule::SessionRead]);
}

#[test]
fn a_read_cannot_see_a_write_that_was_requested_later() {
    let mut story = Story::default();
    let object = config_map(1, 1, "first");
    story.operation(get("t-a", ReadAt::Any), Outcome::Object(Some(seen(2, &object))));
    story.created(2, "t-a", 1);
    assert!(story.broken().contains(&Rule::SessionRead));
}

#[test]
fn a_session_read_may_be_old_but_not_older_than_requested() {
    for (at, is_accepted) in
        [(ReadAt::Any, true), (ReadAt::NotOlderThan(2), true), (ReadAt::NotOlderThan(3), false)]
    {
        let mut story = Story::default();
        let first = story.created(2, "t-a", 1);
        story.updated(3, "t-a", (2, 2));
        let broken = if is_accepted { vec![] } else { vec![Rule::SessionRead] };
        story.operation(get("t-a", at), Outcome::Object(Some(seen(2, &first))));
        assert_eq!(story.broken(), broken, "{at:?}");
        story.history.operations.pop();
        story.operation(list(at), listed(2, &[("t-a", seen(2, &first))]));
        assert_eq!(story.broken(), broken, "{at:?}");
    }
}

#[test]
fn a_consistent_list_is_the_state_of_a_revision_that_is_not_too_old() {
    let mut story = Story::default();
    let first = story.created(2, "t-a", 1);
    let second = story.updated(3, "t-a", (2, 2));
    story.operation(list(ReadAt::Latest), listed(3, &[("t-a", seen(3, &second))]));
    assert_eq!(story.broken(), NONE);
    story.operation(list(ReadAt::Latest), listed(2, &[("t-a", seen(2, &first))]));
    assert_eq!(story.broken(), [Rule::ConsistentRead]);
}

#[test]
fn a_list_that_differs_from_the_state_at_its_revision_is_rejected() {
    let mut story = Story::default();
    let a = story.created(2, "t-a", 1);
    let b = story.created(3, "t-b", 2);
    let (a, b) = (("t-a", seen(2, &a)), ("t-b", seen(3, &b)));
    let changed = ("t-b", seen(3, &config_map(2, 2, "other")));
    let absent = ("t-c", seen(3, &config_map(3, 3, "first")));
    let older = ("t-b", seen(2, &config_map(2, 2, "first")));
    for (items, is_accepted) in [
        (vec![a.clone(), b.clone()], true),
        (vec![a.clone()], false),
        (vec![a.clone(), b.clone(), b.clone()], false),
        (vec![a.clone(), changed], false),
        (vec![a.clone(), b, absent], false),
        (vec![a, older], false),
    ] {
        story.operation(list(ReadAt::Latest), listed(3, &items));
        let broken = if is_accepted { vec![] } else { vec![Rule::ConsistentRead] };
        assert_eq!(story.broken(), broken, "{items:?}");
        story.history.operations.pop();
    }
}
