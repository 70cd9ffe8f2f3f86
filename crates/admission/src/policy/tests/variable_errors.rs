//! The length of errors of variables.

use super::*;

const DENIED: &str =
    "422 configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";

/// The error of a request with a chain of variables of which the first fails.
fn error_of_chain(length: usize) -> String {
    let variables = chain(length, "[1][object.list.size()]", |before| format!("variables.a{before} + 1"));
    let last = length - 1;
    let stage = validating(
        &format!(
            "{{failurePolicy: Fail, {variables}, validations: [{{expression: variables.a{last} > 0}}]}}"
        ),
        "{}",
    );
    validate(&stage, &long(7), &clocked(NO_DEADLINE, vec![namespace()])).0.unwrap_err()
}

#[test]
fn errors_of_variables_quote_the_variables_that_they_read() {
    let expected = "expression 'variables.a2 > 0' resulted in error: composited variable \"a2\" fails to evaluate: composited variable \"a1\" fails to evaluate: composited variable \"a0\" fails to evaluate: index out of bounds: 7";
    assert_eq!(error_of_chain(3), format!("{DENIED}{expected}"));
}

#[test]
fn errors_of_a_long_chain_of_variables_do_not_grow_with_its_length() {
    let why = error_of_chain(2000);
    assert!(why.len() < 3000, "{} bytes", why.len());
    assert!(why.ends_with("composited variable \"a0\" fails to evaluate: index out of bounds: 7"), "{why}");
}

#[test]
fn a_long_cause_of_a_failed_variable_is_truncated() {
    let key = "{}[object.metadata.name.replace(\"c\", \"LONG\")]".replace("LONG", &"é".repeat(10_000));
    let spec = format!(
        "{{failurePolicy: Fail, variables: [{{name: a, expression: '{key}'}}], validations: [{{expression: variables.a == true}}]}}"
    );
    let why =
        validate(&validating(&spec, "{}"), &long(0), &clocked(NO_DEADLINE, vec![namespace()])).0.unwrap_err();
    assert!(why.contains("composited variable \"a\" fails to evaluate: no such key: éé"), "{why}");
    assert!(why.len() < 3000, "{} bytes", why.len());
    let spec = format!("{{failurePolicy: Fail, validations: [{{expression: '{key} == true'}}]}}");
    let why =
        validate(&validating(&spec, "{}"), &long(0), &clocked(NO_DEADLINE, vec![namespace()])).0.unwrap_err();
    assert!(why.contains(" resulted in error: no such key: éé") && why.len() < key.len() + 5000, "{why}");
}
