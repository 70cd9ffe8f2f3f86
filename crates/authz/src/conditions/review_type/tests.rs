//! Tests of compiling and evaluating match conditions.

use expect_test::{Expect, expect};

use super::*;
use crate::attributes::{Requirement, SelectorOperator};
use crate::conditions::{Conditions, ConditionsResult};

fn refused(expression: &str, expected: &Expect) {
    let Err(ConditionCompileError::Invalid(message)) = ReviewCompiler::default().compile(expression) else {
        panic!()
    };
    expected.assert_eq(&message);
}

#[test]
fn match_conditions_must_be_bool_expressions_over_subject_access_review_fields() {
    refused(
        "request.username == 'a'",
        &expect![[r"
            compilation failed: ERROR: <input>:1:8: undefined field 'username'
             | request.username == 'a'
             | .......^"]],
    );
    refused(
        "object.metadata.name == 'a'",
        &expect![[r"
            compilation failed: ERROR: <input>:1:1: undeclared reference to 'object' (in container '')
             | object.metadata.name == 'a'
             | ^"]],
    );
    refused(
        "request.resourceAttributes.kind == 'a'",
        &expect![[r"
            compilation failed: ERROR: <input>:1:27: undefined field 'kind'
             | request.resourceAttributes.kind == 'a'
             | ..........................^"]],
    );
    refused(
        "request.user == 1",
        &expect![[r"
            compilation failed: ERROR: <input>:1:14: found no matching overload for '_==_' applied to '(string, int)'
             | request.user == 1
             | .............^"]],
    );
    refused("request.user", &expect!["must evaluate to bool but got string"]);
    refused("request.groups", &expect!["must evaluate to bool but got list(string)"]);
    refused("request.extra['a']", &expect!["must evaluate to bool but got list(string)"]);
    refused("size(request.groups)", &expect!["must evaluate to bool but got int"]);
}

fn evaluate(expression: &str, attributes: &AuthorizationAttributes) -> Result<bool, String> {
    let user = User::named("alice").in_groups(["devs", "system:authenticated"]);
    let condition = ReviewCompiler::default().compile(expression).unwrap_or_else(|error| panic!("{error:?}"));
    match Conditions::new(vec![condition]).evaluate(&user, attributes) {
        ConditionsResult::Yes => Ok(true),
        ConditionsResult::No { .. } => Ok(false),
        ConditionsResult::Failed(error) => Err(error),
    }
}

#[test]
fn match_conditions_can_read_all_subject_access_review_fields() {
    let mut list = AuthorizationAttributes::resource("list", "apps", "deployments").in_namespace("prod");
    list.labels.requirements = vec![Requirement {
        key: "app".into(),
        operator: SelectorOperator::In,
        values: ["web".into()].into(),
    }];
    let path = AuthorizationAttributes::path("get", "/healthz");
    for yes in [
        "request.user == 'alice' && 'devs' in request.groups",
        "has(request.resourceAttributes)",
        "!has(request.nonResourceAttributes)",
        "request.resourceAttributes.namespace == 'prod' && request.resourceAttributes.group == 'apps'",
        "request.resourceAttributes.name == '' && request.uid == ''",
        "request.extra.size() == 0",
        "request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'app' && 'web' in r.values)",
        "!has(request.resourceAttributes.fieldSelector)",
    ] {
        assert_eq!(evaluate(yes, &list), Ok(true), "{yes}");
    }
    for no in ["request.user == 'bob'", "request.resourceAttributes.verb == 'get'"] {
        assert_eq!(evaluate(no, &list), Ok(false), "{no}");
    }
    assert_eq!(evaluate("request.nonResourceAttributes.path == '/healthz'", &path), Ok(true));
    assert_eq!(
        evaluate("request.resourceAttributes.namespace == 'prod'", &path).unwrap_err(),
        "cel evaluation error: expression 'request.resourceAttributes.namespace == 'prod'' resulted in error: no such key: resourceAttributes"
    );
}
