use std::fmt::Write as _;

use super::{Quantity, QuantityError, QuantityFormat};

/// Text, printed form, integer, value, thousandths, plus 1500m, minus 2Ki: all as Kubernetes computes them.
type Row = (&'static str, &'static str, Option<i64>, i64, i64, &'static str, &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("0", "0", Some(0), 0, 0, "1500m", "-2Ki"),
    ("00", "0", Some(0), 0, 0, "1500m", "-2Ki"),
    ("-0", "0", Some(0), 0, 0, "1500m", "-2Ki"),
    ("1", "1", Some(1), 1, 1000, "2500m", "-2047"),
    ("+1", "+1", Some(1), 1, 1000, "2500m", "-2047"),
    ("01", "01", Some(1), 1, 1000, "2500m", "-2047"),
    ("1.500", "1.500", None, 2, 1500, "3", "-2046500m"),
    ("1.5", "1500m", None, 2, 1500, "3", "-2046500m"),
    ("1.000", "1", None, 1, 1000, "2500m", "-2047"),
    ("1000", "1k", Some(1000), 1000, 1_000_000, "1001500m", "-1048"),
    ("1000m", "1", None, 1, 1000, "2500m", "-2047"),
    ("100m", "100m", None, 1, 100, "1600m", "-2047900m"),
    ("0.1", "100m", None, 1, 100, "1600m", "-2047900m"),
    ("0.5", "500m", None, 1, 500, "2", "-2047500m"),
    (".5", "500m", None, 1, 500, "2", "-2047500m"),
    ("5.", "5.", Some(5), 5, 5000, "6500m", "-2043"),
    (".", "0", Some(0), 0, 0, "1500m", "-2Ki"),
    ("-", "0", Some(0), 0, 0, "1500m", "-2Ki"),
    ("m", "0", None, 0, 0, "1500m", "-2Ki"),
    ("Ki", "0", Some(0), 0, 0, "1500m", "-2Ki"),
    ("1Ki", "1Ki", Some(1024), 1024, 1_024_000, "1025500m", "-1Ki"),
    ("512Mi", "512Mi", Some(536_870_912), 536_870_912, 536_870_912_000, "536870913500m", "524286Ki"),
    ("+1Ki", "+1Ki", Some(1024), 1024, 1_024_000, "1025500m", "-1Ki"),
    ("01Ki", "01Ki", Some(1024), 1024, 1_024_000, "1025500m", "-1Ki"),
    ("1024Ki", "1Mi", Some(1_048_576), 1_048_576, 1_048_576_000, "1048577500m", "1022Ki"),
    ("1.5Gi", "1536Mi", None, 1_610_612_736, 1_610_612_736_000, "1610612737500m", "1572862Ki"),
    ("1.5Ki", "1536", None, 1536, 1_536_000, "1537500m", "-512"),
    ("0.1Gi", "107374182400m", None, 107_374_183, 107_374_182_400, "107374183900m", "107372134400m"),
    ("0.0001Ki", "102400u", None, 1, 103, "1602400u", "-2047897600u"),
    ("1e3", "1e3", Some(1000), 1000, 1_000_000, "1001500e-3", "-1048"),
    ("1E3", "1E3", Some(1000), 1000, 1_000_000, "1001500e-3", "-1048"),
    ("1e+3", "1e+3", Some(1000), 1000, 1_000_000, "1001500e-3", "-1048"),
    ("1e-3", "1e-3", None, 1, 1, "1501e-3", "-2047999e-3"),
    ("1.5e3", "1500", Some(1500), 1500, 1_500_000, "1501500e-3", "-548"),
    ("12e6", "12e6", Some(12_000_000), 12_000_000, 12_000_000_000, "12000001500e-3", "11997952"),
    ("1n", "1n", None, 1, 1, "1500000001n", "-2047999999999n"),
    ("1u", "1u", None, 1, 1, "1500001u", "-2047999999u"),
    ("0.5n", "1n", None, 1, 1, "1500000001n", "-2047999999999n"),
    ("1.1n", "2n", None, 1, 1, "1500000002n", "-2047999999998n"),
    ("1e-10", "1e-9", None, 1, 1, "1500000001e-9", "-2047999999999e-9"),
    ("1e-400", "1e-9", None, 1, 1, "1500000001e-9", "-2047999999999e-9"),
    ("0.000000001", "1n", None, 1, 1, "1500000001n", "-2047999999999n"),
    ("0.0000000011", "2n", None, 1, 1, "1500000002n", "-2047999999998n"),
    ("1234567.1234567891", "1234567123456790n", None, 1_234_568, 1_234_567_124, "1234568623456790n", "1232519123456790n"),
    ("1Pi", "1Pi", None, 1_125_899_906_842_624, 1_125_899_906_842_624_000, "1125899906842625500m", "1099511627774Ki"),
    ("1023", "1023", Some(1023), 1023, 1_023_000, "1024500m", "-1025"),
    ("1024", "1024", Some(1024), 1024, 1_024_000, "1025500m", "-1024"),
    ("2048", "2048", Some(2048), 2048, 2_048_000, "2049500m", "0"),
    ("1Ti", "1Ti", Some(1_099_511_627_776), 1_099_511_627_776, 1_099_511_627_776_000, "1099511627777500m", "1073741822Ki"),
    ("50M", "50M", Some(50_000_000), 50_000_000, 50_000_000_000, "50000001500m", "49997952"),
    ("50000k", "50M", Some(50_000_000), 50_000_000, 50_000_000_000, "50000001500m", "49997952"),
    ("1001k", "1001k", Some(1_001_000), 1_001_000, 1_001_000_000, "1001001500m", "998952"),
    ("0.001k", "1", Some(1), 1, 1000, "2500m", "-2047"),
    ("3G", "3G", Some(3_000_000_000), 3_000_000_000, 3_000_000_000_000, "3000000001500m", "2999997952"),
    ("100T", "100T", Some(100_000_000_000_000), 100_000_000_000_000, 100_000_000_000_000_000, "100000000000001500m", "99999999997952"),
    ("4Mi", "4Mi", Some(4_194_304), 4_194_304, 4_194_304_000, "4194305500m", "4094Ki"),
    ("1536Mi", "1536Mi", Some(1_610_612_736), 1_610_612_736, 1_610_612_736_000, "1610612737500m", "1572862Ki"),
    ("1m", "1m", None, 1, 1, "1501m", "-2047999m"),
    ("1000000n", "1m", None, 1, 1, "1501m", "-2047999m"),
];

