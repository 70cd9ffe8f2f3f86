//! Tests that the work caused by a CRD or an object is bounded.

use value::Value;

use super::super::ValidationBounds;
use super::super::columns::{Columns, MAX_COLUMNS, TableAllowance};
use super::super::json_path::JsonPath;
use super::{compiled, parse, thing, wrong};

#[test]
fn filters_do_not_nest() {
    let nested = |depth: usize| format!(".a{}.b{}", "[?(@".repeat(depth), ")]".repeat(depth));
    assert!(JsonPath::parse(&nested(1)).is_some());
    assert!(JsonPath::parse(&nested(2)).is_none());
    assert!(JsonPath::parse(&format!(".a{}", "[?(@".repeat(300_000))).is_none());
}

#[test]
fn recursive_paths_visit_a_bounded_number_of_values() {
    let mut object = Value::List((0..100_000).map(Value::Int).collect());
    for _ in 0..100 {
        object = Value::map([("a", object)]);
    }
    let path = JsonPath::parse("..a..a..a..a..a[?(@..a)]").unwrap();
    assert!(path.find(&object).len() <= 10_001);
    // Results within the limit are complete.
    assert_eq!(JsonPath::parse("..a").unwrap().find(&object).len(), 100);
}

/// How many cells of two rows are filled by `count` columns of one path.
fn filled(path: &str, count: usize, allowance: &TableAllowance) -> usize {
    let column = Value::map([("name", "C"), ("type", "string"), ("jsonPath", path)]);
    let columns = Columns::read(&vec![column; count]);
    let object = parse(r#"{"metadata":{"name":"x"},"l":[{"v":1},{"v":2},{"v":3}],"s":"0123456789"}"#);
    let rows = [columns.cells(&object, 0, allowance), columns.cells(&object, 0, allowance)];
    rows.iter().flat_map(|row| row.iter().skip(1)).filter(|cell| !cell.is_null()).count()
}

#[test]
fn the_cells_of_a_table_share_one_allowance() {
    let plenty = TableAllowance::of(1_000_000, 1_000_000);
    assert_eq!(filled(".l[?(@.v==2)].v", 100, &plenty), 200);
    assert!(!plenty.is_used_up());
    assert_eq!(filled(".s", MAX_COLUMNS + 100, &plenty), 2 * MAX_COLUMNS);
    let visits = TableAllowance::of(1000, 1_000_000);
    let found = filled(".l[?(@.v==2)].v", 100, &visits);
    assert!(found > 10 && found < 100, "{found}");
    assert!(visits.is_used_up());
    let bytes = TableAllowance::of(1_000_000, 1000);
    assert_eq!(filled(".s", 100, &bytes), 100);
    assert!(bytes.is_used_up());
    // The path is as long as a CRD allows, and each of its steps costs a visit.
    let long = TableAllowance::of(1000, 1000);
    assert_eq!(filled(&".l[*]".repeat(2000), 1, &long), 0);
    assert!(long.is_used_up());
}

#[test]
fn each_alternative_of_a_union_is_charged_for_all_values() {
    let many = Value::map([("l", Value::List(vec![Value::map([("a", 1)]); 9000]))]);
    let union = format!(".l[*][{}]", vec!["'a'"; 2000].join(","));
    let path = JsonPath::parse(&union).unwrap();
    let (found, seen) = path.first_within(&many, 100_000);
    assert!(found.is_none() || seen <= 100_000);
    assert_eq!(seen, 100_000);
}

#[test]
fn keyed_lists_of_many_items_are_correlated() {
    let schema = r#"{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
        "items":{"type":"object","required":["k"],"properties":{"k":{"type":"integer"},"v":{"type":"string","maxLength":1}},
        "x-kubernetes-validations":[{"rule":"self.k >= 0"}]}}}}"#;
    let compiled = compiled(schema);
    let items = |last: &str| -> Value {
        let item = |i: i64| Value::map([("k", Value::Int(i)), ("v", Value::from("too long"))]);
        let mut list: Vec<Value> = (0..10_000).rev().map(item).collect();
        list.push(Value::map([("k", Value::Int(60_000)), ("v", Value::from(last))]));
        let mut object = thing("{}");
        object.set_at(&["spec", "l"], Value::List(list));
        object
    };
    let update = |new: &str| -> Vec<String> {
        let found = compiled.validate_update(&items(new), &items("a"), ValidationBounds::NONE);
        found.errors.iter().map(ToString::to_string).collect()
    };
    // Errors in unchanged values are ignored. The rules run out of budget early, which does not matter here.
    let about_length = |errors: Vec<String>| errors.iter().filter(|error| error.contains("Too long")).count();
    assert_eq!(about_length(update("b")), 0);
    assert_eq!(about_length(update("bb")), 1);
}

