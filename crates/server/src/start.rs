//! From a configuration to a running server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admission::manifests::{LoadedManifests, ManifestSet};
use admission::policy::{MutatingPolicies, TypeCheckKinds, ValidatingPolicies};
use admission::{AdmissionMetrics, Chain as AdmissionChain, ChainConfig};
use api::GroupVersionKind;
use arc_swap::ArcSwap;
use authn::{Authenticator, OptionalObserver};
use authz::config::AuthorizerType;
use authz::node::{self, NodeAuthorizer};
use authz::{Authorizer, Chain as AuthorizationChain, ChainStep, rbac};
use documents::openapi::OpenApi;
use schema::Link;
use storage::{Embedded, Memory, Options, Store};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tracing::info;

use crate::accept;
use crate::addresses::Addresses;
use crate::admission::configuration::PluginConfigurations;
use crate::admission::informers::Informers;
use crate::admission::meter::AdmissionMeter;
use crate::admission::pod_security::PodSecurityCounters;
use crate::admission::provision::Provision;
use crate::admission::quota::Quotas;
use crate::admission::registered::RegisteredWebhooks;
use crate::admission::status;
use crate::admission::webhooks::{TokenMetrics, WebhookTokens, account};
use crate::aggregation::{self, Aggregation};
use crate::audit::Audit;
use crate::authorization::{AuthorizationMetrics, follow as follow_authorization};
use crate::bootstrap::{self, Progress};
use crate::byte_budget::ByteBudget;
use crate::catalog::Catalog;
use crate::config::{Config, ConfigError, Data};
use crate::connections::ConnectionMetrics;
use crate::encode;
use crate::flow_control::{self, FlowControl, FlowControlMetrics};
use crate::handlers::documents::OpenApiBuilders;
use crate::handlers::watch::shared_frames::SharedFrames;
use crate::health::Health;
use crate::identity;
use crate::informer::{Notes, RoleInformers, start_informer};
use crate::keys;
use crate::manifests::{self, ManifestMetrics};
use crate::metrics::Metrics;
use crate::published;
use crate::reload;
use crate::seats::Seats;
use crate::state::State;
use crate::tls;
use crate::tokens::Tokens;
use crate::trust::{Authority, Trust};
use crate::unreadable::{Concern, Unreadable};

/// A server that runs. Dropping it without [`Running::stop`] ends it with the runtime.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    controllers: Option<JoinHandle<()>>,
}

/// More requests than can be under way at once. They are counted to be waited for at the end; seats and the budget for bodies
/// limit them.
const MAX_UNDER_WAY: u32 = u32::MAX;

