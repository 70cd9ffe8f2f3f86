use super::*;

type Case = (&'static str, Result<&'static str, &'static str>);
type DurationCase = (&'static str, Result<(i64, &'static str), &'static str>);

#[rustfmt::skip]
const TIMES: &[Case] = &[
    ("2020-02-29T23:59:59Z", Ok("2020-02-29T23:59:59.000000Z")),
    ("2021-02-29T00:00:00Z", Err(r#"parsing time "2021-02-29T00:00:00Z": day out of range"#)),
    ("2020-01-01T00:00:00+02:00", Ok("2019-12-31T22:00:00.000000Z")),
    ("2020-01-01T00:00:00.123456789-07:30", Ok("2020-01-01T07:30:00.123456Z")),
    ("2020-01-01T5:00:00Z", Ok("2020-01-01T05:00:00.000000Z")),
    ("1969-12-31T23:59:59.5Z", Ok("1969-12-31T23:59:59.500000Z")),
    ("0001-01-01T00:00:00Z", Ok("0001-01-01T00:00:00.000000Z")),
    ("9999-12-31T23:59:59Z", Ok("9999-12-31T23:59:59.000000Z")),
    ("", Err(r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#)),
    ("foo", Err(r#"parsing time "foo" as "2006-01-02T15:04:05Z07:00": cannot parse "foo" as "2006""#)),
    ("2020", Err(r#"parsing time "2020" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "-""#)),
    ("2020-1-01T00:00:00Z", Err(r#"parsing time "2020-1-01T00:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse "1-01T00:00:00Z" as "01""#)),
    ("2020-13-01T00:00:00Z", Err(r#"parsing time "2020-13-01T00:00:00Z": month out of range"#)),
    ("2020-01-32T00:00:00Z", Err(r#"parsing time "2020-01-32T00:00:00Z": day out of range"#)),
    ("2020-01-01 00:00:00Z", Err(r#"parsing time "2020-01-01 00:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T""#)),
    ("2020-01-01T24:00:00Z", Err(r#"parsing time "2020-01-01T24:00:00Z": hour out of range"#)),
    ("2020-01-01T00:60:00Z", Err(r#"parsing time "2020-01-01T00:60:00Z": minute out of range"#)),
    ("2020-01-01T00:00:60Z", Err(r#"parsing time "2020-01-01T00:00:60Z": second out of range"#)),
    ("2020-01-01T00:00:00", Err(r#"parsing time "2020-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#)),
    ("2020-01-01T00:00:00Zx", Err(r#"parsing time "2020-01-01T00:00:00Zx": extra text: "x""#)),
    ("2020-01-01T00:00:00+0200", Err(r#"parsing time "2020-01-01T00:00:00+0200" as "2006-01-02T15:04:05Z07:00": cannot parse "+0200" as "Z07:00""#)),
    ("2020-01-01T00:00:00+25:00", Err(r#"parsing time "2020-01-01T00:00:00+25:00": time zone offset hour out of range"#)),
    ("2020-01-01T00:00:00.Z", Err(r#"parsing time "2020-01-01T00:00:00.Z" as "2006-01-02T15:04:05Z07:00": cannot parse ".Z" as "Z07:00""#)),
    ("2020-01-01T00:00:00,5Z", Ok("2020-01-01T00:00:00.500000Z")),
    ("2020-01-01T00:00:00z", Err(r#"parsing time "2020-01-01T00:00:00z" as "2006-01-02T15:04:05Z07:00": cannot parse "z" as "Z07:00""#)),
    ("2020-01-01t00:00:00Z", Err(r#"parsing time "2020-01-01t00:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse "t00:00:00Z" as "T""#)),
    ("1600-03-01T00:00:00Z", Ok("1600-03-01T00:00:00.000000Z")),
];

#[rustfmt::skip]
const MICRO_TIMES: &[Case] = &[
    ("2020-01-01T00:00:00.123456Z", Ok("2020-01-01T00:00:00.123456Z")),
    ("2020-01-01T00:00:00.123456+01:00", Ok("2019-12-31T23:00:00.123456Z")),
    ("2020-01-01T00:00:00Z", Err(r#"parsing time "2020-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#)),
    ("2020-01-01T00:00:00.123Z", Err(r#"parsing time "2020-01-01T00:00:00.123Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".123Z" as ".000000""#)),
    ("2020-01-01T00:00:00.1234567Z", Err(r#"parsing time "2020-01-01T00:00:00.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#)),
];

#[rustfmt::skip]
const DURATIONS: &[DurationCase] = &[
    ("0", Ok((0, "0s"))),
    ("0s", Ok((0, "0s"))),
    ("1s", Ok((1_000_000_000, "1s"))),
    ("-1.5h", Ok((-5_400_000_000_000, "-1h30m0s"))),
    ("1h15m30.5s", Ok((4_530_500_000_000, "1h15m30.5s"))),
    ("1ns", Ok((1, "1ns"))),
    ("1.5us", Ok((1500, "1.5µs"))),
    ("1µs", Ok((1000, "1µs"))),
    ("2ms", Ok((2_000_000, "2ms"))),
    (".5s", Ok((500_000_000, "500ms"))),
    ("5.s", Ok((5_000_000_000, "5s"))),
    ("+5s", Ok((5_000_000_000, "5s"))),
    ("1h60m", Ok((7_200_000_000_000, "2h0m0s"))),
    ("2562047h47m16.854775807s", Ok((9_223_372_036_854_775_807, "2562047h47m16.854775807s"))),
    ("-2562047h47m16.854775808s", Ok((-9_223_372_036_854_775_808, "-2562047h47m16.854775808s"))),
    ("2562047h47m16.854775808s", Err(r#"time: invalid duration "2562047h47m16.854775808s""#)),
    ("", Err(r#"time: invalid duration """#)),
    ("-", Err(r#"time: invalid duration "-""#)),
    (".", Err(r#"time: invalid duration ".""#)),
    ("s", Err(r#"time: invalid duration "s""#)),
    ("1", Err(r#"time: missing unit in duration "1""#)),
    ("1q", Err(r#"time: unknown unit "q" in duration "1q""#)),
    ("1s2", Err(r#"time: missing unit in duration "1s2""#)),
    ("1.2.3s", Err(r#"time: missing unit in duration "1.2.3s""#)),
    ("0.0000000001s", Ok((0, "0s"))),
    ("100000000000h", Err(r#"time: invalid duration "100000000000h""#)),
    ("1m1", Err(r#"time: missing unit in duration "1m1""#)),
];

#[rustfmt::skip]
const AGES: &[(i64, &str)] = &[
    (-5, "<invalid>"),
    (-2, "<invalid>"),
    (-1, "0s"),
    (0, "0s"),
    (1, "1s"),
    (119, "119s"),
    (120, "2m"),
    (121, "2m1s"),
    (180, "3m"),
    (599, "9m59s"),
    (600, "10m"),
    (601, "10m"),
    (10799, "179m"),
    (10800, "3h"),
    (10860, "3h1m"),
    (28799, "7h59m"),
    (28800, "8h"),
    (172_799, "47h"),
    (172_800, "2d"),
    (176_400, "2d1h"),
    (691_199, "7d23h"),
    (691_200, "8d"),
    (63_071_999, "729d"),
    (63_072_000, "2y"),
    (63_158_400, "2y1d"),
    (252_287_999, "7y364d"),
    (252_288_000, "8y"),
    (400_000_000, "12y"),
];

#[test]
fn times_are_read_and_printed_as_go_does() {
    for (text, expected) in TIMES {
        let actual = Timestamp::parse(text).map(Timestamp::micro_time);
        assert_eq!(actual.as_deref().map_err(String::as_str), *expected);
    }
    for (text, expected) in MICRO_TIMES {
        let actual = Timestamp::parse_micro(text).map(Timestamp::micro_time);
        assert_eq!(actual.as_deref().map_err(String::as_str), *expected);
    }
}

#[test]
fn every_day_survives_print_and_parse() {
    for day in (-800_000..2_900_000).step_by(13) {
        let moment = Timestamp::from_seconds(day * 86400 + 4711);
        if (0..10_000).contains(&value::time::date_of_day(day).0) {
            assert_eq!(Timestamp::parse(&moment.time()), Ok(moment));
        }
    }
    assert_eq!(Timestamp::from_seconds(1_600_000_000).time(), "2020-09-13T12:26:40Z");
    assert_eq!(Timestamp::from_micros(-1).micro_time(), "1969-12-31T23:59:59.999999Z");
    assert_eq!(Timestamp::from_micros(-1).micros(), -1);
    assert!(Timestamp::parse("0001-01-01T00:00:00Z").unwrap().is_zero());
}

#[test]
fn durations_are_read_and_printed_as_go_does() {
    for (text, expected) in DURATIONS {
        let actual = parse_duration(text).map(|nanos| (nanos, format_duration(nanos)));
        let expected = expected.map(|(n, t)| (n, t.to_owned())).map_err(str::to_owned);
        assert_eq!(actual, expected, "{text}");
    }
}

#[test]
fn ages_are_printed_as_in_kubectl() {
    for (seconds, text) in AGES {
        assert_eq!(human_duration(*seconds), *text, "{seconds}");
    }
    assert_eq!(human_age(Some("1970-01-01T00:00:10Z"), 75), "65s");
    assert_eq!(human_age(None, 75), "<unknown>");
    assert_eq!(human_age(Some("soon"), 75), "<unknown>");
}
