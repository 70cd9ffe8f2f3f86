//! Durations and timestamps, parsed and printed as in Go.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::number;

/// A point in time, with the UTC offset it was written with.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Seconds since the Unix epoch.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
    /// UTC offset in seconds, which only affects printing.
    pub offset: i32,
}

/// The earliest time of CEL, 0001-01-01T00:00:00Z.
pub(crate) const EARLIEST: i64 = -62_135_596_800;
/// The latest time of CEL, 9999-12-31T23:59:59Z.
pub(crate) const LATEST: i64 = 253_402_300_799;

const NANOS: i64 = 1_000_000_000;

/// A calendar date and time of day.
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: u32,
    pub(crate) day: u32,
    pub(crate) hour: u32,
    pub(crate) minute: u32,
    pub(crate) second: u32,
    /// Counted from 0 for Sunday.
    pub(crate) weekday: i64,
    /// Counted from 0 for January 1.
    pub(crate) day_of_year: i64,
}

impl Timestamp {
    /// True if both are the same instant, whatever their offsets.
    pub(crate) fn same_instant(&self, other: &Timestamp) -> bool {
        self.compare(other) == Ordering::Equal
    }

    pub(crate) fn compare(&self, other: &Timestamp) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.seconds == EARLIEST && self.nanos == 0
    }

    /// Adds nanoseconds; `None` outside CEL's range.
    pub(crate) fn plus(&self, nanos: i64) -> Option<Timestamp> {
        let total = i64::from(self.nanos) + nanos.rem_euclid(NANOS);
        let seconds = self.seconds.checked_add(nanos.div_euclid(NANOS))?.checked_add(total / NANOS)?;
        let nanos = u32::try_from(total % NANOS).ok()?;
        (EARLIEST..=LATEST).contains(&seconds).then_some(Timestamp { seconds, nanos, offset: self.offset })
    }

    /// Nanoseconds since `other`; `None` on overflow.
    pub(crate) fn minus(&self, other: &Timestamp) -> Option<i64> {
        let seconds = self.seconds.checked_sub(other.seconds)?;
        seconds.checked_mul(NANOS)?.checked_add(i64::from(self.nanos) - i64::from(other.nanos))
    }

    /// Converts to calendar fields at a UTC offset in seconds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "all parts are small and positive"
    )]
    pub(crate) fn civil(&self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let days = local.div_euclid(86_400);
        let second_of_day = local.rem_euclid(86_400);
        let (year, month, day) = civil_from_days(days);
        Civil {
            year,
            month,
            day,
            hour: (second_of_day / 3600) as u32,
            minute: (second_of_day / 60 % 60) as u32,
            second: (second_of_day % 60) as u32,
            weekday: (days + 4).rem_euclid(7),
            day_of_year: days - days_from_civil(year, 1, 1),
        }
    }

    /// Formats the time as Go's `time.RFC3339Nano`.
    pub(crate) fn rfc3339(&self) -> String {
        let civil = self.civil(i64::from(self.offset));
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
        );
        if self.nanos > 0 {
            let fraction = format!("{:09}", self.nanos);
            text.push('.');
            text.push_str(fraction.trim_end_matches('0'));
        }
        if self.offset == 0 {
            text.push('Z');
        } else {
            let minutes = self.offset.abs() / 60;
            let sign = if self.offset < 0 { '-' } else { '+' };
            let _ = write!(text, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        }
        text
    }

    /// Formats the time as Go's `%v`.
    pub(crate) fn go_text(&self) -> String {
        let text = self.rfc3339();
        let (date, rest) = text.split_once('T').unwrap_or((&text, ""));
        if self.offset == 0 {
            return format!("{date} {} +0000 UTC", rest.trim_end_matches('Z'));
        }
        let at = rest.rfind(['+', '-']).unwrap_or(rest.len());
        let (time, zone) = rest.split_at_checked(at).unwrap_or((rest, ""));
        let zone = zone.replace(':', "");
        format!("{date} {time} {zone} {zone}")
    }

    /// Parses RFC 3339 as Go's `time.Parse`: the hour may have one digit, and a comma may precede the fraction.
    pub(crate) fn read(text: &str) -> Option<Timestamp> {
        let mut reader = TimeReader { bytes: text.as_bytes(), at: 0 };
        let year = reader.digits(4, 4)?;
        reader.byte(b'-')?;
        let month = reader.digits(2, 2)?;
        reader.byte(b'-')?;
        let day = reader.digits(2, 2)?;
        reader.byte(b'T')?;
        let hour = reader.digits(1, 2)?;
        reader.byte(b':')?;
        let minute = reader.digits(2, 2)?;
        reader.byte(b':')?;
        let second = reader.digits(2, 2)?;
        let nanos = reader.fraction()?;
        let offset = reader.zone()?;
        if !(1..=12).contains(&month)
            || day < 1
            || day > i64::from(days_in_month(year, month))
            || hour > 23
            || minute > 59
            || second > 59
            || reader.at != reader.bytes.len()
        {
            return None;
        }
        let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
            - i64::from(offset);
        Some(Timestamp { seconds, nanos, offset })
    }
}

