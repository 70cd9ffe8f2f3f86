use api::features::Features;
use kinds::table::{self, RuntimeConfig, Served, Verb};
use value::{Value, json};

use super::components::OpenApiVersion;
use super::{OpenApi, OpenApiInputs, below};

fn documents() -> OpenApi {
    OpenApi::new(Served::default(), "1.37")
}

fn v3(path: &str) -> Value {
    json::parse(&documents().v3(path, OpenApiInputs::default()).unwrap().body).unwrap()
}

#[test]
fn the_index_names_every_document_with_the_hash_of_its_content() {
    let documents = documents();
    let index = json::parse(&documents.v3_index(OpenApiInputs::default()).body).unwrap();
    let paths = index.get("paths").unwrap().as_map().unwrap();
    assert!(
        paths.contains_key("api/v1") && paths.contains_key("apis/apps/v1") && paths.contains_key("apis/apps")
    );
    assert!(!paths.contains_key("apis/resource.k8s.io/v1beta1"));
    for (path, entry) in paths.iter() {
        let document = documents.v3(path, OpenApiInputs::default()).unwrap();
        let url = entry.str_at(&["serverRelativeURL"]).unwrap();
        assert_eq!(url, format!("/openapi/v3/{path}?hash={}", document.hash));
        assert_eq!(document.hash.len(), 128);
    }
}

#[test]
fn only_served_group_versions_have_an_openapi_document() {
    let documents = documents();
    assert!(documents.v3("apis/resource.k8s.io/v1beta1", OpenApiInputs::default()).is_none());
    assert!(
        documents.v3("apis/example.com/v1", OpenApiInputs::default()).is_none()
            && documents.v3("", OpenApiInputs::default()).is_none()
    );
    let beta = OpenApi::new(Served::parse("api/beta=true").unwrap(), "1.37");
    assert!(beta.v3("apis/resource.k8s.io/v1beta1", OpenApiInputs::default()).is_some());
}

#[test]
fn kubectl_finds_field_validation_on_every_write() {
    let document = v3("apis/apps/v1");
    let path = document.at(&["paths", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]).unwrap();
    for method in ["put", "patch"] {
        let operation = path.get(method).unwrap();
        let names: Vec<_> =
            operation.list_at(&["parameters"]).iter().filter_map(|p| p.str_at(&["name"])).collect();
        assert!(names.contains(&"fieldValidation") && names.contains(&"dryRun"), "{method}");
        assert_eq!(operation.str_at(&["x-kubernetes-group-version-kind", "kind"]), Some("Deployment"));
        assert_eq!(operation.str_at(&["x-kubernetes-action"]), Some(method));
    }
    let common: Vec<_> = path.list_at(&["parameters"]).iter().filter_map(|p| p.str_at(&["name"])).collect();
    assert_eq!(common, ["name", "namespace", "pretty"]);
    let types = path.at(&["patch", "requestBody", "content"]).unwrap().as_map().unwrap();
    assert!(types.contains_key("application/strategic-merge-patch+json"));
}

