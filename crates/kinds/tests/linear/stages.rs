//! The stages of a write that are measured.

use api::features::Features;
use api::{FieldErrors, GroupKind, GroupVersion};
use kinds::convert::stored::stored_version;
use kinds::{strategy, table, validation};
use schema::apply::{FieldManagement, Reset, ServedVersions, Unconverted};
use schema::{Schema, decode, patch};
use value::{Budget, Value, write};

use crate::cases::{LinearCase, Step};
use crate::samples::{bare_object, read_object};

/// All features are on, so that no field is dropped.
const FEATURES: Features = Features::ALL;

struct Alone;

impl ServedVersions for Alone {
    fn schema(&self, _: &str) -> Option<&Schema> {
        None
    }

    fn convert(&self, _: &Value, _: &str) -> Result<Value, Unconverted> {
        Err(Unconverted::NoSuchVersion)
    }
}

/// An operation on an object whose steps are counted.
pub(crate) type MeasuredStage = fn(&LinearCase, &Value);

pub(crate) const STAGES: [(&str, MeasuredStage); 7] = [
    ("read", read),
    ("convert", converted),
    ("write", written),
    ("validate", validate),
    ("patch", patched),
    ("JSON patch", json_patched),
    ("apply", applied),
];

fn read(case: &LinearCase, object: &Value) {
    let bytes = write::to_vec(object);
    let parsed = value::json::parse(&bytes).unwrap();
    let object = read_object(case, &parsed);
    let mut unknown = Vec::new();
    for i in 0..10 {
        unknown.push(format!("unknown field {i}"));
    }
    let _ = decode::strict_errors(&unknown, &[]);
    let schema = case.kind.schema(case.version).unwrap();
    let mut shown = object;
    decode::fill(&mut shown, schema);
}

/// Converts the object to the storage version and to every served one, and from the versions that are only read from etcd.
fn converted(case: &LinearCase, object: &Value) {
    let object = read_object(case, object);
    let row = table::find(case.kind.group, case.version, case.kind.plural);
    let versions = row.map(|row| row.versions).unwrap_or_default();
    let own = versions.iter().find(|version| version.name == case.version);
    let to_stored = own.and_then(|version| version.conversion).map(|conversion| conversion.to_stored);
    let stored = to_stored.map_or_else(|| object.clone(), |convert| convert(&object));
    for conversion in versions.iter().filter_map(|version| version.conversion) {
        let _ = (conversion.from_stored)(&stored);
    }
    // Objects in other versions are only read from etcd. Most of their fields are those of this version.
    for version in ["v1alpha1", "v1beta1", "v1beta2", "v1beta3", "v2beta2", "v2beta1"] {
        if let Some(version) = stored_version(case.kind.group, version, case.kind.kind) {
            version.convert(&mut stored.clone());
        }
    }
}

fn written(case: &LinearCase, object: &Value) {
    let kind = GroupKind::new(case.kind.group, case.kind.kind);
    let context = strategy::StrategyContext { features: FEATURES, ..strategy::StrategyContext::default() };
    let old = read_object(case, object);
    let mut new = old.clone();
    new.set_at(&["metadata", "labels", "changed"], "yes");
    strategy::stamp(table::behavior(&kind).strategy.as_ref(), &mut new, &context);
    let mut created = new.clone();
    strategy::prepare_create(table::behavior(&kind).strategy.as_ref(), &mut created, &context);
    let mut updated = new.clone();
    strategy::prepare_update(table::behavior(&kind).strategy.as_ref(), &mut updated, &old, &context);
    strategy::prepare_update_status(table::behavior(&kind).strategy.as_ref(), &mut new, &old, &context);
    strategy::canonicalize(table::behavior(&kind).strategy.as_ref(), &mut updated);
    let _ = table::behavior(&GroupKind::new(case.kind.group, case.kind.kind)).table().rows(&[&updated], 0);
}

fn validate(case: &LinearCase, object: &Value) {
    let _ = validated(case, object);
}

