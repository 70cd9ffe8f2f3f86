//! Storage: the store, and what is derived from its whole content at start.

use std::sync::Arc;
use std::time::Duration;

use catalog::etcd_config::ETCD_CALL_TIMEOUT;
use catalog::etcd_values::KubernetesValues;
use catalog::keys;
use catalog::unreadable::{DecodeFailures, Unreadable};
use etcd::{EtcdBackend, EtcdConfig, EtcdObserver, KeyFilter};
use kinds::strategy::service::Family;
use storage::{Embedded, Memory, Store, StoreOptions};
use tokio::sync::Semaphore;

use crate::config::{ConfigError, EtcdStorage, ProbeTimeouts, StorageBackend, StorageConfig};
use crate::etcd_overrides::{self, EtcdCluster};
use crate::metrics::EtcdMetrics;

pub struct Storage {
    pub store: Store,
    /// The stored objects that cannot be decoded. Decisions that would need one of them are refused.
    pub(crate) unreadable: Arc<Unreadable>,
    pub(crate) probe_timeouts: ProbeTimeouts,
    /// The number of objects of each resource is a metric.
    pub(crate) counts_objects: bool,
    /// The size of the database is a metric.
    pub(crate) measures_database: bool,
    /// How long a written Event lives in a store that other servers share, so that it ends also if this server does. In other stores a
    /// controller deletes old Events.
    pub(crate) event_ttl: Option<Duration>,
    /// Limits snapshots to one at a time.
    pub(crate) saving: Arc<Semaphore>,
}

impl StorageConfig {
    /// Opens the store, and looks for objects that cannot be decoded. `primary_family` is that of the first service range; `event_ttl` is
    /// zero if Events do not expire.
    pub(crate) async fn build(
        self,
        primary_family: Family,
        event_ttl: Duration,
        metrics: &Arc<EtcdMetrics>,
    ) -> Result<Storage, ConfigError> {
        let StorageConfig { data, quota, initialization_timeout, counts_objects, measures_database } = self;
        let failures = Arc::default();
        let mut probe_timeouts = ProbeTimeouts::default();
        let options = StoreOptions { quota, shard_end: keys::prefix_end, ..StoreOptions::default() };
        if let StorageBackend::Etcd(config) = &data {
            probe_timeouts = config.probe_timeouts;
        }
        let opening = async {
            match data {
                StorageBackend::Memory => {
                    Store::open(Memory::new(), options).await.map_err(ConfigError::other)
                }
                StorageBackend::Etcd(config) => {
                    open_etcd(&config, primary_family, &failures, metrics, options).await
                }
                StorageBackend::Directory(directory) => {
                    let backend = Embedded::at(directory).migrating(keys::migrate);
                    Store::open(backend, options).await.map_err(ConfigError::other)
                }
                StorageBackend::Backend(backend) => {
                    Store::open_dyn(backend, options).await.map_err(ConfigError::other)
                }
                StorageBackend::Backends(backend, others) => {
                    let main = Store::open_dyn(backend, options.clone()).await.map_err(ConfigError::other)?;
                    let mut overrides = Vec::new();
                    for (prefixes, backend) in others {
                        let store = Store::open_dyn(backend, options.clone()).await;
                        overrides.push((prefixes, store.map_err(ConfigError::other)?));
                    }
                    Ok(main.with_overrides(overrides))
                }
            }
        };
        let store = warn_after(initialization_timeout, opening).await?;

        let scanned = store.clone();
        let unreadable = tokio::task::spawn_blocking(move || Unreadable::scan(&scanned, failures)).await;
        let unreadable = Arc::new(unreadable.map_err(ConfigError::other)?);

        let event_ttl = (store.is_shared() && !event_ttl.is_zero()).then_some(event_ttl);
        Ok(Storage {
            store,
            unreadable,
            probe_timeouts,
            counts_objects,
            measures_database,
            event_ttl,
            saving: Arc::new(Semaphore::new(1)),
        })
    }
}

/// Waits for the store. kube-apiserver declares itself ready after this time; here the server has to wait, and says so.
async fn warn_after<T>(limit: Duration, opening: impl Future<Output = T>) -> T {
    tokio::pin!(opening);
    tokio::select! {
        opened = &mut opening => return opened,
        () = tokio::time::sleep(limit) => {}
    }
    tracing::warn!(
        timeout = ?limit,
        flag = "--storage-initialization-timeout",
        "the store is not loaded yet; the server becomes ready when it is"
    );
    opening.await
}

/// Opens the store in etcd, and those of the clusters that hold some of its resources.
async fn open_etcd(
    config: &EtcdStorage,
    primary_family: Family,
    failures: &Arc<DecodeFailures>,
    metrics: &Arc<EtcdMetrics>,
    options: StoreOptions,
) -> Result<Store, ConfigError> {
    // etcd has a quota of its own.
    let options = StoreOptions { quota: None, ..options };
    let overrides = etcd_overrides::clusters(config);
    let moved: Vec<String> = overrides.iter().flat_map(|cluster| cluster.prefixes.clone()).collect();
    let mut backend = etcd_backend(config, &config.servers, primary_family, failures, metrics)?;
    if !moved.is_empty() {
        backend = backend.limited_to(KeyFilter(Arc::new(move |key: &str| !is_below(&moved, key))));
    }
    let main = Store::open(backend, options.clone()).await.map_err(ConfigError::other)?;
    let mut others = Vec::new();
    for EtcdCluster { servers, prefixes } in overrides {
        let owned = prefixes.clone();
        let backend = etcd_backend(config, &servers, primary_family, failures, metrics)?;
        let backend = backend.limited_to(KeyFilter(Arc::new(move |key: &str| is_below(&owned, key))));
        let opened = Store::open(backend, options.clone()).await;
        let store = opened.map_err(|error| {
            ConfigError::flag("etcd-servers-overrides", format!("{}: {error}", servers.join(";")))
        })?;
        others.push((prefixes, store));
    }
    Ok(main.with_overrides(others))
}

fn is_below(prefixes: &[String], key: &str) -> bool {
    prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
}

fn etcd_backend(
    config: &EtcdStorage,
    servers: &[String],
    primary_family: Family,
    failures: &Arc<DecodeFailures>,
    metrics: &Arc<EtcdMetrics>,
) -> Result<EtcdBackend, ConfigError> {
    Ok(EtcdBackend::new(EtcdConfig {
        channel: config.channel_to(servers)?,
        prefix: config.prefix.clone(),
        store_root: keys::ROOT.trim_end_matches('/').to_owned(),
        codec: Arc::new(KubernetesValues {
            media_type: config.media_type,
            primary_family,
            failures: Arc::clone(failures),
        }),
        compaction_interval: config.compaction_interval,
        lease_reuse: config.lease_reuse,
        call_timeout: ETCD_CALL_TIMEOUT,
        observer: Arc::clone(metrics) as Arc<dyn EtcdObserver>,
    }))
}