#[test]
fn every_verb_of_the_table_has_its_operation() {
    for group in table::GROUPS {
        for version in group.versions {
            let (root, path) = match group.name {
                "" => (format!("/api/{version}"), format!("api/{version}")),
                name => (format!("/apis/{name}/{version}"), format!("apis/{name}/{version}")),
            };
            let served =
                OpenApi::new(RuntimeConfig::parse("api/all=true").unwrap().served(Features::ALL), "1.37");
            let document = json::parse(&served.v3(&path, OpenApiInputs::default()).unwrap().body).unwrap();
            for row in group.resources.iter().filter(|row| row.version(version).is_some()) {
                let below = if row.is_namespaced() { "/namespaces/{namespace}" } else { "" };
                let many = format!("{root}{below}/{}", row.plural);
                let one = format!("{many}/{{name}}");
                for verb in row.verbs {
                    let (path, method) = match verb {
                        Verb::Create => (&many, "post"),
                        Verb::List => (&many, "get"),
                        Verb::DeleteCollection => (&many, "delete"),
                        Verb::Get | Verb::Watch => (&one, "get"),
                        Verb::Update => (&one, "put"),
                        Verb::Patch => (&one, "patch"),
                        Verb::Delete => (&one, "delete"),
                    };
                    assert!(document.at(&["paths", path, method]).is_some(), "{method} {path}");
                }
                for sub in row.subresources {
                    assert!(
                        document.at(&["paths", &format!("{one}/{}", sub.name)]).is_some(),
                        "{one}/{}",
                        sub.name
                    );
                }
            }
        }
    }
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Map(map) => {
            for (key, value) in map.iter() {
                match value {
                    Value::String(text) if key == "$ref" => found.push(text),
                    _ => references(value, found),
                }
            }
        }
        Value::List(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_to_a_schema() {
    for path in ["api", "apis", "api/v1", "apis/apps", "apis/apps/v1", "apis/apiextensions.k8s.io/v1"] {
        let document = v3(path);
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(document.at(&["components", "schemas", name]).is_some(), "{path}: {name}");
        }
    }
    let v2 = json::parse(&documents().v2_json(OpenApiInputs::default(), |_| {}).body).unwrap();
    let mut found = Vec::new();
    references(&v2, &mut found);
    for reference in found {
        assert!(
            v2.at(&["definitions", reference.strip_prefix("#/definitions/").unwrap()]).is_some(),
            "{reference}"
        );
    }
}

#[test]
fn schemas_carry_types_defaults_enums_and_extensions() {
    let document = v3("api/v1");
    let schema = |name: &str| document.at(&["components", "schemas", name]).unwrap();
    let port = schema("io.k8s.api.core.v1.ContainerPort");
    assert_eq!(port.at(&["properties", "containerPort", "default"]), Some(&Value::Int(0)));
    assert_eq!(port.str_at(&["properties", "protocol", "default"]), Some("TCP"));
    assert_eq!(port.list_at(&["properties", "protocol", "enum"]).len(), 3);
    let spec = schema("io.k8s.api.core.v1.PodSpec");
    let containers = spec.at(&["properties", "containers"]).unwrap();
    assert_eq!(containers.str_at(&["x-kubernetes-patch-merge-key"]), Some("name"));
    assert_eq!(containers.str_at(&["x-kubernetes-list-type"]), Some("map"));
    assert_eq!(spec.list_at(&["required"]), [Value::from("containers")]);
    let quantity = schema("io.k8s.apimachinery.pkg.api.resource.Quantity");
    assert_eq!(quantity.list_at(&["oneOf"]).len(), 2);
}

/// The length-delimited fields with this number in a message.
fn blocks(mut bytes: &[u8], field: u64) -> Vec<&[u8]> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return number;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => {
                varint(&mut bytes);
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (block, rest) = bytes.split_at(length);
                bytes = rest;
                if key >> 3 == field {
                    found.push(block);
                }
            }
            other => panic!("wire type {other}"),
        }
    }
    found
}

#[test]
fn the_protobuf_form_holds_the_same_definitions_and_paths() {
    let documents = documents();
    let json = json::parse(&documents.v2_json(OpenApiInputs::default(), |_| {}).body).unwrap();
    let protobuf = documents.v2_protobuf(OpenApiInputs::default(), |_| {});
    let names = |message: &[u8], field: u64| -> Vec<String> {
        blocks(message, field)
            .iter()
            .map(|entry| String::from_utf8(blocks(entry, 1)[0].to_vec()).unwrap())
            .collect()
    };
    let keys = |key: &str| -> Vec<String> {
        json.get(key).unwrap().as_map().unwrap().keys().map(ToString::to_string).collect()
    };
    let definitions = blocks(&protobuf.body, 9)[0];
    assert_eq!(names(definitions, 1), keys("definitions"));
    assert_eq!(names(blocks(&protobuf.body, 8)[0], 2), keys("paths"));
    // Field extensions must be present, because kubectl reads merge keys from them.
    let pod_spec = blocks(definitions, 1)
        .into_iter()
        .find(|entry| blocks(entry, 1)[0] == b"io.k8s.api.core.v1.PodSpec")
        .unwrap();
    let properties = blocks(blocks(pod_spec, 2)[0], 25)[0];
    let containers =
        blocks(properties, 1).into_iter().find(|entry| blocks(entry, 1)[0] == b"containers").unwrap();
    let extensions = names(blocks(containers, 2)[0], 31);
    assert!(extensions.contains(&"x-kubernetes-patch-merge-key".to_owned()), "{extensions:?}");
}

