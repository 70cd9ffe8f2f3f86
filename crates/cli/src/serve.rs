//! `portcullis serve`: starts a server from kube-apiserver's flags.

mod config;

use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use clap::ArgMatches;
use clap::parser::ValueSource;
use server::{Config, ConfigError};

use crate::aggregation::AggregationArgs;
use crate::audit::AuditArgs;
use crate::etcd::EtcdArgs;
use crate::flags::UNSUPPORTED_FLAGS;
use crate::front_proxy::RequestHeaderArgs;
use crate::limits::LimitArgs;
use crate::logging::{self, LogFormat};
use crate::serving::ServingArgs;
use crate::shutdown::ShutdownArgs;
use crate::version_flag;

/// The flags that `serve` implements. The others that kube-apiserver has are in [`UNSUPPORTED_FLAGS`].
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Directory of the embedded store; required unless --etcd-servers is given. Created with mode 0700 if it does not exist.
    #[arg(long, help_heading = "Storage")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdArgs,

    /// Port of the HTTPS server.
    #[arg(long, default_value_t = 6443, help_heading = "Serving")]
    secure_port: u16,
    /// IP address that the HTTPS server binds to.
    #[arg(long, default_value = "0.0.0.0", help_heading = "Serving")]
    bind_address: IpAddr,
    /// IP address published to members of the cluster [default: --bind-address].
    #[arg(long, help_heading = "Serving")]
    advertise_address: Option<IpAddr>,
    /// How servers that share a store keep the endpoints of the Service default/kubernetes: lease, master-count (deprecated) or none.
    #[arg(long, value_name = "TYPE", default_value = "lease", help_heading = "Serving")]
    endpoint_reconciler_type: String,
    /// Number of servers, for --endpoint-reconciler-type=master-count.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        allow_negative_numbers = true,
        help_heading = "Serving"
    )]
    apiserver_count: i64,
    /// Directory for the serving certificate that is generated if --tls-cert-file is not set.
    #[arg(long, default_value = "/var/run/kubernetes", help_heading = "Serving")]
    cert_dir: PathBuf,
    /// PEM file with the serving certificate, followed by intermediate certificates. Reloaded when it changes.
    #[arg(long, requires = "tls_private_key_file", help_heading = "Serving")]
    tls_cert_file: Option<PathBuf>,
    /// PEM file with the private key of --tls-cert-file. Reloaded when it changes.
    #[arg(long, requires = "tls_cert_file", help_heading = "Serving")]
    tls_private_key_file: Option<PathBuf>,
    /// Minimum TLS version: VersionTLS12 or VersionTLS13 [default: VersionTLS12].
    #[arg(long, help_heading = "Serving")]
    tls_min_version: Option<String>,
    /// Comma-separated cipher suites for TLS 1.2, by Go's names [default: all that are supported].
    #[arg(long, value_delimiter = ',', help_heading = "Serving")]
    tls_cipher_suites: Vec<String>,

    #[command(flatten)]
    serving: ServingArgs,

    #[command(flatten)]
    shutdown: ShutdownArgs,

    #[command(flatten)]
    request_header: RequestHeaderArgs,
    /// PEM file with the certificate authorities of client certificates. The common name is the user, organizations are the groups.
    /// Reloaded when it changes.
    #[arg(long, help_heading = "Authentication")]
    client_ca_file: Option<PathBuf>,
    /// CSV file of static bearer tokens, one per line: token,user,uid,"group1,group2". Reloaded when it changes.
    #[arg(long, help_heading = "Authentication")]
    token_auth_file: Option<PathBuf>,
    /// Accept bootstrap tokens, with which new nodes join: Secrets in kube-system of type bootstrap.kubernetes.io/token. The built-in
    /// controllers then sign the ConfigMap cluster-info with them and delete expired ones.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "Authentication")]
    enable_bootstrap_token_auth: bool,
    /// Accept requests without credentials as user system:anonymous [default: true, but false with --authorization-mode=AlwaysAllow].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Authentication")]
    anonymous_auth: Option<bool>,
    /// Issuer of service account tokens. If repeated, the first one signs and all are accepted.
    #[arg(long, help_heading = "Authentication")]
    service_account_issuer: Vec<String>,
    /// Comma-separated PEM files with public or private keys that verify service account tokens [default: the key of
    /// --service-account-signing-key-file].
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    service_account_key_file: Vec<PathBuf>,
    /// PEM file with the private key that signs service account tokens. Without it, the server issues and accepts none.
    #[arg(long, help_heading = "Authentication")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Maximum lifetime of a token from the TokenRequest API, between 1h and 2^32 seconds; 0 means no limit.
    #[arg(long, default_value = "0s", help_heading = "Authentication")]
    service_account_max_token_expiration: String,
    /// Extend projected service account tokens to one year for clients that do not reload them.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, help_heading = "Authentication")]
    service_account_extend_token_expiration: bool,
    /// Accept a token from a service account Secret only while that Secret exists with this token.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, help_heading = "Authentication")]
    service_account_lookup: bool,
    /// JWKS URL in the OpenID discovery document; must be https [default: /openid/v1/jwks of this server].
    #[arg(long, help_heading = "Authentication")]
    service_account_jwks_uri: Option<String>,
    /// Comma-separated audiences of this API server: tokens for one of them are accepted [default: the issuers].
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    api_audiences: Vec<String>,

    /// AuthorizationConfiguration file with the authorizer chain. Reloaded when it changes.
    #[arg(long, visible_alias = "authorization-config-file", help_heading = "Authorization")]
    authorization_config: Option<String>,
    /// Comma-separated authorizers in order: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node [default: AlwaysAllow].
    #[arg(long, value_delimiter = ',', help_heading = "Authorization")]
    authorization_mode: Option<Vec<String>>,
    /// Policy file of the ABAC authorizer, one JSON object per line.
    #[arg(long, help_heading = "Authorization")]
    authorization_policy_file: Option<String>,
    /// Kubeconfig file of the Webhook authorizer.
    #[arg(long, help_heading = "Authorization")]
    authorization_webhook_config_file: Option<String>,
    /// API version of the SubjectAccessReview sent to the webhook: v1 or v1beta1 [default: v1beta1].
    #[arg(long, help_heading = "Authorization")]
    authorization_webhook_version: Option<String>,
    /// Cache duration of the webhook's "allowed" responses [default: 5m0s].
    #[arg(long, help_heading = "Authorization")]
    authorization_webhook_cache_authorized_ttl: Option<String>,
    /// Cache duration of the webhook's other responses [default: 30s].
    #[arg(long, help_heading = "Authorization")]
    authorization_webhook_cache_unauthorized_ttl: Option<String>,

    #[command(flatten)]
    aggregation: AggregationArgs,

    #[command(flatten)]
    audit: AuditArgs,

    /// Deprecated: comma-separated list of all admission plugins that run; use --enable-admission-plugins and
    /// --disable-admission-plugins.
    #[arg(long, value_delimiter = ',', help_heading = "Admission")]
    admission_control: Option<Vec<String>>,
    /// Comma-separated admission plugins to enable in addition to the default ones.
    #[arg(long, value_delimiter = ',', help_heading = "Admission")]
    enable_admission_plugins: Vec<String>,
    /// Comma-separated admission plugins to disable.
    #[arg(long, value_delimiter = ',', help_heading = "Admission")]
    disable_admission_plugins: Vec<String>,
    /// AdmissionConfiguration file with the configuration of admission plugins.
    #[arg(long, help_heading = "Admission")]
    admission_control_config_file: Option<PathBuf>,
    /// Treat warnings about static manifests as errors: the server does not start, and a reload keeps the previous manifests.
    #[arg(long, help_heading = "Admission", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    strict_manifests: bool,

    /// Seconds that a pod tolerates the taint node.kubernetes.io/not-ready:NoExecute, unless the pod has its own toleration.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        allow_negative_numbers = true,
        help_heading = "Admission"
    )]
    default_not_ready_toleration_seconds: i64,

    /// Seconds that a pod tolerates the taint node.kubernetes.io/unreachable:NoExecute, unless the pod has its own toleration.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        allow_negative_numbers = true,
        help_heading = "Admission"
    )]
    default_unreachable_toleration_seconds: i64,

    /// Comma-separated APIs to enable or disable: GROUP/VERSION=true, GROUP/VERSION/RESOURCE=false, or all versions of a stage with
    /// api/all, api/ga, api/beta or api/alpha.
    #[arg(long, value_delimiter = ',', help_heading = "API")]
    runtime_config: Vec<String>,
    /// Comma-separated feature gates: NAME=true or NAME=false.
    #[arg(long, value_delimiter = ',', help_heading = "API")]
    feature_gates: Vec<String>,
    /// Kubernetes version, 1.34 to 1.37, that decides which feature gates can be set. Everything else is as in 1.37.
    #[arg(long, help_heading = "API")]
    emulated_version: Option<String>,
    /// CIDR ranges for cluster IPs of Services: one IPv4 range, one IPv6 range, or both separated by a comma.
    #[arg(long, default_value = "10.0.0.0/24", help_heading = "API")]
    service_cluster_ip_range: String,
    /// Range of node ports of Services, inclusive at both ends.
    #[arg(long, default_value = "30000-32767", help_heading = "API")]
    service_node_port_range: String,
    /// Allow pods with privileged containers.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "API")]
    allow_privileged: bool,
    /// Run the built-in controllers while no kube-controller-manager leads; otherwise run kube-controller-manager.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "API")]
    enable_controllers: bool,
    /// PEM file with the certificate authorities of the serving certificate, published to pods as ConfigMap kube-root-ca.crt by the
    /// built-in controllers; empty to publish none [default: the authority of the certificate in --cert-dir, unless --tls-cert-file
    /// is set].
    #[arg(long, help_heading = "API")]
    root_ca_file: Option<String>,
    /// Run the built-in scheduler while no kube-scheduler leads; otherwise run kube-scheduler.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "API")]
    enable_scheduler: bool,
    /// Time after the last write at which Events are deleted; 0 means never.
    #[arg(long, default_value = "1h0m0s", help_heading = "API")]
    event_ttl: String,

    #[command(flatten)]
    limits: LimitArgs,
    /// Limit and queue requests by FlowSchema and PriorityLevelConfiguration objects (API Priority and Fairness).
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set, help_heading = "Limits")]
    enable_priority_and_fairness: bool,
    /// Concurrent requests: together with --max-mutating-requests-inflight the seats of API Priority and Fairness. Without API Priority
    /// and Fairness, the limit of concurrent read-only requests; 0 means no limit.
    #[arg(long, default_value_t = 400, help_heading = "Limits")]
    max_requests_inflight: usize,
    /// See --max-requests-inflight. Without API Priority and Fairness, the limit of concurrent mutating requests; 0 means no limit.
    #[arg(long, default_value_t = 200, help_heading = "Limits")]
    max_mutating_requests_inflight: usize,
    /// Time limit of a request. Long-running requests such as watches are exempt.
    #[arg(long, default_value = "1m0s", help_heading = "Limits")]
    request_timeout: String,

    /// Print the version and exit (true or raw), or report another version with the same numbers (vX.Y.Z-SUFFIX).
    #[arg(long, value_name = "VALUE", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", help_heading = "Logging")]
    version: String,
    /// Accepted for compatibility. There are no profiling endpoints.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Logging")]
    profiling: Option<bool>,
    /// Format of log lines.
    #[arg(long, default_value = "text", help_heading = "Logging")]
    logging_format: LogFormat,
    /// Log verbosity: 0 to 2 logs at level info, 3 to 5 at debug, 6 and above at trace.
    #[arg(short = 'v', long = "v", default_value_t = 0, help_heading = "Logging")]
    verbosity: u8,
}

