//! From a configuration to a running server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use admission::Chain as AdmissionChain;
use arc_swap::{ArcSwap, ArcSwapOption};
use authn::Authenticator;
use authz::{Authorizer, Chain as AuthorizationChain, Step, rbac};
use resources::openapi::OpenApi;
use storage::{Embedded, Memory, Options, Store, Watch};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info};

use crate::accept;
use crate::addresses::Addresses;
use crate::bootstrap;
use crate::catalog::Catalog;
use crate::config::{AuthorizationMode, Config, ConfigError, Data};
use crate::encode;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::seats::Seats;
use crate::state::State;
use crate::tls::{self, ClientCa};
use crate::tokens::Tokens;

/// A server that runs. Dropping it without [`Running::stop`] ends it with the runtime.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Running {
    /// What the server knows, for parts of the same process.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Stops accepting, ends watches, finishes what is in flight, and closes the store.
    pub async fn stop(self) {
        self.state.health.set_stopping();
        let _ = self.stop.send(true);
        let _ = self.serving.await;
        self.state.store.close().await;
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Starts a server. It has answered nothing but health when this returns an error, and is ready when it returns.
pub async fn start(config: Config) -> Result<Running, ConfigError> {
    let Config {
        listen,
        advertise,
        data,
        serving,
        tls: tls_options,
        client_ca,
        root_ca,
        static_tokens,
        tokens,
        anonymous,
        authorization,
        enable_admission,
        disable_admission,
        served,
        service_ranges,
        max_in_flight,
        max_mutating_in_flight,
        request_timeout,
        allow_privileged,
        limits,
        controllers,
    } = config;

    let chain =
        tls::certificates(serving.cert_pem.as_bytes()).map_err(|e| ConfigError::flag("tls-cert-file", e))?;
    let key = tls::private_key(serving.key_pem.as_bytes())
        .map_err(|e| ConfigError::flag("tls-private-key-file", e))?;
    let tls_config = tls::server_config(chain, key, &tls_options)?;
    let client_ca = client_ca
        .map(|pem| ClientCa::from_pem(&pem))
        .transpose()
        .map_err(|e| ConfigError::flag("client-ca-file", e))?;
    let admission = AdmissionChain::new(&enable_admission, &disable_admission).map_err(ConfigError::other)?;

    let listener = TcpListener::bind(listen).await.map_err(|e| {
        ConfigError::other(format!("cannot listen on {listen}: {e}; is another server running? choose another port with --secure-port"))
    })?;
    let address = listener.local_addr().map_err(ConfigError::other)?;

    let store = match data {
        Data::Memory => Store::open(Memory::new(), Options::default()).await,
        Data::Folder(folder) => Store::open(Embedded::at(folder), Options::default()).await,
    }
    .map_err(ConfigError::other)?;

    let index = Arc::new(rbac::Index::default());
    let (rbac_sender, rbac_revision) = watch::channel(0);
    let rbac_watch = load_rbac(&store, &index, &rbac_sender)?;
    let (stop, stopped) = watch::channel(false);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let advertise = advertise.unwrap_or(address.ip());
    let advertised = SocketAddr::new(advertise, address.port()).to_string();
    let (tokens, verifier) = match tokens {
        Some(config) => Tokens::new(config, &store, &advertised)
            .map(|(tokens, verifier)| (Some(tokens), Some(verifier)))?,
        None => (None, None),
    };
    let state = Arc::new(State {
        health: Health::new(store.clone()),
        store,
        openapi: OpenApi::new(served.clone(), "1.37"),
        catalog: Catalog::new(served),
        authenticator: ArcSwap::from_pointee(Authenticator {
            client_certificates: client_ca.is_some(),
            static_tokens,
            service_accounts: verifier,
            anonymous,
            ..Authenticator::default()
        }),
        client_ca: ArcSwapOption::from_pointee(client_ca),
        authorizer: ArcSwap::from_pointee(authorization_chain(&authorization, &index)?),
        rbac: Arc::clone(&index),
        admission,
        seats: Seats::new(max_in_flight, max_mutating_in_flight),
        metrics: Metrics::new(started).map_err(ConfigError::other)?,
        addresses: Addresses::new(&service_ranges),
        allow_privileged,
        request_timeout,
        advertised,
        tokens,
        rbac_revision,
        stop: stopped.clone(),
    });
    for entry in state.store.snapshot("/registry/core/services/").entries.iter() {
        if let Ok(service) = encode::tree(entry) {
            state.addresses.load(&service);
        }
    }
    tokio::spawn(follow_rbac(Arc::clone(&state), rbac_watch, rbac_sender));
    bootstrap::run(&state, address.port(), advertise).await?;
    let _ = (controllers, root_ca);
    state.health.set_bootstrapped();

    let tls_config = Arc::new(ArcSwap::from_pointee(tls_config));
    let serving = tokio::spawn(accept::serve(listener, tls_config, limits, Arc::clone(&state), stopped));
    info!(%address, "ready");
    Ok(Running { address, state, stop, serving })
}

fn authorization_chain(
    modes: &[AuthorizationMode],
    index: &Arc<rbac::Index>,
) -> Result<AuthorizationChain, ConfigError> {
    let steps = modes
        .iter()
        .map(|mode| match mode {
            AuthorizationMode::AlwaysAllow => {
                Step { name: "alwaysallow".into(), authorizer: Authorizer::AlwaysAllow }
            }
            AuthorizationMode::AlwaysDeny => {
                Step { name: "alwaysdeny".into(), authorizer: Authorizer::AlwaysDeny }
            }
            AuthorizationMode::Rbac => {
                Step { name: "rbac".into(), authorizer: Authorizer::Rbac(Arc::clone(index)) }
            }
        })
        .collect();
    AuthorizationChain::new(steps).map_err(|e| ConfigError::flag("authorization-mode", e))
}

const RBAC_SCOPE: &str = "/registry/rbac.authorization.k8s.io/";

/// Indexes the stored roles and bindings; what comes later arrives through the watch.
fn load_rbac(
    store: &Store,
    index: &rbac::Index,
    revision: &watch::Sender<u64>,
) -> Result<Watch, ConfigError> {
    let (page, watch) = store.list_and_watch(RBAC_SCOPE);
    for entry in page.entries.iter() {
        let object = encode::tree(entry).map_err(ConfigError::other)?;
        if let Some(kind) = object.str_at(&["kind"]).and_then(rbac::Kind::parse) {
            index.apply(kind, None, Some(&object));
        }
    }
    let _ = revision.send(page.revision);
    Ok(watch)
}

/// Keeps the index at what is stored. Should the watch be lost, the process ends: going on would mean to decide by roles that
/// no longer hold.
async fn follow_rbac(state: Arc<State>, mut watch: Watch, revision: watch::Sender<u64>) {
    loop {
        match watch.next().await {
            Ok(event) => {
                let old = event.previous.as_deref().and_then(|e| encode::tree(e).ok());
                let new = encode::tree(&event.entry).ok().filter(|_| event.kind != storage::Kind::Deleted);
                let kind = new
                    .as_ref()
                    .or(old.as_ref())
                    .and_then(|o| o.str_at(&["kind"]))
                    .and_then(rbac::Kind::parse);
                if let Some(kind) = kind {
                    state.rbac.apply(kind, old.as_ref(), new.as_ref());
                }
                let _ = revision.send(event.revision);
            }
            Err(storage::WatchError::Closed) => return,
            Err(error) => {
                error!(%error, "the authorizer lost track of stored roles");
                std::process::abort();
            }
        }
    }
}
