//! Leases for keys with a time to live, by kube-apiserver's rules: keys of one time to live that are written shortly after each other
//! share a lease, because etcd handles few leases better than many.

use std::collections::HashMap;
use std::time::Duration;

use grpc::GrpcStatus;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::EtcdClient;

/// Keys that share a lease, at most.
const MAX_KEYS: u32 = 1000;
/// The part of the time to live during which a lease is reused, at most: one in 20, which is 5 %.
const REUSE_DIVISOR: u64 = 20;

/// Grants leases and reuses them.
pub(crate) struct Leases {
    client: EtcdClient,
    /// How long a lease is reused, at most, in seconds.
    max_reuse: u64,
    /// The last lease of each time to live in seconds. Locked while a lease is granted, so that concurrent writes share it.
    last: Mutex<HashMap<u64, ReusableLease>>,
}

#[derive(Clone, Copy, Debug)]
struct ReusableLease {
    id: i64,
    /// After this time it would expire before the time to live of a key ends.
    reuse_until: Instant,
    keys: u32,
}

impl Leases {
    pub(crate) fn new(client: EtcdClient, max_reuse: Duration) -> Leases {
        Leases { client, max_reuse: max_reuse.as_secs(), last: Mutex::default() }
    }

    /// A lease that ends `ttl` from now, or later by the time that it is reused. Below 20 seconds this is always a new lease.
    pub(crate) async fn lease(&self, ttl: Duration) -> Result<i64, GrpcStatus> {
        let ttl = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let reuse = (ttl / REUSE_DIVISOR).min(self.max_reuse);
        let granted = i64::try_from(ttl.saturating_add(reuse)).unwrap_or(i64::MAX);
        if reuse == 0 {
            return self.client.grant_lease(granted).await;
        }
        let mut last = self.last.lock().await;
        let now = Instant::now();
        last.retain(|_, lease| now < lease.reuse_until && lease.keys < MAX_KEYS);
        if let Some(lease) = last.get_mut(&ttl) {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let id = self.client.grant_lease(granted).await?;
        let lease = ReusableLease { id, reuse_until: now + Duration::from_secs(reuse), keys: 1 };
        last.insert(ttl, lease);
        Ok(id)
    }

    /// Reuses no lease that was granted before, because etcd does not know one of them.
    pub(crate) async fn forget(&self) {
        self.last.lock().await.clear();
    }
}
