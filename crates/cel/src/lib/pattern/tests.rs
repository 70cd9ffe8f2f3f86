use proptest::prelude::*;

use super::allowance::{PER_EVALUATION, PER_EXPRESSION, PER_OBJECT, PatternWorkLimit, within};
use super::{Pattern, PatternError, USES_BEFORE_TABLE, build_table, compile, compile_data};

fn check(pattern: &str, text: &str, wanted: bool) {
    let pattern = Pattern::compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    for _ in 0..USES_BEFORE_TABLE + 3 {
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
fn a_table_starts_with_the_prefix_of_all_matches() {
    let table = build_table("^registry[.]example[.]com/[a-z]+$").map(|table| table.prefix);
    assert_eq!(table.as_deref(), Some(b"registry.example.com/".as_slice()));
    assert_eq!(build_table("a+b").map(|table| table.prefix).as_deref(), Some(b"".as_slice()));
    assert_eq!(build_table("^abc").map(|table| table.prefix).as_deref(), Some(b"abc".as_slice()));
}

#[test]
fn large_patterns_get_no_table() {
    assert!(build_table(r"(?:[ab]*a[ab]{12}){3}").is_none());
    assert!(build_table(r"\p{L}{50}").is_none());
}

/// Work units of compiling a pattern, or the error.
fn work(text: &str) -> Result<u64, PatternError> {
    Pattern::compile(text).map(|pattern| pattern.work())
}

#[test]
fn compile_work_of_ordinary_patterns_is_small_and_large_patterns_are_rejected() {
    let names = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
    assert!(work(names).unwrap() < 1000);
    assert!(work("^.{1,253}$").unwrap() < 10_000);
    assert!(work(r"^\p{L}{1,63}$").unwrap() < 160_000);
    assert!(work("[a-z]{1000}").is_ok());
    assert_eq!(work(r"[\pL\pN]{90}"), Err(PatternError::TooLarge));
    // An expensive pattern is refused before it is parsed.
    assert_eq!(work(&format!("(?i){}", r"\pL".repeat(101))), Err(PatternError::TooLarge));
    assert_eq!(work(&r"\pL".repeat(1001)), Err(PatternError::TooLarge));
    assert!(matches!(work("("), Err(PatternError::Syntax(_))));
}

#[test]
fn every_pattern_within_the_bound_can_be_compiled() {
    for text in [
        "[a-z]{1000}",
        ".{1000}",
        r"\pL{80}",
        r"[^\pL]{80}",
        r"(?i)\pL{70}",
        "(?:ab|cd|ef|gh){999}",
        "(a?){999}",
    ] {
        let pattern = Pattern::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(pattern.engine().is_ok(), "{text}");
    }
}

#[test]
fn pattern_work_is_charged_to_enclosing_limits_and_once_per_pattern() {
    let pattern = |i: usize| format!(r"\pL{{80}}{i}");
    let refused = |limit: PatternWorkLimit| Err(PatternError::Exhausted(limit));
    within(PER_EXPRESSION, || {
        // A pattern is charged once, however often it is used.
        for _ in 0..100 {
            assert_eq!(compile(&pattern(0)).map(drop), Ok(()));
        }
    });
    within(PER_OBJECT, || {
        let mut compiled = 0;
        let outcome = loop {
            let one = within(PER_EXPRESSION, || compile(&pattern(compiled)).map(drop));
            if one.is_err() || compiled > 100 {
                break one;
            }
            compiled += 1;
        };
        assert_eq!(outcome, refused(PER_OBJECT));
        assert_eq!(compiled, 27);
    });
    within(PER_EVALUATION, || {
        let outcomes: Vec<_> = (0..3).map(|i| compile_data(&pattern(i)).map(drop)).collect();
        assert_eq!(outcomes, [Ok(()), Ok(()), refused(PER_EVALUATION)]);
    });
    // Each evaluation has its own allowance, and cached patterns are charged like new ones.
    within(PER_EVALUATION, || assert!(compile_data(&pattern(1)).is_ok()));
    assert!((0..30).all(|i| compile(&pattern(i)).is_ok()));
}

/// A pattern that stays in one state per character read, and a text that drives it there.
fn many_states() -> (Pattern, String) {
    let pattern = Pattern::compile(&format!("a{}c", "[ab]{1000}".repeat(39))).unwrap();
    (pattern, "ab".repeat(30_000))
}

#[test]
fn a_search_through_many_states_ends_at_the_limit() {
    let (pattern, text) = many_states();
    for limit in [PER_EVALUATION, PER_OBJECT] {
        within(limit, || {
            assert_eq!(pattern.try_match(&text), Err(PatternError::Unmatched(limit)));
            assert_eq!(pattern.find(&text), Err(PatternError::Unmatched(limit)));
        });
    }
    // A short text visits few states, however many the pattern has.
    within(PER_EVALUATION, || assert_eq!(pattern.try_match("abababab"), Ok(false)));
}

#[test]
fn a_search_ends_when_the_caller_s_budget_is_exhausted() {
    let (pattern, text) = many_states();
    let mut left = 1000_u64;
    let mut most = 0;
    let found = pattern.is_match_within(&text, |units| {
        most = most.max(units);
        left.checked_sub(units).inspect(|rest| left = *rest).is_some()
    });
    assert_eq!(found, None);
    assert!(most < 100_000, "{most} units were done before they were paid for");
    assert_eq!(pattern.is_match_within("abab", |_| true), Some(false));
}

#[test]
fn repeated_searches_of_find_all_are_counted() {
    // Each search reads to the end of the text and finds one character.
    let pattern = Pattern::compile("[^z]*z|[^z]").unwrap();
    within(PER_EVALUATION, || {
        let limit = PatternError::Unmatched(PER_EVALUATION);
        assert_eq!(pattern.find_all(&"a".repeat(60_000), -1), Err(limit));
    });
    within(PER_EVALUATION, || assert_eq!(pattern.find_all("aaz", -1), Ok(vec!["aaz"])));
}

#[test]
fn ordinary_patterns_reach_the_cost_limit_before_the_work_limit() {
    let name = "abcdefghij-klmnopqrst-uvwxyz-0123456789-abcdefghij-klmnopqrst-uv";
    for text in ["^[a-z0-9-]{1,64}$", r"^[\p{L}\p{N}-]{1,64}$", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"] {
        let pattern = Pattern::compile(text).unwrap();
        within(PER_EVALUATION, || {
            assert!((0..5000).all(|_| pattern.try_match(name) == Ok(true)), "{text}");
        });
    }
    let base64 = Pattern::compile("^[A-Za-z0-9+/]*={0,2}$").unwrap();
    within(PER_EVALUATION, || assert_eq!(base64.try_match(&"QUJD".repeat(100_000)), Ok(true)));
}

proptest! {
    #[test]
    fn counted_searches_agree_with_the_engine(
        pattern in r"\^?([a-c.]|\[a-b\]|\(a\|b\)|\(a\|ab\|\)|é|\\b|\\B|\$)([*+?]|\*\?|\+\?|\{2\})?([a-c.]|\[\^a\]|\(ab\|c\)|é|\\d)?[*+?]?\$?",
        texts in prop::collection::vec("[a-cé1\n]{0,8}", 1..8),
    ) {
        if let Ok(regex) = super::compile(&pattern) {
            for text in texts {
                let nfa = regex.automaton().unwrap();
                let search = |earliest| super::threads::NfaSearch { nfa, text: &text, earliest }.run(0, &mut |_| Ok::<_, ()>(()));
                let engine = regex.engine().unwrap();
                prop_assert_eq!(search(true).unwrap().is_some(), engine.is_match(&text), "{} in {:?}", pattern, text);
                let found = engine.find(&text).map(|found| found.range());
                prop_assert_eq!(search(false).unwrap(), found, "{} in {:?}", pattern, text);
                let all: Vec<&str> = engine.find_iter(&text).filter_map(|found| text.get(found.range())).collect();
                prop_assert_eq!(regex.find_all_counted(&text, usize::MAX).unwrap(), all, "{} in {:?}", pattern, text);
            }
        }
    }

    #[test]
    fn tables_agree_with_the_engine(
        pattern in r"\^?([a-c.]|\[a-b\]|\(a\|b\)|é|\\b|\\B|\$)([*+?]|\{2\})?([a-c.]|\[\^a\]|\(ab\|c\)|é|\\d)?[*+?]?\$?",
        texts in prop::collection::vec("[a-cé1\n]{0,6}", 1..8),
    ) {
        if let Ok(regex) = super::compile(&pattern)
            && let Some(table) = build_table(&regex.translated)
        {
            for text in texts {
                prop_assert_eq!(table.is_match(text.as_bytes()), regex.engine().unwrap().is_match(&text), "{} in {:?}", pattern, text);
            }
        }
    }
}
