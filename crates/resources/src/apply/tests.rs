mod bounds;

use value::{Value, json};

use super::{
    Applied, Door, Element, FieldSet, Manager, Managers, Operation, Refusal, Replicas, Reset, Versions,
    atomics, check, compare, fields, fields_v1, merge, same_but_for_times, to_scale, to_workload,
};
use crate::schema::{
    Kind, Link, ListOf, ListType, MapOf, MapType, Object, Omit, Patch, Property, Schema, of,
};

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

/// No other versions.
struct Alone;

impl Versions for Alone {
    fn schema(&self, _: &str) -> Option<&Schema> {
        None
    }

    fn convert(&self, _: &Value, _: &str) -> Option<Value> {
        None
    }
}

const NOTHING: Reset = Reset::Nothing;

fn door<'a>(kind_name: &str, now: i64) -> Door<'a> {
    Door {
        api_version: if kind_name == "Deployment" { "apps/v1" } else { "v1" },
        schema: kind(kind_name),
        subresource: "",
        reset: &NOTHING,
        versions: &Alone,
        now,
    }
}

/// An object under server-side apply, one write after the other.
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
        crate::decode::normalise(&mut object, kind(self.kind));
        crate::decode::fill(&mut object, kind(self.kind));
        object.set_at(&["metadata", "uid"], "u");
        self.live = object;
    }

    fn try_apply(&mut self, manager: &str, config: &str, force: bool) -> Result<(), Refusal> {
        self.now += 1;
        let config = self.typed(config);
        let Applied { object } =
            door(self.kind, self.now).apply(&self.live, &Self::empty(self.kind), &config, manager, force)?;
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
        crate::decode::normalise(&mut new, kind(self.kind));
        crate::decode::fill(&mut new, kind(self.kind));
        match door(self.kind, self.now).track(&self.live, &new, manager) {
            Some(list) => new.set_at(&["metadata", "managedFields"], list),
            None => drop(new.remove_at(&["metadata", "managedFields"])),
        }
        self.keep(new);
        self
    }

    /// `manager operation time fields`, one line each, in the order of the list.
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

#[test]
fn field_sets_are_read_and_written_as_they_were() {
    for text in [
        "{}",
        r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:replicas":{}}}"#,
        r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{}}}}}"#,
        r#"{"f:metadata":{"f:finalizers":{".":{},"v:\"x\"":{}}}}"#,
        r#"{"f:x":{"i:3":{}},"f:y":{"v:1.5":{},"v:true":{}}}"#,
        r#"{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{}}}"#,
    ] {
        let set = fields_v1::decode(&json::parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(show(&fields_v1::encode(&set)), text);
    }
}