#[test]
fn errors_that_quote_long_enums_and_patterns_are_limited_in_size() {
    let allowed: Vec<String> = (0..100_000).map(|i| format!("\"value-{i}\"")).collect();
    let schema = format!(
        r#"{{"type":"object","properties":{{"l":{{"type":"array","items":{{"type":"string","enum":[{}]}}}}}}}}"#,
        allowed.join(",")
    );
    let items: Vec<String> = (0..3_000).map(|i| format!("\"wrong-{i}\"")).collect();
    let spec = format!("{{\"l\":[{}]}}", items.join(","));
    let errors = wrong(&schema, &spec);
    assert!(
        errors[0].starts_with(
            r#"spec.l[0]: Unsupported value: "wrong-0": supported values: "value-0", "value-1""#
        )
    );
    assert!(errors.iter().map(String::len).sum::<usize>() < 8 << 20, "{}", errors.len());
    let pattern = "a".repeat(400_000);
    let schema = format!(
        r#"{{"type":"object","properties":{{"l":{{"type":"array","items":{{"anyOf":[{{"type":"string","pattern":"[{pattern}]x"}},{{"type":"string"}}]}}}}}}}}"#
    );
    assert_eq!(wrong(&schema, &spec), Vec::<String>::new());
    let schema = schema.replace(r#",{"type":"string"}"#, "");
    let errors = wrong(&schema, &spec);
    assert!(!errors.is_empty());
    assert!(errors.iter().map(String::len).sum::<usize>() < 8 << 20, "{}", errors.len());
}

#[test]
fn a_schema_beyond_the_depth_limit_rejects_every_value() {
    let mut schema = parse(r#"{"type":"object"}"#);
    let mut object = Value::from("anything");
    for _ in 0..140 {
        schema = Value::map([("type", Value::from("object")), ("properties", Value::map([("a", schema)]))]);
        object = Value::map([("a", object)]);
    }
    let node = super::super::SchemaNode::read(&schema);
    let mut errors = api::FieldErrors::new();
    super::super::validate::defaults_are_valid(&object, &node, "", &value::Budget::UNLIMITED, &mut errors);
    assert!(!errors.is_empty());
}

#[test]
fn errors_for_duplicates_and_failed_rules_are_limited_in_number() {
    let schema = r#"{"type":"object","properties":{
        "sets":{"type":"object","additionalProperties":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}}},
        "ruled":{"type":"array","items":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0","message":"small"}]}}}}"#;
    let twice = |count: usize| (0..count).map(|i| format!("{i},{i}")).collect::<Vec<_>>().join(",");
    let sets =
        |key: &str, count: usize| wrong(schema, &format!(r#"{{"sets":{{"{key}":[{}]}}}}"#, twice(count)));
    assert_eq!(sets("k", 100).len(), 100);
    assert_eq!(sets("k", 5_000).len(), 1_000);
    // Fewer errors are reported when the names in them are long.
    assert_eq!(sets(&"k".repeat(300_000), 100).len(), 4);
    let ruled = |count: usize| wrong(schema, &format!(r#"{{"ruled":[{}]}}"#, vec!["0"; count].join(",")));
    assert_eq!(ruled(100).len(), 100);
    assert_eq!(ruled(5_000).len(), 1_000);
}

#[test]
fn failing_alternatives_end_when_the_budget_does() {
    let alternatives: Vec<String> = (0..50).map(|i| format!(r#"{{"required":["r{i}"]}}"#)).collect();
    let schema = format!(
        r#"{{"type":"object","properties":{{"items":{{"type":"array","items":{{"type":"object","oneOf":[{}]}}}}}}}}"#,
        alternatives.join(",")
    );
    let object = thing(&format!(r#"{{"items":[{}]}}"#, vec!["{}"; 1000].join(",")));
    let compiled = compiled(&schema);
    let errors = |steps: u64| {
        let budget = value::Budget::new(steps);
        compiled
            .validate_create(&object, ValidationBounds { budget: &budget, ..ValidationBounds::NONE })
            .errors
    };
    let all = errors(u64::MAX);
    assert!(
        all.len() > 2 && !all.iter().any(|error| error.detail.contains("too many steps")),
        "{}",
        all.len()
    );
    let few = errors(1000);
    assert_eq!(few.len(), 1);
    assert!(few.iter().all(|error| error.detail.contains("takes too many steps")), "{few:?}");
}

/// The details of all errors of a `spec`, validated with a budget of `steps`.
fn details(schema: &str, spec: &str, steps: u64) -> Vec<String> {
    let budget = value::Budget::new(steps);
    let found = compiled(schema)
        .validate_create(&thing(spec), ValidationBounds { budget: &budget, ..ValidationBounds::NONE });
    found.errors.into_iter().map(|error| error.detail).collect()
}

#[test]
fn patterns_enums_and_rules_spend_steps_of_the_budget() {
    let states = format!("a{}c", "[ab]{1000}".repeat(39));
    let text = format!(r#"{{"v":"{}"}}"#, "ab".repeat(5_000));
    let zeros = vec!["0"; 1_000].join(",");
    let lists = (0..50).map(|i| format!("[{zeros},{i}]")).collect::<Vec<_>>().join(",");
    let of = |checks: &str| format!(r#"{{"type":"object","properties":{{"v":{checks}}}}}"#);
    let pattern = of(&format!(r#"{{"type":"string","pattern":"{states}"}}"#));
    let enumeration = of(&format!(r#"{{"type":"array","items":{{"type":"integer"}},"enum":[{lists}]}}"#));
    let rule = of(&format!(
        r#"{{"type":"string","x-kubernetes-validations":[{{"rule":"!self.matches('{states}')"}}]}}"#
    ));
    let list = format!(r#"{{"v":[{zeros},49]}}"#);
    for (schema, spec, is_right) in
        [(&pattern, &text, false), (&enumeration, &list, true), (&rule, &text, false)]
    {
        let few = details(schema, spec, 20_000);
        assert!(few.iter().any(|detail| detail.contains("too many steps")), "{few:?}");
        let many = details(schema, spec, 100_000_000);
        assert!(!many.iter().any(|detail| detail.contains("too many steps")), "{many:?}");
        assert_eq!(many.is_empty(), is_right, "{many:?}");
    }
}

#[test]
fn large_values_are_not_repeated_in_every_error() {
    let patterns: Vec<String> = (0..500).map(|i| format!(r#"{{"pattern":"^c{i}"}}"#)).collect();
    let rules: Vec<String> = (0..500).map(|i| format!(r#"{{"rule":"self == 'c{i}'"}}"#)).collect();
    let text = format!(r#"{{"v":"{}"}}"#, "x".repeat(300_000));
    for checks in [
        format!(r#""allOf":[{}]"#, patterns.join(",")),
        format!(r#""x-kubernetes-validations":[{}]"#, rules.join(",")),
    ] {
        let schema = format!(r#"{{"type":"object","properties":{{"v":{{"type":"string",{checks}}}}}}}"#);
        let errors = wrong(&schema, &text);
        assert!(errors.len() > 2, "{}", errors.len());
        assert!(errors.iter().map(String::len).sum::<usize>() < 2 << 20, "{}", errors.len());
        assert!(wrong(&schema, r#"{"v":"x"}"#).len() >= 500, "short errors are all reported");
    }
}