#[test]
fn openapi_documents_are_cached() {
    let documents = documents();
    assert!(std::sync::Arc::ptr_eq(
        &documents.v3("api/v1", OpenApiInputs::default()).unwrap(),
        &documents.v3("api/v1", OpenApiInputs::default()).unwrap()
    ));
    assert!(std::sync::Arc::ptr_eq(
        &documents.v2_json(OpenApiInputs::default(), |_| {}),
        &documents.v2_json(OpenApiInputs::default(), |_| {})
    ));
    assert_eq!(schema::openapi_name("core.v1.Pod"), "io.k8s.api.core.v1.Pod");
}

#[test]
fn a_document_of_an_outdated_generation_is_not_cached() {
    let documents = documents();
    let before = OpenApiInputs { generation: documents.generation(), ..OpenApiInputs::default() };
    documents.forget_custom();
    let after = OpenApiInputs { generation: documents.generation(), ..OpenApiInputs::default() };
    let old = documents.v2_json(before, |_| {});
    let new = documents.v2_json(after, |_| {});
    assert!(!std::sync::Arc::ptr_eq(&old, &new));
    assert!(std::sync::Arc::ptr_eq(&new, &documents.v2_json(after, |_| {})));
}

#[test]
fn aggregated_openapi_documents_are_merged_without_replacing_local_definitions() {
    let theirs = json::parse(
        br##"{"swagger":"2.0","paths":{"/apis/g/v1/things":{"get":{"schema":{"$ref":"#/definitions/Thing"}}},
            "/apis/other/v1/":{"get":{}},"/api/v1/namespaces":{"get":"theirs"}},
            "definitions":{"Thing":{"properties":{"meta":{"$ref":"#/definitions/io.k8s.api.core.v1.Pod"}}},
            "io.k8s.api.core.v1.Pod":{"type":"string"},"Unused":{}}}"##,
    )
    .unwrap();
    let cached = below(theirs, "/apis/g/v1/");
    let sections = |section: &str| {
        cached.get(section).and_then(value::Value::as_map).unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(sections("paths"), ["/apis/g/v1/things"]);
    assert_eq!(sections("definitions"), ["Thing", "io.k8s.api.core.v1.Pod"]);
    // Merging an equal document again adds nothing.
    let remote = [std::sync::Arc::new(cached.clone()), std::sync::Arc::new(cached.clone())];
    let merged =
        documents().v2_json(OpenApiInputs { remote_v2: &remote, ..OpenApiInputs::default() }, |_| {});
    let merged = json::parse(&merged.body).unwrap();
    let reference = ["definitions", "Thing", "properties", "meta", "$ref"];
    assert_eq!(merged.str_at(&reference), Some("#/definitions/io.k8s.api.core.v1.Pod_v2"));
    assert_eq!(merged.str_at(&["definitions", "io.k8s.api.core.v1.Pod", "type"]), Some("object"));
    assert!(merged.at(&["definitions", "io.k8s.api.core.v1.Pod_v3"]).is_none());
    assert!(merged.at(&["paths", "/apis/g/v1/things"]).is_some());
}