/// Formats a duration as Go does: `1h30m0s`, `1.5ms`.
pub(crate) fn go_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    let decimal = |whole: u64, part: u64, digits: usize| {
        let part = format!("{part:0digits$}");
        let part = part.trim_end_matches('0');
        if part.is_empty() { whole.to_string() } else { format!("{whole}.{part}") }
    };
    match total {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{total}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(total / 1_000, total % 1_000, 3)),
        1_000_000..1_000_000_000 => {
            format!("{sign}{}ms", decimal(total / 1_000_000, total % 1_000_000, 6))
        }
        _ => {
            let (whole, part) = (total / 1_000_000_000, total % 1_000_000_000);
            let seconds = decimal(whole % 60, part, 9);
            match (whole / 3600, whole / 60 % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

struct TimeReader<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl TimeReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn byte(&mut self, wanted: u8) -> Option<()> {
        (self.peek() == Some(wanted)).then(|| self.at += 1)
    }

    fn digits(&mut self, least: usize, most: usize) -> Option<i64> {
        let mut number = 0;
        let mut count = 0;
        while count < most
            && let Some(digit @ b'0'..=b'9') = self.peek()
        {
            number = number * 10 + i64::from(digit - b'0');
            self.at += 1;
            count += 1;
        }
        (count >= least).then_some(number)
    }

    fn fraction(&mut self) -> Option<u32> {
        if !matches!(self.peek(), Some(b'.' | b',')) {
            return Some(0);
        }
        self.at += 1;
        let mut nanos = 0;
        let mut count = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            if count < 9 {
                nanos = nanos * 10 + u32::from(digit - b'0');
            }
            self.at += 1;
            count += 1;
        }
        if count == 0 {
            return None;
        }
        for _ in count..9 {
            nanos *= 10;
        }
        Some(nanos)
    }

    fn zone(&mut self) -> Option<i32> {
        if self.byte(b'Z').is_some() {
            return Some(0);
        }
        let sign = match self.peek()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        self.at += 1;
        let hours = self.digits(2, 2)?;
        self.byte(b':')?;
        let minutes = self.digits(2, 2)?;
        if hours > 24 || minutes > 60 {
            return None;
        }
        i32::try_from(sign * (hours * 3600 + minutes * 60)).ok()
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Number of days in a month.
pub(crate) fn days_in_month(year: i64, month: i64) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "month and day are small and positive"
)]
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

/// Converts nanoseconds to seconds with the rounding of Go's `Duration.Seconds`.
#[expect(clippy::cast_precision_loss, reason = "Go rounds here too")]
pub(crate) fn seconds(nanos: i64) -> f64 {
    (nanos / NANOS) as f64 + (nanos % NANOS) as f64 / 1e9
}

/// Formats a duration as CEL does: `1.5s`.
pub(crate) fn duration_text(nanos: i64) -> String {
    let seconds = seconds(nanos);
    let text = if seconds == 0.0 { "0".to_owned() } else { format!("{seconds}") };
    debug_assert!(!text.contains('e') || number::shortest(seconds) == text);
    format!("{text}s")
}

/// Parses a duration as Go's `time.ParseDuration`, in nanoseconds.
pub(crate) fn read_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let whole_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let whole: u64 = match rest.get(..whole_digits)? {
            "" => 0,
            digits => digits.parse().ok().filter(|whole| *whole <= 1 << 63)?,
        };
        rest = rest.get(whole_digits..)?;
        let mut fraction: u64 = 0;
        let mut scale = 1.0;
        let mut fraction_digits = 0;
        if let Some(after) = rest.strip_prefix('.') {
            fraction_digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let mut overflow = false;
            for digit in after.bytes().take(fraction_digits) {
                if overflow {
                    continue;
                }
                if fraction > (1 << 63) / 10 {
                    overflow = true;
                    continue;
                }
                let next = fraction * 10 + u64::from(digit - b'0');
                if next > 1 << 63 {
                    overflow = true;
                    continue;
                }
                fraction = next;
                scale *= 10.0;
            }
            rest = after.get(fraction_digits..)?;
        }
        if whole_digits == 0 && fraction_digits == 0 {
            return None;
        }
        let unit_length = rest.bytes().take_while(|b| *b != b'.' && !b.is_ascii_digit()).count();
        let unit: u64 = match rest.get(..unit_length)? {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        rest = rest.get(unit_length..)?;
        if whole > (1 << 63) / unit {
            return None;
        }
        let mut part = whole * unit;
        if fraction > 0 {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "Go rounds here too"
            )]
            {
                part += (fraction as f64 * (unit as f64 / scale)) as u64;
            }
            if part > 1 << 63 {
                return None;
            }
        }
        total = total.checked_add(part).filter(|total| *total <= 1 << 63)?;
    }
    if negative {
        return if total == 1 << 63 { Some(i64::MIN) } else { i64::try_from(total).ok().map(|t| -t) };
    }
    i64::try_from(total).ok()
}
