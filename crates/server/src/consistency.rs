//! Compares memory with etcd, like kube-apiserver's cache consistency check (`DetectCacheInconsistency`).
//!
//! kube-apiserver reports a difference and goes on with it, or panics if an environment variable says so. Here a difference means that
//! this server may decide by old policies, so everything is loaded from etcd again; watches end and their clients list again.

use std::sync::Arc;
use std::time::Duration;

use runtime::random;
use storage::ConsistencyCheck;

use crate::state::State;

/// Time between two rounds; up to half of it is added at random, so that servers do not read at the same time.
const INTERVAL: Duration = Duration::from_mins(5);

/// Checks from time to time until the server stops. Returns at once for a store that only this server writes to.
pub(crate) async fn run(state: Arc<State>) {
    if !state.storage.store.is_shared() {
        return;
    }
    let mut stopping = state.stopping();
    loop {
        let interval = INTERVAL.mul_f64(1.0 + random::fraction() / 2.0);
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        check_all(&state).await;
    }
}

/// Compares the objects of every resource. Returns false if some differ: then the round ends, because all objects are loaded again.
async fn check_all(state: &State) -> bool {
    let store = &state.storage.store;
    for kind in state.apis.catalog.stored_in_preferred_version() {
        let scope = kind.scope("");
        let resource = kind.resource.clone();
        let Some(checked) = store.check_consistency(&scope).await else { return true };
        let status = match checked {
            Ok(ConsistencyCheck::Consistent) => {
                tracing::debug!(%resource, "memory is consistent with etcd");
                "success"
            }
            Ok(ConsistencyCheck::Inconsistent(found)) => {
                tracing::error!(
                    %resource,
                    prefix = scope,
                    key = %found.key,
                    resource_version = found.at,
                    in_memory = ?found.in_memory,
                    in_etcd = ?found.stored,
                    "memory differs from etcd; loading all objects again. Report this as a bug"
                );
                "failure"
            }
            Err(error) => {
                tracing::warn!(%resource, %error, "cannot compare memory with etcd; retrying");
                "error"
            }
        };
        state.metrics.storage.consistency_checked(&resource, status);
        if status == "failure" {
            store.reload(&scope);
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;
