//! Histograms and time-weighted statistics without synchronization. Each is guarded by the lock of the data it describes; metrics read it
//! on demand.

use std::time::Duration;

/// Counts observations by upper bound.
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more element than `bounds`: the last counts values above all bounds.
    counts: Box<[u64]>,
    sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Histogram { bounds, counts: vec![0; bounds.len() + 1].into(), sum: 0.0 }
    }

    /// Index of the bucket that counts a value.
    fn bucket(&self, value: f64) -> usize {
        self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len())
    }

    pub(crate) fn record_many(&mut self, value: f64, times: u64) {
        self.record(self.bucket(value), value, times);
    }

    /// Counts observations at or below `bound`, of which only the sum is known.
    pub(crate) fn record_sum(&mut self, bound: f64, times: u64, sum: f64) {
        let bucket = self.bucket(bound);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += times;
        }
        self.sum += sum;
    }

    #[expect(clippy::cast_precision_loss, reason = "a sum in a histogram")]
    fn record(&mut self, bucket: usize, value: f64, times: u64) {
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += times;
        }
        self.sum += value * times as f64;
    }

    pub(crate) fn observe(&mut self, value: f64) {
        self.record(self.bucket(value), value, 1);
    }

    /// Total number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the observations.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Upper bounds, each with the number of observations at or below it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.bounds.iter().zip(&self.counts).scan(0, |below, (bound, count)| {
            *below += count;
            Some((*bound, *below))
        })
    }
}

/// Converts a time to nanoseconds, which last for centuries.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A ratio whose value at the end of every nanosecond is an observation.
#[derive(Clone, Debug)]
pub struct RatioGauge {
    numerator: f64,
    denominator: f64,
    ratio: f64,
    /// The histogram bucket of the current ratio.
    bucket: usize,
    /// Time of the last update, in nanoseconds.
    since: u64,
    histogram: Histogram,
}

impl RatioGauge {
    pub(crate) fn new(bounds: &'static [f64], now: Duration) -> Self {
        let histogram = Histogram::new(bounds);
        RatioGauge {
            numerator: 0.0,
            denominator: 1.0,
            ratio: 0.0,
            bucket: histogram.bucket(0.0),
            since: nanos(now),
            histogram,
        }
    }

    fn advance(&mut self, now: Duration) {
        let now = nanos(now);
        let passed = now.saturating_sub(self.since);
        if passed > 0 {
            self.since = now;
            self.histogram.record(self.bucket, self.ratio, passed);
        }
    }

    /// The time since the last change or reading, in nanoseconds.
    pub(crate) fn nanoseconds_until(&self, now: Duration) -> u64 {
        nanos(now).saturating_sub(self.since)
    }

    /// Adds the requests of `busy` to the numerator since the last change.
    pub(crate) fn advance_with(&mut self, now: Duration, busy: &BusyTime) {
        let passed = self.nanoseconds_until(now);
        self.since += passed;
        for (numerator, nanoseconds) in busy.spread_over(passed) {
            let ratio = (self.numerator + numerator) / self.denominator;
            self.histogram.record(self.histogram.bucket(ratio), ratio, nanoseconds);
        }
    }

    fn compute(&mut self) {
        self.ratio = self.numerator / self.denominator;
        self.bucket = self.histogram.bucket(self.ratio);
    }

    pub(crate) fn set(&mut self, now: Duration, numerator: f64) {
        self.advance(now);
        self.numerator = numerator;
        self.compute();
    }

    pub(crate) fn set_denominator(&mut self, now: Duration, denominator: f64) {
        self.advance(now);
        self.denominator = denominator.max(1.0);
        self.compute();
    }

    /// The observations until `now`.
    pub fn read(&mut self, now: Duration) -> Histogram {
        self.advance(now);
        self.histogram.clone()
    }
}

/// Total execution time of requests whose individual start and end times are unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BusyTime {
    /// The sum over all requests.
    pub(crate) nanoseconds: u64,
    /// The maximum number of requests at one time.
    pub(crate) most: u64,
}

