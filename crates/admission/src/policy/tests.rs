//! Limits of policies: stack, cost budget, memory, and the request's deadline.

mod growing_objects;
mod outputs;
mod variable_errors;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use api::attestation::WebhookConfigurationKind;
use api::{GroupResource, GroupVersionKind, Status};
use authn::User;
use value::{Str, Value, yaml};

use super::{
    MutatingPolicies, MutatingPolicy, PolicyBinding, PolicySnapshot, PolicySource, ValidatingPolicies,
    ValidatingPolicy,
};
use crate::expression::{QUICK_COST, take_yielded_cost};
use crate::fake_cluster::FakeCluster;
use crate::webhook::{
    OutgoingReview, Transport, TransportError, ValidatingWebhooks, WebhookReply, WebhookSet,
};
use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AdmissionSnapshot, AsyncPlugin, MutatingRequest,
    NoMetrics, Operation, Reinvocation, VersionedObject,
};

/// A cluster on which the deadline passes after `patience` checks of the clock.
fn clocked(patience: usize, objects: Vec<Value>) -> FakeCluster {
    FakeCluster { patience, ..objects.into_iter().collect() }
}

fn clock_reads(cluster: &FakeCluster) -> usize {
    cluster.clock_reads.load(Ordering::Relaxed)
}

fn read(text: &str) -> Value {
    yaml::read(text.as_bytes()).unwrap().value
}

fn namespace() -> Value {
    read("{apiVersion: v1, kind: Namespace, metadata: {name: team}}")
}

/// A policy named `p` for ConfigMaps, with `spec` added to its spec.
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

fn bindings(spec: &str) -> BTreeMap<Str, Arc<PolicyBinding>> {
    let mut binding = Value::Null;
    binding.set_at(&["metadata", "name"], "b");
    binding.set_at(&["spec"], read(spec));
    binding.set_at(&["spec", "policyName"], "p");
    binding.set_at(&["spec", "validationActions"], Value::list(["Deny"]));
    BTreeMap::from([("b".into(), Arc::new(PolicyBinding::read(&binding)))])
}

fn validating(spec: &str, binding: &str) -> ValidatingPolicies {
    let policies = BTreeMap::from([(
        "p".into(),
        Arc::new(ValidatingPolicy::compile(&policy("ValidatingAdmissionPolicy", spec))),
    )]);
    let stage = ValidatingPolicies::new(Arc::new(NoMetrics));
    stage.replace(PolicySnapshot::new([(PolicySource::Api, &policies, &bindings(binding))]));
    stage
}

fn mutating(spec: &str) -> MutatingPolicies {
    let policies = BTreeMap::from([(
        "p".into(),
        Arc::new(MutatingPolicy::compile(&policy("MutatingAdmissionPolicy", spec))),
    )]);
    let stage = MutatingPolicies::new(Arc::new(NoMetrics));
    stage.replace(PolicySnapshot::new([(PolicySource::Api, &policies, &bindings("{}"))]));
    stage
}

/// An object with a list of `length` numbers.
fn long(length: usize) -> Value {
    let mut object = read("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team}}");
    object.set_at(&["list"], Value::list((0..length).map(|n| i64::try_from(n).unwrap())));
    object
}

fn config_map() -> Value {
    read("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team}, data: {k: v}}")
}

fn with_attributes<T>(run: impl FnOnce(&AdmissionAttributes<'_>) -> T) -> T {
    let (user, options) = (User::named("alice"), Value::Null);
    let kind = GroupVersionKind::new("", "v1", "ConfigMap");
    run(&AdmissionAttributes {
        user: &user,
        operation: Operation::Create,
        kind: kind.clone(),
        stored_kind: kind,
        resource: GroupResource::new("", "configmaps"),
        version: "v1".into(),
        subresource: "".into(),
        namespace: "team".into(),
        name: "c".into(),
        old_object: VersionedObject::absent(),
        options: &options,
        dry_run: false,
        now: 0,
        deadline: Some(Instant::now()),
        budget: value::Budget::UNLIMITED,
        snapshot: AdmissionSnapshot::default(),
    })
}

/// Runs the future; returns its result and how often it yielded.
fn run_counting_yields<T>(future: impl Future<Output = Result<T, Status>>) -> (Result<T, String>, usize) {
    let mut future = std::pin::pin!(future);
    let mut yields = 0;
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => {
                return (done.map_err(|status| format!("{} {status}", status.code())), yields);
            }
            Poll::Pending => yields += 1,
        }
    }
}

