//! Benchmarks server-side apply on a pod shared by five managers, and the cost of field tracking for other writes.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use schema::Schema;
use schema::apply::{
    ApplyResult, FieldManagement, Managers, Reset, ServedVersions, Unconverted, managed_fields,
};
use value::{Value, yaml};

const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: web-0
  namespace: shop
  labels: {app: web, tier: front, version: v1, release: stable}
  annotations: {example.com/owner: shop, example.com/cost: '17', example.com/note: kept}
  finalizers: [example.com/drain]
spec:
  serviceAccountName: web
  nodeSelector: {disk: ssd}
  tolerations: [{key: dedicated, operator: Exists}]
  containers:
  - name: app
    image: registry.example.com/shop/web:1.4
    command: [serve, --port=8080]
    env:
    - {name: A, value: '1'}
    - {name: B, value: '2'}
    - {name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    ports: [{containerPort: 8080, name: http}, {containerPort: 9090, name: metrics}]
    resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
    volumeMounts: [{name: data, mountPath: /data}, {name: config, mountPath: /config}]
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 5}
  - name: proxy
    image: registry.example.com/mesh/proxy:2.0
    ports: [{containerPort: 15001, name: mesh}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: config, configMap: {name: web}}
";

/// The configurations of the other four managers.
const OTHERS: [(&str, &str); 4] = [
    (
        "mesh",
        "{metadata: {annotations: {mesh.example.com/injected: 'true'}}, spec: {containers: [{name: proxy, env: [{name: MESH, value: 'on'}]}]}}",
    ),
    (
        "security",
        "{spec: {securityContext: {runAsNonRoot: true}, containers: [{name: app, securityContext: {readOnlyRootFilesystem: true}}]}}",
    ),
    ("cost", "{metadata: {labels: {cost-centre: '42'}}}"),
    ("backup", "{metadata: {finalizers: [example.com/backup]}}"),
];

struct Alone;

impl ServedVersions for Alone {
    fn schema(&self, _: &str) -> Option<&Schema> {
        None
    }

    fn convert(&self, _: &Value, _: &str) -> Result<Value, Unconverted> {
        Err(Unconverted::NoSuchVersion)
    }
}

fn read(text: &str) -> Value {
    yaml::body(text.as_bytes()).map(|body| body.value).unwrap_or_default()
}

fn config(text: &str) -> Value {
    let mut config = read(text);
    config.set_at(&["apiVersion"], "v1");
    config.set_at(&["kind"], "Pod");
    config
}

fn stored(mut object: Value, schema: &Schema) -> Value {
    schema::decode::normalize(&mut object, schema);
    schema::decode::fill(&mut object, schema);
    object.set_at(&["metadata", "uid"], "11111111-1111-1111-1111-111111111111");
    object
}

fn benches(c: &mut Criterion) {
    let Some(schema) = schema::of("", "v1", "Pod") else { return };
    let reset = Reset::without(&["status"]);
    let management = FieldManagement {
        api_version: "v1",
        schema,
        subresource: "",
        reset: &reset,
        versions: &Alone,
        now: 1_800_000_000,
    };
    let mut empty = config("{}");
    schema::decode::fill(&mut empty, schema);
    let own = config(POD);
    let mut live = empty.clone();
    for (manager, text) in std::iter::once(("app", POD)).chain(OTHERS) {
        let object = match management.apply(&live, &empty, &config(text), manager, false) {
            Ok(ApplyResult { object }) => object,
            Err(refusal) => {
                eprintln!("{manager} is refused: {}", refusal.into_status().message());
                std::process::exit(1);
            }
        };
        live = stored(object, schema);
    }
    let mut changed = own.clone();
    changed.set_at(&["metadata", "labels", "version"], "v2");
    let mut less = own.clone();
    less.remove_at(&["spec", "tolerations"]);

    c.bench_function("apply/five_managers/unchanged", |b| {
        b.iter(|| management.apply(black_box(&live), &empty, black_box(&own), "app", false));
    });
    c.bench_function("apply/five_managers/one_label", |b| {
        b.iter(|| management.apply(black_box(&live), &empty, black_box(&changed), "app", false));
    });
    c.bench_function("apply/five_managers/one_field_removed", |b| {
        b.iter(|| management.apply(black_box(&live), &empty, black_box(&less), "app", false));
    });
    let mut updated = live.clone();
    updated.set_at(&["metadata", "labels", "version"], "v2");
    c.bench_function("track/five_managers/one_label", |b| {
        b.iter(|| management.track(black_box(&live), black_box(&updated), "web"));
    });
    let created = stored(own, schema);
    c.bench_function("track/create", |b| b.iter(|| management.track(&empty, black_box(&created), "web")));
    c.bench_function("managed_fields/five_managers/read", |b| {
        b.iter(|| Managers::decode(black_box(managed_fields(&live))));
    });
}

criterion_group!(all, benches);
criterion_main!(all);
