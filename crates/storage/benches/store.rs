//! Benchmarks of the store: durable commits one at a time and concurrently, lists, gets, and a start with 10,000 objects.
#![expect(clippy::expect_used, reason = "a benchmark that cannot run ends")]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use storage::{
    Change, Embedded, Expect, Memory, Record, Store, StoreOptions, WatchFrom, Write, WritePriority,
};
use tokio::runtime::Runtime;

const OBJECTS: usize = 10_000;
const SCOPE: &str = "/registry/configmaps/";

/// One shard for the keys in [`SCOPE`].
fn options() -> StoreOptions {
    StoreOptions { shard_end: |key| key.starts_with(SCOPE).then_some(SCOPE.len()), ..StoreOptions::default() }
}

fn key(number: usize) -> String {
    format!("{SCOPE}default/configmap-{number:06}")
}

/// A record about as large as a small ConfigMap.
fn record(number: usize) -> Record {
    let body = format!(
        r#"{{"apiVersion":"v1","data":{{"key":"value-{number}","more":"{}"}},"kind":"ConfigMap","metadata":{{"creationTimestamp":"2026-01-01T00:00:00Z","name":"configmap-{number:06}","namespace":"default","resourceVersion":"","uid":"3f9b2c1e-7a54-4a67-9d0e-{number:012}"}}}}"#,
        "x".repeat(64)
    );
    let revision_at = body.find(r#"Version":"","uid"#).map_or(0, |at| at + r#"Version":""#.len());
    Record {
        revision_at: u32::try_from(revision_at).unwrap_or(0),
        body: body.into(),
        facts: vec![7; 40].into(),
    }
}

fn write(number: usize) -> Write {
    Write {
        key: key(number).into(),
        expect: Expect::Any,
        change: Change::Put(record(number)),
        priority: WritePriority::Ordinary,
        ttl: None,
    }
}

async fn fill(store: &Store) {
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..64 {
        let store = store.clone();
        tasks.spawn(async move {
            for number in (writer..OBJECTS).step_by(64) {
                store.commit(write(number)).await.expect("the store writes");
            }
        });
    }
    tasks.join_all().await;
}

async fn open(directory: &Path) -> Store {
    Store::open(Embedded::at(directory), options()).await.expect("the store opens")
}

/// The duration of `commits` commits by `writers` concurrent writers.
fn commit(runtime: &Runtime, store: &Store, writers: usize, commits: u64) -> Duration {
    let commits = usize::try_from(commits).unwrap_or(usize::MAX);
    let start = Instant::now();
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..writers {
            let store = store.clone();
            tasks.spawn(async move {
                for number in (writer..commits).step_by(writers) {
                    store.commit(write(number % OBJECTS)).await.expect("the store writes");
                }
            });
        }
        tasks.join_all().await;
    });
    start.elapsed()
}

fn commits(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let embedded = runtime.block_on(open(&directory.path().join("store")));
    let memory = runtime.block_on(Store::open(Memory::new(), options())).expect("the store opens");
    let mut group = criterion.benchmark_group("commit");
    group.throughput(Throughput::Elements(1));
    for (name, store) in [("embedded", &embedded), ("memory", &memory)] {
        for writers in [1, 32, 256] {
            group.bench_function(format!("{name}, {writers} at once"), |bencher| {
                bencher.iter_custom(|commits| commit(&runtime, store, writers, commits));
            });
        }
    }
    let watches: Vec<_> = (0..1000).map(|_| embedded.watch(SCOPE, WatchFrom::Now)).collect();
    group.bench_function("embedded, 32 at once, 1000 watches", |bencher| {
        bencher.iter_custom(|commits| commit(&runtime, &embedded, 32, commits));
    });
    drop(watches);
    group.finish();
}

fn reads(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let store = runtime.block_on(open(&path));
    runtime.block_on(fill(&store));
    criterion.bench_function("get", |bencher| {
        let key = key(OBJECTS / 3);
        bencher.iter(|| store.get(black_box(&key)));
    });
    criterion.bench_function("list 10,000: take", |bencher| {
        bencher.iter(|| store.snapshot(black_box(SCOPE)).entries.len());
    });
    criterion.bench_function("list 10,000: take and concatenate", |bencher| {
        bencher.iter(|| {
            let page = store.snapshot(black_box(SCOPE));
            let mut out = Vec::with_capacity(page.entries.iter().map(|entry| entry.body.len() + 1).sum());
            for entry in &page.entries {
                out.extend_from_slice(&entry.body);
                out.push(b',');
            }
            out
        });
    });
    drop(store);
    let mut group = criterion.benchmark_group("open");
    group.sample_size(20);
    group.bench_function("10,000 objects", |bencher| {
        bencher.iter(|| runtime.block_on(open(&path)));
    });
    group.bench_function("nothing, in memory", |bencher| {
        bencher.iter(|| runtime.block_on(Store::open(Memory::new(), options())));
    });
    group.finish();
}

criterion_group!(benches, commits, reads);
criterion_main!(benches);
