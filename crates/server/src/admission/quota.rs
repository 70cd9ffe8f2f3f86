//! The admission plugin ResourceQuota: charges an object to its quotas before it is stored, and recalculates their usage.
//!
//! INVARIANT: per namespace only one request of this server at a time reads the quotas and writes their usage, and usage is not
//! recalculated while an object is charged but not stored yet. Usage is written by compare-and-swap, so that charges of several servers
//! on one store add up. So concurrent writes never exceed a quota.
//!
//! A server does not know which objects other servers have charged and not stored yet. So on a shared store usage is released only if
//! nothing was charged for [`SETTLE`], in which every charged object is stored. A full quota is not charged, so this does not starve.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admission::plugins::resource_quota::{self, LimitedResource, QuotaCharge};
use admission::{
    AdmissionAttributes, AdmissionNotes, AsyncPlugin, BoxFuture, ClusterView, RestMapping, VersionedObject,
};
use api::{Status, meta};
use authn::InternalIdentity;
use catalog::keys;
use tokio::sync::Notify;
use value::{Str, Value};

use crate::client::Client;
use crate::fresh;
use crate::loopback::Loopback;
use crate::state::State;

/// The service account in `kube-system` that writes recalculated usage.
const CONTROLLER: &str = "resourcequota-controller";
/// Attempts to write a charge. Conflicts with other writers of the quota are retried.
const ATTEMPTS: usize = 4;
/// Time limit for charging a request, including the wait for other requests in the namespace.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a recount waits for charged objects to be stored.
const DRAIN: Duration = Duration::from_secs(1);
/// How long after the last charge usage is released on a store that other servers charge as well.
const SETTLE: Duration = Duration::from_secs(1);
/// If the map has more namespaces, those that no request uses are removed.
const MAX_IDLE: usize = 1024;

/// The admission plugin ResourceQuota, and the recount that its controller triggers.
pub(crate) struct ResourceQuotaPlugin {
    loopback: Loopback,
    /// The resources that may be used only where a quota covers them (`limitedResources`).
    limited: Vec<LimitedResource>,
    namespaces: Mutex<HashMap<Str, Arc<Namespace>>>,
}

/// Serializes the quota updates of one namespace.
#[derive(Default)]
struct Namespace {
    /// The holder may read and write the quotas of the namespace.
    turn: tokio::sync::Mutex<()>,
    /// Number of requests that are charged but not answered yet.
    under_way: AtomicUsize,
    idle: Notify,
}

/// Guard of a charged request, dropped when the request is answered.
struct ChargedRequest(Arc<Namespace>);

impl ChargedRequest {
    fn new(namespace: Arc<Namespace>) -> Self {
        namespace.under_way.fetch_add(1, Ordering::SeqCst);
        ChargedRequest(namespace)
    }
}

impl Drop for ChargedRequest {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Namespace {
    /// Waits at most [`DRAIN`] until all charged requests are answered, and returns whether they are. The caller holds `turn`, so no
    /// new ones are charged.
    async fn drain(&self) -> bool {
        let drained = async {
            loop {
                let idle = self.idle.notified();
                if self.under_way.load(Ordering::SeqCst) == 0 {
                    return;
                }
                idle.await;
            }
        };
        tokio::time::timeout(DRAIN, drained).await.is_ok()
    }
}

impl ResourceQuotaPlugin {
    pub(crate) fn new(limited: Vec<LimitedResource>, loopback: Loopback) -> Self {
        ResourceQuotaPlugin { loopback, limited, namespaces: Mutex::default() }
    }

    fn namespace(&self, name: &str) -> Arc<Namespace> {
        let mut all = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > MAX_IDLE {
            all.retain(|_, namespace| Arc::strong_count(namespace) > 1);
        }
        Arc::clone(all.entry(name.into()).or_default())
    }

    async fn charge(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let namespace = self.namespace(&attributes.namespace);
        let _turn = namespace.turn.lock().await;
        let mut quotas = cluster.list("", "resourcequotas", &attributes.namespace);
        let mut lost = None;
        for attempt in 0..ATTEMPTS {
            let limited = if lost.is_none() { self.limited.as_slice() } else { &[] };
            let checked = resource_quota::check(attributes, object, &quotas, limited, cluster);
            let charges = match checked {
                // Another server may have released usage that this one does not know of.
                Err(_) if attempt == 0 && self.catch_up(&attributes.namespace).await? => {
                    quotas = cluster.list("", "resourcequotas", &attributes.namespace);
                    resource_quota::check(attributes, object, &quotas, limited, cluster)?
                }
                checked => checked?,
            };
            if attributes.dry_run || charges.is_empty() {
                return Ok(());
            }
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
                notes.keep_until_answered(Box::new(ChargedRequest::new(Arc::clone(&namespace))));
                return Ok(());
            }
            // Charges that were written stay. The quotas with a conflict are read again and charged again.
            quotas = cluster.list("", "resourcequotas", &attributes.namespace);
            quotas.retain(|quota| again.iter().any(|name| name == meta::name(quota)));
        }
        Err(lost.unwrap_or_else(|| Status::internal("the quota could not be charged")))
    }

