use super::*;

fn lengths(warnings: &[usize]) -> Vec<usize> {
    let texts = warnings.iter().map(|length| "x".repeat(*length)).collect();
    bounded(texts).iter().map(String::len).collect()
}

#[test]
fn warnings_that_are_short_together_are_sent_in_full() {
    assert_eq!(lengths(&[4000, 96]), [4000, 96]);
    assert_eq!(lengths(&vec![1; 500]), vec![1; 500]);
}

#[test]
fn long_warnings_are_cut_and_sent_until_the_total_limit() {
    assert_eq!(lengths(&[4000, 97]), [256, 97]);
    assert_eq!(lengths(&[300; 20]), [256; 16]);
    // The last warning may exceed the limit a little.
    let mut uneven = vec![200; 30];
    uneven.push(1);
    assert_eq!(lengths(&uneven), [200; 21]);
}

#[test]
fn warnings_that_are_not_valid_header_values_are_omitted() {
    let sent = bounded(vec![String::new(), "two\nlines".to_owned(), "fine".to_owned()]);
    assert_eq!(sent, ["fine"]);
}

#[test]
fn gzip_is_accepted_only_without_a_quality_value() {
    for (header, takes) in [
        ("gzip", true),
        ("deflate, gzip", true),
        ("gzip;q=0", false),
        ("gzip;q=0.5", false),
        ("*", false),
        ("GZIP", false),
    ] {
        assert_eq!(takes_gzip(&HeaderValue::from_static(header)), takes, "{header}");
    }
}
