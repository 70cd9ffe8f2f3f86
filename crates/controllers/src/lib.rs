//! The controllers (reconcile loops) that the server runs in its own process, so that it is usable without a controller manager.
//!
//! Each controller is one file: it maps changes to keys and reconciles one key at a time. Decisions are functions of the observed
//! state, without I/O; this crate opens no socket and no file. Reads and writes go through [`Api`], which the server implements:
//! reads come from memory, writes go through the request pipeline under the identity that Kubernetes gives each controller.
//!
//! [`start`] spawns the controllers of kube-controller-manager, [`start_scheduler`] the scheduler, and [`start_event_ttl`] the expiry of
//! events. Where several servers share a store, [`lead`] runs the first two in one of them.
//!
//! ```
//! use std::time::Duration;
//!
//! use controllers::{Api, ControllerOptions};
//! use tokio::sync::watch;
//!
//! /// `api` builds the access of a controller to the server from the name of its service account.
//! async fn run<A: Api>(api: impl Fn(&'static str) -> A, options: ControllerOptions, stop: watch::Receiver<bool>) {
//!     let expiry = controllers::start_event_ttl(&api, Duration::from_hours(1), stop.clone());
//!     controllers::start(&api, options, stop).await;
//!     let _ = expiry.await;
//! }
//! ```

mod api;
mod drive;
mod election;
mod leadership;
mod queue;

mod aggregation;
mod bootstrap_signer;
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
mod service_cidrs;
mod token_cleaner;

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
pub use leadership::{Candidate, ControllerGroup, LeaseApi, StartGroup, lead};
pub use quotas::{NAME as QUOTA_CONTROLLER, Recount, RecountFuture, RecountOutcome};

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
    /// Signs `cluster-info` with bootstrap tokens, and deletes expired ones.
    pub bootstrap_tokens: bool,
    /// How long a pod's node must be missing before the pod is deleted as orphaned.
    pub node_quarantine: Duration,
}

impl ControllerOptions {
    /// The defaults of Kubernetes, without quota controller and claim metrics.
    pub fn new(root_ca: Option<String>, aggregate: Aggregate) -> Self {
        ControllerOptions {
            root_ca,
            aggregate,
            recount: None,
            admin_access: true,
            observe_claims: None,
            bootstrap_tokens: false,
            node_quarantine: Duration::from_secs(40),
        }
    }
}

/// Name that requests API access for the scheduler; its user is `system:kube-scheduler`.
pub const SCHEDULER: &str = scheduler::NAME;

/// Starts the controllers of kube-controller-manager. `api` builds the access of one controller from the name of its service account in
/// `kube-system`. They stop when `stop` becomes true; the future completes once the reconciliations in progress have finished. Dropping
/// it aborts them.
pub fn start<A: Api>(
    api: impl Fn(&'static str) -> A,
    options: ControllerOptions,
    stop: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send {
    let ControllerOptions {
        root_ca,
        aggregate,
        recount,
        admin_access,
        observe_claims,
        bootstrap_tokens,
        node_quarantine,
    } = options;
    let api = |name| Arc::new(api(name));
    let mut all = JoinSet::new();
    if let Some(pem) = root_ca {
        all.spawn(root_ca::run(api(root_ca::NAME), pem, stop.clone()));
    }
    if let Some(recount) = recount {
        all.spawn(quotas::run(api(quotas::NAME), recount, stop.clone()));
    }
    if bootstrap_tokens {
        all.spawn(bootstrap_signer::run(api(bootstrap_signer::NAME), stop.clone()));
        all.spawn(token_cleaner::run(api(token_cleaner::NAME), stop.clone()));
    }
    all.spawn(claims::run(api(claims::NAME), admin_access, observe_claims, stop.clone()));
    all.spawn(service_accounts::run(api(service_accounts::NAME), stop.clone()));
    all.spawn(service_cidrs::run(api(service_cidrs::NAME), stop.clone()));
    all.spawn(aggregation::run(api(aggregation::NAME), aggregate, stop.clone()));
    all.spawn(namespaces::run(api(namespaces::NAME), stop.clone()));
    all.spawn(garbage::run(api(garbage::NAME), stop.clone()));
    all.spawn(pods::run(api(pods::NAME), node_quarantine, stop));
    async move { while all.join_next().await.is_some() {} }
}

/// Starts the scheduler. `admin_access` enables admin access to devices (DRA).
pub fn start_scheduler<A: Api>(
    api: impl Fn(&'static str) -> A,
    admin_access: bool,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::spawn(scheduler::run(Arc::new(api(scheduler::NAME)), admin_access, stop))
}

/// Starts the controller that deletes events after `ttl`.
pub fn start_event_ttl<A: Api>(
    api: impl Fn(&'static str) -> A,
    ttl: Duration,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::spawn(event_ttl::run(Arc::new(api(event_ttl::NAME)), ttl, stop))
}
