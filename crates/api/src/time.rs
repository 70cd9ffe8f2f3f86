//! Formats and parses times and durations. Nothing here reads a clock.
//!
//! A `meta/v1` `Time` is RFC 3339 in UTC with whole seconds, a `MicroTime` has six more digits; durations are Go's
//! (`1h15m30s`). Error messages are those of Go's `time` package.

use std::fmt::Write as _;

use crate::field::quote;

/// A point in time with nanosecond precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since the Unix epoch, 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second, 0 to 999,999,999.
    pub nanos: u32,
}

/// Go's zero time, 0001-01-01T00:00:00Z, which Kubernetes treats as absent.
pub const GO_ZERO_SECONDS: i64 = -62_135_596_800;

const TIME_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

impl Timestamp {
    pub const fn from_seconds(seconds: i64) -> Self {
        Timestamp { seconds, nanos: 0 }
    }

    pub fn from_micros(micros: i64) -> Self {
        let nanos = u32::try_from(micros.rem_euclid(1_000_000) * 1000).unwrap_or(0);
        Timestamp { seconds: micros.div_euclid(1_000_000), nanos }
    }

    /// Microseconds since 1970-01-01T00:00:00Z, saturating.
    pub fn micros(self) -> i64 {
        self.seconds.saturating_mul(1_000_000).saturating_add(i64::from(self.nanos / 1000))
    }

    /// True for Go's zero time.
    pub fn is_zero(self) -> bool {
        self == Self::from_seconds(GO_ZERO_SECONDS)
    }

    /// Parses a `Time`: RFC 3339 with any offset and any number of fraction digits.
    pub fn parse(text: &str) -> Result<Self, String> {
        Rfc3339Reader { layout: TIME_LAYOUT, text, rest: text }.read()
    }

    /// Parses a `MicroTime`: RFC 3339 with exactly six fraction digits.
    pub fn parse_micro(text: &str) -> Result<Self, String> {
        Rfc3339Reader { layout: MICRO_LAYOUT, text, rest: text }.read()
    }

    /// Formats a `Time`: `2006-01-02T15:04:05Z`.
    pub fn time(self) -> String {
        let mut out = self.to_second();
        out.push('Z');
        out
    }

    /// Formats a `MicroTime`: `2006-01-02T15:04:05.000000Z`.
    pub fn micro_time(self) -> String {
        let mut out = self.to_second();
        let _ = write!(out, ".{:06}Z", self.nanos / 1000);
        out
    }

    fn to_second(self) -> String {
        let (days, second) = (self.seconds.div_euclid(86400), self.seconds.rem_euclid(86400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

/// Converts days since 1970-01-01 to a date. 400-year cycles start in March, so that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Converts a date to days since 1970-01-01.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Parses RFC 3339 in the order and with the leniency of Go's `time.Parse`.
struct Rfc3339Reader<'a> {
    layout: &'static str,
    text: &'a str,
    rest: &'a str,
}

impl<'a> Rfc3339Reader<'a> {
    fn read(mut self) -> Result<Timestamp, String> {
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
        if day < 1 || day > days_in(year, month) {
            return Err(self.out_of_range("day"));
        }
        let seconds = days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset;
        Ok(Timestamp { seconds, nanos })
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

    /// Parses a number of `least` to `most` digits.
    fn number(&mut self, element: &str, least: usize, most: usize) -> Result<i64, String> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return Err(self.unexpected(element));
        }
        Ok(self.take(digits).parse().unwrap_or(0))
    }

    /// Consumes `count` bytes, which must be ASCII.
    fn take(&mut self, count: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(count).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Parses the fraction after the seconds, in nanoseconds.
    fn fraction(&mut self) -> Result<u32, String> {
        let digits = self.rest.bytes().skip(1).take_while(u8::is_ascii_digit).count();
        let marked = self.rest.starts_with(['.', ',']) && digits > 0;
        let digits = if self.layout == MICRO_LAYOUT {
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

    /// Parses `Z` or a UTC offset, in seconds.
    fn offset(&mut self) -> Result<i64, String> {
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
        let two = |a: u8, b: u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
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

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1000),
    ("µs", 1000),
    ("μs", 1000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a Go duration (`1h15m30.5s`) as nanoseconds.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    if unsigned == "0" {
        return Ok(0);
    }
    if unsigned.is_empty() {
        return Err(invalid());
    }
    // The magnitude of i64::MIN is one more than i64::MAX.
    let limit = if negative { 1_i128 << 63 } else { (1 << 63) - 1 };
    let (mut total, mut rest) = (0_i128, unsigned);
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote(text)));
        }
        let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit {} in duration {}", quote(unit), quote(text)));
        };
        let unit = i128::from(*unit);
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        total += whole.checked_mul(unit).filter(|n| *n <= limit).ok_or_else(invalid)?;
        // Digits below a nanosecond's share of an hour cannot change the result.
        let (mut share, mut scale) = (0_i128, 1_i128);
        for digit in fraction.bytes().take(18) {
            share = share * 10 + i128::from(digit - b'0');
            scale *= 10;
        }
        total += share * unit / scale;
        if total > limit {
            return Err(invalid());
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Formats nanoseconds as Go does: `1h15m30.5s`, `1.5ms`, `0s`.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let decimal = |unit: u64, width: usize| {
        let text = format!("{}.{:0width$}", magnitude / unit, magnitude % unit);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match magnitude {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{magnitude}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(1_000, 3)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(1_000_000, 6)),
        _ => {
            let minutes = magnitude / 60_000_000_000;
            let rest = magnitude % 60_000_000_000;
            let seconds = format!("{}.{:09}", rest / 1_000_000_000, rest % 1_000_000_000);
            let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, m) => format!("{sign}{m}m{seconds}s"),
                (h, m) => format!("{sign}{h}h{m}m{seconds}s"),
            }
        }
    }
}

/// Formats seconds as kubectl's AGE columns do: two or three significant digits.
pub fn human_duration(seconds: i64) -> String {
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    // Clocks of different machines may differ slightly.
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// Formats the age at `now` (seconds since 1970) of a `Time`, as kubectl does; `<unknown>` if it is absent or
/// invalid.
pub fn human_age(text: Option<&str>, now: i64) -> String {
    match text.map(Timestamp::parse) {
        Some(Ok(then)) if !then.is_zero() => human_duration(now.saturating_sub(then.seconds)),
        _ => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests;