/// Amounts whose integer forms overflow in Kubernetes and saturate here: text, printed form, plus 1500m, minus 2Ki.
#[rustfmt::skip]
const LARGE: &[(&str, &str, &str, &str)] = &[
    ("8Ei", "9223372036854775807", "9223372036854775808500m", "9223372036854773759"),
    ("9Ei", "9223372036854775807", "9223372036854775808500m", "9223372036854773759"),
    ("-9Ei", "-9223372036854775807", "-9223372036854775805500m", "-9223372036854777855"),
    ("7Ei", "7Ei", "8070450532247928833500m", "7881299347898366Ki"),
    ("1E", "1E", "1000000000000000001500m", "999999999999997952"),
    ("-0.5n", "-1n", "1499999999n", "-2048000000001n"),
    ("12345678901234567890", "12345678901234567890", "12345678901234567891500m", "12345678901234565842"),
    ("123456789012345678", "123456789012345678", "123456789012345679500m", "123456789012343630"),
    ("1234567890123456789", "1234567890123456789", "1234567890123456790500m", "1234567890123454741"),
    ("100000000000000000000", "100E", "100000000000000000001500m", "99999999999999997952"),
    ("999999Ti", "999999Ti", "1099510528264372225500m", "1073740750258174Ki"),
    ("10E", "10E", "10000000000000000001500m", "9999999999999997952"),
    ("1.1Ei", "1268213655067531673600m", "1268213655067531675100m", "1268213655067529625600m"),
    ("9223372036854775807", "9223372036854775807", "9223372036854775808500m", "9223372036854773759"),
    ("-9223372036854775808", "-9223372036854775808", "-9223372036854775806500m", "-9223372036854777856"),
];

fn parse(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn quantities_print_and_convert_as_kubernetes_does() {
    for (text, print, integer, value, milli, plus, minus) in ROWS {
        let q = parse(text);
        assert_eq!(q.to_string(), *print, "{text}");
        assert_eq!(q.as_i64(), *integer, "{text}");
        assert_eq!(q.value(), *value, "{text}");
        assert_eq!(q.milli_value(), *milli, "{text}");
        assert_eq!(q.add(&parse("1500m")).to_string(), *plus, "{text}");
        assert_eq!(q.sub(&parse("2Ki")).to_string(), *minus, "{text}");
    }
}

#[test]
fn amounts_past_i64_print_and_add_exactly() {
    for (text, print, plus, minus) in LARGE {
        let q = parse(text);
        assert_eq!(q.to_string(), *print, "{text}");
        assert_eq!(q.add(&parse("1500m")).to_string(), *plus, "{text}");
        assert_eq!(q.sub(&parse("2Ki")).to_string(), *minus, "{text}");
    }
    assert_eq!(parse("12345678901234567890").value(), i64::MAX);
    assert_eq!(parse("-10E").milli_value(), i64::MIN);
}

#[test]
fn malformed_texts_are_refused_in_kubernetes_words() {
    for (text, error) in [
        ("Ei", QuantityError::Numeric),
        ("1e", QuantityError::Suffix),
        ("1ee3", QuantityError::Suffix),
        ("1K", QuantityError::Suffix),
        ("1i", QuantityError::Suffix),
        ("1.1.M", QuantityError::Format),
        ("1+1.0M", QuantityError::Format),
        ("aoeu", QuantityError::Format),
        (".5i", QuantityError::Suffix),
        ("-3.01e-", QuantityError::Suffix),
        (" 1", QuantityError::Format),
        ("1 ", QuantityError::Format),
        ("", QuantityError::Format),
        ("1é", QuantityError::Format),
        ("１", QuantityError::Format),
    ] {
        assert_eq!(Quantity::parse(text).err(), Some(error), "{text}");
    }
    assert_eq!(QuantityError::Suffix.to_string(), "unable to parse quantity's suffix");
}

#[test]
fn quantities_are_ordered_by_amount() {
    let ascending =
        ["-1e300", "-1Ki", "-1", "-1n", "0", "1n", "999m", "1", "1000", "1Ki", "1E", "9Ei", "1e40", "1e300"];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(parse(a).cmp(&parse(b)), i.cmp(&j), "{a} {b}");
        }
    }
    assert_eq!(parse("1Ki"), parse("1024"));
    assert_eq!(parse("0.5"), parse("500m"));
    assert_ne!(parse("1k"), parse("1Ki"));
}

