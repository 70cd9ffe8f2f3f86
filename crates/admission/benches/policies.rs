//! What policies cost a request: a pod is created past none, a hundred and a thousand policies that match, and ten thousand that do not.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use admission::policy::{Binding, Snapshot, Source, Validating, ValidatingPolicy};
use admission::{Attributes, Cluster, InForce, Later, Notes, Operation, Seen, Served, Stage, Unmetered};
use api::{GroupResource, GroupVersionKind};
use authn::User;
use criterion::{Criterion, criterion_group, criterion_main};
use value::{Str, Value, json};

const POD: &str = include_str!("pod.json");

/// The expressions that policies take in turn.
const EXPRESSIONS: [&str; 5] = [
    "object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",
    "has(object.metadata.labels) && 'app' in object.metadata.labels",
    "object.spec.containers.all(c, c.image.matches('^registry[.]example[.]com/[a-z0-9/-]+:[a-z0-9.]+$'))",
    "!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
    "request.userInfo.username != 'nobody'",
];

/// One namespace, and pods in one version.
struct Small {
    namespace: Arc<Value>,
}

impl Cluster for Small {
    fn object(&self, _: &str, resource: &str, _: &str, _: &str) -> Option<Arc<Value>> {
        (resource == "namespaces").then(|| Arc::clone(&self.namespace))
    }

    fn list(&self, _: &str, _: &str, _: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn served(&self, _: &GroupVersionKind) -> Option<Served> {
        None
    }

    fn equivalents(&self, resource: &GroupResource, version: &str) -> Vec<Served> {
        let kind = GroupVersionKind::new("", version, "Pod");
        vec![Served { resource: resource.clone(), kind, namespaced: true }]
    }

    fn convert<'a>(&'a self, object: &'a Value, _: &'a GroupVersionKind) -> Later<'a, Result<Value, String>> {
        Box::pin(std::future::ready(Ok(object.clone())))
    }

    fn adopt<'a>(
        &'a self,
        object: Value,
        _: &'a GroupVersionKind,
        _: bool,
    ) -> Later<'a, Result<Value, String>> {
        Box::pin(std::future::ready(Ok(object)))
    }

    fn is_past(&self, _: std::time::Instant) -> bool {
        false
    }

    fn schema(&self, _: &GroupVersionKind) -> Option<resources::schema::Link> {
        None
    }

    fn authorize<'a>(&'a self, _: &'a User, _: &'a authz::Attributes) -> Later<'a, authz::Answer> {
        Box::pin(std::future::ready(authz::Answer::no_opinion("")))
    }
}

fn stage(policies: usize, resource: &str) -> Validating {
    let mut compiled: BTreeMap<Str, Arc<ValidatingPolicy>> = BTreeMap::new();
    let mut bindings: BTreeMap<Str, Arc<Binding>> = BTreeMap::new();
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
        bindings.insert(name, Arc::new(Binding::read(&binding)));
    }
    let stage = Validating::new(Arc::new(Unmetered));
    stage.replace(Snapshot::new([(Source::Api, &compiled, &bindings)]));
    stage
}

/// One request past the stage; whether it was allowed.
fn admit(stage: &Validating, pod: &Value, cluster: &Small) -> bool {
    let (user, options) = (User::named("alice"), Value::Null);
    let kind = GroupVersionKind::new("", "v1", "Pod");
    let attributes = Attributes {
        user: &user,
        operation: Operation::Create,
        kind: kind.clone(),
        stored_kind: kind,
        resource: GroupResource::new("", "pods"),
        version: "v1".into(),
        subresource: "".into(),
        namespace: "team".into(),
        name: "web-0".into(),
        old_object: Seen::nothing(),
        options: &options,
        dry_run: true,
        now: 0,
        deadline: None,
        in_force: InForce::default(),
    };
    let seen = Seen::new(Some(pod));
    let mut notes = Notes::default();
    let mut outcome = stage.validate(&attributes, &seen, cluster, &mut notes);
    loop {
        // It waits for nothing but its turn.
        if let Poll::Ready(outcome) = outcome.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return outcome.is_ok();
        }
    }
}

fn run(c: &mut Criterion) {
    let Ok(pod) = json::parse(POD.as_bytes()) else { return };
    let mut namespace = Value::Null;
    namespace.set_at(&["metadata", "name"], "team");
    let cluster = Small { namespace: Arc::new(namespace) };
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
