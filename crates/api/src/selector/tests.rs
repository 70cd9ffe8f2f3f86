use value::{Value, json};

use super::*;

type Case = (&'static str, Result<&'static str, &'static str>);

/// Selector texts with Kubernetes' printed form or error message.
#[rustfmt::skip]
const LABELS: &[Case] = &[
    ("", Ok("")),
    ("a", Ok("a")),
    ("!a", Ok("!a")),
    ("a=b", Ok("a=b")),
    ("a==b", Ok("a==b")),
    ("a!=b", Ok("a!=b")),
    ("a in (b)", Ok("a in (b)")),
    ("a in (c,b)", Ok("a in (b,c)")),
    ("a notin (b,,c)", Ok("a notin (,b,c)")),
    ("a in ()", Ok("a in ()")),
    ("a in (,)", Ok("a in ()")),
    ("a in (,b)", Ok("a in (,b)")),
    ("a in (b,)", Ok("a in (,b)")),
    ("x=a,y=b,z=c", Ok("x=a,y=b,z=c")),
    ("b,a", Ok("a,b")),
    ("a>1", Ok("a>1")),
    ("a<5", Ok("a<5")),
    ("a>b", Err("unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer")),
    ("a=,b", Ok("a=,b")),
    ("in in (in,notin)", Ok("in in (in,notin)")),
    ("notin=in", Ok("notin=in")),
    ("a in(b)", Ok("a in (b)")),
    ("x in (foo,,baz),y,z notin ()", Ok("x in (,baz,foo),y,z notin ()")),
    ("  a  =  b ", Ok("a=b")),
    ("!a,b", Ok("!a,b")),
    ("a,", Err("found '', expected: identifier after ','")),
    ("a,,b", Err("found ',', expected: identifier after ','")),
    (",", Err("found ',', expected: !, identifier, or 'end of string'")),
    ("=", Err("found '=', expected: !, identifier, or 'end of string'")),
    ("a b", Err("unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt")),
    ("a=b c", Err("found 'c', expected: ',' or 'end of string'")),
    ("!", Err("unable to parse requirement: found '', expected: identifier")),
    ("!=", Err("found '!=', expected: !, identifier, or 'end of string'")),
    ("a in b", Err("unable to parse requirement: found 'b' expected: '('")),
    ("a in (b", Err("unable to parse requirement: found '', expected: ',' or ')'")),
    ("a in (b c)", Err("unable to parse requirement: found 'c', expected: ',' or ')'")),
    ("a in (!b)", Err("unable to parse requirement: found '!', expected: ',', ')' or identifier")),
    ("a in (b!", Err("unable to parse requirement: found '!', expected: ',' or ')'")),
    ("(a)", Err("found '(', expected: !, identifier, or 'end of string'")),
    ("a=!b", Err("unable to parse requirement: found '!', expected: identifier")),
    ("a !b", Err("unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt")),
    ("!a=b", Err("found '=', expected: ',' or 'end of string'")),
    ("a==", Ok("a==")),
    ("a===b", Err("unable to parse requirement: found '=', expected: identifier")),
    ("a=b=c", Err("found '=', expected: ',' or 'end of string'")),
    ("a/b/c=d", Err("unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")),
    ("-a", Err("unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")),
    ("a=b/c", Err("unable to parse requirement: values[0][a]: Invalid value: \"b/c\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")),
    ("a=-", Err("unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")),
    ("a>", Err("unable to parse requirement: values[0]: Invalid value: \"\": for 'Gt', 'Lt' operators, the value must be an integer")),
    ("x<><", Err("unable to parse requirement: found '>', expected: identifier")),
    ("a=(b)", Err("unable to parse requirement: found '(', expected: identifier")),
    ("!!a", Err("unable to parse requirement: found '!', expected: identifier")),
    ("a\tin\n(b)", Ok("a in (b)")),
    ("a=b,c in", Err("unable to parse requirement: found '' expected: '('")),
    ("in", Ok("in")),
    ("a!", Err("unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt")),
    ("a ! b", Err("unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt")),
    ("a=b,a=c", Ok("a=b,a=c")),
    ("é=1", Err("unable to parse requirement: <nil>: Invalid value: \"é\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")),
    ("a=é", Err("unable to parse requirement: values[0][a]: Invalid value: \"é\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")),
    ("a in (b),a notin (c)", Ok("a in (b),a notin (c)")),
];

#[rustfmt::skip]
const FIELDS: &[Case] = &[
    ("", Ok("")),
    ("a=b", Ok("a=b")),
    ("a==b", Ok("a=b")),
    ("a!=b", Ok("a!=b")),
    ("b=1,a=2", Ok("a=2,b=1")),
    ("a=b,,c=d", Ok("a=b,c=d")),
    ("a", Err("invalid selector: 'a'; can't understand 'a'")),
    ("a=b,c", Err("invalid selector: 'a=b,c'; can't understand 'c'")),
    ("=b", Ok("=b")),
    ("a=", Ok("a=")),
    ("a=b=c", Err("invalid field selector: unescaped character in value: 61")),
    ("a=b\\=c", Ok("a=b\\=c")),
    ("a=b\\,c,d=e", Ok("a=b\\,c,d=e")),
    ("a=\\x", Err("invalid field selector: invalid escape sequence: \\x")),
    ("a=\\", Err("invalid field selector: invalid escape sequence: \\")),
    ("a!b", Err("invalid selector: 'a!b'; can't understand 'a!b'")),
    ("a!b=c", Ok("a!b=c")),
    ("a=\\\\", Ok("a=\\\\")),
    ("a=b!=c", Err("invalid field selector: unescaped character in value: 61")),
    ("é=ü", Ok("é=ü")),
];

#[test]
fn label_selectors_read_and_print_as_kubernetes_does() {
    for (text, expected) in LABELS {
        let actual = LabelSelector::parse(text).map(|s| s.to_string());
        assert_eq!(actual.as_deref().map_err(String::as_str), *expected, "{text:?}");
    }
}

#[test]
fn field_selectors_read_and_print_as_kubernetes_does() {
    for (text, expected) in FIELDS {
        let actual = FieldSelector::parse(text).map(|s| s.to_string());
        assert_eq!(actual.as_deref().map_err(String::as_str), *expected, "{text:?}");
    }
}

#[track_caller]
fn selects(selector: &str, labels: &[(&str, &str)], expected: bool) {
    let selector = LabelSelector::parse(selector).unwrap();
    assert_eq!(selector.matches(labels), expected);
    let facts = SelectorFacts::encode(labels.iter().copied(), []);
    assert_eq!(selector.matches(&FactsRef::new(&facts)), expected);
}

#[test]
fn selectors_match_labels() {
    let labels = [("foo", "bar"), ("n", "7"), ("x", "")];
    for (selector, expected) in [
        ("", true),
        ("foo=bar", true),
        ("foo==baz", false),
        ("foo!=baz", true),
        ("foo!=bar", false),
        ("nope!=bar", true),
        ("foo in (bar,baz)", true),
        ("foo in (baz)", false),
        ("foo notin (baz)", true),
        ("nope notin (baz)", true),
        ("nope in ()", false),
        ("x in ()", true),
        ("foo", true),
        ("!foo", false),
        ("!nope", true),
        ("n>6", true),
        ("n>7", false),
        ("n<8", true),
        ("foo>1", false),
        ("nope<1", false),
        ("foo=bar,n=7", true),
        ("foo=bar,n=8", false),
    ] {
        selects(selector, &labels, expected);
    }
}

fn object(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

#[test]
fn label_selector_objects_become_selectors() {
    let of = |text: &str| LabelSelector::from_label_selector(Some(&object(text))).map(|s| s.to_string());
    assert_eq!(of(r#"{"matchLabels":{"b":"1","a":"2"}}"#).unwrap(), "a=2,b=1");
    assert_eq!(
        of(r#"{"matchExpressions":[{"key":"z","operator":"NotIn","values":["c","b"]},{"key":"a","operator":"Exists"}]}"#).unwrap(),
        "a,z notin (b,c)"
    );
    assert_eq!(
        of(r#"{"matchExpressions":[{"key":"z","operator":"Near"}]}"#).unwrap_err(),
        r#""Near" is not a valid label selector operator"#
    );
    assert_eq!(
        of(r#"{"matchExpressions":[{"key":"z","operator":"Exists","values":["a"]}]}"#).unwrap_err(),
        r#"values: Invalid value: ["a"]: values set must be empty for exists and does not exist"#
    );
    assert_eq!(
        of(r#"{"matchExpressions":[{"key":"z","operator":"In"}]}"#).unwrap_err(),
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
    );
    assert!(LabelSelector::from_label_selector(None).unwrap().is_nothing());
    assert!(LabelSelector::from_label_selector(Some(&object("{}"))).unwrap().is_everything());
    assert_eq!(format_label_selector(Some(&object("{}"))), "<none>");
    assert_eq!(format_label_selector(None), "<none>");
    assert_eq!(format_label_selector(Some(&object(r#"{"matchLabels":{"-":"1"}}"#))), "<error>");
}

#[test]
fn label_selector_objects_are_validated_field_by_field() {
    let path = value::Path::root().field("spec").field("selector");
    let check = |text: &str, expected: &[&str]| {
        let errors: Vec<String> =
            validate_label_selector(&object(text), false, &path).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected);
    };
    check(
        r#"{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["x"]}]}"#,
        &[],
    );
    check(
        r#"{"matchExpressions":[{"key":"a","operator":"In"},{"key":"a","operator":"Exists","values":["x"]},{"key":"a","operator":""}]}"#,
        &[
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            "spec.selector.matchExpressions[2].operator: Invalid value: \"\": not a valid selector operator",
        ],
    );
}

#[test]
fn nothing_selector_matches_no_labels_and_everything_selector_matches_all() {
    assert!(!LabelSelector::nothing().matches(&[("a", "b")][..]));
    assert!(LabelSelector::everything().matches(&[("a", "b")][..]));
}

#[test]
fn selectors_report_values_they_require_exactly() {
    let selector = LabelSelector::parse("a=1,b in (2),c in (3,4),d!=5").unwrap();
    assert_eq!(selector.requires_exact_match("a"), Some("1"));
    assert_eq!(selector.requires_exact_match("b"), Some("2"));
    assert_eq!(selector.requires_exact_match("c"), None);
    assert_eq!(selector.requires_exact_match("d"), None);
    let selector = FieldSelector::parse("metadata.name=x,status.phase!=y").unwrap();
    assert_eq!(selector.requires_exact_match("metadata.name"), Some("x"));
    assert_eq!(selector.requires_exact_match("status.phase"), None);
}

#[test]
fn facts_round_trip_labels_and_fields() {
    let long = "v".repeat(300);
    let pod = object(r#"{"metadata":{"labels":{"a":"1","b":""}}}"#);
    let bytes = SelectorFacts::of(&pod, [("spec.nodeName", "n1"), ("long", long.as_str())]);
    let facts = FactsRef::new(&bytes);
    assert_eq!(facts.label("a"), Some("1"));
    assert_eq!(facts.label("b"), Some(""));
    assert_eq!(facts.label("spec.nodeName"), None);
    assert_eq!(facts.field("spec.nodeName"), "n1");
    assert_eq!(facts.field("long"), long);
    assert_eq!(facts.field("a"), "");
    assert_eq!(facts.labels().count(), 2);
    let selects = |labels: &str, fields: &str| {
        let labels = LabelSelector::parse(labels).unwrap();
        let fields = FieldSelector::parse(fields).unwrap();
        Selection { labels, fields }.matches(facts)
    };
    assert!(selects("a=1", "spec.nodeName=n1,status.phase!=Running"));
    assert!(!selects("a=1", "spec.nodeName=n2"));
    assert!(!selects("a=2", "spec.nodeName=n1"));
    assert!(selects("", "status.phase="));
}

#[test]
fn reading_truncated_facts_never_panics() {
    let bytes = SelectorFacts::encode([("a", "1")], [("f", "2")]);
    for end in 0..bytes.len() {
        let facts = FactsRef::new(&bytes[..end]);
        assert_eq!(facts.field("f"), "");
        let _ = facts.label("a");
    }
    assert_eq!(FactsRef::new(&[0xff; 40]).label("a"), None);
}

/// A quadratic scan would take minutes, and selectors are parsed before the caller is authenticated.
#[test]
fn a_long_run_of_operators_is_scanned_in_one_pass() {
    for text in ["(", "!", "=", ",(", "=!"] {
        assert!(LabelSelector::parse(&text.repeat(200_000)).is_err(), "{text}");
    }
    assert_eq!(
        LabelSelector::parse("a!=b,c==d,!e").map(|selector| selector.to_string()),
        Ok("a!=b,c==d,!e".to_owned())
    );
}

#[test]
fn selectors_have_a_bounded_number_of_requirements() {
    let many =
        |term: &str, number: usize| (0..number).map(|n| format!("{term}{n}")).collect::<Vec<_>>().join(",");
    assert!(LabelSelector::parse(&many("!k", 1000)).is_ok());
    assert!(LabelSelector::parse(&many("!k", 1001)).unwrap_err().contains("at most 1000 requirements"));
    assert!(FieldSelector::parse(&many("metadata.name!=n", 1000)).is_ok());
    assert!(
        FieldSelector::parse(&many("metadata.name!=n", 1001))
            .unwrap_err()
            .contains("at most 1000 requirements")
    );
}

#[test]
fn label_selectors_have_a_bounded_number_of_values() {
    let values = |from: usize, to: usize| {
        let values: Vec<String> = (from..to).map(|number| format!("v{number}")).collect();
        format!("in ({})", values.join(","))
    };
    let refused = |text: &str| LabelSelector::parse(text).unwrap_err().contains("at most 5000 values");
    assert!(LabelSelector::parse(&format!("a {}", values(0, 5000))).is_ok());
    assert!(refused(&format!("a {}", values(0, 5001))));
    // The values of all requirements count together.
    let both = |more: usize| format!("a {},b not{}", values(0, 2500), values(0, 2500 + more));
    assert!(LabelSelector::parse(&both(0)).is_ok());
    assert!(refused(&both(1)));
    assert!(refused(&format!("a in ({}", ",".repeat(100_000))));
}

#[test]
fn values_of_a_selector_are_held_once() {
    let values: Vec<String> = (0..1000).map(|number| format!("v{number}")).collect();
    let text = format!("a in ({})", values.join(","));
    let bytes = LabelSelector::parse(&text).unwrap().heap_bytes();
    assert!((1000 * size_of::<value::Str>()..1100 * size_of::<value::Str>()).contains(&bytes), "{bytes}");
    // Longer values are allocated.
    let long = LabelSelector::parse(&format!("a in ({}, {})", "x".repeat(60), "y".repeat(60))).unwrap();
    assert!((2 * 60..1000).contains(&long.heap_bytes()), "{}", long.heap_bytes());
}

#[test]
fn requirement_with_many_values_matches_exactly_them() {
    for number in [1, 8, 9, 500] {
        let values: Vec<String> = (0..number).rev().map(|n| format!("v{}", 2 * n)).collect();
        for (operator, is_listed) in [("in", true), ("notin", false)] {
            let selector = LabelSelector::parse(&format!("a {operator} ({})", values.join(","))).unwrap();
            for n in 0..2 * number {
                let value = format!("v{n}");
                let labels = [("a", value.as_str())];
                assert_eq!(
                    selector.matches(&labels[..]) == is_listed,
                    n % 2 == 0,
                    "{operator} {number}: {value}"
                );
            }
            let none: [(&str, &str); 0] = [];
            assert_eq!(selector.matches(&none[..]), !is_listed);
        }
    }
}

/// Labels that count how they are read.
#[derive(Default)]
struct CountedLabels {
    searches: std::cell::Cell<usize>,
    sorts: std::cell::Cell<usize>,
}

impl Labels for CountedLabels {
    fn label(&self, key: &str) -> Option<&str> {
        self.searches.set(self.searches.get() + 1);
        (key == "a").then_some("1")
    }

    fn sorted(&self) -> Option<SortedLabels<'_>> {
        self.sorts.set(self.sorts.get() + 1);
        Some([("b", "2"), ("a", "1")].into_iter().collect())
    }
}

#[test]
fn many_requirements_sort_the_labels_once_and_search_none_from_the_start() {
    let read = |requirements: usize| {
        let text: Vec<String> = (0..requirements).map(|i| format!("!k{i}")).collect();
        let labels = CountedLabels::default();
        assert!(LabelSelector::parse(&text.join(",")).unwrap().matches(&labels));
        (labels.searches.get(), labels.sorts.get())
    };
    assert_eq!(read(FEW_REQUIREMENTS), (FEW_REQUIREMENTS, 0));
    assert_eq!(read(1000), (0, 1));
}

#[test]
fn selectors_of_many_requirements_match_the_same_facts_as_those_of_few() {
    let labels = [("z", "26"), ("a", "1"), ("m", "13"), ("", "empty")];
    let bytes = SelectorFacts::encode(labels, []);
    let facts = FactsRef::new(&bytes);
    let padding: Vec<String> = (0..50).map(|i| format!("!absent{i}")).collect();
    for requirement in
        ["a=1", "a=2", "a!=1", "z", "!z", "!q", "q", "m in (12,13)", "m notin (12,13)", "z>25", "z<26"]
    {
        let few = LabelSelector::parse(requirement).unwrap().matches(&facts);
        let many = format!("{requirement},{}", padding.join(","));
        assert_eq!(LabelSelector::parse(&many).unwrap().matches(&facts), few, "{requirement}");
    }
}
