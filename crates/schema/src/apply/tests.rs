mod bounds;
mod field_sets;
mod merging;
mod other_schemas;
mod ownership;

use value::{Value, json};

use super::{
    ApplyError, ApplyResult, FieldManagement, FieldSet, ManagedFieldsOperation, Managers, Reset,
    ServedVersions, Unconverted, check, fields, fields_v1, merge,
};
use crate::{Schema, of};

fn parse(text: &str) -> Value {
    value::yaml::body(text.as_bytes()).unwrap().value
}

fn show(value: &Value) -> String {
    value::write::to_string(value)
}

fn kind(name: &str) -> &'static Schema {
    let (group, version, kind) = match name {
        "ConfigMap" | "Pod" | "Service" => ("", "v1", name),
        "Deployment" => ("apps", "v1", name),
        _ => panic!("{name}"),
    };
    of(group, version, kind).unwrap()
}

/// A kind with a single version.
struct Alone;

impl ServedVersions for Alone {
    fn schema(&self, _: &str) -> Option<&Schema> {
        None
    }

    fn convert(&self, _: &Value, _: &str) -> Result<Value, Unconverted> {
        Err(Unconverted::NoSuchVersion)
    }
}

const NOTHING: Reset = Reset::Nothing;

fn management<'a>(kind_name: &str, now: i64) -> FieldManagement<'a> {
    FieldManagement {
        api_version: if kind_name == "Deployment" { "apps/v1" } else { "v1" },
        schema: kind(kind_name),
        subresource: "",
        reset: &NOTHING,
        versions: &Alone,
        now,
    }
}

/// Applies a sequence of writes to one object.
struct World {
    kind: &'static str,
    live: Value,
    now: i64,
}

impl World {
    fn new(kind: &'static str) -> Self {
        World { kind, live: Self::empty(kind), now: 0 }
    }

    fn empty(kind_name: &str) -> Value {
        let version = if kind_name == "Deployment" { "apps/v1" } else { "v1" };
        let mut empty = Value::map([("apiVersion", version), ("kind", kind_name)]);
        crate::decode::fill(&mut empty, kind(kind_name));
        empty
    }

    fn typed(&self, text: &str) -> Value {
        let mut object = parse(text);
        object.set_at(&["kind"], self.kind);
        object.set_at(&["apiVersion"], if self.kind == "Deployment" { "apps/v1" } else { "v1" });
        object
    }

    fn keep(&mut self, mut object: Value) {
        crate::decode::normalize(&mut object, kind(self.kind));
        crate::decode::fill(&mut object, kind(self.kind));
        object.set_at(&["metadata", "uid"], "u");
        self.live = object;
    }

    fn try_apply(&mut self, manager: &str, config: &str, force: bool) -> Result<(), ApplyError> {
        self.now += 1;
        let config = self.typed(config);
        let ApplyResult { object } = management(self.kind, self.now).apply(
            &self.live,
            &Self::empty(self.kind),
            &config,
            manager,
            force,
        )?;
        self.keep(object);
        Ok(())
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, config: &str) -> &mut Self {
        self.try_apply(manager, config, false).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        self
    }

    #[track_caller]
    fn refuses(&mut self, manager: &str, config: &str, message: &str) -> &mut Self {
        let status = self.try_apply(manager, config, false).unwrap_err().into_status();
        assert_eq!(status.message(), message);
        self
    }

    fn update(&mut self, manager: &str, object: &str) -> &mut Self {
        self.now += 1;
        let mut new = self.typed(object);
        crate::decode::normalize(&mut new, kind(self.kind));
        crate::decode::fill(&mut new, kind(self.kind));
        match management(self.kind, self.now).track(&self.live, &new, manager) {
            Some(list) => new.set_at(&["metadata", "managedFields"], list),
            None => drop(new.remove_at(&["metadata", "managedFields"])),
        }
        self.keep(new);
        self
    }