impl Running {
    /// What the server knows, for parts of the same process.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Whether every object of bootstrap is written: `/readyz` has further checks.
    pub fn is_ready(&self) -> bool {
        self.state.bootstrap.is_done()
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
        // Those whose clients are gone, too.
        let all = self.state.under_way.acquire_many(MAX_UNDER_WAY);
        let _ = tokio::time::timeout(self.state.request_timeout, all).await;
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

/// How long a start waits for bootstrap before the first request is answered: usually it is done long before, and nobody meets a
/// server without its roles.
const SERVE_AFTER: Duration = Duration::from_secs(1);
/// How long [`start`] waits for bootstrap before it returns, while requests are answered.
const RETURN_AFTER: Duration = Duration::from_secs(10);

/// Starts a server. It has answered nothing when this returns an error. When it returns, the server answers requests and is ready,
/// unless something refuses or holds up objects of bootstrap: then `/readyz` says so, and they are tried again in the background.
pub async fn start(config: Config) -> Result<Running, ConfigError> {
    let Config {
        listen,
        advertise,
        data,
        serving,
        tls: tls_options,
        client_ca,
        front_proxy,
        proxy_client,
        redirects,
        files: followed,
        root_ca,
        static_tokens,
        tokens,
        anonymous,
        authorization,
        audit,
        enable_admission,
        disable_admission,
        static_manifests,
        webhook_tokens,
        manifests,
        strict_manifests,
        admission_configuration,
        plugins,
        served,
        service_ranges,
        store_quota,
        priority_and_fairness,
        max_in_flight,
        max_mutating_in_flight,
        request_timeout,
        allow_privileged,
        scheduler,
        event_ttl,
        feature_gates,
        admin_access,
        emulated_minor,
        limits,
        controllers,
        flags,
    } = config;

    let chain =
        tls::certificates(serving.cert_pem.as_bytes()).map_err(|e| ConfigError::flag("tls-cert-file", e))?;
    let key = tls::private_key(serving.key_pem.as_bytes())
        .map_err(|e| ConfigError::flag("tls-private-key-file", e))?;
    let tls_config = tls::server_config(chain, key, &tls_options)?;
    let authority = |flag: &str, pem: Option<&Vec<u8>>| {
        pem.map(|pem| Authority::from_pem(pem)).transpose().map_err(|e| ConfigError::flag(flag, e))
    };
    let (proxy_ca, front_proxy) = front_proxy.unzip();
    let trust = Trust {
        clients: authority("client-ca-file", client_ca.as_ref())?,
        proxies: authority("requestheader-client-ca-file", proxy_ca.as_ref())?,
    };
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let metrics = Metrics::new(started.as_secs_f64()).map_err(ConfigError::other)?;
    metrics.record_feature_gates(&feature_gates).map_err(ConfigError::other)?;
    let authorization = authorization.load()?;
    let meter: Arc<dyn AdmissionMetrics> =
        Arc::new(AdmissionMeter::new(metrics.registry()).map_err(ConfigError::other)?);
    let validating = Arc::new(ValidatingPolicies::new(Arc::clone(&meter)));
    let mutating = Arc::new(MutatingPolicies::new(Arc::clone(&meter)));
    let mut configurations = PluginConfigurations::read(admission_configuration.as_deref())?;
    let pod_security = PodSecurityCounters::new(metrics.registry()).map_err(ConfigError::other)?;
    let settings = admission::plugins::Settings {
        suffix: crate::random::suffix,
        pod_security_metrics: Some(Arc::new(pod_security)),
        pod_security: configurations.pod_security()?,
        ..plugins
    };
    let named = |list: &[String], plugin: &str| list.iter().any(|name| name == plugin);
    let enabled = |plugin: &str| named(&enable_admission, plugin) && !named(&disable_admission, plugin);
    let settings = configurations.settings(settings, enabled)?;
    let quotas = Arc::new(Quotas::new(configurations.limited()?));
    let provision = Arc::new(Provision::default());
    let quota: Arc<dyn admission::AsyncPlugin> = Arc::<Quotas>::clone(&quotas);
    let mut stages = ChainConfig {
        validating_policies: Some(Arc::clone(&validating) as _),
        mutating_policies: Some(Arc::clone(&mutating) as _),
        quota: Some(quota),
        namespace_auto_provision: Some(Arc::clone(&provision) as _),
        image_policy: configurations.image_policy(enabled("ImagePolicyWebhook"))?,
        settings,
        ..ChainConfig::default()
    };
    let webhook_credentials = configurations.webhook_credentials()?;
    let mut folders = manifests;
    let is_on = |plugin: &str| !named(&disable_admission, plugin);
    folders.extend(configurations.manifests(static_manifests, is_on)?);
    PluginConfigurations::check_folders(&folders, static_manifests, is_on)?;
    configurations.finish();

    let listener = TcpListener::bind(listen).await.map_err(|e| {
        ConfigError::other(format!("cannot listen on {listen}: {e}; is another server running? choose another port with --secure-port"))
    })?;
    let address = listener.local_addr().map_err(ConfigError::other)?;

    let options = Options { quota: store_quota, shard_end: keys::prefix_end, ..Options::default() };
    let store = match data {
        Data::Memory => Store::open(Memory::new(), options).await,
        Data::Folder(folder) => Store::open(Embedded::at(folder).migrating(keys::migrate), options).await,
    }
    .map_err(ConfigError::other)?;

    let unreadable = {
        let store = store.clone();
        let scanned = tokio::task::spawn_blocking(move || Unreadable::scan(&store)).await;
        Arc::new(scanned.map_err(ConfigError::other)?)
    };
    let index = Arc::new(rbac::RbacIndex::default());
    let roles = follow_rbac(&store, &unreadable, &index);
    let node = authorization.uses(AuthorizerType::Node).then(|| follow_nodes(&store, &unreadable));
    let authorization_metrics =
        AuthorizationMetrics::new(metrics.registry(), &identity::id()).map_err(ConfigError::other)?;
    let (authorizer, parts, files) = authorization.stand(&index, node, Arc::clone(&authorization_metrics))?;
    let authorizer = Arc::new(ArcSwap::from_pointee(authorizer));
    let internal = ChainStep { name: "rbac".into(), authorizer: Authorizer::Rbac(Arc::clone(&index)) };
    let internal_authorizer = AuthorizationChain::new(vec![internal]).map_err(ConfigError::other)?;
    let policies = Informers::start(&store, &unreadable, validating, mutating);
    let token_metrics = TokenMetrics::new(metrics.registry()).map_err(ConfigError::other)?;
    // Without an issuer there are no tokens to show.
    let webhook_tokens = (webhook_tokens && tokens.is_some()).then(|| WebhookTokens::new(token_metrics));
    let webhooks = RegisteredWebhooks::start(
        &store,
        &unreadable,
        webhook_credentials,
        webhook_tokens.as_ref(),
        &meter,
        &mut stages,
    );
    let account = webhook_tokens.as_ref().map(|tokens| account::watch(&store, &unreadable, tokens));
    let admission = AdmissionChain::new(&enable_admission, &disable_admission, &stages)
        .map_err(ConfigError::other)?
        .with_metrics(Arc::clone(&meter));
    let (stop, stopped) = watch::channel(false);
    follow_authorization(authorization, parts, files, &authorizer, stopped.clone());
    let advertise = advertise.unwrap_or(address.ip());
    let advertised = SocketAddr::new(advertise, address.port()).to_string();
    let (tokens, verifier) = match tokens {
        Some(config) => Tokens::new(config, &store, &advertised, webhook_tokens.is_some())
            .map(|(tokens, verifier)| (Some(tokens), Some(verifier)))?,
        None => (None, None),
    };
    let audit = Audit::open(audit, metrics.registry())?;
    let catalog = Catalog::new(served.clone());
    let (crds, follower) = crate::crd_controller::load(&store, &unreadable, &catalog);
    let standings = Arc::new(manifests::Standings::of(&folders));
    let aggregation =
        Aggregation::start(&store, &unreadable, proxy_client.as_ref(), redirects, metrics.registry())?;
    let heavy = crate::heavy::HeavyLane::start(metrics.registry()).map_err(ConfigError::other)?;
    let shared_frames = SharedFrames::new(metrics.registry()).map_err(ConfigError::other)?;
    let progress = Arc::new(Progress::default());
    let flow_control = priority_and_fairness
        .then(|| {
            let limits = (max_in_flight, max_mutating_in_flight);
            flow_control_of(limits, request_timeout, (&store, &unreadable), &catalog, &metrics)
        })
        .transpose()?;
    let state = Arc::new(State {
        heavy,
        shared_frames,
        openapi_builders: OpenApiBuilders::default(),
        health: Health::new(
            store.clone(),
            Arc::clone(&standings),
            Arc::clone(&progress),
            Arc::clone(&unreadable),
        )
        .map_err(ConfigError::other)?,
        unreadable,
        bootstrap: progress,
        started: i64::try_from(started.as_secs()).unwrap_or(i64::MAX),
        flags,
        store,
        openapi: OpenApi::new(served, "1.37")
            .with_issuer(tokens.as_ref().is_some_and(|t| t.configuration.is_some())),
        catalog,
        conversions: crate::conversion::Targets::default(),
        crds,
        aggregation,
        impersonations: authn::impersonation::LastModes::default(),
        authenticator: ArcSwap::from_pointee(Authenticator {
            front_proxy,
            client_certificates: trust.clients.is_some(),
            static_tokens: static_tokens.map(Arc::new),
            service_accounts: verifier,
            anonymous,
            observer: OptionalObserver::by(
                Arc::clone(&metrics.authentication) as Arc<dyn authn::TokenObserver>
            ),
            ..Authenticator::default()
        }),
        trust: ArcSwap::from_pointee(trust),
        authorizer,
        internal_authorizer: Arc::new(internal_authorizer),
        authorization_metrics,
        rbac: Arc::clone(&index),
        admission,
        parsed: crate::cluster::Parsed::default(),
        shown: crate::cluster::Shown::default(),
        quotas,
        flow_control,
        seats: Seats::new(max_in_flight, max_mutating_in_flight),
        body_budget: ByteBudget::for_bodies(metrics.registry()).map_err(ConfigError::other)?,
        answer_budget: ByteBudget::for_answers(metrics.registry()).map_err(ConfigError::other)?,
        metrics,
        audit,
        addresses: Addresses::new(&service_ranges),
        under_way: Arc::new(Semaphore::new(MAX_UNDER_WAY as usize)),
        allow_privileged,
        admin_access,
        emulated_minor,
        static_names: !static_manifests,
        request_timeout,
        advertised,
        tokens,
        webhook_tokens,
        roles,
        policies,
        webhooks,
        manifests: standings,
        meter,
        stop: stopped.clone(),
    });
    state.quotas.attach(&state);
    provision.attach(&state);
    state.webhooks.attach(&state);
    if let Some(tokens) = &state.webhook_tokens {
        tokens.attach(&state);
    }
    for entry in &state.store.snapshot(keys::SERVICES).entries {
        match encode::tree(entry) {
            Ok(service) => state.addresses.load(&service),
            // What it has must not be handed out again, and nobody knows what that is.
            Err(why) => state.unreadable.note(entry, &why, Some(Concern::Addresses)),
        }
    }
    state.classify_unreadable();
    // Before anything is written or answered, by anybody.
    let manifests = manifests_in_force(folders, strict_manifests, &state)?;
    let restore_deleted = bootstrap::restore_deleted(&state, address.port(), advertise);
    let trust_changed = Arc::new(Notify::new());
    crate::crd_controller::start(&state, follower);
    // Both at once, so that their writes share commits.
    aggregation::run(&state, aggregation::register::Registrar::new(&state));
    if flow_control::is_served(&state.catalog) {
        flow_control::begin(&state.bootstrap);
        tokio::spawn(flow_control::maintain(Arc::clone(&state), stopped.clone()));
    }
    tokio::spawn(bootstrapping(Arc::clone(&state), address.port(), advertise, Arc::clone(&trust_changed)));

    let tls_config = Arc::new(ArcSwap::from_pointee(tls_config));
    let originals = reload::Originals { serving: &serving, client_ca, proxy_ca, proxy_client };
    let followed = reload::of_config(followed, originals, &state, &trust_changed, (&tls_config, tls_options));
    tokio::spawn(reload::follow(followed, Arc::clone(&state.metrics.authentication), stopped.clone()));
    tokio::spawn(manifests.follow(stopped.clone()));
    if let Some((control, _)) = &state.flow_control {
        tokio::spawn(flow_control::run(Arc::clone(&state), Arc::clone(control), stopped.clone()));
    }
    tokio::spawn(restore_deleted.run(Arc::clone(&state), stopped.clone()));
    if let Some(account) = account {
        tokio::spawn(account.run(Arc::clone(&state), stopped.clone()));
    }
    let _ = tokio::time::timeout(SERVE_AFTER, state.bootstrap.settled()).await;
    let connections = ConnectionMetrics::new(state.metrics.registry()).map_err(ConfigError::other)?;
    let serving =
        tokio::spawn(accept::serve(listener, tls_config, limits, connections, Arc::clone(&state), stopped));
    info!(%address, connections = limits.connections, "serving");
    let _ = tokio::time::timeout(RETURN_AFTER, state.bootstrap.settled()).await;
    let controllers = controllers.then(|| {
        let status = status::start(&state);
        let others = crate::controllers::start(&state, root_ca, scheduler, event_ttl);
        tokio::spawn(async move {
            let _ = tokio::join!(status, others);
        })
    });
    Ok(Running { address, state, stop, serving, controllers })
}

/// Writes what every cluster begins with, and says when all of it is there.
async fn bootstrapping(state: Arc<State>, port: u16, advertise: IpAddr, trust_changed: Arc<Notify>) {
    bootstrap::run(&state, port, advertise).await;
    published::publish(&state, trust_changed, state.stopping());
    state.bootstrap.set_complete();
    let mut stop = state.stopping();
    tokio::select! {
        () = state.bootstrap.done_all() => info!("ready"),
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Limits requests by the objects that are stored, with as many seats as both limits together.
fn flow_control_of(
    (reading, mutating): (usize, usize),
    request_timeout: Duration,
    (store, unreadable): (&Store, &Arc<Unreadable>),
    catalog: &Catalog,
    metrics: &Metrics,
) -> Result<(Arc<FlowControl>, flow_control::Informers), ConfigError> {
    let seats = reading.saturating_add(mutating);
    if seats == 0 {
        let words = format!(
            "invalid configuration: MaxRequestsInFlight={reading} and MaxMutatingRequestsInFlight={mutating}; they must add up to something positive"
        );
        return Err(ConfigError::flag(
            "max-requests-inflight",
            "with API Priority and Fairness, it and --max-mutating-requests-inflight are the number of seats together and must not both be 0; to have no limit, add --enable-priority-and-fairness=false",
        )
        .in_kubernetes_words(words));
    }
    if !flow_control::is_served(catalog) {
        return Err(ConfigError::flag(
            "runtime-config",
            "API Priority and Fairness needs flowcontrol.apiserver.k8s.io/v1; serve it, or add --enable-priority-and-fairness=false",
        ));
    }
    let control = FlowControl::new(seats, request_timeout);
    let followers = flow_control::Informers::start(&control, store, unreadable);
    let collector = FlowControlMetrics::new(&control).map_err(ConfigError::other)?;
    metrics.registry().register(Box::new(collector)).map_err(ConfigError::other)?;
    Ok((control, followers))
}

/// The kinds of a running server, built-in and custom.
struct ServedKinds(Weak<State>);

impl TypeCheckKinds for ServedKinds {
    fn kinds_of(&self, group: &str, version: &str, resource: &str) -> Vec<GroupVersionKind> {
        self.0.upgrade().map(|state| state.kinds_of(group, version, resource)).unwrap_or_default()
    }

    fn schema_of(&self, kind: &GroupVersionKind) -> Option<Link> {
        self.0.upgrade()?.schema_of(kind)
    }
}

/// Loads the folders of static manifests and puts them in force.
fn manifests_in_force(
    folders: Vec<(ManifestSet, PathBuf)>,
    strict: bool,
    state: &Arc<State>,
) -> Result<manifests::InForce, ConfigError> {
    let weak = Arc::downgrade(state);
    let apply = move |set: ManifestSet, loaded: &LoadedManifests| {
        let Some(state) = weak.upgrade() else { return };
        // Compiled first, and then replaced as one: no request meets some of it.
        let validating = matches!(set, ManifestSet::ValidatingPolicies | ManifestSet::Mixed)
            .then(|| state.policies.fix_validating(loaded));
        let mutating = matches!(set, ManifestSet::MutatingPolicies | ManifestSet::Mixed)
            .then(|| state.policies.fix_mutating(loaded));
        let _replacing = state.admission.lock_replacement();
        validating.into_iter().chain(mutating).for_each(|fixed| fixed());
        if matches!(set, ManifestSet::ValidatingWebhooks | ManifestSet::Mixed) {
            state.webhooks.fix_validating(loaded);
        }
        if matches!(set, ManifestSet::MutatingWebhooks | ManifestSet::Mixed) {
            state.webhooks.fix_mutating(loaded);
        }
    };
    let metrics = ManifestMetrics::new(state.metrics.registry(), identity::hash(identity::id().as_bytes()))
        .map_err(ConfigError::other)?;
    let kinds = Arc::new(ServedKinds(Arc::downgrade(state)));
    let means = manifests::Means { apply: Arc::new(apply), kinds, strict };
    manifests::InForce::start(folders, means, metrics, Arc::clone(&state.manifests))
}

/// Keeps the index of roles and bindings at what is stored. What an object is follows from where it is stored.
fn follow_rbac(store: &Store, unreadable: &Arc<Unreadable>, index: &Arc<rbac::RbacIndex>) -> RoleInformers {
    let followed = |plural, prefix, kind: rbac::RbacKind| {
        let (notes, index) = (Notes::of(unreadable, Concern::Authorization), Arc::clone(index));
        (plural, start_informer(store, prefix, notes, move |old, new| index.apply(kind, old, new)))
    };
    RoleInformers([
        followed("roles", keys::ROLES, rbac::RbacKind::Role),
        followed("clusterroles", keys::CLUSTER_ROLES, rbac::RbacKind::ClusterRole),
        followed("rolebindings", keys::ROLE_BINDINGS, rbac::RbacKind::RoleBinding),
        followed("clusterrolebindings", keys::CLUSTER_ROLE_BINDINGS, rbac::RbacKind::ClusterRoleBinding),
    ])
}

/// What the Node authorizer needs to know.
const NODE_SCOPES: [(&str, node::GraphKind); 5] = [
    (keys::PODS, node::GraphKind::Pod),
    (keys::PERSISTENT_VOLUMES, node::GraphKind::PersistentVolume),
    (keys::VOLUME_ATTACHMENTS, node::GraphKind::VolumeAttachment),
    (keys::RESOURCE_SLICES, node::GraphKind::ResourceSlice),
    (keys::POD_CERTIFICATE_REQUESTS, node::GraphKind::PodCertificateRequest),
];

/// Keeps the graph of what nodes need at what is stored.
fn follow_nodes(store: &Store, unreadable: &Arc<Unreadable>) -> Arc<NodeAuthorizer> {
    let nodes = Arc::new(NodeAuthorizer::new());
    for (prefix, kind) in NODE_SCOPES {
        let authorizer = Arc::clone(&nodes);
        let notes = Notes::of(unreadable, Concern::Authorization);
        start_informer(store, prefix, notes, move |old, new| authorizer.graph().apply(kind, old, new));
    }
    nodes
}
