//! Assertions about the answers of a server.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::HttpResponse;
use crate::{Problem, Result};

/// The object of an answer; an error unless the status code is 2xx.
pub fn accepts(answer: Result<HttpResponse>) -> Result<Value> {
    let answer = answer?;
    if (200..300).contains(&answer.code) {
        return Ok(answer.json());
    }
    Err(Problem::new(format!("expected success, got {}: {}", answer.code, answer.text())))
}

/// The `Status` of an error answer; an error unless it has this code and, if `reason` is not empty, this reason.
pub fn rejects(answer: Result<HttpResponse>, code: u16, reason: &str) -> Result<Value> {
    let answer = answer?;
    let status = answer.json();
    let got_reason = status.get("reason").and_then(Value::as_str).unwrap_or_default();
    if answer.code == code && (reason.is_empty() || got_reason == reason) {
        return Ok(status);
    }
    Err(Problem::new(format!("expected {code} {reason}, got {}: {}", answer.code, answer.text())))
}

/// Repeats `check` until it succeeds. Returns its last error when `time` is over.
pub async fn eventually<T>(time: Duration, mut check: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + time;
    loop {
        match check().await {
            Ok(made) => return Ok(made),
            Err(problem) if Instant::now() > deadline => return Err(problem),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