fn validate(stage: &dyn AsyncPlugin, object: &Value, cluster: &FakeCluster) -> (Result<(), String>, usize) {
    with_attributes(|attributes| {
        let mut notes = AdmissionNotes::default();
        run_counting_yields(stage.validate(
            attributes,
            &VersionedObject::new(Some(object)),
            cluster,
            &mut notes,
        ))
    })
}

fn mutate(stage: &dyn AsyncPlugin, cluster: &FakeCluster) -> Result<(), String> {
    with_attributes(|attributes| {
        let (mut notes, mut reinvocation, mut object) =
            (AdmissionNotes::default(), Reinvocation::default(), long(300));
        let mut request =
            MutatingRequest { attributes, cluster, notes: &mut notes, reinvocation: &mut reinvocation };
        run_counting_yields(stage.mutate(&mut request, Some(&mut object))).0
    })
}

const NO_DEADLINE: usize = usize::MAX;
const DEADLINE_EXCEEDED: &str = "504 Timeout: request did not complete within requested timeout";

fn assert_deadline_exceeded(outcome: &Result<(), String>) {
    let Err(why) = outcome else { panic!("it was admitted") };
    assert!(
        why.starts_with("504 ") && why.contains("request did not complete within requested timeout"),
        "{why} is not {DEADLINE_EXCEEDED}"
    );
}

/// Variables `a0` to `aN`, each of which reads the previous one.
fn chain(length: usize, first: &str, each: impl Fn(usize) -> String) -> String {
    let mut text = format!("variables: [{{name: a0, expression: '{first}'}}");
    for n in 1..length {
        write!(text, ", {{name: a{n}, expression: '{}'}}", each(n - 1)).unwrap();
    }
    text.push(']');
    text
}

#[test]
fn policy_with_thousands_of_chained_variables_is_evaluated() {
    let variables = chain(3000, "1", |before| format!("variables.a{before} + 1"));
    let cluster = clocked(NO_DEADLINE, vec![namespace()]);
    let admits =
        validating(&format!("{{{variables}, validations: [{{expression: variables.a2999 == 3000}}]}}"), "{}");
    assert_eq!(validate(&admits, &long(0), &cluster).0, Ok(()));
    let denies = validating(
        &format!("{{{variables}, validations: [{{expression: variables.a2999 == 1, message: miscounted}}]}}"),
        "{}",
    );
    let why = validate(&denies, &long(0), &cluster).0.unwrap_err();
    assert!(why.contains("'p' with binding 'b' denied request: miscounted"), "{why}");
}

#[test]
fn too_deeply_nested_variables_fail_by_the_failure_policy() {
    for each in ["[variables.a", "[dyn(variables.a"] {
        let end = if each.ends_with("dyn(variables.a") { ")]" } else { "]" };
        let variables = chain(2000, "[1]", |before| format!("{each}{before}{end}"));
        let validations = "validations: [{expression: variables.a1999.size() == 1}]";
        let cluster = clocked(NO_DEADLINE, vec![namespace()]);
        let fails = validating(&format!("{{failurePolicy: Fail, {variables}, {validations}}}"), "{}");
        let why = validate(&fails, &long(0), &cluster).0.unwrap_err();
        assert!(why.contains("it holds other variables more than 24 levels deep"), "{why}");
        let ignored = validating(&format!("{{failurePolicy: Ignore, {variables}, {validations}}}"), "{}");
        assert_eq!(validate(&ignored, &long(0), &cluster).0, Ok(()));
    }
    let nested = format!("{}1{}", "[".repeat(70), "]".repeat(70));
    let few = chain(24, &nested, |before| format!("{}variables.a{before}{}", "[".repeat(70), "]".repeat(70)));
    let cluster = clocked(NO_DEADLINE, vec![namespace()]);
    let admits =
        validating(&format!("{{{few}, validations: [{{expression: variables.a23.size() == 1}}]}}"), "{}");
    assert_eq!(validate(&admits, &long(0), &cluster).0, Ok(()));
}

/// A patch that changes nothing.
const PATCH: &str = r#"[JSONPatch{op: "test", path: "/metadata/name", value: "c"}]"#;
/// Costs about half of the per-expression limit if the list has 300 elements.
const EXPENSIVE: &str = "object.list.all(x, object.list.all(y, y >= 0))";

