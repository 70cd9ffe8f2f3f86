//! Metrics of authentication: attempts, tokens, and reloads of credential files.

use std::time::Duration;

use authn::{TokenEvent, TokenObserver, TokenUse};
use prometheus::{HistogramVec, IntCounter, IntCounterVec};

use runtime::MetricRegistry;
use value::Str;

/// Metrics about authentication and service account tokens.
pub struct AuthenticationMetrics {
    users: IntCounterVec,
    attempts: IntCounterVec,
    durations: HistogramVec,
    cache_requests: IntCounterVec,
    cache_fetches: IntCounterVec,
    legacy: IntCounter,
    stale: IntCounter,
    valid: IntCounter,
    manual: IntCounter,
    auto: IntCounter,
    reloads: IntCounterVec,
}

/// Result of an authentication attempt.
#[derive(Clone, Copy, Debug)]
pub enum Outcomes<'a> {
    /// The request was authenticated as this user.
    Success(&'a Str),
    /// The request had no credentials.
    Failure,
    /// The credentials were rejected.
    Error,
}

impl AuthenticationMetrics {
    pub(super) fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 15)?;
        let durations = registry.histogram_vec(
            "authentication_duration_seconds",
            "[ALPHA] Authentication duration in seconds broken out by result.",
            &["result"],
            &buckets,
        )?;
        // Look-ups do not wait for each other here, so both gauges are always 0.
        let active =
            registry.gauge_vec("authentication_token_cache_active_fetch_count", "[ALPHA]", &["status"])?;
        for status in ["blocked", "in_flight"] {
            active.with_label_values(&[status]).set(0);
        }
        Ok(AuthenticationMetrics {
            users: registry.counter_vec(
                "authenticated_user_requests",
                "[ALPHA] Counter of authenticated requests broken out by username.",
                &["username"],
            )?,
            attempts: registry.counter_vec(
                "authentication_attempts",
                "[ALPHA] Counter of authenticated attempts.",
                &["result"],
            )?,
            durations,
            cache_requests: registry.counter_vec(
                "authentication_token_cache_request_total",
                "[ALPHA]",
                &["status"],
            )?,
            cache_fetches: registry.counter_vec(
                "authentication_token_cache_fetch_total",
                "[ALPHA]",
                &["status"],
            )?,
            legacy: registry.counter(
                "serviceaccount_legacy_tokens_total",
                "[BETA] Cumulative legacy service account tokens used",
            )?,
            stale: registry.counter(
                "serviceaccount_stale_tokens_total",
                "[BETA] Cumulative stale projected service account tokens used",
            )?,
            valid: registry.counter(
                "serviceaccount_valid_tokens_total",
                "[BETA] Cumulative valid projected service account tokens used",
            )?,
            manual: registry.counter(
                "serviceaccount_legacy_manual_token_uses_total",
                "[ALPHA] Cumulative manually created legacy tokens used",
            )?,
            auto: registry.counter(
                "serviceaccount_legacy_auto_token_uses_total",
                "[ALPHA] Cumulative auto-generated legacy tokens used",
            )?,
            reloads: registry.counter_vec(
                "portcullis_authentication_file_reloads_total",
                "Counter of files read again because they changed, by the flag that names them and by success.",
                &["flag", "status"],
            )?,
        })
    }

    /// Counts an attempt and its duration.
    pub(crate) fn attempted(&self, outcome: Outcomes<'_>, took: Duration) {
        let result = match outcome {
            Outcomes::Success(user) => {
                self.users.with_label_values(&[compressed(user)]).inc();
                "success"
            }
            Outcomes::Failure => "failure",
            Outcomes::Error => "error",
        };
        self.attempts.with_label_values(&[result]).inc();
        self.durations.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// Counts a reload of the file that `flag` names.
    pub(crate) fn reloaded(&self, flag: &str, ok: bool) {
        self.reloads.with_label_values(&[flag, if ok { "success" } else { "failure" }]).inc();
    }
}

/// Maps user names to few label values, as kube-apiserver does.
fn compressed(user: &str) -> &str {
    match user {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => user,
        user if user.contains('@') => "email_id",
        _ => "other",
    }
}

impl TokenObserver for AuthenticationMetrics {
    fn token(&self, event: TokenEvent) {
        match event {
            TokenEvent::Cached(hit) => {
                self.cache_requests.with_label_values(&[if hit { "hit" } else { "miss" }]).inc();
            }
            TokenEvent::Verified(ok) => {
                self.cache_fetches.with_label_values(&[if ok { "ok" } else { "error" }]).inc();
            }
            TokenEvent::Used(TokenUse::Valid) => self.valid.inc(),
            TokenEvent::Used(TokenUse::Stale) => self.stale.inc(),
            TokenEvent::Used(TokenUse::Legacy) => self.legacy.inc(),
            TokenEvent::Used(TokenUse::LegacyManual) => self.manual.inc(),
            TokenEvent::Used(TokenUse::LegacyAuto) => self.auto.inc(),
        }
    }
}

impl std::fmt::Debug for AuthenticationMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthenticationMetrics")
    }
}
