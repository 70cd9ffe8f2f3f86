//! The seats of each priority level: its nominal share, and the seats it lends or borrows according to demand.

use std::time::Duration;

use crate::allocation::{self, SeatClaim};
use crate::objects::PriorityLevel;
use crate::statistics::Period;

/// Interval at which seats move between levels.
pub const ADJUSTMENT_PERIOD: Duration = Duration::from_secs(10);
/// The weight of the former demand in each period: its influence is halved in five minutes.
const SMOOTHING: f64 = 0.977;
/// The fraction of a level's seats that one request may use.
const MAX_SEATS_PART: f64 = 0.15;

/// The seats of a priority level, and the demand that they follow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelLimits {
    /// Its share of all seats.
    pub nominal: i64,
    /// The minimum, after lending all lendable seats.
    pub lower: i64,
    /// The maximum, after borrowing up to its limit.
    pub upper: i64,
    /// The number of seats it has now.
    pub current: i64,
    /// The highest demand of the last period.
    pub high_watermark: i64,
    /// The average demand of the last period.
    pub average: f64,
    /// The standard deviation of the demand in the last period.
    pub deviation: f64,
    /// The demand that seats follow: it rises at once and falls slowly.
    pub smoothed: f64,
    /// The number of seats it should have.
    pub target: f64,
}

#[expect(clippy::cast_possible_truncation, reason = "numbers of seats are small, and saturate")]
fn round(number: f64) -> i64 {
    number.round() as i64
}

#[expect(clippy::cast_precision_loss, reason = "numbers of seats are small")]
fn float(number: i64) -> f64 {
    number as f64
}

impl LevelLimits {
    /// Sets the limits that follow from the shares of this level and of all levels.
    pub(crate) fn share(&mut self, level: &PriorityLevel, total: u32, all_shares: f64) {
        let part = if all_shares > 0.0 { f64::from(level.shares) / all_shares } else { 0.0 };
        let nominal = (f64::from(total) * part).ceil();
        let percent = |percent: u32| round(nominal * f64::from(percent) / 100.0);
        let lendable = percent(level.lendable);
        let borrowable = match level.borrowing {
            Some(limit) => percent(limit),
            // The exempt level borrows without limit as well.
            None => i64::from(total),
        };
        self.nominal = round(nominal);
        self.lower = self.nominal - lendable;
        self.upper = self.nominal + borrowable;
    }

    /// Sets the seats of a new level until the first adjustment.
    pub(crate) fn begin(&mut self) {
        self.current = self.nominal - (self.nominal - self.lower) / 2;
    }

    /// Maximum seats at which a request of a level with queues is estimated.
    pub(crate) fn max_seats(&self, hand_size: u32) -> u64 {
        let part = (float(self.nominal) * MAX_SEATS_PART).ceil();
        let per_queue = self.nominal / i64::from(hand_size.max(1));
        u64::try_from(round(part).min(per_queue).max(1)).unwrap_or(1)
    }

    /// Records the demand of a period.
    pub(crate) fn observe(&mut self, period: Period) {
        self.high_watermark = round(period.max);
        if period.seconds <= 0.0 {
            return;
        }
        self.average = period.average;
        self.deviation = period.deviation;
        let envelope = period.average + period.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }

    /// The seats that it must retain: those it does not lend, and as many of the lendable ones as it uses itself.
    fn needed(&self, is_exempt: bool) -> i64 {
        let needed = if is_exempt { self.high_watermark } else { self.high_watermark.min(self.nominal) };
        self.lower.max(needed)
    }
}

/// Divides the seats of all levels among them. The flag of each says whether it is exempt. Returns the fair fraction.
pub(crate) fn divide(levels: &mut [(bool, &mut LevelLimits)]) -> f64 {
    let nominal: i64 = levels.iter().map(|(_, limits)| limits.nominal).sum();
    let (mut remaining, mut lower, mut needed) = (nominal, 0, 0);
    let mut claims = Vec::with_capacity(levels.len());
    for (is_exempt, limits) in levels.iter_mut() {
        let need = limits.needed(*is_exempt);
        limits.target = float(need).max(limits.smoothed);
        if *is_exempt {
            // Exempt requests are never rejected, so the seats they use are not available to others.
            limits.current = need;
            remaining -= need;
        } else {
            claims.push(SeatClaim { target: limits.target, lower: float(need), upper: float(limits.upper) });
            lower += limits.lower;
            needed += need;
        }
    }
    let limited = levels.iter_mut().filter(|(is_exempt, _)| !is_exempt).map(|(_, limits)| limits);
    if remaining <= lower {
        limited.for_each(|limits| limits.current = limits.lower);
        return 0.0;
    }
    if remaining <= needed {
        let part = float(remaining - lower) / float(needed - lower);
        limited.for_each(|limits| {
            limits.current = limits.lower + round(float(limits.needed(false) - limits.lower) * part);
        });
        return 0.0;
    }
    match allocation::divide(float(nominal), &claims) {
        Ok(allocation) => {
            limited.zip(&allocation.seats).for_each(|(limits, seats)| limits.current = round(*seats));
            allocation.fair_fraction
        }
        // With these bounds the seats cannot be divided exactly; all levels retain their current seats.
        Err(_) => 0.0,
    }
}
