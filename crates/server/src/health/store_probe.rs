//! The health checks `etcd` and `etcd-readiness`: a read of etcd with a quorum, like kube-apiserver's.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use storage::Store;
use tokio::time::Instant;

use crate::state::Storage;

/// The two checks of one cluster.
#[derive(Debug)]
pub(super) struct ClusterProbes {
    store: Store,
    /// Names of the checks: of all pages, and of `readyz` only.
    names: [String; 2],
    live: StoreProbe,
    ready: StoreProbe,
}

impl ClusterProbes {
    /// The clusters of a store, with kube-apiserver's names.
    pub(super) fn of(storage: &Storage) -> Vec<ClusterProbes> {
        let timeouts = storage.probe_timeouts;
        let cluster = |(index, store): (usize, &Store)| ClusterProbes {
            store: store.clone(),
            names: match index.checked_sub(1) {
                None => ["etcd".to_owned(), "etcd-readiness".to_owned()],
                Some(number) => {
                    [format!("etcd-override-{number}"), format!("etcd-override-readiness-{number}")]
                }
            },
            live: StoreProbe::new(timeouts.live),
            ready: StoreProbe::new(timeouts.ready),
        };
        storage.store.clusters().enumerate().map(cluster).collect()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    fn probes(&self) -> impl Iterator<Item = (&str, &StoreProbe)> {
        self.names().zip([&self.live, &self.ready])
    }

    /// Reads etcd for one check, or for all checks of a page if `check` is empty.
    pub(super) async fn run(&self, page: &str, check: &str) {
        for (index, (name, probe)) in self.probes().enumerate() {
            if check == name || (check.is_empty() && (index == 0 || page == "readyz")) {
                probe.run(&self.store).await;
            }
        }
    }

    /// The result of the check with this name; `None` if it is of another cluster.
    pub(super) fn result(&self, check: &str) -> Option<Result<(), String>> {
        let (_, probe) = self.probes().find(|(name, _)| *name == check)?;
        Some(probe.last().and_then(|()| self.store.health()))
    }
}

/// Reads etcd at most once per half of its timeout. In between, and while a read is in progress, the last result stands.
#[derive(Debug)]
struct StoreProbe {
    timeout: Duration,
    /// When the next read may start.
    next: Mutex<Option<Instant>>,
    last: Mutex<Result<(), String>>,
}

impl StoreProbe {
    fn new(timeout: Duration) -> Self {
        StoreProbe { timeout, next: Mutex::default(), last: Mutex::new(Ok(())) }
    }

    /// Reads etcd if it is time to. Does nothing for a store that is not shared.
    async fn run(&self, store: &Store) {
        let Some(read) = store.probe() else { return };
        if !self.starts(Instant::now()) {
            return;
        }
        let result = match tokio::time::timeout(self.timeout, read).await {
            Ok(result) => result.map_err(|why| format!("error getting data from etcd: {why}")),
            Err(_) => Err("error getting data from etcd: context deadline exceeded".to_owned()),
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = result;
    }

    fn starts(&self, now: Instant) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.is_some_and(|next| now < next) {
            return false;
        }
        *next = now.checked_add(self.timeout / 2);
        true
    }

    /// The result of the last read.
    fn last(&self) -> Result<(), String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests;
