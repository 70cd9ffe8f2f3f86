//! Formats and parses times and durations. Nothing here reads a clock.
//!
//! A `meta/v1` `Time` is RFC 3339 in UTC with whole seconds, a `MicroTime` has six more digits; durations are Go's
//! (`1h15m30s`). Error messages are those of Go's `time` package.

use std::fmt::Write as _;

use value::time::{ZonedTime, format_fraction, format_seconds, parse_rfc3339, parse_rfc3339_micro};

pub use value::time::{format_duration, parse_duration};

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
        parse_rfc3339(text).map(Timestamp::from)
    }

    /// Parses a `MicroTime`: RFC 3339 with exactly six fraction digits.
    pub fn parse_micro(text: &str) -> Result<Self, String> {
        parse_rfc3339_micro(text).map(Timestamp::from)
    }

    /// Formats a `Time`: `2006-01-02T15:04:05Z`.
    pub fn time(self) -> String {
        let mut out = format_seconds(self.seconds);
        out.push('Z');
        out
    }

    /// Formats the time as Go's `time.RFC3339Nano`: without zeros at the end of the fraction.
    pub fn nano_time(self) -> String {
        format!("{}{}Z", format_seconds(self.seconds), format_fraction(self.nanos))
    }

    /// Formats a `MicroTime`: `2006-01-02T15:04:05.000000Z`.
    pub fn micro_time(self) -> String {
        let mut out = format_seconds(self.seconds);
        let _ = write!(out, ".{:06}Z", self.nanos / 1000);
        out
    }
}

impl From<ZonedTime> for Timestamp {
    fn from(time: ZonedTime) -> Self {
        Timestamp { seconds: time.seconds, nanos: time.nanos }
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
