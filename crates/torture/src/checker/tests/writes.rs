use serde_json::json;

use super::{NONE, Story, config_map, create, delete, key, refused, seen, unknown, update};
use crate::checker::Rule;
use crate::history::{ClientRequest, Outcome, WRITE_ANNOTATION};

#[test]
fn a_chain_of_acknowledged_writes_is_accepted() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.updated(3, "t-a", (2, 2));
    story.remove(4, "t-a").operation(delete("t-a", Some(3)), Outcome::Deleted { uid: "u1".to_owned() });
    assert_eq!(story.broken(), NONE);
}

#[test]
fn an_acknowledged_write_that_is_not_stored_is_rejected() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.operation(create("t-b", 2), Outcome::Stored(seen(3, &config_map(2, 2, "first"))));
    assert_eq!(story.broken(), [Rule::AcknowledgedWrite]);
}

#[test]
fn an_acknowledged_write_with_other_content_or_revision_is_rejected() {
    let object = config_map(1, 1, "first");
    for answer in [seen(2, &config_map(1, 1, "second")), seen(3, &object)] {
        let mut story = Story::default();
        story.put(2, "t-a", &object).operation(create("t-a", 1), Outcome::Stored(answer));
        assert_eq!(story.broken(), [Rule::AcknowledgedWrite]);
    }
}

#[test]
fn an_acknowledged_deletion_that_did_not_happen_is_rejected() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.operation(delete("t-a", None), Outcome::Deleted { uid: "u1".to_owned() });
    assert_eq!(story.broken(), [Rule::AcknowledgedWrite]);
}

#[test]
fn a_deletion_that_two_clients_are_acknowledged_is_rejected() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.remove(3, "t-a");
    for _ in 0..2 {
        story.operation(delete("t-a", None), Outcome::Deleted { uid: "u1".to_owned() });
    }
    assert_eq!(story.broken(), [Rule::AcknowledgedWrite]);
}

#[test]
fn two_clients_may_be_acknowledged_the_deletion_of_one_pod() {
    let mut story = Story::default();
    let pod = "/registry/pods/quota/t-a";
    let object = json!({"metadata": {"uid": "u1", "annotations": {WRITE_ANNOTATION: "1"}}});
    let request = ClientRequest::Create { key: pod.to_owned(), write: 1, object: object.clone() };
    story.change(2, pod, Some(object.clone()), 0).operation(request, Outcome::Stored(seen(2, &object)));
    story.change(3, pod, None, 0);
    for _ in 0..2 {
        let request = ClientRequest::Delete { key: pod.to_owned(), base: None };
        story.operation(request, Outcome::Deleted { uid: "u1".to_owned() });
    }
    assert_eq!(story.broken(), NONE);
}

#[test]
fn an_update_of_another_revision_than_it_names_is_rejected() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.updated(3, "t-a", (2, 2));
    story.updated(4, "t-a", (3, 2));
    assert_eq!(story.broken(), [Rule::GuardedWrite]);
}

#[test]
fn a_create_over_an_existing_object_is_rejected() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.created(3, "t-a", 2);
    assert_eq!(story.broken(), [Rule::GuardedWrite]);
}

#[test]
fn a_deletion_of_another_revision_than_its_precondition_is_rejected() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.updated(3, "t-a", (2, 2));
    story.remove(4, "t-a").operation(delete("t-a", Some(2)), Outcome::Deleted { uid: "u1".to_owned() });
    assert!(story.broken().contains(&Rule::GuardedWrite));
}

#[test]
fn a_patch_must_keep_what_it_does_not_change() {
    for (data, broken) in [
        (json!({"value": "next", "p1": "x"}), &[][..]),
        (json!({"value": "first", "p1": "x"}), &[Rule::GuardedWrite][..]),
    ] {
        let mut story = Story::default();
        story.created(2, "t-a", 1);
        story.updated(3, "t-a", (2, 2));
        let mut object = config_map(3, 1, "");
        object["data"] = data;
        let patch = json!({
            "metadata": {"annotations": {WRITE_ANNOTATION: "3"}},
            "data": {"p1": "x"},
        });
        let request = ClientRequest::Patch { key: key("t-a"), write: 3, patch };
        story.put(4, "t-a", &object).operation(request, Outcome::Stored(seen(4, &object)));
        assert_eq!(story.broken(), broken);
    }
}

