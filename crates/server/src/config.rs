//! The configuration of a server, and the error for an invalid one.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use admission::manifests::ManifestSet;
use api::features::Features;
use audit::AuditConfig;
use authn::{Anonymous, FrontProxy, StaticTokens};
use authz_config::Authorization;
use ipnet::IpNet;
use kinds::table::RuntimeConfig;
use storage::Backend;
use transport::accept::ConnectionLimits;
use transport::pki::TlsIdentity;
use transport::tls::TlsOptions;

use crate::addresses::{AddressesConfig, DEFAULT_NODE_PORTS};
use crate::browsers::BrowserConfig;
use crate::endpoints::EndpointReconciler;
use crate::tokens::TokenConfig;

pub use catalog::etcd_config::{EtcdOverride, EtcdStorage, ProbeTimeouts};
pub use runtime::{ConfigError, FileProblems};

/// A feature gate of Kubernetes, as the metric `kubernetes_feature_enabled` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGate {
    pub name: &'static str,
    /// `ALPHA`, `BETA`, `DEPRECATED`, or `""` if it is generally available.
    pub stage: &'static str,
    pub enabled: bool,
}

/// The storage backend of a server.
#[derive(Clone)]
pub enum StorageBackend {
    /// In memory; the objects are lost when the process ends.
    Memory,
    /// An embedded store in this directory.
    Directory(PathBuf),
    /// etcd, shared with other servers.
    Etcd(Box<EtcdStorage>),
    /// This backend, which other servers may share.
    Backend(Arc<dyn Backend>),
    /// A backend for most keys, and others for those below some prefixes.
    Backends(Arc<dyn Backend>, Vec<(Vec<String>, Arc<dyn Backend>)>),
}

impl fmt::Debug for StorageBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageBackend::Memory => f.write_str("Memory"),
            StorageBackend::Directory(directory) => f.debug_tuple("Directory").field(directory).finish(),
            StorageBackend::Etcd(config) => f.debug_tuple("Etcd").field(config).finish(),
            StorageBackend::Backend(_) => f.write_str("Backend"),
            StorageBackend::Backends(..) => f.write_str("Backends"),
        }
    }
}

/// Whether redirects by aggregated API servers reach the client (`--aggregator-reject-forwarding-redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirects {
    /// The client gets an error instead.
    Refused,
    /// The client gets the redirect.
    PassedOn,
}

/// The files that parts of a configuration were read from. They are read again when they change.
#[derive(Clone, Debug, Default)]
pub struct FollowedFiles {
    /// The certificate and the key of [`ServingConfig::identity`].
    pub serving: Option<(PathBuf, PathBuf)>,
    /// The file of [`AuthenticationConfig::client_ca`].
    pub client_ca: Option<PathBuf>,
    /// The file of the CAs in [`AuthenticationConfig::front_proxy`].
    pub proxy_ca: Option<PathBuf>,
    /// The certificate and the key of [`ApisConfig::proxy_client`].
    pub proxy_client: Option<(PathBuf, PathBuf)>,
    /// The file of [`AuthenticationConfig::static_tokens`], with its content.
    pub static_tokens: Option<(PathBuf, Vec<u8>)>,
}

/// The configuration of a server: one part per subsystem. Each value is checked on its own; [`start`](crate::start()) checks them
/// against each other.
#[derive(Debug)]
pub struct Config {
    /// The address to listen on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// `--advertise-address`; by default the address of `listen`.
    pub advertise: Option<std::net::IpAddr>,
    pub endpoint_reconciler: EndpointReconciler,
    pub storage: StorageConfig,
    pub addresses: AddressesConfig,
    pub apis: ApisConfig,
    pub authentication: AuthenticationConfig,
    pub authorization: Authorization,
    pub admission: AdmissionConfig,
    pub serving: ServingConfig,
    pub controllers: ControllersConfig,
    pub files: FollowedFiles,
    /// For the metric `kubernetes_feature_enabled` alone; the effect of a gate is in the fields of the subsystem.
    pub feature_gates: Vec<FeatureGate>,
    /// The minor version that `/version` shows as emulated.
    pub emulated_minor: u32,
    /// The names and values that `/flagz` shows.
    pub flags: Vec<(String, String)>,
}

