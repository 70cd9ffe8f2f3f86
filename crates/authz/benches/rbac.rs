//! RBAC decisions among 10, 10,000 and 100,000 bindings: the time must not grow with them.

use std::hint::black_box;

use authn::User;
use authz::AuthorizationAttributes;
use authz::rbac::{RbacIndex, bootstrap};
use criterion::{Criterion, criterion_group, criterion_main};
use value::Value;

/// The default objects and `bindings` RoleBindings in one namespace, each with its own user.
fn index(bindings: usize) -> RbacIndex {
    let mut objects = bootstrap::objects(api::features::Features::default());
    objects.extend((0..bindings).map(|i| binding(&format!("binding-{i}"), &format!("user-{i}"), "reader")));
    objects.push(Value::map([
        ("kind", Value::from("ClusterRole")),
        ("metadata", Value::map([("name", "reader")])),
        ("rules", Value::list([rule()])),
    ]));
    RbacIndex::from_objects(&objects)
}

fn binding(name: &str, user: &str, role: &str) -> Value {
    Value::map([
        ("kind", Value::from("RoleBinding")),
        ("metadata", Value::map([("name", name), ("namespace", "default")])),
        ("subjects", Value::list([Value::map([("kind", "User"), ("name", user)])])),
        ("roleRef", Value::map([("kind", "ClusterRole"), ("name", role)])),
    ])
}

fn rule() -> Value {
    Value::map([
        ("apiGroups", Value::list([""])),
        ("resources", Value::list(["pods"])),
        ("verbs", Value::list(["get", "list"])),
    ])
}

fn decisions(criterion: &mut Criterion) {
    for bindings in [10, 10_000, 100_000] {
        let index = index(bindings);
        let user = User::named("user-5").in_groups(["devs", "system:authenticated"]);
        let allowed = AuthorizationAttributes::resource("get", "", "pods").in_namespace("default").named("x");
        let refused =
            AuthorizationAttributes::resource("delete", "", "pods").in_namespace("default").named("x");
        let mut group = criterion.benchmark_group(format!("rbac, {bindings} bindings"));
        group.bench_function("allowed", |b| b.iter(|| index.decide(black_box(&user), black_box(&allowed))));
        group.bench_function("refused", |b| b.iter(|| index.decide(black_box(&user), black_box(&refused))));
        group.finish();
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
