use super::check;
use crate::tidy::documents::{FileTree, MarkdownFile};

const FILES: [(&str, &str); 6] = [
    ("crates/conformance/tests/security/bodies.rs", "#[tokio::test]\nasync fn a_body() {}"),
    ("crates/conformance/tests/security/callers.rs", "fn alice() {}"),
    ("crates/conformance/tests/flow_control/main.rs", "#[tokio::test]\nasync fn a_flow() {}"),
    ("crates/a/src/part.rs", "mod tests;"),
    ("crates/a/src/part/tests.rs", "#[test]\nfn a_part() {}"),
    ("crates/a/src/untested.rs", "fn a_part() {}"),
];

fn complaints(path: &str, rows: &[&str]) -> Vec<String> {
    let mut text = "| attack | test |\n|---|---|\n".to_owned();
    for cell in rows {
        text.extend(["| x | ", cell, " |\n"]);
    }
    let document =
        MarkdownFile { path: path.to_owned(), text: text + "\n| attack | x |\n|---|---|\n| a | b |\n" };
    let tree = FileTree { paths: FILES.iter().map(|(path, _)| (*path).to_owned()).collect() };
    let source =
        |path: &str| FILES.iter().find(|(file, _)| *file == path).map(|(_, text)| (*text).to_owned());
    check(&document, &tree, source)
}

#[test]
fn a_row_names_tests_by_module_by_function_by_folder_or_by_path() {
    let rows = [
        "`bodies`",
        "`bodies::a_body`; `flow_control` in `crates/conformance/tests/`",
        "`flow_control::a_flow` in `crates/conformance/tests/`, `bodies`",
        "`part::a_part` in `crates/a/src/`",
        "`part/tests.rs` in `crates/a/src/`",
        "`crates/a/src/part/tests.rs`",
    ];
    assert_eq!(complaints("docs/x.md", &rows), Vec::<String>::new());
}

#[test]
fn a_test_that_does_not_exist_is_reported() {
    let security = "`crates/conformance/tests/security/`";
    for (cell, complaint) in [
        ("–", "the row names no test".to_owned()),
        ("`none`", format!("there is no test `none` in {security}")),
        ("`bodies::none`", format!("there is no test `bodies::none` in {security}")),
        ("`callers`", format!("there is no test `callers` in {security}")),
        (
            "`bodies`; `untested` in `crates/a/src/`",
            "there is no test `untested` in `crates/a/src/`".to_owned(),
        ),
        ("`part::none` in `crates/a/src/`", "there is no test `part::none` in `crates/a/src/`".to_owned()),
        ("`crates/a/src/gone.rs`", "there is no test `crates/a/src/gone.rs` in `crates/a/src/`".to_owned()),
    ] {
        assert_eq!(complaints("docs/x.md", &[cell]), [format!("docs/x.md:3: {complaint}")]);
    }
}

#[test]
fn the_threat_model_names_every_file_of_the_security_suite() {
    let threats = "docs/reference/security.md";
    assert_eq!(complaints(threats, &["`bodies`"]), Vec::<String>::new());
    assert_eq!(
        complaints(threats, &["`part` in `crates/a/src/`"]),
        [
            "docs/reference/security.md: no row names the tests in `crates/conformance/tests/security/bodies.rs`"
        ]
    );
}
