//! Calls a webhook as Kubernetes' client does: follows redirects, and calls again after a response with `Retry-After`.

use std::time::{Duration, Instant};

use api::field::quote;
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::uri::PathAndQuery;

use super::{Failure, FailureKind, OutboundRequest, OutboundResponse, OutboundTarget};

/// Most retries of a call after responses with `Retry-After`.
const MAX_RETRIES: usize = 10;
/// Most requests per attempt, including those that follow redirects.
const MAX_REQUESTS: usize = 10;

/// The reaction to a `Retry-After` that does not fit into the time limit of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongRetry {
    /// Wait until the limit; then the call fails.
    WaitUntilLimit,
    /// Return the response with `Retry-After` at once.
    ReturnResponse,
}

/// Sends a request, all attempts and redirects within its time limit.
pub async fn call_webhook(
    target: &OutboundTarget,
    request: OutboundRequest,
    long_retry: LongRetry,
) -> Result<OutboundResponse, Failure> {
    let url = target.url();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let origin = format!("{}://{authority}", url.scheme_str().unwrap_or("https"));
    let (begun, limit) = (Instant::now(), request.timeout);
    let left = || limit.saturating_sub(begun.elapsed());
    let mut retries = 0;
    loop {
        let timeout = left();
        if timeout.is_zero() && long_retry == LongRetry::WaitUntilLimit {
            let message = "context deadline exceeded".to_owned();
            return Err(Failure { kind: FailureKind::Timeout, message });
        }
        let answer = follow(target, OutboundRequest { timeout, ..request.clone() }, &origin).await?;
        let wait = match (retry_after(&answer), long_retry) {
            (Some(wait), LongRetry::WaitUntilLimit) => wait.min(left()),
            (Some(wait), LongRetry::ReturnResponse) if wait < left() => wait,
            _ => return Ok(answer),
        };
        if retries == MAX_RETRIES {
            return Ok(answer);
        }
        retries += 1;
        // The next answer may need its room.
        drop(answer);
        tokio::time::sleep(wait).await;
    }
}

/// Sends a request and follows redirects. As in Go's client, only 307 and 308 send the review again; other redirects become a GET
/// without a body.
async fn follow(
    target: &OutboundTarget,
    mut request: OutboundRequest,
    origin: &str,
) -> Result<OutboundResponse, Failure> {
    let begun = Instant::now();
    let limit = request.timeout;
    for _ in 0..MAX_REQUESTS {
        request.timeout = limit.saturating_sub(begun.elapsed());
        let answer = target.send(request.clone()).await?;
        let Some(next) = sent_on(&answer, origin, request.path.as_ref()) else { return Ok(answer) };
        request.path = Some(next);
        if !matches!(answer.status, 307 | 308) {
            request.method = Method::GET;
            request.body = Bytes::new();
            request.headers.remove(CONTENT_TYPE);
        }
    }
    let last = request.path.as_ref().map(PathAndQuery::as_str).unwrap_or_default();
    let url = quote(&format!("{origin}{last}"));
    let message = format!("Post {url}: stopped after {MAX_REQUESTS} redirects");
    Err(Failure { kind: FailureKind::Broken, message })
}

/// The path that a redirect leads to, if it is on the same server. kube-apiserver follows redirects to any server, and so sends to one
/// server what was meant for another; here such a redirect is the final answer, which is not a valid review.
fn sent_on(answer: &OutboundResponse, origin: &str, asked: Option<&PathAndQuery>) -> Option<PathAndQuery> {
    if !matches!(answer.status, 301..=303 | 307 | 308) {
        return None;
    }
    let location = answer.headers.get(LOCATION)?.to_str().ok()?;
    if location.starts_with('/') && !location.starts_with("//") {
        return location.parse().ok();
    }
    if let Some(rest) = location.strip_prefix(origin) {
        return match rest.as_bytes().first() {
            None => Some(PathAndQuery::from_static("/")),
            Some(b'/') => rest.parse().ok(),
            Some(_) => None,
        };
    }
    if location.is_empty() || location.contains(':') || location.starts_with("//") {
        return None;
    }
    let (directory, _) = asked?.path().rsplit_once('/')?;
    format!("{directory}/{location}").parse().ok()
}

/// The wait that an answer asks for by `Retry-After`. `None` if its status is neither 429 nor 5xx.
fn retry_after(answer: &OutboundResponse) -> Option<Duration> {
    if answer.status != 429 && answer.status < 500 {
        return None;
    }
    let seconds = answer.headers.get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse::<u64>().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
