//! The admission plugin ResourceQuota: charges an object to its quotas before it is stored, and recalculates their usage.
//!
//! INVARIANT: per namespace only one request of this server at a time reads the quotas and writes their usage, and usage is not
//! recalculated while this server has an object that passed the plugin and is not stored yet. Usage is written by compare-and-swap, so
//! that charges of several servers on one store add up. So concurrent writes never exceed a quota.
//!
//! A server does not know the writes of other servers that are in flight. On a shared store the time between a charge and the end of its
//! write is limited, and usage is released only if the quota has not changed for longer than that ([`in_flight`]). A full quota is not
//! charged, so this does not starve. New limits are enforced before they are counted: first they are written to the status without usage,
//! so that every server refuses what they limit; after the same time the usage is counted.
//!
//! Time alone does not bound a write that etcd executes although the server has canceled it, for example because its request was in the
//! buffers of a member that was stopped. Therefore charged writes are fenced ([`fence`]). A write that was admitted before any quota
//! limited it has no fence; if it takes etcd longer than [`in_flight::SETTLE`], the first count may lack it.
//!
//! A quota may have tens of thousands of limits, and count many megabytes of objects. Charging and counting it then runs in the heavy lane,
//! with an account of the namespace. A large count runs twice: before the turn of the namespace is taken, and again while no write can
//! begin, when only the objects that have changed meanwhile are decoded.

mod fence;
mod in_flight;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::client::LoopbackClient;
use crate::consistent_reads::{self, RecentCatchUp};
use crate::loopback::Loopback;
use crate::state::State;
use crate::write::TimeMark;
use admission::plugins::resource_quota::{self, CountedUsage, LimitedResource, QuotaCharge, UsageCount};
use admission::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AsyncPlugin, ClusterView, RestMapping,
    VersionedObject, WriteFence,
};
use api::{Status, meta};
use authn::InternalIdentity;
use catalog::encode;
use catalog::keys;
use controllers::RecountOutcome;
use heavy_lane::{Effort, LARGE, LaneAccount};
use in_flight::{ChargeState, InFlightWrite, Namespace};
use storage::ListAt;
use value::{Map, Str, Value};

/// Attempts to write a charge. Conflicts with other writers of the quota are retried.
const ATTEMPTS: usize = 4;
/// Time limit for charging a request, including the wait for other requests in the namespace.
const PATIENCE: Duration = Duration::from_secs(10);
/// Delay of a recount while this server has writes in flight, and after a conflict.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// If the map has more namespaces, those that no request uses are removed.
const MAX_IDLE: usize = 1024;

/// Working on one limit of a quota costs about as much as processing this many bytes of an object.
const BYTES_OF_LIMIT: usize = 64;

const NOT_READY: &str = "the server is not ready to check quotas";

/// The admission plugin ResourceQuota, and the recount that its controller triggers.
pub(crate) struct ResourceQuotaPlugin {
    loopback: Loopback,
    /// The resources that may be used only where a quota covers them (`limitedResources`).
    limited: Vec<LimitedResource>,
    namespaces: Mutex<HashMap<Str, Arc<Namespace>>>,
    /// The last time at which memory was known to have every change of quotas.
    recent: RecentCatchUp,
}

/// The quotas of a namespace, with every change that any server has made up to the time `at`.
struct KnownQuotas {
    quotas: Vec<Arc<Value>>,
    at: TimeMark,
    /// False if memory is behind, so that they were read from the store.
    is_memory_current: bool,
}

impl ResourceQuotaPlugin {
    pub(crate) fn new(limited: Vec<LimitedResource>, loopback: Loopback) -> Self {
        ResourceQuotaPlugin {
            loopback,
            limited,
            namespaces: Mutex::default(),
            recent: RecentCatchUp::default(),
        }
    }

    fn namespace(&self, name: &str) -> Arc<Namespace> {
        let mut all = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > MAX_IDLE {
            all.retain(|_, namespace| Arc::strong_count(namespace) > 1);
        }
        Arc::clone(all.entry(name.into()).or_default())
    }

    async fn quotas(&self, namespace: &str, cluster: &dyn ClusterView) -> Result<KnownQuotas, Status> {
        let in_memory = || cluster.list("", "resourcequotas", namespace);
        let server = self.loopback.server(NOT_READY)?;
        let store = &server.storage.store;
        let Some(scope) = quotas_of(namespace).filter(|_| store.is_shared()) else {
            return Ok(KnownQuotas { quotas: in_memory(), at: TimeMark::now(), is_memory_current: true });
        };
        let (at, behind) = self.recent.catch_up(store.of(&scope)).await?;
        let Some(revision) = behind else {
            return Ok(KnownQuotas { quotas: in_memory(), at, is_memory_current: true });
        };
        let entries = consistent_reads::entries_at(store, &scope, ListAt::Exact(revision)).await?;
        let quotas: Result<_, Status> =
            entries.iter().map(|entry| encode::tree(entry).map(Arc::new)).collect();
        Ok(KnownQuotas { quotas: quotas?, at, is_memory_current: false })
    }