    /// Waits until the quotas in memory are current. False on a store that only this server writes to, where they always are.
    async fn catch_up(&self, namespace: &str) -> Result<bool, Status> {
        let server = self.loopback.server("the server is not ready to check quotas")?;
        let store = &server.storage.store;
        if let Some(prefix) = keys::built_in("", "resourcequotas").filter(|_| store.is_shared()) {
            fresh::catch_up(store.of(&keys::in_namespace(prefix, namespace))).await?;
        }
        Ok(store.is_shared())
    }

    async fn write(&self, charge: &QuotaCharge) -> Result<(), Status> {
        let client = self.loopback.client("the server is not ready to check quotas")?;
        let mut quota = Value::clone(&charge.quota);
        quota.set_at(&["status", "used"], charge.used.clone());
        client.update(&status_path(&quota), &quota).await.map(drop)
    }

    /// Waits for [`SETTLE`] and returns the revision that the quota had before; `None` for one without usage, which is not charged yet.
    async fn settled(&self, server: &State, namespace: &str, name: &str) -> Result<Option<String>, Status> {
        self.catch_up(namespace).await?;
        let quota = server.object("", "resourcequotas", namespace, name);
        let Some(quota) = quota.filter(|quota| quota.at(&["status", "used"]).is_some()) else {
            return Ok(None);
        };
        tokio::time::sleep(SETTLE).await;
        Ok(Some(meta::resource_version(&quota).to_owned()))
    }

    /// Recalculates the usage of a quota and writes it to the status. `Ok(false)`: objects are being written or the quota has
    /// changed, so the caller must try again later.
    pub(crate) async fn recount(&self, namespace: &str, name: &str) -> Result<bool, Status> {
        let server = self.loopback.server("the server is not ready to check quotas")?;
        let is_shared = server.storage.store.is_shared();
        let settled = if is_shared { self.settled(&server, namespace, name).await? } else { None };
        let own = self.namespace(namespace);
        let _turn = own.turn.lock().await;
        if !own.drain().await {
            return Ok(false);
        }
        if is_shared {
            fresh::catch_up_everywhere(&server.storage.store).await?;
        }
        let Some(quota) = server.object("", "resourcequotas", namespace, name) else { return Ok(true) };
        let is_counted = quota.at(&["status", "used"]).is_some();
        if is_shared && is_counted && settled.as_deref() != Some(meta::resource_version(&quota)) {
            return Ok(false);
        }
        let resources: Vec<RestMapping> = server
            .apis
            .catalog
            .stored_kinds()
            .iter()
            .filter(|kind| kind.namespaced)
            .map(|kind| crate::cluster::rest_mapping(kind))
            .collect();
        let status = resource_quota::recount(&quota, &resources, &*server, server.now());
        let Some(status) = status else { return Ok(true) };
        let mut quota = Value::clone(&quota);
        quota.set_at(&["status"], status);
        let identity = InternalIdentity::ServiceAccount { namespace: "kube-system", name: CONTROLLER };
        match Client::new(Arc::clone(&server), identity).update(&status_path(&quota), &quota).await {
            Ok(_) => Ok(true),
            Err(status) if status.code() == 404 => Ok(true),
            Err(status) if status.code() == 409 => Ok(false),
            Err(status) => Err(status),
        }
    }
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
    ) -> BoxFuture<'a, Result<(), Status>> {
        let object = object.stored().filter(|object| resource_quota::affects_quota(attributes, Some(object)));
        match object {
            Some(object)
                if !self.limited.is_empty()
                    || !cluster.list("", "resourcequotas", &attributes.namespace).is_empty() =>
            {
                Box::pin(async move {
                    let charged = self.charge(attributes, object, cluster, notes);
                    tokio::time::timeout(PATIENCE, charged)
                        .await
                        .unwrap_or_else(|_| Err(Status::internal("resource quota evaluation timed out")))
                })
            }
            _ => Box::pin(std::future::ready(Ok(()))),
        }
    }
}