#[test]
fn evaluation_of_variables_stops_when_the_cost_budget_is_exhausted() {
    let expensive = |count: usize| {
        let variables: Vec<String> =
            (0..count).map(|n| format!("{{name: v{n}, expression: '{EXPENSIVE}'}}")).collect();
        let all: Vec<String> = (0..count).map(|n| format!("variables.v{n}")).collect();
        format!(
            "{{variables: [{}], matchConditions: [{{name: c, expression: '{}'}}], validations: [{{expression: 'true'}}]}}",
            variables.join(", "),
            all.join(" && ")
        )
    };
    let object = long(300);
    let cluster = clocked(NO_DEADLINE, vec![namespace()]);
    assert_eq!(validate(&validating(&expensive(2), "{}"), &object, &cluster).0, Ok(()));
    let of_two = clock_reads(&cluster);
    let cluster = clocked(NO_DEADLINE, vec![namespace()]);
    let why = validate(&validating(&expensive(40), "{}"), &object, &cluster).0.unwrap_err();
    assert!(why.contains("validation failed due to running out of cost budget"), "{why}");
    assert!(of_two > 100 && clock_reads(&cluster) < 5 * of_two, "{of_two} {}", clock_reads(&cluster));
}

/// Each variable is within the memory limit of an evaluation.
#[test]
fn variables_of_a_policy_share_the_memory_limit() {
    let literal = format!("[{}i]", "0,".repeat(2000));
    let policy = |count: usize| {
        let first = format!("lists.range(300).map(i, {literal})");
        let variables = chain(count, &first, |before| {
            format!("variables.a{before}.size() > 0 ? lists.range(300).map(i, {literal}) : []")
        });
        format!("{{{variables}, validations: [{{expression: variables.a{}.size() == 300}}]}}", count - 1)
    };
    let object = long(0);
    assert_eq!(
        validate(&validating(&policy(2), "{}"), &object, &clocked(NO_DEADLINE, vec![namespace()])).0,
        Ok(())
    );
    let why = validate(&validating(&policy(6), "{}"), &object, &clocked(NO_DEADLINE, vec![namespace()]));
    let why = why.0.unwrap_err();
    assert!(why.contains("operation cancelled: actual cost limit exceeded"), "{why}");
}

#[test]
fn evaluation_yields_after_loops_that_cost_nothing() {
    let stage = |list: &str| {
        let rule = format!("object.list.exists_one(a, object.list.exists_one(b, {list})) || true");
        validating(&format!("{{validations: [{{expression: '{rule}'}}]}}"), "{}")
    };
    let yields = |list: &str, length: usize| {
        let cluster = clocked(NO_DEADLINE, vec![namespace()]);
        let (outcome, yields) = validate(&stage(list), &long(length), &cluster);
        assert_eq!(outcome, Ok(()));
        yields
    };
    assert!(yields("false", 1000) > yields("false", 10));
}

/// Polls a request once. Returns the cost that it yielded with; `None` if it is done.
fn yielded_cost_of_first_turn(future: impl Future<Output = Result<(), Status>>) -> Option<u64> {
    take_yielded_cost();
    let mut future = std::pin::pin!(future);
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    polled.is_pending().then(take_yielded_cost)
}

#[test]
fn an_evaluation_that_takes_long_is_interrupted_and_repeated_outside_of_the_main_runtime() {
    let specs = [
        format!("{{validations: [{{expression: '{EXPENSIVE}'}}]}}"),
        format!(
            "{{matchConditions: [{{name: c, expression: '{EXPENSIVE}'}}], validations: [{{expression: 'true'}}]}}"
        ),
        format!("{{validations: [{{expression: 'false', messageExpression: 'string({EXPENSIVE})'}}]}}"),
        format!("{{auditAnnotations: [{{key: a, valueExpression: 'string({EXPENSIVE})'}}]}}"),
        // Many expressions, each of which is quick.
        format!(
            "{{validations: [{}]}}",
            vec!["{expression: 'object.list.all(x, object.list.slice(0, 30).all(y, y >= 0))'}"; 100]
                .join(", ")
        ),
    ];
    for spec in specs {
        let stage = validating(&spec, "{}");
        let (cluster, object) = (clocked(NO_DEADLINE, vec![namespace()]), long(300));
        let turn = |object: &Value| {
            with_attributes(|attributes| {
                let (mut notes, object) = (AdmissionNotes::default(), VersionedObject::new(Some(object)));
                yielded_cost_of_first_turn(stage.validate(attributes, &object, &cluster, &mut notes))
            })
        };
        assert!(turn(&object).is_some_and(|cost| cost > QUICK_COST), "{spec}");
        let in_first_turn = clock_reads(&cluster);
        assert!(in_first_turn < 600, "{in_first_turn}");
        // With the short list the evaluation is quick, and with the long one it ends when it is repeated.
        assert!(turn(&long(3)).is_none_or(|cost| cost < QUICK_COST), "{spec}");
        let (outcome, _) = validate(&stage, &object, &cluster);
        assert_eq!(outcome.is_ok(), !spec.contains("'false'"), "{outcome:?}");
        assert!(clock_reads(&cluster) > 2 * in_first_turn, "{spec}");
    }
    let mutation = format!(
        "{{mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: '{PATCH}.filter(p, {EXPENSIVE})'}}}}]}}"
    );
    let (stage, cluster) = (mutating(&mutation), clocked(NO_DEADLINE, vec![namespace()]));
    let cost = with_attributes(|attributes| {
        let (mut notes, mut reinvocation, mut object) =
            (AdmissionNotes::default(), Reinvocation::default(), long(300));
        let mut request = MutatingRequest {
            attributes,
            cluster: &cluster,
            notes: &mut notes,
            reinvocation: &mut reinvocation,
        };
        yielded_cost_of_first_turn(stage.mutate(&mut request, Some(&mut object)))
    });
    assert!(cost.is_some_and(|cost| cost > QUICK_COST), "{cost:?}");
    assert!(clock_reads(&cluster) < 600);
    assert_eq!(mutate(&stage, &cluster), Ok(()));
}

