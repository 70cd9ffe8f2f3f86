//! Columns of the `networking.k8s.io` group.

use value::Value;

use super::service::load_balancer;
use super::view::{View, cells};
use super::{Column, TableDef};

pub(crate) const INGRESS: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Class"),
        Column::text("Hosts"),
        Column::text("Address"),
        Column::text("Ports"),
        Column::AGE,
    ],
    |v| {
        let ports = if v.list(&["spec", "tls"]).is_empty() { "80" } else { "80, 443" };
        let class = v.text_or(&["spec", "ingressClassName"], "<none>");
        cells![v.name(), class, hosts(v.list(&["spec", "rules"])), load_balancer(v), ports, v.age()]
    },
);

pub(crate) const INGRESS_CLASS: TableDef = TableDef::new(
    &[Column::NAME, Column::text("Controller"), Column::text("Parameters"), Column::AGE],
    |v| {
        let default = v.annotation("ingressclass.kubernetes.io/is-default-class") == Some("true");
        let mark = if default { " (default)" } else { "" };
        cells![format!("{}{mark}", v.name()), v.text(&["spec", "controller"]), parameters(v), v.age()]
    },
);

pub(crate) const NETWORK_POLICY: TableDef =
    TableDef::new(&[Column::NAME, Column::text("Pod-Selector"), Column::AGE], |v| {
        // An absent selector selects every pod, like an empty one.
        cells![v.name(), v.selector(&["spec", "podSelector"]), v.age()]
    });

pub(crate) const SERVICE_CIDR: TableDef =
    TableDef::new(&[Column::NAME, Column::text("CIDRs"), Column::AGE], |v| {
        cells![v.name(), v.joined(&["spec", "cidrs"]), v.age()]
    });

// kube-apiserver sends a third cell that has no column; so do we.
pub(crate) const IP_ADDRESS: TableDef =
    TableDef::new(&[Column::NAME, Column::text("ParentRef")], |v| cells![v.name(), parent(v), v.age()]);

fn hosts(rules: &[Value]) -> String {
    let mut hosts = Vec::new();
    let mut more = false;
    for rule in rules {
        // Like kube-apiserver, count rules without a host once three hosts are listed.
        more |= hosts.len() == 3;
        let host = rule.str_at(&["host"]).unwrap_or_default();
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    match hosts.join(",") {
        list if list.is_empty() => "*".to_owned(),
        list if more => format!("{list} + {} more...", rules.len() - 3),
        list => list,
    }
}

fn parameters(v: &View<'_>) -> String {
    let Some(parameters @ Value::Map(_)) = v.object.at(&["spec", "parameters"]) else {
        return "<none>".to_owned();
    };
    let text = |field: &str| parameters.str_at(&[field]);
    let group = text("apiGroup").map(|group| format!(".{group}")).unwrap_or_default();
    format!("{}{group}/{}", text("kind").unwrap_or_default(), text("name").unwrap_or_default())
}

fn parent(v: &View<'_>) -> String {
    let Some(parent @ Value::Map(_)) = v.object.at(&["spec", "parentRef"]) else {
        return "<none>".to_owned();
    };
    let text = |field: &str| parent.str_at(&[field]).unwrap_or_default();
    let resource = api::GroupResource::new(text("group"), text("resource")).to_string().to_lowercase();
    match text("namespace") {
        "" => format!("{resource}/{}", text("name")),
        namespace => format!("{resource}/{namespace}/{}", text("name")),
    }
}
