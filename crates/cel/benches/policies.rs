//! Benchmarks: compile and run typical policy expressions over a real pod.

use std::hint::black_box;

use cel::{Activation, Env, PER_CALL_LIMIT, Type, Val, Version};
use criterion::{Criterion, criterion_group, criterion_main};
use value::{Value, json};

const POD: &str = include_str!("pod.json");

/// Expressions under the name that the benchmark reports.
const EXPRESSIONS: [(&str, &str); 7] = [
    (
        "containers_all",
        "object.spec.containers.all(c, has(c.securityContext) && c.securityContext.privileged == false)",
    ),
    ("label_present", "has(object.metadata.labels) && 'app' in object.metadata.labels"),
    (
        "image_pattern",
        "object.spec.containers.all(c, c.image.matches('^registry[.]example[.]com/[a-z0-9/-]+:[a-z0-9.]+$'))",
    ),
    ("name", "object.metadata.name == 'web-0'"),
    ("replicas_ternary", "has(object.spec.priority) ? object.spec.priority <= 100 : true"),
    (
        "limits",
        "object.spec.containers.all(c, quantity(c.resources.limits.memory).compareTo(quantity('2Gi')) <= 0)",
    ),
    ("map_join", "object.spec.containers.map(c, c.name).join(',') == 'app,proxy,log'"),
];

fn environment() -> Env {
    Env::kubernetes(Version::CURRENT).with_variables([
        ("object", Type::Dyn),
        ("oldObject", Type::Dyn),
        ("request", Type::Dyn),
        ("params", Type::Dyn),
    ])
}

fn run(c: &mut Criterion) {
    let env = environment();
    let pod = json::parse(POD.as_bytes()).unwrap_or_default();
    let mut wide = pod.clone();
    grow(&mut wide);
    for (name, text) in EXPRESSIONS {
        let Ok(program) = env
            .compile(text)
            .map_err(|issues| issues.to_string())
            .and_then(|checked| checked.program().map_err(|error| error.to_string()))
        else {
            continue;
        };
        for (size, data) in [("", &pod), ("_wide", &wide)] {
            let activation = Activation::new(&env).with("object", Val::data(data));
            c.bench_function(&format!("run/{name}{size}"), |b| {
                b.iter(|| black_box(program.run(black_box(&activation), PER_CALL_LIMIT)).cost);
            });
        }
    }
}

/// Adds fields that no benchmarked expression reads, to show that unread data is free.
fn grow(pod: &mut Value) {
    let extra =
        Value::list((0..200).map(|i| Value::map([("name", format!("VAR_{i}")), ("value", "x".to_owned())])));
    if let Some(containers) = pod.at_mut(&["spec", "containers"]).and_then(Value::as_list_mut) {
        for container in containers {
            container.set_at(&["env"], extra.clone());
        }
    }
}

fn compile(c: &mut Criterion) {
    let env = environment();
    for (name, text) in EXPRESSIONS {
        c.bench_function(&format!("compile/{name}"), |b| {
            b.iter(|| env.compile(black_box(text)).is_ok_and(|checked| checked.program().is_ok()));
        });
    }
    c.bench_function("environment", |b| b.iter(environment));
}

criterion_group!(benches, run, compile);
criterion_main!(benches);
