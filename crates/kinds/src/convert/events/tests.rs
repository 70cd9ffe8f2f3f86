use value::json::parse;

use super::{from_core, to_core};

#[test]
fn both_shapes_hold_the_same_facts() {
    let event = parse(
        br#"{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e"},"eventTime":"2024-01-01T00:00:00.000000Z",
            "note":"n","reason":"r","regarding":{"kind":"Pod","name":"p"},"reportingController":"c","reportingInstance":"i",
            "deprecatedCount":3,"deprecatedSource":{"component":"x"},"type":"Normal"}"#,
    )
    .unwrap();
    let core = to_core(&event);
    assert_eq!(core.str_at(&["apiVersion"]), Some("v1"));
    assert_eq!(core.str_at(&["message"]), Some("n"));
    assert_eq!(core.str_at(&["involvedObject", "name"]), Some("p"));
    assert_eq!(core.str_at(&["reportingComponent"]), Some("c"));
    assert_eq!(core.int_at(&["count"]), Some(3));
    let back = from_core(&core);
    assert_eq!(back.str_at(&["note"]), Some("n"));
    assert_eq!(back.str_at(&["regarding", "name"]), Some("p"));
    assert_eq!(back.str_at(&["deprecatedSource", "component"]), Some("x"));
    assert_eq!(to_core(&back), core);
}

#[test]
fn selectors_speak_the_served_names() {}
