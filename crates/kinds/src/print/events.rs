//! Columns of events, in the form of the core group or of `events.k8s.io`.

use value::Value;

use super::view::{View, cells, moment};
use super::{Column, TableDef};

pub(crate) const EVENT: TableDef = TableDef::new(COLUMNS, event);

pub(super) const COLUMNS: &[Column] = &[
    Column::text("Last Seen"),
    Column::text("Type"),
    Column::text("Reason"),
    Column::text("Object"),
    Column::text("Subobject").wide(),
    Column::text("Source").wide(),
    Column::text("Message"),
    Column::text("First Seen").wide(),
    Column::text("Count").wide(),
    Column::NAME.wide(),
];

pub(super) fn event(v: &View<'_>) -> Vec<Value> {
    // The two groups use different names for these fields.
    let either = |core: &[&str], events: &[&str]| v.get_text(core).or_else(|| v.get_text(events));
    let since = |text| api::time::human_age(text, v.now);
    let is_time = |text: &&str| moment(Some(text)).is_some();
    let event_time = v.get_text(&["eventTime"]);
    let first = either(&["firstTimestamp"], &["deprecatedFirstTimestamp"]).filter(is_time);
    let first = since(first.or(event_time));
    let last = either(&["lastTimestamp"], &["deprecatedLastTimestamp"]).filter(is_time);
    let mut last = last.map_or_else(|| first.clone(), |last| since(Some(last)));
    let mut count = v.int(&["count"]).max(v.int(&["deprecatedCount"]));
    if v.object.get("series").and_then(Value::as_map).is_some() {
        last = v.since(&["series", "lastObservedTime"]);
        count = v.int(&["series", "count"]);
    } else if count == 0 {
        count = 1;
    }
    let object = |field: &str| either(&["involvedObject", field], &["regarding", field]).unwrap_or_default();
    let kind = object("kind").to_lowercase();
    let target = match object("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let full = |text: Option<&'_ str>| text.filter(|t| !t.is_empty()).map(str::to_owned);
    let component = full(either(&["source", "component"], &["deprecatedSource", "component"]))
        .or_else(|| full(either(&["reportingComponent"], &["reportingController"])))
        .unwrap_or_default();
    let host = full(either(&["source", "host"], &["deprecatedSource", "host"]))
        .or_else(|| full(v.get_text(&["reportingInstance"])));
    let source = host.map_or_else(|| component.clone(), |host| format!("{component}, {host}"));
    cells![
        last,
        v.text(&["type"]),
        v.text(&["reason"]),
        target,
        object("fieldPath"),
        source,
        either(&["message"], &["note"]).unwrap_or_default().trim(),
        first,
        count,
        v.name(),
    ]
}
