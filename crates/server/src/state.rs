//! What the server knows while it runs.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use admission::{AdmissionMetrics, Chain as AdmissionChain};
use api::Status;
use arc_swap::ArcSwap;
use authn::{Authenticator, Caller, Via};
use authz::{Attributes, Chain as AuthorizationChain, Denial, Permit, rbac};
use documents::openapi::OpenApi;
use kinds::{strategy, validation};
use storage::Store;
use tokio::sync::{Semaphore, watch};

use crate::addresses::Addresses;
use crate::admission::informers::Informers;
use crate::admission::quota::Quotas;
use crate::admission::registered::RegisteredWebhooks;
use crate::admission::webhooks::WebhookTokens;
use crate::audit::Audit;
use crate::authorization::AuthorizationMetrics;
use crate::bootstrap::Progress;
use crate::byte_budget::ByteBudget;
use crate::call::Call;
use crate::catalog::{Catalog, ServedResource};
use crate::cluster::Parsed;
use crate::flow_control::{self, FlowControl};
use crate::health::Health;
use crate::informer::RoleInformers;
use crate::manifests::Standings;
use crate::metrics::Metrics;
use crate::seats::Seats;
use crate::tokens::Tokens;
use crate::trust::Trust;
use crate::unreadable::Unreadable;

/// Everything a request may need, built once.
pub struct State {
    /// The store.
    pub store: Store,
    /// What is served.
    pub catalog: Catalog,
    /// Who may call.
    pub authenticator: ArcSwap<Authenticator>,
    /// By which mode callers were last allowed to act as somebody else.
    pub impersonations: authn::impersonation::LastModes,
    /// Whose certificates count.
    pub trust: ArcSwap<Trust>,
    /// Issues service-account tokens.
    pub tokens: Option<Tokens>,
    /// The tokens that are shown to webhooks, if any are.
    pub(crate) webhook_tokens: Option<Arc<WebhookTokens>>,
    /// What they may do.
    pub authorizer: Arc<ArcSwap<AuthorizationChain>>,
    /// What parts of this process may do: their roles alone count. No remote service is asked about them, and no configuration of
    /// the chain can lock the server out of itself.
    pub internal_authorizer: Arc<AuthorizationChain>,
    /// What is counted about that.
    pub authorization_metrics: Arc<AuthorizationMetrics>,
    /// The roles and bindings that are stored, indexed.
    pub rbac: Arc<rbac::RbacIndex>,
    /// What may be stored.
    pub admission: AdmissionChain,
    /// Charges and counts quotas.
    pub(crate) quotas: Arc<Quotas>,
    /// What admission asked for, parsed.
    pub(crate) parsed: Parsed,
    /// What policies are shown of their parameters.
    pub(crate) shown: crate::cluster::Shown,
    /// API Priority and Fairness; without it, [`State::seats`] limits requests.
    pub(crate) flow_control: Option<(Arc<FlowControl>, flow_control::Informers)>,
    /// The in-flight limits.
    pub seats: Seats,
    /// How many bytes of request bodies may be held.
    pub body_budget: Arc<ByteBudget>,
    /// How many bytes of answers may wait for their clients.
    pub answer_budget: Arc<ByteBudget>,
    /// The counters.
    pub metrics: Metrics,
    /// What is recorded of requests, if anything is.
    pub audit: Option<Arc<Audit>>,
    /// The OpenAPI documents, made when asked for.
    pub openapi: OpenApi,
    /// The health checks.
    pub health: Health,
    /// How far bootstrap has come.
    pub(crate) bootstrap: Arc<Progress>,
    /// The stored objects that cannot be read.
    pub(crate) unreadable: Arc<Unreadable>,
    /// Cluster IPs and node ports.
    pub addresses: Addresses,
    /// `--allow-privileged`.
    pub allow_privileged: bool,
    /// The requests that change something and are under way, whether their clients wait or not.
    pub(crate) under_way: Arc<Semaphore>,
    /// The threads for large requests.
    pub(crate) heavy: crate::heavy::HeavyLane,
    /// Limits how many OpenAPI documents are built at a time.
    pub(crate) openapi_builders: crate::handlers::documents::OpenApiBuilders,
    /// Events that several watches want converted.
    pub(crate) shared_frames: crate::handlers::watch::shared_frames::SharedFrames,
    /// `DRAAdminAccess`.
    pub admin_access: bool,
    /// The minor version that is emulated.
    pub emulated_minor: u32,
    /// Whether the names of static manifests may be used: where there are none.
    pub static_names: bool,
    /// How long a request may take.
    pub request_timeout: std::time::Duration,
    /// `host:port` as clients outside are told it.
    pub advertised: String,
    /// The webhooks that convert custom resources.
    pub conversions: crate::conversion::Targets,
    /// How far the custom part of [`State::catalog`] has come.
    pub(crate) crds: crate::crd_controller::CrdProgress,
    /// What is registered with APIServices, here and at other servers.
    pub(crate) aggregation: crate::aggregation::Aggregation,
    /// How far [`State::rbac`] has come.
    pub(crate) roles: RoleInformers,
    /// How far the policies in force have come.
    pub(crate) policies: Informers,
    /// How far the webhooks in force have come.
    pub(crate) webhooks: RegisteredWebhooks,
    /// How the folders of static manifests stand.
    pub(crate) manifests: Arc<Standings>,
    /// The clock and counters of admission.
    pub(crate) meter: Arc<dyn AdmissionMetrics>,
    /// When the server started, in seconds since the epoch.
    pub started: i64,
    /// What it was started with.
    pub flags: Vec<(String, String)>,
    pub(crate) stop: watch::Receiver<bool>,
}

