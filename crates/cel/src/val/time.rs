//! Durations and timestamps, parsed and printed as in Go.

use std::cmp::Ordering;
use std::fmt::Write as _;

use value::time::{ZonedTime, date_of_day, day_of_date, format_fraction, format_seconds, parse_rfc3339};

use super::number;

/// A point in time, with the UTC offset it was written with.
#[derive(Clone, Copy, Debug)]
pub struct CelTimestamp {
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
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    /// Counted from 0 for Sunday.
    pub(crate) weekday: i64,
    /// Counted from 0 for January 1.
    pub(crate) day_of_year: i64,
}

impl CelTimestamp {
    /// True if both are the same instant, whatever their offsets.
    pub(crate) fn same_instant(&self, other: &CelTimestamp) -> bool {
        self.compare(other) == Ordering::Equal
    }

    pub(crate) fn compare(&self, other: &CelTimestamp) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.seconds == EARLIEST && self.nanos == 0
    }

    /// Adds nanoseconds; `None` outside CEL's range.
    pub(crate) fn plus(&self, nanos: i64) -> Option<CelTimestamp> {
        let total = i64::from(self.nanos) + nanos.rem_euclid(NANOS);
        let seconds = self.seconds.checked_add(nanos.div_euclid(NANOS))?.checked_add(total / NANOS)?;
        let nanos = u32::try_from(total % NANOS).ok()?;
        (EARLIEST..=LATEST).contains(&seconds).then_some(CelTimestamp { seconds, nanos, offset: self.offset })
    }

    /// Nanoseconds since `other`; `None` on overflow.
    pub(crate) fn minus(&self, other: &CelTimestamp) -> Option<i64> {
        let seconds = self.seconds.checked_sub(other.seconds)?;
        seconds.checked_mul(NANOS)?.checked_add(i64::from(self.nanos) - i64::from(other.nanos))
    }

    /// Converts to calendar fields at a UTC offset in seconds.
    pub(crate) fn civil(&self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let days = local.div_euclid(86_400);
        let second_of_day = local.rem_euclid(86_400);
        let (year, month, day) = date_of_day(days);
        Civil {
            year,
            month,
            day,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            weekday: (days + 4).rem_euclid(7),
            day_of_year: days - day_of_date(year, 1, 1),
        }
    }

    /// Formats the time as Go's `time.RFC3339Nano`.
    pub(crate) fn rfc3339(&self) -> String {
        let mut text = format_seconds(self.seconds + i64::from(self.offset));
        text.push_str(&format_fraction(self.nanos));
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

    /// Parses RFC 3339 with Go's leniency (see [`parse_rfc3339`]).
    pub(crate) fn read(text: &str) -> Option<CelTimestamp> {
        let ZonedTime { seconds, nanos, offset } = parse_rfc3339(text).ok()?;
        Some(CelTimestamp { seconds, nanos, offset })
    }
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
