use super::{FileTree, MarkdownFile, anchors, is_document, items, links, paths};

fn document(path: &str, text: &str) -> MarkdownFile {
    MarkdownFile { path: path.to_owned(), text: text.to_owned() }
}

fn tree(paths: &[&str]) -> FileTree {
    FileTree { paths: paths.iter().map(|path| (*path).to_owned()).collect() }
}

#[test]
fn a_path_in_backticks_must_exist() {
    let tree = tree(&["crates/a", "crates/a/b.rs", "Cargo.toml"]);
    let fine = "see `crates/a/b.rs`, `crates/a/`, `crates/a/<name>.rs`, `Cargo.toml`, `cargo run`, `authn::tokens`\n\
                ```\n`crates/none.rs`\n```";
    let complaints = paths(&document("X.md", fine), &tree);
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(
        paths(&document("X.md", "a\nsee `crates/a/{b,c}.rs`"), &tree),
        ["X.md:2: `crates/a/{b,c}.rs` does not exist"]
    );
    assert_eq!(paths(&document("X.md", "`crates/c/<name>.rs`"), &tree).len(), 1);
    assert_eq!(paths(&document("docs/x.md", "`docs/none.md`"), &tree).len(), 1);
}

#[test]
fn a_crates_readme_may_name_its_own_files() {
    let tree = tree(&["crates/a/src/syntax", "crates/a/tests/suite.rs", "crates/b/src/eval"]);
    let readme = |text: &str| paths(&document("crates/a/README.md", text), &tree);
    assert!(readme("`syntax/`, `tests/suite.rs`, `/registry/`, `a, b`").is_empty());
    assert_eq!(readme("`eval/`"), ["crates/a/README.md:1: `eval/` does not exist"]);
    assert_eq!(readme("`tests/skips.txt`").len(), 1);
    assert!(paths(&document("docs/x.md", "`pods/`"), &tree).is_empty());
}

#[test]
fn a_relative_link_must_lead_to_a_file_and_its_anchor_to_a_heading() {
    let tree = tree(&["docs/a.md", "docs/b.md", "README.md", "crates/a"]);
    let text = |path: &str| (path == "docs/b.md").then(|| "# B\n## Why it fails\n".to_owned());
    let check = |line: &str| links(&document("docs/a.md", line), &tree, text);
    let fine = "[b](b.md), [why](b.md#why-it-fails), [root](../README.md), [crate](../crates/a/), \
                [web](https://example.com/x#y), `a](b`";
    assert!(check(fine).is_empty(), "{:?}", check(fine));
    assert_eq!(check("[c](c.md)"), ["docs/a.md:1: the link to `c.md` leads to no file"]);
    assert_eq!(check("[out](../../x.md)").len(), 1);
    assert_eq!(
        check("[why](b.md#why)"),
        ["docs/a.md:1: the link to `b.md#why`: `docs/b.md` has no such heading"]
    );
    assert!(check("```\n[c](c.md)\n```").is_empty());
    let own = |path: &str| (path == "docs/a.md").then(|| "# Top\n".to_owned());
    assert!(links(&document("docs/a.md", "[up](#top)"), &tree, own).is_empty());
    assert_eq!(links(&document("docs/a.md", "[up](#bottom)"), &tree, own).len(), 1);
}

#[test]
fn an_item_that_is_named_with_its_file_must_be_declared_there() {
    let source =
        |path: &str| (path == "crates/a/src/b.rs").then(|| "struct Reader;\nfn next<T>() {}".to_owned());
    let check = |text: &str| items(&document("docs/x.md", text), source);
    assert!(check("`Reader::next` in `crates/a/src/b.rs`, `Reader` (`crates/a/src/b.rs`)").is_empty());
    assert!(check("see `next`\n  in `crates/a/src/b.rs`; `portcullis up` in `crates/a/src/b.rs`").is_empty());
    assert_eq!(
        check("`Read` in `crates/a/src/b.rs`"),
        ["docs/x.md: `Read` is not declared in `crates/a/src/b.rs`"]
    );
    assert_eq!(check("`Reader::skip`\n(`crates/a/src/b.rs`)").len(), 1);
}

#[test]
fn heading_anchors_equal_those_of_github() {
    let found = anchors("# `portcullis up`: a server, now\n## Twice\n## Twice\n```\n# no heading\n```");
    let expected = ["portcullis-up-a-server-now", "twice", "twice-1"];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn pages_and_readmes_are_documents_and_specifications_are_not() {
    assert!(["README.md", "docs/a/b.md", "crates/a/README.md"].into_iter().all(is_document));
    assert!(!["crates/a/spec/b.md", "docs/a.yaml"].into_iter().any(is_document));
}
