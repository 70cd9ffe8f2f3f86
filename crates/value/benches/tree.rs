//! Benchmarks: read, write and look into a pod of 4 KB.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use value::{Value, json, write, yaml};

/// A pod with its keys in the order in which clients send them.
const POD: &[u8] = include_bytes!("pod.json");

fn tree(c: &mut Criterion) {
    let pod = json::parse(POD).unwrap_or_default();
    let canonical = write::to_vec(&pod);
    let yaml_text = yaml::write(&pod);

    let mut group = c.benchmark_group("pod");
    group.throughput(Throughput::Bytes(POD.len() as u64));
    group.bench_function("json read", |b| b.iter(|| json::parse(black_box(POD))));
    group.throughput(Throughput::Bytes(canonical.len() as u64));
    group.bench_function("json read, canonical", |b| b.iter(|| json::parse(black_box(&canonical))));
    group.bench_function("json write", |b| b.iter(|| write::to_vec(black_box(&pod))));
    group.throughput(Throughput::Bytes(yaml_text.len() as u64));
    group.bench_function("yaml read", |b| b.iter(|| yaml::read(black_box(yaml_text.as_bytes()))));
    group.bench_function("yaml write", |b| b.iter(|| yaml::write(black_box(&pod))));
    group.finish();

    c.bench_function("drop", |b| {
        b.iter_batched(|| pod.clone(), drop, criterion::BatchSize::SmallInput);
    });
    c.bench_function("get by path", |b| {
        b.iter(|| {
            let drop = black_box(&pod).list_at(&["spec", "containers"]).first();
            drop.and_then(|c: &Value| c.str_at(&["securityContext", "capabilities", "drop"]));
            black_box(&pod).str_at(&["metadata", "labels", "app.kubernetes.io/name"]).map(str::len)
        });
    });
}

criterion_group!(benches, tree);
criterion_main!(benches);
