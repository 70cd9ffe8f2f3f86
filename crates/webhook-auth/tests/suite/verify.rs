//! Every rule of the verifier, with accepting and rejecting cases.

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

/// Verifies correctly signed claims for a request.
fn check(claims: &Value, request: &AdmissionRequest) -> Result<(), Reason> {
    let key = Key::ec("k");
    let verified = verifier(&[&key]).verify(&key.token(claims), at(NOW), request);
    verified.map(|_| ()).map_err(|rejection| rejection.reason())
}

/// Verifies changed claims for `apps` with a request about a deployment.
fn check_changed(change: impl FnOnce(&mut Value)) -> Result<(), Reason> {
    check(&changed("apps", change), &AdmissionRequest::about("apps", "v1", "deployments", "Deployment"))
}
