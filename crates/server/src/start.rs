//! From a configuration to a running server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use admission::{Chain as AdmissionChain, Stages};
use arc_swap::{ArcSwap, ArcSwapOption};
use authn::Authenticator;
use authz::config::AuthorizerType;
use authz::node::{self, NodeAuthorizer};
use authz::{Authorizer, Chain as AuthorizationChain, Step, rbac};
use resources::openapi::OpenApi;
use storage::{Embedded, Memory, Options, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::info;

use crate::accept;
use crate::addresses::Addresses;
use crate::admission::meter::AdmissionMeter;
use crate::audit::Audit;
use crate::authorization::{AuthorizationMetrics, follow as follow_authorization};
use crate::bootstrap;
use crate::catalog::Catalog;
use crate::config::{Config, ConfigError, Data};
use crate::encode;
use crate::follow::{Followed, follow};
use crate::health::Health;
use crate::identity;
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
    controllers: Option<JoinHandle<()>>,
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
        // A client that does not read its answer must not keep the process alive.
        let _ = tokio::time::timeout(self.state.request_timeout, self.serving).await;
        if let Some(controllers) = self.controllers {
            let _ = controllers.await;
        }
        self.state.store.close().await;
        if let Some(audit) = self.state.audit.clone() {
            let _ = tokio::task::spawn_blocking(move || audit.close()).await;
        }
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
        audit,
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
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let metrics = Metrics::new(started).map_err(ConfigError::other)?;
    let meter = Arc::new(AdmissionMeter::new(metrics.registry()).map_err(ConfigError::other)?);
    let authorization = authorization.load()?;
    let admission = AdmissionChain::new(&enable_admission, &disable_admission, &Stages::default())
        .map_err(ConfigError::other)?
        .metered(meter);

    if ["v1beta1", "v1beta2"].iter().any(|version| served.is_served("resource.k8s.io", version)) {
        let why = "the beta versions of resource.k8s.io are not implemented yet; leave them out";
        return Err(ConfigError::flag("runtime-config", why));
    }

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
    let roles = follow_rbac(&store, &index)?;
    let node = if authorization.uses(AuthorizerType::Node) { Some(follow_nodes(&store)?) } else { None };
    let authorization_metrics =
        AuthorizationMetrics::new(metrics.registry(), &identity::id()).map_err(ConfigError::other)?;
    let (authorizer, parts, files) = authorization.stand(&index, node, Arc::clone(&authorization_metrics))?;
    let authorizer = Arc::new(ArcSwap::from_pointee(authorizer));
    let internal = Step { name: "rbac".into(), authorizer: Authorizer::Rbac(Arc::clone(&index)) };
    let internal_authorizer = AuthorizationChain::new(vec![internal]).map_err(ConfigError::other)?;
    let (stop, stopped) = watch::channel(false);
    follow_authorization(authorization, parts, files, &authorizer, stopped.clone());
    let advertise = advertise.unwrap_or(address.ip());
    let advertised = SocketAddr::new(advertise, address.port()).to_string();
    let (tokens, verifier) = match tokens {
        Some(config) => Tokens::new(config, &store, &advertised)
            .map(|(tokens, verifier)| (Some(tokens), Some(verifier)))?,
        None => (None, None),
    };
    let metrics = Metrics::new(started).map_err(ConfigError::other)?;
    let audit = Audit::open(audit, metrics.registry())?;
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
        authorizer,
        internal_authorizer: Arc::new(internal_authorizer),
        authorization_metrics,
        rbac: Arc::clone(&index),
        admission,
        seats: Seats::new(max_in_flight, max_mutating_in_flight),
        metrics,
        audit,
        addresses: Addresses::new(&service_ranges),
        allow_privileged,
        request_timeout,
        advertised,
        tokens,
        roles,
        stop: stopped.clone(),
    });
    for entry in &state.store.snapshot("/registry/core/services/").entries {
        if let Ok(service) = encode::tree(entry) {
            state.addresses.load(&service);
        }
    }
    bootstrap::run(&state, address.port(), advertise).await?;
    state.health.set_bootstrapped();

    let tls_config = Arc::new(ArcSwap::from_pointee(tls_config));
    let serving = tokio::spawn(accept::serve(listener, tls_config, limits, Arc::clone(&state), stopped));
    info!(%address, "ready");
    let controllers = controllers.then(|| crate::controllers::start(&state, root_ca));
    Ok(Running { address, state, stop, serving, controllers })
}

/// Keeps the index of roles and bindings at what is stored.
fn follow_rbac(store: &Store, index: &Arc<rbac::Index>) -> Result<Followed, ConfigError> {
    let index = Arc::clone(index);
    follow(store, "/registry/rbac.authorization.k8s.io/", move |old, new| {
        let kind = new.or(old).and_then(|o| o.str_at(&["kind"])).and_then(rbac::Kind::parse);
        if let Some(kind) = kind {
            index.apply(kind, old, new);
        }
    })
}

/// What the Node authorizer needs to know.
const NODE_SCOPES: &[&str] = &[
    "/registry/core/pods/",
    "/registry/core/persistentvolumes/",
    "/registry/storage.k8s.io/volumeattachments/",
    "/registry/resource.k8s.io/resourceslices/",
    "/registry/certificates.k8s.io/podcertificaterequests/",
];

/// Keeps the graph of what nodes need at what is stored.
fn follow_nodes(store: &Store) -> Result<Arc<NodeAuthorizer>, ConfigError> {
    let nodes = Arc::new(NodeAuthorizer::new());
    for scope in NODE_SCOPES {
        let authorizer = Arc::clone(&nodes);
        follow(store, scope, move |old, new| {
            let kind = new.or(old).and_then(|o| o.str_at(&["kind"])).and_then(node::Kind::parse);
            if let Some(kind) = kind {
                authorizer.graph().apply(kind, old, new);
            }
        })?;
    }
    Ok(nodes)
}
