//! Tests that the cost of a request is about linear in its size. Each of these takes minutes if the cost is quadratic.

use value::{Map, Str, Value};

use super::super::managed::ManagedFieldsEntry;
use super::{
    FieldManagement, FieldSet, ManagedFieldsOperation, Managers, World, check, fields, fields_v1, kind,
    management, merge,
};
use crate::{Link, ListOf, MapOf, Schema, StringEncoding, ValueType};

const MANY: usize = 60_000;

fn with_finalizers(names: impl Iterator<Item = usize>) -> Value {
    let finalizers = Value::list(names.map(|i| format!("example.com/{i:07}")));
    Value::map([
        ("apiVersion", Value::from("v1")),
        ("kind", Value::from("ConfigMap")),
        ("metadata", Value::map([("finalizers", finalizers)])),
    ])
}

fn with_data(keys: impl Iterator<Item = usize>) -> Value {
    let data: Map = keys.map(|i| (Str::from(format!("k{i:07}")), Value::from("v"))).collect();
    Value::map([
        ("apiVersion", Value::from("v1")),
        ("kind", Value::from("ConfigMap")),
        ("data", Value::Map(data)),
    ])
}

#[test]
fn many_items_in_descending_order_are_checked_and_merged() {
    let config = with_finalizers((0..MANY).rev());
    assert!(check(&config, kind("ConfigMap"), false).is_ok());
    let merged = merge(&with_finalizers(0..MANY), &config, kind("ConfigMap")).unwrap();
    assert_eq!(merged.list_at(&["metadata", "finalizers"]).len(), MANY);
    let twice = with_finalizers((0..MANY).rev().chain([5]));
    assert_eq!(
        check(&twice, kind("ConfigMap"), false).unwrap_err().to_string(),
        r#".metadata.finalizers: duplicate entries for key [="example.com/0000005"]"#
    );
}

#[test]
fn many_new_keys_among_many_others_are_merged_and_removed() {
    let merged =
        merge(&with_data((0..MANY).step_by(2)), &with_data((1..MANY).step_by(2)), kind("ConfigMap")).unwrap();
    assert_eq!(merged.at(&["data"]).and_then(Value::as_map).map(Map::len), Some(MANY));
    let mut world = World::new("ConfigMap");
    let config = |value: &Value| value::write::to_string(value);
    world.apply("a", &config(&with_data(0..MANY / 2)));
    world.apply("a", &config(&with_data(0..1)));
    assert_eq!(world.live.at(&["data"]).and_then(Value::as_map).map(Map::len), Some(1));
}

#[test]
fn a_field_set_whose_keys_are_not_in_the_order_of_elements_is_decoded() {
    // As text, 10 comes before 2, and spaces make different keys of the same element.
    let keys = |key: &dyn Fn(usize) -> String| -> Value {
        Value::Map((0..MANY).map(|i| (Str::from(key(i)), Value::Map(Map::new()))).collect())
    };
    let set = fields_v1::decode(&keys(&|i| format!("v:{i}"))).unwrap();
    assert_eq!(set.len(), MANY);
    assert!(set.entries().windows(2).all(|pair| pair[0].element < pair[1].element));
    let spaced = |i: usize| {
        let spaces: String = (0..18).map(|bit| if i >> bit & 1 == 0 { ' ' } else { '\t' }).collect();
        format!("k:{spaces}{{\"a\":1}}")
    };
    let below = |i: usize| Value::map([(format!("f:x{i}"), Value::Map(Map::new()))]);
    let repeated: Map = (0..MANY).map(|i| (Str::from(spaced(i)), below(i))).collect();
    let set = fields_v1::decode(&Value::Map(repeated)).unwrap();
    assert_eq!((set.entries().len(), set.len()), (1, MANY));
}