    /// One line `manager operation time fields` per manager, in the order of the list.
    fn owners(&self) -> Vec<String> {
        let line = |entry: &Value| {
            let time = entry.str_at(&["time"]).unwrap_or("never");
            let second = time.rsplit(':').next().unwrap_or_default().trim_end_matches('Z');
            let text = |field: &str| entry.str_at(&[field]).unwrap_or_default().to_owned();
            let set = fields_v1::decode(entry.get("fieldsV1").unwrap()).unwrap();
            let paths: Vec<String> = set.paths().iter().map(ToString::to_string).collect();
            format!("{} {} {second} {}", text("manager"), text("operation"), paths.join(" "))
        };
        super::managed_fields(&self.live).iter().map(line).collect()
    }

    #[track_caller]
    fn has(&mut self, path: &[&str], wanted: &str) -> &mut Self {
        assert_eq!(self.live.at(path).map(show).as_deref(), (!wanted.is_empty()).then_some(wanted));
        self
    }

    #[track_caller]
    fn owned(&mut self, wanted: &[&str]) -> &mut Self {
        assert_eq!(self.owners(), wanted);
        self
    }
}

/// Replays sequences of applies and updates of pods and compares object, owners and conflicts with those of structured-merge-diff.
#[test]
fn sequences_of_writes_end_as_in_kubernetes() {
    let schema = kind("Pod");
    let empty = parse("{apiVersion: v1, kind: Pod}");
    let mut count = 0;
    for (case, line) in include_str!("cases.jsonl").lines().enumerate() {
        let steps = json::parse(line.as_bytes()).unwrap();
        let mut live = empty.clone();
        let mut list: Option<Value> = None;
        for step in steps.as_list().unwrap() {
            count += 1;
            let management = FieldManagement { schema, ..management("Pod", 1) };
            let (manager, object) = (step.str_at(&["manager"]).unwrap(), step.get("object").unwrap());
            let mut with = live.clone();
            if let Some(list) = &list {
                with.set_at(&["metadata", "managedFields"], list.clone());
            }
            let mut error = String::new();
            if step.str_at(&["op"]) == Some("apply") {
                // An object without owners does not count as one that existed before the first apply.
                let before = if list.is_none() { &live } else { &empty };
                match management.apply(&with, before, object, manager, step.bool_at(&["force"]).unwrap()) {
                    Ok(ApplyResult { mut object }) => {
                        list = object.remove_at(&["metadata", "managedFields"]);
                        live = object;
                    }
                    Err(ApplyError::Conflicts(conflicts)) => {
                        let mut texts: Vec<String> = conflicts
                            .iter()
                            .map(|c| format!("{}/{:?}: {}", c.manager.name, c.manager.operation, c.path))
                            .collect();
                        texts.sort();
                        error = format!("conflicts [{}]", texts.join(" "));
                    }
                    Err(other) => panic!("case {case}: {other:?}"),
                }
            } else {
                list = management.track(&with, object, manager);
                live = object.clone();
            }
            let then = step.get("then").unwrap();
            assert_eq!(error, then.str_at(&["error"]).unwrap_or_default(), "case {case}");
            // Metadata that contained only managed fields is left empty.
            let bare = |object: &Value| {
                let mut object = object.clone();
                if object.get("metadata").is_none_or(|m| m.as_map().is_none_or(value::Map::is_empty)) {
                    object.remove_at(&["metadata"]);
                }
                show(&object)
            };
            assert_eq!(bare(&live), bare(then.get("object").unwrap()), "case {case}");
            live = then.get("object").unwrap().clone();
            let owners = list.iter().flat_map(|list| list.as_list().unwrap()).map(|entry| {
                let text = |field: &str| entry.str_at(&[field]).unwrap();
                (format!("{}/{}", text("manager"), text("operation")), entry.get("fieldsV1").unwrap().clone())
            });
            assert_eq!(show(&Value::map(owners)), show(then.get("managers").unwrap()), "case {case}");
        }
    }
    assert!(count > 100, "{count}");
}
