//! Metrics of custom resources (CEL rules, conversion webhooks) and of outdated webhook certificates.

use std::time::{Duration, Instant};

use crd::Stopwatch;
use outbound::Failure;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec};
use runtime::MetricRegistry;

/// Result of a call to a conversion webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionResult {
    /// All objects were converted.
    Converted,
    /// The call failed, or the response is not an object.
    NotAsked,
    /// The response does not match the request, or reports a failure.
    Malformed,
    /// The number of returned objects differs.
    Partial,
    /// A returned object has the wrong version, kind, identity or metadata.
    InvalidObject,
}

impl ConversionResult {
    fn labels(self) -> [&'static str; 2] {
        match self {
            ConversionResult::Converted => ["", "success"],
            ConversionResult::NotAsked => ["conversion_webhook_call_failure", "failure"],
            ConversionResult::Malformed => ["conversion_webhook_malformed_response_failure", "failure"],
            ConversionResult::Partial => ["conversion_webhook_partial_response_failure", "failure"],
            ConversionResult::InvalidObject => {
                ["conversion_webhook_invalid_converted_object_failure", "failure"]
            }
        }
    }
}

/// Metrics of custom resources and webhook certificates.
#[derive(Debug)]
pub struct CustomMetrics {
    started: Instant,
    compilations: Histogram,
    evaluations: Histogram,
    conversions: HistogramVec,
    reviews: IntCounterVec,
    review_durations: HistogramVec,
    missing_san: IntCounter,
    insecure_sha1: IntCounter,
}

impl CustomMetrics {
    pub(super) fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let histogram = |name: &str, help: &str| {
            registry.registered(Histogram::with_opts(HistogramOpts::new(name, help))?)
        };
        Ok(CustomMetrics {
            started: Instant::now(),
            compilations: histogram(
                "apiserver_cel_compilation_duration_seconds",
                "[BETA] CEL compilation time in seconds.",
            )?,
            evaluations: histogram(
                "apiserver_cel_evaluation_duration_seconds",
                "[BETA] CEL evaluation time in seconds.",
            )?,
            conversions: registry.histogram_vec(
                "apiserver_crd_conversion_webhook_duration_seconds",
                "[ALPHA] CRD webhook conversion duration in seconds",
                &["crd_name", "from_version", "succeeded", "to_version"],
                &prometheus::exponential_buckets(0.001, 2.0, 15)?,
            )?,
            reviews: registry.counter_vec(
                "apiserver_conversion_webhook_request_total",
                "[ALPHA] Counter for conversion webhook requests with success/failure and failure error type",
                &["failure_type", "result"],
            )?,
            review_durations: registry.histogram_vec(
                "apiserver_conversion_webhook_duration_seconds",
                "[ALPHA] Conversion webhook request latency",
                &["failure_type", "result"],
                &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0],
            )?,
            missing_san: registry.counter(
                "apiserver_webhooks_x509_missing_san_total",
                "[BETA] Counts the number of requests to servers missing SAN extension in their serving certificate OR the number of connection failures due to the lack of x509 certificate SAN extension missing (either/or, based on the runtime environment)",
            )?,
            insecure_sha1: registry.counter(
                "apiserver_webhooks_x509_insecure_sha1_total",
                "[BETA] Counts the number of requests to servers with insecure SHA1 signatures in their serving certificate OR the number of connection failures due to the insecure SHA1 signatures (either/or, based on the runtime environment)",
            )?,
        })
    }

    /// Records a conversion between versions of a CRD; `review` is set if its webhook was called.
    pub fn converted(
        &self,
        crd: &str,
        from: &str,
        to: &str,
        review: Option<ConversionResult>,
        took: Duration,
    ) {
        let seconds = took.as_secs_f64();
        if let Some(review) = review {
            self.reviews.with_label_values(&review.labels()).inc();
            self.review_durations.with_label_values(&review.labels()).observe(seconds);
        }
        let succeeded = super::bool_label(review == Some(ConversionResult::Converted));
        self.conversions.with_label_values(&[crd, from, succeeded, to]).observe(seconds);
    }

    /// Counts a failed webhook call if the cause is a certificate without SAN or with a SHA-1 signature.
    pub fn webhook_failed(&self, failure: &Failure) {
        if failure.lacks_alternative_names() {
            self.missing_san.inc();
        }
        if failure.is_signed_with_sha1() {
            self.insecure_sha1.inc();
        }
    }
}

impl Stopwatch for CustomMetrics {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn compiled(&self, took: Duration) {
        self.compilations.observe(took.as_secs_f64());
    }

    fn evaluated(&self, took: Duration) {
        self.evaluations.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