#[test]
fn a_refused_write_that_is_stored_is_rejected() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.updated(3, "t-a", (2, 2));
    story.operation(update("t-a", 3, 2), refused(409, "Conflict"));
    assert_eq!(story.broken(), NONE, "it is not stored");
    story.put(4, "t-a", &config_map(4, 1, "next")).operation(update("t-a", 4, 3), refused(409, "Conflict"));
    assert_eq!(story.broken(), [Rule::RefusedWrite]);
}

#[test]
fn a_write_without_an_answer_may_be_stored_once_and_not_twice() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.operation(update("t-a", 2, 2), unknown());
    assert_eq!(story.broken(), NONE, "not stored");
    story.put(3, "t-a", &config_map(2, 1, "next"));
    assert_eq!(story.broken(), NONE, "stored");
    story.put(4, "t-a", &config_map(2, 1, "next"));
    assert!(story.broken().contains(&Rule::RepeatedWrite));
}

#[test]
fn a_controller_that_changes_a_pod_does_not_repeat_its_write() {
    let mut story = Story::default();
    let pod = "/registry/pods/quota/t-a";
    let object = json!({"metadata": {"uid": "u1", "annotations": {WRITE_ANNOTATION: "1"}}});
    let mut scheduled = object.clone();
    scheduled["status"] = json!({"phase": "Pending"});
    let request = ClientRequest::Create { key: pod.to_owned(), write: 1, object: object.clone() };
    story.change(2, pod, Some(object.clone()), 0).operation(request, Outcome::Stored(seen(2, &object)));
    story.change(3, pod, Some(scheduled), 0);
    assert_eq!(story.broken(), NONE);
}

#[test]
fn a_write_that_precedes_what_was_seen_before_it_is_rejected() {
    let mut story = Story::default();
    let object = config_map(1, 1, "first");
    story.put(2, "t-a", &object);
    story.created(3, "t-b", 2);
    story.operation(create("t-a", 1), Outcome::Stored(seen(2, &object)));
    assert_eq!(story.broken(), [Rule::WriteOrder]);
}

#[test]
fn a_refusal_must_be_true_at_some_moment_of_the_request() {
    for (request, code, reason, is_true) in [
        (create("t-a", 9), 409, "AlreadyExists", true),
        (create("t-b", 9), 409, "AlreadyExists", false),
        (update("t-a", 9, 2), 409, "Conflict", true),
        (update("t-a", 9, 3), 409, "Conflict", false),
        (update("t-b", 9, 3), 404, "NotFound", true),
        (delete("t-a", None), 404, "NotFound", false),
        (delete("t-a", Some(2)), 409, "Conflict", true),
        (delete("t-a", Some(3)), 409, "Conflict", false),
    ] {
        let mut story = Story::default();
        story.created(2, "t-a", 1);
        story.updated(3, "t-a", (2, 2));
        let what = format!("{request:?}");
        story.operation(request, refused(code, reason));
        let broken = if is_true { vec![] } else { vec![Rule::RefusalReason] };
        assert_eq!(story.broken(), broken, "{what}");
    }
}

#[test]
fn a_refusal_may_be_caused_by_a_concurrent_write() {
    let mut story = Story::default();
    story.created(2, "t-a", 1);
    let start = story.now;
    story.updated(3, "t-a", (2, 2));
    let end = story.now + 1;
    story.timed((start, end), update("t-a", 3, 2), refused(409, "Conflict"));
    assert_eq!(story.broken(), NONE);
}

#[test]
fn changes_that_no_client_requested_are_rejected() {
    let mut story = Story::default();
    story.put(2, "t-a", &config_map(7, 7, "first"));
    assert_eq!(story.broken(), [Rule::UnexplainedChange]);

    let mut story = Story::default();
    story.created(2, "t-a", 1);
    story.remove(3, "t-a");
    assert_eq!(story.broken(), [Rule::UnexplainedChange]);
    story.operation(delete("t-a", None), unknown());
    assert_eq!(story.broken(), NONE, "the deletion was requested");

    let mut story = Story::default();
    story.put(2, "kube-root-ca.crt", &json!({})).remove(3, "kube-root-ca.crt");
    assert_eq!(story.broken(), NONE, "the workload does not own it");
}