impl State {
    /// Seconds since the epoch.
    pub fn now(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
    }

    /// Turns true when the server stops.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.clone()
    }

    /// What strategies may know of a request.
    pub fn strategy_context(&self, call: &Call) -> strategy::Context {
        let user = call.user();
        strategy::Context {
            now: api::time::Timestamp::from_seconds(call.now).time(),
            caller: strategy::Caller {
                username: user.name.to_string(),
                uid: user.uid.to_string(),
                groups: user.groups.iter().map(ToString::to_string).collect(),
                extra: user
                    .extra
                    .iter()
                    .map(|(k, v)| (k.to_string(), v.iter().map(ToString::to_string).collect()))
                    .collect(),
            },
        }
    }

    /// What validation may know of the server.
    pub fn validation_context(&self, now: i64) -> validation::Context {
        validation::Context {
            allow_privileged: self.allow_privileged,
            now,
            static_names: self.static_names,
            stopwatch: Some(Arc::clone(&self.metrics.custom) as _),
            ..validation::Context::default()
        }
    }

    /// Who decides what a caller may do.
    pub fn chain_for(&self, caller: &Caller) -> Arc<AuthorizationChain> {
        match caller.via() {
            Via::Internal => Arc::clone(&self.internal_authorizer),
            _ => self.authorizer.load_full(),
        }
    }

    /// A PUT that creates needs the permission to create.
    pub async fn authorize_create(&self, call: &Call, kind: &ServedResource) -> Result<Permit, Status> {
        let info = &call.info;
        let attributes = Attributes {
            path: info.path.as_str().into(),
            version: info.version.clone(),
            ..Attributes::resource("create", info.group.clone(), kind.resource.resource.clone())
                .in_namespace(info.namespace.clone())
                .named(info.name.clone())
        };
        self.chain_for(call.caller()).authorize(call.caller(), attributes).await.map_err(|refusal| {
            match refusal {
                Denial::Denied { status, .. } => status,
                // Nothing of what went wrong inside is told.
                Denial::Failed { .. } => Status::internal("the request could not be authorized"),
            }
        })
    }

    /// Waits until a write of `kind` is in force, where it changes what decides: whoever writes or removes a role, a policy, a
    /// webhook or a CRD meets the change in the next request.
    pub(crate) async fn in_force(&self, kind: &ServedResource, revision: u64) {
        // A custom resource decides nothing, whatever its group is called.
        let Some(row) = kind.row() else { return };
        match row.group {
            authz::rbac::GROUP => self.roles.reached(row.plural, revision).await,
            crate::admission::informers::GROUP => {
                self.policies.reached(row.plural, revision).await;
                self.webhooks.reached(row.plural, revision).await;
            }
            "apiextensions.k8s.io" => self.crds.reached(revision).await,
            flowcontrol::bootstrap::GROUP => {
                if let Some((_, followers)) = &self.flow_control {
                    followers.reached(row.plural, revision).await;
                }
            }
            crate::aggregation::GROUP => self.aggregation.reached(revision).await,
            _ => {}
        }
    }
}
