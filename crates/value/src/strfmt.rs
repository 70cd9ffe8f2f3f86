//! The string formats of OpenAPI that both CRD schemas and CEL check, as go-openapi's `strfmt` checks them.

use crate::time::days_in_month;

/// Format `uuid`: five groups of hexadecimal digits, with optional dashes between them.
pub fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (i, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.split_at_checked(length) {
            Some((group, after)) if group.bytes().all(|b| b.is_ascii_hexdigit()) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Format `byte`: padded base64 that is not empty, without line breaks.
pub fn is_base64(text: &str) -> bool {
    let is_symbol = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    let body = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(is_symbol)
}

/// Format `date`: an existing day, written as `2006-01-02`.
pub fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut number = |length: usize| {
        let part = parts.next()?;
        (part.len() == length && part.bytes().all(|b| b.is_ascii_digit()))
            .then(|| part.parse::<i64>().ok())?
    };
    let (Some(year), Some(month), Some(day)) = (number(4), number(2), number(2)) else { return false };
    parts.next().is_none() && (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day)
}

/// Format `datetime`. What follows a second `t` is ignored, and any character may precede the fraction of the second.
pub fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

/// The pattern `^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$`, with limits for the three numbers.
fn is_time(time: &str) -> bool {
    let Some((clock, rest)) = time.split_at_checked(8) else { return false };
    let [h1, h2, b':', m1, m2, b':', s1, s2] = clock.as_bytes() else { return false };
    if ![h1, h2, m1, m2, s1, s2].into_iter().all(u8::is_ascii_digit) {
        return false;
    }
    let in_range = [*h1, *h2] <= *b"23" && [*m1, *m2] <= *b"59" && [*s1, *s2] <= *b"59";
    let mut chars = rest.chars();
    let separator = chars.next();
    let after_fraction = chars.as_str().trim_start_matches(|c: char| c.is_ascii_digit());
    let has_fraction = separator != Some('\n') && after_fraction.len() < chars.as_str().len();
    in_range && (is_zone(rest) || has_fraction && is_zone(after_fraction))
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        b"z" => true,
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].into_iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_base64, is_date, is_date_time, is_uuid};

    #[test]
    fn formats_accept_what_go_openapi_accepts() {
        assert!(is_uuid("550E8400e29b-41d4a716-446655440000") && !is_uuid("550e8400"));
        assert!(is_base64("QR==") && !is_base64("") && !is_base64("QQ=") && !is_base64("QUJD\n"));
        assert!(is_date("2024-02-29") && !is_date("2023-02-29") && !is_date("2024-2-29"));
        for (text, valid) in [
            ("2024-02-29T12:00:00Z", true),
            ("2024-02-29t23:59:59.5+99:99", true),
            ("2024-02-29T12:00:00Z5Z", true),
            ("2024-02-29T12:00:00ZTX", true),
            ("2024-02-29T12:00:00\n5Z", false),
            ("2024-02-29T12:00:60Z", false),
            ("2024-02-29T12:00:00", false),
            ("2024-02-29", false),
        ] {
            assert_eq!(is_date_time(text), valid, "{text}");
        }
    }
}
