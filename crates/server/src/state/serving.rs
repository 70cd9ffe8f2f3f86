//! Serving: the limits on requests, audit, health, and the threads for expensive requests.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use audit::Audit;
use catalog::Catalog;
use heavy_lane::HeavyLane;
use rustls::ServerConfig;
use tokio::sync::Semaphore;
use transport::byte_budget::ByteBudget;
use transport::long_running::LongRunningRequests;
use transport::tls;

use super::Storage;
use crate::browsers::BrowserConfig;
use crate::config::{ConfigError, ServingConfig, ShutdownConfig};
use crate::flow_control::{self, FlowControl, FlowControlMetrics};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::seats::Seats;
use crate::shutdown::ActiveWatches;

/// More mutating requests than can be in progress: seats and the budget of bodies limit them. They are only counted, so that
/// stopping can wait for them.
pub(crate) const MAX_UNDER_WAY: u32 = u32::MAX;

pub struct Serving {
    pub request_timeout: Duration,
    pub(crate) min_watch_seconds: u64,
    pub(crate) browsers: BrowserConfig,
    /// API Priority and Fairness; without it, [`Serving::seats`] limits requests.
    pub(crate) flow_control: Option<(Arc<FlowControl>, flow_control::FlowControlInformers)>,
    /// The in-flight limits (`--max-requests-inflight`).
    pub seats: Seats,
    /// Bounds the bytes of request bodies that are held in memory.
    pub body_budget: Arc<ByteBudget>,
    /// Bounds the memory of decoded objects.
    pub(crate) object_budget: Arc<ByteBudget>,
    /// Bounds the bytes of responses that wait for their clients.
    pub answer_budget: Arc<ByteBudget>,
    /// The threads for requests that compute much.
    pub(crate) heavy: HeavyLane,
    /// One permit per mutating request in progress, also when its client has gone. Stopping the server waits for all of them.
    pub(crate) under_way: Arc<Semaphore>,
    pub audit: Option<Arc<Audit>>,
    pub health: Health,
    pub shutdown: ShutdownConfig,
    /// The server shuts down and answers new requests with 429.
    pub(crate) is_refusing: AtomicBool,
    pub(crate) watches: ActiveWatches,
    pub(crate) long_running: Arc<LongRunningRequests>,
}

impl ServingConfig {
    pub(crate) fn tls_config(&self) -> Result<ServerConfig, ConfigError> {
        let chain = tls::certificates(self.identity.cert_pem.as_bytes())
            .map_err(|e| ConfigError::flag("tls-cert-file", e))?;
        let key = tls::private_key(self.identity.key_pem.as_bytes())
            .map_err(|e| ConfigError::flag("tls-private-key-file", e))?;
        tls::server_config(chain, key, &self.tls)
    }

    /// Opens the audit log, starts the threads for expensive requests and, with API Priority and Fairness, its informers.
    pub(crate) fn build(
        self,
        storage: &Storage,
        catalog: &Catalog,
        metrics: &Metrics,
        health: Health,
    ) -> Result<Serving, ConfigError> {
        let registry = metrics.registry();
        let flow_control =
            self.priority_and_fairness.then(|| self.flow_control(storage, catalog, metrics)).transpose()?;
        Ok(Serving {
            request_timeout: self.request_timeout,
            min_watch_seconds: self.min_watch_seconds,
            browsers: self.browsers,
            flow_control,
            seats: Seats::new(self.max_in_flight, self.max_mutating_in_flight),
            body_budget: ByteBudget::for_bodies(registry).map_err(ConfigError::other)?,
            object_budget: ByteBudget::for_objects(registry).map_err(ConfigError::other)?,
            answer_budget: ByteBudget::for_answers(registry).map_err(ConfigError::other)?,
            heavy: HeavyLane::start(registry).map_err(ConfigError::other)?,
            under_way: Arc::new(Semaphore::new(MAX_UNDER_WAY as usize)),
            audit: Audit::open(self.audit, registry)?,
            health,
            shutdown: self.shutdown,
            is_refusing: AtomicBool::new(false),
            watches: ActiveWatches::default(),
            long_running: LongRunningRequests::new(registry, &self.limits).map_err(ConfigError::other)?,
        })
    }

    fn flow_control(
        &self,
        storage: &Storage,
        catalog: &Catalog,
        metrics: &Metrics,
    ) -> Result<(Arc<FlowControl>, flow_control::FlowControlInformers), ConfigError> {
        let (reading, mutating) = (self.max_in_flight, self.max_mutating_in_flight);
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
        let control = FlowControl::new(seats, self.request_timeout);
        let informers =
            flow_control::FlowControlInformers::start(&control, &storage.store, &storage.unreadable);
        let collector = FlowControlMetrics::new(&control).map_err(ConfigError::other)?;
        metrics.registry().register(Box::new(collector)).map_err(ConfigError::other)?;
        Ok((control, informers))
    }
}