#[test]
fn field_sets_from_the_future_lose_what_is_not_known_and_broken_ones_are_refused() {
    let read = |text: &str| fields_v1::decode(&json::parse(text.as_bytes()).unwrap());
    assert_eq!(show(&fields_v1::encode(&read(r#"{"f:a":{},"q:b":{}}"#).unwrap())), r#"{"f:a":{}}"#);
    for broken in [
        r#"{"a":{}}"#,
        r#"{"f-a":{}}"#,
        r#"{"f:a":1}"#,
        r#"{"k:[1]":{}}"#,
        r#"{"v:{":{}}"#,
        r#"{"i:x":{}}"#,
        "[]",
    ] {
        assert!(read(broken).is_err(), "{broken}");
    }
}

fn set(paths: &[&str]) -> FieldSet {
    FieldSet::of(paths)
}

#[test]
fn sets_are_united_subtracted_and_intersected() {
    let mut both = set(&["a", "b.c"]);
    both.unite(set(&["b", "d.e"]));
    assert_eq!(both, set(&["a", "b", "b.c", "d.e"]));
    assert_eq!(both.difference(&set(&["b", "d.e"])), set(&["a", "b.c"]));
    assert_eq!(both.intersection(&set(&["b.c", "d", "x"])), set(&["b.c"]));
    let mut less = both.clone();
    less.subtract_with_below(&set(&["b", "d.x"]));
    assert_eq!(less, set(&["a", "d.e"]));
    assert!(set(&["b.c"]).is_within(&both) && !set(&["d"]).is_within(&both) && !set(&["z"]).is_within(&both));
    assert_eq!(both.len(), 4);
    assert!(both.has(&[Element::Field("b".into()), Element::Field("c".into())]));
    assert!(!both.has(&[Element::Field("d".into())]) && !both.has(&[]));
}

#[test]
fn the_fields_of_a_configuration_are_its_leaves_items_and_map_keys() {
    let pod = parse(
        "{metadata: {labels: {a: b}, finalizers: [x]}, spec: {nodeSelector: {a: b}, tolerations: [{key: k}], \
         containers: [{name: c, ports: [{containerPort: 80}]}], volumes: [], hostAliases: null, overhead: {}}}",
    );
    let paths: Vec<String> = fields(&pod, kind("Pod")).paths().iter().map(ToString::to_string).collect();
    assert_eq!(
        paths,
        [
            ".metadata.finalizers[=\"x\"]",
            ".metadata.labels.a",
            ".spec.hostAliases",
            ".spec.nodeSelector",
            ".spec.overhead",
            ".spec.tolerations",
            ".spec.containers[name=\"c\"]",
            ".spec.containers[name=\"c\"].name",
            ".spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"]",
            ".spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"].containerPort",
        ]
    );
}

#[track_caller]
fn compared(old: &str, new: &str, wanted: [&str; 3]) {
    let found = compare(&parse(old), &parse(new), kind("Pod")).unwrap();
    let text = |set: &FieldSet| set.paths().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!([text(&found.removed), text(&found.modified), text(&found.added)], wanted);
}

#[test]
fn a_comparison_names_what_was_removed_modified_and_added() {
    compared("{metadata: {name: a}}", "{metadata: {name: a}}", ["", "", ""]);
    compared(
        "{metadata: {labels: {a: x, b: w}}}",
        "{metadata: {labels: {a: z, c: w}}}",
        [".metadata.labels.b", ".metadata.labels.a", ".metadata.labels.c"],
    );
    compared(
        "{metadata: {}}",
        "{metadata: {labels: {a: x}}}",
        ["", "", ".metadata.labels .metadata.labels.a"],
    );
    compared("{spec: {overhead: null}}", "{spec: {overhead: {}}}", ["", ".spec.overhead", ""]);
    compared(
        "{spec: {nodeSelector: {a: x}}}",
        "{spec: {nodeSelector: {a: x, b: w}}}",
        ["", ".spec.nodeSelector", ""],
    );
    compared(
        "{spec: {containers: [{name: a, image: x}, {name: b}]}}",
        "{spec: {containers: [{name: c}, {name: a, image: w}]}}",
        [
            r#".spec.containers[name="b"] .spec.containers[name="b"].name"#,
            r#".spec.containers[name="a"].image"#,
            r#".spec.containers[name="c"] .spec.containers[name="c"].name"#,
        ],
    );
    // The order of items is nobody's.
    compared("{metadata: {finalizers: [a, b]}}", "{metadata: {finalizers: [b, a]}}", ["", "", ""]);
}

#[test]
fn items_that_are_called_the_same_are_one() {
    let env = |items: &str| format!("{{spec: {{containers: [{{name: c, env: [{items}]}}]}}}}");
    let e = r#".spec.containers[name="c"].env[name="e"]"#;
    let (one, two, other) = ("{name: e}", "{name: e}, {name: e, value: x}", "{name: e}, {name: e, value: w}");
    compared(&env(two), &env(two), ["", "", ""]);
    compared(&env(two), &env(other), ["", e, ""]);
    compared(&env(two), &env(one), [e, "", &format!("{e} {e}.name")]);
    compared(&env(one), &env(two), [&format!("{e} {e}.name"), "", e]);
    compared(
        &env(two),
        &env("{name: z}"),
        [e, "", r#".spec.containers[name="c"].env[name="z"] .spec.containers[name="c"].env[name="z"].name"#],
    );
}

#[test]
fn a_list_whose_items_have_no_key_is_not_compared() {
    let old = parse("{metadata: {finalizers: [{a: b}]}}");
    let why = compare(&old, &parse("{}"), kind("Pod")).unwrap_err();
    assert_eq!(
        why,
        ".metadata.finalizers: element 0: associative list without keys has an element that's a map type"
    );
}

#[test]
fn merged_items_keep_the_objects_order_unless_the_configuration_says_another() {
    for (object, config, wanted) in [
        ("[a, b, c]", "[]", "[a,b,c]"),
        ("[a, b, c]", "[b]", "[a,b,c]"),
        ("[a, b, c]", "[d]", "[a,b,c,d]"),
        ("[a, b, c]", "[c, a]", "[b,c,a]"),
        ("[a, b, c, d]", "[d, e, a]", "[b,c,d,e,a]"),
        ("[a, b, c]", "[x, b, z]", "[a,x,b,c,z]"),
        ("[]", "[b, a]", "[b,a]"),
    ] {
        let pod = |list: &str| parse(&format!("{{metadata: {{finalizers: {list}}}}}"));
        let merged = merge(&pod(object), &pod(config), kind("Pod")).unwrap();
        let text = merged.at(&["metadata", "finalizers"]).map(show).unwrap_or_default().replace('"', "");
        assert_eq!(text, wanted, "{object} {config}");
    }
}

#[test]
fn a_configuration_wins_where_both_have_a_value_and_null_removes_no_parts() {
    let merged = |object: &str, config: &str| {
        show(merge(&parse(object), &parse(config), kind("Pod")).unwrap().get("spec").unwrap())
    };
    assert_eq!(
        merged("{spec: {hostname: a, nodeName: h}}", "{spec: {hostname: b}}"),
        r#"{"hostname":"b","nodeName":"h"}"#
    );
    assert_eq!(
        merged("{spec: {nodeSelector: {a: b}}}", "{spec: {nodeSelector: {c: d}}}"),
        r#"{"nodeSelector":{"c":"d"}}"#
    );
    assert_eq!(
        merged("{spec: {overhead: {cpu: 1}}}", "{spec: {overhead: null}}"),
        r#"{"overhead":{"cpu":1}}"#
    );
    assert_eq!(merged("{spec: {hostname: a}}", "{spec: {hostname: null}}"), r#"{"hostname":null}"#);
}

#[test]
fn configurations_that_do_not_fit_are_refused_in_the_librarys_words() {
    for (config, wanted) in [
        ("{spec: {foo: 1}}", ".spec.foo: field not declared in schema"),
        ("{spec: {hostname: 5}}", ".spec.hostname: expected string, got &value.valueUnstructured{Value:5}"),
        ("{spec: {hostNetwork: \"x\"}}", ".spec.hostNetwork: expected boolean, got &{x}"),
        ("{spec: {priority: \"1\"}}", ".spec.priority: expected numeric (int or float), got string"),
        ("{spec: [a]}", ".spec: expected map, got &{[a]}"),
        ("{spec: {containers: {a: b}}}", ".spec.containers: expected list, got &{map[a:b]}"),
        (
            "{metadata: {creationTimestamp: [a]}}",
            ".metadata.creationTimestamp: expected any scalar, got &{[a]}",
        ),
        (
            "{spec: {containers: [{name: a}, {name: a}]}}",
            r#".spec.containers: duplicate entries for key [name="a"]"#,
        ),
        ("{metadata: {finalizers: [a, a]}}", r#".metadata.finalizers: duplicate entries for key [="a"]"#),
        (
            "{spec: {containers: [null]}}",
            ".spec.containers: element 0: associative list with keys may not have a null element",
        ),
        (
            "{spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: a}], hostname: 5, subdomain: 6}}",
            "errors:\n  .spec.hostname: expected string, got &value.valueUnstructured{Value:5}\n  .spec.subdomain: expected string, got &value.valueUnstructured{Value:6}",
        ),
    ] {
        assert_eq!(check(&parse(config), kind("Pod"), false).unwrap_err().to_string(), wanted);
    }
    assert!(check(&parse("{metadata: {finalizers: [a, a]}}"), kind("Pod"), true).is_ok());
    assert!(
        check(&parse("{spec: {containers: [{name: a, image: null}], volumes: null}}"), kind("Pod"), false)
            .is_ok()
    );
}

#[test]
fn atomic_parts_of_a_configuration_are_found() {
    let config = parse("{spec: {nodeSelector: {a: b}, containers: [{name: a, command: [x]}], hostname: h}}");
    assert_eq!(atomics(&config, kind("Pod")), [".spec.containers[0].command", ".spec.nodeSelector"]);
    assert!(atomics(&parse("{metadata: {labels: {a: b}}}"), kind("Pod")).is_empty());
}

#[test]
fn a_first_apply_creates_and_owns_what_it_says() {
    World::new("ConfigMap")
        .apply("one", "{metadata: {name: a, labels: {l: x}}, data: {k: v}}")
        .owned(&["one Apply 01 .data.k .metadata.labels.l"]);
}

#[test]
fn who_applies_the_same_value_shares_it_and_keeps_it_until_both_let_go() {
    let mut world = World::new("ConfigMap");
    world.apply("one", "{data: {k: v, own: o}}").apply("two", "{data: {k: v}}");
    world.owned(&["two Apply never .data.k", "one Apply 01 .data.k .data.own"]);
    world.apply("one", "{data: {own: o}}").has(&["data"], r#"{"k":"v","own":"o"}"#);
    world.apply("two", "{}").has(&["data"], r#"{"own":"o"}"#).owned(&["one Apply 01 .data.own"]);
}

#[test]
fn a_field_of_somebody_else_is_a_conflict_unless_forced() {
    let mut world = World::new("ConfigMap");
    world.apply("one", "{data: {a: x, b: x}}");
    world.refuses("two", "{data: {a: w}}", r#"Apply failed with 1 conflict: conflict with "one": .data.a"#);
    world.refuses(
        "two",
        "{data: {a: w, b: w}}",
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b",
    );
    world.has(&["data"], r#"{"a":"x","b":"x"}"#);
    world.try_apply("two", "{data: {a: w}}", true).unwrap();
    world.has(&["data"], r#"{"a":"w","b":"x"}"#).owned(&["one Apply 01 .data.b", "two Apply 04 .data.a"]);
}

#[test]
fn the_answer_to_a_conflict_names_managers_and_fields() {
    let mut world = World::new("Deployment");
    world.update("kubectl-create", "{spec: {replicas: 1}}");
    let refusal = world.try_apply("two", "{spec: {replicas: 2}}", false).unwrap_err();
    assert_eq!(
        show(&refusal.into_status().to_value()),
        show(&parse(
            "{kind: Status, apiVersion: v1, metadata: {}, status: Failure, reason: Conflict, code: 409, \
             message: 'Apply failed with 1 conflict: conflict with \"kubectl-create\" using apps/v1: .spec.replicas', \
             details: {causes: [{reason: FieldManagerConflict, field: .spec.replicas, \
             message: 'conflict with \"kubectl-create\" using apps/v1'}]}}"
        ))
    );
}

#[test]
fn an_update_takes_what_it_changes_and_removes_what_it_drops() {
    let mut world = World::new("ConfigMap");
    world.apply("one", "{data: {a: x, b: x, c: x}}").update("web", "{data: {a: w, b: x}}");
    world.owned(&["one Apply 01 .data.b", "web Update 02 .data.a"]);
    // What nobody changes costs nobody anything, and no time.
    world.update("web", "{data: {a: w, b: x}}").owned(&["one Apply 01 .data.b", "web Update 02 .data.a"]);
    world
        .update("web", "{data: {a: w, b: x, d: z}}")
        .owned(&["one Apply 01 .data.b", "web Update 04 .data.a .data.d"]);
}

#[test]
fn a_created_object_is_its_creators() {
    World::new("ConfigMap")
        .update("web", "{metadata: {name: a, labels: {l: x}}, data: {k: v}}")
        .owned(&["web Update 01 .data .data.k .metadata.labels .metadata.labels.l"]);
}

#[test]
fn an_object_that_nobody_owns_is_owned_from_the_first_apply_on() {
    let mut world = World::new("ConfigMap");
    world.live = world.typed("{metadata: {uid: u, name: a}, data: {k: v}}");
    world.update("web", "{data: {k: w}}").owned(&[]);
    world.refuses(
        "one",
        "{data: {k: x}}",
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.k"#,
    );
    world
        .apply("one", "{data: {l: x}}")
        .owned(&["one Apply 03 .data.l", "before-first-apply Update 03 .data .data.k"]);
}

#[test]
fn items_no_longer_applied_go_unless_somebody_has_a_part_of_them() {
    let mut world = World::new("Deployment");
    let config =
        |containers: &str| format!("{{spec: {{template: {{spec: {{containers: [{containers}]}}}}}}}}");
    let names = |world: &World| -> Vec<String> {
        let containers = world.live.list_at(&["spec", "template", "spec", "containers"]);
        containers.iter().map(|c| c.str_at(&["name"]).unwrap_or_default().to_owned()).collect()
    };
    world.apply("one", &config("{name: a, image: x}, {name: b, image: x}"));
    world.apply("two", &config("{name: b, tty: true}"));
    world.apply("one", &config("{name: a, image: x}"));
    assert_eq!(names(&world), ["a", "b"]);
    world.has(
        &["spec", "template", "spec", "containers"],
        r#"[{"image":"x","name":"a","resources":{}},{"name":"b","resources":{},"tty":true}]"#,
    );
    world.apply("two", "{}");
    assert_eq!(names(&world), ["a"]);
}

#[test]
fn applying_again_changes_neither_object_nor_time() {
    let mut world = World::new("Service");
    let config = "{spec: {ports: [{port: 80, targetPort: 8080}], selector: {a: b}}}";
    world.apply("one", config);
    let before = world.live.clone();
    world.apply("one", config);
    assert_eq!(show(&world.live), show(&before));
}

#[test]
fn what_one_removed_and_an_updater_set_stays() {
    let mut world = World::new("Deployment");
    world.apply("one", "{spec: {replicas: 1, minReadySeconds: 5}}");
    world.update("scaler", "{spec: {replicas: 7, minReadySeconds: 5}}");
    world.apply("one", "{spec: {minReadySeconds: 5}}").has(&["spec", "replicas"], "7");
    world.apply("one", "{}").has(&["spec", "minReadySeconds"], "").has(&["spec", "replicas"], "7");
}

#[test]
fn a_struct_no_longer_applied_goes_with_what_nobody_owns_in_it() {
    let mut world = World::new("Pod");
    world.apply("one", "{spec: {securityContext: {runAsUser: 1}}}");
    // Somebody who is not tracked added a field, as defaulting does.
    world.live.set_at(&["spec", "securityContext", "fsGroup"], 5);
    world.apply("one", "{spec: {hostname: h}}").has(&["spec", "securityContext"], "");
    // What is owned stays.
    world.apply("one", "{spec: {securityContext: {runAsUser: 1}}}");
    world.apply("two", "{spec: {securityContext: {fsGroup: 5}}}");
    world.apply("one", "{spec: {hostname: h}}").has(&["spec", "securityContext"], r#"{"fsGroup":5}"#);
}

#[test]
fn configurations_of_another_kind_or_with_managed_fields_are_refused() {
    let mut world = World::new("ConfigMap");
    let mut config = world.typed("{data: {a: b}}");
    config.set_at(&["kind"], "Secret");
    let door = door("ConfigMap", 1);
    let refuse = |config: &Value| {
        door.apply(&world.live, &World::empty("ConfigMap"), config, "one", false).unwrap_err()
    };
    assert_eq!(refuse(&config), Refusal::BadRequest("invalid object type: /v1, Kind=Secret".to_owned()));
    let config = parse("{apiVersion: v1, kind: ConfigMap, metadata: {managedFields: []}}");
    assert_eq!(refuse(&config), Refusal::BadRequest("metadata.managedFields must be nil".to_owned()));
    let config = parse("{apiVersion: v1, kind: ConfigMap, metadata: {name: o, namespace: s}, x: w}");
    assert_eq!(
        refuse(&config).into_status().message(),
        "failed to create typed patch object (s/o; /v1, Kind=ConfigMap): .x: field not declared in schema"
    );
    world.live.set_at(&["metadata", "managedFields"], Value::list([parse("{manager: x}")]));
    world.refuses("one", "{}", "failed to decode managed fields: operation must be `Apply` or `Update`");
}

#[test]
fn clients_may_set_and_reset_managed_fields_and_broken_ones_change_nothing() {
    let mut world = World::new("ConfigMap");
    world.update("web", "{data: {k: v}}");
    world.update("web", "{metadata: {managedFields: [{manager: x}]}, data: {k: v}}");
    world.owned(&["web Update 01 .data .data.k"]);
    let set = "{manager: me, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:data': {'f:k': {}}}}";
    world.update("web", &format!("{{metadata: {{managedFields: [{set}]}}, data: {{k: v}}}}"));
    world.owned(&["me Apply never .data.k"]);
    world.update("web", "{metadata: {managedFields: [{}]}, data: {k: v}}").owned(&[]);
    let mut object = parse("{metadata: {managedFields: []}}");
    super::mark_reset(&mut object);
    assert_eq!(show(&object), r#"{"metadata":{"managedFields":[{}]}}"#);
}

#[test]
fn the_oldest_updaters_are_joined() {
    let mut world = World::new("ConfigMap");
    let data = |count: usize| (0..count).map(|i| format!("k{i}: v")).collect::<Vec<_>>().join(", ");
    for count in 1..=12 {
        world.update(&format!("m{count:02}"), &format!("{{data: {{{}}}}}", data(count)));
    }
    let owners = world.owners();
    assert_eq!(owners.len(), 10);
    assert_eq!(owners[0], "ancient-changes Update 03 .data .data.k0 .data.k1 .data.k2");
    assert_eq!(owners[9], "m12 Update 12 .data.k11");
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_clients_side() {
    let last = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#;
    let annotated = |k: &str, other: &str| {
        format!(
            "{{metadata: {{name: a, annotations: {{kubectl.kubernetes.io/last-applied-configuration: '{last}'}}}}, data: {{k: {k}, other: {other}}}}}"
        )
    };
    let mut world = World::new("ConfigMap");
    world.update("kubectl-client-side-apply", &annotated("v", "x"));
    world.refuses(
        "somebody",
        "{metadata: {name: a}, data: {k: w}}",
        r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.k"#,
    );
    world.refuses(
        "kubectl",
        "{metadata: {name: a}, data: {k: w, other: w}}",
        r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.other"#,
    );
    world.apply("kubectl", "{metadata: {name: a}, data: {k: w}}").has(&["data", "k"], r#""w""#);
    assert_eq!(
        world.live.str_at(&["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"]),
        Some(
            "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"w\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"
        )
    );
    // A value that is not as it was applied is not kubectl's.
    let mut world = World::new("ConfigMap");
    world.update("web", &annotated("changed", "x"));
    assert!(world.try_apply("kubectl", "{metadata: {name: a}, data: {k: w}}", false).is_err());
}

#[test]
fn fields_that_cannot_be_written_through_a_door_are_not_owned_there() {
    let reset = Reset::without(&["spec", "metadata.labels"]);
    let status = Door { subresource: "status", reset: &reset, ..door("Deployment", 1) };
    let live = World::empty("Deployment");
    let mut new = live.clone();
    new.set_at(&["spec", "replicas"], 3);
    new.set_at(&["status", "replicas"], 3);
    new.set_at(&["metadata", "labels", "a"], "b");
    let list = status.track(&live, &new, "kubelet").unwrap();
    assert_eq!(
        show(&list),
        r#"[{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:replicas":{}}},"manager":"kubelet","operation":"Update","subresource":"status","time":"1970-01-01T00:00:01Z"}]"#
    );
}

/// `v1` has `a`, `v2` calls it `b`.
struct Renamed;

fn renamed(field: &'static str) -> Schema {
    custom(
        vec![("apiVersion", Link::Node(text())), ("kind", Link::Node(text())), (field, Link::Node(text()))],
        false,
    )
}

fn text() -> &'static Schema {
    Box::leak(Box::new(Schema { kind: Kind::String(crate::schema::Format::Plain), ..Schema::default() }))
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
        kind: Kind::Object(Object { properties: properties.into(), rest, ..Object::default() }),
        ..Schema::default()
    }
}

impl Versions for Renamed {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == "v1").then(|| &*Box::leak(Box::new(renamed("a"))))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let (from, to) = match api_version {
            "v1" => ("b", "a"),
            "v2" => ("a", "b"),
            _ => return None,
        };
        let mut object = object.clone();
        if let Some(value) = object.remove_at(&[from]) {
            object.set_at(&[to], value);
        }
        object.set_at(&["apiVersion"], api_version);
        Some(object)
    }
}

#[test]
fn managers_of_other_versions_are_compared_in_theirs_and_forgotten_with_it() {
    let schema = renamed("b");
    let door = Door {
        api_version: "v2",
        schema: &schema,
        subresource: "",
        reset: &NOTHING,
        versions: &Renamed,
        now: 1,
    };
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
    let status = door.apply(&live, &empty, &config, "two", false).unwrap_err().into_status();
    assert_eq!(status.message(), r#"Apply failed with 1 conflict: conflict with "one": .a"#);
    // The same manager in a new version removes what it applied in the old one.
    let applied = door.apply(&live, &empty, &empty, "one", false).unwrap();
    assert_eq!(show(&applied.object), r#"{"apiVersion":"v2","kind":"X","metadata":{}}"#);
}

#[test]
fn custom_schemas_may_keep_unknown_fields_and_have_atomic_maps() {
    let strings = || Link::Node(text());
    let items = Schema {
        kind: Kind::List(ListOf { items: strings(), list_type: Some(ListType::Set) }),
        ..Schema::default()
    };
    let whole =
        Schema { kind: Kind::Map(MapOf { values: strings(), key: None, atomic: true }), ..Schema::default() };
    let schema =
        custom(vec![("set", Link::Shared(items.into())), ("whole", Link::Shared(whole.into()))], true);
    let value = parse("{set: [a], whole: {k: v}, free: {x: {q: 1}, list: [1, {z: 2}]}}");
    check(&value, &schema, false).unwrap();
    let paths: Vec<String> = fields(&value, &schema).paths().iter().map(ToString::to_string).collect();
    assert_eq!(paths, [".free", ".whole", ".free.list", ".free.x", ".free.x.q", r#".set[="a"]"#]);
}

#[test]
fn fields_of_what_has_become_atomic_are_joined() {
    let mut schema = custom(
        vec![
            ("apiVersion", Link::Node(text())),
            ("kind", Link::Node(text())),
            (
                "m",
                Link::Shared(
                    Schema {
                        kind: Kind::Map(MapOf { values: Link::Node(text()), key: None, atomic: false }),
                        ..Schema::default()
                    }
                    .into(),
                ),
            ),
        ],
        false,
    );
    let Kind::Object(object) = &mut schema.kind else { panic!() };
    object.properties[2].map_type = Some(MapType::Atomic);
    let door = Door {
        api_version: "v1",
        schema: &schema,
        subresource: "",
        reset: &NOTHING,
        versions: &Alone,
        now: 1,
    };
    let live = parse(
        "{apiVersion: v1, kind: X, m: {a: x, b: x}, metadata: {uid: u, managedFields: [{manager: one, operation: Apply, \
         apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:m': {'f:a': {}}}}]}}",
    );
    let list = door.track(&live, &live, "web").unwrap();
    assert_eq!(show(list.as_list().unwrap()[0].get("fieldsV1").unwrap()), r#"{"f:m":{}}"#);
}

struct Apps;

impl Replicas for Apps {
    fn path(&self, api_version: &str) -> Option<Option<Vec<Element>>> {
        (api_version == "apps/v1")
            .then(|| Some(vec![Element::Field("spec".into()), Element::Field("replicas".into())]))
    }
}

#[test]
fn a_scale_shows_who_owns_the_replicas_and_gives_them_back() {
    let entry = |manager: &str, operation: &str, fields: &str| {
        format!(
            "{{manager: {manager}, operation: {operation}, apiVersion: apps/v1, fieldsType: FieldsV1, fieldsV1: {{'f:spec': {{{fields}}}}}}}"
        )
    };
    let list = parse(&format!(
        "[{}, {}]",
        entry("one", "Apply", "'f:replicas': {}, 'f:paused': {}"),
        entry("two", "Update", "'f:paused': {}")
    ));
    let workload = Managers::decode(list.as_list().unwrap()).unwrap();
    let mut scale = to_scale(&workload, &Apps);
    assert_eq!(scale.iter().map(|e| e.manager.name.as_str()).collect::<Vec<_>>(), ["one"]);
    // Nothing changed: nothing changes.
    assert_eq!(to_workload(&workload, &scale, "apps/v1", &Apps).encode(), workload.encode());
    // Somebody scales.
    let Some(one) = scale.iter().next().cloned() else { panic!() };
    scale = Managers::default();
    let manager = Manager {
        name: "scaler".into(),
        operation: Operation::Update,
        subresource: "scale".into(),
        ..one.manager
    };
    scale.put(super::Managed { manager, time: Some(5), fields: one.fields });
    let after = to_workload(&workload, &scale, "apps/v1", &Apps).encode().unwrap();
    let shown: Vec<String> = after
        .as_list()
        .unwrap()
        .iter()
        .map(|e| format!("{} {}", e.str_at(&["manager"]).unwrap(), show(e.get("fieldsV1").unwrap())))
        .collect();
    assert_eq!(
        shown,
        [
            r#"one {"f:spec":{"f:paused":{}}}"#,
            r#"scaler {"f:spec":{"f:replicas":{}}}"#,
            r#"two {"f:spec":{"f:paused":{}}}"#,
        ]
    );
}

#[test]
fn times_alone_are_no_difference() {
    let entry = |time: &str, manager: &str| parse(&format!("[{{manager: {manager}{time}}}]"));
    let (a, b, c) = (entry("", "x"), entry(", time: '2026-01-01T00:00:00Z'", "x"), entry("", "y"));
    let list = |v: &Value| v.as_list().unwrap().to_vec();
    assert!(same_but_for_times(&list(&a), &list(&b)) && same_but_for_times(&list(&b), &list(&a)));
    assert!(!same_but_for_times(&list(&a), &list(&c)) && !same_but_for_times(&list(&a), &[]));
}

/// Sequences of applies and updates of pods with what Kubernetes' merge library made of them: the object, who owns what, and
/// conflicts.
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
            let door = Door { schema, ..door("Pod", 1) };
            let (manager, object) = (step.str_at(&["manager"]).unwrap(), step.get("object").unwrap());
            let mut with = live.clone();
            if let Some(list) = &list {
                with.set_at(&["metadata", "managedFields"], list.clone());
            }
            let mut error = String::new();
            if step.str_at(&["op"]) == Some("apply") {
                // An object that nobody owns is not taken for one that was there before the first apply.
                let before = if list.is_none() { &live } else { &empty };
                match door.apply(&with, before, object, manager, step.bool_at(&["force"]).unwrap()) {
                    Ok(Applied { mut object }) => {
                        list = object.remove_at(&["metadata", "managedFields"]);
                        live = object;
                    }
                    Err(Refusal::Conflicts(conflicts)) => {
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
                list = door.track(&with, object, manager);
                live = object.clone();
            }
            let then = step.get("then").unwrap();
            assert_eq!(error, then.str_at(&["error"]).unwrap_or_default(), "case {case}");
            // Metadata that only held the managed fields is there, empty.
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
