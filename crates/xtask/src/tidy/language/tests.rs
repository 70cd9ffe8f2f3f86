use super::super::sources::SourceFile;
use super::{check, check_markdown, check_other, doc_comments, items, names, words};

fn comments(text: &str) -> Vec<String> {
    doc_comments(&SourceFile::new("crates/a/src/b.rs", text))
}

fn banned(path: &str, text: &str) -> Vec<String> {
    let source = SourceFile::new(path, text);
    names(&source, path.split('/').nth(1).unwrap())
}

#[test]
fn a_doc_comment_of_four_words_is_accepted_and_of_three_is_rejected() {
    assert!(comments("/// At most 63 characters.\nfn f() {}").is_empty());
    assert!(comments("//! Reads\n//! YAML as\n//! Kubernetes does.").is_empty());
    assert_eq!(
        comments("fn e() {}\n/// The name.\nfn f() {}"),
        ["crates/a/src/b.rs:2: the doc comment `The name.` has under 4 words: say more, or delete it"]
    );
}

#[test]
fn other_comments_strings_and_code_blocks_are_not_checked_as_doc_comments() {
    assert!(comments("// short\n//// rule\nfn f() {}").is_empty());
    assert!(comments("let text = \"\n/// short\n\";").is_empty());
    assert!(comments("/// ```\n/// code();\n/// ```\nfn f() {}").is_empty());
}

#[test]
fn a_doc_comment_that_names_nothing_is_rejected() {
    assert_eq!(comments("/// The same for a folder that exists.\nfn f() {}").len(), 1);
    for start in [
        "What a folder contains",
        "Where the folders exist",
        "Who may read them",
        "Those of the user",
        "Of its last change",
        "It has four files",
        "They are read at once",
        "There are no files",
        "Also the last file",
        "Not the last file",
    ] {
        assert_eq!(comments(&format!("/// {start}.\nfn f() {{}}")).len(), 1, "{start}");
    }
    assert!(comments("/// Offset of the first byte.\nfn f() {}").is_empty());
    assert!(comments("/// Reads files.\n/// Where none exist, fails.\nfn f() {}").is_empty());
    assert!(comments("/// Runs in the same folder.\nfn f() {}").is_empty());
}

#[test]
fn modules_that_do_not_say_what_they_contain_are_rejected() {
    let check = |path: &str, text: &str| check(&SourceFile::new(path, text));
    assert_eq!(
        check("crates/a/tests/b/helpers.rs", ""),
        ["crates/a/tests/b/helpers.rs:1: the module `helpers`: name it after what it contains"]
    );
    assert_eq!(check("crates/a/src/util/b.rs", "").len(), 1);
    assert_eq!(check("crates/a/src/b.rs", "\npub mod common {\n}\n").len(), 1);
    assert!(check("crates/a/src/b.rs", "mod retries {}\nlet helper = 1;\n").is_empty());
    assert!(check("crates/common/src/helper_threads.rs", "").is_empty());
}

#[test]
fn names_with_a_banned_word_are_rejected() {
    for line in [
        "fn heard(text: &str) {}",
        "pub(crate) struct Kept;",
        "enum StandingWatch {}",
        "trait TellingTrait {}",
        "type Facet = u8;",
        "mod door;",
        "const KEPT_BYTES: usize = 1;",
        "static TOLD: u8 = 1;",
        "let mut somebody = 1;",
        "    pub(super) place: usize,",
        "    nobody: bool,",
        "pub const fn is_kept() {}",
        "list.dedup_by(|a, kept| a == b);",
        "for (place, b) in c {}",
    ] {
        assert_eq!(banned("crates/a/src/b.rs", line).len(), 1, "{line}");
    }
    // A function of tokio.
    assert!(banned("crates/a/src/b.rs", "tokio::task::block_in_place(|| {})").is_empty());
    assert_eq!(
        banned("crates/a/src/kept.rs", ""),
        [
            "crates/a/src/kept.rs:1: the name `kept` contains `kept`: use the word that Kubernetes or Rust has for it"
        ]
    );
}

