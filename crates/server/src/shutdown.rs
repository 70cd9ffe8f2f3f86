//! How a server that shuts down treats its clients: which requests it refuses, and when it ends watches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::body::Body;

/// Paths that a server with `--shutdown-send-retry-after` serves to the end.
const SERVED_TO_THE_END: [&str; 4] = ["/readyz", "/livez", "/healthz", "/metrics"];

/// True if a server that shuts down refuses a request, with `--shutdown-send-retry-after`. The requests of API servers are exempt.
pub(crate) fn is_refused(path: &str, headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    !agent.starts_with("kube-apiserver/") && !SERVED_TO_THE_END.iter().any(|prefix| path.starts_with(prefix))
}

/// Asks the client to try again on a new connection, which may reach another server.
pub(crate) fn refusal() -> Response<Body> {
    let text = "The apiserver is shutting down, please try again later.\n";
    let mut response = Response::new(Body::shared(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    for (name, value) in [
        (RETRY_AFTER, "5"),
        (CONNECTION, "close"),
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// At least this many watches end per second, however long the grace period is.
const MIN_ENDS_PER_SECOND: f64 = 200.0;

/// Counts the watches, so that a server that shuts down can spread their ends.
#[derive(Debug, Default)]
pub(crate) struct ActiveWatches(AtomicU64);

impl ActiveWatches {
    /// Counts a watch until the result is dropped.
    pub(crate) fn begin(&self) -> ActiveWatch<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        ActiveWatch(self)
    }

    /// The time over which the ends of the current watches are spread, at most `grace`.
    pub(crate) fn spread(&self, grace: Duration) -> Duration {
        let watches = u32::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        grace.min(Duration::from_secs_f64(f64::from(watches) / MIN_ENDS_PER_SECOND))
    }
}

#[derive(Debug)]
pub(crate) struct ActiveWatch<'a>(&'a ActiveWatches);

impl Drop for ActiveWatch<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
