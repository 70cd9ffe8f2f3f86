//! Starts a server from a configuration.
//!
//! [`start`] builds each subsystem once, from its part of the [`Config`] and from the subsystems before it; then it loads the static
//! manifests, starts the background tasks, and serves. The order of these steps matters:
//!
//! - TLS, authorization and admission are checked before the port is bound, and the port is bound before the store is opened, so that
//!   most servers that cannot start leave the store alone. Tests: `a_port_in_use_is_reported_before_the_store_is_created`,
//!   `tls_authorization_and_admission_are_checked_before_the_port_is_bound`.
//! - Objects that cannot be decoded are known before anything is derived from the store: requests that depend on them are denied
//!   from the start. Test: `requests_that_depend_on_an_unreadable_object_are_refused_after_a_restart`.
//! - Informers have read the store when their subsystem is built: stored roles, policies, webhooks and CRDs are in force for the first
//!   request. Tests: `policies_are_active_before_the_first_answer_after_a_restart`,
//!   `the_deepest_accepted_crd_is_served_after_a_restart`.
//! - Static manifests are in force before the first write, also before those of bootstrap and of controllers. Test:
//!   `no_violating_object_is_created_however_early_it_is_requested`.
//! - The bootstrap objects that are recreated when they are deleted are watched before bootstrap writes them. The compiler checks this:
//!   [`bootstrap::run`](crate::bootstrap::run) takes the watches.
//! - The listener accepts connections when every bootstrap object was written or refused once, or after [`SERVE_AFTER`]: a policy may
//!   refuse bootstrap objects, or a webhook that needs this server may delay them. `/readyz` fails until bootstrap is done. Tests:
//!   `a_policy_that_denies_bootstrap_objects_is_reported_until_it_is_removed`,
//!   `a_webhook_that_never_answers_does_not_delay_the_start`.
//! - Controllers start last, under the same condition or after [`RETURN_AFTER`]. Test:
//!   `controllers_write_their_first_objects_after_bootstrap_is_done`.
//! - Stopping first fails `/readyz`, ends the controllers and deletes what shows that this server runs, then ends the listener, waits
//!   for mutating requests, closes the store, and closes the audit log. Tests:
//!   `a_running_write_is_completed_before_the_server_stops`, `sigterm_ends_watches_and_then_the_server`,
//!   `a_server_with_controllers_stops`, `a_draining_server_is_not_ready_and_serves_requests`.

mod background;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::info;
use transport::accept;
use transport::connections::ConnectionMetrics;

use crate::bootstrap::Progress;
use crate::config::{Config, ConfigError, ShutdownConfig};
use crate::health::Health;
use crate::loopback::Loopback;
use crate::metrics::Metrics;
use crate::reload::ConfigFiles;
use crate::state::{ApisContext, AuthenticationContext, Authorizers, MAX_UNDER_WAY, ServerInfo, State};
use background::Background;

/// How long [`start`] waits for bootstrap before it serves requests. Usually bootstrap is done much sooner, and no client meets a
/// server without roles.
const SERVE_AFTER: Duration = Duration::from_secs(1);
/// How long [`start`] waits for bootstrap, while it serves requests, before it returns.
const RETURN_AFTER: Duration = Duration::from_secs(10);

/// How long a server that shuts down waits for the tasks that give up its Leases and endpoints, and for its controllers.
const PRE_STOP_LIMIT: Duration = Duration::from_secs(20);

