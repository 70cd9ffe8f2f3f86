//! Checks that the cost of every plugin grows linearly with the length of every list field.
//!
//! The cases are those of `crates/kinds/tests/linear`, which measures the other stages of a write: each list field of every type, 1,000 and
//! 10,000 items long. Each plugin runs alone, on a create, on updates that change, add and remove the list, and on updates of
//! subresources. Ten times as many items may take at most fifteen times as many accesses to the trees (`value::steps`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "../../kinds/tests/linear/cases.rs"]
mod cases;
mod cluster;
#[path = "../../kinds/tests/linear/samples.rs"]
mod samples;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use admission::plugins::PluginSettings;
use admission::plugins::event_rate_limit::EventLimit;
use admission::{
    AdmissionAttributes, AdmissionNotes, AdmissionSnapshot, ChainConfig, Operation, PluginChain,
    PluginSelection, VersionedObject,
};
use api::{GroupResource, GroupVersionKind, Status, meta};
use authn::User;
use value::{Budget, Value, steps, yaml};

use cases::{LinearCase, cases};
use cluster::{FakeCluster, wait};
use samples::{SampleStyle, bare_object, object, read_object};

const SHORT: usize = 1000;
const LONG: usize = 10_000;
const FACTOR: u64 = 15;

/// Objects that make the plugins look at requests: a strict namespace, defaults and limits.
const OBJECTS: &str = r#"
- apiVersion: v1
  kind: Namespace
  metadata:
    name: default
    labels:
      pod-security.kubernetes.io/enforce: restricted
      pod-security.kubernetes.io/audit: baseline
      pod-security.kubernetes.io/warn: restricted
    annotations:
      scheduler.alpha.kubernetes.io/node-selector: "disk=ssd"
      scheduler.alpha.kubernetes.io/defaultTolerations: '[{"key": "a", "operator": "Exists"}]'
      scheduler.alpha.kubernetes.io/tolerationsWhitelist: '[{"operator": "Exists"}]'
- apiVersion: v1
  kind: LimitRange
  metadata: {name: limits, namespace: default}
  spec:
    limits:
    - {type: Container, default: {cpu: "1"}, defaultRequest: {cpu: "1"}, min: {cpu: 1m}, max: {cpu: "2"}}
    - {type: Pod, max: {cpu: "2", memory: 1Gi}}
    - {type: PersistentVolumeClaim, max: {storage: 1Gi}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: default}, secrets: [{name: s}], imagePullSecrets: [{name: s}]}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: normal}, value: 1, globalDefault: true}
- {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: normal, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}
- {apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: normal, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}}
- {apiVersion: v1, kind: Node, metadata: {name: thing, labels: {zone: a}}}
- {apiVersion: v1, kind: Pod, metadata: {name: thing, namespace: default, uid: u}, spec: {nodeName: thing, containers: [{name: c}]}}
"#;

fn world() -> FakeCluster {
    let objects = yaml::document(OBJECTS.as_bytes()).unwrap().value.as_list().unwrap().to_vec();
    FakeCluster { may: |_, _| true, ..objects.into_iter().collect() }
}

/// A chain for each plugin that does not need a server.
fn chains() -> Vec<(&'static str, PluginChain)> {
    let settings = PluginSettings {
        node_selectors: BTreeMap::from([("clusterDefaultNodeSelector".to_owned(), "a=b".to_owned())]),
        event_limits: vec![EventLimit { kind: "SourceAndObject".into(), qps: 1, burst: 1, size: 10 }],
        ..PluginSettings::default()
    };
    let config = ChainConfig { settings, ..ChainConfig::default() };
    let all: Vec<&str> = PluginSelection::known_plugins().collect();
    let chain = |name: &'static str| {
        let others: Vec<String> =
            all.iter().filter(|other| **other != name).map(|other| (*other).to_owned()).collect();
        let chain = PluginChain::new(&[name.to_owned()], &others, &config).ok()?;
        (chain.plugins().count() == 1).then_some((name, chain))
    };
    all.iter().filter_map(|name| chain(name)).collect()
}

/// A request with an object of a case.
struct PluginRequest<'a> {
    case: &'a LinearCase,
    operation: Operation,
    subresource: &'a str,
    old: Option<&'a Value>,
    new: &'a Value,
}

