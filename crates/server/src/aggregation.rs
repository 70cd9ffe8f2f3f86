//! API aggregation: proxies requests to the aggregated API servers that `APIService` objects register.
//!
//! One informer keeps [`ApiAggregation`] up to date. A request whose path belongs to an aggregated API server is authenticated
//! and authorized here and then proxied ([`forward`]); admission is left to that server. Background tasks track whether each
//! server is reachable ([`availability`]) and fetch its discovery and OpenAPI documents ([`documents`]) with time and size
//! limits, so a server that hangs delays no request. The groups served locally also get APIServices ([`register`]).

pub(crate) mod availability;
pub(crate) mod documents;
pub(crate) mod forward;
mod metrics;
mod openapi;
pub(crate) mod register;
mod reserved;
mod service;
mod supervise;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::documents::discovery::Registration;
use arc_swap::{ArcSwap, ArcSwapOption};
use kinds::table::Served;
use storage::Store;
use tokio::sync::watch;
use tracing::warn;
use value::{Str, Value};

use crate::config::{ConfigError, Redirects};
use crate::informer::{InformerProgress, UnreadableConcern, start_informer};
use crate::state::State;

use catalog::keys;
use catalog::unreadable::{Concern, Unreadable};
use documents::Documents;
use metrics::AvailabilityMetrics;
use outbound::{AnswerLimit, Forward, ServerTrust};
pub(crate) use reserved::check_service;
use runtime::MetricRegistry;
pub(crate) use service::{ApiService, Remote};
use transport::pki;

pub(crate) const GROUP: &str = "apiregistration.k8s.io";
const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// The APIService of the legacy core group. It covers every path below `/api`.
const CORE: &str = "v1.";

/// All registered APIServices and the documents fetched from aggregated API servers.
pub(crate) struct ApiAggregation {
    registry: Arc<Registry>,
    followed: InformerProgress,
}

/// State shared between the informer, the background tasks and request handling.
struct Registry {
    services: ArcSwap<ApiServices>,
    /// The client certificate presented to aggregated API servers (`--proxy-client-cert-file`).
    identity: ArcSwapOption<outbound::ClientIdentity>,
    /// Held while `services` is copied, changed and swapped.
    changing: Mutex<()>,
    /// Incremented after every change of `services`.
    changed: watch::Sender<u64>,
    documents: Documents,
    /// Limits the documents of aggregated API servers that are being read.
    answers: AnswerLimit,
    metrics: AvailabilityMetrics,
    redirects: Redirects,
    /// The built-in group versions, which no APIService can give to another server.
    served: Served,
    /// Marks the requests that this process proxies: see [`forward::HOP`].
    hop: String,
}

/// One immutable snapshot of all APIServices.
#[derive(Clone, Default)]
struct ApiServices {
    all: BTreeMap<Str, Arc<ApiService>>,
    /// The APIServices of aggregated API servers, by group, then version. Derived from `all`.
    remote: BTreeMap<Str, BTreeMap<Str, Arc<ApiService>>>,
}

impl ApiAggregation {
    /// Loads the stored APIServices and follows them with an informer. Fails if `identity` is not a usable key pair.
    pub(crate) fn start(
        store: &Store,
        unreadable: &Arc<Unreadable>,
        identity: Option<&pki::TlsIdentity>,
        redirects: Redirects,
        served: &Served,
        metrics: &MetricRegistry,
    ) -> Result<Self, ConfigError> {
        let identity = identity.map(|identity| outbound::ClientIdentity {
            certificate: identity.cert_pem.clone().into_bytes(),
            key: identity.key_pem.clone().into_bytes(),
        });
        if let Some(identity) = &identity {
            check(identity).map_err(|why| ConfigError::flag("proxy-client-cert-file", why))?;
        }
        let registry = Arc::new(Registry {
            services: ArcSwap::default(),
            identity: ArcSwapOption::new(identity.map(Arc::new)),
            changing: Mutex::default(),
            changed: watch::Sender::default(),
            documents: Documents::default(),
            answers: AnswerLimit::default(),
            metrics: AvailabilityMetrics::new(metrics).map_err(ConfigError::other)?,
            redirects,
            served: served.clone(),
            hop: runtime::random::uid().as_str().to_owned(),
        });
        let informed = Arc::clone(&registry);
        let notes = UnreadableConcern::of(unreadable, Concern::Registration);
        let followed =
            start_informer(store, keys::API_SERVICES, notes, move |old, new| informed.apply(old, new));
        Ok(ApiAggregation { registry, followed })
    }

    /// Waits until the informer has applied the writes up to `revision`.
    pub(crate) async fn reached(&self, revision: u64) {
        self.followed.reached(revision).await;
    }

    /// The APIService of the aggregated API server that serves `path`; `None` if the path is served locally.
    pub(crate) fn serving(&self, path: &str) -> Option<Arc<ApiService>> {
        let services = self.registry.services.load();
        if services.remote.is_empty() {
            return None;
        }
        let (group, version) = match group_version(path) {
            Some(found) => found,
            None if path.starts_with("/apis/") => return None,
            None => {
                // A group's OpenAPI v3 document is proxied only if an aggregated API server of that group publishes it.
                let below = path.strip_prefix("/openapi/v3/apis/")?;
                let (group, version) = below.split_once('/').unwrap_or((below, ""));
                if self.registry.served.is_served(group, version) {
                    return None;
                }
                let document = format!("apis/{below}");
                let has = |service: &&Arc<ApiService>| {
                    self.documents_of(service).iter().any(|(path, _)| *path == document)
                };
                return services.remote.get(group)?.values().find(has).cloned();
            }
        };
        services.remote.get(group)?.get(version).cloned()
    }