/// Starts a server. On an error it has not answered any request. When it returns, the server answers requests and is ready, unless
/// bootstrap objects are refused or delayed: then `/readyz` names them, and they are written again in the background until they are
/// accepted.
pub async fn start(config: Config) -> Result<RunningServer, ConfigError> {
    let config_files = ConfigFiles::of(&config);
    let Config {
        listen,
        storage,
        addresses,
        apis,
        authentication,
        authorization,
        admission,
        serving,
        controllers,
        ..
    } = config;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();

    // Everything that can be checked without the port and the store.
    let tls_config = serving.tls_config()?;
    let trust = authentication.trust()?;
    let metrics = Metrics::new(started.as_secs_f64()).map_err(ConfigError::other)?;
    metrics.record_feature_gates(&config.feature_gates).map_err(ConfigError::other)?;
    let authorization = authorization.load()?;
    let (static_manifests, webhook_tokens) = (admission.static_manifests, admission.webhook_tokens);
    let (admission, manifests) = admission.load(&metrics, authentication.tokens.is_some(), apis.features)?;

    let listener = TcpListener::bind(listen).await.map_err(|e| {
        ConfigError::other(format!("cannot listen on {listen}: {e}; is another server running? choose another port with --secure-port"))
    })?;
    let address = listener.local_addr().map_err(ConfigError::other)?;
    let advertised = SocketAddr::new(config.advertise.unwrap_or(address.ip()), address.port());
    let info = ServerInfo {
        advertised: advertised.to_string(),
        emulated_minor: config.emulated_minor,
        started: i64::try_from(started.as_secs()).unwrap_or(i64::MAX),
        flags: config.flags,
    };

    // The subsystems, each from its configuration and the ones before it.
    let (drain, draining) = watch::channel(false);
    let (stop, stopped) = watch::channel(false);
    let (close, closed) = watch::channel(false);
    let storage = storage.build(addresses.primary_family(), controllers.event_ttl, &metrics.etcd).await?;
    let authorization = Authorizers::build(authorization, &storage, &metrics, stopped.clone())?;
    let context = AuthenticationContext { advertised: &info.advertised, webhook_tokens };
    let authentication = authentication.build(trust, &storage, &metrics, &context)?;
    let context =
        ApisContext { has_issuer_discovery: authentication.has_issuer_discovery(), static_manifests };
    let (apis, crd_informer) = apis.build(&storage, &metrics, &context)?;
    let bootstrap = Arc::new(Progress::default());
    let health = Health::new(&storage, &manifests.statuses, &bootstrap).map_err(ConfigError::other)?;
    let connection_limits = serving.limits;
    let serving = serving.build(&storage, &apis.catalog, &metrics, health)?;
    // Admission sends requests to the server that it is part of, so both are built in one step: see `Loopback`.
    let state = Arc::new_cyclic(|server| State {
        admission: admission.build(&storage, &metrics, &Loopback::new(server)),
        addresses: addresses.build(&storage, &metrics.addresses, &Loopback::new(server)),
        storage,
        apis,
        authentication,
        authorization,
        serving,
        metrics,
        info,
        bootstrap,
        draining,
        stop: stopped.clone(),
    });
    state.classify_unreadable();

    let manifests = manifests.put_in_force(&state)?;
    let tls_config = Arc::new(ArcSwap::from_pointee(tls_config));
    let tls = Arc::clone(&tls_config);
    let background = Background {
        crd_informer,
        manifests,
        config_files,
        tls_config: tls,
        advertised,
        endpoint_reconciler: config.endpoint_reconciler,
    };
    let mut pre_stop = background.start(&state);

    let _ = tokio::time::timeout(SERVE_AFTER, state.bootstrap.settled()).await;
    let connections = ConnectionMetrics::new(state.metrics.registry()).map_err(ConfigError::other)?;
    let serving =
        accept::serve(listener, tls_config, connection_limits, connections, Arc::clone(&state), closed);
    let serving = tokio::spawn(serving);
    info!(%address, connections = connection_limits.connections, "serving requests; the server is ready when its bootstrap objects are written");
    let _ = tokio::time::timeout(RETURN_AFTER, state.bootstrap.settled()).await;
    pre_stop.extend(background::start_controllers(&state, controllers));
    Ok(RunningServer { address, state, drain, stop, close, serving, pre_stop })
}

/// A running server. Dropping it without [`RunningServer::stop`] leaves it running until the runtime ends.
pub struct RunningServer {
    /// The bound address, with the actual port if port 0 was configured.
    pub address: SocketAddr,
    state: Arc<State>,
    drain: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    /// Ends the listener and asks clients to leave open connections.
    close: watch::Sender<bool>,
    serving: JoinHandle<()>,
    /// The tasks that end before the server stops serving, because they give up what other servers may take over.
    pre_stop: Vec<JoinHandle<()>>,
}

impl RunningServer {
    /// The subsystems, for other parts of the same process.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Every bootstrap object is written. `/readyz` has further checks.
    pub fn is_ready(&self) -> bool {
        self.state.bootstrap.is_done()
    }

    /// Shuts the server down in two phases. While it drains, `/readyz` fails and requests are still served, so that load balancers
    /// and other servers can take over: for `--shutdown-delay-duration`, and until this server has given up its Leases and
    /// endpoints. Then it stops accepting connections, ends watches, finishes the requests in progress, and closes the store.
    pub async fn stop(self) {
        let serving = &self.state.serving;
        serving.health.set_stopping();
        let _ = self.drain.send(true);
        let pre_stop = async {
            for task in self.pre_stop {
                let _ = task.await;
            }
        };
        let _ = tokio::join!(
            tokio::time::sleep(serving.shutdown.delay),
            tokio::time::timeout(PRE_STOP_LIMIT, pre_stop)
        );
        let ShutdownConfig { send_retry_after, .. } = serving.shutdown;
        serving.is_refusing.store(send_retry_after, Ordering::Release);
        let watches_end = serving.watches.spread(serving.shutdown.watch_grace);
        let _ = self.stop.send(true);
        if send_retry_after {
            // Refused clients must find the server, so the listener ends last.
            let all = serving.under_way.acquire_many(MAX_UNDER_WAY);
            let ((), _) = tokio::join!(
                tokio::time::sleep(watches_end),
                tokio::time::timeout(serving.request_timeout, all)
            );
        }
        let _ = self.close.send(true);
        // Bounded: a client that does not read its response must not keep the process alive.
        let _ = tokio::time::timeout(serving.request_timeout + watches_end, self.serving).await;
        // Also the mutating requests whose clients have disconnected.
        let all = serving.under_way.acquire_many(MAX_UNDER_WAY);
        let _ = tokio::time::timeout(serving.request_timeout, all).await;
        self.state.storage.store.close().await;
        if let Some(audit) = serving.audit.clone() {
            let _ = tokio::task::spawn_blocking(move || audit.close()).await;
        }
    }
}

impl std::fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningServer").field("address", &self.address).finish_non_exhaustive()
    }
}