/// The store and its size limit.
#[derive(Debug)]
pub struct StorageConfig {
    pub data: StorageBackend,
    /// `--quota-backend-bytes`: maximum size of all stored objects in bytes; `None` is unlimited.
    pub quota: Option<u64>,
    /// `--storage-initialization-timeout`: after this time a start that is still loading objects logs a warning.
    pub initialization_timeout: Duration,
    /// `--etcd-count-metric-poll-period` is not zero: the number of objects of each resource is a metric.
    pub counts_objects: bool,
    /// `--etcd-db-metric-poll-interval` is not zero: the size of the database is a metric.
    pub measures_database: bool,
}

impl Default for StorageConfig {
    fn default() -> Self {
        StorageConfig {
            data: StorageBackend::Memory,
            quota: Some(DEFAULT_STORE_QUOTA),
            initialization_timeout: Duration::from_mins(1),
            counts_objects: true,
            measures_database: true,
        }
    }
}

/// The APIs that are served, here and by aggregated API servers.
#[derive(Debug)]
pub struct ApisConfig {
    /// The API versions that are enabled (`--runtime-config`).
    pub runtime_config: RuntimeConfig,
    /// Features that are off by default. They decide about fields, and about what is served of the versions that are enabled.
    pub features: Features,
    /// The certificate that authenticates this server to aggregated API servers (`--proxy-client-cert-file`).
    pub proxy_client: Option<TlsIdentity>,
    pub redirects: Redirects,
    /// Containers may be privileged (`--allow-privileged`).
    pub allow_privileged: bool,
    /// The feature gate `DRAAdminAccess`: without it, new objects lose the field `adminAccess`.
    pub admin_access: bool,
}

/// The credentials that are accepted, and the service account tokens that are issued.
#[derive(Debug)]
pub struct AuthenticationConfig {
    /// PEM of the CAs of client certificates (`--client-ca-file`).
    pub client_ca: Option<Vec<u8>>,
    /// PEM of the CAs of front proxies, and the headers they may set (`--requestheader-*`).
    pub front_proxy: Option<(Vec<u8>, FrontProxy)>,
    /// The tokens of `--token-auth-file`.
    pub static_tokens: Option<StaticTokens>,
    /// Without it, service account tokens are neither issued nor accepted.
    pub tokens: Option<TokenConfig>,
    /// `--enable-bootstrap-token-auth`: accepts bootstrap tokens, which are Secrets in `kube-system`.
    pub bootstrap_tokens: bool,
    /// The paths that requests without credentials may reach.
    pub anonymous: Anonymous,
}

/// The admission plugins and their configuration.
#[derive(Debug)]
pub struct AdmissionConfig {
    /// The value of `--enable-admission-plugins`.
    pub enable: Vec<String>,
    /// The value of `--disable-admission-plugins`.
    pub disable: Vec<String>,
    /// The value of `--admission-control-config-file`.
    pub configuration_file: Option<PathBuf>,
    /// Settings of built-in plugins that come from flags.
    pub plugins: admission::plugins::PluginSettings,
    /// The feature gate `ManifestBasedAdmissionControlConfig`: directories of static manifests are allowed, and the API
    /// rejects object names that are reserved for static manifests.
    pub static_manifests: bool,
    /// Directories of static manifests, besides those that `configuration_file` names.
    pub manifests: Vec<(ManifestSet, PathBuf)>,
    /// Warnings about static manifests are errors: the server does not start, and a reload keeps the last good manifests.
    pub strict_manifests: bool,
    /// The feature gate `APIServerWebhookAuthenticationToken`: webhooks get tokens, and tokens can be bound to webhook
    /// configurations. Without an issuer of tokens it has no effect.
    pub webhook_tokens: bool,
}

/// The serving certificate, limits on connections and requests, and audit.
#[derive(Debug)]
pub struct ServingConfig {
    pub identity: TlsIdentity,
    /// TLS versions and cipher suites.
    pub tls: TlsOptions,
    pub limits: ConnectionLimits,
    /// `--enable-priority-and-fairness`: the sum of the two limits below is the number of seats. Without it, each limit applies on
    /// its own.
    pub priority_and_fairness: bool,
    /// The value of `--max-requests-inflight`.
    pub max_in_flight: usize,
    /// The value of `--max-mutating-requests-inflight`.
    pub max_mutating_in_flight: usize,
    /// Time limit of requests that are not long-running (`--request-timeout`).
    pub request_timeout: Duration,
    /// Seconds that a watch without `timeoutSeconds` lasts at least; at most it lasts twice as long (`--min-request-timeout`). With 0,
    /// such a watch has no time limit.
    pub min_watch_seconds: u64,
    /// The headers for browsers.
    pub browsers: BrowserConfig,
    /// Without it, no audit events are written.
    pub audit: Option<AuditConfig>,
    pub shutdown: ShutdownConfig,
}

