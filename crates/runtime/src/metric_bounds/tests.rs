use super::{format_bounds_as_go, shortest};

#[test]
fn bounds_are_written_as_go_writes_them() {
    let cases = [
        (0.000_000_5, "5e-07"),
        (0.005, "0.005"),
        (2.5, "2.5"),
        (60.0, "60"),
        (1e5, "100000"),
        (1e6, "1e+06"),
        (1e9, "1e+09"),
    ];
    for (number, text) in cases {
        assert_eq!(shortest(number), text);
    }
    let page = b"a_bucket{le=\"0.0000005\"} 1\na_bucket{le=\"+Inf\"} 2\n".to_vec();
    let written = String::from_utf8(format_bounds_as_go(page)).unwrap();
    assert_eq!(written, "a_bucket{le=\"5e-07\"} 1\na_bucket{le=\"+Inf\"} 2\n");
}