/// Takes minutes if parts are inserted one by one.
#[test]
fn very_large_aggregated_openapi_documents_are_filtered_and_merged() {
    const MANY: usize = 300_000;
    let theirs = |prefix: &str| {
        let name = |i: usize| format!("{prefix}{i:06}");
        let references =
            Value::list((0..MANY).map(|i| Value::map([("$ref", format!("#/definitions/{}", name(i)))])));
        let definitions =
            Value::map((0..MANY).chain([MANY]).map(|i| (name(i), Value::map([("type", prefix)]))));
        let path = Value::map([(format!("/apis/{prefix}/v1/things"), references)]);
        below(Value::map([("paths", path), ("definitions", definitions)]), &format!("/apis/{prefix}/"))
    };
    let count =
        |document: &Value| document.get("definitions").and_then(Value::as_map).map_or(0, value::Map::len);
    let (second, first) = (theirs("b"), theirs("a"));
    assert_eq!((count(&second), count(&first)), (MANY, MANY));
    let merged = super::remote::merge(Value::Null, &[second.into(), first.into()]);
    assert_eq!(count(&merged), 2 * MANY);
    assert!(merged.at(&["paths", "/apis/a/v1/things"]).is_some());
}

#[test]
fn openapi_v2_only_servers_get_a_converted_v3_document() {
    let theirs = json::parse(
        br##"{"swagger":"2.0","info":{"title":"t"},"paths":{"/apis/g/v1/things":{
            "parameters":[{"$ref":"#/parameters/pretty"},{"$ref":"#/parameters/gone"}],
            "post":{"operationId":"make","consumes":["application/json"],"produces":["application/json","application/yaml"],
                "parameters":[{"name":"body","in":"body","required":true,"schema":{"$ref":"#/definitions/Thing"}},
                    {"name":"dryRun","in":"query","type":"string","uniqueItems":true,"description":"d"}],
                "responses":{"201":{"description":"Created","schema":{"$ref":"#/definitions/Thing"}},"401":{"description":"no"}},
                "x-kubernetes-action":"post"}},"/api/v1/pods":{"get":{}}},
            "parameters":{"pretty":{"name":"pretty","in":"query","type":"string"}},
            "definitions":{"Thing":{"type":"object","properties":{
                "one":{"$ref":"#/definitions/Other"},"said":{"description":"d","$ref":"#/definitions/Other"},
                "many":{"type":"array","items":{"$ref":"#/definitions/Other"}},
                "map":{"type":"object","additionalProperties":{"$ref":"#/definitions/Other"}}}},"Other":{"type":"string"}}}"##,
    )
    .unwrap();
    let path = "apis/g/v1".to_owned();
    let only_v2 = [(path.clone(), std::sync::Arc::new(below(theirs, "/apis/g/v1/")))];
    let current = OpenApiInputs { only_v2: &only_v2, ..OpenApiInputs::default() };
    let documents = documents();
    let document = documents.v3(&path, current).unwrap();
    let expected = json::parse(
        br##"{"openapi":"3.0.0","info":{"title":"t"},"paths":{"/apis/g/v1/things":{
            "parameters":[{"name":"pretty","in":"query","schema":{"type":"string"}}],
            "post":{"operationId":"make","x-kubernetes-action":"post",
                "requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/Thing"}}}},
                "parameters":[{"name":"dryRun","in":"query","description":"d","schema":{"type":"string","uniqueItems":true}}],
                "responses":{"201":{"description":"Created","content":{
                    "application/json":{"schema":{"$ref":"#/components/schemas/Thing"}},
                    "application/yaml":{"schema":{"$ref":"#/components/schemas/Thing"}}}},"401":{"description":"no"}}}}},
            "components":{"schemas":{"Other":{"type":"string"},"Thing":{"type":"object","properties":{
                "one":{"$ref":"#/components/schemas/Other"},
                "said":{"description":"d","allOf":[{"$ref":"#/components/schemas/Other"}]},
                "many":{"type":"array","items":{"$ref":"#/components/schemas/Other"}},
                "map":{"type":"object","additionalProperties":{"$ref":"#/components/schemas/Other"}}}}}}}"##,
    )
    .unwrap();
    assert_eq!(json::parse(&document.body).unwrap(), expected);
    let index = json::parse(&documents.v3_index(current).body).unwrap();
    assert_eq!(
        index.str_at(&["paths", &path, "serverRelativeURL"]),
        Some(format!("/openapi/v3/apis/g/v1?hash={}", document.hash).as_str())
    );
}

