//! Reconcile loops that make a lone server usable.
//!
//! Each controller is one file: which changes concern it, and what to do about them. The doing is decided by functions that
//! are given what there is and say what to write; nothing here opens a socket or a file. Reads and writes go through
//! [`Api`], which the server implements: reads from memory, writes through the request pipeline, under the identity that
//! Kubernetes gives each controller.
//!
//! [`start`] is the whole list of them.

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

pub use crate::api::{Api, Change, Elsewhere, Event, Home, Kind, Patch, Place, Unknown, View, Watch, What};
pub use aggregation::Aggregate;
pub use claims::{ClaimLabels, ClaimObserver, ObserveClaims};
pub use quotas::{Counting, Recount};

/// What the controllers are told.
#[derive(Clone, Debug)]
pub struct Options {
    /// PEM of the authority that signed the server's certificate; without it none is published.
    pub root_ca: Option<String>,
    /// How the rules of an aggregated cluster role are made.
    pub aggregate: Aggregate,
    /// How what is used of a quota is counted; without it nobody counts.
    pub recount: Option<Recount>,
    /// Whether admin access to devices is there at all.
    pub admin_access: bool,
    /// Who is told of the claims for devices; without it nobody is.
    pub observe_claims: Option<ObserveClaims>,
    /// Whether pods are given nodes.
    pub scheduler: bool,
    /// How long a node may be missing before its pods are taken for lost.
    pub node_quarantine: Duration,
    /// How long events are kept after their last write; zero is for ever.
    pub event_ttl: Duration,
}

impl Options {
    /// As Kubernetes has it.
    pub fn new(root_ca: Option<String>, aggregate: Aggregate) -> Self {
        Options {
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

/// The name of the scheduler's access; the user is `system:kube-scheduler`.
pub const SCHEDULER: &str = scheduler::NAME;

/// Starts all controllers. `api` makes the access of one, under the name of its service account in `kube-system`. They stop
/// when `stop` turns true; then the handle ends, once what was under way is finished.
pub fn start<A: Api>(
    api: impl Fn(&'static str) -> A,
    options: Options,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let Options {
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
