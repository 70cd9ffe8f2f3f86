//! Columns of the `flowcontrol.apiserver.k8s.io` group.

use value::Value;

use super::view::{View, cells};
use super::{Column, TableDef, TableFinish, TableRow};

pub(crate) const FLOW_SCHEMA: TableDef = TableDef {
    whole: TableFinish::Precedence,
    ..TableDef::new(
        &[
            Column::NAME,
            Column::text("PriorityLevel"),
            Column::text("MatchingPrecedence"),
            Column::text("DistinguisherMethod"),
            Column::AGE,
            Column::text("MissingPL"),
        ],
        |v| {
            let method = v.object.at(&["spec", "distinguisherMethod"]).and_then(Value::as_map);
            let method = method.map(|_| v.text(&["spec", "distinguisherMethod", "type"]));
            cells![
                v.name(),
                v.text(&["spec", "priorityLevelConfiguration", "name"]),
                v.int(&["spec", "matchingPrecedence"]),
                method.unwrap_or("<none>"),
                v.age(),
                v.condition("Dangling").unwrap_or("?"),
            ]
        },
    )
};

pub(crate) const PRIORITY_LEVEL_CONFIGURATION: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Type"),
        Column::text("NominalConcurrencyShares"),
        Column::text("Queues"),
        Column::text("HandSize"),
        Column::text("QueueLengthLimit"),
        Column::AGE,
    ],
    priority_level,
);

fn priority_level(v: &View<'_>) -> Vec<Value> {
    const LIMITED: &[&str] = &["spec", "limited"];
    const QUEUING: &[&str] = &["spec", "limited", "limitResponse", "queuing"];
    // An absent map prints `<none>`; a number absent from its map prints 0.
    let number = |part: &[&str], field: &str| match v.object.at(part) {
        Some(part @ Value::Map(_)) => part.int_at(&[field]).unwrap_or_default().into(),
        _ => Value::from("<none>"),
    };
    cells![
        v.name(),
        v.text(&["spec", "type"]),
        number(LIMITED, "nominalConcurrencyShares"),
        number(QUEUING, "queues"),
        number(QUEUING, "handSize"),
        number(QUEUING, "queueLengthLimit"),
        v.age(),
    ]
}

/// Sorts flow schemas by matching precedence, then by name.
pub(super) fn sort(objects: &[&Value], rows: &mut [TableRow]) {
    rows.sort_by_key(|row| {
        let object = objects.get(row.index);
        let precedence = object.and_then(|o| o.int_at(&["spec", "matchingPrecedence"])).unwrap_or_default();
        (precedence, object.map(|o| api::meta::name(o)))
    });
}
