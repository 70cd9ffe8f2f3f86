//! Tests field ownership after applies and updates by several managers.

use value::Value;

use super::super::{
    ApplyError, Element, FieldManagement, ManagedFieldsOperation, Manager, Managers, Replicas, Reset,
    same_but_for_times, to_scale, to_workload,
};
use super::{World, management, parse, show};

#[test]
fn the_first_apply_creates_the_object_and_owns_its_fields() {
    World::new("ConfigMap")
        .apply("one", "{metadata: {name: a, labels: {l: x}}, data: {k: v}}")
        .owned(&["one Apply 01 .data.k .metadata.labels.l"]);
}

#[test]
fn a_field_applied_by_two_managers_stays_until_both_drop_it() {
    let mut world = World::new("ConfigMap");
    world.apply("one", "{data: {k: v, own: o}}").apply("two", "{data: {k: v}}");
    world.owned(&["two Apply never .data.k", "one Apply 01 .data.k .data.own"]);
    world.apply("one", "{data: {own: o}}").has(&["data"], r#"{"k":"v","own":"o"}"#);
    world.apply("two", "{}").has(&["data"], r#"{"own":"o"}"#).owned(&["one Apply 01 .data.own"]);
}

#[test]
fn a_field_of_another_manager_is_a_conflict_unless_forced() {
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
fn a_conflict_status_names_managers_and_fields() {
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
fn an_update_owns_changed_fields_and_disowns_removed_ones() {
    let mut world = World::new("ConfigMap");
    world.apply("one", "{data: {a: x, b: x, c: x}}").update("web", "{data: {a: w, b: x}}");
    world.owned(&["one Apply 01 .data.b", "web Update 02 .data.a"]);
    // A write without changes affects neither ownership nor times.
    world.update("web", "{data: {a: w, b: x}}").owned(&["one Apply 01 .data.b", "web Update 02 .data.a"]);
    world
        .update("web", "{data: {a: w, b: x, d: z}}")
        .owned(&["one Apply 01 .data.b", "web Update 04 .data.a .data.d"]);
}

#[test]
fn the_creator_owns_the_fields_of_a_created_object() {
    World::new("ConfigMap")
        .update("web", "{metadata: {name: a, labels: {l: x}}, data: {k: v}}")
        .owned(&["web Update 01 .data .data.k .metadata.labels .metadata.labels.l"]);
}

#[test]
fn the_first_apply_records_owners_of_an_object_without_managers() {
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
fn items_no_longer_applied_are_removed_unless_another_manager_owns_a_part() {
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
fn a_field_set_by_an_update_stays_when_apply_drops_it() {
    let mut world = World::new("Deployment");
    world.apply("one", "{spec: {replicas: 1, minReadySeconds: 5}}");
    world.update("scaler", "{spec: {replicas: 7, minReadySeconds: 5}}");
    world.apply("one", "{spec: {minReadySeconds: 5}}").has(&["spec", "replicas"], "7");
    world.apply("one", "{}").has(&["spec", "minReadySeconds"], "").has(&["spec", "replicas"], "7");
}

#[test]
fn a_struct_no_longer_applied_is_removed_with_its_unowned_fields() {
    let mut world = World::new("Pod");
    world.apply("one", "{spec: {securityContext: {runAsUser: 1}}}");
    // An untracked change, such as defaulting, adds a field.
    world.live.set_at(&["spec", "securityContext", "fsGroup"], 5);
    world.apply("one", "{spec: {hostname: h}}").has(&["spec", "securityContext"], "");
    // Owned fields stay in the object.
    world.apply("one", "{spec: {securityContext: {runAsUser: 1}}}");
    world.apply("two", "{spec: {securityContext: {fsGroup: 5}}}");
    world.apply("one", "{spec: {hostname: h}}").has(&["spec", "securityContext"], r#"{"fsGroup":5}"#);
}

#[test]
fn configurations_of_another_kind_or_with_managed_fields_are_refused() {
    let mut world = World::new("ConfigMap");
    let mut config = world.typed("{data: {a: b}}");
    config.set_at(&["kind"], "Secret");
    let management = management("ConfigMap", 1);
    let refuse = |config: &Value| {
        management.apply(&world.live, &World::empty("ConfigMap"), config, "one", false).unwrap_err()
    };
    assert_eq!(refuse(&config), ApplyError::BadRequest("invalid object type: /v1, Kind=Secret".to_owned()));
    let config = parse("{apiVersion: v1, kind: ConfigMap, metadata: {managedFields: []}}");
    assert_eq!(refuse(&config), ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
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
    super::super::mark_reset(&mut object);
    assert_eq!(show(&object), r#"{"metadata":{"managedFields":[{}]}}"#);
}

#[test]
fn the_oldest_update_managers_are_merged() {
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
fn kubectl_takes_over_fields_of_its_client_side_apply() {
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
    // A value that changed since it was applied does not belong to kubectl.
    let mut world = World::new("ConfigMap");
    world.update("web", &annotated("changed", "x"));
    assert!(world.try_apply("kubectl", "{metadata: {name: a}, data: {k: w}}", false).is_err());
}

#[test]
fn fields_that_a_subresource_cannot_write_are_not_owned_through_it() {
    let reset = Reset::without(&["spec", "metadata.labels"]);
    let status = FieldManagement { subresource: "status", reset: &reset, ..management("Deployment", 1) };
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

struct Apps;

impl Replicas for Apps {
    fn path(&self, api_version: &str) -> Option<Option<Vec<Element>>> {
        (api_version == "apps/v1")
            .then(|| Some(vec![Element::Field("spec".into()), Element::Field("replicas".into())]))
    }
}

#[test]
fn scale_maps_ownership_of_replicas_to_the_workload_and_back() {
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
    // An unchanged scale leaves the managers unchanged.
    assert_eq!(to_workload(&workload, &scale, "apps/v1", &Apps).encode(), workload.encode());
    // Another manager writes the scale.
    let Some(one) = scale.iter().next().cloned() else { panic!() };
    scale = Managers::default();
    let manager = Manager {
        name: "scaler".into(),
        operation: ManagedFieldsOperation::Update,
        subresource: "scale".into(),
        ..one.manager
    };
    scale.put(super::super::ManagedFieldsEntry { manager, time: Some(5), fields: one.fields });
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
fn managed_fields_that_differ_only_in_times_are_equal() {
    let entry = |time: &str, manager: &str| parse(&format!("[{{manager: {manager}{time}}}]"));
    let (a, b, c) = (entry("", "x"), entry(", time: '2026-01-01T00:00:00Z'", "x"), entry("", "y"));
    let list = |v: &Value| v.as_list().unwrap().to_vec();
    assert!(same_but_for_times(&list(&a), &list(&b)) && same_but_for_times(&list(&b), &list(&a)));
    assert!(!same_but_for_times(&list(&a), &list(&c)) && !same_but_for_times(&list(&a), &[]));
}

#[test]
fn every_manager_of_the_replicas_is_a_manager_of_the_scale_and_back() {
    let list: Vec<Value> = (0..50)
        .map(|i| {
            parse(&format!(
                "{{manager: m{i}, operation: Update, apiVersion: apps/v1, fieldsType: FieldsV1, fieldsV1: {{'f:spec': {{'f:replicas': {{}}}}}}}}"
            ))
        })
        .collect();
    let workload = Managers::decode(&list).unwrap();
    let scale = to_scale(&workload, &Apps);
    assert_eq!(scale.iter().count(), 50);
    assert_eq!(to_workload(&workload, &scale, "apps/v1", &Apps).iter().count(), 50);
}
