//! Properties that hold for all expressions.

use cel::{Activation, Env, Evaluation, NoHints, Type, Val, Version};
use proptest::prelude::*;
use value::{Value, json};

fn env() -> Env {
    Env::kubernetes(Version::CURRENT)
        .with_variables([
            ("i", Type::Int),
            ("s", Type::String),
            ("b", Type::Bool),
            ("l", Type::list(Type::Int)),
            ("m", Type::map(Type::String, Type::Int)),
            ("d", Type::Dyn),
        ])
        .keeping_macro_calls()
}

fn data() -> Value {
    json::parse(br#"{"i": 3, "s": "abc", "b": true, "l": [1, 2, 3], "m": {"a": 1, "b": 2}, "d": {"x": [1, "y", null]}}"#)
        .unwrap_or_default()
}

fn activation<'a>(env: &Env, data: &'a Value) -> Activation<'a> {
    let mut activation = Activation::new(env);
    for name in ["i", "s", "b", "l", "m", "d"] {
        activation.set(name, data.get(name).map_or(Val::Null, Val::data));
    }
    activation
}

/// Generates expressions that are mostly well typed.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("i".to_owned()),
        Just("s".to_owned()),
        Just("b".to_owned()),
        Just("l".to_owned()),
        Just("m".to_owned()),
        any::<i32>().prop_map(|i| i.to_string()),
        any::<u16>().prop_map(|u| format!("{u}u")),
        "[a-c]{0,3}".prop_map(|s| format!("'{s}'")),
        prop_oneof![Just("true"), Just("false"), Just("null"), Just("1.5"), Just("b'x'")]
            .prop_map(str::to_owned),
        prop_oneof![
            Just("duration('1h')"),
            Just("quantity('1Gi')"),
            Just("ip('1.2.3.4')"),
            Just("[]"),
            Just("{}")
        ]
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let op = prop_oneof![
            Just("+"),
            Just("-"),
            Just("*"),
            Just("/"),
            Just("%"),
            Just("=="),
            Just("!="),
            Just("<"),
            Just(">="),
            Just("&&"),
            Just("||"),
            Just("in")
        ];
        prop_oneof![
            (inner.clone(), op, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            inner.clone().prop_map(|a| format!("size({a})")),
            inner.clone().prop_map(|a| format!("string({a})")),
            inner.clone().prop_map(|a| format!("dyn({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{'k': {a}, ?'o': optional.of({b})}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[?{b}].orValue({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("l.all(y, y < i || {a} == {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}.exists(y, {b} == y)")),
            inner.clone().prop_map(|a| format!("l.map(y, {a})")),
            inner.clone().prop_map(|a| format!("l.filter(y, {a})")),
            inner.clone().prop_map(|a| format!("m.transformMap(k, v, {a})")),
            inner.clone().prop_map(|a| format!("optional.of({a}).optMap(o, [o])")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}.contains({b})")),
            inner.prop_map(|a| format!("{a}.sortBy(e, e)")),
        ]
    })
}

/// Generates policy-like conditions on data in which some fields are missing or have another type.
fn condition() -> impl Strategy<Value = String> {
    let field = || {
        prop_oneof![
            Just("t"),
            Just("f"),
            Just("n"),
            Just("s"),
            Just("é"),
            Just("z"),
            Just("l"),
            Just("o"),
            Just("no")
        ]
        .prop_map(|name| if name == "é" { "e" } else { name })
    };
    let path = prop_oneof![
        field().prop_map(|a| format!("d.{a}")),
        (field(), field()).prop_map(|(a, b)| format!("d.{a}.{b}")),
        field().prop_map(|a| format!("d.o.{a}")),
        field().prop_map(|a| format!("d.o.o.{a}")),
    ];
    let leaf = prop_oneof![
        path.clone(),
        path.clone().prop_map(|path| format!("has({path})")),
        (
            path.clone(),
            prop_oneof![Just("=="), Just("!=")],
            prop_oneof![
                Just("true"),
                Just("false"),
                Just("3"),
                Just("3.0"),
                Just("null"),
                Just("'abc'"),
                Just("'äöü, more than ten'"),
                Just("''")
            ]
        )
            .prop_map(|(path, op, constant)| format!("{path} {op} {constant}")),
        (path.clone(), prop_oneof![Just("<"), Just("<="), Just(">"), Just(">=")], -1i64..5)
            .prop_map(|(path, op, constant)| format!("{path} {op} {constant}")),
        (field(), path.clone()).prop_map(|(name, path)| format!("'{name}' in {path}")),
        path.clone().prop_map(|path| format!("{path} in ['abc', 3, 'x']")),
        (path.clone(), prop_oneof![Just("startsWith"), Just("endsWith"), Just("contains")], "[a-cä]{0,12}")
            .prop_map(|(path, function, text)| format!("{path}.{function}('{text}')")),
        (path, prop_oneof![Just("^a.*c$"), Just("b"), Just("^äö+"), Just("^(x|abc)$"), Just("^$")])
            .prop_map(|(path, pattern)| format!("{path}.matches('{pattern}')")),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} && {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} ? {b} : true)")),
            inner.clone().prop_map(|a| format!("c.all(d, {a})")),
            inner.clone().prop_map(|a| format!("c.exists(d, {a})")),
            inner.clone().prop_map(|a| format!("c.exists_one(d, {a})")),
            inner.prop_map(|a| format!("c.filter(d, {a})")),
        ]
    })
}

