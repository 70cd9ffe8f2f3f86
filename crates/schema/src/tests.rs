use std::fmt::Write;

use super::{
    Link, ListType, MapType, Omit, Schema, SchemaOr, StringEncoding, ValueType, all, named, of, text, types,
};

/// Reconstructs the table line of a schema: the inverse of `text::schema`.
fn line(schema: &Schema) -> String {
    let package = schema.name.rsplit_once('.').unwrap().0;
    let Some(object) = schema.object() else {
        let mut line = format!("= {}", own_shape(schema, package));
        for value in schema.values {
            write!(line, " {}", if value.is_empty() { "\"\"".to_owned() } else { value.replace(' ', "_") })
                .unwrap();
        }
        return line;
    };
    let mut words = Vec::new();
    if !object.group_version.is_empty() {
        words.push(format!("@{}", object.group_version));
    }
    if object.atomic {
        words.push("=atomic".to_owned());
    }
    if object.granular {
        words.push("=granular".to_owned());
    }
    words.extend(object.unions.map(|unions| format!("%{unions}")));
    for property in &object.properties {
        let mut word = format!("{}:{}", property.name, shape(&property.schema, package));
        if property.pointer {
            word.push('*');
        }
        word.push_str(match (property.required, property.omit) {
            (true, Omit::Never) => "!",
            (true, _) => "!-",
            (false, Omit::Never) => "+",
            (false, Omit::Zero) => "0",
            (false, Omit::Empty) => "",
        });
        if let ValueType::List(list) = &property.schema.get().value_type {
            match &list.list_type {
                None => {}
                Some(ListType::Atomic) => word.push_str("=atomic"),
                Some(ListType::Set) => word.push_str("=set"),
                Some(ListType::Map(keys)) => write!(word, "=map({})", keys.join(",")).unwrap(),
            }
        }
        match property.map_type {
            None => {}
            Some(MapType::Atomic) => word.push_str("=atomic"),
            Some(MapType::Granular) => word.push_str("=granular"),
        }
        let patch = &property.patch;
        let names: Vec<&str> =
            [("merge", patch.merge), ("retainKeys", patch.retain_keys), ("replace", patch.replace)]
                .into_iter()
                .filter_map(|(name, said)| said.then_some(name))
                .collect();
        if !names.is_empty() {
            write!(word, "^{}", names.join(",")).unwrap();
        }
        if let Some(key) = &patch.merge_key {
            write!(word, "({key})").unwrap();
        }
        if let Some(embedded) = property.embedded {
            write!(word, "<{embedded}").unwrap();
        }
        if let Some(default) = &property.default {
            write!(word, "?{default}").unwrap();
        }
        words.push(word);
    }
    words.join(" ")
}

fn relative(name: &str, package: &str) -> String {
    let (own, kind) = name.rsplit_once('.').unwrap();
    if own == package { format!(".{kind}") } else { name.to_owned() }
}

fn shape(link: &Link, package: &str) -> String {
    let schema = link.get();
    if schema.name.is_empty() { own_shape(schema, package) } else { relative(&schema.name, package) }
}

fn own_shape(schema: &Schema, package: &str) -> String {
    match &schema.value_type {
        ValueType::List(list) => format!("[]{}", shape(&list.items, package)),
        ValueType::Map(map) => {
            let key = map.key.as_ref().map(|key| relative(key, package)).unwrap_or_default();
            format!("{{{key}}}{}", shape(&map.values, package))
        }
        ValueType::String(StringEncoding::Plain) => "str".to_owned(),
        ValueType::String(StringEncoding::Bytes) => "bytes".to_owned(),
        ValueType::String(StringEncoding::Time) => "time".to_owned(),
        ValueType::String(StringEncoding::MicroTime) => "micro-time".to_owned(),
        ValueType::String(StringEncoding::IntOrString) => "int-or-string".to_owned(),
        ValueType::String(StringEncoding::Quantity) => "quantity".to_owned(),
        ValueType::Int32 => "i32".to_owned(),
        ValueType::Int64 => "i64".to_owned(),
        ValueType::Float => "f64".to_owned(),
        ValueType::Bool => "bool".to_owned(),
        ValueType::Any => "raw".to_owned(),
        ValueType::SchemaOr(SchemaOr::Array) => "schema-or-array".to_owned(),
        ValueType::SchemaOr(SchemaOr::Bool) => "schema-or-bool".to_owned(),
        ValueType::SchemaOr(SchemaOr::Strings) => "schema-or-strings".to_owned(),
        ValueType::Object(_) => panic!("a struct without a name"),
    }
}

