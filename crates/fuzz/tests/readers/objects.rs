//! Decoding, defaulting, validating and printing of objects, and the schemas of CRDs.

use std::sync::Arc;

use api::GroupKind;
use crd::columns::TableAllowance;
use crd::{CrdSource, CustomResourceDefinition};
use fuzz::Corpus;
use kinds::{print, validation};
use schema::decode;
use value::{Budget, Value, json, write};

use crate::{json as json_corpus, seeds};

/// Group, version and kind of an object.
fn identity(object: &Value) -> (&str, &str, &str) {
    let api_version = object.str_at(&["apiVersion"]).unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group, version, object.str_at(&["kind"]).unwrap_or_default())
}

#[test]
fn validating_objects_of_any_shape_never_panics() {
    let mut bodies = seeds::bodies();
    bodies.retain(|body| {
        let (group, version, kind) = identity(body);
        schema::of(group, version, kind).is_some()
    });
    assert!(bodies.len() > 100, "only {} objects", bodies.len());
    let context =
        validation::ValidationContext { now: 1_800_000_000, ..validation::ValidationContext::default() };
    let corpus = Corpus::new(bodies.iter().map(write::to_vec), json_corpus::TOKENS);
    fuzz::run(&corpus.inputs(), |input| {
        let Ok(mut object) = json::parse(input) else { return Ok(()) };
        let (group, version, kind) = identity(&object);
        let Some(schema) = schema::of(group, version, kind) else { return Ok(()) };
        let kind = GroupKind::new(group, kind);
        let raw = object.clone();
        decode::normalize(&mut object, schema);
        let mut again = object.clone();
        decode::normalize(&mut again, schema);
        if again != object {
            return Err(format!("normalized twice it is {}", write::to_string(&again)));
        }
        kinds::table::behavior(&kind).apply_defaults(&mut object);
        if let Some(rules) = kinds::table::behavior(&kind).rules.as_ref() {
            // The server rejects objects that do not match their schema before it calls these functions; they must not rely on that.
            for object in [&object, &raw] {
                let _ = (rules.create)(object, &context);
                let _ = (rules.update)(object, &raw, &context);
                let _ = (rules.update_status)(&raw, object, &context);
            }
        }
        let _ = kinds::table::behavior(&kind).warnings_on_write(&object, Some(&raw));
        let _ = print::row_conditions(&kind.group, &kind.kind, &object);
        Ok(())
    });
}

/// A CRD that is stored as it was sent.
#[derive(Debug)]
struct UnchangedCrd(Value);

impl CrdSource for UnchangedCrd {
    fn load(&self) -> Option<Value> {
        Some(self.0.clone())
    }
}

#[test]
fn validating_custom_resources_with_any_schema_never_panics() {
    let schema = r#"{"type":"object","properties":{"spec":{"type":"object","required":["a"],"properties":{"a":{"type":"string","pattern":"^a+$","maxLength":5,"default":"aa"},"n":{"type":"integer","minimum":1,"multipleOf":2},"l":{"type":"array","items":{"type":"object","properties":{"k":{"type":"string"}},"required":["k"]},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"]},"m":{"type":"object","additionalProperties":{"type":"string","format":"date-time"}},"q":{"x-kubernetes-int-or-string":true},"e":{"type":"string","enum":["x","y"],"nullable":true}},"x-kubernetes-validations":[{"rule":"self.a == 'aa' || self.l.all(x, x.k != '')","message":"m"}],"oneOf":[{"required":["a"]},{"properties":{"n":{"not":{"minimum":3}}}}]},"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}"#;
    let object = r#"{"apiVersion":"e.example/v1","kind":"E","metadata":{"name":"e","namespace":"n"},"spec":{"a":"aa","n":4,"l":[{"k":"x"},{"k":"y"}],"m":{"x":"2026-01-01T00:00:00Z"},"q":"5%","e":null},"any":{"b":[1,{}]},"status":{"replicas":3}}"#;
    let crd = |schema: &str| {
        format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"es.e.example"}},"spec":{{"group":"e.example","scope":"Namespaced","names":{{"plural":"es","singular":"e","kind":"E","listKind":"EList"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}},"subresources":{{"status":{{}},"scale":{{"specReplicasPath":".spec.n","statusReplicasPath":".status.replicas"}}}},"additionalPrinterColumns":[{{"name":"A","type":"string","jsonPath":".spec.l[*].k"}}],"selectableFields":[{{"jsonPath":".spec.a"}}]}}]}},"status":{{"storedVersions":["v1"]}}}}"#
        )
    };
    let seeds = [crd(schema), object.to_owned()];
    let tokens: Vec<&str> = json_corpus::TOKENS
        .iter()
        .copied()
        .chain([
            "\"type\":\"array\"",
            "\"items\":{}",
            "\"items\":[{}]",
            "\"additionalProperties\":true",
            "\"nullable\":true",
            "\"default\":{}",
            "\"x-kubernetes-embedded-resource\":true",
            "\"pattern\":\"(a+)+$\"",
            "\"format\":\"int32\"",
            "\"allOf\":[",
            "\"not\":{",
            "\"$ref\":\"x\"",
            "\"x-kubernetes-map-type\":\"atomic\"",
            "\"uniqueItems\":true",
            "\"rule\":\"self == oldSelf\"",
        ])
        .collect();
    let good = json::parse(crd(schema).as_bytes()).unwrap();
    let thing = json::parse(object.as_bytes()).unwrap();
    let context =
        validation::ValidationContext { now: 1_800_000_000, ..validation::ValidationContext::default() };
    let rules = kinds::table::behavior(&GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition"))
        .rules
        .as_ref()
        .unwrap();
    assert!((rules.create)(&good, &context).is_empty(), "{:?}", (rules.create)(&good, &context));
    fuzz::run(&Corpus::new(&seeds, &tokens).inputs(), |input| {
        let Ok(value) = json::parse(input) else { return Ok(()) };
        let is_crd = value.str_at(&["kind"]) == Some("CustomResourceDefinition");
        let (crd, object) = if is_crd { (&value, &thing) } else { (&good, &value) };
        if is_crd {
            let _ = (rules.create)(crd, &context);
        }
        let source: Arc<dyn CrdSource> = Arc::new(UnchangedCrd(crd.clone()));
        let read = CustomResourceDefinition::read(crd, &source, kinds::table::overlapping);
        for version in &read.versions {
            let compiled = version.compiled();
            let allowance = TableAllowance::new(&Budget::UNLIMITED);
            let _ =
                (version.openapi(version.load().as_ref()), compiled.columns().cells(object, 0, &allowance));
            let mut object = object.clone();
            if compiled.coerce(&mut object, true).is_err() {
                continue;
            }
            if compiled.default(&mut object).is_err() {
                continue;
            }
            let _ = compiled.validate_create(&object, crd::ValidationBounds::NONE);
            let _ = compiled.validate_update(&object, &thing, crd::ValidationBounds::NONE);
            let _ = compiled.validate_status(&object, &thing, crd::ValidationBounds::NONE);
            if compiled.drop_nulls_and_default(&mut object).is_err() {
                continue;
            }
            let written = write::to_vec(&object);
            // Compared after a round trip: `41e5` is read as a float and written as an integer.
            if json::parse(&written).map(|read| write::to_vec(&read)).ok().as_ref() != Some(&written) {
                return Err(format!("stored as {}", String::from_utf8_lossy(&written)));
            }
        }
        Ok(())
    });
}