    /// Asks the store whether a namespace has a quota.
    async fn has_quota(&self, namespace: &str) -> Result<bool, Status> {
        let server = self.loopback.server(NOT_READY)?;
        let Some(scope) = quotas_of(namespace) else { return Ok(false) };
        Ok(!consistent_reads::entries(&server.storage.store, &scope).await?.is_empty())
    }

    fn in_flight(
        &self,
        name: &str,
        namespace: &Arc<Namespace>,
        state: ChargeState,
        since: TimeMark,
    ) -> InFlightWrite {
        InFlightWrite::new((name.into(), Arc::clone(namespace)), state, since, self.loopback.clone())
    }

    async fn admit(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let known = self.quotas(&attributes.namespace, cluster).await?;
        if known.quotas.is_empty() && self.limited.is_empty() {
            if attributes.dry_run {
                return Ok(());
            }
            let namespace = self.namespace(&attributes.namespace);
            let write = self.in_flight(&attributes.namespace, &namespace, ChargeState::Unlimited, known.at);
            // A recount waits for the write from here on, and counts a quota only if it is in memory.
            if cluster.list("", "resourcequotas", &attributes.namespace).is_empty() {
                notes.guard_write(Arc::new(write));
                return Ok(());
            }
        }
        // Boxed: it holds the future of a request that updates a quota, and few writes need it.
        Box::pin(self.charge(attributes, object, cluster, (known, notes))).await
    }

    async fn charge(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        cluster: &dyn ClusterView,
        (known, notes): (KnownQuotas, &mut AdmissionNotes),
    ) -> Result<(), Status> {
        heavy_lane::enter_lane(known.quotas.iter().map(|quota| work_on(quota)).sum()).await;
        // Requests of other users wait for the turn of the namespace, so this one must not wait for its own in the heavy lane.
        let charge = self.charge_in_turn(attributes, object, cluster, (known, notes));
        heavy_lane::without_turn(charge).await
    }

    /// Waits for the turn of the namespace and charges.
    async fn charge_in_turn(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        cluster: &dyn ClusterView,
        (known, notes): (KnownQuotas, &mut AdmissionNotes),
    ) -> Result<(), Status> {
        let KnownQuotas { mut quotas, at: known, is_memory_current } = known;
        let namespace = self.namespace(&attributes.namespace);
        let _turn = namespace.turn.lock().await;
        if is_memory_current {
            // Other requests of this server may have charged them meanwhile.
            quotas = cluster.list("", "resourcequotas", &attributes.namespace);
        }
        let guard = |state, since, fence| {
            Arc::new(self.in_flight(&attributes.namespace, &namespace, state, since).fenced(fence))
        };
        let mut lost = None;
        let mut charged: Option<TimeMark> = None;
        let mut fence = None;
        for attempt in 0..ATTEMPTS {
            let limited = if lost.is_none() { self.limited.as_slice() } else { &[] };
            let checked = resource_quota::check(attributes, object, &quotas, limited, cluster);
            let charges = match checked {
                // Another server may have released usage that this one does not know of.
                Err(_)
                    if attempt == 0 && is_memory_current && self.catch_up(&attributes.namespace).await? =>
                {
                    quotas = cluster.list("", "resourcequotas", &attributes.namespace);
                    resource_quota::check(attributes, object, &quotas, limited, cluster)?
                }
                checked => checked?,
            };
            if attributes.dry_run {
                return Ok(());
            }
            if charges.is_empty() {
                let (state, since) = match charged {
                    Some(since) => (ChargeState::Charged, since),
                    None => (ChargeState::Unlimited, known),
                };
                notes.guard_write(guard(state, since, fence));
                return Ok(());
            }
            if fence.is_none() {
                fence = self.fence(&attributes.namespace).await?;
            }
            let since = *charged.get_or_insert_with(TimeMark::now);
            let mut again = Vec::new();
            for charge in charges {
                match self.write(&charge).await {
                    Ok(()) => {}
                    // A deleted quota limits nothing.
                    Err(status) if status.code() == 404 => {}
                    Err(status) if status.code() == 409 => {
                        again.push(meta::name(&charge.quota).to_owned());
                        lost = Some(status);
                    }
                    Err(status) => return Err(status),
                }
            }
            if again.is_empty() {
                notes.guard_write(guard(ChargeState::Charged, since, fence));
                return Ok(());
            }
            // Charges that were written stay. The quotas with a conflict are read again and charged again.
            quotas = self.quotas(&attributes.namespace, cluster).await?.quotas;
            quotas.retain(|quota| again.iter().any(|name| name == meta::name(quota)));
        }
        Err(lost.unwrap_or_else(|| Status::internal("the quota could not be charged")))
    }

