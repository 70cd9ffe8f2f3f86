//! What the server is told before it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use admission::manifests::ManifestSet;
use authn::{Anonymous, FrontProxy, StaticTokens};
use ipnet::IpNet;
use kinds::table::Served;

use crate::accept::Limits;
use crate::audit::AuditConfig;
use crate::authorization::Authorization;
use crate::pki::Identity;
use crate::tls::TlsOptions;
use crate::tokens::TokenConfig;

/// Why the server does not start: one sentence that names the flag or file and the way out.
#[derive(Debug, thiserror::Error)]
#[error("{shown}")]
pub struct ConfigError {
    shown: String,
    kubernetes: Option<String>,
    places: Option<Places>,
}

/// What is wrong in files: in Kubernetes' words, and then in which places.
#[derive(Debug)]
pub struct Places {
    /// What kube-apiserver would have said, about the first problem alone.
    pub words: String,
    /// The place of that problem, and the other problems.
    pub places: String,
}

impl ConfigError {
    /// About a flag.
    pub fn flag(flag: &str, why: impl std::fmt::Display) -> Self {
        Self::other(format!("--{flag}: {why}"))
    }

    /// About a file.
    pub fn file(path: &std::path::Path, why: impl std::fmt::Display) -> Self {
        Self::other(format!("`{}`: {why}", path.display()))
    }

    /// About anything else.
    pub fn other(why: impl std::fmt::Display) -> Self {
        ConfigError { shown: why.to_string(), kubernetes: None, places: None }
    }

    /// About places in files.
    pub fn in_files(problems: Places) -> Self {
        let shown = format!("{}{}", problems.words, problems.places);
        ConfigError { places: Some(problems), ..Self::other(shown) }
    }

    /// The places in files that it is about, if it is.
    pub fn places(&self) -> Option<&Places> {
        self.places.as_ref()
    }

    /// The same, with what kube-apiserver would have said.
    #[must_use]
    pub fn in_kubernetes_words(self, words: impl Into<String>) -> Self {
        ConfigError { kubernetes: Some(words.into()), ..self }
    }

    /// What kube-apiserver would have said, where that is known.
    pub fn kubernetes_words(&self) -> Option<&str> {
        self.kubernetes.as_deref()
    }
}

/// A feature gate of Kubernetes, as the metric `kubernetes_feature_enabled` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGate {
    /// Its name.
    pub name: &'static str,
    /// `ALPHA`, `BETA`, `DEPRECATED`, or `""` for what is generally available.
    pub stage: &'static str,
    /// Whether it is on.
    pub enabled: bool,
}

/// Where objects are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// In memory, gone with the process.
    Memory,
    /// In a folder, durably.
    Folder(PathBuf),
}

/// What becomes of answers of other API servers that send the client elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirects {
    /// The client does not see them.
    Refused,
    /// The client may follow them.
    PassedOn,
}

/// The files behind parts of a configuration, where they come from files: they are read again when they change.
#[derive(Clone, Debug, Default)]
pub struct FollowedFiles {
    /// Behind [`Config::serving`]: the certificate, and its key.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// Behind [`Config::client_ca`].
    pub client_ca: Option<PathBuf>,
    /// Behind the authorities of [`Config::front_proxy`].
    pub proxy_ca: Option<PathBuf>,
    /// Behind [`Config::proxy_client`]: the certificate, and its key.
    pub proxy_client: Option<(PathBuf, PathBuf)>,
    /// Behind [`Config::static_tokens`], with what it held.
    pub static_tokens: Option<(PathBuf, Vec<u8>)>,
}

