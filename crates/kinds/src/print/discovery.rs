//! Columns of the `discovery.k8s.io` group.

use value::Value;

use super::view::{View, cells, texts, with_more};
use super::{Column, TableDef};

pub(crate) const ENDPOINT_SLICE: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("AddressType"),
        Column::text("Ports"),
        Column::text("Endpoints"),
        Column::AGE,
    ],
    |v| {
        let addresses = v.list(&["endpoints"]).iter().flat_map(|e| texts(e.list_at(&["addresses"])));
        cells![v.name(), v.text(&["addressType"]), ports(v), with_more(addresses, 3), v.age()]
    },
);

fn ports(v: &View<'_>) -> String {
    let port = |port: &Value| match (port.int_at(&["port"]), port.str_at(&["name"])) {
        (Some(number), _) => number.to_string(),
        (None, name) => name.unwrap_or("*").to_owned(),
    };
    let ports: Vec<String> = v.list(&["ports"]).iter().map(port).collect();
    with_more(ports.iter().map(String::as_str), 3)
}
