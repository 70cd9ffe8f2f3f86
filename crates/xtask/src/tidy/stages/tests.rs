use super::same_order;

const ARCHITECTURE: &str = "\
# Architecture

## The path of a request

| stage | in → out |
|---|---|
| accept | bytes → request |
| parse | path → `RequestInfo` |
| mutate, validate | draft → `Admitted` |
| watch | commits → events |

## Another table

| stage |
|---|
| unrelated |
";

#[test]
fn the_table_and_the_pipeline_have_the_same_stages() {
    let pipeline =
        "fn f() {\n    // stage: parse\n    parse();\n    // stage: mutate, validate\n    admit();\n}";
    assert!(same_order(ARCHITECTURE, pipeline).is_empty(), "{:?}", same_order(ARCHITECTURE, pipeline));
}

#[test]
fn a_missing_stage_and_another_order_are_rejected() {
    let missing =
        same_order(ARCHITECTURE, "// stage: parse\n// stage: impersonate\n// stage: mutate, validate");
    assert_eq!(
        missing,
        [
            "the stage table of ARCHITECTURE.md has the order [parse, mutate, validate], the `// stage:` comments of \
          crates/server/src/pipeline.rs have [parse, impersonate, mutate, validate]"
        ]
    );
    assert_eq!(same_order(ARCHITECTURE, "// stage: mutate, validate\n// stage: parse").len(), 1);
    assert_eq!(same_order("# Architecture", "// stage: parse").len(), 1);
}