/// How a server hands its clients over to other servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownConfig {
    /// `--shutdown-delay-duration`: how long a server that shuts down still serves requests while `/readyz` fails.
    pub delay: Duration,
    /// `--shutdown-send-retry-after`: after the delay, new requests are answered with 429 until the running ones are done. Without it,
    /// connections are refused.
    pub send_retry_after: bool,
    /// `--shutdown-watch-termination-grace-period`: watches end spread over this time; zero ends them all at once.
    pub watch_grace: Duration,
}

/// The controllers that run in this process. Where several servers share the store, the one that leads runs them.
#[derive(Debug)]
pub struct ControllersConfig {
    /// Runs the controllers of kube-controller-manager, while no kube-controller-manager leads.
    pub enabled: bool,
    /// PEM of the CA of the serving certificate, published to pods in the ConfigMap `kube-root-ca.crt`.
    pub root_ca: Option<String>,
    /// Runs the controllers that sign `cluster-info` with bootstrap tokens and delete expired tokens.
    pub bootstrap_tokens: bool,
    /// Runs the built-in scheduler, while no kube-scheduler leads.
    pub scheduler: bool,
    /// `--event-ttl`: time until an event expires after its last write; zero means never.
    pub event_ttl: Duration,
}

impl Config {
    /// A server on this address with this certificate. By default it stores objects in memory, refuses requests without credentials,
    /// and authorizes by RBAC.
    pub fn new(listen: SocketAddr, identity: TlsIdentity) -> Self {
        Config {
            listen,
            advertise: None,
            endpoint_reconciler: EndpointReconciler::default(),
            storage: StorageConfig::default(),
            addresses: AddressesConfig {
                cluster_ips: vec![DEFAULT_SERVICE_RANGE],
                node_ports: DEFAULT_NODE_PORTS,
            },
            apis: ApisConfig {
                runtime_config: RuntimeConfig::default(),
                features: Features::default(),
                proxy_client: None,
                redirects: Redirects::Refused,
                allow_privileged: false,
                admin_access: true,
            },
            authentication: AuthenticationConfig {
                client_ca: None,
                front_proxy: None,
                static_tokens: None,
                tokens: None,
                bootstrap_tokens: false,
                anonymous: Anonymous::Off,
            },
            authorization: Authorization::rbac(),
            admission: AdmissionConfig {
                enable: Vec::new(),
                disable: Vec::new(),
                configuration_file: None,
                plugins: admission::plugins::PluginSettings::default(),
                static_manifests: true,
                manifests: Vec::new(),
                strict_manifests: false,
                webhook_tokens: false,
            },
            serving: ServingConfig {
                identity,
                tls: TlsOptions::default(),
                limits: ConnectionLimits::default(),
                priority_and_fairness: true,
                max_in_flight: 400,
                max_mutating_in_flight: 200,
                request_timeout: Duration::from_mins(1),
                min_watch_seconds: 1800,
                browsers: BrowserConfig::default(),
                audit: None,
                shutdown: ShutdownConfig::default(),
            },
            controllers: ControllersConfig {
                enabled: true,
                root_ca: None,
                bootstrap_tokens: false,
                scheduler: false,
                event_ttl: Duration::from_hours(1),
            },
            files: FollowedFiles::default(),
            feature_gates: Vec::new(),
            emulated_minor: 37,
            flags: Vec::new(),
        }
    }
}

/// 2 GiB, as in etcd. The whole content of the store is in memory as well.
pub const DEFAULT_STORE_QUOTA: u64 = 2 << 30;

/// The default range of cluster IPs.
pub const DEFAULT_SERVICE_RANGE: IpNet =
    IpNet::V4(ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 0, 0, 0), 24));
