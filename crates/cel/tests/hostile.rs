//! Hostile input: evaluation ends within its limits and without a panic.

use cel::{
    Activation, Env, Error, ErrorKind, Evaluation, LazyFields, MapVal, PER_CALL_LIMIT, Type, Val,
    ValueMemory, Version,
};
use value::{Budget, BudgetEnded, Value, steps};

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
fn macros_that_copy_their_receiver_are_bounded_by_the_length_of_the_expression() {
    for (link, accepted) in
        [(".optMap(a, a)", 8), (".optMap(a, a + 1)", 8), (".optFlatMap(a, optional.of(a + 1))", 8)]
    {
        let chain = |links: usize| "optional.of(1)".to_owned() + &link.repeat(links);
        assert_eq!(bounded(&chain(accepted), &Value::Null), None, "{link}");
        for links in [10, 14, 200] {
            let error = bounded(&chain(links), &Value::Null).unwrap();
            assert!(error.contains("too large once its macros are expanded"), "{error}");
        }
    }
    // A long receiver may be copied once, whatever its length.
    let long = format!("optional.of([{}x])", "x, ".repeat(20_000));
    assert_eq!(bounded(&(long.clone() + ".optMap(a, a)"), &Value::Null), None);
    let error = bounded(&(long + &".optMap(a, a)".repeat(3)), &Value::Null).unwrap();
    assert!(error.contains("too large once its macros are expanded"), "{error}");
}

/// Deep expressions are compiled on a thread of their own, which counts for the same budget.
#[test]
fn compiling_takes_steps_for_each_node_and_ends_with_its_budget() {
    let env = env();
    let compile = |text: &str| env.compile(text).unwrap().program().map(drop).unwrap();
    let chain = |links: usize| "optional.of(1)".to_owned() + &".optMap(a, a)".repeat(links);
    let deep = |links: usize| format!("{}{}{}", "(".repeat(50), chain(links), ")".repeat(50));
    for (name, few, many) in [("flat", chain(2), chain(8)), ("deep", deep(2), deep(8))] {
        let spent = |text: &str| {
            let budget = Budget::new(1_000_000);
            assert_eq!(steps::within(&budget, || compile(text)), Ok(()), "{name}");
            budget.spent()
        };
        let (small, large) = (spent(&few), spent(&many));
        assert!(small * 10 < large && large > 20 * 2560, "{name}: {small} {large}");
        let ended = steps::within(&Budget::new(5000), || compile(&many));
        assert_eq!(ended, Err(BudgetEnded::Exhausted), "{name}");
        let canceled = Budget::new(1_000_000);
        let ended = steps::within(&canceled.clone(), || {
            canceled.cancel();
            compile(&many);
        });
        assert_eq!(ended, Err(BudgetEnded::Canceled), "{name}");
    }
}

/// `{a: a}` has twice the types of `a`: without a limit, these would fill all memory.
#[test]
fn types_that_double_with_every_macro_are_refused() {
    let too_large = "the types in the expression are too large";
    for (start, macros) in [("[0]", ".map(a, {a: a})"), ("[]", ".map(a, {a: [a].map(b, {b: a})})")] {
        let chain = |links: usize| start.to_owned() + &macros.repeat(links);
        assert_eq!(bounded(&chain(3), &Value::Null), None);
        for end in ["", " + 1", " == []"] {
            let error = bounded(&(chain(60) + end), &Value::Null).unwrap();
            assert!(error.contains(too_large), "{}", error.len());
            assert!(error.len() < 100_000, "{}", error.len());
        }
    }
}

