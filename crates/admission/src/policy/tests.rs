//! What policies may take: of the stack, of the budget, and of the time of a request.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use api::{GroupResource, GroupVersionKind, Status};
use authn::User;
use value::{Str, Value, yaml};

use super::{Binding, Mutating, MutatingPolicy, Snapshot, Source, Validating, ValidatingPolicy};
use crate::small::Small;
use crate::webhook::{NoReply, Outgoing, Reply, Set, Transport, ValidatingWebhooks};
use crate::{Attributes, InForce, Later, Notes, Operation, Pass, Reinvocation, Seen, Stage, Unmetered};

/// A cluster whose clock says that time is up after having been asked so often.
fn clocked(patience: usize, objects: Vec<Value>) -> Small {
    Small { patience, ..objects.into_iter().collect() }
}

fn times_asked(cluster: &Small) -> usize {
    cluster.asked.load(Ordering::Relaxed)
}

fn read(text: &str) -> Value {
    yaml::read(text.as_bytes()).unwrap().value
}

fn namespace() -> Value {
    read("{apiVersion: v1, kind: Namespace, metadata: {name: team}}")
}

/// A policy named `p` about ConfigMaps, with this added to its spec.
fn policy(kind: &str, spec: &str) -> Value {
    let mut policy = read(spec);
    let spec = std::mem::take(&mut policy);
    policy.set_at(&["kind"], kind);
    policy.set_at(&["metadata", "name"], "p");
    policy.set_at(&["spec"], spec);
    let constraints = read(
        "{namespaceSelector: {}, objectSelector: {}, resourceRules: [{apiGroups: [''], apiVersions: ['*'], operations: ['*'], resources: [configmaps]}]}",
    );
    policy.set_at(&["spec", "matchConstraints"], constraints);
    policy
}

fn bindings(spec: &str) -> BTreeMap<Str, Arc<Binding>> {
    let mut binding = Value::Null;
    binding.set_at(&["metadata", "name"], "b");
    binding.set_at(&["spec"], read(spec));
    binding.set_at(&["spec", "policyName"], "p");
    binding.set_at(&["spec", "validationActions"], Value::list(["Deny"]));
    BTreeMap::from([("b".into(), Arc::new(Binding::read(&binding)))])
}

fn validating(spec: &str, binding: &str) -> Validating {
    let policies = BTreeMap::from([(
        "p".into(),
        Arc::new(ValidatingPolicy::compile(&policy("ValidatingAdmissionPolicy", spec))),
    )]);
    let stage = Validating::new(Arc::new(Unmetered));
    stage.replace(Snapshot::new([(Source::Api, &policies, &bindings(binding))]));
    stage
}

fn mutating(spec: &str) -> Mutating {
    let policies = BTreeMap::from([(
        "p".into(),
        Arc::new(MutatingPolicy::compile(&policy("MutatingAdmissionPolicy", spec))),
    )]);
    let stage = Mutating::new(Arc::new(Unmetered));
    stage.replace(Snapshot::new([(Source::Api, &policies, &bindings("{}"))]));
    stage
}

/// An object with a list of so many numbers.
fn long(length: usize) -> Value {
    let mut object = read("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team}}");
    object.set_at(&["list"], Value::list((0..length).map(|n| i64::try_from(n).unwrap())));
    object
}

fn with_attributes<T>(run: impl FnOnce(&Attributes<'_>) -> T) -> T {
    let (user, options) = (User::named("alice"), Value::Null);
    let kind = GroupVersionKind::new("", "v1", "ConfigMap");
    run(&Attributes {
        user: &user,
        operation: Operation::Create,
        kind: kind.clone(),
        stored_kind: kind,
        resource: GroupResource::new("", "configmaps"),
        version: "v1".into(),
        subresource: "".into(),
        namespace: "team".into(),
        name: "c".into(),
        old_object: Seen::nothing(),
        options: &options,
        dry_run: false,
        now: 0,
        deadline: Some(Instant::now()),
        in_force: InForce::default(),
    })
}

/// What came of it, and how often others could run meanwhile.
fn to_the_end<T>(future: impl Future<Output = Result<T, Status>>) -> (Result<T, String>, usize) {
    let mut future = std::pin::pin!(future);
    let mut rests = 0;
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => {
                return (done.map_err(|status| format!("{} {status}", status.code())), rests);
            }
            Poll::Pending => rests += 1,
        }
    }
}

