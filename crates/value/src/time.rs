//! Durations and RFC 3339 times as Go's `time` package parses and prints them, and the calendar they need.
//!
//! Nothing here reads a clock. Errors have the words of Go's `time` package.

use crate::go;

/// Nanoseconds of each unit that a duration may have.
const DURATION_UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The largest magnitude of a duration, that of `i64::MIN`.
const MAX_MAGNITUDE: u64 = 1 << 63;

/// A text in quotes as Go's `time` package shows it: unlike `%q`, it escapes every byte outside ASCII.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=0x7f => quoted.push(char::from(byte)),
            _ => go::escape_byte_to(&mut quoted, byte),
        }
    }
    quoted.push('"');
    quoted
}

/// Parses a Go duration (`1h15m30.5s`) into nanoseconds.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let whole = if whole.is_empty() { Ok(0) } else { whole.parse() };
        let whole: u64 = whole.ok().filter(|whole| *whole <= MAX_MAGNITUDE).ok_or_else(invalid)?;
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        if name.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote(text)));
        }
        let Some((_, unit)) = DURATION_UNITS.iter().find(|(unit, _)| *unit == name) else {
            return Err(format!("time: unknown unit {} in duration {}", quote(name), quote(text)));
        };
        let part = whole.checked_mul(*unit).and_then(|part| part.checked_add(fraction_of(*unit, fraction)));
        let part = part.filter(|part| *part <= MAX_MAGNITUDE).ok_or_else(invalid)?;
        total = total.checked_add(part).filter(|total| *total <= MAX_MAGNITUDE).ok_or_else(invalid)?;
        rest = after;
    }
    let magnitude = i128::from(total);
    i64::try_from(if text.starts_with('-') { -magnitude } else { magnitude }).map_err(|_| invalid())
}

/// `0.digits * unit`, computed in floats as Go computes it. Digits past the range of an `i64` do not count.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go rounds here, too"
)]
fn fraction_of(unit: u64, digits: &str) -> u64 {
    let (mut fraction, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        let next = fraction.checked_mul(10).and_then(|next| next.checked_add(u64::from(digit - b'0')));
        let Some(next) = next.filter(|next| *next <= MAX_MAGNITUDE) else { break };
        fraction = next;
        scale *= 10.0;
    }
    (fraction as f64 * (unit as f64 / scale)) as u64
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A duration in nanoseconds as Go prints it: `1h15m30.5s`, `1.5ms`, `0s`.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let decimal = |magnitude: u64, unit: u64, width: usize| {
        let text = format!("{}.{:0width$}", magnitude / unit, magnitude % unit);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match magnitude {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{magnitude}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(magnitude, 1_000, 3)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(magnitude, 1_000_000, 6)),
        _ => {
            let minutes = magnitude / 60_000_000_000;
            let seconds = decimal(magnitude % 60_000_000_000, 1_000_000_000, 9);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, m) => format!("{sign}{m}m{seconds}s"),
                (h, m) => format!("{sign}{h}h{m}m{seconds}s"),
            }
        }
    }
}

/// A fraction of a second as Go's `RFC3339Nano` prints it: `.5`, without zeros at the end, or nothing.
pub fn format_fraction(nanos: u32) -> String {
    if nanos == 0 {
        return String::new();
    }
    format!(".{nanos:09}").trim_end_matches('0').to_owned()
}