    /// Whether at least one version of the group is served locally.
    fn serves_itself(&self, group: &str) -> bool {
        let services = self.registry.services.load();
        services.all.values().any(|service| service.registration.group == group && service.remote.is_none())
    }

    /// Whether the group has an APIService, local or remote.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.registry.services.load().all.values().any(|service| service.registration.group == group)
    }

    pub(crate) fn registrations(&self) -> Vec<Registration> {
        self.registry.services.load().all.values().map(|service| service.registration.clone()).collect()
    }

    /// Discovery and OpenAPI documents of aggregated API servers, as of the last successful fetch.
    pub(crate) fn documents(&self) -> &Documents {
        &self.registry.documents
    }

    /// The APIServices that aggregated API servers serve.
    pub(crate) fn remotes(&self) -> Vec<Arc<ApiService>> {
        let services = self.registry.services.load();
        services.remote.values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Replaces the client certificate presented to aggregated API servers, and rebuilds their transports.
    pub(crate) fn prove_with(&self, identity: outbound::ClientIdentity) -> Result<(), String> {
        check(&identity)?;
        self.registry.identity.store(Some(Arc::new(identity)));
        self.registry.change(|services| {
            for service in services.all.values_mut() {
                if let Some(remote) = &service.remote {
                    let mut changed = (**service).clone();
                    changed.remote =
                        Some(Remote { transport: self.registry.transport(remote), ..remote.clone() });
                    *service = Arc::new(changed);
                }
            }
        });
        Ok(())
    }

    fn redirects(&self) -> Redirects {
        self.registry.redirects
    }
}

/// The group and version of a path below `/api` (always `v1` of the core group) or `/apis`.
fn group_version(path: &str) -> Option<(&str, &str)> {
    match path.strip_prefix("/apis/") {
        Some(rest) => {
            let (group, rest) = rest.split_once('/')?;
            Some((group, rest.split_once('/').map_or(rest, |(version, _)| version)))
        }
        None => (path == "/api" || path.starts_with("/api/")).then_some(("", "v1")),
    }
}

/// The name of the APIService responsible for a path, `VERSION.GROUP`. It need not exist.
pub(crate) fn service_name(path: &str) -> Option<String> {
    group_version(path).map(|(group, version)| format!("{version}.{group}"))
}

/// Spawns the background tasks: availability and document fetching, and registration of local groups.
pub(crate) fn run(state: &Arc<State>, registrar: register::Registrar) {
    tokio::spawn(supervise::run(Arc::clone(state)));
    tokio::spawn(register::run(registrar));
}

impl Registry {
    fn apply(&self, old: Option<&Value>, new: Option<&Value>) {
        self.change(|services| {
            if let Some(old) = old {
                services.all.remove(api::meta::name(old));
            }
            let Some(new) = new else { return };
            let before = old.and_then(|old| {
                let services = self.services.load();
                services.all.get(api::meta::name(old)).cloned()
            });
            let mut service = ApiService::read(new);
            service.ignore_service_if(|registration| reserved::is_reserved(&self.served, registration));
            if service.ignores_service && before.as_ref().is_none_or(|before| !before.ignores_service) {
                warn!(
                    api_service = %service.name,
                    "spec.service of an APIService is ignored, because this server serves its group version itself; remove spec.service"
                );
            }
            if let Some(remote) = &mut service.remote {
                // Reuse the connection pool unless the endpoint or its trust settings changed, for example on status updates.
                let former = before.as_ref().and_then(|before| before.remote.as_ref());
                remote.transport = match former.filter(|former| former.has_endpoint_of(remote)) {
                    Some(former) => Arc::clone(&former.transport),
                    None => self.transport(remote),
                };
            }
            services.all.insert(service.name.clone(), Arc::new(service));
        });
    }

    fn change(&self, change: impl FnOnce(&mut ApiServices)) {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut services = (**self.services.load()).clone();
        change(&mut services);
        services.remote.clear();
        for service in services.all.values().filter(|service| service.remote.is_some()) {
            let registration = &service.registration;
            // APIServices themselves are always served locally, even if an APIService claims their group.
            if registration.group != GROUP {
                let versions = services.remote.entry(registration.group.clone()).or_default();
                versions.insert(registration.version.clone(), Arc::clone(service));
            }
        }
        self.services.store(Arc::new(services));
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Builds a new connection pool with the trust settings and client certificate for `remote`.
    fn transport(&self, remote: &Remote) -> Arc<Result<Forward, String>> {
        let trust = match (&remote.ca_bundle, remote.insecure) {
            (_, true) => ServerTrust::AnyServer,
            (bundle, false) if bundle.is_empty() => ServerTrust::System,
            (bundle, false) => ServerTrust::Authorities(bundle.clone()),
        };
        let identity = self.identity.load().as_deref().cloned();
        Arc::new(Forward::new(&remote.host(), trust, identity).map_err(|error| error.to_string()))
    }
}

/// Checks that the certificate and key parse and form a usable pair.
fn check(identity: &outbound::ClientIdentity) -> Result<(), String> {
    Forward::new("a.b.svc", ServerTrust::AnyServer, Some(identity.clone()))
        .map(drop)
        .map_err(|error| error.to_string())
}

impl std::fmt::Debug for ApiAggregation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aggregation")
    }
}