#[test]
fn every_line_is_read_and_written_back_as_it_was() {
    let mut count = 0;
    for (name, rest) in types::lines() {
        let schema = text::schema(name, rest).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(line(&schema), rest, "{name}");
        count += 1;
    }
    assert!(count > 800, "{count}");
}

#[test]
fn lines_and_fields_are_sorted() {
    assert!(all().is_sorted());
    for name in all() {
        if let Some(object) = named(name).unwrap().object() {
            assert!(object.properties.is_sorted_by(|a, b| a.name < b.name), "{name}");
        }
    }
}

#[test]
fn malformed_lines_are_refused() {
    for rest in ["name", "name:nothing", "= nothing", "name:str^sometimes", "name:[]str=map(a", "name:{str"] {
        assert!(text::schema("core.v1.Thing", rest).is_err(), "{rest}");
    }
}

#[test]
fn kinds_are_found_by_group_version_and_kind() {
    assert_eq!(of("", "v1", "Pod").unwrap().name, "core.v1.Pod");
    assert_eq!(of("apps", "v1", "Deployment").unwrap().name, "apps.v1.Deployment");
    assert_eq!(
        of("rbac.authorization.k8s.io", "v1", "Role").unwrap().openapi_name(),
        "io.k8s.api.rbac.v1.Role"
    );
    assert_eq!(of("policy", "v1", "DeleteOptions").unwrap().name, "meta.v1.DeleteOptions");
    assert!(of("", "v1", "PodSpec").is_none());
    assert!(of("apps", "v1beta2", "Deployment").is_none());
    assert!(of("", "v2", "Pod").is_none());
}

#[test]
fn well_known_fields_have_the_expected_properties() {
    let spec = of("", "v1", "Pod").unwrap().field("spec").unwrap();
    let object = spec.object().unwrap();
    let containers = object.property("containers").unwrap();
    assert!(
        containers.required
            && !containers.pointer
            && containers.omit == Omit::Never
            && containers.patch.merge
    );
    assert_eq!(containers.patch.merge_key.as_deref(), Some("name"));
    assert_eq!(containers.schema.get().go_type(), "[]v1.Container");
    let volumes = object.property("volumes").unwrap();
    assert!(volumes.patch.merge && volumes.patch.retain_keys);
    assert_eq!(object.property("hostNetwork").unwrap().omit, Omit::Empty);
    assert!(object.property("securityContext").unwrap().pointer);
    assert_eq!(spec.field("restartPolicy").unwrap().go_type(), "v1.RestartPolicy");
    assert_eq!(spec.field("restartPolicy").unwrap().values, ["Always", "Never", "OnFailure"]);
    let container = containers.schema.get().element().unwrap();
    assert_eq!(container.object().unwrap().property("resources").unwrap().omit, Omit::Never);
    assert_eq!(container.field("resources").unwrap().field("limits").unwrap().go_type(), "v1.ResourceList");
    let ports = container.field("ports").unwrap();
    let ValueType::List(list) = &ports.value_type else { panic!("not a list") };
    assert_eq!(list.list_type, Some(ListType::Map(["containerPort".into(), "protocol".into()].into())));
    let metadata = named("meta.v1.ObjectMeta").unwrap().object().unwrap();
    assert_eq!(metadata.property("creationTimestamp").unwrap().omit, Omit::Zero);
    assert!(object.property("nodeSelector").unwrap().is_atomic());
    assert!(!object.property("containers").unwrap().is_atomic());
}

#[test]
fn recursive_types_refer_to_themselves() {
    let props = named("apiextensions.v1.JSONSchemaProps").unwrap();
    let inner = props.field("properties").unwrap().element().unwrap();
    assert!(std::ptr::eq(props, inner));
}
