//! Recomputes the usage of resource quotas: when a quota is new or changed, when an object that it may count is deleted or shrinks,
//! and periodically. Requests charge the quota themselves when they create objects; this controller releases usage.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::{Status, meta};
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, ResourceKind, WatchSource};
use crate::drive::{self, Controller, Next};

pub(crate) const NAME: &str = "resourcequota-controller";

/// Delay after a charge, to detect one whose object was never stored.
const CHARGE_CHECK_DELAY: Duration = Duration::from_secs(5);
/// Interval of periodic recounts.
const RECOUNT_INTERVAL: Duration = Duration::from_mins(5);

/// The result of a [`Recount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecountOutcome {
    /// The usage is counted, or the quota is gone.
    Done,
    /// Charged objects may not be stored yet; count again after this time.
    Retry(Duration),
}

/// The future returned by [`Recount`].
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
        if namespace.is_empty() || !may_reduce_usage(change) || self.api.count(&self.quotas, namespace) == 0 {
            return Vec::new();
        }
        let quotas = self.api.list(&self.quotas, namespace).unwrap_or_default();
        quotas
            .iter()
            .map(|quota| ((namespace.clone(), Str::from(meta::name(quota))), Duration::ZERO))
            .collect()
    }

    async fn reconcile(&self, key: (Str, Str)) -> Result<Next<(Str, Str)>, Status> {
        let (namespace, name) = key;
        Ok(Next::After(match (self.recount.0)(namespace, name).await? {
            RecountOutcome::Done => RECOUNT_INTERVAL,
            RecountOutcome::Retry(after) => after,
        }))
    }
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
