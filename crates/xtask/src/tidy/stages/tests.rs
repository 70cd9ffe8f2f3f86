use super::{same_order, same_refusals};

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

#[test]
fn the_page_for_users_has_the_same_stages_and_codes() {
    let architecture = "## The path of a request\n\n| stage | where | refuses with |\n|---|---|---|\n\
        | parse | `a.rs` | 400 (`timeout`) |\n| store | `b.rs` | 409, 500 |\n";
    let page = |codes: &str| {
        format!(
            "# Path\n\n| stage | refuses with |\n|---|---|\n| parse | 400 |\n\nA write:\n\n\
             | stage | refuses with |\n|---|---|\n| store | {codes} |\n"
        )
    };
    assert_eq!(same_refusals(architecture, &page("500, or 409")), [""; 0]);
    assert_eq!(
        same_refusals(architecture, &page("409")),
        [
            r#"the stage `store` refuses with {"409", "500"} in ARCHITECTURE.md, with {"409"} in docs/concepts/path-of-a-request.md"#
        ]
    );
    let without = "| stage | refuses with |\n|---|---|\n| parse | 400 |\n";
    assert_eq!(
        same_refusals(architecture, without),
        [
            "the stages of ARCHITECTURE.md are [parse, store], those of docs/concepts/path-of-a-request.md [parse]"
        ]
    );
}
