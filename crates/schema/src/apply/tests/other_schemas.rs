//! Tests managers of other API versions and schemas of custom resources.

use value::Value;

use super::super::{ApplyError, FieldManagement, ServedVersions, Unconverted, check, fields};
use super::{Alone, NOTHING, parse, show};
use crate::{Link, ListOf, ListType, MapOf, MapType, Object, Omit, Patch, Property, Schema, ValueType};

/// A kind whose field `a` in `v1` is called `b` in `v2`.
struct Renamed;

fn renamed(field: &'static str) -> Schema {
    custom(
        vec![
            ("apiVersion", Link::Node(text())),
            ("kind", Link::Node(text())),
            ("metadata", Link::Shared(custom(Vec::new(), true).into())),
            (field, Link::Node(text())),
        ],
        false,
    )
}

fn text() -> &'static Schema {
    Box::leak(Box::new(Schema {
        value_type: ValueType::String(crate::StringEncoding::Plain),
        ..Schema::default()
    }))
}

fn custom(fields: Vec<(&'static str, Link)>, open: bool) -> Schema {
    let property = |(name, schema): (&'static str, Link)| Property {
        name: name.into(),
        schema,
        required: false,
        pointer: false,
        omit: Omit::Empty,
        patch: Patch::default(),
        map_type: None,
        embedded: None,
        default: None,
    };
    let mut properties: Vec<Property> = fields.into_iter().map(property).collect();
    properties.sort_by(|a, b| a.name.cmp(&b.name));
    let rest = open.then(|| Link::Shared(std::sync::Arc::new(Schema::ANY)));
    Schema {
        value_type: ValueType::Object(Object { properties: properties.into(), rest, ..Object::default() }),
        ..Schema::default()
    }
}

/// Field management of the object itself in one version.
fn management<'a>(
    api_version: &'a str,
    schema: &'a Schema,
    versions: &'a dyn ServedVersions,
) -> FieldManagement<'a> {
    FieldManagement { api_version, schema, subresource: "", reset: &NOTHING, versions, now: 1 }
}

impl ServedVersions for Renamed {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == "v1").then(|| &*Box::leak(Box::new(renamed("a"))))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted> {
        let (from, to) = match api_version {
            "v1" => ("b", "a"),
            "v2" => ("a", "b"),
            _ => return Err(Unconverted::NoSuchVersion),
        };
        let mut object = object.clone();
        if let Some(value) = object.remove_at(&[from]) {
            object.set_at(&[to], value);
        }
        object.set_at(&["apiVersion"], api_version);
        Ok(object)
    }
}

#[test]
fn managers_are_compared_in_their_version_and_dropped_with_it() {
    let schema = renamed("b");
    let management = management("v2", &schema, &Renamed);
    let entry = |manager: &str, version: &str| {
        format!(
            "{{manager: {manager}, operation: Apply, apiVersion: {version}, fieldsType: FieldsV1, fieldsV1: {{'f:a': {{}}}}}}"
        )
    };
    let live = parse(&format!(
        "{{apiVersion: v2, kind: X, b: x, metadata: {{managedFields: [{}, {}]}}}}",
        entry("one", "v1"),
        entry("old", "v0")
    ));
    let empty = parse("{apiVersion: v2, kind: X}");
    let config = parse("{apiVersion: v2, kind: X, b: w}");
    let status = management.apply(&live, &empty, &config, "two", false).unwrap_err().into_status();
    assert_eq!(status.message(), r#"Apply failed with 1 conflict: conflict with "one": .a"#);
    // A manager that applies in a new version removes the fields it applied in the old one.
    let applied = management.apply(&live, &empty, &empty, "one", false).unwrap();
    assert_eq!(show(&applied.object), r#"{"apiVersion":"v2","kind":"X","metadata":{}}"#);
}

/// A kind that has `a` in `v1` and `b` in `v2`, and whose conversion changes only `apiVersion`.
struct NothingConverts;

impl ServedVersions for NothingConverts {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        Renamed.schema(api_version)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted> {
        if api_version != "v1" {
            return Err(Unconverted::Failed(format!("no {api_version}")));
        }
        let mut object = object.clone();
        object.set_at(&["apiVersion"], api_version);
        Ok(object)
    }
}

#[test]
fn a_failed_conversion_rejects_applies_and_keeps_owners_in_updates() {
    let schema = renamed("b");
    let management = management("v2", &schema, &NothingConverts);
    let live = |version: &str, fields: &str| {
        parse(&format!(
            "{{apiVersion: v2, kind: X{fields}, metadata: {{uid: u, managedFields: [{{manager: one, operation: Apply, apiVersion: {version}, fieldsType: FieldsV1, fieldsV1: {{'f:a': {{}}}}}}]}}}}"
        ))
    };
    let empty = parse("{apiVersion: v2, kind: X}");
    let config = parse("{apiVersion: v2, kind: X, b: w}");
    for (live, why) in [
        (live("v0", ", b: x"), "no v0"),
        (live("v1", ", b: x"), ".b: field not declared in schema"),
        (live("v1", ""), "failed to convert new object: .b: field not declared in schema"),
    ] {
        let refusal = management.apply(&live, &empty, &config, "two", true).unwrap_err();
        assert_eq!(refusal, ApplyError::Failed(why.to_owned()));
        let mut new = live.clone();
        new.set_at(&["b"], "changed");
        assert_eq!(management.track(&live, &new, "web").as_ref(), live.at(&["metadata", "managedFields"]));
    }
}

#[test]
fn custom_schemas_may_preserve_unknown_fields_and_have_atomic_maps() {
    let strings = || Link::Node(text());
    let items = Schema {
        value_type: ValueType::List(ListOf { items: strings(), list_type: Some(ListType::Set) }),
        ..Schema::default()
    };
    let whole = Schema {
        value_type: ValueType::Map(MapOf { values: strings(), key: None, atomic: true }),
        ..Schema::default()
    };
    let schema =
        custom(vec![("set", Link::Shared(items.into())), ("whole", Link::Shared(whole.into()))], true);
    let value = parse("{set: [a], whole: {k: v}, free: {x: {q: 1}, list: [1, {z: 2}]}}");
    check(&value, &schema, false).unwrap();
    let paths: Vec<String> = fields(&value, &schema).paths().iter().map(ToString::to_string).collect();
    assert_eq!(paths, [".free", ".whole", ".free.list", ".free.x", ".free.x.q", r#".set[="a"]"#]);
}

#[test]
fn owned_fields_are_merged_when_their_parent_becomes_atomic() {
    let mut schema = custom(
        vec![
            ("apiVersion", Link::Node(text())),
            ("kind", Link::Node(text())),
            (
                "m",
                Link::Shared(
                    Schema {
                        value_type: ValueType::Map(MapOf {
                            values: Link::Node(text()),
                            key: None,
                            atomic: false,
                        }),
                        ..Schema::default()
                    }
                    .into(),
                ),
            ),
        ],
        false,
    );
    let ValueType::Object(object) = &mut schema.value_type else { panic!() };
    object.properties[2].map_type = Some(MapType::Atomic);
    let management = management("v1", &schema, &Alone);
    let live = parse(
        "{apiVersion: v1, kind: X, m: {a: x, b: x}, metadata: {uid: u, managedFields: [{manager: one, operation: Apply, \
         apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:m': {'f:a': {}}}}]}}",
    );
    let list = management.track(&live, &live, "web").unwrap();
    assert_eq!(show(list.as_list().unwrap()[0].get("fieldsV1").unwrap()), r#"{"f:m":{}}"#);
}
