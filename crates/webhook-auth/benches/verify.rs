//! Measures token verifications per second, by algorithm and for an unknown key.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark fails by panicking")]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "the issuer of the tests can do more than is measured"
)]

#[path = "../tests/suite/issuer.rs"]
mod issuer;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use issuer::{Key, NOW, at, claims, verifier};
use webhook_auth::AdmissionRequest;

fn verifications(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("verify");
    group.throughput(Throughput::Elements(1));
    let request = AdmissionRequest::about("", "v1", "pods", "Pod");
    for key in [Key::rsa("r"), Key::ec("e"), Key::p384("f"), Key::p521("g")] {
        let (verifier, token) = (verifier(&[&key]), key.token(&claims("*")));
        group.bench_function(key.algorithm(), |bencher| {
            bencher.iter(|| verifier.verify(black_box(&token), at(NOW), &request).unwrap());
        });
    }
    // The cost of rejecting a token with an unknown key.
    let (known, unknown) = (Key::ec("known"), Key::ec("unknown"));
    let (verifier, token) = (verifier(&[&known]), unknown.token(&claims("*")));
    group.bench_function("unknown key", |bencher| {
        bencher.iter(|| verifier.verify(black_box(&token), at(NOW), &request).unwrap_err());
    });
    group.finish();
}

criterion_group!(benches, verifications);
criterion_main!(benches);
