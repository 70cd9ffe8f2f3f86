//! Retries of calls to a webhook.

use std::time::{Duration, Instant};

use super::{ReviewTransport, SendError, WebhookFailure, WebhookResponse};

/// The maximum number of calls for a review.
const MAX_CALLS: u32 = 5;

/// Sends a review until `decode` returns success or a failure that a retry does not change, at most [`MAX_CALLS`] times.
///
/// `first_delay` is the delay before the first retry; each later delay is 1.5 times the previous one. `decode` gets each response
/// and the time at which its call started.
pub async fn send_with_retries<T>(
    sender: &dyn ReviewTransport,
    review: &[u8],
    first_delay: Duration,
    decode: impl Fn(Result<WebhookResponse, SendError>, Instant) -> Result<T, WebhookFailure>,
) -> Result<T, WebhookFailure> {
    let mut delay = first_delay;
    let mut calls = 1;
    loop {
        let started = sender.now();
        match decode(sender.send(review).await, started) {
            Err(failure) if failure.is_transient && calls < MAX_CALLS => {
                sender.pause(delay).await;
                delay = delay * 3 / 2;
                calls += 1;
            }
            outcome => return outcome,
        }
    }
}