/// A search through the optional elements for each element would take minutes.
#[test]
fn lists_of_optional_elements_are_compiled_in_linear_time() {
    let none = "?optional.none(),";
    let list = format!("[{}]", "?x,".repeat(33_000));
    assert!(bounded(&list, &Value::Null).unwrap().contains("non-optional value"));
    assert_eq!(bounded(&format!("[{}].size() == 0 ? 1 : x.y", none.repeat(5000)), &Value::Null), None);
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

/// Comparing the part at every position of the text would take hours.
#[test]
fn the_last_index_of_a_long_part_is_found_in_linear_time() {
    let text = Value::from("a".repeat(3_000_000));
    let expr = "x.lastIndexOf(x.substring(1500000) + 'b', x.size() - 1) == -1 || x.y";
    assert_eq!(bounded(expr, &text), None);
    for (part, from, found) in
        [("é", 3, 3), ("é", 2, 1), ("éb", 3, 1), ("éb", 0, -1), ("a", 0, 0), ("bé", 1, -1)]
    {
        let expr = format!("x.lastIndexOf('{part}', {from}) == {found} ? 1 : x.y");
        assert_eq!(bounded(&expr, &Value::from("aébé")), None, "{part} {from}");
    }
}

/// A search through all earlier keys for each key that cannot be hashed would take minutes.
#[test]
fn maps_with_keys_that_equal_no_other_are_built_in_linear_time() {
    let env = env();
    let list = Value::list((0..100_000).map(i64::from));
    for key in ["0.0 / 0.0", "timestamp('2020-01-01T00:00:00+01:00')", "[v]"] {
        let expr = format!("x.transformMapEntry(i, v, {{{key}: v}}).size()");
        let program = env.compile(&expr).unwrap().program().unwrap();
        let activation = Activation::new(&env).with("x", Val::data(&list));
        let size = program.run(&activation, u64::MAX).outcome.unwrap();
        assert_eq!(size.as_int(), Some(100_000), "{key}");
    }
}

#[test]
fn removing_many_entries_of_a_map_literal_is_bounded() {
    let literal = |entries: usize| {
        let present: Vec<String> = (0..entries).map(|key| format!("{key}:x")).collect();
        let removed: Vec<String> = (0..entries).map(|key| format!("?{key}:y")).collect();
        let (present, removed) = (present.join(","), removed.join(","));
        format!("[optional.none()].map(y, {{{present},{removed}}}.size() == 0 ? 1 : x.y)")
    };
    assert_eq!(bounded(&literal(100), &Value::Null), None);
    let limit = "operation cancelled: actual cost limit exceeded";
    assert_eq!(bounded(&literal(5000), &Value::Null).as_deref(), Some(limit));
}

#[test]
fn work_that_costs_nothing_counts_towards_the_step_limit() {
    let list = Value::list((0..1800).map(i64::from));
    let text = Value::from("a".repeat(3_000_000));
    let url = Value::from(format!("http://h/?{}", "a=1&".repeat(100_000)));
    let words = Value::list((0..100_000).map(|_| Value::from("a")));
    let pair = Value::list(["b", "c"].map(|end| "a".repeat(1_000_000) + end));
    for (expr, data) in [
        ("lists.range(N).map(i, x + x).size() > 0", &list),
        ("lists.range(N).all(i, x.size() > 0)", &text),
        ("lists.range(N).map(i, x).sort().size() > 0", &text),
        ("[url(x)].all(u, lists.range(N).all(i, u.getQuery().size() > 0))", &url),
        ("lists.range(N).all(i, x.indexOf('b') < 0)", &words),
        ("lists.range(2 * N).all(i, !(x[0] in [x[1]]))", &pair),
        ("[{x[0]: 1}].all(m, lists.range(2 * N).all(i, m[x[0]] == 1))", &pair),
        ("lists.range(20 * N).map(i, quantity('1e9990').add(quantity('1'))).size() > 0", &list),
    ] {
        assert_eq!(bounded(&expr.replace('N', "2"), data), None, "{expr}");
        let error = bounded(&expr.replace('N', "600"), data);
        assert_eq!(error.as_deref(), Some("operation cancelled: actual cost limit exceeded"), "{expr}");
    }
    // Nothing is created here.
    assert_eq!(bounded("lists.range(2000).all(i, dyn(x).size() == 1800)", &list), None);
}

/// Counting the characters of the long text at each comparison would take minutes.
#[test]
fn a_comparison_with_a_short_text_reads_no_more_of_the_long_one() {
    let text = Value::from("é".repeat(1_500_000));
    for expr in ["x != 'abc'", "x != 'ab' + string(i)", "'b' < x"] {
        let expr = format!("lists.range(50000).all(i, {expr})");
        assert_eq!(bounded(&expr, &text), None, "{expr}");
    }
}

/// Comparing with every member would take minutes, and only the operand is charged.
#[test]
fn membership_in_a_long_constant_list_takes_constant_time() {
    let list = Value::list((0..140_000).map(i64::from));
    let members = "-1,".repeat(33_000);
    assert_eq!(bounded(&format!("x.all(i, !(i in [{members}]))"), &list), None);
    let text = Value::from("a".repeat(3_000_000));
    let members = "'b', ".repeat(10);
    assert_eq!(bounded(&format!("lists.range(100000).all(i, !(x in [{members}]))"), &text), None);
}

#[test]
fn membership_in_constant_lists_of_any_length_is_equality() {
    let scalars = [
        "true",
        "false",
        "0",
        "-1",
        "1u",
        "0.0",
        "-0.0",
        "1.0",
        "1.5",
        "0.0 / 0.0",
        "'1'",
        "''",
        "9223372036854775807",
        "9223372036854775808.0",
        "18446744073709551615u",
        "9007199254740993",
        "9007199254740992.0",
        "-9223372036854775808",
        "-9223372036854775808.0",
    ];
    for member in scalars.iter().filter(|member| !member.contains('/')) {
        let members = format!("{member}, ").repeat(10);
        for val in scalars {
            let expr = format!("(dyn({val}) in [{members}]) == (dyn({val}) == dyn({member})) ? 1 : x.y");
            assert_eq!(bounded(&expr, &Value::Null), None, "{val} in [{member}, …]");
        }
    }
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
    for then in ["{?dyn(a): dyn(1)}", "dyn(['a', a]).join()", "optional.unwrap(dyn([optional.of(1), a]))"] {
        let error = bounded(&doubled(then), &Value::Null).unwrap();
        assert!(error.len() < 2 << 20, "{then}: {}", error.len());
    }
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

/// Searching all earlier fields for each field would take minutes.
#[test]
fn object_literals_with_many_fields_are_built_in_linear_time_and_compared_within_the_step_limit() {
    let env = Env::kubernetes_mutation(Version::CURRENT);
    let evaluate = |expr: &str| {
        let program = env.compile(expr).unwrap().program().unwrap();
        program.run(&Activation::new(&env), PER_CALL_LIMIT).outcome.map(|val| val.as_bool())
    };
    let names: Vec<String> = (0..10_000).map(|field| format!("a{field}:1")).collect();
    let forwards = format!("Object{{{}}}", names.join(","));
    let backwards =
        format!("Object{{{}}}", names.iter().rev().take(4000).cloned().collect::<Vec<_>>().join(","));
    assert_eq!(evaluate(&format!("[1].all(i, {forwards} == Object{{}}) == false")).unwrap(), Some(true));
    let half = format!("Object{{{}}}", names.iter().skip(6000).cloned().collect::<Vec<_>>().join(","));
    assert_eq!(evaluate(&format!("{half} == {half}")).unwrap(), Some(true));
    let error = evaluate(&format!("{half} == {backwards}")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CostLimit), "{error}");
    let removed = "Object{a: 1, b: 2, ?a: optional.none(), a: 3, ?b: optional.of(4)} == Object{b: 4, a: 3}";
    assert_eq!(evaluate(removed).unwrap(), Some(true));
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

/// A literal of constants and one variable costs ten units, whatever its length.
#[test]
fn literals_with_a_variable_element_count_the_memory_of_all_elements() {
    let literal = |elements: usize, element: fn(usize) -> String| {
        (0..elements).map(element).collect::<Vec<_>>().join(",")
    };
    let list = format!("[{},i]", "0,".repeat(40_000).trim_end_matches(','));
    let map = format!("{{{},-1:i}}", literal(10_000, |key| format!("{key}:0")));
    let env = Env::kubernetes_mutation(Version::CURRENT);
    let object = format!("Object{{{},k:i}}", literal(10_000, |field| format!("a{field}:0")));
    for literal in [list, map, object] {
        let run = |turns: usize| {
            let expr = format!("lists.range({turns}).map(i, {literal}).size()");
            let program = env.compile(&expr).unwrap().program().unwrap();
            let Evaluation { outcome, created_bytes, .. } =
                program.run(&Activation::new(&env), PER_CALL_LIMIT);
            (outcome.map(|size| size.as_int()), created_bytes)
        };
        let (size, created) = run(10);
        assert_eq!(size.unwrap(), Some(10));
        assert!(created > 10 * 10_000 * 24, "{created}");
        let (error, created) = run(400);
        assert!(matches!(error.unwrap_err().kind(), ErrorKind::CostLimit));
        assert!(created < 80 << 20, "{created}");
    }
}

#[test]
fn many_short_texts_count_towards_the_memory_limit() {
    let env = env();
    let text = Value::from("a".repeat(10));
    let run = |turns: usize| {
        let expr = format!("lists.range({turns}).map(i, x.replace('a', '{}')).size()", "b".repeat(100));
        let program = env.compile(&expr).unwrap().program().unwrap();
        let activation = Activation::new(&env).with("x", Val::data(&text));
        program.run(&activation, u64::MAX).outcome.map(|size| size.as_int())
    };
    assert_eq!(run(1000).unwrap(), Some(1000));
    assert!(matches!(run(100_000).unwrap_err().kind(), ErrorKind::CostLimit));
}

#[test]
fn retained_results_count_towards_the_memory_limit_of_later_evaluations() {
    let env = env();
    let text = Value::from("a".repeat(1000));
    let program = env.compile("lists.range(5000).map(i, x + x)").unwrap().program().unwrap();
    let memory = ValueMemory::default();
    let mut activation = Activation::new(&env).with("x", Val::data(&text));
    activation.set_memory(&memory);
    for _ in 0..20 {
        assert!(program.run(&activation, u64::MAX).outcome.is_ok());
    }
    let mut retained = 0;
    while let Evaluation { outcome: Ok(_), created_bytes, .. } = program.run(&activation, u64::MAX) {
        memory.retain(created_bytes);
        retained += 1;
    }
    assert_eq!(retained, 6);
    let error = program.run(&activation, u64::MAX).outcome.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CostLimit));
}