#[test]
fn numbers_of_all_types_have_one_order() {
    // Rounding would make 2^53 + 1 equal to 2^53 as a float, and sorting may panic if the order is inconsistent.
    let base = 1_i64 << 53;
    let mut keys: Vec<String> = (-300..300).map(|i| format!("v:{}", base + i)).collect();
    keys.extend((-300..300).map(|i| format!("v:{}.0", base + i)));
    keys.extend((-300..300).map(|i| format!("v:{i}.5")));
    keys.push("v:18446744073709551615".to_owned());
    let set: Map = keys.iter().map(|key| (Str::from(key.as_str()), Value::Map(Map::new()))).collect();
    let set = fields_v1::decode(&Value::Map(set)).unwrap();
    assert!(set.entries().windows(2).all(|pair| pair[0].element < pair[1].element));
}

#[test]
fn many_managers_are_decoded_merged_and_compared() {
    const MANAGERS: usize = 20_000;
    let entry = |i: usize| {
        let fields = Value::map([("f:data", Value::map([(format!("f:k{i:07}"), Value::Map(Map::new()))]))]);
        Value::map([
            ("manager", Value::from(format!("m{i}"))),
            ("operation", Value::from(if i.is_multiple_of(2) { "Update" } else { "Apply" })),
            ("apiVersion", Value::from("v1")),
            ("time", Value::from("2020-01-01T00:00:00Z")),
            ("fieldsType", Value::from("FieldsV1")),
            ("fieldsV1", fields),
        ])
    };
    let list: Vec<Value> = (0..MANAGERS).map(entry).collect();
    let mut managers = Managers::decode(&list).unwrap();
    assert_eq!(managers.iter().count(), MANAGERS);
    managers.cap_updaters(10);
    let updaters: Vec<&ManagedFieldsEntry> =
        managers.iter().filter(|entry| entry.manager.operation == ManagedFieldsOperation::Update).collect();
    assert_eq!(updaters.len(), 10);
    let joint = updaters.iter().find(|entry| entry.manager.name == "ancient-changes").unwrap();
    assert_eq!(joint.fields.len(), MANAGERS / 2 - 9);
    // Compares the few fields of each manager with many changed fields.
    let mut live = with_data(0..MANAGERS);
    live.set_at(&["metadata", "managedFields"], Value::List(list));
    live.set_at(&["metadata", "uid"], "u");
    let mut new = with_data(MANAGERS..2 * MANAGERS);
    new.set_at(&["metadata", "uid"], "u");
    let management: FieldManagement<'_> = management("ConfigMap", 5);
    let list = management.track(&live, &new, "late").unwrap();
    let managers = Managers::decode(list.as_list().unwrap()).unwrap();
    assert_eq!(managers.iter().count(), 1, "managers that own nothing are dropped");
}

#[test]
fn of_sets_returns_the_union_of_field_sets() {
    let schema = kind("ConfigMap");
    let of = |keys: std::ops::Range<usize>| fields(&with_data(keys), schema);
    let all = FieldSet::of_sets([of(5..9), of(0..6), FieldSet::EMPTY, of(8..12)]);
    assert_eq!(all, of(0..12));
}

#[test]
fn errors_with_long_paths_are_limited_in_size() {
    let of = |value_type: ValueType| Link::Shared(Schema { value_type, ..Schema::default() }.into());
    let text = of(ValueType::String(StringEncoding::Plain));
    let list = of(ValueType::List(ListOf { items: text, list_type: None }));
    let map = |values| ValueType::Map(MapOf { values, key: None, atomic: false });
    let schema = Schema { value_type: map(of(map(list))), ..Schema::default() };
    let name = "n".repeat(1 << 20);
    let lists = Value::map((0..50).map(|i| (format!("k{i}"), Value::list([1]))));
    let value = Value::map([(name.clone(), lists)]);
    // Each reported path is complete, but not all errors are reported.
    let report = check(&value, &schema, true).unwrap_err().to_string();
    assert_eq!(report.matches("expected string, got &value.valueUnstructured{Value:1}").count(), 4);
    assert_eq!(report.matches(&format!(".{name}.k")).count(), 4);
}
