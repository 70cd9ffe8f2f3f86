//! The subsystems of a running server.
//!
//! Each subsystem is a file below: a plain struct of public parts, and the function that builds it from its configuration and from
//! the subsystems that it depends on.

mod admission;
mod apis;
mod authentication;
mod authorization;
mod serving;
mod storage;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catalog::ServedResource;
use kinds::strategy;
use kinds::validation;
use runtime::{LogLimit, clock};
use tokio::sync::watch;

use crate::addresses::Addresses;
use crate::bootstrap::Progress;
use crate::call::Call;
use crate::metrics::Metrics;

pub use admission::Admission;
pub(crate) use apis::ApisContext;
pub use apis::ServedApis;
pub(crate) use authentication::AuthenticationContext;
pub use authentication::Authenticators;
pub use authorization::Authorizers;
pub(crate) use serving::MAX_UNDER_WAY;
pub use serving::Serving;
pub use storage::Storage;

/// How long the answer to a stored write waits for the informers to apply the write, so that the next request is decided by it.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The subsystems of a running server. Each is built once, in [`start`](crate::start()), and every request is served from them.
pub struct State {
    pub storage: Storage,
    /// The cluster IPs and node ports of Services.
    pub addresses: Addresses,
    pub apis: ServedApis,
    pub authentication: Authenticators,
    pub authorization: Authorizers,
    pub admission: Admission,
    pub serving: Serving,
    pub metrics: Metrics,
    pub info: ServerInfo,
    /// Which of the objects that every cluster has are not written yet.
    pub(crate) bootstrap: Arc<Progress>,
    pub(crate) draining: watch::Receiver<bool>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Facts about this process that `/version`, `/flagz`, `/statusz` and bootstrap objects show.
pub struct ServerInfo {
    /// `host:port` for clients outside this process.
    pub advertised: String,
    /// The minor version of Kubernetes that is emulated.
    pub emulated_minor: u32,
    /// In seconds since the epoch.
    pub started: i64,
    /// Names and values, for `/flagz`.
    pub flags: Vec<(String, String)>,
}

impl State {
    /// Seconds since the epoch.
    pub fn now(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
    }

    /// Microseconds since the epoch.
    pub fn now_micros(&self) -> i64 {
        clock::now_micros()
    }

    /// Becomes true when the server begins to shut down. It still serves requests, until [`State::stopping`].
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.clone()
    }

    /// Becomes true when the server no longer accepts connections and ends watches.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.clone()
    }

    /// The request attributes that the strategy of a resource may use.
    pub fn strategy_context(&self, call: &Call) -> strategy::StrategyContext {
        let user = call.user();
        strategy::StrategyContext {
            now: api::time::Timestamp::from_seconds(call.now).time(),
            caller: strategy::RequestUserInfo {
                username: user.name.to_string(),
                uid: user.uid.to_string(),
                groups: user.groups.iter().map(ToString::to_string).collect(),
                extra: user
                    .extra
                    .iter()
                    .map(|(k, v)| (k.to_string(), v.iter().map(ToString::to_string).collect()))
                    .collect(),
            },
            features: self.apis.features,
        }
    }

    /// The options of this server that validation depends on. `now` is in seconds since the epoch.
    pub fn validation_context(&self, now: i64) -> validation::ValidationContext {
        validation::ValidationContext {
            allow_privileged: self.apis.allow_privileged,
            now,
            static_names: self.apis.static_names,
            features: self.apis.features,
            stopwatch: Some(Arc::clone(&self.metrics.custom) as _),
            ..validation::ValidationContext::default()
        }
    }

    /// Waits until a write of `kind` at `revision` is in force, where requests are decided by objects of that kind: a client that has
    /// written or deleted a role, a policy, a webhook, a CRD, an APIService, a ServiceCIDR or an object of flow control sees the effect
    /// in its next request. If memory follows the store too slowly for that, the client gets its answer anyway, because the write is stored.
    pub(crate) async fn in_force(&self, kind: &ServedResource, revision: u64) {
        if tokio::time::timeout(IN_FORCE_TIMEOUT, self.informed(kind, revision)).await.is_err() {
            static LOG: LogLimit = LogLimit::with_burst(20);
            let resource = kind.row().map_or("", |row| row.plural);
            let Some(unlogged) = LOG.due() else { return };
            tracing::warn!(
                resource,
                revision,
                unlogged,
                "a stored write is not in force yet, because memory is behind the store; answering its client"
            );
        }
    }

    async fn informed(&self, kind: &ServedResource, revision: u64) {
        // Custom resources do not affect how requests are decided, whatever their group is called.
        let Some(row) = kind.row() else { return };
        match row.group {
            api::groups::RBAC => self.authorization.roles.reached(row.plural, revision).await,
            api::groups::ADMISSION_REGISTRATION => {
                self.admission.policies.reached(row.plural, revision).await;
                self.admission.webhooks.reached(row.plural, revision).await;
            }
            "apiextensions.k8s.io" => self.apis.crds.reached(revision).await,
            api::groups::FLOW_CONTROL => {
                if let Some((_, informers)) = &self.serving.flow_control {
                    informers.reached(row.plural, revision).await;
                }
            }
            "networking.k8s.io" if row.plural == "servicecidrs" => self.addresses.reached(revision).await,
            crate::aggregation::GROUP => self.apis.aggregation.reached(revision).await,
            _ => {}
        }
    }
}
