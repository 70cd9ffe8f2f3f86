//! The `authorizer` variable: evaluation stops at a check without a decision, and succeeds once it is recorded.

#![expect(clippy::unwrap_used, reason = "these are tests")]

use std::collections::HashMap;
use std::sync::Mutex;

use cel::authz::{
    AuthorizerCheck, CheckDecision, CheckTarget, RecordedDecisions, ResourceTarget, authorizer,
    authorizer_type,
};
use cel::{Activation, Env, ErrorKind, PER_CALL_LIMIT, Version};

/// An authorizer with recorded decisions.
#[derive(Default)]
struct Memo(Mutex<HashMap<AuthorizerCheck, CheckDecision>>);

impl RecordedDecisions for Memo {
    fn check(&self, check: &AuthorizerCheck) -> Option<CheckDecision> {
        self.0.lock().ok()?.get(check).cloned()
    }
}

fn env() -> Env {
    Env::kubernetes(Version::CURRENT).with_variables([("authorizer", authorizer_type())])
}

/// Evaluates until all checks are decided; returns the result, the checks and the cost of the last run.
fn evaluate(
    expr: &str,
    answer: impl Fn(&AuthorizerCheck) -> CheckDecision,
) -> (String, Vec<AuthorizerCheck>, u64) {
    let env = env();
    let program = env.compile(expr).unwrap().program().unwrap();
    let memo = Memo::default();
    let mut asked = Vec::new();
    loop {
        let mut activation = Activation::new(&env).with("authorizer", authorizer());
        activation.set_authorizer(&memo);
        let evaluation = program.run(&activation, PER_CALL_LIMIT);
        match &evaluation.outcome {
            Ok(val) => return (cel::batch::show(val), asked, evaluation.cost),
            Err(error) => match error.kind() {
                ErrorKind::NeedsCheck(check) => {
                    memo.0.lock().unwrap().insert((**check).clone(), answer(check));
                    asked.push((**check).clone());
                }
                _ => return (error.to_string(), asked, evaluation.cost),
            },
        }
    }
}

fn allow(_: &AuthorizerCheck) -> CheckDecision {
    CheckDecision { allowed: true, reason: "because".into(), error: None }
}

#[test]
fn a_check_is_requested_once_and_its_decision_is_used() {
    let expr =
        "authorizer.group('apps').resource('deployments').subresource('status').namespace('ns').name('n')
        .fieldSelector('a=b').labelSelector('c=d').check('get').allowed()";
    let (value, asked, cost) = evaluate(expr, allow);
    assert_eq!(value, "bool true");
    let target = ResourceTarget {
        group: "apps".into(),
        resource: "deployments".into(),
        subresource: "status".into(),
        namespace: "ns".into(),
        name: "n".into(),
        field_selector: Some("a=b".into()),
        label_selector: Some("c=d".into()),
    };
    assert_eq!(
        asked,
        [AuthorizerCheck {
            service_account: None,
            verb: "get".into(),
            target: CheckTarget::Resource(target)
        }]
    );
    assert_eq!(cost, 350_229);
}

#[test]
fn errors_and_reasons_of_decisions_are_visible() {
    let broken = |_: &AuthorizerCheck| CheckDecision {
        allowed: false,
        reason: "no".into(),
        error: Some("down".into()),
    };
    let (value, ..) = evaluate("authorizer.path('/healthz').check('get').reason()", allow);
    assert_eq!(value, "string because");
    let (value, ..) = evaluate("authorizer.path('/healthz').check('get').error()", broken);
    assert_eq!(value, "string down");
    let (value, ..) = evaluate("authorizer.path('/healthz').check('get').errored()", broken);
    assert_eq!(value, "bool true");
}

#[test]
fn service_accounts_are_checked_by_name() {
    let (value, asked, _) =
        evaluate("authorizer.serviceAccount('ns', 'sa').path('/x').check('get').allowed()", allow);
    assert_eq!(value, "bool true");
    assert_eq!(
        asked.first().and_then(|check| check.service_account.clone()),
        Some(("ns".into(), "sa".into()))
    );
    let (error, ..) =
        evaluate("authorizer.serviceAccount('ns', 'S_A').path('/x').check('get').allowed()", allow);
    assert_eq!(error, "Invalid service account name");
    let (error, ..) =
        evaluate("authorizer.serviceAccount('N', 'sa').path('/x').check('get').allowed()", allow);
    assert_eq!(error, "Invalid service account namespace");
}

#[test]
fn a_missing_decision_is_not_absorbed_by_logical_operators() {
    let env = env();
    let program =
        env.compile("authorizer.path('/x').check('get').allowed() || true").unwrap().program().unwrap();
    let activation = Activation::new(&env).with("authorizer", authorizer());
    let error = program.run(&activation, PER_CALL_LIMIT).outcome.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NeedsCheck(_)));
}

#[test]
fn two_checks_fit_the_limit_and_three_do_not() {
    let check = "authorizer.path('/x').check('get').allowed()";
    let (value, ..) = evaluate(&[check; 2].join(" && "), allow);
    assert_eq!(value, "bool true");
    let (error, ..) = evaluate(&[check; 3].join(" && "), allow);
    assert_eq!(error, "operation cancelled: actual cost limit exceeded");
}

#[test]
fn a_check_without_a_path_or_resource_is_refused() {
    assert_eq!(evaluate("authorizer.path(' ').check('get').allowed()", allow).0, "path must not be empty");
    assert_eq!(
        evaluate("authorizer.group('').resource('').check('get').allowed()", allow).0,
        "resource must not be empty"
    );
}
