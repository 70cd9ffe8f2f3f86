//! `apiserver_flowcontrol_*` metrics, read from the priority levels at scrape time.

use std::collections::HashMap;
use std::sync::Arc;

use flowcontrol::{FlowStats, Histogram, LevelLimits, LevelReading, RejectReason, RequestPhase, SeatSeconds};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use value::Str;

use super::FlowControl;

const PREFIX: &str = "apiserver_flowcontrol_";

/// Collector of all families; descriptions are in the order of [`FAMILIES`].
pub(crate) struct FlowControlMetrics {
    control: Arc<FlowControl>,
    descriptions: Vec<Desc>,
}

/// Origin and type of a family's samples.
enum SampleSource {
    /// One reading per priority level.
    Level(MetricType, fn(&LevelSample<'_>) -> Vec<Sample>),
    /// One reading per priority level and FlowSchema.
    Flow(MetricType, fn(&FlowStats) -> Vec<Sample>),
    /// One reading for the whole server.
    Server(MetricType, fn(&FlowControl) -> Vec<Sample>),
}

struct LevelSample<'a> {
    limits: &'a LevelLimits,
    level: &'a LevelReading,
}

/// Labels other than `priority_level` and `flow_schema`, and a value.
struct Sample(Vec<(&'static str, &'static str)>, SampleValue);

enum SampleValue {
    Plain(f64),
    Histogram(Histogram),
}

fn plain(value: f64) -> Vec<Sample> {
    vec![Sample(Vec::new(), SampleValue::Plain(value))]
}

#[expect(clippy::cast_precision_loss, reason = "counts and seats as floats of a metrics page")]
fn int(value: i64) -> Vec<Sample> {
    plain(value as f64)
}

#[expect(clippy::cast_precision_loss, reason = "counts and seats as floats of a metrics page")]
fn count(value: u64) -> Vec<Sample> {
    plain(value as f64)
}

/// A counter that appears with its first increment.
fn counter_if_used(value: u64) -> Vec<Sample> {
    if value == 0 { Vec::new() } else { count(value) }
}

/// A histogram that appears with its first observation.
fn histogram_if_used(histogram: &Histogram, labels: &[(&'static str, &'static str)]) -> Vec<Sample> {
    if histogram.count() == 0 {
        return Vec::new();
    }
    vec![Sample(labels.to_vec(), SampleValue::Histogram(histogram.clone()))]
}

fn bounds(level: &LevelReading, of: fn(&LevelReading) -> (SeatSeconds, SeatSeconds)) -> Vec<Sample> {
    if !level.dispatch.is_known {
        return Vec::new();
    }
    let (min, max) = of(level);
    let sample =
        |bound, value: SeatSeconds| Sample(vec![("bound", bound)], SampleValue::Plain(value.as_f64()));
    vec![sample("max", max), sample("min", min)]
}

fn dispatched(level: &LevelReading, value: SeatSeconds) -> Vec<Sample> {
    if level.dispatch.is_known { plain(value.as_f64()) } else { Vec::new() }
}

#[rustfmt::skip]
const FAMILIES: &[(&str, &str, &[&str], SampleSource)] = &[
    ("rejected_requests_total", "[BETA] Number of requests rejected by API Priority and Fairness subsystem", &["reason"],
        SampleSource::Flow(MetricType::COUNTER, |f| RejectReason::ALL.iter().flat_map(|reason| {
            counter_if_used(f.rejected_for(*reason)).into_iter().map(|sample| Sample(vec![("reason", reason.as_str())], sample.1))
        }).collect())),
    ("dispatched_requests_total", "[BETA] Number of requests executed by API Priority and Fairness subsystem", &[],
        SampleSource::Flow(MetricType::COUNTER, |f| counter_if_used(f.dispatched))),
    ("priority_level_seat_utilization", "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of utilization of seats for any stage of execution (but only initial stage for WATCHes)", &["phase"],
        SampleSource::Level(MetricType::HISTOGRAM, |r| histogram_if_used(&r.level.seats, &[("phase", "executing")]))),
    ("priority_level_request_utilization", "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of number of requests (as a fraction of the relevant limit) waiting or in any stage of execution (but only initial stage for WATCHes)", &["phase"],
        SampleSource::Level(MetricType::HISTOGRAM, |r| [("executing", &r.level.executing), ("waiting", &r.level.waiting)].into_iter()
            .flat_map(|(phase, histogram)| histogram_if_used(histogram, &[("phase", phase)])).collect())),
    ("read_vs_write_current_requests", "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of the number of requests (as a fraction of the relevant limit) waiting or in regular stage of execution", &["phase", "request_kind"],
        SampleSource::Server(MetricType::HISTOGRAM, read_vs_write)),
    ("current_r", "[ALPHA] R(time of last change)", &[], SampleSource::Level(MetricType::GAUGE, |r| plain(r.level.current_r.as_f64()))),
    ("dispatch_r", "[ALPHA] R(time of last dispatch)", &[], SampleSource::Level(MetricType::GAUGE, |r| dispatched(r.level, r.level.dispatch.r))),
    ("latest_s", "[ALPHA] S(most recently dispatched request)", &[], SampleSource::Level(MetricType::GAUGE, |r| dispatched(r.level, r.level.dispatch.latest))),
    ("next_s_bounds", "[ALPHA] min and max, over queues, of S(oldest waiting request in queue)", &["bound"],
        SampleSource::Level(MetricType::GAUGE, |r| bounds(r.level, |level| level.dispatch.starts))),
    ("next_discounted_s_bounds", "[ALPHA] min and max, over queues, of S(oldest waiting request in queue) - estimated work in progress", &["bound"],
        SampleSource::Level(MetricType::GAUGE, |r| bounds(r.level, |level| level.dispatch.discounted))),
    ("current_inqueue_requests", "[BETA] Number of requests currently pending in queues of the API Priority and Fairness subsystem", &[],
        SampleSource::Flow(MetricType::GAUGE, |f| f.in_queue.map(int).unwrap_or_default())),
    ("current_inqueue_seats", "[ALPHA] Number of seats currently pending in queues of the API Priority and Fairness subsystem", &[],
        SampleSource::Flow(MetricType::GAUGE, |f| f.in_queue.map(|_| count(f.in_queue_seats)).unwrap_or_default())),
    ("request_queue_length_after_enqueue", "[ALPHA] Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued", &[],
        SampleSource::Flow(MetricType::HISTOGRAM, |f| histogram_if_used(&f.queue_length, &[]))),
    ("current_executing_requests", "[BETA] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem", &[],
        SampleSource::Flow(MetricType::GAUGE, |f| if f.dispatched > 0 { int(f.executing) } else { Vec::new() })),
    ("current_executing_seats", "[BETA] Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem", &[],
        SampleSource::Flow(MetricType::GAUGE, |f| if f.dispatched > 0 { count(f.executing_seats) } else { Vec::new() })),
    ("request_wait_duration_seconds", "[BETA] Length of time a request spent waiting in its queue", &["execute"],
        SampleSource::Flow(MetricType::HISTOGRAM, |f| [("false", &f.waited_in_vain), ("true", &f.waited)].into_iter()
            .flat_map(|(execute, histogram)| histogram_if_used(histogram, &[("execute", execute)])).collect())),
    ("request_execution_seconds", "[ALPHA] Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem", &["type"],
        SampleSource::Flow(MetricType::HISTOGRAM, |f| [("regular", &f.executed), ("watch", &f.watches_began)].into_iter()
            .flat_map(|(kind, histogram)| histogram_if_used(histogram, &[("type", kind)])).collect())),
    ("watch_count_samples", "[ALPHA] count of watchers for mutating requests in API Priority and Fairness", &[],
        SampleSource::Flow(MetricType::HISTOGRAM, |f| histogram_if_used(&f.watch_counts, &[]))),
    ("work_estimated_seats", "[ALPHA] Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness", &[],
        SampleSource::Flow(MetricType::HISTOGRAM, |f| histogram_if_used(&f.estimated_seats, &[]))),
    ("request_dispatch_no_accommodation_total", "[ALPHA] Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats", &[],
        SampleSource::Flow(MetricType::COUNTER, |f| counter_if_used(f.no_accommodation))),
    ("nominal_limit_seats", "[BETA] Nominal number of execution seats configured for each priority level", &[], SampleSource::Level(MetricType::GAUGE, |r| int(r.limits.nominal))),
    ("lower_limit_seats", "[ALPHA] Configured lower bound on number of execution seats available to each priority level", &[], SampleSource::Level(MetricType::GAUGE, |r| int(r.limits.lower))),
    ("upper_limit_seats", "[ALPHA] Configured upper bound on number of execution seats available to each priority level", &[], SampleSource::Level(MetricType::GAUGE, |r| int(r.limits.upper))),
    ("demand_seats", "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of (the number of seats each priority level could use) / (nominal number of seats for that level)", &[],
        SampleSource::Level(MetricType::HISTOGRAM, |r| histogram_if_used(&r.level.demand, &[]))),
    ("demand_seats_high_watermark", "[ALPHA] High watermark, over last adjustment period, of demand_seats", &[], SampleSource::Level(MetricType::GAUGE, |r| int(r.limits.high_watermark))),
    ("demand_seats_average", "[ALPHA] Time-weighted average, over last adjustment period, of demand_seats", &[], SampleSource::Level(MetricType::GAUGE, |r| plain(r.limits.average))),
    ("demand_seats_stdev", "[ALPHA] Time-weighted standard deviation, over last adjustment period, of demand_seats", &[], SampleSource::Level(MetricType::GAUGE, |r| plain(r.limits.deviation))),
    ("demand_seats_smoothed", "[ALPHA] Smoothed seat demands", &[], SampleSource::Level(MetricType::GAUGE, |r| plain(r.limits.smoothed))),
    ("target_seats", "[ALPHA] Seat allocation targets", &[], SampleSource::Level(MetricType::GAUGE, |r| plain(r.limits.target))),
    ("seat_fair_frac", "[ALPHA] Fair fraction of server's concurrency to allocate to each priority level that can use it", &[],
        SampleSource::Server(MetricType::GAUGE, |control| plain(control.configured().controller.fair_fraction()))),
    ("current_limit_seats", "[ALPHA] current derived number of execution seats available to each priority level", &[], SampleSource::Level(MetricType::GAUGE, |r| int(r.limits.current))),
];

fn read_vs_write(control: &FlowControl) -> Vec<Sample> {
    let now = control.now();
    let mut traffic = control.traffic();
    let mut samples = Vec::new();
    for (name, phase) in [("executing", RequestPhase::Executing), ("waiting", RequestPhase::Waiting)] {
        for (kind, mutating) in [("mutating", true), ("readOnly", false)] {
            if let Some(histogram) = traffic.read(now, phase, mutating) {
                samples.extend(histogram_if_used(&histogram, &[("phase", name), ("request_kind", kind)]));
            }
        }
    }
    samples
}

impl FlowControlMetrics {
    pub(crate) fn new(control: &Arc<FlowControl>) -> Result<Self, prometheus::Error> {
        let description = |(name, help, labels, source): &(&str, &str, &[&str], SampleSource)| {
            let of_source: &[&str] = match source {
                SampleSource::Level(..) => &["priority_level"],
                SampleSource::Flow(..) => &["flow_schema", "priority_level"],
                SampleSource::Server(..) => &[],
            };
            let labels = of_source.iter().chain(*labels).map(|label| (*label).to_owned()).collect();
            Desc::new(format!("{PREFIX}{name}"), (*help).to_owned(), labels, HashMap::new())
        };
        let descriptions = FAMILIES.iter().map(description).collect::<Result<_, _>>()?;
        Ok(FlowControlMetrics { control: Arc::clone(control), descriptions })
    }
}

impl Collector for FlowControlMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let levels: Vec<_> = {
            let configured = self.control.configured();
            self.control.note_fast_paths(&configured);
            configured.controller.levels().map(|(level, limits)| (Arc::clone(level), *limits)).collect()
        };
        let now = self.control.now();
        let readings: Vec<(Str, LevelLimits, LevelReading)> =
            levels.into_iter().map(|(level, limits)| (level.name.clone(), limits, level.read(now))).collect();
        FAMILIES.iter().filter_map(|family| self.family(family, &readings)).collect()
    }
}

