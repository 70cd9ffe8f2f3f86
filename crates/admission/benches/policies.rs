//! Measures the cost of validating policies for the creation of a pod: with no policies, 100 and 1,000 that match, and 10,000 that
//! do not match.

#[path = "../tests/cluster/mod.rs"]
mod cluster;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use admission::policy::{PolicyBinding, PolicySnapshot, PolicySource, ValidatingPolicies, ValidatingPolicy};
use admission::{
    AdmissionAttributes, AdmissionNotes, AdmissionSnapshot, AsyncPlugin, NoMetrics, Operation,
    VersionedObject,
};
use api::{GroupResource, GroupVersionKind};
use authn::User;
use criterion::{Criterion, criterion_group, criterion_main};
use value::{Str, Value, json};

use cluster::{FakeCluster, wait};

const POD: &str = include_str!("pod.json");

/// Expressions that the policies use in turn.
const EXPRESSIONS: [&str; 5] = [
    "object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",
    "has(object.metadata.labels) && 'app' in object.metadata.labels",
    "object.spec.containers.all(c, c.image.matches('^registry[.]example[.]com/[a-z0-9/-]+:[a-z0-9.]+$'))",
    "!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
    "request.userInfo.username != 'nobody'",
];

fn stage(policies: usize, resource: &str) -> ValidatingPolicies {
    let mut compiled: BTreeMap<Str, Arc<ValidatingPolicy>> = BTreeMap::new();
    let mut bindings: BTreeMap<Str, Arc<PolicyBinding>> = BTreeMap::new();
    for (i, expression) in (0..policies).zip(EXPRESSIONS.into_iter().cycle()) {
        let name = Str::from(format!("policy-{i:05}"));
        let mut policy = Value::Null;
        policy.set_at(&["metadata", "name"], name.clone());
        let rule = Value::map([
            ("apiGroups", Value::list([""])),
            ("apiVersions", Value::list(["v1"])),
            ("operations", Value::list(["CREATE"])),
            ("resources", Value::list([resource])),
        ]);
        policy.set_at(&["spec", "matchConstraints", "resourceRules"], Value::List(vec![rule]));
        for selector in ["namespaceSelector", "objectSelector"] {
            policy.set_at(&["spec", "matchConstraints", selector], value::Map::new());
        }
        policy.set_at(&["spec", "validations"], Value::List(vec![Value::map([("expression", expression)])]));
        compiled.insert(name.clone(), Arc::new(ValidatingPolicy::compile(&policy)));
        let mut binding = Value::Null;
        binding.set_at(&["metadata", "name"], name.clone());
        binding.set_at(&["spec", "policyName"], name.clone());
        binding.set_at(&["spec", "validationActions"], Value::list(["Deny"]));
        bindings.insert(name, Arc::new(PolicyBinding::read(&binding)));
    }
    let stage = ValidatingPolicies::new(Arc::new(NoMetrics));
    stage.replace(PolicySnapshot::new([(PolicySource::Api, &compiled, &bindings)]));
    stage
}

/// Runs the validating phase for the creation of `pod`. Returns whether it was admitted.
fn admit(stage: &ValidatingPolicies, pod: &Value, cluster: &FakeCluster) -> bool {
    let (user, options) = (User::named("alice"), Value::Null);
    let kind = GroupVersionKind::new("", "v1", "Pod");
    let attributes = AdmissionAttributes {
        user: &user,
        operation: Operation::Create,
        kind: kind.clone(),
        stored_kind: kind,
        resource: GroupResource::new("", "pods"),
        version: "v1".into(),
        subresource: "".into(),
        namespace: "team".into(),
        name: "web-0".into(),
        old_object: VersionedObject::absent(),
        options: &options,
        dry_run: true,
        now: 0,
        deadline: None,
        budget: value::Budget::UNLIMITED,
        snapshot: AdmissionSnapshot::default(),
    };
    let seen = VersionedObject::new(Some(pod));
    let mut notes = AdmissionNotes::default();
    wait(stage.validate(&attributes, &seen, cluster, &mut notes)).is_ok()
}

fn run(c: &mut Criterion) {
    let Ok(pod) = json::parse(POD.as_bytes()) else { return };
    let mut namespace = Value::map([("apiVersion", "v1"), ("kind", "Namespace")]);
    namespace.set_at(&["metadata", "name"], "team");
    let cluster: FakeCluster = [namespace].into_iter().collect();
    for (name, count, resource) in [
        ("none", 0, "pods"),
        ("100_matching", 100, "pods"),
        ("1000_matching", 1000, "pods"),
        ("10000_other", 10_000, "secrets"),
    ] {
        let stage = stage(count, resource);
        assert!(admit(&stage, &pod, &cluster), "the pod passes");
        c.bench_function(&format!("policies/{name}"), |b| {
            b.iter(|| black_box(admit(&stage, black_box(&pod), &cluster)));
        });
    }
}

criterion_group!(benches, run);
criterion_main!(benches);
