//! Expected texts are the output of Go 1.26.

use super::base64::{CorruptInputError, RAW_URL, STD, canonical};
use super::netip::{parse_addr, parse_cidr_sloppy, parse_ip_sloppy, parse_prefix};
use super::url::Url;
use super::{escape_letter, escaped_control, float, is_printable, quote, syntax, text, type_name};
use crate::{Value, json};

#[test]
fn escape_letters_stand_for_the_control_characters_they_are_written_for() {
    let controls: Vec<char> = ('\0'..' ').filter(|c| escape_letter(*c).is_some()).collect();
    assert_eq!(controls, ['\u{7}', '\u{8}', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    for c in controls {
        assert_eq!(escape_letter(c).and_then(escaped_control), Some(c), "{c:?}");
    }
    assert_eq!(['"', '\\', '\'', 'x'].map(escape_letter), [Some('"'), Some('\\'), None, None]);
    assert_eq!(['"', '\\', '0', 'x'].map(escaped_control), [None; 4]);
}

#[test]
fn strings_are_quoted() {
    assert_eq!(quote("a \"b\" \\ \n\t\r\u{7}\u{8}\u{b}\u{c}"), r#""a \"b\" \\ \n\t\r\a\b\v\f""#);
    assert_eq!(quote("\u{0}\u{1f}\u{7f}"), r#""\x00\x1f\x7f""#);
    assert_eq!(quote("x\u{a0}\u{200b}\u{378}\u{2028}"), r#""x\u00a0\u200b\u0378\u2028""#);
    assert_eq!(quote("\u{e0001}\u{10ffff}"), r#""\U000e0001\U0010ffff""#);
    assert_eq!(quote("é 世界 \u{301}🙂"), "\"é 世界 \u{301}🙂\"");
}

#[test]
fn marks_are_printable_and_invisible_characters_are_not() {
    assert!(['a', ' ', '\u{301}', '世'].iter().all(|c| is_printable(*c)));
    assert!(
        !['\n', '\u{ad}', '\u{200c}', '\u{3000}', '\u{e000}', '\u{378}'].iter().any(|c| is_printable(*c))
    );
}

#[test]
fn floats_are_printed_as_in_go_with_the_fewest_digits() {
    for (number, shown) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (100_000.0, "100000"),
        (100_000.5, "100000.5"),
        (1e6, "1e+06"),
        (123_456_789.0, "1.23456789e+08"),
        (1e21, "1e+21"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-1.5, "-1.5"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
    ] {
        assert_eq!(float(number), shown);
    }
}

fn tree() -> Value {
    let mut tree = json::parse(br#"{"a": 1.5e7, "b": 3, "d": null, "e": [true, "x"]}"#).unwrap();
    tree.set_at(&["c"], Value::UInt(u64::MAX));
    tree
}

#[test]
fn trees_are_printed_in_both_forms() {
    assert_eq!(text(&tree()), "map[a:1.5e+07 b:3 c:1.8446744073709552e+19 d:<nil> e:[true x]]");
    let shown = concat!(
        r#"map[string]interface {}{"a":1.5e+07, "b":3, "c":0xffffffffffffffff, "#,
        r#""d":interface {}(nil), "e":[]interface {}{true, "x"}}"#
    );
    assert_eq!(syntax(&tree(), "string", usize::MAX), shown);
    assert_eq!(
        syntax(&Value::map([("a", 1)]), "interface {}", 100),
        r#"map[interface {}]interface {}{"a":1}"#
    );
}

#[test]
fn printing_a_large_tree_is_truncated() {
    let long = "x".repeat(100_000);
    let lists = (0..100).fold(Value::from(1), |inner, _| Value::list([inner]));
    for tree in [
        Value::list(0..100_000),
        Value::from(long.as_str()),
        Value::list([long.as_str(), long.as_str()]),
        Value::map([(long.as_str(), 1)]),
        Value::map((0..100_000).map(|i| (i.to_string(), i))),
        Value::list(["\u{1}".repeat(100_000)]),
        lists,
    ] {
        let shown = syntax(&tree, "string", 100);
        assert!((100..200).contains(&shown.len()), "{}", shown.len());
    }
}

#[test]
fn types_have_gos_names() {
    let names: Vec<&str> = tree().as_map().unwrap().iter().map(|(_, value)| type_name(value)).collect();
    assert_eq!(names, ["float64", "int64", "float64", "<nil>", "[]interface {}"]);
}

#[test]
fn base64_is_decoded_with_go_offsets() {
    for (text, expected) in [
        ("QUJD", Ok("ABC")),
        ("QU\r\nJD\n", Ok("ABC")),
        ("QUI=", Ok("AB")),
        ("QR=\n=\n", Ok("A")),
        ("QUJ", Err(0)),
        ("QUJDQ", Err(4)),
        ("QU*D", Err(2)),
        ("=", Err(0)),
        ("QQ=", Err(3)),
        ("QQ=A", Err(2)),
        ("QUI=A", Err(4)),
    ] {
        let expected = expected.map(|s: &str| s.as_bytes().to_vec()).map_err(CorruptInputError);
        assert_eq!(STD.decode(text), expected, "{text:?}");
    }
    assert_eq!(RAW_URL.decode("_-8"), Ok(vec![0xff, 0xef]));
    assert_eq!(RAW_URL.decode("QUI="), Err(CorruptInputError(3)));
    assert_eq!(RAW_URL.decode("QUJDQ"), Err(CorruptInputError(4)));
    assert_eq!(CorruptInputError(3).to_string(), "illegal base64 data at input byte 3");
    assert_eq!(canonical("QUJD"), Ok(None));
    assert_eq!(canonical("QR=="), Ok(Some("QQ==".to_owned())));
}

#[test]
fn urls_are_parsed_and_printed() {
    let url = Url::parse("HTTPS://us%40er:pass@h:1/a%2Fb?x=1&x=2#f%20g").unwrap();
    assert_eq!((url.scheme.as_str(), url.userinfo().as_deref()), ("https", Some("us%40er:pass")));
    assert_eq!((url.host_and_port(), url.escaped_path().as_str()), (("h", "1"), "/a%2Fb"));
    assert_eq!(url.query(), [("x".to_owned(), vec!["1".to_owned(), "2".to_owned()])]);
    assert_eq!(url.fragment(), "f g");
    assert_eq!(url.text(), "https://us%40er:pass@h:1/a%2Fb?x=1&x=2#f%20g");
    for (text, error) in [
        (":", r#"parse ":": missing protocol scheme"#),
        ("1:b", r#"parse "1:b": first path segment in URL cannot contain colon"#),
        ("http://h:x/", r#"parse "http://h:x/": invalid port ":x" after host"#),
        ("http://[1.2.3.4]/", r#"parse "http://[1.2.3.4]/": invalid IP-literal"#),
        ("/%世", r#"parse "/%世": invalid URL escape "%\xe4\xb8""#),
    ] {
        assert_eq!(Url::parse(text).map(|url| url.text()), Err(error.to_owned()));
    }
}

#[test]
fn values_of_a_query_key_are_collected_in_the_order_of_first_appearance() {
    let query = Url::parse("http://h/?b=1&a=2&b=3&bad=%zz&c;d=4&e").unwrap().query();
    let expected = [("b", vec!["1", "3"]), ("a", vec!["2"]), ("e", vec![""])];
    let expected =
        expected.map(|(key, values)| (key.to_owned(), values.into_iter().map(str::to_owned).collect()));
    assert_eq!(query, expected);
}

/// A search through the earlier keys for each key would take minutes.
#[test]
fn a_query_with_many_keys_is_read_in_linear_time() {
    let keys: Vec<String> = (0..300_000).map(|key| key.to_string()).collect();
    let query = Url::parse(&format!("http://h/?{}", keys.join("&"))).unwrap().query();
    assert_eq!(query.len(), keys.len());
}

#[test]
fn lenient_addresses_may_have_leading_zeros_and_strict_ones_not() {
    let sloppy = |text| parse_ip_sloppy(text).map(|ip| ip.to_string());
    assert_eq!(sloppy("010.00.0.1").as_deref(), Some("10.0.0.1"));
    assert_eq!(sloppy("00001::1").as_deref(), Some("1::1"));
    assert_eq!(sloppy("fe80::1%eth0"), None);
    assert_eq!(
        parse_addr("010.0.0.1").unwrap_err(),
        r#"ParseAddr("010.0.0.1"): IPv4 field has octet with leading zero"#
    );
    assert_eq!(
        parse_cidr_sloppy("10.0.0.1/0008").map(|(ip, bits)| (ip.to_string(), bits)),
        Some(("10.0.0.1".to_owned(), 8))
    );
    assert_eq!(
        parse_prefix("10.0.0.1/08").unwrap_err(),
        r#"netip.ParsePrefix("10.0.0.1/08"): bad bits after slash: "08""#
    );
}
