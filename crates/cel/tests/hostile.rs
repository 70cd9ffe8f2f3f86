//! Hostile input: evaluation ends within its limits and without a panic.

use cel::{Activation, Env, ErrorKind, PER_CALL_LIMIT, Type, Val, Version};
use value::Value;

fn env() -> Env {
    Env::kubernetes(Version::CURRENT).with_variables([("object", Type::Dyn), ("x", Type::Dyn)])
}

/// Compiles and runs an expression; returns the error, if any.
#[track_caller]
fn bounded(expr: &str, data: &Value) -> Option<String> {
    let env = env();
    match env.compile(expr) {
        Err(issues) => Some(issues.to_string()),
        Ok(checked) => match checked.program() {
            Err(error) => Some(error.to_string()),
            Ok(program) => {
                let activation = Activation::new(&env).with("x", Val::data(data)).with("object", Val::Null);
                let outcome = program.run(&activation, PER_CALL_LIMIT).outcome;
                outcome.err().map(|error| error.to_string())
            }
        },
    }
}

#[test]
fn nesting_is_limited_as_in_cel_go() {
    for (open, close) in [("(", ")"), ("[", "]"), ("{1: ", "}"), ("x.map(y, ", ")"), ("!(", ")"), ("-(", ")")]
    {
        let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        for depth in [1000, 50_000 / open.len()] {
            let error = bounded(&nested(depth), &Value::Null).unwrap();
            assert!(error.contains("recursion limit exceeded") || error.contains("size exceeds"), "{error}");
        }
    }
    assert!(bounded(&format!("{}1{}", "(".repeat(249), ")".repeat(249)), &Value::Null).is_none());
}

#[test]
fn long_chains_are_bounded() {
    assert!(bounded(&format!("true{}", " && true".repeat(10_000)), &Value::Null).is_none());
    let error = bounded(&format!("1{}", " + 1".repeat(10_000)), &Value::Null).unwrap();
    assert!(error.contains("max recursion depth exceeded"), "{error}");
    let error = bounded(&format!("x{}", ".a".repeat(10_000)), &Value::Null).unwrap();
    assert!(error.contains("max recursion depth exceeded"), "{error}");
    assert!(bounded(&format!("[{}1]", "1, ".repeat(30_000)), &Value::Null).is_none());
}

#[test]
fn huge_expressions_are_refused() {
    let error = bounded(&format!("'{}'", "a".repeat(200_000)), &Value::Null).unwrap();
    assert!(error.contains("expression code point size exceeds limit"), "{error}");
}

#[test]
fn syntax_errors_are_explained_within_limits() {
    for piece in ["(", "a.", "a ", "{a:", "[1,", "a?", "-", "\"", "a.b(", "`", "'''", "&", "1 +", "a{", "?"] {
        for times in [10, 1000, 20_000] {
            assert!(bounded(&piece.repeat(times), &Value::Null).is_some(), "{piece} x{times}");
        }
    }
}

#[test]
fn macros_that_copy_their_receiver_are_bounded() {
    let chain = |links: usize| "optional.of(1)".to_owned() + &".optMap(a, a + 1)".repeat(links);
    assert!(bounded(&chain(10), &Value::Null).is_none());
    let error = bounded(&chain(200), &Value::Null).unwrap();
    assert!(error.contains("too large once its macros are expanded"), "{error}");
}

#[test]
fn nested_loops_end_at_the_cost_limit() {
    let list = Value::list((0..1000).map(i64::from));
    let expr = "x.all(a, x.all(b, x.all(c, a + b + c >= 0)))";
    let error = bounded(expr, &list).unwrap();
    assert_eq!(error, "operation cancelled: actual cost limit exceeded");
    let growing = "x.map(a, x.map(b, x.map(c, [a, b, c])))";
    assert_eq!(bounded(growing, &list).unwrap(), "operation cancelled: actual cost limit exceeded");
}

#[test]
fn loops_end_when_they_are_interrupted() {
    let env = env();
    let list = Value::list((0..1000).map(i64::from));
    let program = env.compile("x.all(a, x.all(b, true))").unwrap().program().unwrap();
    let interrupted = || true;
    let mut activation = Activation::new(&env).with("x", Val::data(&list));
    activation.set_interrupt(&interrupted);
    let error = program.run(&activation, u64::MAX).outcome.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Interrupted));
}

#[test]
fn patterns_that_make_backtracking_explode_are_matched_in_linear_time() {
    let text = Value::from("a".repeat(20_000) + "!");
    for pattern in ["^(a+)+$", "^(a|a)*$", "^(a*)*b$", "(x+x+)+y"] {
        assert!(bounded(&format!("x.matches('{pattern}')"), &text).is_none(), "{pattern}");
    }
    for pattern in ["(((a{100}){100}){100})", "a{1001}", "((a{30}){30}){30}"] {
        let error = bounded(&format!("x.matches('{pattern}')"), &text).unwrap();
        assert!(error.contains("invalid matches argument"), "{error}");
    }
    assert!(bounded("x.matches('(?i)([a-z]{200}){4}')", &text).is_none());
}

