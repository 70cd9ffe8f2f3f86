//! Recomputes the usage of resource quotas: when a quota is new or changed, when an object that it may count is deleted or shrinks,
//! and periodically. Requests charge the quota themselves when they create objects; this controller releases usage.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ClusterReader, ObjectChange, ResourceKind, WatchSource};
use crate::drive::{self, Controller, ReconcileOutcome};

/// The service account in `kube-system` that writes recalculated usage.
pub const NAME: &str = "resourcequota-controller";

/// Delay after a charge, to detect one whose object was never stored.
const CHARGE_CHECK_DELAY: Duration = Duration::from_secs(5);
const RECOUNT_INTERVAL: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecountOutcome {
    /// The usage is counted, or the quota is gone.
    Done,
    /// Charged objects may not be stored yet; count again after this time.
    Retry(Duration),
}

pub type RecountFuture = Pin<Box<dyn Future<Output = Result<RecountOutcome, Status>> + Send>>;

/// Recounts one quota, given namespace and name.
#[derive(Clone)]
pub struct Recount(pub Arc<dyn Fn(Str, Str) -> RecountFuture + Send + Sync>);

impl fmt::Debug for Recount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recount")
    }
}

struct Recounting<A> {
    api: Arc<A>,
    quotas: Arc<ResourceKind>,
    recount: Recount,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, recount: Recount, stop: watch::Receiver<bool>) {
    let Some(quotas) = api.kind("v1", "ResourceQuota") else { return };
    let shrinking = ["Pod", "Service", "PersistentVolumeClaim"];
    let mut sources = vec![WatchSource::Kind(Arc::clone(&quotas)), WatchSource::Owners];
    sources.extend(shrinking.iter().filter_map(|kind| api.kind("v1", kind)).map(WatchSource::Kind));
    drive::run(Recounting { api: Arc::clone(&api), quotas, recount }, api, sources, stop).await;
}

impl<A: Api> Controller for Recounting<A> {
    /// Namespace and name of a quota.
    type Key = (Str, Str);
    const NAME: &'static str = NAME;
    const WORKERS: usize = 5;

    fn observe(&self, change: &ObjectChange) -> Vec<((Str, Str), Duration)> {
        let namespace = &change.object_ref.namespace;
        if change.object_ref.kind == self.quotas {
            let key = (namespace.clone(), change.object_ref.name.clone());
            return if change.deleted { Vec::new() } else { vec![(key, recount_delay(&change.object))] };
        }
        quotas_to_recount(&*self.api, &self.quotas, change)
    }

    async fn reconcile(&self, key: (Str, Str)) -> Result<ReconcileOutcome<(Str, Str)>, Status> {
        let (namespace, name) = key;
        Ok(ReconcileOutcome::After(match (self.recount.0)(namespace, name).await? {
            RecountOutcome::Done => RECOUNT_INTERVAL,
            RecountOutcome::Retry(after) => after,
        }))
    }
}

/// The quotas whose usage a change of another object may reduce, without decoding them: their namespace can have many.
fn quotas_to_recount(
    view: &impl ClusterReader,
    quotas: &ResourceKind,
    change: &ObjectChange,
) -> Vec<((Str, Str), Duration)> {
    let namespace = &change.object_ref.namespace;
    if namespace.is_empty() || !may_reduce_usage(change) {
        return Vec::new();
    }
    let names = view.names(quotas, namespace).into_iter();
    names.map(|name| ((namespace.clone(), name), Duration::ZERO)).collect()
}

/// The delay until a quota is recounted: zero if its limits differ from those in its status.
fn recount_delay(quota: &Value) -> Duration {
    let limits = quota.at(&["status", "hard"]);
    let known =
        limits.is_some() && limits == quota.at(&["spec", "hard"]) && quota.at(&["status", "used"]).is_some();
    if known { CHARGE_CHECK_DELAY } else { Duration::ZERO }
}

/// Reports whether a change may reduce usage.
fn may_reduce_usage(change: &ObjectChange) -> bool {
    if change.deleted {
        return true;
    }
    match change.object_ref.kind.kind.as_str() {
        "Pod" => matches!(change.object.str_at(&["status", "phase"]), Some("Succeeded" | "Failed")),
        "Service" | "PersistentVolumeClaim" => change.object.get("spec").is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
