//! A Prometheus registry that can list its families, and remove series.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

/// A `prometheus::Registry` omits families without series when it gathers. This one also stores the
/// descriptors, so that a test can compare all families with `docs/reference/metrics.md`.
#[derive(Clone, Debug, Default)]
pub struct MetricRegistry {
    inner: prometheus::Registry,
    families: Arc<Mutex<Vec<RegisteredFamily>>>,
    /// The families whose series can be removed.
    labeled: Arc<Mutex<Vec<Arc<dyn LabeledFamily>>>>,
}

/// Name, type and labels of a metric.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegisteredFamily {
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `summary`; `None` if the collector does not report families without
    /// series.
    pub kind: Option<&'static str>,
    /// Label names in sorted order.
    pub labels: Vec<String>,
}

impl MetricRegistry {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// # Errors
    ///
    /// A family of this name is already registered.
    pub fn register(&self, collector: Box<dyn Collector>) -> prometheus::Result<()> {
        let collected = collector.collect();
        let described: Vec<RegisteredFamily> = collector
            .desc()
            .into_iter()
            .map(|desc| {
                let mut labels = desc.variable_labels.clone();
                labels.sort();
                let family = collected.iter().find(|family| family.name() == desc.fq_name);
                let kind = family.and_then(|family| type_name(family.get_field_type()));
                RegisteredFamily { name: desc.fq_name.clone(), kind, labels }
            })
            .collect();
        self.inner.register(collector)?;
        self.families.lock().unwrap_or_else(PoisonError::into_inner).extend(described);
        Ok(())
    }

    /// Registers a metric and returns it.
    ///
    /// # Errors
    ///
    /// A family of this name is already registered.
    pub fn registered<M: Collector + Clone + 'static>(&self, metric: M) -> prometheus::Result<M> {
        self.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// Registers a family of series, which [`MetricRegistry::remove_series`] can remove.
    fn registered_vec<B: MetricVecBuilder + 'static>(
        &self,
        metrics: MetricVec<B>,
    ) -> prometheus::Result<MetricVec<B>> {
        self.register(Box::new(metrics.clone()))?;
        self.labeled.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(metrics.clone()));
        Ok(metrics)
    }

    /// Removes the series that `is_stale` selects by the name of their family and their labels. It is called only for families that have one
    /// of the labels `of`. A removed series begins at zero when it is used again.
    pub fn remove_series(&self, of: &[&str], mut is_stale: impl FnMut(&str, &SeriesLabels<'_>) -> bool) {
        let families = self.labeled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for family in families {
            if family.label_names().iter().any(|name| of.contains(&name.as_str())) {
                family.remove_series(&mut is_stale);
            }
        }
    }

    /// Registers a counter. The errors of this and the following methods are those of [`MetricRegistry::register`], and invalid names.
    pub fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.registered(IntCounter::new(name, help)?)
    }

    pub fn counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        self.registered_vec(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.registered(IntGauge::new(name, help)?)
    }

    pub fn gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        self.registered_vec(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// Registers gauges whose values are not integers.
    pub fn float_gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        self.registered_vec(GaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub fn histogram_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> prometheus::Result<HistogramVec> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.registered_vec(HistogramVec::new(options, labels)?)
    }

    /// Returns the families that have series.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.inner.gather()
    }

    /// All registered families, sorted by name, including those without series.
    #[must_use]
    pub fn families(&self) -> Vec<RegisteredFamily> {
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner).clone();
        families.sort();
        families
    }
}

/// The labels of a series and their values.
#[derive(Debug)]
pub struct SeriesLabels<'a>(HashMap<&'a str, &'a str>);

impl<'a> SeriesLabels<'a> {
    #[must_use]
    pub fn of(labels: &[(&'a str, &'a str)]) -> Self {
        SeriesLabels(labels.iter().copied().collect())
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }
}

/// A registered family with labels, whatever the type of its metrics.
trait LabeledFamily: Send + Sync {
    fn label_names(&self) -> Vec<String>;

    fn remove_series(&self, is_stale: &mut dyn FnMut(&str, &SeriesLabels<'_>) -> bool);
}

impl fmt::Debug for dyn LabeledFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.label_names()).finish()
    }
}

impl<B: MetricVecBuilder> LabeledFamily for MetricVec<B> {
    fn label_names(&self) -> Vec<String> {
        self.desc().into_iter().flat_map(|desc| desc.variable_labels.clone()).collect()
    }

    fn remove_series(&self, is_stale: &mut dyn FnMut(&str, &SeriesLabels<'_>) -> bool) {
        for family in self.collect() {
            for series in family.get_metric() {
                let labels = series.get_label().iter().map(|label| (label.name(), label.value()));
                let labels = SeriesLabels(labels.collect());
                if is_stale(family.name(), &labels) {
                    // It may have been removed by another caller.
                    let _ = self.remove(&labels.0);
                }
            }
        }
    }
}

fn type_name(kind: MetricType) -> Option<&'static str> {
    match kind {
        MetricType::COUNTER => Some("counter"),
        MetricType::GAUGE => Some("gauge"),
        MetricType::HISTOGRAM => Some("histogram"),
        MetricType::SUMMARY => Some("summary"),
        MetricType::UNTYPED => None,
    }
}
