//! Leases for keys with a time to live, by kube-apiserver's rules: keys of one time to live that are written shortly after each other
//! share a lease, because etcd handles few leases better than many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use grpc::GrpcStatus;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::EtcdClient;
use crate::observer::EtcdObserver;

/// Keys that share a lease, at most.
const MAX_KEYS: u32 = 1000;
/// The part of the time to live during which a lease is reused, at most: one in 20, which is 5 %.
const REUSE_DIVISOR: u64 = 20;

/// Grants leases and reuses them.
pub(crate) struct Leases {
    client: EtcdClient,
    observer: Arc<dyn EtcdObserver>,
    /// How long a lease is reused, at most, in seconds.
    max_reuse: u64,
    shared: Arc<Mutex<ReusableLeases>>,
}

/// By time to live in seconds.
#[derive(Debug, Default)]
struct ReusableLeases {
    last: HashMap<u64, ReusableLease>,
    /// Grants that have not been answered. All writes that need the lease wait for one grant, and share its failure.
    granting: HashMap<u64, Granting>,
    /// Counts the times that leases were forgotten.
    forgotten: u64,
}

/// `None` until the grant is answered.
type Granting = watch::Receiver<Option<Result<i64, GrpcStatus>>>;

#[derive(Clone, Copy, Debug)]
struct ReusableLease {
    id: i64,
    /// After this time it would expire before the time to live of a key ends.
    reuse_until: Instant,
    keys: u32,
}

impl Leases {
    pub(crate) fn new(client: EtcdClient, max_reuse: Duration, observer: Arc<dyn EtcdObserver>) -> Leases {
        Leases { client, observer, max_reuse: max_reuse.as_secs(), shared: Arc::default() }
    }

    /// A lease that ends `ttl` from now, or later by the time that it is reused. Below 20 seconds this is always a new lease.
    pub(crate) async fn lease(&self, ttl: Duration) -> Result<i64, GrpcStatus> {
        let ttl = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let reuse = (ttl / REUSE_DIVISOR).min(self.max_reuse);
        let granted = i64::try_from(ttl.saturating_add(reuse)).unwrap_or(i64::MAX);
        if reuse == 0 {
            self.observer.lease(1);
            return self.client.grant_lease(granted).await;
        }
        let mut answered = {
            let mut shared = lock(&self.shared);
            if let Some(id) = shared.reuse(ttl, self.observer.as_ref()) {
                return Ok(id);
            }
            match shared.granting.get(&ttl) {
                Some(granting) => granting.clone(),
                None => self.grant(&mut shared, ttl, reuse, granted),
            }
        };
        let stopped = || GrpcStatus::not_sent("the store is closed");
        let answer = answered.wait_for(Option::is_some).await.map_err(|_| stopped())?.clone();
        let id = answer.unwrap_or_else(|| Err(stopped()))?;
        // The lease is new: it can be used also if it is not reused from now on.
        if let Some(lease) = lock(&self.shared).last.get_mut(&ttl).filter(|lease| lease.id == id) {
            lease.keys += 1;
        }
        Ok(id)
    }

    /// Grants a lease in a task of its own, because the write that needs it first may be canceled.
    fn grant(&self, shared: &mut ReusableLeases, ttl: u64, reuse: u64, granted: i64) -> Granting {
        let (answer, answered) = watch::channel(None);
        shared.granting.insert(ttl, answered.clone());
        let (client, leases, forgotten) = (self.client.clone(), Arc::clone(&self.shared), shared.forgotten);
        tokio::spawn(async move {
            let reuse_until = Instant::now() + Duration::from_secs(reuse);
            let grant = client.grant_lease(granted).await;
            let mut shared = lock(&leases);
            shared.granting.remove(&ttl);
            if let Ok(id) = &grant
                && shared.forgotten == forgotten
            {
                shared.last.insert(ttl, ReusableLease { id: *id, reuse_until, keys: 0 });
            }
            drop(shared);
            answer.send_replace(Some(grant));
        });
        answered
    }

    /// Reuses no lease that was granted before, because etcd does not know one of them.
    pub(crate) fn forget(&self) {
        let mut shared = lock(&self.shared);
        shared.last.clear();
        shared.forgotten += 1;
    }
}

impl ReusableLeases {
    fn reuse(&mut self, ttl: u64, observer: &dyn EtcdObserver) -> Option<i64> {
        let now = Instant::now();
        self.last.retain(|_, lease| {
            let is_reusable = now < lease.reuse_until && lease.keys < MAX_KEYS;
            if !is_reusable {
                observer.lease(lease.keys);
            }
            is_reusable
        });
        let lease = self.last.get_mut(&ttl)?;
        lease.keys += 1;
        Some(lease.id)
    }
}

fn lock(shared: &Mutex<ReusableLeases>) -> MutexGuard<'_, ReusableLeases> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