impl FlowControlMetrics {
    fn family(
        &self,
        (name, help, _, source): &(&str, &str, &[&str], SampleSource),
        readings: &[(Str, LevelLimits, LevelReading)],
    ) -> Option<MetricFamily> {
        let mut metrics = Vec::new();
        let kind = match source {
            SampleSource::Server(kind, read) => {
                metrics.extend(read(&self.control).into_iter().map(|sample| metric(*kind, sample, &[])));
                *kind
            }
            SampleSource::Level(kind, read) => {
                for (name, limits, level) in readings {
                    let labels = [("priority_level", name.as_str())];
                    let samples = read(&LevelSample { limits, level });
                    metrics.extend(samples.into_iter().map(|sample| metric(*kind, sample, &labels)));
                }
                *kind
            }
            SampleSource::Flow(kind, read) => {
                for (name, _, level) in readings {
                    for flow in &level.flows {
                        let labels =
                            [("flow_schema", flow.schema.as_str()), ("priority_level", name.as_str())];
                        metrics.extend(read(flow).into_iter().map(|sample| metric(*kind, sample, &labels)));
                    }
                }
                *kind
            }
        };
        if metrics.is_empty() {
            return None;
        }
        let mut family = MetricFamily::default();
        family.set_name(format!("{PREFIX}{name}"));
        family.set_help((*help).to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        Some(family)
    }
}

fn metric(kind: MetricType, sample: Sample, labels: &[(&str, &str)]) -> Metric {
    let Sample(more, number) = sample;
    let mut pairs: Vec<(&str, &str)> = labels.iter().copied().chain(more).collect();
    pairs.sort_unstable();
    let pairs = pairs.into_iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    });
    let mut metric = Metric::from_label(pairs.collect());
    match number {
        SampleValue::Plain(value) if kind == MetricType::COUNTER => {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        }
        SampleValue::Plain(value) => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        SampleValue::Histogram(histogram) => {
            let mut out = prometheus::proto::Histogram::default();
            out.set_sample_count(histogram.count());
            out.set_sample_sum(histogram.sum());
            let bucket = |(bound, count)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(bound);
                bucket.set_cumulative_count(count);
                bucket
            };
            out.set_bucket(histogram.cumulative().map(bucket).collect());
            metric.set_histogram(out);
        }
    }
    metric
}
