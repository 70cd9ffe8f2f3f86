//! JSONPath of printer columns, and the subset of CustomResourceDefinitions.

use crd::json_path::JsonPath;
use fuzz::Corpus;
use value::{Value, json};

/// The maximum number of values that one path may find.
const MAX_FOUND: usize = 100_000;

#[test]
fn paths_find_a_bounded_number_of_values() {
    let seeds = [
        ".spec.replicas",
        ".status.conditions[?(@.type==\"Ready\")].status",
        ".metadata.labels['a.b/c']",
        "$..name",
        ".spec.list[*].a",
        ".spec.list[0:2:1]",
        ".spec.list[-1:]",
        ".spec.list[0,1]['a','b']",
        "{.a}{'text'}{range .spec.list[*]}{.a}{end}",
        ".a[?(@.b > 1.5)]",
        ".spec..a..b",
        ".spec.list[?(@.a)].a",
    ];
    let tokens = [
        "..", "[*]", "[?(", ")]", "@", "@.", "$", "['", "']", "[0]", "[::2]", "[1:", "*", "..*", "{", "}",
        "range", "end", "==", "<=", "\\.", "&&",
    ];
    let nested = |depth: usize| {
        format!("{}1{}", r#"{"a":["#.repeat(depth), r#"],"b":{"a":2},"name":"x"}"#.repeat(depth))
    };
    let objects: Vec<Value> = [
        r#"{"metadata":{"name":"n","labels":{"a.b/c":"d"}},"spec":{"replicas":3,"list":[{"a":1,"b":2},{"a":"x"},{"a":null}]},"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#.to_owned(),
        nested(40),
        format!("[{}1]", "[[1,2,3],{\"a\":[1,2,3]}],".repeat(200)),
        format!("{{\"a\":[{}0]}}", "{\"b\":1,\"a\":[1,2]},".repeat(500)),
    ]
    .iter()
    .map(|text| json::parse(text.as_bytes()).unwrap())
    .collect();
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let text = input.text();
        let Some(path) = JsonPath::parse(&text) else { return Ok(()) };
        for object in &objects {
            let found = path.find(object).len();
            if found > MAX_FOUND {
                return Err(format!("{found} values"));
            }
            let _ = path.first(object);
        }
        Ok(())
    });
}
