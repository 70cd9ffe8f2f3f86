//! Objects with long lists.

use api::{GroupKind, GroupVersion};
use kinds::table;
use schema::{Schema, StringEncoding, ValueType, decode};
use value::{Map, Value};

use crate::cases::{LinearCase, Step};

/// How the items of a list are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SampleStyle {
    /// Items differ and are valid for most fields.
    Valid,
    /// Items differ; their strings are no names, no addresses and not in any enumeration.
    Invalid,
    /// All items are equal.
    Equal,
}

/// A value of a field that differs for each `i` and is valid for most fields.
fn sample(name: &str, schema: &Schema, i: usize, deep: bool, style: SampleStyle) -> Value {
    let i = if style == SampleStyle::Equal { 0 } else { i };
    let number = i64::try_from(i).unwrap() + 1;
    let lower = name.to_ascii_lowercase();
    match &schema.value_type {
        ValueType::String(format) => match format {
            StringEncoding::Plain if style == SampleStyle::Invalid => format!("!{i}").into(),
            StringEncoding::Plain if !schema.values.is_empty() => {
                let chosen =
                    schema.values.iter().filter(|value| !value.is_empty()).nth(i % schema.values.len());
                chosen.or(schema.values.first()).cloned().unwrap_or_default().into()
            }
            StringEncoding::Plain if lower.contains("cidr") || lower == "except" => {
                format!("10.{}.{}.0/24", i / 250 % 250, i % 250).into()
            }
            StringEncoding::Plain
                if lower == "ip" || lower.ends_with("ips") || lower.ends_with("addresses") =>
            {
                format!("10.1.{}.{}", i / 250 % 250, i % 250).into()
            }
            StringEncoding::Plain if lower.contains("path") => format!("/p/{i}").into(),
            StringEncoding::Plain if name == "operator" => "Exists".into(),
            StringEncoding::Plain if name == "effect" => "NoExecute".into(),
            StringEncoding::Plain if name == "protocol" => "TCP".into(),
            StringEncoding::Plain => format!("n{i}").into(),
            StringEncoding::Bytes => "eA==".into(),
            StringEncoding::Time => "2026-01-01T00:00:00Z".into(),
            StringEncoding::MicroTime => "2026-01-01T00:00:00.000000Z".into(),
            StringEncoding::IntOrString => (number % 60_000 + 1).into(),
            StringEncoding::Quantity => format!("{number}").into(),
        },
        ValueType::Int32 | ValueType::Int64 if lower.contains("port") => (number % 60_000 + 1).into(),
        ValueType::Int32 | ValueType::Int64 => number.into(),
        ValueType::Float => 0.5.into(),
        ValueType::Bool => Value::Bool(false),
        ValueType::Any => Value::map([("n", number)]),
        ValueType::SchemaOr(_) => Value::map([("type", "string")]),
        ValueType::Map(map) => {
            Value::map([(format!("k{i}"), sample("value", map.values.get(), i, false, style))])
        }
        ValueType::List(list) if deep => Value::list([sample(name, list.items.get(), i, false, style)]),
        ValueType::List(_) => Value::List(Vec::new()),
        ValueType::Object(object) => {
            let wanted = |property: &&schema::Property| match property.schema.get().value_type {
                ValueType::Object(_) => deep && (property.required || property.name == "metadata"),
                ValueType::List(_) | ValueType::Map(_) | ValueType::Any | ValueType::SchemaOr(_) => false,
                ValueType::Bool | ValueType::Float => property.required,
                _ => !matches!(property.name.as_str(), "managedFields" | "deletionTimestamp"),
            };
            let fields = object.properties.iter().filter(wanted);
            let fields = fields.map(|property| {
                (property.name.clone(), sample(&property.name, property.schema.get(), i, false, style))
            });
            Value::Map(fields.collect())
        }
    }
}

/// Inserts a list, or a map, of `length` items at a path below a value.
fn grow(value: &mut Value, schema: &Schema, path: &[Step], length: usize, style: SampleStyle) {
    match (&schema.value_type, path) {
        (ValueType::Object(object), [Step::Field(name), rest @ ..]) => {
            let property = object.property(name).unwrap();
            let slot = value.make_map().entry_or_insert_with(name, || Value::Null);
            let schema = property.schema.get();
            match (&schema.value_type, rest) {
                (ValueType::List(list), []) => {
                    let items = list.items.get();
                    *slot = Value::List((0..length).map(|i| sample(name, items, i, true, style)).collect());
                }
                (ValueType::Map(map), []) => {
                    let values = map.values.get();
                    // A quota can limit any size of huge pages.
                    let key =
                        |i: usize| if *name == "hard" { format!("hugepages-{i}Ki") } else { format!("k{i}") };
                    *slot = Value::map((0..length).map(|i| (key(i), sample(name, values, i, true, style))));
                }
                _ => grow(slot, schema, rest, length, style),
            }
        }
        (ValueType::List(list), [Step::Item, rest @ ..]) => {
            if value.as_list().is_none() {
                *value = Value::List(vec![sample("item", list.items.get(), 0, true, style)]);
            }
            let first = value.as_list_mut().and_then(|list| list.first_mut()).unwrap();
            grow(first, list.items.get(), rest, length, style);
        }
        (ValueType::Map(map), [Step::Key, rest @ ..]) => {
            let slot = value.make_map().entry_or_insert_with("key", || Value::Null);
            grow(slot, map.values.get(), rest, length, style);
        }
        // A list at the end of a path through a map or a list of lists.
        (ValueType::List(list), []) => {
            *value =
                Value::List((0..length).map(|i| sample("item", list.items.get(), i, true, style)).collect());
        }
        (kind, path) => panic!("{path:?} does not go through {kind:?}"),
    }
}

pub(crate) fn object(case: &LinearCase, length: usize, style: SampleStyle) -> Value {
    let schema = case.kind.schema(case.version).unwrap();
    let mut object = Value::Map(Map::new());
    object.set_at(&["apiVersion"], GroupVersion::new(case.kind.group, case.version).to_string());
    object.set_at(&["kind"], case.kind.kind);
    object.set_at(&["metadata", "name"], "thing");
    object.set_at(&["metadata", "uid"], "11111111-1111-1111-1111-111111111111");
    if case.kind.is_namespaced {
        object.set_at(&["metadata", "namespace"], "default");
    }
    for path in &case.paths {
        grow(&mut object, schema, path, length, style);
    }
    object
}

/// An object as it is decoded from a request, with defaults.
pub(crate) fn read_object(case: &LinearCase, object: &Value) -> Value {
    let schema = case.kind.schema(case.version).unwrap();
    let mut object = object.clone();
    let _ = decode::empty_lists(&object, schema);
    decode::normalize(&mut object, schema);
    table::behavior(&GroupKind::new(case.kind.group, case.kind.kind)).apply_defaults(&mut object);
    object
}

/// An object of the same kind without the lists of the case.
pub(crate) fn bare_object(case: &LinearCase) -> Value {
    let bare = LinearCase { paths: Vec::new(), name: String::new(), ..*case };
    object(&bare, 0, SampleStyle::Valid)
}
