use super::*;

/// Asserts that each good text is accepted and each bad one refused.
#[track_caller]
fn check_rule(rule: fn(&str) -> Vec<String>, good: &[&str], bad: &[&str]) {
    for text in good {
        assert_eq!(rule(text), Vec::<String>::new(), "{text:?}");
    }
    for text in bad {
        assert!(!rule(text).is_empty(), "{text:?}");
    }
}

const A63: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const A64: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn dns_labels_are_validated() {
    let good = ["a", "ab", "a1", "a-1", "a--1--2--b", "0", "01", "1-a", A63];
    let bad = ["", "A", "aBc", "-", "a-", "-a", "_", "a_b", ".", "a.", "a.b", " ", "a b", "é", A64];
    check_rule(is_dns1123_label, &good, &bad);
    let good = ["a", "ab", "a1", "a-1", "a--1--2--b"];
    let bad = ["0", "01", "1a", "1-a", "", "A", "-", "a-", "-a", "a_b", "a.b", A64];
    check_rule(is_dns1035_label, &good, &bad);
    assert_eq!(is_dns1123_label("a.b"), ["must not contain dots"]);
    assert_eq!(
        is_dns1123_label("A"),
        [
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ]
    );
    assert_eq!(is_dns1123_label(A64), ["must be no more than 63 characters"]);
}

#[test]
fn dns_subdomains_are_validated() {
    let long = "a".repeat(253);
    let too_long = "a".repeat(254);
    let good = ["a", "a.a", "ab.1", "1-a.a", "a.b.c.d.e", "11.22.33", &long];
    let bad = ["", "A", "-", "a-.b", "a..b", "a.", ".a", "a_b", "a.B", "a@b", "a%b", &too_long];
    check_rule(is_dns1123_subdomain, &good, &bad);
    assert_eq!(
        is_dns1123_subdomain("Foo"),
        [
            r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ]
    );
    check_rule(is_dns1123_subdomain_caseless, &["A.b", "Example.com"], &["", "a_b", "A."]);
    check_rule(is_dns1123_subdomain_with_underscore, &["_a.b", "a_b.c", "a"], &["", "__a", "a_", "A", "a._"]);
    check_rule(
        is_wildcard_dns1123_subdomain,
        &["*.a", "*.foo.bar.com"],
        &["*", "*.", "a.b", "*.*.c", "*b.c", "f*.c"],
    );
}

#[test]
fn label_keys_and_values_are_validated() {
    let good =
        ["simple", "now-with-dashes", "1-starts-with-num", "1234", "simple/simple", "a.b/c_D.e-f", A63];
    let bad = [
        "nospecialchars%^=@",
        "cantendwithadash-",
        "-a",
        "only/one/slash",
        "Example.com/abc",
        "a_b.com/c",
        "/a",
        "a/",
        "",
        A64,
    ];
    check_rule(is_qualified_name, &good, &bad);
    assert_eq!(
        is_qualified_name("/"),
        [
            "prefix part must be non-empty",
            "name part must be non-empty",
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        ]
    );
    assert!(
        is_qualified_name("a/b/c")[0]
            .ends_with("with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")
    );
    let good = ["", "simple", "with.dots_and-more", "1a", A63];
    let bad = ["a/b", "cantendwithadash-", "-a", ".a", "a b", "@", A64];
    check_rule(is_valid_label_value, &good, &bad);
    assert_eq!(is_valid_label_value(A64), ["must be no more than 63 bytes"]);
}

#[test]
fn ports_and_numbers_are_validated() {
    check_rule(
        is_valid_port_name,
        &["http", "a-1", "1a", "metrics-2"],
        &["", "1", "a--b", "-a", "a-", "A", "a_b", "0123456789abcdef"],
    );
    assert!(is_valid_port_num(65535).is_empty());
    assert_eq!(is_valid_port_num(0), ["must be between 1 and 65535, inclusive"]);
    check_rule(is_valid_percent, &["0%", "100%"], &["", "%", "1", "-1%", "1.5%"]);
    check_rule(is_decimal_integer, &["0", "5", "-12"], &["", "00", "-0", "+1", "01", "1a", "-"]);
    assert!(
        is_valid_user_id(0).is_empty()
            && !is_valid_user_id(-1).is_empty()
            && !is_valid_user_id(1 << 31).is_empty()
    );
}

#[test]
fn identifiers_keys_and_headers_are_validated() {
    check_rule(is_c_identifier, &["a", "_a1", "A__b"], &["", "1a", "a-b", "a.b", "é"]);
    check_rule(
        is_config_map_key,
        &["a", ".a", "a.b_C-1", "..a.b".trim_start_matches('.')],
        &["", ".", "..", "..a", "a/b", "a b"],
    );
    check_rule(is_relaxed_env_var_name, &["a", "1a", "a b", "a:b", "../"], &["", "a=b", "é", "a\tb"]);
    check_rule(is_http_header_name, &["X-A", "1"], &["", "X_A", "a b"]);
    check_rule(is_path_segment_name, &["a", "a.b", "a:b", "..."], &[".", "..", "a/b", "a%b"]);
    assert_eq!(is_path_segment_name("%/"), ["may not contain '/'", "may not contain '%'"]);
}