    /// The fence that a write must read before it is charged; `None` on a store that only this server writes to.
    async fn fence(&self, namespace: &str) -> Result<Option<WriteFence>, Status> {
        let server = self.loopback.server(NOT_READY)?;
        let store = &server.storage.store;
        if store.is_shared() { fence::current(store, namespace).await.map(Some) } else { Ok(None) }
    }

    /// Waits until the quotas in memory are current; false if they are still not. False on a store that only this server writes to, where
    /// they always are.
    async fn catch_up(&self, namespace: &str) -> Result<bool, Status> {
        let server = self.loopback.server(NOT_READY)?;
        let store = &server.storage.store;
        match quotas_of(namespace).filter(|_| store.is_shared()) {
            Some(scope) => Ok(consistent_reads::catch_up(store.of(&scope)).await?.is_none()),
            None => Ok(false),
        }
    }

    async fn write(&self, charge: &QuotaCharge) -> Result<(), Status> {
        #[cfg(feature = "planted-bugs")]
        if etcd::planted::is_planted(etcd::planted::SKIP_CHARGE) {
            return Ok(());
        }
        let client =
            self.loopback.client(NOT_READY)?.with_account(lane_account(meta::namespace(&charge.quota)));
        let mut quota = Value::clone(&charge.quota);
        quota.set_at(&["status", "used"], charge.used.clone());
        client.update(&status_path(&quota), &quota).await.map(drop)
    }

    /// Recalculates the usage of a quota and writes it to the status.
    pub(crate) async fn recount(&self, namespace: &str, name: &str) -> Result<RecountOutcome, Status> {
        let server = self.loopback.server(NOT_READY)?;
        let is_shared = server.storage.store.is_shared();
        let own = self.namespace(namespace);
        let mut settled = None;
        if is_shared {
            self.catch_up(namespace).await?;
            let Some(quota) = server.object("", "resourcequotas", namespace, name) else {
                own.forget(name);
                return Ok(RecountOutcome::Done);
            };
            if let Some(status) = status_of_new_limits(&quota) {
                write_status(&server, &quota, status).await?;
                return Ok(RecountOutcome::Retry(RETRY_DELAY));
            }
            let resource_version = meta::resource_version(&quota).to_owned();
            let wait = own.unsettled_for(name, &resource_version);
            if !wait.is_zero() {
                return Ok(RecountOutcome::Retry(wait));
            }
            settled = Some(resource_version);
        }
        let Some(before) = server.object("", "resourcequotas", namespace, name) else {
            return Ok(RecountOutcome::Done);
        };
        let counted = count_ahead(&server, &before).await?;
        let _turn = own.turn.lock().await;
        if !own.drain().await {
            return Ok(RecountOutcome::Retry(RETRY_DELAY));
        }
        consistent_reads::require_current(&server.storage.store).await?;
        let Some(quota) = server.object("", "resourcequotas", namespace, name) else {
            return Ok(RecountOutcome::Done);
        };
        if is_shared && settled.as_deref() != Some(meta::resource_version(&quota)) {
            return Ok(RecountOutcome::Retry(RETRY_DELAY));
        }
        // What is counted belongs to other limits.
        if quota.at(&["spec"]) != before.at(&["spec"]) {
            return Ok(RecountOutcome::Retry(RETRY_DELAY));
        }
        let (mut status, counted) = count(&server, &quota, counted, CountPhase::Final).await?;
        if is_shared && status.is_some() {
            fence::advance(&server.storage.store, namespace).await?;
            consistent_reads::require_current(&server.storage.store).await?;
            (status, _) = count(&server, &quota, counted, CountPhase::Final).await?;
        }
        let written = match status {
            Some(status) => write_status(&server, &quota, status).await?,
            None => StatusWritten::As(meta::resource_version(&quota).to_owned()),
        };
        Ok(match written {
            StatusWritten::As(resource_version) => {
                own.set_settled(name, &resource_version);
                RecountOutcome::Done
            }
            StatusWritten::Gone => RecountOutcome::Done,
            StatusWritten::Conflict => RecountOutcome::Retry(RETRY_DELAY),
        })
    }
}

/// When the objects of a quota are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountPhase {
    /// Before the final count, while writes continue. The final count reuses the usage of each object; the status is discarded, because it
    /// is outdated. Skipped if little is to be decoded.
    Ahead,
    /// While no write is in flight.
    Final,
}

/// Decodes the objects that are to be counted if they are many bytes, so that writes wait a shorter time for the final count.
async fn count_ahead(server: &Arc<State>, quota: &Arc<Value>) -> Result<CountedUsage, Status> {
    Ok(count(server, quota, CountedUsage::default(), CountPhase::Ahead).await?.1)
}