fn ask(stage: &dyn Stage, object: &Value, cluster: &Small) -> (Result<(), String>, usize) {
    with_attributes(|attributes| {
        let mut notes = Notes::default();
        to_the_end(stage.validate(attributes, &Seen::new(Some(object)), cluster, &mut notes))
    })
}

fn ask_mutating(stage: &dyn Stage, cluster: &Small) -> Result<(), String> {
    with_attributes(|attributes| {
        let (mut notes, mut passes, mut object) = (Notes::default(), Reinvocation::default(), long(300));
        let mut pass = Pass { attributes, cluster, notes: &mut notes, passes: &mut passes };
        to_the_end(stage.mutate(&mut pass, Some(&mut object))).0
    })
}

const PATIENT: usize = usize::MAX;
const LATE: &str = "504 Timeout: request did not complete within requested timeout";

fn is_late(outcome: &Result<(), String>) {
    let Err(why) = outcome else { panic!("it was admitted") };
    assert!(
        why.starts_with("504 ") && why.contains("request did not complete within requested timeout"),
        "{why} is not {LATE}"
    );
}

/// Variables `a0` to `aN`, each of which reads the one before it.
fn chain(length: usize, first: &str, each: impl Fn(usize) -> String) -> String {
    let mut text = format!("variables: [{{name: a0, expression: '{first}'}}");
    for n in 1..length {
        write!(text, ", {{name: a{n}, expression: '{}'}}", each(n - 1)).unwrap();
    }
    text.push(']');
    text
}

#[test]
fn thousands_of_variables_that_read_each_other_are_computed() {
    let variables = chain(3000, "1", |before| format!("variables.a{before} + 1"));
    let cluster = clocked(PATIENT, vec![namespace()]);
    let admits =
        validating(&format!("{{{variables}, validations: [{{expression: variables.a2999 == 3000}}]}}"), "{}");
    assert_eq!(ask(&admits, &long(0), &cluster).0, Ok(()));
    let denies = validating(
        &format!("{{{variables}, validations: [{{expression: variables.a2999 == 1, message: miscounted}}]}}"),
        "{}",
    );
    let why = ask(&denies, &long(0), &cluster).0.unwrap_err();
    assert!(why.contains("'p' with binding 'b' denied request: miscounted"), "{why}");
}

#[test]
fn variables_that_hold_each_other_endlessly_fail_as_the_policy_says() {
    for each in ["[variables.a", "[dyn(variables.a"] {
        let end = if each.ends_with("dyn(variables.a") { ")]" } else { "]" };
        let variables = chain(2000, "[1]", |before| format!("{each}{before}{end}"));
        let validations = "validations: [{expression: variables.a1999.size() == 1}]";
        let cluster = clocked(PATIENT, vec![namespace()]);
        let fails = validating(&format!("{{failurePolicy: Fail, {variables}, {validations}}}"), "{}");
        let why = ask(&fails, &long(0), &cluster).0.unwrap_err();
        assert!(why.contains("it holds other variables more than 24 levels deep"), "{why}");
        let ignored = validating(&format!("{{failurePolicy: Ignore, {variables}, {validations}}}"), "{}");
        assert_eq!(ask(&ignored, &long(0), &cluster).0, Ok(()));
    }
    let nested = format!("{}1{}", "[".repeat(70), "]".repeat(70));
    let few = chain(24, &nested, |before| format!("{}variables.a{before}{}", "[".repeat(70), "]".repeat(70)));
    let cluster = clocked(PATIENT, vec![namespace()]);
    let admits =
        validating(&format!("{{{few}, validations: [{{expression: variables.a23.size() == 1}}]}}"), "{}");
    assert_eq!(ask(&admits, &long(0), &cluster).0, Ok(()));
}

/// A patch that changes nothing.
const PATCH: &str = r#"[JSONPatch{op: "test", path: "/metadata/name", value: "c"}]"#;
/// Costs about half as much as one expression may, with a list of 300.
const DEAR: &str = "object.list.all(x, object.list.all(y, y >= 0))";

