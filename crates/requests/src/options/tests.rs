use super::{ListOptions, WriteOptions, revision};
use crate::request_info::Query;

#[test]
fn integer_query_options_are_parsed_as_in_go() {
    let seconds = |text: &str| {
        let query = Query::parse(&format!("timeoutSeconds={text}"));
        ListOptions::parse(&query, true).map(|options| options.timeout_seconds).map_err(|s| s.code())
    };
    assert_eq!(seconds("5"), Ok(Some(5)));
    assert_eq!(seconds("%2B5"), Ok(Some(5)));
    assert_eq!(seconds("-0"), Ok(Some(0)), "that is no time at all, not less");
    assert_eq!(seconds("-1"), Ok(Some(-1)));
    assert_eq!(seconds("1_0"), Err(400));
    for (text, expected) in [("", None), ("0", None), ("7", Some(7))] {
        assert_eq!(revision(text), Ok(expected));
    }
    for (text, why) in
        [("+7", "invalid syntax"), ("-0", "invalid syntax"), ("99999999999999999999", "value out of range")]
    {
        let error = revision(text).unwrap_err();
        assert!(error.ends_with(&format!("strconv.ParseUint: parsing \"{text}\": {why}")), "{error}");
    }
}

#[test]
fn errors_for_a_long_field_manager_are_limited_in_size() {
    let errors = |manager: &str| {
        let query = Query::parse(&format!("fieldManager={manager}"));
        WriteOptions::parse("CreateOptions", &query).err().map(|status| status.message().to_owned())
    };
    assert_eq!(errors("kubectl"), None);
    let short = errors("%00%01").unwrap();
    assert!(short.contains("U+0000 (at position 0)") && short.contains("U+0001 (at position 1)"), "{short}");
    let long = errors(&"%00".repeat(20_000)).unwrap();
    assert!(long.len() < 1_000_000, "{} bytes", long.len());
}
