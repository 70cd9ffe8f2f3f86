use value::{Value, json, write};

use super::*;

/// 2026-01-01T00:00:00Z, the current time for the ages in all cases.
const NOW: i64 = 1_767_225_600;

/// Columns of the kind that the table's tests add.
pub(crate) const WIDGET: TableDef =
    TableDef::new(&[Column::NAME, Column::integer("Size")], |v| cells![v.name(), v.int(&["spec", "size"])]);

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn table(group: &str, kind: &str) -> &'static TableDef {
    crate::table::behavior(&api::GroupKind::new(group, kind)).table()
}

fn row(object: &Value) -> Vec<Value> {
    let gvk = api::meta::gvk(object);
    table(&gvk.group, &gvk.kind).row(object, NOW)
}

/// Number of columns that we append to those of Kubernetes.
fn own_columns(group: &str, kind: &str) -> usize {
    usize::from((group, kind) == ("resource.k8s.io", "ResourceClaim"))
}

/// Each case is two lines: an object, and the cells kube-apiserver prints for it.
#[test]
fn table_rows_match_kubernetes() {
    let lines: Vec<&str> = include_str!("cases.txt").lines().collect();
    assert_eq!(lines.len() % 2, 0);
    let mut wrong = Vec::new();
    for case in lines.chunks(2) {
        let object = parse(case[0]);
        let gvk = api::meta::gvk(&object);
        let mut cells = row(&object);
        cells.truncate(cells.len() - own_columns(&gvk.group, &gvk.kind));
        let actual = write::to_string(&Value::List(cells));
        let expected = write::to_string(&parse(case[1]));
        if actual != expected {
            wrong.push(format!("{}\n  actual: {actual}\nexpected: {expected}", case[0]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The line of `columns.txt` for a kind: group;kind;name|type|format|priority;...
pub(crate) fn columns_line(group: &str, kind: &str, columns: &[Column]) -> String {
    let columns = columns.iter().map(|c| format!(";{}|{}|{}|{}", c.name, c.kind, c.format, c.priority));
    format!("{group};{kind}{}", columns.collect::<String>())
}

#[test]
fn table_columns_match_kubernetes() {
    for line in include_str!("columns.txt").lines() {
        let mut parts = line.split(';');
        let (group, kind) = (parts.next().unwrap(), parts.next().unwrap());
        let columns = table(group, kind).columns();
        let theirs = &columns[..columns.len() - own_columns(group, kind)];
        assert_eq!(columns_line(group, kind, theirs), line);
    }
}

#[test]
fn a_claim_shows_whether_it_has_admin_access() {
    let claim = |spec: &str, status: &str| {
        let text = format!(
            r#"{{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","spec":{{"devices":{{"requests":[{{"name":"r","exactly":{spec}}}]}}}},"status":{status}}}"#
        );
        row(&parse(&text)).last().cloned().unwrap()
    };
    assert_eq!(claim("{}", "{}"), Value::from("false"));
    assert_eq!(claim(r#"{"adminAccess":true}"#, "{}"), Value::from("true"));
    let granted = r#"{"allocation":{"devices":{"results":[{"adminAccess":true}]}}}"#;
    assert_eq!(claim("{}", granted), Value::from("true"));
    let column = table("resource.k8s.io", "ResourceClaim").columns().last().unwrap();
    assert_eq!((column.name, column.priority), ("Admin Access", 1));
}

#[test]
fn every_row_has_a_cell_for_each_column() {
    for row in crate::table::all() {
        let table = row.behavior.table();
        let cells = table.row(&parse("{}"), NOW);
        // kube-apiserver sends one cell more than columns here.
        let extra = usize::from(row.kind == "IPAddress");
        assert_eq!(cells.len(), table.columns.len() + extra, "{} {}", row.group, row.kind);
    }
}

#[test]
fn kinds_without_a_table_show_name_and_creation() {
    let role = parse(r#"{"metadata":{"name":"r","creationTimestamp":"2025-12-31T23:00:00Z"}}"#);
    let table = table("rbac.authorization.k8s.io", "Role");
    assert_eq!(table.row(&role, NOW), cells!["r", "2025-12-31T23:00:00Z"]);
    assert_eq!(table.columns()[1], Column { name: "Created At", kind: "date", format: "", priority: 0 });
    assert_eq!(custom().row(&role, NOW), cells!["r", "60m"]);
}

#[test]
fn custom_resource_definitions_list_their_served_versions() {
    let crd = parse(
        r#"{"metadata":{"name":"c.g","creationTimestamp":"2025-12-31T23:00:00Z"},
            "spec":{"group":"g","scope":"Namespaced","names":{"kind":"C","shortNames":["a","b"]},
                "versions":[{"name":"v2","served":true},{"name":"v1","served":true,"storage":true},{"name":"v0"}]},
            "status":{"conditions":[{"type":"Established","status":"True"}]}}"#,
    );
    assert_eq!(
        table("apiextensions.k8s.io", "CustomResourceDefinition").row(&crd, NOW),
        cells!["c.g", "Namespaced", "v1(storage),v2", "2025-12-31T23:00:00Z", "g", "C", "a,b", true]
    );
}

#[test]
fn api_service_rows_show_availability() {
    let table = table("apiregistration.k8s.io", "APIService");
    let cells_of = |text: &str| table.row(&parse(text), NOW);
    assert_eq!(cells_of(r#"{"metadata":{"name":"v1."}}"#), cells!["v1.", "Local", "Unknown", "<unknown>"]);
    let refused = r#"{"metadata":{"name":"a"},"spec":{"service":{"namespace":"n","name":"s"}},
        "status":{"conditions":[{"type":"Available","status":"False","reason":"Down"}]}}"#;
    assert_eq!(cells_of(refused), cells!["a", "n/s", "False (Down)", "<unknown>"]);
    let available = r#"{"metadata":{"name":"a"},
        "status":{"conditions":[{"type":"Available","status":"True","reason":"Local"}]}}"#;
    assert_eq!(cells_of(available), cells!["a", "Local", "True", "<unknown>"]);
}

#[test]
fn the_youngest_default_storage_class_is_marked() {
    let class = |name: &str, created: &str, default: &str| {
        parse(&format!(
            r#"{{"metadata":{{"name":"{name}","creationTimestamp":"{created}",
                "annotations":{{"storageclass.kubernetes.io/is-default-class":"{default}"}}}}}}"#
        ))
    };
    let classes = [
        class("old", "2025-01-01T00:00:00Z", "true"),
        class("b", "2025-02-01T00:00:00Z", "true"),
        class("a", "2025-02-01T00:00:00Z", "true"),
        class("new", "2025-03-01T00:00:00Z", "false"),
    ];
    let table = table("storage.k8s.io", "StorageClass");
    let rows = table.rows(&classes.iter().collect::<Vec<_>>(), NOW);
    let names: Vec<&str> = rows.iter().filter_map(|row| row.cells[0].as_str()).collect();
    assert_eq!(names, ["old", "b", "a (default)", "new"]);
    assert_eq!(table.row(&classes[2], NOW)[0].as_str(), Some("a"));
}

#[test]
fn flow_schemas_are_listed_by_precedence() {
    let schema = |name: &str, precedence: i64| {
        parse(&format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"matchingPrecedence":{precedence}}}}}"#))
    };
    let schemas = [schema("c", 10), schema("b", 5), schema("a", 10)];
    let rows =
        table("flowcontrol.apiserver.k8s.io", "FlowSchema").rows(&schemas.iter().collect::<Vec<_>>(), NOW);
    assert_eq!(rows.iter().map(|row| row.index).collect::<Vec<_>>(), [1, 2, 0]);
}

