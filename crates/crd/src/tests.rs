mod bounds;
mod versions;

use std::sync::Arc;

use value::{Value, json};

use super::json_path::JsonPath;
use super::names::{self, NamesInUse};
use super::{CompiledVersion, CrdNames, CrdSource, CustomResourceDefinition, ValidationBounds, columns};

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

#[derive(Debug)]
struct Whole(Value);

impl CrdSource for Whole {
    fn load(&self) -> Option<Value> {
        Some(self.0.clone())
    }
}

/// A CRD with one version whose `spec` has this schema.
fn crd(spec_schema: &str) -> CustomResourceDefinition {
    let text = format!(
        r#"{{"metadata":{{"name":"things.example.com","uid":"u","generation":1}},"spec":{{"group":"example.com","scope":"Namespaced",
        "names":{{"plural":"things","kind":"Thing"}},"versions":[{{"name":"v1","served":true,"storage":true,
        "subresources":{{"status":{{}},"scale":{{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}}},
        "schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{spec_schema},"status":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}}}}]}},
        "status":{{"acceptedNames":{{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"}},
        "conditions":[{{"type":"Established","status":"True"}}]}}}}"#
    );
    let object = parse(&text);
    let source: Arc<dyn CrdSource> = Arc::new(Whole(object.clone()));
    CustomResourceDefinition::read(&object, &source, overlapping)
}

fn compiled(spec_schema: &str) -> Arc<CompiledVersion> {
    Arc::clone(crd(spec_schema).versions[0].compiled())
}

fn thing(spec: &str) -> Value {
    parse(&format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Thing","metadata":{{"name":"t","namespace":"n"}},"spec":{spec}}}"#
    ))
}

fn wrong(schema: &str, spec: &str) -> Vec<String> {
    compiled(schema)
        .validate_create(&thing(spec), ValidationBounds::NONE)
        .errors
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// The two built-in resources whose storage directories a CRD could share.
pub(crate) fn overlapping(group: &str, plural: &str) -> Option<api::GroupResource> {
    match (group, plural) {
        ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices") => {
            Some(api::GroupResource::new(group, plural))
        }
        _ => None,
    }
}

#[test]
fn a_schema_is_compiled_on_first_use_and_reused_until_the_spec_changes() {
    let first = crd(r#"{"type":"object"}"#);
    assert!(!first.versions[0].is_compiled());
    let compiled = Arc::clone(first.versions[0].compiled());
    let second = crd(r#"{"type":"object"}"#);
    second.reuse(&first);
    assert!(Arc::ptr_eq(second.versions[0].compiled(), &compiled));
    let mut changed = crd(r#"{"type":"object"}"#);
    changed.generation = 2;
    changed.reuse(&first);
    assert!(!changed.versions[0].is_compiled());
}

#[test]
fn unknown_fields_are_pruned_and_reported_unless_preserved() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"string"},"list":{"type":"array","items":{"type":"object","properties":{"k":{"type":"string"}}}},
        "any":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"known":{"type":"object"}}}}}"#;
    let mut object =
        thing(r#"{"a":"x","z":1,"list":[{"k":"a","q":1}],"any":{"free":{"x":1},"known":{"gone":1}}}"#);
    let unknown = compiled(schema).coerce(&mut object, true).unwrap();
    assert_eq!(unknown, ["spec.any.known.gone", "spec.list[0].q", "spec.z"]);
    assert_eq!(
        object.get("spec"),
        Some(&parse(r#"{"a":"x","any":{"free":{"x":1},"known":{}},"list":[{"k":"a"}]}"#))
    );
}

#[test]
fn defaults_replace_absent_fields_and_nulls_of_fields_that_are_not_nullable() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"string","default":"x"},"n":{"type":"string","nullable":true,"default":"y"},
        "deep":{"type":"object","default":{},"properties":{"d":{"type":"integer","default":3}}}}}"#;
    let compiled = compiled(schema);
    let mut object = thing(r#"{"a":null,"n":null}"#);
    compiled.coerce(&mut object, false).unwrap();
    compiled.default(&mut object).unwrap();
    assert_eq!(object.get("spec"), Some(&parse(r#"{"a":"x","deep":{"d":3},"n":null}"#)));
}

#[test]
fn nulls_of_fields_that_are_not_nullable_are_dropped_unless_applied() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"string"},"n":{"type":"string","nullable":true},"d":{"type":"string","default":"x"}}}"#;
    let compiled = compiled(schema);
    let nulls = r#"{"a":null,"d":null,"n":null}"#;
    let (mut sent, mut applied) = (thing(nulls), thing(nulls));
    compiled.coerce(&mut sent, false).unwrap();
    compiled.default(&mut sent).unwrap();
    assert_eq!(sent.get("spec"), Some(&parse(r#"{"d":"x","n":null}"#)));
    compiled.coerce_applied(&mut applied).unwrap();
    compiled.default(&mut applied).unwrap();
    assert_eq!(applied.get("spec"), Some(&parse(r#"{"a":null,"d":"x","n":null}"#)));
}

#[test]
fn errors_have_the_wording_of_the_validation_library() {
    let cases = [
        (r#"{"type":"string","maxLength":2}"#, r#""abc""#, "spec.v: Too long: may not be more than 2 bytes"),
        (
            r#"{"type":"string","pattern":"^a"}"#,
            r#""b""#,
            "spec.v: Invalid value: \"b\": spec.v in body should match '^a'",
        ),
        (
            r#"{"type":"integer","minimum":1}"#,
            "0",
            "spec.v: Invalid value: 0: spec.v in body should be greater than or equal to 1",
        ),
        (
            r#"{"type":"number","maximum":1.5}"#,
            "1000000.5",
            "spec.v: Invalid value: 1.0000005e+06: spec.v in body should be less than or equal to 1.5",
        ),
        (
            r#"{"type":"string"}"#,
            "5",
            "spec.v: Invalid value: \"integer\": spec.v in body must be of type string: \"integer\"",
        ),
        (
            r#"{"type":"string","enum":["a"]}"#,
            r#""b""#,
            "spec.v: Unsupported value: \"b\": supported values: \"a\"",
        ),
        (
            r#"{"type":"string","format":"ipv4"}"#,
            r#""x""#,
            "spec.v: Invalid value: \"x\": spec.v in body must be of type ipv4: \"x\"",
        ),
        (
            r#"{"type":"array","maxItems":1,"items":{"type":"string"}}"#,
            r#"["a","b"]"#,
            "spec.v: Too many: 2: must have at most 1 item",
        ),
        (
            r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}"#,
            r#"["a","a"]"#,
            "spec.v[1]: Duplicate value: \"a\"",
        ),
        (
            r#"{"x-kubernetes-int-or-string":true}"#,
            "true",
            "spec.v: Invalid value: \"boolean\": spec.v in body must be of type integer,string: \"boolean\"",
        ),
    ];
    for (schema, value, expected) in cases {
        let schema = format!(r#"{{"type":"object","properties":{{"v":{schema}}}}}"#);
        assert_eq!(wrong(&schema, &format!(r#"{{"v":{value}}}"#)), [expected]);
    }
    let fine = r#"{"type":"object","properties":{"v":{"type":"string","maxLength":2,"pattern":"^a"}}}"#;
    assert!(wrong(fine, r#"{"v":"ab"}"#).is_empty());
}

#[test]
fn rules_see_the_new_value_and_transition_rules_the_old_one() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"integer"},"fixed":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf","message":"is fixed"}]}},
        "x-kubernetes-validations":[{"rule":"!has(self.a) || self.a < 5","message":"small"}]}"#;
    assert_eq!(wrong(schema, r#"{"a":7}"#), ["spec: Invalid value: small"]);
    assert!(wrong(schema, r#"{"a":3,"fixed":"x"}"#).is_empty());
    let compiled = compiled(schema);
    let versioned = |spec: &str| {
        let mut object = thing(spec);
        api::meta::set(&mut object, "resourceVersion", "1");
        object
    };
    let changed = compiled.validate_update(
        &versioned(r#"{"fixed":"y"}"#),
        &versioned(r#"{"fixed":"x"}"#),
        ValidationBounds::NONE,
    );
    assert_eq!(
        changed.errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["spec.fixed: Invalid value: \"y\": is fixed"]
    );
    assert!(
        compiled
            .validate_update(&versioned("{}"), &versioned(r#"{"fixed":"x"}"#), ValidationBounds::NONE)
            .errors
            .is_empty()
    );
}

#[test]
fn errors_in_unchanged_values_are_ignored() {
    let compiled = compiled(
        r#"{"type":"object","properties":{"a":{"type":"string","maxLength":1},"b":{"type":"string"},
        "r":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 5"}]}}}"#,
    );
    let versioned = |spec: &str| {
        let mut object = thing(spec);
        api::meta::set(&mut object, "resourceVersion", "1");
        object
    };
    let old = versioned(r#"{"a":"long","b":"x","r":1}"#);
    let found =
        compiled.validate_update(&versioned(r#"{"a":"long","b":"y","r":1}"#), &old, ValidationBounds::NONE);
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    assert_eq!(found.warnings, ["spec.r: Invalid value: 1: failed rule: self > 5"]);
    let found =
        compiled.validate_update(&versioned(r#"{"a":"longer","b":"y","r":1}"#), &old, ValidationBounds::NONE);
    let [too_long, not_checked] = &*found.errors else { panic!("{:?}", found.errors) };
    assert_eq!(too_long.to_string(), "spec.a: Too long: may not be more than 1 byte");
    assert!(not_checked.detail.starts_with("some validation rules were not checked"));
}

#[test]
fn only_the_status_subresource_changes_the_status_and_generation_stays() {
    let compiled = compiled(r#"{"type":"object","properties":{"a":{"type":"string"}}}"#);
    let mut old = thing(r#"{"a":"x"}"#);
    old.set_at(&["status"], parse(r#"{"ready":true}"#));
    api::meta::set(&mut old, "generation", 4);
    let mut new = old.clone();
    new.set_at(&["status"], parse(r#"{"ready":false}"#));
    compiled.prepare_update(&mut new, &old);
    assert_eq!((new.get("status"), new.int_at(&["metadata", "generation"])), (old.get("status"), Some(4)));
    new.set_at(&["spec", "a"], "y");
    compiled.prepare_update(&mut new, &old);
    assert_eq!(new.int_at(&["metadata", "generation"]), Some(5));
    let mut sent = thing(r#"{"a":"ignored"}"#);
    sent.set_at(&["status"], parse(r#"{"ready":false}"#));
    compiled.prepare_status(&mut sent, &old);
    assert_eq!(sent.get("spec"), old.get("spec"));
    assert_eq!(sent.bool_at(&["status", "ready"]), Some(false));
}

#[test]
fn names_in_use_are_rejected_and_free_names_are_accepted() {
    let object = parse(
        r#"{"metadata":{"name":"b.example.com"},"spec":{"group":"example.com","names":{"plural":"b","singular":"b","kind":"B","listKind":"BList","shortNames":["x"]}},"status":{}}"#,
    );
    let mut taken = NamesInUse::default();
    let status =
        names::status(&object, false, NamesInUse::default, overlapping, "2020-01-01T00:00:00Z").unwrap();
    assert_eq!(status.list_at(&["conditions"])[1].str_at(&["type"]), Some("Established"));
    taken.add(&CrdNames { plural: "other".into(), short_names: vec!["x".into()], ..CrdNames::default() });
    let status = names::status(&object, false, || taken, overlapping, "2020-01-01T00:00:00Z").unwrap();
    let [accepted, established] = status.list_at(&["conditions"]) else { panic!("{status:?}") };
    assert_eq!(accepted.str_at(&["reason"]), Some("ShortNamesConflict"));
    assert_eq!(accepted.str_at(&["message"]), Some("\"x\" is already in use"));
    assert_eq!(established.str_at(&["reason"]), Some("NotAccepted"));
}

#[test]
fn a_scale_reads_and_writes_the_replicas_at_the_paths_of_the_crd() {
    let crd = crd(r#"{"type":"object","properties":{"replicas":{"type":"integer"}}}"#);
    let paths = crd.versions[0].scale.as_ref().unwrap();
    let object = thing(r#"{"replicas":2}"#);
    let (scale, found) = super::scale::from_object(paths, &object).unwrap();
    assert!(found && scale.int_at(&["spec", "replicas"]) == Some(2));
    let changed = super::scale::apply(paths, &object, &parse(r#"{"spec":{"replicas":5}}"#)).unwrap();
    assert_eq!(changed.int_at(&["spec", "replicas"]), Some(5));
    assert_eq!(super::scale::get(paths, &thing("{}")).unwrap_err().code(), 500);
    // If the object sets no replicas, a change may set 0 but must set a number.
    let unsaid = super::scale::patch_base(paths, &thing("{}")).unwrap();
    assert_eq!(unsaid.int_at(&["spec", "replicas"]), Some(i64::from(i32::MIN)));
    let refused = super::scale::apply(paths, &thing("{}"), &unsaid).unwrap_err();
    assert_eq!(refused.message(), "the spec replicas field \".spec.replicas\" cannot be empty");
    let none = super::scale::apply(paths, &thing("{}"), &parse(r#"{"spec":{}}"#)).unwrap();
    assert_eq!(none.int_at(&["spec", "replicas"]), Some(0));
}

#[test]
fn json_paths_select_the_same_values_as_kubectl() {
    let object = parse(r#"{"a":{"b.c":1},"l":[{"t":"x","v":1},{"t":"y","v":2}],"m":{"k":"v"}}"#);
    for (path, expected) in [
        (".l[0].v", "[1]"),
        (".l[-1].v", "[2]"),
        (".l[*].t", r#"["x","y"]"#),
        (r#".l[?(@.t=="y")].v"#, "[2]"),
        (".l[?(@.v>1)].t", r#"["y"]"#),
        (r".a.b\.c", "[1]"),
        // A quoted key is parsed as a path again.
        (".a['b.c']", "[]"),
        (".m['k']", r#"["v"]"#),
        ("..v", "[1,2]"),
        (".l[0:1].t", r#"["x"]"#),
        (".none.x", "[]"),
        (".l[0,1].t", r#"["x","y"]"#),
        (".m['k','none']", r#"["v"]"#),
        (".l[].t", r#"["x"]"#),
        (".l[::2].t", r#"["x"]"#),
        (".m.k ", r#"["v"]"#),
        (".m.k}{.l", r#"["v"]"#),
        // An index out of bounds, a value of another type or a keyword makes the whole path fail.
        (".l[0:3].t", "[]"),
        (".l[5].t", "[]"),
        (".l[::-1].t", "[]"),
        (".m[0]", "[]"),
        (".l[?(@.v>1.5)].t", "[]"),
        (".l[?(@.v=2)].t", "[]"),
        (".m. k", "[]"),
        (".m.k}{.m[0]", "[]"),
        (".", "[]"),
    ] {
        let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
        let found = parsed.find(&object);
        assert_eq!(
            value::write::to_string(&Value::list(found.into_iter().map(std::borrow::Cow::into_owned))),
            expected,
            "{path}"
        );
    }
    for wrong in [".a[", ".a[x]", ".a[\"k\"]", ".{.a}", "..a....b", ".l[?(@.t=='x)]", ".l[?(@)"] {
        assert_eq!(JsonPath::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn columns_show_cells_of_their_type() {
    let columns = columns::Columns::read(
        parse(r#"[{"name":"A","type":"string","jsonPath":".m"},{"name":"N","type":"integer","jsonPath":".n"},{"name":"D","type":"date","jsonPath":".when"}]"#)
            .as_list()
            .unwrap(),
    );
    let object = parse(r#"{"metadata":{"name":"x"},"m":{"k":1},"n":2.7,"when":"never"}"#);
    assert_eq!(
        value::write::to_string(&Value::List(columns.cells(
            &object,
            0,
            &columns::TableAllowance::new(&value::Budget::UNLIMITED)
        ))),
        r#"["x","{\"k\":1}",2,"\u003cinvalid\u003e"]"#
    );
}

#[test]
fn a_field_path_must_refer_to_a_field_of_the_schema() {
    let node = super::SchemaNode::read(&parse(
        r#"{"type":"object","properties":{"a":{"type":"object","properties":{"b.c":{"type":"string"}}},"m":{"type":"object","additionalProperties":{"type":"string"}}}}"#,
    ));
    assert_eq!(super::field_path(".a['b.c']", &node, true).unwrap().0.text(), "a.b.c");
    assert_eq!(super::field_path(".m.key", &node, true).unwrap().0.text(), "m[key]");
    assert_eq!(super::field_path(".z", &node, true).unwrap_err(), "does not refer to a valid field");
    assert_eq!(super::field_path(".a['b.c']", &node, false).unwrap_err(), "array notation is not allowed");
}

#[test]
fn formats_accept_valid_text_and_reject_other_text() {
    let cases: [(&str, &[&str], &[&str]); 9] = [
        ("hostname", &["a", "a.example.com", "a-b"], &["", "a_b", "-a.com", "a.b-.com", "a.c0m"]),
        ("ipv4", &["1.2.3.4", "010.1.1.1"], &["1.2.3", "::1", "1.2.3.256"]),
        ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
        (
            "date-time",
            &["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5+01:00"],
            &["2020-01-01", "2020-13-01T00:00:00Z"],
        ),
        ("duration", &["1h30m", "5 days", "-2s"], &["", "5 apples", "h"]),
        ("uri", &["https://a.example.com/b?c", "/path", "mailto:x"], &["", "no uri", "https://a b/"]),
        ("email", &["a@example.com", "A <a@b.c>"], &["a", "a@", "@b"]),
        ("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123"]),
        ("k8s-short-name", &["a-b"], &["A", "a-", ""]),
    ];
    for (format, good, bad) in cases {
        for text in good {
            assert!(super::formats::is_valid(format, text), "{format} {text}");
        }
        for text in bad {
            assert!(!super::formats::is_valid(format, text), "{format} {text}");
        }
    }
}

#[test]
fn apply_owns_preserved_unknown_fields_one_by_one() {
    let open = compiled(
        r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"known":{"type":"object","properties":{"a":{"type":"string"}}},
        "set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}}"#,
    );
    let config = thing(r#"{"known":{"a":"x","b":{"c":1}},"set":["x"],"free":{"list":[1],"map":{"k":"v"}}}"#);
    schema::apply::check(&config, open.schema(), false).unwrap();
    let owned = schema::apply::fields(&config, open.schema());
    let paths: Vec<String> = owned.paths().iter().map(ToString::to_string).collect();
    for path in
        [".spec.free.list", ".spec.free.map.k", ".spec.known.a", ".spec.known.b.c", r#".spec.set[="x"]"#]
    {
        assert!(paths.iter().any(|own| own == path), "{path} in {paths:?}");
    }
    // Server-side apply preserves unknown fields everywhere below a node with preserve-unknown-fields, and nowhere else.
    let closed = compiled(
        r#"{"type":"object","properties":{"known":{"type":"object","properties":{"a":{"type":"string"}}}}}"#,
    );
    let errors = schema::apply::check(&config, closed.schema(), false).unwrap_err().to_string();
    assert!(errors.contains(".spec.free: field not declared in schema"), "{errors}");
    let free = compiled(r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#);
    schema::apply::check(&config, free.schema(), false).unwrap();
    let errors = schema::apply::check(&thing("[]"), free.schema(), false).unwrap_err().to_string();
    assert_eq!(errors, ".spec: expected map, got &{[]}");
}

#[test]
fn a_crd_is_served_only_with_a_storage_directory_of_its_own() {
    let read = |name: &str, group: &str, plural: &str, accepted: &str| {
        let object = parse(&format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"group":"{group}","scope":"Cluster","names":{{"plural":"{plural}","kind":"Thing"}},
            "versions":[{{"name":"v9","served":true,"storage":true}}]}},"status":{{"acceptedNames":{{"plural":"{accepted}","kind":"Thing"}},
            "conditions":[{{"type":"NamesAccepted","status":"True"}},{{"type":"Established","status":"True"}}]}}}}"#
        ));
        let source: Arc<dyn CrdSource> = Arc::new(Whole(object.clone()));
        (CustomResourceDefinition::read(&object, &source, overlapping).established, object)
    };
    assert!(read("things.example.com", "example.com", "things", "things").0);
    assert!(
        read(
            "clusterroles.rbac.authorization.k8s.io",
            "rbac.authorization.k8s.io",
            "clusterroles",
            "clusterroles"
        )
        .0
    );
    let (established, apiservices) =
        read("apiservices.apiregistration.k8s.io", "apiregistration.k8s.io", "apiservices", "apiservices");
    assert!(!established);
    let status =
        names::status(&apiservices, false, NamesInUse::default, overlapping, "2020-01-01T00:00:00Z").unwrap();
    let established = &status.list_at(&["conditions"])[1];
    assert_eq!(established.str_at(&["status"]), Some("False"));
    assert_eq!(established.str_at(&["reason"]), Some("OverlappingBuiltInResource"));
    // The accepted names come from the status, which clients can write.
    assert!(!read("things.example.com", "example.com", "things", "others").0);
    assert!(
        !read("things.apiextensions.k8s.io", "apiextensions.k8s.io", "things", "customresourcedefinitions").0
    );
    assert!(!read("things.example.com", "example.com", "others", "others").0);
}
