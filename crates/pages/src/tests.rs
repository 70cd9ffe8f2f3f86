//! Correct pages pass; pages with wrong, unclosed or missing expected results fail.

use super::{Page, page_names};

fn page(text: &str) -> Page {
    Page { path: "spec/sums.md".into(), text: text.to_owned() }
}

/// Checks a page in which an `is` block has the sum of the `sum` blocks before it.
fn check(text: &str) {
    let mut sum = 0;
    page(text).check(|info, body| match info {
        "sum" => {
            sum = body.lines().map(|line| line.parse::<i32>().unwrap()).sum();
            None
        }
        "is" => Some(format!("{sum}\n")),
        other => panic!("unknown block `{other}`"),
    });
}

#[test]
fn a_correct_page_passes() {
    check("# Sums\n\n```sum\n1\n2\n```\n\nThat is\n\n```is\n3\n```\n");
}

#[test]
#[should_panic(expected = "spec/sums.md:6: expected\n4\nbut got\n3\n")]
fn a_wrong_block_fails_with_its_line() {
    check("```sum\n1\n2\n```\n```is\n4\n```\n");
}

#[test]
#[should_panic(expected = "no block has an expected result")]
fn a_page_without_expected_results_fails() {
    check("```sum\n1\n```\n");
}

#[test]
#[should_panic(expected = "the last block is not closed")]
fn an_unclosed_block_fails() {
    check("```sum\n1\n```\n```is\n1\n");
}

#[test]
fn page_names_are_the_sorted_markdown_files_with_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("spec");
    std::fs::create_dir(&spec).unwrap();
    for name in ["b.md", "a_two.md", "a_one.md", "a.txt"] {
        std::fs::write(spec.join(name), "").unwrap();
    }
    let of = folder.path().to_str().unwrap();
    assert_eq!(page_names(of, ""), ["a_one", "a_two", "b"]);
    assert_eq!(page_names(of, "a_"), ["a_one", "a_two"]);
}