#[test]
fn documents_that_grow_too_large_when_converted_to_v3_are_omitted() {
    let schema = Value::map([("description", "d".repeat(10_000))]);
    let document = |types: usize, references: usize| {
        let types = Value::list((0..types).map(|i| format!("a/{i}")));
        let body = Value::map([("in", Value::from("body")), ("schema", schema.clone())]);
        let reference = Value::map([("$ref", "#/parameters/long")]);
        let parameters = std::iter::repeat_n(reference, references).chain([body]);
        let answer = Value::map([("schema", schema.clone())]);
        let operation = Value::map([
            ("consumes", types.clone()),
            ("produces", types),
            ("parameters", Value::list(parameters)),
            ("responses", Value::map([("200", answer)])),
        ]);
        let long = Value::map([("name", Value::from("long")), ("description", "d".repeat(10_000).into())]);
        Value::map([
            ("parameters", Value::map([("long", long)])),
            ("paths", Value::map([("/apis/g/v1/things", Value::map([("post", operation)]))])),
        ])
    };
    let made = |types, references| {
        let only_v2 = [("apis/g/v1".to_owned(), std::sync::Arc::new(document(types, references)))];
        let current = OpenApiInputs { only_v2: &only_v2, ..OpenApiInputs::default() };
        let documents = documents();
        let index = json::parse(&documents.v3_index(current).body).unwrap();
        let made = documents.v3("apis/g/v1", current).map(|document| document.body.len());
        assert_eq!(index.at(&["paths", "apis/g/v1"]).is_some(), made.is_some());
        made
    };
    assert!(made(20, 20).is_some_and(|size| size > 600_000));
    // Each reference is short but would add ten thousand bytes.
    assert_eq!(made(400, 1), None);
    assert_eq!(made(1, 400), None);
}

#[derive(Debug)]
struct Stored(Value);

impl crd::CrdSource for Stored {
    fn load(&self) -> Option<Value> {
        Some(self.0.clone())
    }
}

#[test]
fn custom_kinds_in_openapi_describe_common_fields_and_int_or_string() {
    let object = json::parse(
        br#"{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object","properties":{"plain":{"x-kubernetes-int-or-string":true},
        "said":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]},
        "more":{"x-kubernetes-int-or-string":true,"anyOf":[{"pattern":"^a"}]}}}}}]},
        "status":{"acceptedNames":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
        "conditions":[{"type":"Established","status":"True"}]}}"#,
    )
    .unwrap();
    let source: std::sync::Arc<dyn crd::CrdSource> = std::sync::Arc::new(Stored(object.clone()));
    let definitions =
        [std::sync::Arc::new(crd::CustomResourceDefinition::read(&object, &source, table::overlapping))];
    let schemas = super::custom::schemas(&definitions, None, OpenApiVersion::V3);
    let (_, thing) = schemas.iter().find(|(name, _)| name.ends_with(".Thing")).unwrap();
    let (_, list) = schemas.iter().find(|(name, _)| name.ends_with(".ThingList")).unwrap();
    let described = |schema: &Value, field: &str| -> String {
        schema.str_at(&["properties", field, "description"]).unwrap_or_default().chars().take(24).collect()
    };
    assert_eq!(described(thing, "apiVersion"), "APIVersion defines the v");
    assert_eq!(described(thing, "kind"), "Kind is a string value r");
    assert_eq!(described(thing, "metadata"), "Standard object's metada");
    assert_eq!(described(list, "items"), "List of things. More inf");
    assert_eq!(described(list, "metadata"), "Standard list metadata. ");
    let either = json::parse(br#"[{"type":"integer"},{"type":"string"}]"#).unwrap();
    let at = |path: &[&str]| thing.at(&["properties"]).and_then(|properties| properties.at(path));
    assert_eq!(at(&["plain", "anyOf"]), Some(&either));
    assert_eq!((at(&["said", "anyOf"]), at(&["said", "allOf"])), (Some(&either), None));
    assert_eq!(at(&["more", "anyOf"]).and_then(Value::as_list).map(<[Value]>::len), Some(1));
    assert_eq!(at(&["more", "allOf"]), Some(&Value::list([Value::map([("anyOf", either)])])));
}

