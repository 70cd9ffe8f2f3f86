use super::super::sources::Source;
use super::{doc_comments, items, names, words};

fn comments(text: &str) -> Vec<String> {
    doc_comments(&Source::new("crates/a/src/b.rs", text))
}

fn banned(path: &str, text: &str) -> Vec<String> {
    let source = Source::new(path, text);
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
fn a_doc_comment_that_refers_to_the_one_before_is_rejected() {
    assert_eq!(comments("/// The same for a folder that exists.\nfn f() {}").len(), 1);
    assert!(comments("/// Runs in the same folder.\nfn f() {}").is_empty());
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
    assert!(banned("crates/server/src/a.rs", "let definition = 1;").is_empty());
    for line in ["struct CustomResourceDefinition;", "fn custom_resource_definitions() {}"] {
        assert!(banned("crates/server/src/a.rs", line).is_empty(), "{line}");
    }
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(words("SchemaEpoch"), ["schema", "epoch"]);
    assert_eq!(words("schema_epoch"), ["schema", "epoch"]);
    assert_eq!(words("SCHEMA_EPOCH"), ["schema", "epoch"]);
    assert_eq!(items("pub async fn a() { let mut b = 1; } mod c;"), ["a", "c"]);
}
