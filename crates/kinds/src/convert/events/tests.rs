use value::json::parse;

use super::{from_core, to_core};
use crate::table::{self, SelectableFields};

#[test]
fn core_and_events_k8s_io_events_convert_without_loss() {
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
fn every_selectable_field_of_events_k8s_io_has_the_value_of_the_core_event() {
    let core = parse(
        br#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"metadata.name","namespace":"metadata.namespace"},
            "reason":"reason","type":"type","reportingComponent":"reportingController",
            "involvedObject":{"kind":"regarding.kind","namespace":"regarding.namespace","name":"regarding.name",
            "uid":"regarding.uid","apiVersion":"regarding.apiVersion","resourceVersion":"regarding.resourceVersion",
            "fieldPath":"regarding.fieldPath"}}"#,
    )
    .unwrap();
    let event = from_core(&core);
    let row = table::find("events.k8s.io", "v1", "events").unwrap();
    let SelectableFields::These(fields) = row.fields else { panic!("events have fields of their own") };
    assert_eq!(fields.len(), 12);
    for field in fields {
        let found = field.paths.iter().find_map(|path| event.str_at(path));
        assert_eq!(found, Some(field.label));
        let stored = row.stored_field(field.label).unwrap_or_else(|| field.label.to_owned());
        let SelectableFields::These(fields) = row.storing_row().fields else { panic!("events have fields") };
        let stored = fields.iter().find(|field| field.label == stored).expect("a field of core events");
        let found = stored.paths.iter().find_map(|path| core.str_at(path));
        assert_eq!(found, Some(field.label));
    }
    assert_eq!(table::find("", "v1", "events").unwrap().stored_field("involvedObject.kind"), None);
}
