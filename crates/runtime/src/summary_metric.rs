//! A Prometheus summary: quantiles of durations over the last five hours.
//!
//! The crate `prometheus` has no summaries. Durations are counted in buckets that are 2 % apart, so quantiles have that precision and
//! memory is bounded. There is one set of buckets per hour; the oldest of five is cleared when a new hour begins.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto;

/// Lower bound of the first bucket, in seconds. Shorter durations count as this one.
const SHORTEST: f64 = 1e-7;
/// Ratio of the bounds of neighboring buckets.
const GROWTH: f64 = 1.02;
/// Enough for durations of more than an hour; longer ones are in the last bucket.
const BUCKETS: usize = 1240;
/// Number and length of the windows that quantiles cover.
const WINDOWS: u64 = 5;
const WINDOW: Duration = Duration::from_hours(1);
/// The quantiles that Kubernetes' summaries have.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// A metric family of summaries with `L` labels.
#[derive(Clone)]
pub struct SummaryMetric<const L: usize> {
    desc: Arc<Desc>,
    names: [&'static str; L],
    series: Arc<Mutex<BTreeMap<[String; L], Series>>>,
}

struct Series {
    count: u64,
    sum: f64,
    /// Counts by window and bucket. The window of an hour has the index `hour % WINDOWS`.
    windows: Vec<Vec<u32>>,
    hour: u64,
}

impl<const L: usize> SummaryMetric<L> {
    /// An empty family. `names`, the label names, must be sorted.
    pub fn new(name: &str, help: &str, names: [&'static str; L]) -> Result<Self, prometheus::Error> {
        let labels = names.iter().map(|name| (*name).to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, std::collections::HashMap::new())?;
        Ok(SummaryMetric { desc: Arc::new(desc), names, series: Arc::default() })
    }

    /// Counts a duration. `now` is the time since a fixed instant; it selects the window.
    pub fn observe(&self, labels: [&str; L], took: Duration, now: Duration) {
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let series = all.entry(labels.map(str::to_owned)).or_default();
        let seconds = took.as_secs_f64();
        series.count += 1;
        series.sum += seconds;
        series.turn(now.as_secs() / WINDOW.as_secs());
        let hour = series.hour;
        if let Some(count) = series.window(hour).and_then(|window| window.get_mut(bucket(seconds))) {
            *count = count.saturating_add(1);
        }
    }
}

impl Default for Series {
    fn default() -> Self {
        Series { count: 0, sum: 0.0, windows: (0..WINDOWS).map(|_| vec![0; BUCKETS]).collect(), hour: 0 }
    }
}

impl Series {
    fn window(&mut self, hour: u64) -> Option<&mut Vec<u32>> {
        self.windows.get_mut(usize::try_from(hour % WINDOWS).unwrap_or_default())
    }

    /// Clears the windows of the hours that have begun since the last observation.
    fn turn(&mut self, hour: u64) {
        for passed in (self.hour + 1..=hour).rev().take(usize::try_from(WINDOWS).unwrap_or_default()) {
            if let Some(window) = self.window(passed) {
                window.fill(0);
            }
        }
        self.hour = self.hour.max(hour);
    }

    /// The duration below which this share of the durations lies, precise to a bucket. NaN if there are none.
    fn quantile(&self, share: f64) -> f64 {
        let in_bucket = |at: usize| {
            self.windows.iter().filter_map(|window| window.get(at)).map(|n| u64::from(*n)).sum::<u64>()
        };
        let total: u64 = (0..BUCKETS).map(in_bucket).sum();
        if total == 0 {
            return f64::NAN;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among counts, rounded up"
        )]
        let rank = (share * total as f64).ceil() as u64;
        let mut seen = 0;
        for at in 0..BUCKETS {
            seen += in_bucket(at);
            if seen >= rank {
                return middle(at);
            }
        }
        f64::NAN
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a logarithm of what is at least one, and bounded below"
)]
fn bucket(seconds: f64) -> usize {
    let steps = (seconds.max(SHORTEST) / SHORTEST).ln() / GROWTH.ln();
    (steps as usize).min(BUCKETS - 1)
}

#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn middle(bucket: usize) -> f64 {
    SHORTEST * GROWTH.powf(bucket as f64 + 0.5)
}

impl<const L: usize> Collector for SummaryMetric<L> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics: Vec<proto::Metric> = all
            .iter()
            .map(|(labels, series)| {
                let mut summary = proto::Summary::default();
                summary.set_sample_count(series.count);
                summary.set_sample_sum(series.sum);
                let quantiles = QUANTILES.map(|share| {
                    let mut quantile = proto::Quantile::default();
                    quantile.set_quantile(share);
                    quantile.set_value(series.quantile(share));
                    quantile
                });
                summary.set_quantile(quantiles.to_vec());
                let pairs = self.names.iter().zip(labels).map(|(name, value)| {
                    let mut pair = proto::LabelPair::default();
                    pair.set_name((*name).to_owned());
                    pair.set_value(value.clone());
                    pair
                });
                let mut metric = proto::Metric::default();
                metric.set_label(pairs.collect());
                metric.set_summary(summary);
                metric
            })
            .collect();
        if metrics.is_empty() {
            return Vec::new();
        }
        let mut family = proto::MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(proto::MetricType::SUMMARY);
        family.set_metric(metrics);
        vec![family]
    }
}

#[cfg(test)]
mod tests;