/// The date of a day counted from 1970-01-01: year, month and day of the month, in the Gregorian calendar.
pub fn date_of_day(day: i64) -> (i64, i64, i64) {
    // Eras of 400 years start in March, so that the leap day is the last one.
    let shifted = day.saturating_add(719_468);
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The day, counted from 1970-01-01, of a date in the Gregorian calendar.
pub fn day_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// How many days a month from 1 to 12 has.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `2006-01-02T15:04:05`: a time in seconds since 1970 as RFC 3339 prints it, without fraction and zone.
pub fn format_seconds(seconds: i64) -> String {
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date_of_day(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// A parsed time with the offset that it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedTime {
    /// Seconds since 1970-01-01T00:00:00Z, negative before.
    pub seconds: i64,
    /// Nanoseconds within the second, 0 to 999,999,999.
    pub nanos: u32,
    /// Seconds east of UTC.
    pub offset: i32,
}

const TIME_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_TIME_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Parses RFC 3339 as Go's `time.Parse` does: the hour may have one digit, a fraction may follow a comma and have any number
/// of digits, of which nine count.
pub fn parse_rfc3339(text: &str) -> Result<ZonedTime, String> {
    Rfc3339Reader { layout: TIME_LAYOUT, text, rest: text }.read()
}

/// Parses RFC 3339 with exactly six digits after the second, the layout of `MicroTime`.
pub fn parse_rfc3339_micro(text: &str) -> Result<ZonedTime, String> {
    Rfc3339Reader { layout: MICRO_TIME_LAYOUT, text, rest: text }.read()
}

/// Reads along a layout, in the order and with the leniency of Go's `time.Parse`.
struct Rfc3339Reader<'a> {
    layout: &'static str,
    text: &'a str,
    rest: &'a str,
}

impl<'a> Rfc3339Reader<'a> {
    fn read(mut self) -> Result<ZonedTime, String> {
        let year = self.number("2006", 4, 4)?;
        self.literal("-")?;
        let month = self.number("01", 2, 2)?;
        if !(1..=12).contains(&month) {
            return Err(self.out_of_range("month"));
        }
        self.literal("-")?;
        let day = self.number("02", 2, 2)?;
        self.literal("T")?;
        let hour = self.number("15", 1, 2)?;
        if hour >= 24 {
            return Err(self.out_of_range("hour"));
        }
        self.literal(":")?;
        let minute = self.number("04", 2, 2)?;
        if minute >= 60 {
            return Err(self.out_of_range("minute"));
        }
        self.literal(":")?;
        let second = self.number("05", 2, 2)?;
        if second >= 60 {
            return Err(self.out_of_range("second"));
        }
        let nanos = self.fraction()?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {}: extra text: {}", quote(self.text), quote(self.rest)));
        }
        if day < 1 || day > days_in_month(year, month) {
            return Err(self.out_of_range("day"));
        }
        let seconds = day_of_date(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
        Ok(ZonedTime { seconds: seconds - i64::from(offset), nanos, offset })
    }

    fn unexpected(&self, element: &str) -> String {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quote(self.text),
            quote(self.layout),
            quote(self.rest),
            quote(element)
        )
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {}: {what} out of range", quote(self.text))
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.unexpected(literal))?;
        Ok(())
    }

    /// A number of at least `least` and at most `most` digits.
    fn number(&mut self, element: &str, least: usize, most: usize) -> Result<i64, String> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return Err(self.unexpected(element));
        }
        Ok(self.take(digits).parse().unwrap_or(0))
    }

    /// The next `count` bytes, which are known to be ASCII.
    fn take(&mut self, count: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(count).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// The fraction of the second, in nanoseconds.
    fn fraction(&mut self) -> Result<u32, String> {
        let digits = self.rest.bytes().skip(1).take_while(u8::is_ascii_digit).count();
        let marked = self.rest.starts_with(['.', ',']) && digits > 0;
        let digits = if self.layout == MICRO_TIME_LAYOUT {
            if !marked || digits < 6 {
                return Err(self.unexpected(".000000"));
            }
            6
        } else if marked {
            digits
        } else {
            return Ok(0);
        };
        self.take(1);
        let mut nanos = 0;
        for byte in self.take(digits).bytes().chain(std::iter::repeat(b'0')).take(9) {
            nanos = nanos * 10 + u32::from(byte - b'0');
        }
        Ok(nanos)
    }

    /// `Z` or an offset from UTC, in seconds.
    fn offset(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..] = self.rest.as_bytes() else {
            return Err(self.unexpected("Z07:00"));
        };
        if ![h1, h2, m1, m2].iter().all(u8::is_ascii_digit) {
            return Err(self.unexpected("Z07:00"));
        }
        self.take(6);
        let two = |a: u8, b: u8| i32::from(a - b'0') * 10 + i32::from(b - b'0');
        let (hours, minutes) = (two(h1, h2), two(m1, m2));
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        let offset = hours * 3600 + minutes * 60;
        Ok(if sign == b'-' { -offset } else { offset })
    }
}

#[cfg(test)]
mod tests;
