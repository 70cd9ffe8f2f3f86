use proptest::prelude::*;

use super::{OFTEN, Pattern, tabulate};

fn check(pattern: &str, text: &str, wanted: bool) {
    let pattern = Pattern::compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    for _ in 0..OFTEN + 3 {
        assert_eq!(pattern.is_match(text), wanted, "{pattern:?} in {text:?}");
    }
}

#[test]
fn a_pattern_matches_the_same_before_and_after_it_gets_a_table() {
    let image = "^registry[.]example[.]com/[a-z0-9/-]+:[a-z0-9.]+$";
    check(image, "registry.example.com/team/app:1.2.3", true);
    check(image, "registry.example.com/", false);
    check(image, "registry.example.co", false);
    check(image, "registry.example.com/team/app:1.2.3\n", false);
    check("^abc$", "abc", true);
    check("^abc$", "abcd", false);
    check("^abc", "abcd", true);
    check("abc$", "xabc", true);
    check("b+", "abbc", true);
    check("b+", "", false);
    check("^$", "", true);
    check(r"\B", "é", true);
    check(r"^.$", "é", true);
    check(r"\bweb\b", "a web server", true);
}

#[test]
fn what_every_match_begins_with_is_compared_at_once() {
    let table = tabulate("^registry[.]example[.]com/[a-z]+$").map(|table| table.prefix);
    assert_eq!(table.as_deref(), Some(b"registry.example.com/".as_slice()));
    assert_eq!(tabulate("a+b").map(|table| table.prefix).as_deref(), Some(b"".as_slice()));
    assert_eq!(tabulate("^abc").map(|table| table.prefix).as_deref(), Some(b"abc".as_slice()));
}

#[test]
fn large_patterns_get_no_table() {
    assert!(tabulate(r"(?:[ab]*a[ab]{12}){3}").is_none());
    assert!(tabulate(r"\p{L}{50}").is_none());
}

proptest! {
    #[test]
    fn tables_agree_with_the_engine(
        pattern in r"\^?([a-c.]|\[a-b\]|\(a\|b\)|é|\\b|\\B|\$)([*+?]|\{2\})?([a-c.]|\[\^a\]|\(ab\|c\)|é|\\d)?[*+?]?\$?",
        texts in prop::collection::vec("[a-cé1\n]{0,6}", 1..8),
    ) {
        if let Ok(regex) = super::compile(&pattern)
            && let Some(table) = tabulate(regex.regex.as_str())
        {
            for text in texts {
                prop_assert_eq!(table.is_match(text.as_bytes()), regex.regex.is_match(&text), "{} in {:?}", pattern, text);
            }
        }
    }
}