/// The errors of each validation of the object.
pub(crate) fn validated(case: &LinearCase, object: &Value) -> Vec<FieldErrors> {
    let kind = GroupKind::new(case.kind.group, case.kind.kind);
    let Some(rules) = table::behavior(&kind).rules.as_ref() else { return Vec::new() };
    if case.kind.stored_version != Some(case.version) {
        return Vec::new();
    }
    let context = validation::ValidationContext {
        budget: Budget::new(u64::MAX),
        features: FEATURES,
        ..validation::ValidationContext::default()
    };
    let object = read_object(case, object);
    let mut old = object.clone();
    old.set_at(&["metadata", "labels", "changed"], "yes");
    let bare = bare_object(case);
    let _ = table::behavior(&kind).warnings_on_write(&object, None);
    let _ = table::behavior(&kind).warnings_on_write(&object, Some(&bare));
    vec![
        (rules.create)(&object, &context),
        (rules.update)(&object, &old, &context),
        (rules.update_status)(&object, &old, &context),
        // Updates that add or remove the whole list.
        (rules.update)(&object, &bare, &context),
        (rules.update)(&bare, &object, &context),
        (rules.update_status)(&object, &bare, &context),
    ]
}

fn patched(case: &LinearCase, object: &Value) {
    let schema = case.kind.schema(case.version).unwrap();
    let bytes = write::to_vec(object);
    let _ = patch::apply(patch::PatchType::StrategicMerge(schema), object, &bytes, true);
    let _ = patch::apply(patch::PatchType::<&Schema>::Merge, object, &bytes, true);
}

/// The JSON pointer to a list or map of the case, and the value there.
fn pointer<'o>(path: &[Step], object: &'o Value) -> (String, &'o Value) {
    let (mut pointer, mut here) = (String::new(), object);
    for step in path {
        let (key, below) = match step {
            Step::Field(name) => (*name, here.get(name).unwrap()),
            Step::Key => ("key", here.get("key").unwrap()),
            Step::Item => ("0", here.as_list().and_then(|list| list.first()).unwrap()),
        };
        pointer.push('/');
        pointer.push_str(key);
        here = below;
    }
    (pointer, here)
}

/// A patch with one operation for each item of the case's lists, of every kind that does not shift items.
fn json_patched(case: &LinearCase, object: &Value) {
    let mut operations = Vec::new();
    let mut push = |kind: &str, fields: [(&str, Value); 2]| {
        let mut operation = Value::map(fields);
        operation.set_at(&["op"], kind);
        operations.push(operation);
    };
    for path in &case.paths {
        let (list, value) = pointer(path, object);
        let (last, new) = (format!("{list}/-1"), format!("{list}/-"));
        for (i, item) in value.as_list().unwrap_or_default().iter().enumerate() {
            let this = format!("{list}/{i}");
            match i % 6 {
                0 => push("test", [("path", this.into()), ("value", item.clone())]),
                1 => push("replace", [("path", this.into()), ("value", item.clone())]),
                2 => push("add", [("path", new.as_str().into()), ("value", item.clone())]),
                3 => push("copy", [("path", new.as_str().into()), ("from", this.into())]),
                4 => push("move", [("path", new.as_str().into()), ("from", last.as_str().into())]),
                _ => push("remove", [("path", last.as_str().into()), ("value", Value::Null)]),
            }
        }
        for (i, (key, item)) in value.as_map().into_iter().flat_map(value::Map::iter).enumerate() {
            let kind = if i % 2 == 0 { "test" } else { "replace" };
            push(kind, [("path", format!("{list}/{key}").into()), ("value", item.clone())]);
        }
    }
    let operations = patch::json_patch::decode(Value::List(operations)).unwrap();
    patch::json_patch::apply(object.clone(), &operations).unwrap();
}

fn applied(case: &LinearCase, object: &Value) {
    let schema = case.kind.schema(case.version).unwrap();
    let api_version = GroupVersion::new(case.kind.group, case.version).to_string();
    let reset = Reset::without(&["status"]);
    let field_management = FieldManagement {
        api_version: &api_version,
        schema,
        subresource: "",
        reset: &reset,
        versions: &Alone,
        now: 1_800_000_000,
    };
    let mut empty = Value::map([("apiVersion", api_version.as_str()), ("kind", case.kind.kind)]);
    decode::fill(&mut empty, schema);
    let mut live = object.clone();
    if let Some(managed) = field_management.track(&empty, object, "creator") {
        live.set_at(&["metadata", "managedFields"], managed);
    }
    let mut config = object.clone();
    config.remove_at(&["metadata", "uid"]);
    config.remove_at(&["metadata", "managedFields"]);
    let _ = field_management.apply(&live, &empty, &config, "applier", true);
}
