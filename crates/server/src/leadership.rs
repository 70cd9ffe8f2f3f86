//! Runs the controllers of kube-controller-manager and the scheduler in one of the servers that share a store.
//!
//! The server that holds the Lease `kube-system/portcullis-controllers` runs them. A server with a store of its own needs no Lease. A
//! kube-controller-manager or kube-scheduler beside the servers elects its leader with a Lease of its own, so it always gets it; while it
//! holds it, the controllers that it has do not run here.

use std::sync::Arc;

use api::event::EventReport;
use api::time::Timestamp;
use api::{Status, meta};
use authn::InternalIdentity;
use catalog::encode;
use catalog::keys;
use controllers::{Candidate, ControllerGroup, LeaseApi};
use runtime::identity;
use runtime::random;
use tokio::task::JoinHandle;
use tracing::debug;
use value::Value;

use crate::admission::status;
use crate::client::LoopbackClient;
use crate::config::ControllersConfig;
use crate::controllers as loops;
use crate::identity_lease::LEASES;
use crate::state::State;

const NAMESPACE: &str = api::namespaces::SYSTEM;
const LEASE: &str = "portcullis-controllers";

/// Runs the configured controllers until the server drains, then gives the leadership up.
pub(crate) fn start(state: &Arc<State>, config: ControllersConfig) -> JoinHandle<()> {
    let ControllersConfig { enabled, root_ca, bootstrap_tokens, scheduler, event_ttl: _ } = config;
    let mut groups = Vec::new();
    if enabled {
        let state = Arc::clone(state);
        groups.push(ControllerGroup {
            name: "controllers",
            component_lease: "kube-controller-manager",
            start: Box::new(move |stop| {
                let status = status::run_until(Arc::clone(&state), stop.clone());
                let others = loops::start(&state, root_ca.clone(), bootstrap_tokens, stop);
                tokio::spawn(async move {
                    tokio::join!(status, others);
                })
            }),
        });
    }
    if scheduler {
        let state = Arc::clone(state);
        groups.push(ControllerGroup {
            name: "scheduler",
            component_lease: "kube-scheduler",
            start: Box::new(move |stop| loops::start_scheduler(&state, stop)),
        });
    }
    let is_candidate = state.storage.store.is_shared() && !groups.is_empty();
    let candidate = is_candidate.then(|| Candidate {
        namespace: NAMESPACE,
        lease: LEASE,
        identity: format!("{}_{}", identity::host(), random::uid()),
    });
    let client = LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer);
    let leases = ControllerLeases { state: Arc::clone(state), client };
    tokio::spawn(controllers::lead(leases, candidate, groups, state.draining()))
}

/// The Leases of `kube-system`. Reads come from memory, writes go through the request pipeline.
struct ControllerLeases {
    state: Arc<State>,
    client: LoopbackClient,
}

impl LeaseApi for ControllerLeases {
    fn get(&self, name: &str) -> Result<Option<Value>, Status> {
        let key = keys::namespaced(keys::LEASES, NAMESPACE, name);
        self.state.storage.store.get(&key).map(|entry| encode::tree(&entry)).transpose()
    }

    async fn create(&self, lease: &Value) -> Result<Value, Status> {
        self.client.create(LEASES, lease).await
    }

    async fn update(&self, lease: &Value) -> Result<Value, Status> {
        self.client.update(&format!("{LEASES}/{}", meta::name(lease)), lease).await
    }

    fn wall_time(&self) -> Timestamp {
        Timestamp::from_micros(self.state.now_micros())
    }

    fn jitter(&self) -> f64 {
        random::fraction()
    }

    async fn report(&self, lease: &Value, identity: &str, is_leader: bool) {
        self.state.metrics.set_leader(meta::name(lease), is_leader);
        let event = election_event(lease, identity, is_leader, self.wall_time());
        if let Err(error) = self.client.create("/api/v1/namespaces/kube-system/events", &event).await {
            debug!(error = error.message(), "cannot create an event about leader election");
        }
    }
}

/// The event with which Kubernetes reports a new leader, or a leader that has stopped.
fn election_event(lease: &Value, identity: &str, is_leader: bool, now: Timestamp) -> Value {
    let what = if is_leader { "became leader" } else { "stopped leading" };
    let report = EventReport {
        object: lease,
        event_type: "Normal",
        reason: "LeaderElection",
        message: &format!("{identity} {what}"),
        component: LEASE,
    };
    let mut event = report.core(NAMESPACE, &format!("{LEASE}.{:x}", now.micros()), now);
    event.set_at(&["reportingInstance"], identity);
    event
}

#[cfg(test)]
mod tests;