#[test]
fn quantities_of_any_size_are_computed_and_print_in_bounded_length() {
    let digits = "9".repeat(10_000);
    for text in [
        digits.clone(),
        format!("0.{digits}"),
        format!("{digits}Ei"),
        format!("1e{}", i64::MAX),
        format!("1e{}", i64::MIN),
    ] {
        let q = parse(&text);
        for result in [q.add(&parse("1n")), q.sub(&parse("1e99")), q] {
            let length = result.to_string().len();
            assert!(length <= text.len().max(10_000) + 1100, "{length} bytes for {text}");
            assert_eq!(result.value() == 0, result.is_zero(), "{text}");
        }
    }
}

#[test]
fn conversion_to_float_gives_the_nearest_float() {
    for (text, float) in
        [("1.5", 1.5), ("100m", 0.1), ("1Ki", 1024.0), ("0.1Gi", 107_374_182.4), ("1e300", 1e300)]
    {
        assert!((parse(text).as_approximate_f64() - float).abs() <= float * f64::EPSILON, "{text}");
    }
}

#[test]
fn quantities_made_from_integers_print_in_their_format() {
    assert_eq!(Quantity::new(5, QuantityFormat::BinarySi).to_string(), "5");
    assert_eq!(Quantity::new(3 << 30, QuantityFormat::BinarySi).to_string(), "3Gi");
    assert_eq!(Quantity::from_milli(5, QuantityFormat::DecimalSi).to_string(), "5m");
    assert_eq!(Quantity::parse_json(" 5 ").unwrap(), Quantity::new(5, QuantityFormat::DecimalSi));
}

#[test]
fn quantities_beyond_the_largest_suffix_are_written_as_they_are_read() {
    let many = format!("1{}", "0".repeat(51));
    for text in [
        many.clone(),
        format!("-{many}"),
        "1".repeat(32) + "123456789012345678901234567890",
        "1".repeat(5000),
    ] {
        let quantity = Quantity::parse(&text).unwrap();
        let again = Quantity::parse(&quantity.canonical()).unwrap();
        assert_eq!(again, quantity, "{text}");
        assert_eq!(again.canonical(), quantity.canonical(), "{text}");
    }
    assert_eq!(Quantity::parse(&many).unwrap().canonical(), format!("1{}E", "0".repeat(33)));
}

/// Rows printed by Kubernetes' `resource` package. A row with two columns is a text and the error that it gives. The others
/// are two quantities, then for the first one, the sum and the difference: text (`?` where Kubernetes prints another amount),
/// integer and the bits of the approximate float; then the order of the two.
const KUBERNETES: &str = include_str!("kubernetes.tsv");

#[test]
fn random_quantities_parse_add_and_compare_as_in_kubernetes() {
    assert_eq!(KUBERNETES.lines().count(), 600);
    let mut wrong = Vec::new();
    for row in KUBERNETES.lines() {
        let columns: Vec<&str> = row.split('\t').collect();
        let actual = match *columns {
            [text, _] => match Quantity::parse(text) {
                Ok(quantity) => format!("{text}\t{quantity}"),
                Err(error) => format!("{text}\t{error}"),
            },
            [a, b, ..] => {
                let (x, y) = (parse(a), parse(b));
                let sum = x.add(&y);
                let difference = x.sub(&y);
                let mut shown = format!("{a}\t{b}");
                for (quantity, at) in [(&x, 2), (&sum, 5), (&difference, 8)] {
                    let text = if columns[at] == "?" { "?".to_owned() } else { quantity.to_string() };
                    let integer = quantity.as_i64().map_or("-".to_owned(), |integer| integer.to_string());
                    let float = quantity.as_approximate_f64().to_bits();
                    let _ = write!(shown, "\t{text}\t{integer}\t{float:x}");
                }
                shown + &format!("\t{}", x.cmp(&y) as i32)
            }
            _ => panic!("{row}"),
        };
        if actual != row {
            wrong.push(format!("{row}\n{actual}"));
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}
