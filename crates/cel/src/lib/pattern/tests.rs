use proptest::prelude::*;

use super::allowance::{PER_EVALUATION, PER_EXPRESSION, PER_OBJECT, PatternWorkLimit, within};
use super::chars::CharPattern;
use super::{Pattern, PatternError, USES_BEFORE_TABLE, build_table, compile, compile_data, parse_ast};

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
fn compile_work_of_ordinary_patterns_is_small() {
    let names = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
    assert!(work(names).unwrap() < 1000);
    assert!(work("^.{1,253}$").unwrap() < 10_000);
    assert!(work(r"^\p{L}{1,63}$").unwrap() < 160_000);
    assert!(work("[a-z]{1000}").is_ok());
    assert!(matches!(work("("), Err(PatternError::Syntax(_))));
}

#[test]
fn patterns_too_large_for_the_engine_match_by_characters() {
    let long = |count: usize| "é".repeat(count);
    for (pattern, text, wanted) in [
        (r"^\p{L}{250}$", long(250), true),
        (r"^\p{L}{250}$", long(249), false),
        (r"^\p{L}{250}$", long(251), false),
        (r"^[\p{L}]{0,500}$", long(500), true),
        (r"^[\p{L}]{0,500}$", long(501), false),
        (r"^([\p{L}]{0,62}\.){1,}([\p{L}]){2,63}$", format!("{}.example.com", long(62)), true),
        (r"^([\p{L}]{0,62}\.){1,}([\p{L}]){2,63}$", format!("{}.example.com", long(63)), false),
        (r"(?i)^\p{Lu}{900}$", long(900), true),
        (r"(?i:x)\p{L}{300}Y", format!("X{}Y", long(300)), true),
        (r"(?i:x)\p{L}{300}Y", format!("X{}y", long(300)), false),
        (r"[\pL\pN]{900}", long(1000), true),
    ] {
        let compiled = Pattern::compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert!(compiled.chars.is_some(), "{pattern} fits the engine");
        assert_eq!(compiled.is_match(&text), wanted, "{pattern} in {text}");
        assert_eq!(compiled.try_match(&text), Ok(wanted), "{pattern} in {text}");
    }
    let words = Pattern::compile(r"\p{L}{1,400}").unwrap();
    assert_eq!(words.find_all("é1ab 2", -1), Ok(vec!["é", "ab"]));
    assert_eq!(words.find("1ab2"), Ok(Some("ab")));
    assert_eq!(words.find("12"), Ok(None));
    let lazy = Pattern::compile(r"\p{L}{1,400}?").unwrap();
    assert_eq!(lazy.find_all("ab", -1), Ok(vec!["a", "b"]));
}

#[test]
fn many_classes_are_parsed_once_each() {
    for text in [format!("(?i){}", r"\pL".repeat(200)), r"\pL".repeat(2000)] {
        let work = work(&text).unwrap();
        assert!(work < 20_000, "{work}");
    }
    // Distinct classes are each paid for, before they are read.
    let distinct = (0..300).map(|i| format!(r"[\pL{i:04}]")).collect::<Vec<_>>().concat();
    within(PER_EVALUATION, || {
        let error = compile_data(&format!("(?i){distinct}")).map(drop);
        assert_eq!(error, Err(PatternError::Exhausted(PER_EVALUATION)));
    });
}

#[test]
fn go_s_limits_have_go_s_messages() {
    let message = |text: &str| Pattern::compile(text).unwrap_err().to_string();
    let nested = format!("{}a{}", "(".repeat(1001), ")".repeat(1001));
    assert_eq!(message(&nested), format!("error parsing regexp: expression nests too deeply: `{nested}`"));
    assert!(Pattern::compile(&format!("{}a{}", "(".repeat(900), ")".repeat(900))).is_ok());
    let starred = format!("{}a{}", "(".repeat(600), ")*".repeat(600));
    assert_eq!(message(&starred), format!("error parsing regexp: expression nests too deeply: `{starred}`"));
    assert_eq!(message("a{1001}"), "error parsing regexp: invalid repeat count: `{1001}`");
    assert_eq!(message("(a{100}){11}"), "error parsing regexp: invalid repeat count: `{11}`");
    let large = "[ab]{1000}".repeat(3400);
    assert_eq!(message(&large), format!("error parsing regexp: expression too large: `{large}`"));
    assert!(Pattern::compile(&"[ab]{1000}".repeat(3300)).is_ok());
}

#[test]
fn large_programs_are_charged_by_their_instructions() {
    // Each instruction takes 8 bytes, so an evaluation allocates at most 4 MB of them.
    let large = "[ab]{1000}".repeat(600);
    within(PER_EVALUATION, || {
        assert_eq!(compile_data(&large).map(drop), Err(PatternError::Exhausted(PER_EVALUATION)));
    });
    within(PER_OBJECT, || assert!(compile(&large).is_ok()));
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
fn a_search_by_characters_ends_at_the_limit() {
    let pattern = Pattern::compile(&format!("a{}c", r"[\pLx]{1000}".repeat(39))).unwrap();
    assert!(pattern.chars.is_some());
    let text = "aé".repeat(30_000);
    for limit in [PER_EVALUATION, PER_OBJECT] {
        within(limit, || {
            assert_eq!(pattern.try_match(&text), Err(PatternError::Unmatched(limit)));
            assert_eq!(pattern.find(&text), Err(PatternError::Unmatched(limit)));
        });
    }
    let mut left = 1000_u64;
    let within_budget = |units| left.checked_sub(units).inspect(|rest| left = *rest).is_some();
    assert_eq!(pattern.is_match_within(&text, within_budget), None);
    within(PER_EVALUATION, || assert_eq!(pattern.try_match("aéaé"), Ok(false)));
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
        pattern in r"(\(\?[imsU]\))?\^?([a-c.]|\[a-b\]|\(a\|b\)|\(a\|ab\|\)|\(a\*\)|é|\\pL|\\b|\\B|\$)([*+?]|\*\?|\+\?|\{2\}|\{1,3\}|\{0,2\}\?|\{1,\})?([a-c.]|\[\^a\]|\(ab\|c\)|\(\?i:B\)|é|\\d)?[*+?]?\$?",
        texts in prop::collection::vec("[a-cBé1\n]{0,8}", 1..8),
    ) {
        if let Ok(regex) = Pattern::compile(&pattern) {
            let ast = parse_ast(&regex.translated).unwrap();
            let chars = CharPattern::read(&regex.translated, &ast, |_| Ok::<_, ()>(())).unwrap().map(Box::new);
            prop_assert!(chars.is_some());
            let by_chars = Pattern { chars, ..Pattern::compile(&pattern).unwrap() };
            for text in texts {
                let engine = regex.engine().unwrap();
                let found = engine.find(&text).map(|found| found.range());
                let all: Vec<&str> = engine.find_iter(&text).filter_map(|found| text.get(found.range())).collect();
                for counted in [&regex, &by_chars] {
                    let search = |earliest| counted.counted_search(&text, 0, earliest, &mut |_| Ok::<_, PatternError>(())).unwrap();
                    prop_assert_eq!(search(true).is_some(), engine.is_match(&text), "{} in {:?}", pattern, text);
                    prop_assert_eq!(search(false), found.clone(), "{} in {:?}", pattern, text);
                    prop_assert_eq!(counted.find_all_counted(&text, usize::MAX).unwrap(), all.clone(), "{} in {:?}", pattern, text);
                }
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