/// Counts the usage of a quota: the new status, or `None` if it has it already. Runs in the heavy lane if the quota has many limits, or if
/// many stored bytes are to be decoded.
async fn count(
    server: &Arc<State>,
    quota: &Arc<Value>,
    mut counted: CountedUsage,
    phase: CountPhase,
) -> Result<(Option<Value>, CountedUsage), Status> {
    let effort = Effort::default();
    effort.set_account(lane_account(meta::namespace(quota)));
    let (inner, of_work, quota) = (effort.clone(), Arc::clone(server), Arc::clone(quota));
    let work = Box::pin(async move {
        let limits = work_on(&quota);
        inner.enter_lane(limits).await;
        let kinds = of_work.apis.catalog.stored_in_preferred_version();
        let namespaced = kinds.iter().filter(|kind| kind.namespaced);
        let resources: Vec<RestMapping> = namespaced.map(|kind| crate::cluster::rest_mapping(kind)).collect();
        let recount = UsageCount::new(&quota, &resources, &*of_work);
        let work = recount.stored_bytes(&counted).saturating_add(limits);
        if phase == CountPhase::Ahead && work <= LARGE {
            return (None, counted);
        }
        inner.enter_lane(work).await;
        let status = recount.status(&mut counted, of_work.now());
        (status, counted)
    });
    let done = server.serving.heavy.drive(&effort, None, work).await;
    done.ok_or_else(|| Status::internal("the usage of the quota could not be counted"))
}

/// The work that the limits of a quota cause, as bytes of an object.
fn work_on(quota: &Value) -> usize {
    let limits = |path: &[&str]| quota.at(path).and_then(Value::as_map).map_or(0, Map::len);
    let most = limits(&["spec", "hard"]).max(limits(&["status", "hard"]));
    most.saturating_mul(BYTES_OF_LIMIT)
}

/// The account that work on the quotas of a namespace has in the heavy lane.
fn lane_account(namespace: &str) -> LaneAccount {
    LaneAccount { owner: namespace.into(), class: Some("quotas") }
}

enum StatusWritten {
    /// Now the quota has this `resourceVersion`.
    As(String),
    Gone,
    Conflict,
}

/// Writes the status of a quota as its controller.
async fn write_status(server: &Arc<State>, quota: &Value, status: Value) -> Result<StatusWritten, Status> {
    let mut quota = quota.clone();
    quota.set_at(&["status"], status);
    let identity = InternalIdentity::ServiceAccount {
        namespace: api::namespaces::SYSTEM,
        name: controllers::QUOTA_CONTROLLER,
    };
    let account = lane_account(meta::namespace(&quota));
    let client = LoopbackClient::new(Arc::clone(server), identity).with_account(account);
    match client.update(&status_path(&quota), &quota).await {
        Ok(updated) => Ok(StatusWritten::As(meta::resource_version(&updated).to_owned())),
        Err(status) if status.code() == 404 => Ok(StatusWritten::Gone),
        Err(status) if status.code() == 409 => Ok(StatusWritten::Conflict),
        Err(status) => Err(status),
    }
}

/// The status with which the limits of a changed quota are enforced at once: limits that are new have no usage, so that no server admits
/// what they limit. `None` if the status has the limits already.
fn status_of_new_limits(quota: &Value) -> Option<Value> {
    let map_at = |path: &[&str]| match quota.at(path) {
        Some(Value::Map(map)) => map.clone(),
        _ => Map::new(),
    };
    let (wanted, enforced) = (map_at(&["spec", "hard"]), map_at(&["status", "hard"]));
    if wanted == enforced {
        return None;
    }
    let mut used = map_at(&["status", "used"]);
    used.retain(|name, _| wanted.get(name).is_some() && enforced.get(name).is_some());
    let mut status = Value::map([("hard", Value::Map(wanted))]);
    if !used.is_empty() {
        status.set_at(&["used"], Value::Map(used));
    }
    Some(status)
}

/// The storage directory of the quotas of a namespace.
fn quotas_of(namespace: &str) -> Option<String> {
    keys::built_in("", "resourcequotas").map(|prefix| keys::in_namespace(prefix, namespace))
}

fn status_path(quota: &Value) -> String {
    format!("/api/v1/namespaces/{}/resourcequotas/{}/status", meta::namespace(quota), meta::name(quota))
}

impl AsyncPlugin for ResourceQuotaPlugin {
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        notes: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let object = object.stored().filter(|object| resource_quota::affects_quota(attributes, Some(object)));
        match object {
            Some(object) => Box::pin(async move {
                let admitted = self.admit(attributes, object, cluster, notes);
                tokio::time::timeout(PATIENCE, admitted)
                    .await
                    .unwrap_or_else(|_| Err(Status::internal("resource quota evaluation timed out")))
            }),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }
}
