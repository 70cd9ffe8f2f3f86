//! A Prometheus registry that can list its families.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::Collector;
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

    /// Registers a counter. The errors of this and the following methods are those of [`MetricRegistry::register`], and invalid names.
    pub fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.registered(IntCounter::new(name, help)?)
    }

    pub fn counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        self.registered(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.registered(IntGauge::new(name, help)?)
    }

    pub fn gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        self.registered(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// Registers gauges whose values are not integers.
    pub fn float_gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        self.registered(GaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub fn histogram_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> prometheus::Result<HistogramVec> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.registered(HistogramVec::new(options, labels)?)
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

fn type_name(kind: MetricType) -> Option<&'static str> {
    match kind {
        MetricType::COUNTER => Some("counter"),
        MetricType::GAUGE => Some("gauge"),
        MetricType::HISTOGRAM => Some("histogram"),
        MetricType::SUMMARY => Some("summary"),
        MetricType::UNTYPED => None,
    }
}