#[test]
fn a_generated_names_prefix_may_end_with_a_dash() {
    assert!(name_is_dns_subdomain("foo-", true).is_empty());
    assert!(!name_is_dns_subdomain("foo-", false).is_empty());
    assert!(!name_is_dns_label("-foo-", true).is_empty());
    assert!(!name_is_dns_label("fooé-", true).is_empty());
}

#[test]
fn qualified_domains_are_validated() {
    let path = Path::root().field("x");
    let check = |errors: FieldErrors, expected: &str| assert_eq!(crate::field::aggregate(errors), expected);
    assert!(is_fully_qualified_name(&path, "a.b.c").is_empty());
    check(
        is_fully_qualified_name(&path, "a.b"),
        r#"x: Invalid value: "a.b": should be a domain with at least three segments separated by dots"#,
    );
    assert!(is_fully_qualified_domain_name(&path, "a.b.").is_empty());
    check(is_fully_qualified_domain_name(&path, ""), "x: Required value");
    assert!(is_domain_prefixed_path(&path, "acme.io/foo/Bar~1").is_empty());
    check(
        is_domain_prefixed_path(&path, "acme.io/"),
        r#"x: Invalid value: "acme.io/": must be a domain-prefixed path (such as "acme.io/foo")"#,
    );
    assert!(is_domain_prefixed_key(&path, "acme.io/foo").is_empty());
    assert!(!is_domain_prefixed_key(&path, "foo").is_empty());
}

#[test]
fn addresses_are_validated() {
    for text in [
        "1.2.3.4",
        "1.2.3.04",
        "001.2.3.4",
        "::1",
        "a::b",
        "1::00001",
        "::ffff:1.2.3.4",
        "1:2:3:4:5:6:7:8",
        "::ffff:1.2.3.04",
    ] {
        assert!(is_valid_ip_for_legacy_field(text, false).is_empty(), "{text}");
    }
    for text in [
        "",
        "a",
        "1.2.3",
        "1.2.3.256",
        "1.2.3.4.5",
        "1..3.4",
        ":::",
        "1::2::3",
        "fe80::1%eth0",
        "1:2:3:4:5:6:7:8:9",
        "1.2.3.4/8",
        " 1.2.3.4",
        "+1.2.3.4",
        "::12345",
    ] {
        assert_eq!(
            is_valid_ip_for_legacy_field(text, false),
            ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
            "{text}"
        );
    }
    assert_eq!(is_valid_ip("1.2.3.04"), ["must not have leading 0s"]);
    assert_eq!(is_valid_ip("::ffff:1.2.3.4"), ["must not be an IPv4-mapped IPv6 address"]);
    assert_eq!(is_valid_ip("A::b"), [r#"must be in canonical form ("a::b")"#]);
    check_rule(is_valid_ip, &["1.2.3.4", "::1", "2001:db8::ffff"], &["1::0:1"]);
    assert_eq!(
        ip_warning("f", "1.2.3.04").unwrap(),
        r#"f: non-standard IP address "1.2.3.04" is invalid: use "1.2.3.4""#
    );
    assert_eq!(
        ip_warning("f", "A::1").unwrap(),
        r#"f: IPv6 address "A::1" should be in RFC 5952 canonical format ("a::1")"#
    );
    assert_eq!(ip_warning("f", "10.0.0.1"), None);
}

#[test]
fn networks_are_validated() {
    check_rule(
        is_valid_cidr,
        &["1.0.0.0/8", "0.0.0.0/0", "::/0", "a::/64", "1.2.3.4/32"],
        &["1.2.3.4", "1.0.0.0/33", "1.0.0.0/+8", "a::/129", "1.0.0.0/", "A::/64"],
    );
    assert_eq!(is_valid_cidr("1.2.3.4/8"), ["must not have bits set beyond the prefix length"]);
    assert_eq!(is_valid_cidr("1.0.0.0/08"), ["must not have leading 0s in IP or prefix length"]);
    assert_eq!(is_valid_cidr("::ffff:1.0.0.0/104"), ["must not have an IPv4-mapped IPv6 address"]);
    assert!(is_valid_cidr_for_legacy_field("1.2.3.4/08", false).is_empty());
    check_rule(is_valid_interface_address, &["1.2.3.4/8", "a::1/64"], &["1.2.3.04/8", "1.2.3.4", "A::1/64"]);
    assert_eq!(
        cidr_warnings("f", "1.2.3.4/8"),
        [
            r#"f: CIDR value "1.2.3.4/8" is ambiguous in this context (should be "1.0.0.0/8" or "1.2.3.4/32"?)"#
        ]
    );
    assert!(cidr_warnings("f", "1.0.0.0/8").is_empty());
}
