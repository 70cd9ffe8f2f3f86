//! Benchmarks compiling a large CRD schema once and validating custom resources against it.

use std::hint::black_box;
use std::sync::Arc;

use crd::{CrdSource, CustomResourceDefinition, ValidationBounds};
use criterion::{Criterion, criterion_group, criterion_main};
use value::{Map, Value};

const PROPERTIES: usize = 500;
const RULES: usize = 20;

#[derive(Debug)]
struct Whole(Value);

impl CrdSource for Whole {
    fn load(&self) -> Option<Value> {
        Some(self.0.clone())
    }
}

/// A CRD with many properties, each with bounds, and many rules.
fn crd() -> Value {
    let property = |_| {
        Value::map([
            ("type", Value::from("string")),
            ("maxLength", Value::from(64)),
            ("pattern", Value::from("^[a-z0-9-]+$")),
        ])
    };
    let properties: Map = (0..PROPERTIES).map(|i| (format!("p{i}").into(), property(i))).collect();
    let rules = (0..RULES).map(|i| {
        let rule = format!("!has(self.p{i}) || self.p{i}.size() < 60 && self.p{i} != 'forbidden-{i}'");
        Value::map([("rule", rule)])
    });
    let spec = Value::map([
        ("type", Value::from("object")),
        ("properties", Value::Map(properties)),
        ("x-kubernetes-validations", Value::list(rules)),
    ]);
    let mut version =
        Value::map([("name", Value::from("v1")), ("served", true.into()), ("storage", true.into())]);
    version.set_at(&["schema", "openAPIV3Schema", "type"], "object");
    version.set_at(&["schema", "openAPIV3Schema", "properties", "spec"], spec);
    let mut crd = Value::map([("kind", "CustomResourceDefinition")]);
    crd.set_at(&["spec", "group"], "example.com");
    crd.set_at(&["spec", "scope"], "Namespaced");
    crd.set_at(&["spec", "versions"], Value::list([version]));
    crd.set_at(&["status", "acceptedNames", "kind"], "Thing");
    crd
}

fn read(crd: &Value) -> CustomResourceDefinition {
    let source: Arc<dyn CrdSource> = Arc::new(Whole(crd.clone()));
    CustomResourceDefinition::read(crd, &source, |_, _| None)
}

fn object() -> Value {
    let spec: Map =
        (0..PROPERTIES).map(|i| (format!("p{i}").into(), Value::from(format!("value-{i}")))).collect();
    let mut object = Value::map([("apiVersion", "example.com/v1"), ("kind", "Thing")]);
    object.set_at(&["metadata", "name"], "t");
    object.set_at(&["metadata", "namespace"], "n");
    object.set_at(&["spec"], Value::Map(spec));
    object
}

fn custom(c: &mut Criterion) {
    let source = crd();
    let object = object();
    c.bench_function("custom/read_definition", |b| b.iter(|| read(black_box(&source))));
    c.bench_function("custom/compile_and_first_create", |b| {
        b.iter(|| {
            let crd = read(&source);
            let compiled = crd.versions.first().map(|version| Arc::clone(version.compiled()));
            compiled.map(|compiled| {
                compiled.validate_create(black_box(&object), ValidationBounds::NONE).errors.len()
            })
        });
    });
    let crd = read(&source);
    let Some(version) = crd.versions.first() else { return };
    let compiled = version.compiled();
    c.bench_function("custom/create_500_properties_20_rules", |b| {
        b.iter(|| {
            let mut object = object.clone();
            let unknown = compiled.coerce(&mut object, true);
            let _ = compiled.default(&mut object);
            (unknown, compiled.validate_create(black_box(&object), ValidationBounds::NONE).errors.len())
        });
    });
}

criterion_group!(benches, custom);
criterion_main!(benches);