/// Everything the server is told, checked as far as one value alone can be.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag or a gate of its own")]
pub struct Config {
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// The address that clients outside are told.
    pub advertise: Option<std::net::IpAddr>,
    /// Where objects are kept.
    pub data: Data,
    /// The serving certificate.
    pub serving: Identity,
    /// TLS versions and suites.
    pub tls: TlsOptions,
    /// PEM of the authorities whose client certificates count.
    pub client_ca: Option<Vec<u8>>,
    /// PEM of the authorities of front proxies, and what those may say (`--requestheader-*`).
    pub front_proxy: Option<(Vec<u8>, FrontProxy)>,
    /// With what this server proves itself to API servers behind it (`--proxy-client-cert-file`).
    pub proxy_client: Option<Identity>,
    /// What becomes of redirects by API servers behind this one (`--aggregator-reject-forwarding-redirect`).
    pub redirects: Redirects,
    /// Files that are read again when they change.
    pub files: FollowedFiles,
    /// PEM of the authority that signed the serving certificate, published to pods.
    pub root_ca: Option<String>,
    /// The static token file.
    pub static_tokens: Option<StaticTokens>,
    /// Service-account tokens; none are issued or believed without.
    pub tokens: Option<TokenConfig>,
    /// Whether callers without credentials are admitted.
    pub anonymous: Anonymous,
    /// Who decides what callers may do.
    pub authorization: Authorization,
    /// What is recorded of requests, and where; nothing without.
    pub audit: Option<AuditConfig>,
    /// `--enable-admission-plugins`.
    pub enable_admission: Vec<String>,
    /// `--disable-admission-plugins`.
    pub disable_admission: Vec<String>,
    /// The gate `ManifestBasedAdmissionControlConfig`: whether there are static manifests, with names of their own.
    pub static_manifests: bool,
    /// The gate `APIServerWebhookAuthenticationToken`: whether webhooks are shown tokens, and tokens can be bound to them.
    pub webhook_tokens: bool,
    /// Folders of static manifests.
    pub manifests: Vec<(ManifestSet, PathBuf)>,
    /// Whether warnings about static manifests are errors: at start the server ends, and later the last good ones stay in force.
    pub strict_manifests: bool,
    /// `--admission-control-config-file`.
    pub admission_configuration: Option<PathBuf>,
    /// What the built-in admission plugins are told.
    pub plugins: admission::plugins::Settings,
    /// `--runtime-config`.
    pub served: Served,
    /// `--service-cluster-ip-range`.
    pub service_ranges: Vec<IpNet>,
    /// `--quota-backend-bytes`: how many bytes of objects the store may hold; no limit without.
    pub store_quota: Option<u64>,
    /// `--enable-priority-and-fairness`: without it, the two limits below apply each on its own; with it, their sum is the number of seats.
    pub priority_and_fairness: bool,
    /// `--max-requests-inflight`.
    pub max_in_flight: usize,
    /// `--max-mutating-requests-inflight`.
    pub max_mutating_in_flight: usize,
    /// `--request-timeout`.
    pub request_timeout: Duration,
    /// `--allow-privileged`.
    pub allow_privileged: bool,
    /// Pods are given nodes.
    pub scheduler: bool,
    /// `--event-ttl`: how long events are kept after their last write; zero is for ever.
    pub event_ttl: Duration,
    /// The feature gates, for the metric `kubernetes_feature_enabled`: what they decide is said by other fields.
    pub feature_gates: Vec<FeatureGate>,
    /// `DRAAdminAccess`: without it, new objects lose the field.
    pub admin_access: bool,
    /// The minor version that `/version` says is emulated.
    pub emulated_minor: u32,
    /// The bounds on connections.
    pub limits: Limits,
    /// Whether the built-in controllers run.
    pub controllers: bool,
    /// What it was started with, as `/flagz` shows it: names and values.
    pub flags: Vec<(String, String)>,
}

impl Config {
    /// A server on this address with this certificate, and defaults for all else: in memory, nobody admitted without
    /// credentials, RBAC.
    pub fn new(listen: SocketAddr, serving: Identity) -> Self {
        Config {
            listen,
            advertise: None,
            data: Data::Memory,
            serving,
            tls: TlsOptions::default(),
            client_ca: None,
            front_proxy: None,
            proxy_client: None,
            redirects: Redirects::Refused,
            files: FollowedFiles::default(),
            root_ca: None,
            static_tokens: None,
            tokens: None,
            anonymous: Anonymous::Off,
            authorization: Authorization::rbac(),
            audit: None,
            enable_admission: Vec::new(),
            disable_admission: Vec::new(),
            static_manifests: true,
            webhook_tokens: false,
            manifests: Vec::new(),
            strict_manifests: false,
            admission_configuration: None,
            plugins: admission::plugins::Settings::default(),
            served: Served::default(),
            service_ranges: vec![DEFAULT_SERVICE_RANGE],
            store_quota: Some(DEFAULT_STORE_QUOTA),
            priority_and_fairness: true,
            max_in_flight: 400,
            max_mutating_in_flight: 200,
            request_timeout: Duration::from_mins(1),
            allow_privileged: false,
            scheduler: false,
            event_ttl: Duration::from_hours(1),
            feature_gates: Vec::new(),
            admin_access: true,
            emulated_minor: 37,
            limits: Limits::default(),
            controllers: true,
            flags: Vec::new(),
        }
    }
}

/// What the store may hold if nothing else is said: 2 GiB, as etcd. All of it is kept in memory, too.
pub const DEFAULT_STORE_QUOTA: u64 = 2 << 30;

/// The range of cluster IPs when none is given.
pub const DEFAULT_SERVICE_RANGE: IpNet =
    IpNet::V4(ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 0, 0, 0), 24));