#[test]
fn custom_kinds_with_unknown_fields_are_plain_objects_in_version_2() {
    let schema = |preserve: bool, schema: &str, openapi| {
        let text = format!(
            r#"{{"metadata":{{"name":"things.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced",
            "preserveUnknownFields":{preserve},"names":{{"plural":"things","kind":"Thing"}},
            "versions":[{{"name":"v1","served":true,"storage":true{schema}}}]}},
            "status":{{"acceptedNames":{{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"}},
            "conditions":[{{"type":"Established","status":"True"}}]}}}}"#
        );
        let object = json::parse(text.as_bytes()).unwrap();
        let source: std::sync::Arc<dyn crd::CrdSource> = std::sync::Arc::new(Stored(object.clone()));
        let crd =
            std::sync::Arc::new(crd::CustomResourceDefinition::read(&object, &source, table::overlapping));
        let schemas = super::custom::schemas(&[crd], None, openapi);
        let (_, thing) = schemas.iter().find(|(name, _)| name.ends_with(".Thing")).unwrap();
        let names: Vec<String> = thing.as_map().unwrap().iter().map(|(name, _)| name.to_string()).collect();
        names.join(" ")
    };
    let preserving =
        r#","schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}"#;
    let typed_schema = r#","schema":{"openAPIV3Schema":{"type":"object"}}"#;
    let plain = "type x-kubernetes-group-version-kind";
    let typed = "properties type x-kubernetes-group-version-kind";
    for (preserve, text, v2, v3) in [
        (false, "", plain, plain),
        (true, "", plain, plain),
        (true, typed_schema, plain, typed),
        (false, typed_schema, typed, typed),
        (
            false,
            preserving,
            plain,
            "properties type x-kubernetes-group-version-kind x-kubernetes-preserve-unknown-fields",
        ),
    ] {
        assert_eq!(schema(preserve, text, OpenApiVersion::V2), v2, "{preserve} {text}");
        assert_eq!(schema(preserve, text, OpenApiVersion::V3), v3, "{preserve} {text}");
    }
}

/// A CRD source that counts how often it is loaded.
#[derive(Debug)]
struct Counted(Value, std::sync::atomic::AtomicUsize);

impl crd::CrdSource for Counted {
    fn load(&self) -> Option<Value> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Some(self.0.clone())
    }
}

fn with_versions(plural: &str, count: usize, schema: &str) -> Value {
    let version = |n: usize| {
        format!(
            r#"{{"name":"v{n}","served":true,"storage":{},"schema":{{"openAPIV3Schema":{schema}}}}}"#,
            n == 1
        )
    };
    let versions: Vec<String> = (1..=count).map(version).collect();
    let text = format!(
        r#"{{"metadata":{{"name":"{plural}.example.com","uid":"u"}},"spec":{{"group":"example.com","scope":"Namespaced",
            "names":{{"plural":"{plural}","singular":"a","kind":"A","listKind":"AList"}},"versions":[{}]}},
            "status":{{"acceptedNames":{{"plural":"{plural}","singular":"a","kind":"A","listKind":"AList"}},
            "conditions":[{{"type":"Established","status":"True"}},{{"type":"NamesAccepted","status":"True"}}]}}}}"#,
        versions.join(",")
    );
    json::parse(text.as_bytes()).unwrap()
}

