//! The core: every rule, with what it accepts and what it rejects.

mod binding;
mod expected;
mod groups;
mod keys;
mod times;
mod token;

use serde_json::Value;
use webhook_auth::{AdmissionRequest, Reason};

use crate::issuer::{Key, NOW, at, changed, verifier};

fn pods() -> AdmissionRequest {
    AdmissionRequest::about("", "v1", "pods", "Pod")
}

fn turtles() -> AdmissionRequest {
    AdmissionRequest::about("ninja.turtles.ai", "v1", "ninjaturtles", "NinjaTurtle")
}

/// What becomes of claims that a good key signed, for a request about a group.
fn judge(claims: &Value, request: &AdmissionRequest) -> Result<(), Reason> {
    let key = Key::ec("k");
    let verified = verifier(&[&key]).verify(&key.token(claims), at(NOW), request);
    verified.map(|_| ()).map_err(|rejection| rejection.reason())
}

/// What becomes of them for a request they are for.
fn judged(change: impl FnOnce(&mut Value)) -> Result<(), Reason> {
    judge(&changed("apps", change), &AdmissionRequest::about("apps", "v1", "deployments", "Deployment"))
}
