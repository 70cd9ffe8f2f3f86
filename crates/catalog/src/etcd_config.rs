//! The flags about etcd, and the connections that they describe.

use std::time::Duration;

use grpc::{ChannelConfig, GrpcEndpoint, TlsFiles};
use runtime::ConfigError;

use crate::etcd_values::StorageMediaType;

/// Longest time for one call of etcd: how long kube-apiserver lets a write take.
pub const ETCD_CALL_TIMEOUT: Duration = Duration::from_secs(34);

/// The flags about etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdStorage {
    /// `--etcd-servers`: URLs of the members; at least one.
    pub servers: Vec<String>,
    /// `--etcd-prefix`: the first part of all keys.
    pub prefix: String,
    /// `--etcd-cafile`, `--etcd-certfile` and `--etcd-keyfile`.
    pub tls: TlsFiles,
    /// `--etcd-compaction-interval`; zero for none.
    pub compaction_interval: Duration,
    /// `--lease-reuse-duration-seconds`: how long a lease is used for further keys.
    pub lease_reuse: Duration,
    /// `--storage-media-type`: the encoding of built-in resources.
    pub media_type: StorageMediaType,
    /// `--etcd-healthcheck-timeout` and `--etcd-readycheck-timeout`: the limits of two health checks.
    pub probe_timeouts: ProbeTimeouts,
    /// `--etcd-servers-overrides`: resources that are stored in other clusters.
    pub overrides: Vec<EtcdOverride>,
}

/// A resource that is stored in another etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOverride {
    /// Empty for the core group.
    pub group: String,
    /// Plural name, or `*` for all resources of the group.
    pub resource: String,
    /// URLs of the members; at least one.
    pub servers: Vec<String>,
}

/// Time limits of the checks `etcd` and `etcd-readiness`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTimeouts {
    pub live: Duration,
    pub ready: Duration,
}

impl Default for ProbeTimeouts {
    fn default() -> Self {
        ProbeTimeouts { live: Duration::from_secs(2), ready: Duration::from_secs(2) }
    }
}

impl EtcdStorage {
    /// The connections to the members that `--etcd-servers` names.
    pub fn channel(&self) -> Result<ChannelConfig, ConfigError> {
        self.channel_to(&self.servers)
    }

    /// The connections to these members.
    pub fn channel_to(&self, servers: &[String]) -> Result<ChannelConfig, ConfigError> {
        let needs_tls = servers.iter().any(|url| url.starts_with("https://"));
        let tls = if needs_tls { Some(self.tls.load().map_err(ConfigError::other)?) } else { None };
        let endpoints: Result<Vec<GrpcEndpoint>, _> =
            servers.iter().map(|url| GrpcEndpoint::parse(url, tls.as_ref())).collect();
        Ok(ChannelConfig::new(endpoints.map_err(ConfigError::other)?))
    }
}