#[test]
fn loop_turns_that_cost_nothing_are_limited_and_reported() {
    let list = Value::list((0..1000).map(i64::from));
    let limit = "operation cancelled: actual cost limit exceeded";
    for test in
        ["exists_one(c, false) || true", "filter(c, false).size() == 0", "transformMap(k, c, false, c) == {}"]
    {
        assert_eq!(bounded(&format!("x.{test} ? 1 : x.y"), &list), None, "{test}");
        let error = bounded(&format!("x.exists_one(a, x.filter(b, x.{test}) == [])"), &list);
        assert_eq!(error.as_deref(), Some(limit), "{test}");
    }
    let env = env();
    let uncharged = |expr: &str| {
        let program = env.compile(expr).unwrap().program().unwrap();
        let activation = Activation::new(&env).with("x", Val::data(&list));
        program.run(&activation, PER_CALL_LIMIT).uncharged_work
    };
    assert!(uncharged("x.exists_one(a, x.exists_one(b, false))") > 1_000_000);
    assert_eq!(uncharged("x.exists_one(a, x.exists(b, a + b == 7 && b != 3))"), 0);
}

/// The names of all fields are collected for each loop.
#[test]
fn collected_keys_are_limited() {
    struct ManyFields(Vec<String>);

    impl LazyFields for ManyFields {
        fn get(&self, _: &str) -> Option<Result<Val<'_>, Error>> {
            None
        }

        fn names(&self) -> Vec<&str> {
            self.0.iter().map(String::as_str).collect()
        }
    }

    let fields = ManyFields((0..10_000).map(|field| format!("a{field}")).collect());
    let env = env();
    let run = |turns: usize| {
        let expr = format!("lists.range({turns}).all(i, x.exists(k, true))");
        let program = env.compile(&expr).unwrap().program().unwrap();
        let activation = Activation::new(&env).with("x", Val::Map(MapVal::Lazy(&fields)));
        program.run(&activation, PER_CALL_LIMIT).outcome.map(|holds| holds.as_bool())
    };
    assert_eq!(run(100).unwrap(), Some(true));
    assert!(matches!(run(1000).unwrap_err().kind(), ErrorKind::CostLimit));
    // Maps of the program are iterated in place.
    let map: Vec<String> = (0..10_000).map(|key| format!("{key}:0")).collect();
    let expr = format!("lists.range(20000).all(i, {{{}}}.exists(k, true)) ? 1 : x.y", map.join(","));
    assert_eq!(bounded(&expr, &Value::Null), None);
}
