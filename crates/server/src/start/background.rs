//! Starts the tasks that run beside requests: bootstrap, file watches, and controllers.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::info;

use crate::addresses;
use crate::admission::webhooks::account;
use crate::aggregation;
use crate::bootstrap;
use crate::config::ControllersConfig;
use crate::consistency;
use crate::controllers;
use crate::crd_controller;
use crate::endpoints::{self, EndpointReconciler};
use crate::flow_control;
use crate::identity_lease;
use crate::leadership;
use crate::manifests;
use crate::metrics::object_series;
use crate::published;
use crate::reload::{self, ConfigFiles};
use crate::restore_deleted::RestoreDeleted;
use crate::state::State;

/// The inputs of the background tasks, besides the subsystems.
pub(super) struct Background {
    pub(super) crd_informer: crd_controller::CrdInformer,
    pub(super) manifests: manifests::ManifestDirectories,
    pub(super) config_files: ConfigFiles,
    /// Replaced when the files of the serving certificate change.
    pub(super) tls_config: Arc<ArcSwap<ServerConfig>>,
    /// The address of the `kubernetes` Service's endpoint.
    pub(super) advertised: SocketAddr,
    pub(super) endpoint_reconciler: EndpointReconciler,
}

impl Background {
    /// Starts all tasks. They end when the server stops; those that are returned end when it drains, and the server waits for them
    /// before it stops.
    pub(super) fn start(self, state: &Arc<State>) -> Vec<JoinHandle<()>> {
        let Background { crd_informer, manifests, config_files, tls_config, advertised, endpoint_reconciler } =
            self;
        let stopped = state.stopping();
        let restore_deleted = Arc::new(bootstrap::restore_deleted(state, advertised.port()));
        let webhook_account = state
            .admission
            .webhook_tokens
            .as_ref()
            .map(|tokens| account::watch(&state.storage.store, &state.storage.unreadable, tokens));

        addresses::start_repair(state);
        tokio::spawn(addresses::keep_default_cidr(Arc::clone(state)));
        crd_controller::start(state, crd_informer);
        // APIServices and bootstrap objects are written at the same time, so that their writes share commits.
        aggregation::run(state, aggregation::register::Registrar::new(state));
        if flow_control::is_served(&state.apis.catalog) {
            flow_control::begin(&state.bootstrap);
            tokio::spawn(flow_control::maintain(Arc::clone(state), stopped.clone()));
        }
        let trust_changed = Arc::new(Notify::new());
        tokio::spawn(run_bootstrap(
            Arc::clone(state),
            advertised.port(),
            Arc::clone(&restore_deleted),
            Arc::clone(&trust_changed),
        ));

        let watched = config_files.watched(state, &trust_changed, &tls_config);
        let metrics = Arc::clone(&state.metrics.authentication);
        tokio::spawn(reload::follow(watched, metrics, stopped.clone()));
        tokio::spawn(manifests.follow(stopped.clone()));
        if let Some((control, _)) = &state.serving.flow_control {
            tokio::spawn(flow_control::run(Arc::clone(state), Arc::clone(control), stopped.clone()));
        }
        tokio::spawn(restore_deleted.run(Arc::clone(state), stopped.clone()));
        if let Some(account) = webhook_account {
            tokio::spawn(Arc::new(account).run(Arc::clone(state), stopped));
        }
        tokio::spawn(identity_lease::collect_garbage(Arc::clone(state)));
        tokio::spawn(consistency::run(Arc::clone(state)));
        tokio::spawn(object_series::sweep_regularly(Arc::clone(state)));
        vec![
            tokio::spawn(identity_lease::run(Arc::clone(state))),
            tokio::spawn(endpoints::run(Arc::clone(state), advertised, endpoint_reconciler)),
        ]
    }
}

/// Writes the bootstrap objects and logs when all of them are accepted.
async fn run_bootstrap(
    state: Arc<State>,
    port: u16,
    restore_deleted: Arc<RestoreDeleted>,
    trust_changed: Arc<Notify>,
) {
    bootstrap::run(&state, port, &restore_deleted).await;
    published::publish(&state, trust_changed, state.stopping());
    state.bootstrap.set_complete();
    let mut stop = state.stopping();
    tokio::select! {
        () = state.bootstrap.done_all() => info!("the server is ready: its bootstrap objects are written"),
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Starts the controllers that are enabled. The handles end when the server drains and every controller has finished its current work.
pub(super) fn start_controllers(state: &Arc<State>, config: ControllersConfig) -> Vec<JoinHandle<()>> {
    let event_ttl = config.event_ttl;
    let mut all = vec![leadership::start(state, config)];
    // Events in a shared store have a lease; those of other servers may live longer than this server's.
    if !event_ttl.is_zero() && !state.storage.store.is_shared() {
        all.push(controllers::start_event_ttl(state, event_ttl));
    }
    all
}