#[test]
fn pods_that_ended_are_marked_as_completed() {
    let conditions =
        |phase: &str| row_conditions("", "Pod", &parse(&format!(r#"{{"status":{{"phase":"{phase}"}}}}"#)));
    assert_eq!(conditions("Succeeded")[0].str_at(&["reason"]), Some("Succeeded"));
    assert_eq!(conditions("Failed")[0].str_at(&["type"]), Some("Completed"));
    assert!(conditions("Running").is_empty());
    assert!(row_conditions("batch", "Job", &parse("{}")).is_empty());
}

#[test]
fn version_one_autoscalers_show_their_cpu_target() {
    let hpa = parse(
        r#"{"spec":{"targetCPUUtilizationPercentage":80,"maxReplicas":3},"status":{"currentCPUUtilizationPercentage":5}}"#,
    );
    assert_eq!(
        table("autoscaling", "HorizontalPodAutoscaler").row(&hpa, NOW)[2].as_str(),
        Some("cpu: 5%/80%")
    );
}

#[test]
fn columns_have_all_fields_on_the_wire() {
    assert_eq!(
        write::to_string(&Column::IMAGES.to_value()),
        r#"{"description":"","format":"","name":"Images","priority":1,"type":"string"}"#
    );
}

#[test]
fn rows_of_pods_take_linear_steps_in_containers_and_statuses() {
    let steps_of = |count: usize| {
        let list = |fields: &[(&str, Value)]| {
            Value::list((0..count).map(|i| {
                let mut item = Value::map([("name", format!("n{i}"))]);
                for (field, value) in fields {
                    item.set_at(&[field], value.clone());
                }
                item
            }))
        };
        let ended = Value::map([("terminated", Value::map([("exitCode", 0)]))]);
        let mut pod = Value::map([("kind", "Pod")]);
        pod.set_at(&["spec", "initContainers"], list(&[]));
        pod.set_at(&["status", "initContainerStatuses"], list(&[("state", ended)]));
        let behavior = crate::table::behavior(&api::GroupKind::new("", "Pod"));
        value::steps::of(|| drop(behavior.table().rows(&[&pod], 0)))
    };
    let (short, long) = (steps_of(300), steps_of(3000));
    assert!(long <= 15 * short, "{short} steps, then {long}");
}