#[test]
fn policy_evaluation_ends_at_the_request_deadline() {
    for failure_policy in ["Fail", "Ignore"] {
        let spec =
            format!("{{failurePolicy: {failure_policy}, validations: [{{expression: '{EXPENSIVE}'}}]}}");
        let stage = validating(&spec, "{}");
        assert_eq!(validate(&stage, &long(300), &clocked(NO_DEADLINE, vec![namespace()])).0, Ok(()));
        let cluster = clocked(3, vec![namespace()]);
        assert_deadline_exceeded(&validate(&stage, &long(300), &cluster).0);
        assert!(clock_reads(&cluster) < 10);

        let spec = format!(
            "{{failurePolicy: {failure_policy}, matchConditions: [{{name: c, expression: '{EXPENSIVE}'}}], mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: '{PATCH}'}}}}]}}"
        );
        assert_eq!(mutate(&mutating(&spec), &clocked(NO_DEADLINE, vec![namespace()])), Ok(()));
        assert_deadline_exceeded(&mutate(&mutating(&spec), &clocked(3, vec![namespace()])));
        let spec = format!(
            "{{failurePolicy: {failure_policy}, mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: '{PATCH}.filter(p, {EXPENSIVE})'}}}}]}}"
        );
        assert_deadline_exceeded(&mutate(&mutating(&spec), &clocked(3, vec![namespace()])));
    }
}

#[test]
fn policy_evaluation_yields_between_params_and_checks_the_deadline() {
    let params: Vec<Value> = (0..2000)
        .map(|n| read(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c{n}, namespace: team, labels: {{a: b}}}}}}")))
        .chain([namespace()])
        .collect();
    let stage = validating(
        "{paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: 'has(params.metadata.labels)'}]}",
        "{paramRef: {selector: {matchLabels: {a: b}}, parameterNotFoundAction: Deny}}",
    );
    let cluster = clocked(NO_DEADLINE, params.clone());
    let (outcome, yields) = validate(&stage, &long(0), &cluster);
    assert_eq!(outcome, Ok(()));
    assert!(yields >= 5, "{yields}");
    assert_deadline_exceeded(&validate(&stage, &long(0), &clocked(0, params)).0);
}

/// A transport on which every call fails.
struct FailingTransport;

impl Transport for FailingTransport {
    fn send<'a>(
        &'a self,
        _: OutgoingReview<'a>,
    ) -> AdmissionFuture<'a, Result<WebhookReply, TransportError>> {
        Box::pin(std::future::ready(Err(TransportError::Failed("silence".to_owned()))))
    }

    fn new_uid(&self) -> Str {
        "uid".into()
    }
}

#[test]
fn match_conditions_of_webhooks_end_at_the_request_deadline() {
    let configuration = read(&format!(
        "{{metadata: {{name: w}}, webhooks: [{{name: w.example.com, failurePolicy: Ignore, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {{url: 'https://localhost/'}}, namespaceSelector: {{}}, objectSelector: {{}}, rules: [{{apiGroups: [''], apiVersions: ['*'], operations: ['*'], resources: [configmaps]}}], matchConditions: [{{name: c, expression: '{EXPENSIVE}'}}]}}]}}"
    ));
    let set = Arc::new(WebhookSet::new(WebhookConfigurationKind::Validating));
    set.apply(None, Some(&configuration));
    let stage = ValidatingWebhooks::new(set, Arc::new(FailingTransport), Arc::new(NoMetrics));
    assert_eq!(validate(&stage, &long(300), &clocked(NO_DEADLINE, vec![namespace()])).0, Ok(()));
    assert_deadline_exceeded(&validate(&stage, &long(300), &clocked(3, vec![namespace()])).0);
}
