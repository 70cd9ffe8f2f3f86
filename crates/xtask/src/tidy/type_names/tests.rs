use super::super::sources::SourceFile;
use super::{declared, unique};

fn complaints(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<SourceFile> = files.iter().map(|(path, text)| SourceFile::new(path, text)).collect();
    unique(&sources)
}

#[test]
fn a_type_name_in_two_files_is_rejected_and_names_both() {
    assert_eq!(
        complaints(&[
            ("crates/a/src/x.rs", "struct Graph;"),
            ("crates/b/src/y.rs", "\npub(crate) enum Graph {}")
        ]),
        [
            "the type name `Graph` is declared in crates/a/src/x.rs:1 and crates/b/src/y.rs:2: one name, one meaning"
        ]
    );
    assert!(
        complaints(&[("crates/a/src/x.rs", "struct Graph;"), ("crates/b/src/y.rs", "struct Tree;")])
            .is_empty()
    );
}

#[test]
fn tests_tools_and_libraries_may_not_repeat_a_name_of_the_server() {
    let home = ("crates/a/src/x.rs", "struct Graph;");
    for other in [
        ("crates/a/src/x/tests.rs", "struct Graph;"),
        ("crates/a/src/y.rs", "#[cfg(test)]\nmod tests {\n    struct Graph;\n}"),
        ("crates/conformance/src/y.rs", "struct Graph;"),
        ("crates/webhook-auth/src/y.rs", "struct Graph;"),
    ] {
        assert_eq!(complaints(&[home, other]).len(), 1, "{other:?}");
    }
}

#[test]
fn tests_and_tools_may_repeat_names_of_each_other_and_everything_a_shared_concept() {
    let test = ("crates/a/src/x/tests.rs", "struct Graph;");
    assert!(complaints(&[test, ("crates/b/tests/y.rs", "struct Graph;")]).is_empty());
    assert!(complaints(&[test, ("crates/conformance/src/y.rs", "struct Graph;")]).is_empty());
    let home = ("crates/a/src/x.rs", "struct Error;");
    assert!(complaints(&[home, ("crates/b/src/y.rs", "enum Error {}")]).is_empty());
}

#[test]
fn only_declarations_of_types_are_compared() {
    assert_eq!(declared("pub(crate) struct Graph<'a> {"), Some("Graph"));
    assert_eq!(declared("    struct Local;"), Some("Local"));
    assert_eq!(declared("pub type Pair = (u8, u8);"), Some("Pair"));
    assert_eq!(declared("pub unsafe trait Zeroed {}"), Some("Zeroed"));
    assert_eq!(declared("    type Item = u8;"), None);
    assert_eq!(declared("let kind = row.type_name;"), None);
    assert_eq!(declared("use a::Graph;"), None);
}
