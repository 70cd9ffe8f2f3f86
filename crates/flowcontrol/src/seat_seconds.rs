//! [`SeatSeconds`]: an amount of work, seats multiplied by time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// Seats multiplied by time, in units of 10 nanoseconds times one seat, as in Kubernetes. 128 bits do not overflow within the life of any
/// process, so the virtual time never has to be reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatSeconds(i128);

/// Internal units per seat-second.
const SCALE: i128 = 100_000_000;
const NANOS_PER_UNIT: u64 = 10;

impl SeatSeconds {
    pub const ZERO: SeatSeconds = SeatSeconds(0);

    /// The work of occupying `seats` for this long.
    pub fn of(seats: u64, time: Duration) -> Self {
        Self::share_of(seats, 1, time)
    }

    /// One of `parts` equal parts of the work of occupying `seats` for this long, rounded.
    pub fn share_of(seats: u64, parts: u32, time: Duration) -> Self {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let divisor = NANOS_PER_UNIT * u64::from(parts.max(1));
        let units = seats.saturating_mul(nanos).saturating_add(divisor / 2) / divisor;
        SeatSeconds(i128::from(units))
    }

    /// The value in seat-seconds.
    #[expect(clippy::cast_precision_loss, reason = "for a metric")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }

    /// How long this much work takes on so many seats; zero if there are no seats.
    pub fn duration_on(self, seats: u64) -> Duration {
        let units = u64::try_from(self.0.max(0)).unwrap_or(u64::MAX);
        let nanos = units.saturating_mul(NANOS_PER_UNIT).checked_div(seats);
        Duration::from_nanos(nanos.unwrap_or_default())
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
        let work = SeatSeconds::of(3, Duration::from_millis(500));
        assert_eq!(work.to_string(), "1.50000000ss");
        assert_eq!((SeatSeconds::ZERO - work).to_string(), "-1.50000000ss");
        assert_eq!(work.duration_on(2), Duration::from_millis(750));
        assert_eq!(work.duration_on(0), Duration::ZERO);
        assert!((work.as_f64() - 1.5).abs() < 1e-9);
        assert_eq!(SeatSeconds::share_of(2, 3, Duration::from_secs(1)).to_string(), "0.66666667ss");
        assert_eq!(SeatSeconds::of(1, Duration::from_nanos(14)).to_string(), "0.00000001ss");
    }
}