/// The names of the unsupported flags that are on the command line.
pub(crate) fn unsupported_flags_in(matches: &ArgMatches) -> Vec<&'static str> {
    UNSUPPORTED_FLAGS
        .iter()
        .filter(|flag| matches.value_source(flag.name) == Some(ValueSource::CommandLine))
        .map(|flag| flag.name)
        .collect()
}

/// Runs the server until SIGTERM or SIGINT. `unsupported` are the names of unsupported flags on the command line; `flags` are all
/// flags with their values, for `/flagz`.
pub(crate) fn run(args: &Args, unsupported: &[&'static str], flags: Vec<(String, String)>) -> Result<()> {
    if let Some(text) = version_flag::apply(&args.version)? {
        println!("{text}");
        return Ok(());
    }
    let log = logging::start(args.logging_format, args.verbosity)?;
    let outcome = config::config(args, unsupported).and_then(|config| serve(Config { flags, ..config }));
    // What follows is written to standard error without the queue of the log.
    drop(log);
    let Err(error) = outcome else { return Ok(()) };
    let text = format!("{error:#}");
    let words = error.downcast_ref::<ConfigError>().and_then(ConfigError::kubernetes_words);
    // kube-apiserver logs a start error in this form; log alerts look for it.
    let in_log = |words: &str| {
        let _ = writeln!(std::io::stderr(), "\"command failed\" err={}", api::field::quote(words));
    };
    if let Some(problems) = error.downcast_ref::<ConfigError>().and_then(ConfigError::file_problems) {
        // The list of positions repeats each message, so the error itself is not printed again.
        in_log(&problems.words);
        let _ = writeln!(std::io::stderr(), "{}", problems.locations.trim_start_matches('\n'));
        bail!(AlreadyPrinted);
    }
    in_log(words.unwrap_or(&text));
    Err(error)
}

/// The error of a command that has already printed why it failed; `main` only sets the exit code.
#[derive(Debug)]
pub(crate) struct AlreadyPrinted;

impl std::fmt::Display for AlreadyPrinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server did not start")
    }
}

impl std::error::Error for AlreadyPrinted {}

/// Starts a server and stops it at SIGTERM or SIGINT.
fn serve(config: Config) -> Result<()> {
    runtime()?.block_on(async move {
        let running = server::start(config).await?;
        wait_for_signal().await?;
        tokio::select! {
            () = running.stop() => Ok(()),
            second = wait_for_signal() => {
                second?;
                bail!("terminated by a second signal before the shutdown was complete")
            }
        }
    })
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the async runtime")
}

/// Returns at SIGTERM or SIGINT.
pub(crate) async fn wait_for_signal() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("shutting down after SIGTERM or SIGINT");
    Ok(())
}

/// The values of a list flag. `--flag=` is an empty list, not a list with one empty string.
pub(crate) fn list_values(values: &[String]) -> &[String] {
    match values {
        [only] if only.is_empty() => &[],
        values => values,
    }
}

/// Reads the file that a flag names; an error names the flag.
pub(crate) fn read_file(flag: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("--{flag}: cannot read `{}`", path.display()))
}

/// The DNS names by which members of a cluster reach the server.
pub(crate) fn dns_names() -> Vec<String> {
    [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The current Unix time in seconds.
pub(crate) fn unix_time() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(0)
}
