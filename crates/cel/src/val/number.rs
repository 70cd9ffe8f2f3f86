//! Lossless number conversions, and Go's formatting of floats.

/// Converts a double that is exactly an integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "the range is checked and exactness is the point"
)]
pub(crate) fn double_as_int(d: f64) -> Option<i64> {
    (d.trunc() == d && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&d))
        .then_some(d as i64)
}

/// Converts a double that is exactly an unsigned integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "the range is checked and exactness is the point"
)]
pub(crate) fn double_as_uint(d: f64) -> Option<u64> {
    (d.trunc() == d && (0.0..18_446_744_073_709_551_616.0).contains(&d)).then_some(d as u64)
}

/// Formats a double as Go's `%g`.
pub(crate) fn shortest(d: f64) -> String {
    if let Some(word) = special(d) {
        return word.to_owned();
    }
    if d == 0.0 {
        return if d.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    let text = format!("{d:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // `%g` without a precision switches to an exponent as if the precision was six.
    if (-4..6).contains(&exponent) {
        return format!("{d}");
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Formats a double as Go's `%e` with `digits` decimals.
pub(crate) fn scientific(d: f64, digits: usize) -> String {
    if let Some(word) = special(d) {
        return word.to_owned();
    }
    let text = format!("{d:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

/// Formats a double as Go's `%f` with `digits` decimals.
pub(crate) fn fixed(d: f64, digits: usize) -> String {
    special(d).map_or_else(|| format!("{d:.digits$}"), str::to_owned)
}

fn special(d: f64) -> Option<&'static str> {
    if d.is_nan() {
        Some("NaN")
    } else if d.is_infinite() {
        Some(if d > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        None
    }
}