#[test]
fn huge_numbers_and_exponents_are_bounded() {
    for text in ["1e999999999", "1e-999999999", "99999999999999999999999999e99999"] {
        let data = Value::from(text);
        bounded("quantity(x).add(quantity('1')).compareTo(quantity('1')) > 0", &data);
        bounded("isQuantity(x) && quantity(x).asApproximateFloat() > 1.0", &data);
    }
    let digits = Value::from("9".repeat(100_000));
    assert!(bounded("quantity(x) == quantity('1')", &digits).is_some());
    assert!(bounded("'%.99999999f'.format([1.5]).size() > 0", &Value::Null).is_none());
    assert!(bounded("lists.range(999999999)", &Value::Null).unwrap().contains("exceeds maximum allowed"));
}

#[test]
fn too_large_results_are_refused_before_they_are_created() {
    let long = Value::from("a".repeat(1_000_000));
    assert_eq!(bounded("x.replace('', x).size() > 0", &long).unwrap(), "the resulting string is too long");
    assert_eq!(
        bounded("lists.range(1000).map(i, x).join().size() > 0", &long).unwrap(),
        "the resulting string is too long"
    );
    let doubled = (0..14).fold("x".to_owned(), |list, _| format!("[{list}].map(a, a + a)[0]"));
    let list = Value::list((0..1000).map(i64::from));
    assert_eq!(bounded(&doubled, &list).unwrap(), "the resulting list is too long");
    let many = Value::list((0..20_000).map(i64::from));
    assert_eq!(bounded("x.map(i, x).flatten().size() > 0", &many).unwrap(), "the resulting list is too long");
    let limit = "operation cancelled: actual cost limit exceeded";
    assert_eq!(bounded("sets.contains(x, x)", &many).unwrap(), limit);
    assert_eq!(bounded("x.distinct().size() > 0", &many).unwrap(), limit);
    assert!(
        bounded("'aXbXc'.replace('X', '--') == 'a--b--c' && [[1], [2]].flatten() == [1, 2]", &many).is_none()
    );
}

/// A list of two of a list of two of …: cheap to build, with an exponential number of leaves.
fn doubled(then: &str) -> String {
    format!("[[0]]{}.map(a, {then})", ".map(a, [a, a])".repeat(60))
}

#[test]
fn walking_values_that_share_parts_is_bounded() {
    let limit = "operation cancelled: actual cost limit exceeded";
    for then in [
        "a != a",
        "{'k': optional.of(a)} == {'k': optional.of(a)}",
        "a in [a]",
        "sets.equivalent([a], [a])",
        "[a, a].distinct()",
        "[a].indexOf(a)",
        "[a].includes(a)",
        "dyn(a).sum()",
    ] {
        assert_eq!(bounded(&doubled(then), &Value::Null).as_deref(), Some(limit), "{then}");
    }
    let error = bounded(&doubled("'%s'.format([a])"), &Value::Null).unwrap();
    assert!(error.contains("the resulting string is too long"), "{error}");
    let error = bounded(&doubled("[?dyn(a)]"), &Value::Null).unwrap();
    assert!(error.starts_with("cannot initialize optional list element"), "{}", error.len());
    assert!(error.len() < 2 << 20, "{}", error.len());
    assert_eq!(bounded(&doubled("a.flatten(1000)"), &Value::Null).unwrap(), "the resulting list is too long");
    assert_eq!(bounded("[[0, 1], [0, 1]].map(a, a == [0, 1])", &Value::Null), None);
}

#[test]
fn converting_values_that_share_parts_is_bounded() {
    let env = Env::kubernetes_mutation(Version::CURRENT);
    let evaluate = |then: &str| {
        let program = env.compile(&doubled(then)).unwrap().program().unwrap();
        let activation = Activation::new(&env);
        program.run(&activation, PER_CALL_LIMIT).outcome.map(|val| val.to_json())
    };
    assert_eq!(evaluate("a").unwrap().unwrap_err(), "the value is too large");
    let error = evaluate("Object{spec: a}.spec").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CostLimit), "{error}");
    let error = evaluate("Object{spec: {'k': a}} == Object{spec: {'k': a}}").map(|_| ());
    assert!(error.is_ok(), "lists in objects are never the same");
}

#[test]
fn a_comparison_ends_when_it_is_interrupted() {
    let env = env();
    let program = env.compile(&doubled("a == a")).unwrap().program().unwrap();
    let interrupted = || true;
    let mut activation = Activation::new(&env);
    activation.set_interrupt(&interrupted);
    let error = program.run(&activation, u64::MAX).outcome.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Interrupted), "{error}");
}