impl PluginRequest<'_> {
    fn attributes<'o>(
        &'o self,
        user: &'o User,
        options: &'o Value,
        budget: Budget,
    ) -> AdmissionAttributes<'o> {
        let kind = GroupVersionKind::new(self.case.kind.group, self.case.version, self.case.kind.kind);
        let group = if self.subresource == "token" { "" } else { self.case.kind.group };
        let is_namespace = self.case.kind.plural == "namespaces";
        AdmissionAttributes {
            user,
            operation: self.operation,
            stored_kind: kind.clone(),
            version: kind.version.clone(),
            kind,
            resource: GroupResource::new(group, self.case.kind.plural),
            subresource: self.subresource.into(),
            namespace: if is_namespace { "thing" } else { meta::namespace(self.new) }.into(),
            name: "thing".into(),
            old_object: VersionedObject::new(self.old),
            options,
            dry_run: false,
            now: 1_700_000_000,
            deadline: None,
            budget,
            snapshot: AdmissionSnapshot::default(),
        }
    }

    /// Runs both phases of every plugin, and counts the steps of each. Plugins see the changes of those before them.
    fn measure(&self, chains: &[(&'static str, PluginChain)], cluster: &FakeCluster) -> Vec<(String, u64)> {
        let user = User::named("system:node:thing").in_groups(["system:nodes"]);
        let mut object = self.new.clone();
        let mut measured = Vec::new();
        for phase in ["mutates", "validates"] {
            for (name, chain) in chains {
                let attributes = self.attributes(&user, &Value::Null, Budget::UNLIMITED);
                let mut notes = AdmissionNotes::default();
                let steps = steps::of(|| {
                    let _ = if phase == "mutates" {
                        wait(chain.mutate(&attributes, Some(&mut object), cluster, &mut notes))
                    } else {
                        wait(chain.validate(&attributes, Some(&object), cluster, &mut notes))
                    };
                });
                let request = format!("{} {}", self.operation.as_str(), self.subresource);
                measured.push((format!("{name} {phase} {}", request.trim_end()), steps));
            }
        }
        measured
    }
}

/// The steps of all plugins for the requests with lists of a length.
fn measure(
    case: &LinearCase,
    (length, style): (usize, SampleStyle),
    chains: &[(&'static str, PluginChain)],
    cluster: &FakeCluster,
) -> Vec<(String, u64)> {
    let object = read_object(case, &object(case, length, style));
    let bare = read_object(case, &bare_object(case));
    let mut changed = object.clone();
    changed.set_at(&["metadata", "labels", "changed"], "yes");
    let request = |operation, subresource, old, new| PluginRequest { case, operation, subresource, old, new };
    if !case.kind.subresource.is_empty() {
        let posted = request(Operation::Create, case.kind.subresource, None, &object);
        return posted.measure(chains, cluster);
    }
    let mut requests = vec![
        request(Operation::Create, "", None, &object),
        request(Operation::Update, "", Some(&object), &changed),
    ];
    if style != SampleStyle::Valid {
        return requests.iter().flat_map(|request| request.measure(chains, cluster)).collect();
    }
    requests.extend([
        request(Operation::Update, "", Some(&bare), &object),
        request(Operation::Update, "", Some(&object), &bare),
        request(Operation::Update, "status", Some(&object), &changed),
    ]);
    let others: &[&str] = match case.kind.plural {
        "pods" => &["resize", "ephemeralcontainers"],
        "certificatesigningrequests" => &["approval"],
        _ => &[],
    };
    requests.extend(others.iter().map(|other| request(Operation::Update, other, Some(&bare), &object)));
    requests.iter().flat_map(|request| request.measure(chains, cluster)).collect()
}

/// The plugins that take too many steps for a case.
fn check(case: &LinearCase, style: SampleStyle, chains: &[(&'static str, PluginChain)]) -> Vec<String> {
    let cluster = world();
    let short = measure(case, (SHORT, style), chains, &cluster);
    let long = measure(case, (LONG, style), chains, &cluster);
    assert_eq!(short.len(), long.len());
    let pairs = short.into_iter().zip(long);
    let is_too_much = pairs.filter(|((_, short), (_, long))| *long > short.saturating_mul(FACTOR));
    let problem = |((plugin, short), (_, long)): ((String, u64), (String, u64))| {
        format!("{plugin}: {} in {}, {style:?}: {short} steps, then {long}", case.name, case.kind)
    };
    is_too_much.map(problem).collect()
}

#[test]
fn ten_times_as_many_items_take_plugins_at_most_fifteen_times_as_many_steps() {
    let (cases, chains) = (cases(), chains());
    assert_eq!(cases.len(), 464);
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for style in [SampleStyle::Valid, SampleStyle::Invalid, SampleStyle::Equal] {
                        wrong.lock().unwrap().extend(check(case, style, &chains));
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort_unstable();
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_plugin_that_needs_no_server_is_measured() {
    let chains = chains();
    let missing: Vec<&str> = PluginSelection::known_plugins()
        .filter(|name| !chains.iter().any(|(known, _)| known == name))
        .collect();
    assert_eq!(
        missing,
        [
            "NamespaceAutoProvision",
            "ImagePolicyWebhook",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionWebhook",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionWebhook",
            "ResourceQuota",
        ]
    );
}

#[test]
fn the_budget_of_the_request_interrupts_a_plugin() {
    let case = cases().into_iter().find(|case| case.name == "core.v1.PodSpec.containers").unwrap();
    let object = object(&case, LONG, SampleStyle::Valid);
    let request =
        PluginRequest { case: &case, operation: Operation::Create, subresource: "", old: None, new: &object };
    let (_, chain) = chains().into_iter().find(|(name, _)| *name == "AlwaysPullImages").unwrap();
    let (user, cluster) = (User::named("alice"), world());
    let run = |budget: &Budget| -> [Result<(), Status>; 2] {
        let attributes = request.attributes(&user, &Value::Null, budget.clone());
        let (mut notes, mut object) = (AdmissionNotes::default(), object.clone());
        let mutated = wait(chain.mutate(&attributes, Some(&mut object), &cluster, &mut notes));
        let attributes = request.attributes(&user, &Value::Null, budget.clone());
        [mutated, wait(chain.validate(&attributes, Some(&object), &cluster, &mut notes))]
    };
    for result in run(&Budget::new(u64::MAX)) {
        result.unwrap();
    }
    // The rest of the work is not done.
    let few = Budget::new(1000);
    for result in run(&few) {
        assert_eq!(result.unwrap_err().code(), 413);
    }
    assert!(few.spent() < 1000 + 2000, "{}", few.spent());
    let canceled = Budget::new(u64::MAX);
    canceled.cancel();
    for result in run(&canceled) {
        assert_eq!(result.unwrap_err().code(), 504);
    }
}
