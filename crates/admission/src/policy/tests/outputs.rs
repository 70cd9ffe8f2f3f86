//! The total size of messages, warnings, audit annotations and failures.

use super::super::evaluate::evaluate;
use super::*;
use crate::expression::{Activations, AuthorizerDecisions, ExpressionInput};
use crate::matching::RequestContext;

/// Number of causes and bytes of the causes if `count` mutations fail with long expressions.
fn causes(count: usize, length: usize) -> (usize, usize) {
    let text = "a".repeat(length);
    let mutation = format!(
        "{{patchType: JSONPatch, jsonPatch: {{expression: '[JSONPatch{{op: \"add\", path: object.missing, value: \"{text}\"}}]'}}}}"
    );
    let mutations = vec![mutation; count].join(", ");
    let stage = mutating(&format!("{{failurePolicy: Fail, mutations: [{mutations}]}}"));
    let cluster = clocked(NO_DEADLINE, vec![namespace()]);
    let mut object = config_map();
    let status = with_attributes(|attributes| {
        let (mut notes, mut reinvocation) = (AdmissionNotes::default(), Reinvocation::default());
        let mut request = MutatingRequest {
            attributes,
            cluster: &cluster,
            notes: &mut notes,
            reinvocation: &mut reinvocation,
        };
        crate::fake_cluster::wait(stage.mutate(&mut request, Some(&mut object))).unwrap_err()
    });
    let causes = &status.details().unwrap().causes;
    (causes.len(), causes.iter().map(|cause| cause.message.len()).sum())
}

#[test]
fn the_failures_of_mutations_are_listed_up_to_a_number_and_size() {
    assert_eq!(causes(100, 10).0, 100);
    assert_eq!(causes(600, 10).0, 500);
    let (count, bytes) = causes(50, 100_000);
    assert!(count >= 10 && bytes < 1_200_000, "{count} {bytes}");
}

/// Evaluates a policy with many parameters, with the actions `Warn` and `Audit`.
fn notes_with_params(params: usize, spec: &str) -> AdmissionNotes {
    let binding = "{paramRef: {selector: {matchLabels: {a: b}}, parameterNotFoundAction: Deny}}";
    let param = |n: usize| {
        read(&format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c{n}, namespace: team, labels: {{a: b}}}}}}"
        ))
    };
    let cluster = clocked(NO_DEADLINE, (0..params).map(param).chain([namespace()]).collect());
    let spec = format!("{{paramKind: {{apiVersion: v1, kind: ConfigMap}}, {spec}}}");
    let compiled = Arc::new(ValidatingPolicy::compile(&policy("ValidatingAdmissionPolicy", &spec)));
    let mut object = Value::map([("metadata", Value::map([("name", "b")])), ("spec", read(binding))]);
    object.set_at(&["spec", "policyName"], "p");
    object.set_at(&["spec", "validationActions"], Value::list(["Warn", "Audit"]));
    let bindings = BTreeMap::from([("b".into(), Arc::new(PolicyBinding::read(&object)))]);
    let stage = ValidatingPolicies::new(Arc::new(NoMetrics));
    stage.replace(PolicySnapshot::new([(
        PolicySource::Api,
        &BTreeMap::from([("p".into(), compiled)]),
        &bindings,
    )]));
    with_attributes(|attributes| {
        let (mut notes, object) = (AdmissionNotes::default(), long(0));
        let seen = VersionedObject::new(Some(&object));
        crate::fake_cluster::wait(stage.validate(attributes, &seen, &cluster, &mut notes)).unwrap();
        notes
    })
}

/// Bytes of the warnings, and of the values of the annotations.
fn bytes(notes: &AdmissionNotes) -> (usize, usize) {
    let warnings = notes.warnings.iter().map(String::len).sum();
    (warnings, notes.annotations.iter().map(|annotation| annotation.value.len()).sum())
}

#[test]
fn warnings_and_audit_annotations_of_two_parameters_are_complete() {
    let notes = notes_with_params(
        2,
        "validations: [{expression: 'false', messageExpression: string(params.metadata.name)}], auditAnnotations: [{key: seen, valueExpression: string(params.metadata.name)}]",
    );
    let prefix = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': c";
    assert_eq!(notes.warnings, [format!("{prefix}0"), format!("{prefix}1")]);
    let values: Vec<&str> = notes.annotations.iter().map(|annotation| annotation.value.as_str()).collect();
    let failure = |name: &str| {
        format!(
            r#"{{"message":"{name}","policy":"p","binding":"b","expressionIndex":0,"validationActions":["Warn","Audit"]}}"#
        )
    };
    assert_eq!(values, ["c0, c1", &format!("[{},{}]", failure("c0"), failure("c1"))]);
}

#[test]
fn warnings_and_audit_annotations_of_many_parameters_use_bounded_memory() {
    let long = format!("{{expression: \"params.metadata.name == '{}'\"}}", "a".repeat(50_000));
    let (warned, annotated) = bytes(&notes_with_params(300, &format!("validations: [{long}]")));
    assert!(warned < 1 << 20 && annotated < 1 << 20, "{warned} {annotated}");

    let text = "a".repeat(9000);
    let annotations: Vec<String> = (0..5)
        .map(|n| format!("{{key: k{n}, valueExpression: \"params.metadata.name + '{text}'\"}}"))
        .collect();
    let spec =
        format!("validations: [{{expression: 'true'}}], auditAnnotations: [{}]", annotations.join(", "));
    let (_, annotated) = bytes(&notes_with_params(20, &spec));
    assert!(annotated > 20 * 5 * 9000, "{annotated}");
    let (_, annotated) = bytes(&notes_with_params(100, &spec));
    assert!(annotated < 1_100_000, "{annotated}");
}

/// Bytes of the messages of one evaluation of a policy with validations that fail.
fn message_bytes(spec: &str) -> usize {
    let compiled = ValidatingPolicy::compile(&policy("ValidatingAdmissionPolicy", spec));
    let cluster = clocked(NO_DEADLINE, vec![namespace()]);
    with_attributes(|attributes| {
        let object = config_map();
        let context = RequestContext::new(attributes, Some(&object), &cluster);
        let checks = AuthorizerDecisions::default();
        let input = ExpressionInput::new(&context, context.own_match(), Some(&object), None, None, &checks);
        let activations = Activations::new(&input);
        let leave = async {
            context.pacer().leave_main_runtime().await;
            Ok(())
        };
        assert_eq!(run_counting_yields(leave).0, Ok(()));
        let outcome = evaluate(&compiled, &activations, None, Operation::Create, &NoMetrics).unwrap();
        outcome.decisions.iter().map(|decision| decision.message.len()).sum()
    })
}

#[test]
fn errors_and_computed_messages_of_one_evaluation_have_a_total_size() {
    let message = |length: usize| {
        let text = "m".repeat(length);
        format!("{{expression: 'false', messageExpression: \"object.metadata.name + '{text}'\"}}")
    };
    let messages = |count: usize, length: usize| {
        format!("{{validations: [{}]}}", vec![message(length); count].join(", "))
    };
    assert_eq!(message_bytes(&messages(200, 5000)), 200 * 5001);
    assert!(message_bytes(&messages(2000, 5000)) < (1 << 20) + 2000 * 300);
    let errors = |count: usize| {
        let fails = format!("{{expression: \"object['{}'] == 1\"}}", "k".repeat(1000));
        format!("{{failurePolicy: Fail, validations: [{}]}}", vec![fails; count].join(", "))
    };
    assert!(message_bytes(&errors(200)) > 200 * 2000);
    assert!(message_bytes(&errors(2000)) < (1 << 20) + 2000 * 300);
}
