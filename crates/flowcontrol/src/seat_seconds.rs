//! [`SeatSeconds`]: an amount of work, seats multiplied by time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// Seats multiplied by time, in units of 10 nanoseconds times one seat, as Kubernetes counts it. 128 bits do not overflow within the life
/// of any process, so the progress meter never has to be wound back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatSeconds(i128);

/// Units per seat-second.
const SCALE: i128 = 100_000_000;
const NANOS_PER_UNIT: f64 = 10.0;

impl SeatSeconds {
    /// No work.
    pub const ZERO: SeatSeconds = SeatSeconds(0);

    /// The work of occupying `seats` for this long.
    #[expect(clippy::cast_precision_loss, reason = "an estimate; the amounts are small")]
    pub fn of(seats: f64, time: Duration) -> Self {
        Self::from_units(seats * (time.as_nanos() as f64) / NANOS_PER_UNIT)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a float that is out of range saturates")]
    fn from_units(units: f64) -> Self {
        SeatSeconds(units.round() as i128)
    }

    /// In seat-seconds.
    #[expect(clippy::cast_precision_loss, reason = "for a metric")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }

    /// How long this much work takes on so many seats; nothing takes for ever on no seats, so that is zero.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub fn duration_on(self, seats: f64) -> Duration {
        if seats <= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_nanos((self.0 as f64 / seats * NANOS_PER_UNIT) as u64)
    }
}

impl Add for SeatSeconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        SeatSeconds(self.0.saturating_add(other.0))
    }
}

impl Sub for SeatSeconds {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        SeatSeconds(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for SeatSeconds {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for SeatSeconds {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl fmt::Display for SeatSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let units = self.0.unsigned_abs();
        let scale = SCALE.unsigned_abs();
        write!(f, "{sign}{}.{:08}ss", units / scale, units % scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seats_times_time_and_prints_with_eight_decimals() {
        let work = SeatSeconds::of(3.0, Duration::from_millis(500));
        assert_eq!(work.to_string(), "1.50000000ss");
        assert_eq!((SeatSeconds::ZERO - work).to_string(), "-1.50000000ss");
        assert_eq!(work.duration_on(2.0), Duration::from_millis(750));
        assert_eq!(work.duration_on(0.0), Duration::ZERO);
        assert!((work.as_f64() - 1.5).abs() < 1e-9);
    }
}