impl BusyTime {
    /// The numbers of requests during `passed` nanoseconds, each with its duration: the two integers around the average. Exact if at most
    /// one request executed at any time.
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    fn spread_over(self, passed: u64) -> [(f64, u64); 2] {
        let fewer = self.nanoseconds.checked_div(passed).unwrap_or_default();
        let with_more = self.nanoseconds.checked_rem(passed).unwrap_or_default();
        [(fewer as f64, passed - with_more), (fewer as f64 + 1.0, with_more)]
    }
}

/// The average, deviation and maximum of a value over a period, weighted by time.
#[derive(Clone, Debug)]
pub(crate) struct Integrator {
    value: f64,
    /// Times are in nanoseconds.
    since: u64,
    elapsed: u64,
    integral: f64,
    integral_of_squares: f64,
    max: f64,
}

/// The result of an [`Integrator`] for one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Period {
    pub(crate) seconds: f64,
    pub(crate) average: f64,
    pub(crate) deviation: f64,
    pub(crate) max: f64,
}

impl Integrator {
    pub(crate) fn new(now: Duration) -> Self {
        Integrator {
            value: 0.0,
            since: nanos(now),
            elapsed: 0,
            integral: 0.0,
            integral_of_squares: 0.0,
            max: 0.0,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "periods are short")]
    fn advance(&mut self, now: Duration) {
        let now = nanos(now);
        let passed = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        self.elapsed += passed;
        let weight = self.value * passed as f64;
        self.integral += weight;
        self.integral_of_squares += self.value * weight;
    }

    /// Adds the requests of `busy` to the value since it was set.
    #[expect(clippy::cast_precision_loss, reason = "periods are short")]
    pub(crate) fn advance_with(&mut self, now: Duration, busy: &BusyTime) {
        let passed = nanos(now).saturating_sub(self.since);
        self.since += passed;
        self.elapsed += passed;
        for (more, nanoseconds) in busy.spread_over(passed) {
            let value = self.value + more;
            let weight = value * nanoseconds as f64;
            self.integral += weight;
            self.integral_of_squares += value * weight;
        }
        self.max = self.max.max(self.value + busy.most as f64);
    }

    pub(crate) fn set(&mut self, now: Duration, value: f64) {
        self.advance(now);
        self.value = value;
        self.max = self.max.max(value);
    }

    /// Ends a period and begins the next.
    #[expect(clippy::cast_precision_loss, reason = "periods are short")]
    pub(crate) fn reset(&mut self, now: Duration) -> Period {
        self.advance(now);
        let (mut average, mut deviation) = (0.0, 0.0);
        if self.elapsed > 0 {
            let elapsed = self.elapsed as f64;
            average = self.integral / elapsed;
            let variance = self.integral_of_squares / elapsed - average * average;
            deviation = variance.max(0.0).sqrt();
        }
        let seconds = Duration::from_nanos(self.elapsed).as_secs_f64();
        let period = Period { seconds, average, deviation, max: self.max };
        self.elapsed = 0;
        self.integral = 0.0;
        self.integral_of_squares = 0.0;
        self.max = self.value;
        period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn an_integrator_computes_time_weighted_averages() {
        let mut demand = Integrator::new(seconds(10));
        demand.set(seconds(11), 4.0);
        demand.set(seconds(13), 0.0);
        // 0 for 1 s, 4 for 2 s, 0 for 1 s: average 2, mean square 8, deviation 2.
        let period = demand.reset(seconds(14));
        assert_eq!(period, Period { seconds: 4.0, average: 2.0, deviation: 2.0, max: 4.0 });
        demand.set(seconds(14), 1.0);
        let period = demand.reset(seconds(15));
        assert_eq!(period, Period { seconds: 1.0, average: 1.0, deviation: 0.0, max: 1.0 });
        assert!((demand.reset(seconds(15)).average - 0.0).abs() < f64::EPSILON, "no time has passed");
    }

    #[test]
    fn a_ratio_gauge_is_weighted_by_nanoseconds() {
        let mut gauge = RatioGauge::new(&[0.5, 1.0], Duration::ZERO);
        gauge.set_denominator(Duration::ZERO, 4.0);
        gauge.set(Duration::from_nanos(10), 4.0);
        let seen = gauge.read(Duration::from_nanos(30));
        assert_eq!(seen.cumulative().collect::<Vec<_>>(), [(0.5, 10), (1.0, 30)]);
        assert!((seen.sum() - 20.0).abs() < 1e-9);
    }
}
