//! Deletes events that were not written for their time to live, so that they do not fill the store.
//!
//! kube-apiserver uses an etcd lease that every write renews; here the time of the last write is read from the object.

use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use api::{Status, meta};
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, ResourceKind, WatchSource, unless_gone};
use crate::drive::{self, Controller, ReconcileOutcome};

/// Name of the service account it uses, because Kubernetes has none for this task.
pub(crate) const NAME: &str = crate::garbage::NAME;

struct Expiry<A> {
    api: Arc<A>,
    events: Arc<ResourceKind>,
    life: Duration,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, life: Duration, stop: watch::Receiver<bool>) {
    let Some(events) = api.kind("v1", "Event") else { return };
    let sources = vec![WatchSource::Kind(Arc::clone(&events))];
    drive::run(Expiry { api: Arc::clone(&api), events, life }, api, sources, stop).await;
}

impl<A: Api> Controller for Expiry<A> {
    /// Namespace and name of an event.
    type Key = (Str, Str);
    const NAME: &'static str = "event-ttl";
    const WORKERS: usize = 1;

    fn observe(&self, change: &ObjectChange) -> Vec<(Self::Key, Duration)> {
        if change.deleted {
            return Vec::new();
        }
        let key = (change.object_ref.namespace.clone(), change.object_ref.name.clone());
        vec![(key, left(&change.object, self.life, self.api.now()))]
    }

    async fn reconcile(&self, (namespace, name): Self::Key) -> Result<ReconcileOutcome<Self::Key>, Status> {
        let object_ref = self.events.object_ref(&namespace, &name);
        let Some(event) = self.api.get(&object_ref)? else { return Ok(ReconcileOutcome::Done) };
        let left = left(&event, self.life, self.api.now());
        if !left.is_zero() {
            return Ok(ReconcileOutcome::After(left));
        }
        // Preconditions, so that an event written in the meantime survives.
        let mut options = Value::default();
        options.set_at(&["preconditions", "uid"], meta::uid(&event));
        options.set_at(&["preconditions", "resourceVersion"], meta::resource_version(&event));
        unless_gone(self.api.delete(&object_ref, &options).await)?;
        Ok(ReconcileOutcome::Done)
    }
}

/// Remaining life of an event. An event without a readable time of its last write has expired.
fn left(event: &Value, life: Duration, now: i64) -> Duration {
    let managers = event.list_at(&["metadata", "managedFields"]);
    let written = managers
        .iter()
        .filter_map(|manager| manager.str_at(&["time"]))
        .chain(event.str_at(&["metadata", "creationTimestamp"]))
        .filter_map(|time| Timestamp::parse(time).ok())
        .map(|time| time.micros() / 1_000_000)
        .max()
        .unwrap_or(i64::MIN);
    let age = u64::try_from(now.saturating_sub(written)).unwrap_or(0);
    life.saturating_sub(Duration::from_secs(age))
}

#[cfg(test)]
mod tests;