const OBJECTS: &str = r#"{"t": true, "f": false, "n": 3, "s": "abc", "e": "äöü, more than ten", "z": null, "l": ["s", 1],
    "o": {"t": true, "s": "abc", "n": 4, "o": {"f": false, "s": "abcabcabcabc"}}}"#;

fn same(a: &Evaluation<'_>, b: &Evaluation<'_>) -> bool {
    let text = |evaluation: &Evaluation<'_>| match &evaluation.outcome {
        Ok(val) => cel::batch::show(val),
        Err(error) => format!("error {error}"),
    };
    a.cost == b.cost && text(a) == text(b)
}

fn fits(ty: &Type, val: &Val<'_>) -> bool {
    match ty {
        Type::Dyn | Type::Any | Type::Param(_) | Type::Wrapper(_) => true,
        _ => val.type_name() == ty.name(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in r#"[a-z0-9 .,()\[\]{}?:"'`\\+*/%!=<>&|\n_-]{0,60}"#) {
        let env = env();
        if let Ok(checked) = env.compile(&text)
            && let Ok(program) = checked.program()
        {
            let data = data();
            let _ = checked.estimate(&NoHints);
            let _ = program.run(&activation(&env, &data), 1_000_000);
        }
    }

    #[test]
    fn no_truncated_expression_panics(text in expression(), cut in 0usize..200, length in 1usize..4) {
        let broken: String =
            text.chars().enumerate().filter(|(i, _)| !(cut..cut + length).contains(i)).map(|(_, c)| c).collect();
        let _ = env().compile(&broken).map_err(|issues| issues.to_string());
    }

    #[test]
    fn no_unicode_panics(text in ".{0,40}") {
        let _ = env().compile(&text).map_err(|issues| issues.to_string());
    }

    #[test]
    fn an_expression_evaluates_to_its_checked_type_or_fails(text in expression()) {
        let env = env();
        if let Ok(checked) = env.compile(&text)
            && let Ok(program) = checked.program()
        {
            let data = data();
            let evaluation = program.run(&activation(&env, &data), 1_000_000);
            if let Ok(val) = &evaluation.outcome {
                prop_assert!(fits(checked.output_type(), val), "{text}: {} gave {val:?}", checked.output_type());
            }
        }
    }

    #[test]
    fn folding_changes_neither_value_nor_error_nor_cost(text in expression()) {
        let env = env();
        if let Ok(checked) = env.compile(&text)
            && let (Ok(folded), Ok(unfolded)) = (checked.program(), checked.unfolded_program())
        {
            let data = data();
            let activation = activation(&env, &data);
            let (a, b) = (folded.run(&activation, 1_000_000), unfolded.run(&activation, 1_000_000));
            prop_assert!(same(&a, &b), "{text}: {a:?} and {b:?}");
        }
    }

    #[test]
    fn folded_data_conditions_have_the_result_and_cost_of_unfolded_ones(
        text in condition(),
        limit in prop_oneof![Just(1_000_000u64), 0u64..40],
    ) {
        let env = Env::kubernetes(Version::CURRENT).with_variables([("d", Type::Dyn), ("c", Type::Dyn)]);
        let object = json::parse(OBJECTS.as_bytes()).unwrap_or_default();
        let inner = object.get("o").cloned().unwrap_or_default();
        let list = Value::list([object.clone(), inner, Value::from("text"), object.clone()]);
        if let Ok(checked) = env.compile(&text)
            && let (Ok(folded), Ok(unfolded)) = (checked.program(), checked.unfolded_program())
        {
            let activation = Activation::new(&env).with("d", Val::data(&object)).with("c", Val::data(&list));
            let plain = unfolded.run(&activation, limit);
            // Enough uses for patterns to get their DFA tables.
            for _ in 0..20 {
                let tried = folded.run(&activation, limit);
                let both_ended = matches!((&tried.outcome, &plain.outcome), (Err(a), Err(b)) if a.is_fatal() && b.is_fatal());
                prop_assert!(both_ended || same(&tried, &plain), "{text} at {limit}: {tried:?} and {plain:?}");
            }
        }
    }

    #[test]
    fn printed_expressions_print_the_same_again(text in expression()) {
        let env = env();
        if let Ok(parsed) = env.parse(&text) {
            let printed = parsed.print();
            let again = env.parse(&printed).map_err(|issues| TestCaseError::fail(format!("{printed}: {issues}")))?;
            prop_assert_eq!(&again.print(), &printed, "{}", text);
            let types = |parsed| env.check(parsed).ok().map(|checked| checked.output_type().clone());
            prop_assert_eq!(types(parsed), types(again), "{} and {}", text, printed);
        }
    }

    #[test]
    fn cost_stays_below_the_estimate_where_types_are_known(text in expression()) {
        // cel-go's estimates ignore steps into dyn values and call results.
        if text.contains("dyn") || text.contains('[') {
            return Ok(());
        }
        let env = env();
        if let Ok(checked) = env.compile(&text)
            && let Ok(program) = checked.program()
        {
            let data = data();
            let evaluation = program.run(&activation(&env, &data), u64::MAX);
            let estimate = checked.estimate(&NoHints);
            prop_assert!(evaluation.cost <= estimate.max, "{text}: {} > {}", evaluation.cost, estimate.max);
        }
    }
}
