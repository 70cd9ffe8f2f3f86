//! The controllers (reconcile loops) that the server runs in its own process, so that it is usable without a controller manager.
//!
//! Each controller is one file: it maps changes to keys and reconciles one key at a time. Decisions are functions of the observed
//! state, without I/O; this crate opens no socket and no file. Reads and writes go through [`Api`], which the server implements:
//! reads come from memory, writes go through the request pipeline under the identity that Kubernetes gives each controller.
//!
//! [`start`] spawns all of them.

mod api;
mod drive;
mod queue;

mod aggregation;
mod claims;
mod event_ttl;
mod events;
mod garbage;
mod namespaces;
mod pods;
mod quotas;
mod root_ca;
mod scheduler;
mod service_accounts;

#[cfg(test)]
mod fake;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use crate::api::{
    AggregatedKinds, Api, ChangeStream, ClusterReader, FailedDiscovery, ObjectChange, ObjectEvent, PatchBody,
    ResourceKind, StoredBy, TypedObjectRef, WatchSource,
};
pub use aggregation::Aggregate;
pub use claims::{ClaimLabels, ClaimObserver, ObserveClaims};
pub use quotas::{Recount, RecountFuture};

#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// PEM bundle of the CA that signed the server's certificate, published as `kube-root-ca.crt`; `None` disables that controller.
    pub root_ca: Option<String>,
    /// Computes the rules of an aggregated cluster role.
    pub aggregate: Aggregate,
    /// Computes the usage of a resource quota; `None` disables the quota controller.
    pub recount: Option<Recount>,
    /// Enables admin access to devices (DRA), as the feature gate of that name does.
    pub admin_access: bool,
    /// Receives the counts of resource claims for metrics.
    pub observe_claims: Option<ObserveClaims>,
    /// Runs the built-in scheduler.
    pub scheduler: bool,
    /// How long a pod's node must be missing before the pod is deleted as orphaned.
    pub node_quarantine: Duration,
    /// Retention of events after their last write; zero disables expiry.
    pub event_ttl: Duration,
}

impl ControllerOptions {
    /// The defaults of Kubernetes, without quota controller, claim metrics and scheduler.
    pub fn new(root_ca: Option<String>, aggregate: Aggregate) -> Self {
        ControllerOptions {
            root_ca,
            aggregate,
            recount: None,
            admin_access: true,
            observe_claims: None,
            scheduler: false,
            node_quarantine: Duration::from_secs(40),
            event_ttl: Duration::from_hours(1),
        }
    }
}

/// Name that requests API access for the scheduler; its user is `system:kube-scheduler`.
pub const SCHEDULER: &str = scheduler::NAME;

/// Starts all controllers. `api` builds the access of one controller from the name of its service account in `kube-system`.
/// They stop when `stop` becomes true; the handle completes once the reconciliations in progress have finished.
pub fn start<A: Api>(
    api: impl Fn(&'static str) -> A,
    options: ControllerOptions,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let ControllerOptions {
        root_ca,
        aggregate,
        recount,
        admin_access,
        observe_claims,
        scheduler,
        node_quarantine,
        event_ttl,
    } = options;
    let api = |name| Arc::new(api(name));
    let mut all = JoinSet::new();
    if let Some(pem) = root_ca {
        all.spawn(root_ca::run(api(root_ca::NAME), pem, stop.clone()));
    }
    if let Some(recount) = recount {
        all.spawn(quotas::run(api(quotas::NAME), recount, stop.clone()));
    }
    if scheduler {
        all.spawn(scheduler::run(api(scheduler::NAME), admin_access, stop.clone()));
    }
    if !event_ttl.is_zero() {
        all.spawn(event_ttl::run(api(event_ttl::NAME), event_ttl, stop.clone()));
    }
    all.spawn(claims::run(api(claims::NAME), admin_access, observe_claims, stop.clone()));
    all.spawn(service_accounts::run(api(service_accounts::NAME), stop.clone()));
    all.spawn(aggregation::run(api(aggregation::NAME), aggregate, stop.clone()));
    all.spawn(namespaces::run(api(namespaces::NAME), stop.clone()));
    all.spawn(garbage::run(api(garbage::NAME), stop.clone()));
    all.spawn(pods::run(api(pods::NAME), node_quarantine, stop));
    tokio::spawn(async move { while all.join_next().await.is_some() {} })
}
