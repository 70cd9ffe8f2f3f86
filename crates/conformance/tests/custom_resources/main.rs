//! Custom resources: conversion webhooks, mutation, rules, managedFields, limits, and many CRDs at once.
#![expect(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod bounds;
mod changing;
mod conversion;
mod expressions;
mod large_conversions;
mod many;
mod mutation;
mod owners;

use std::time::Duration;

use conformance::{Client, accepts, eventually};
use serde_json::{Value, json};

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A CRD of a namespaced kind with these versions.
pub(crate) fn crd(group: &str, plural: &str, kind: &str, versions: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "listKind": format!("{kind}List"), "singular": kind.to_lowercase()},
            "versions": versions,
        },
    })
}

/// Creates a CRD and waits until it is served.
pub(crate) async fn define(client: &Client, crd: &Value) {
    accepts(client.post(CRDS, crd).await).unwrap();
    let name = crd["metadata"]["name"].as_str().unwrap();
    eventually(PATIENCE, async || {
        let stored = accepts(client.get(&format!("{CRDS}/{name}")).await)?;
        if is_established(&stored) {
            Ok(())
        } else {
            Err(conformance::Problem::new(format!("{name} is not established: {}", stored["status"])))
        }
    })
    .await
    .unwrap();
}

pub(crate) fn is_established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}