/// The steps taken to build all documents about a CRD with `count` versions, and how often the CRD was loaded.
fn of_versions(count: usize) -> (u64, usize) {
    let object = with_versions("as", count, r#"{"type":"object"}"#);
    let counted = std::sync::Arc::new(Counted(object.clone(), std::sync::atomic::AtomicUsize::new(0)));
    let source: std::sync::Arc<dyn crd::CrdSource> = counted.clone();
    let definition =
        std::sync::Arc::new(crd::CustomResourceDefinition::read(&object, &source, table::overlapping));
    let definitions = [definition];
    let current = OpenApiInputs { custom: &definitions, ..OpenApiInputs::default() };
    let steps = value::steps::of(|| {
        let documents = documents();
        let v2 = documents.v2_json(current, |_| {});
        assert!(String::from_utf8_lossy(&v2.body).contains(&format!("/apis/example.com/v{count}/")));
        let index = documents.v3_index(current);
        assert!(String::from_utf8_lossy(&index.body).contains(&format!("apis/example.com/v{count}?")));
    });
    (steps, counted.1.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn documents_take_steps_in_proportion_to_the_versions_of_a_crd() {
    // The cost of built-in resources is the same for any CRD.
    let (none, _) = of_versions(1);
    let (few, _) = of_versions(31);
    let (many, reads) = of_versions(301);
    assert_eq!(reads, 1, "all versions are in one object");
    assert!(many - none <= 15 * (few - none), "{few} steps, then {many}, and {none} for the table alone");
}

#[test]
fn crds_that_make_version_2_too_large_are_left_out_of_it() {
    use super::v2;
    use crd::{CrdSource, CustomResourceDefinition};
    // Many short parts of a schema, each of which expands to the fields of a whole resource.
    let embedded: Vec<String> = (0..1000)
        .map(|n| format!(r#""p{n}":{{"type":"object","x-kubernetes-embedded-resource":true}}"#))
        .collect();
    let growing = format!(r#"{{"type":"object","properties":{{{}}}}}"#, embedded.join(","));
    let plain = r#"{"type":"object"}"#;
    let definitions: Vec<std::sync::Arc<CustomResourceDefinition>> =
        [("many", 200, plain), ("few", 2, plain), ("grows", 1, growing.as_str())]
            .into_iter()
            .map(|(plural, versions, schema)| {
                let object = with_versions(plural, versions, schema);
                let source: std::sync::Arc<dyn CrdSource> = std::sync::Arc::new(Stored(object.clone()));
                std::sync::Arc::new(CustomResourceDefinition::read(&object, &source, table::overlapping))
            })
            .collect();
    let made = |bytes: usize| {
        let (document, left_out) = v2::document(&Served::default(), "1.37", false, &definitions, bytes);
        let has = |plural: &str| document.at(&["paths", &format!("/apis/example.com/v1/{plural}")]).is_some();
        (left_out.join(" "), has("few"), has("grows"), has("many"))
    };
    assert_eq!(made(500_000), ("grows.example.com many.example.com".to_owned(), true, false, false));
    assert_eq!(made(5_000_000), (String::new(), true, true, true));
}

#[test]
fn the_size_of_cached_documents_is_bounded() {
    let document =
        |mebibytes: usize| std::sync::Arc::new(super::OpenApiDocument::new(vec![b'x'; mebibytes << 20]));
    let mut cached = super::CustomDocuments::default();
    cached.insert(super::V2_JSON, &document(100));
    for n in 0..100 {
        cached.insert(&format!("apis/example.com/v{n}"), &document(1));
    }
    let has = |cached: &mut super::CustomDocuments, n: usize| {
        cached.get(&format!("apis/example.com/v{n}")).is_some()
    };
    assert_eq!((0..100).filter(|n| has(&mut cached, *n)).count(), 64);
    assert!(!has(&mut cached, 35) && has(&mut cached, 36) && has(&mut cached, 99));
    // A document that exceeds the limit displaces all others of its kind, and is cached.
    cached.insert("apis/example.com/v1", &document(65));
    assert!(has(&mut cached, 1) && !has(&mut cached, 99) && cached.get(super::V2_JSON).is_some());
}