#[test]
fn variables_are_computed_only_while_there_is_budget() {
    let dear = |count: usize| {
        let variables: Vec<String> =
            (0..count).map(|n| format!("{{name: v{n}, expression: '{DEAR}'}}")).collect();
        let all: Vec<String> = (0..count).map(|n| format!("variables.v{n}")).collect();
        format!(
            "{{variables: [{}], matchConditions: [{{name: c, expression: '{}'}}], validations: [{{expression: 'true'}}]}}",
            variables.join(", "),
            all.join(" && ")
        )
    };
    let object = long(300);
    let cluster = clocked(PATIENT, vec![namespace()]);
    assert_eq!(ask(&validating(&dear(2), "{}"), &object, &cluster).0, Ok(()));
    let of_two = times_asked(&cluster);
    let cluster = clocked(PATIENT, vec![namespace()]);
    let why = ask(&validating(&dear(40), "{}"), &object, &cluster).0.unwrap_err();
    assert!(why.contains("validation failed due to running out of cost budget"), "{why}");
    assert!(of_two > 100 && times_asked(&cluster) < 5 * of_two, "{of_two} {}", times_asked(&cluster));
}

#[test]
fn evaluation_ends_with_the_time_of_the_request() {
    for failures in ["Fail", "Ignore"] {
        let spec = format!("{{failurePolicy: {failures}, validations: [{{expression: '{DEAR}'}}]}}");
        let stage = validating(&spec, "{}");
        assert_eq!(ask(&stage, &long(300), &clocked(PATIENT, vec![namespace()])).0, Ok(()));
        let cluster = clocked(3, vec![namespace()]);
        is_late(&ask(&stage, &long(300), &cluster).0);
        assert!(times_asked(&cluster) < 10);

        let spec = format!(
            "{{failurePolicy: {failures}, matchConditions: [{{name: c, expression: '{DEAR}'}}], mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: '{PATCH}'}}}}]}}"
        );
        assert_eq!(ask_mutating(&mutating(&spec), &clocked(PATIENT, vec![namespace()])), Ok(()));
        is_late(&ask_mutating(&mutating(&spec), &clocked(3, vec![namespace()])));
        let spec = format!(
            "{{failurePolicy: {failures}, mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: '{PATCH}.filter(p, {DEAR})'}}}}]}}"
        );
        is_late(&ask_mutating(&mutating(&spec), &clocked(3, vec![namespace()])));
    }
}

#[test]
fn others_run_between_parameters_and_a_late_request_ends_there() {
    let params: Vec<Value> = (0..2000)
        .map(|n| read(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c{n}, namespace: team, labels: {{a: b}}}}}}")))
        .chain([namespace()])
        .collect();
    let stage = validating(
        "{paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: 'has(params.metadata.labels)'}]}",
        "{paramRef: {selector: {matchLabels: {a: b}}, parameterNotFoundAction: Deny}}",
    );
    let cluster = clocked(PATIENT, params.clone());
    let (outcome, rests) = ask(&stage, &long(0), &cluster);
    assert_eq!(outcome, Ok(()));
    assert!(rests >= 5, "{rests}");
    is_late(&ask(&stage, &long(0), &clocked(0, params)).0);
}

/// Nobody is called here.
struct Silent;

impl Transport for Silent {
    fn send<'a>(&'a self, _: Outgoing<'a>) -> Later<'a, Result<Reply, NoReply>> {
        Box::pin(std::future::ready(Err(NoReply::Failed("silence".to_owned()))))
    }

    fn uid(&self) -> Str {
        "uid".into()
    }
}

#[test]
fn the_conditions_of_webhooks_end_with_the_time_of_the_request() {
    let configuration = read(&format!(
        "{{metadata: {{name: w}}, webhooks: [{{name: w.example.com, failurePolicy: Ignore, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {{url: 'https://localhost/'}}, namespaceSelector: {{}}, objectSelector: {{}}, rules: [{{apiGroups: [''], apiVersions: ['*'], operations: ['*'], resources: [configmaps]}}], matchConditions: [{{name: c, expression: '{DEAR}'}}]}}]}}"
    ));
    let set = Arc::new(Set::default());
    set.apply(None, Some(&configuration));
    let stage = ValidatingWebhooks::new(set, Arc::new(Silent), Arc::new(Unmetered));
    assert_eq!(ask(&stage, &long(300), &clocked(PATIENT, vec![namespace()])).0, Ok(()));
    is_late(&ask(&stage, &long(300), &clocked(3, vec![namespace()])).0);
}
