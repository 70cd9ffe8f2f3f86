use super::*;

fn key(name: &str) -> FrameKey {
    FrameKey {
        lineage: 0,
        key: name.into(),
        revision: 1,
        word: "ADDED",
        kind: GroupVersionKind::default(),
        crd: None,
        form: ObjectForm::Object,
        include: IncludeObject::Metadata,
        has_headers: false,
    }
}

fn frames() -> SharedFrames {
    SharedFrames::new(&MetricRegistry::new()).unwrap()
}

fn frame(bytes: usize) -> Bytes {
    Bytes::from(vec![b' '; bytes])
}

#[test]
fn a_frame_that_replaces_an_expired_one_is_evicted_after_older_frames() {
    let frames = frames();
    let third = frame(MAX_BYTES / 3);
    frames.hold(key("replaced"), &third, 0);
    frames.hold(key("older"), &third, FRESH - 1);
    assert_eq!(frames.get(&key("replaced"), FRESH + 1), None, "it has expired");
    frames.hold(key("replaced"), &third, FRESH + 1);
    frames.hold(key("large"), &frame(MAX_FRAME), FRESH + 2);
    let held = ["replaced", "older", "large"].map(|name| frames.get(&key(name), FRESH + 2).is_some());
    assert_eq!(held, [true, false, true]);
}

#[test]
fn a_frame_is_not_sent_to_watches_of_restored_data() {
    let frames = frames();
    frames.hold(key("a"), &frame(1), 0);
    assert!(frames.get(&key("a"), 0).is_some());
    assert_eq!(frames.get(&FrameKey { lineage: 2, ..key("a") }, 0), None);
}

#[test]
fn a_frame_expires_and_a_large_one_is_not_cached() {
    let frames = frames();
    frames.hold(key("a"), &frame(1), 0);
    assert!(frames.get(&key("a"), FRESH).is_some());
    assert_eq!(frames.get(&key("a"), FRESH + 1), None);
    frames.hold(key("b"), &frame(MAX_FRAME + 1), 0);
    assert_eq!(frames.get(&key("b"), 0), None);
    assert_eq!(frames.made.get(), 2, "both are counted");
}