#[test]
fn other_words_comments_and_texts_are_accepted() {
    for line in ["fn replace(placeholder: &str) {}", "struct Standings;", "let a = \"place\"; // place"] {
        assert!(banned("crates/a/src/replace.rs", line).is_empty(), "{line}");
    }
}

#[test]
fn definition_is_banned_only_where_it_would_mean_a_crd() {
    for line in ["struct Definition;", "fn definitions() {}", "mod definition;"] {
        assert_eq!(banned("crates/server/src/a.rs", line).len(), 1, "{line}");
        assert!(banned("crates/cel/src/a.rs", line).is_empty(), "{line}");
    }
    assert_eq!(banned("crates/conformance/tests/a.rs", "let definition = 1;").len(), 1);
    assert!(banned("crates/server/src/a.rs", "let definitions = &document;").is_empty());
    for line in [
        "struct CustomResourceDefinition;",
        "fn custom_resource_definitions() {}",
        "struct TableColumnDefinition;",
    ] {
        assert!(banned("crates/server/src/a.rs", line).is_empty(), "{line}");
    }
}

#[test]
fn folders_are_checked_like_files() {
    assert_eq!(banned("crates/a/src/kept/tests.rs", "").len(), 1);
    assert_eq!(banned("crates/a/tests/standing_watch/main.rs", "").len(), 1);
    assert!(banned("crates/a/src/placement/tests.rs", "").is_empty());
}

#[test]
fn comments_name_users_and_components() {
    let found = |text: &str| check(&SourceFile::new("crates/a/src/b.rs", text));
    assert_eq!(
        found("// This is called before anything is told to Nobody.\nfn f() {}"),
        [
            "crates/a/src/b.rs:1: `told`: say which user, client or component is meant, and what it does",
            "crates/a/src/b.rs:1: `Nobody`: say which user, client or component is meant, and what it does",
        ]
    );
    assert!(
        found("// The user `nobody` in a text, and a place that is kept.\nlet user = \"nobody\";").is_empty()
    );
}

#[test]
fn go_and_python_files_are_checked_too() {
    assert_eq!(check_other("go/a/kept.go", "").len(), 1);
    assert_eq!(check_other("go/a/b.go", "func keptKeys() {}").len(), 1);
    assert_eq!(check_other("python/a/b.py", "# Nobody reads it.\nkept_keys = 1").len(), 2);
    assert!(check_other("python/a/b.py", "# A place where keys are kept.\nkeys = 1").is_empty());
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(words("SchemaEpoch"), ["schema", "epoch"]);
    assert_eq!(words("schema_epoch"), ["schema", "epoch"]);
    assert_eq!(words("SCHEMA_EPOCH"), ["schema", "epoch"]);
    assert_eq!(items("pub async fn a() { let mut b = 1; } mod c;"), ["a", "c"]);
}

#[test]
fn banned_words_in_markdown_are_rejected_outside_of_code() {
    assert!(check_markdown("a.md", "Every client is `told`.\n```text\nnobody\n```\nThe end.").is_empty());
    assert_eq!(
        check_markdown("a.md", "# A\n```text\nx\n```\nNobody may read it."),
        ["a.md:5: `Nobody`: say which user, client or component is meant, and what it does"]
    );
}

#[test]
fn names_and_prose_have_american_spellings_and_data_may_have_others() {
    let check = |text: &str| check(&SourceFile::new("crates/a/src/b.rs", text));
    assert_eq!(
        check("fn normalise() {}"),
        ["crates/a/src/b.rs:1: `normalise` has the spelling `normalis`: write `normaliz`"]
    );
    assert_eq!(check("// The behaviour of unlabelled nodes").len(), 2);
    assert_eq!(check("// A cancelled request").len(), 1);
    assert_eq!(check_markdown("a.md", "Its Neighbours").len(), 1);
    assert!(check("fn normalize() {}\n// The behavior of unlabeled nodes at a cancellation").is_empty());
    assert!(check("fn f() { g(\"colour\", Alert::UnrecognisedName); } // quotes `colour`").is_empty());
    assert!(check_markdown("a.md", "```yaml\ncolour: red\n```\n").is_empty());
}
