//! `portcullis serve`: starts a server from kube-apiserver's flags.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail};
use authn::{Anonymous, StaticTokens};
use authz::config::{CONFLICT, Flags};
use clap::ArgMatches;
use clap::parser::ValueSource;
use ipnet::IpNet;
use kinds::table::Served;
use server::pki::{self, Identity};
use server::tls::TlsOptions;
use server::tokens::TokenConfig;
use server::{Authorization, Config, ConfigError, Data};

use crate::aggregation::AggregationArgs;
use crate::audit::AuditArgs;
use crate::flags::{FlagSupport, UNSUPPORTED_FLAGS};
use crate::front_proxy::RequestHeaderArgs;
use crate::gates::{
    ADMIN_ACCESS, AUTHORIZATION_CONFIG, EmulatedVersion, FeatureGates, STATIC_MANIFESTS, WEBHOOK_TOKENS,
};
use crate::limits::LimitArgs;
use crate::logging::{self, LogFormat};

/// The flags that `serve` implements. The others that kube-apiserver has are in [`UNSUPPORTED_FLAGS`].
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Directory of the embedded store (required). Created with mode 0700 if it does not exist.
    #[arg(long, help_heading = "Storage")]
    data_dir: Option<PathBuf>,

    /// Port of the HTTPS server.
    #[arg(long, default_value_t = 6443, help_heading = "Serving")]
    secure_port: u16,
    /// IP address that the HTTPS server binds to.
    #[arg(long, default_value = "0.0.0.0", help_heading = "Serving")]
    bind_address: IpAddr,
    /// IP address published to members of the cluster [default: --bind-address].
    #[arg(long, help_heading = "Serving")]
    advertise_address: Option<IpAddr>,
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
    request_header: RequestHeaderArgs,
    /// PEM file with the certificate authorities of client certificates. The common name is the user, organizations are the groups.
    /// Reloaded when it changes.
    #[arg(long, help_heading = "Authentication")]
    client_ca_file: Option<PathBuf>,
    /// CSV file of static bearer tokens, one per line: token,user,uid,"group1,group2". Reloaded when it changes.
    #[arg(long, help_heading = "Authentication")]
    token_auth_file: Option<PathBuf>,
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

    /// Comma-separated API versions to enable or disable: GROUP/VERSION=true, api/beta=true, api/all=false.
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
    /// Allow pods with privileged containers.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "API")]
    allow_privileged: bool,
    /// Run the built-in scheduler; otherwise run kube-scheduler.
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
    logging::start(args.logging_format, args.verbosity)?;
    let outcome = config(args, unsupported).and_then(|config| serve(Config { flags, ..config }));
    let Err(error) = outcome else { return Ok(()) };
    let text = format!("{error:#}");
    let words = error.downcast_ref::<ConfigError>().and_then(ConfigError::kubernetes_words);
    // kube-apiserver logs a start error in this form; log alerts look for it.
    let in_log = |words: &str| eprintln!("\"command failed\" err={}", api::field::quote(words));
    if let Some(problems) = error.downcast_ref::<ConfigError>().and_then(ConfigError::file_problems) {
        // The list of positions repeats each message, so the error itself is not printed again.
        in_log(&problems.words);
        eprintln!("{}", problems.locations.trim_start_matches('\n'));
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
        running.stop().await;
        Ok(())
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

fn config(args: &Args, unsupported: &[&'static str]) -> Result<Config> {
    check_unsupported(unsupported)?;
    let emulated = match args.emulated_version.as_deref() {
        None => EmulatedVersion::default(),
        Some(version) => EmulatedVersion::parse(version).map_err(|why| anyhow!(why))?,
    };
    if emulated != EmulatedVersion::default() {
        tracing::warn!(
            "--emulated-version=1.{} affects only the feature gate DRAAdminAccess; everything else is as in 1.37",
            emulated.minor()
        );
    }
    let gates = FeatureGates::parse(&args.feature_gates, emulated)
        .map_err(|errors| anyhow!(api::field::aggregate(&errors)))?;
    let authorization = authorization(args, &gates)?;
    let allows_all = match &authorization {
        Authorization::Flags(flags) => flags.modes.iter().any(|mode| mode == "AlwaysAllow"),
        Authorization::File { .. } => false,
    };
    if allows_all {
        tracing::warn!(
            "authorization mode AlwaysAllow lets every authenticated user do everything; set --authorization-mode=Node,RBAC"
        );
    }
    // kube-apiserver disables anonymous requests, too, if flags select AlwaysAllow. AlwaysAllow in --authorization-config has no such
    // effect.
    if args.anonymous_auth == Some(true) && allows_all {
        tracing::warn!(
            "--anonymous-auth=true has no effect with authorization mode AlwaysAllow: anonymous requests are rejected"
        );
    }
    let admits_anonymous = args.anonymous_auth.unwrap_or(true) && !allows_all;
    let anonymous = if admits_anonymous { Anonymous::On } else { Anonymous::Off };
    let ranges = parse_service_ranges(&args.service_cluster_ip_range)?;
    let serving = serving_certificate(args, &ranges)?;
    let mut config = Config::new(SocketAddr::new(args.bind_address, args.secure_port), serving);
    config.advertise = args.advertise_address;
    config.storage.data = match &args.data_dir {
        Some(folder) => Data::Folder(folder.clone()),
        None => bail!("--data-dir is required: set it to the directory of the embedded store"),
    };
    config.serving.tls = TlsOptions {
        min_version: args.tls_min_version.clone(),
        cipher_suites: list_values(&args.tls_cipher_suites).to_vec(),
    };
    config.authentication.client_ca =
        args.client_ca_file.as_deref().map(|path| read_file("client-ca-file", path)).transpose()?;
    config.files.client_ca.clone_from(&args.client_ca_file);
    if let Some(path) = args.token_auth_file.as_deref() {
        let bytes = read_file("token-auth-file", path)?;
        config.authentication.static_tokens = Some(static_tokens(path, &bytes)?);
        config.files.static_tokens = Some((path.to_owned(), bytes));
    }
    config.authentication.front_proxy =
        args.request_header.front_proxy(config.authentication.client_ca.as_deref())?;
    config.files.proxy_ca.clone_from(&args.request_header.requestheader_client_ca_file);
    args.aggregation.apply(&mut config)?;
    config.files.serving = args.tls_cert_file.clone().zip(args.tls_private_key_file.clone());
    config.authentication.anonymous = anonymous;
    config.authorization = authorization;
    config.serving.audit = args.audit.config()?;
    config.admission.enable = list_values(&args.enable_admission_plugins).to_vec();
    config.admission.disable = list_values(&args.disable_admission_plugins).to_vec();
    config.admission.configuration_file =
        args.admission_control_config_file.clone().filter(|path| !path.as_os_str().is_empty());
    config.admission.plugins.not_ready_toleration_seconds = args.default_not_ready_toleration_seconds;
    config.admission.plugins.unreachable_toleration_seconds = args.default_unreachable_toleration_seconds;
    config.apis.served =
        Served::parse(&args.runtime_config.join(",")).map_err(|e| anyhow!("--runtime-config: {e}"))?;
    config.storage.service_ranges = ranges;
    args.limits.apply(&mut config);
    config.serving.priority_and_fairness = args.enable_priority_and_fairness;
    config.serving.max_in_flight = args.max_requests_inflight;
    config.serving.max_mutating_in_flight = args.max_mutating_requests_inflight;
    let nanos =
        api::time::parse_duration(&args.request_timeout).map_err(|e| anyhow!("--request-timeout: {e}"))?;
    config.serving.request_timeout = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0).max(1_000_000));
    let nanos = api::time::parse_duration(&args.event_ttl).map_err(|e| anyhow!("--event-ttl: {e}"))?;
    config.controllers.event_ttl = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    config.apis.allow_privileged = args.allow_privileged;
    config.controllers.scheduler = args.enable_scheduler;
    config.feature_gates = gates.all();
    config.apis.admin_access = gates.is_on(ADMIN_ACCESS);
    config.emulated_minor = emulated.minor();
    config.admission.static_manifests = gates.is_on(STATIC_MANIFESTS);
    config.admission.strict_manifests = args.strict_manifests;
    config.admission.webhook_tokens = gates.is_on(WEBHOOK_TOKENS);
    if args.profiling == Some(true) {
        tracing::warn!("--profiling=true has no effect: there are no profiling endpoints");
    }
    config.authentication.tokens = token_config(args)?;
    Ok(config)
}

/// Warns about flags that are ignored; fails if one is rejected.
fn check_unsupported(given: &[&'static str]) -> Result<()> {
    let mut rejected = Vec::new();
    for flag in UNSUPPORTED_FLAGS.iter().filter(|flag| given.contains(&flag.name)) {
        match flag.support {
            FlagSupport::Ignored(reason) => tracing::warn!("--{} has no effect: {reason}", flag.name),
            FlagSupport::Rejected(reason) => rejected.push(format!("--{} ({reason})", flag.name)),
        }
    }
    if !rejected.is_empty() {
        bail!("cannot start with {}: ignoring this would be unsafe, so remove it", rejected.join(", "));
    }
    Ok(())
}

fn authorization(args: &Args, gates: &FeatureGates) -> Result<Authorization> {
    let policy_file = args.authorization_policy_file.clone().unwrap_or_default();
    let given = args.authorization_mode.is_some()
        || args.authorization_webhook_config_file.is_some()
        || args.authorization_webhook_version.is_some()
        || args.authorization_webhook_cache_authorized_ttl.is_some()
        || args.authorization_webhook_cache_unauthorized_ttl.is_some();
    if let Some(path) = args.authorization_config.as_deref().filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        if let Some(gate) = AUTHORIZATION_CONFIG.into_iter().find(|gate| !gates.is_on(gate)) {
            let why = format!(
                "the feature gate {gate} is off; enable it, or configure authorization with --authorization-mode"
            );
            bail!(ConfigError::flag("authorization-config", why));
        }
        if given {
            bail!(ConfigError::other(CONFLICT).in_kubernetes_words(CONFLICT));
        }
        return Ok(Authorization::File { path, policy_file });
    }
    let mut flags = Flags { policy_file, ..Flags::default() };
    flags.modes = args.authorization_mode.iter().flatten().filter(|mode| !mode.is_empty()).cloned().collect();
    if flags.modes.is_empty() {
        flags.modes.push("AlwaysAllow".to_owned());
    }
    flags.webhook_config_file = args.authorization_webhook_config_file.clone().unwrap_or_default();
    if let Some(version) = &args.authorization_webhook_version {
        flags.webhook_version.clone_from(version);
    }
    for (flag, given, ttl) in [
        (
            "authorization-webhook-cache-authorized-ttl",
            &args.authorization_webhook_cache_authorized_ttl,
            &mut flags.authorized_ttl,
        ),
        (
            "authorization-webhook-cache-unauthorized-ttl",
            &args.authorization_webhook_cache_unauthorized_ttl,
            &mut flags.unauthorized_ttl,
        ),
    ] {
        if let Some(text) = given {
            let nanos = api::time::parse_duration(text).map_err(|why| {
                anyhow!("invalid argument {} for \"--{flag}\" flag: {why}", api::field::quote(text))
            })?;
            // A negative duration disables the cache, as zero does.
            *ttl = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
        }
    }
    Ok(Authorization::Flags(flags))
}

/// The values of a list flag. `--flag=` is an empty list, not a list with one empty string.
pub(crate) fn list_values(values: &[String]) -> &[String] {
    match values {
        [only] if only.is_empty() => &[],
        values => values,
    }
}

fn parse_service_ranges(texts: &str) -> Result<Vec<IpNet>> {
    let mut out: Vec<IpNet> = Vec::new();
    for text in texts.split(',') {
        let net: IpNet = text.parse().map_err(|_| {
            anyhow!("--service-cluster-ip-range: `{text}` is not a CIDR range such as 10.0.0.0/24")
        })?;
        if out.iter().any(|other| other.addr().is_ipv4() == net.addr().is_ipv4()) {
            bail!("--service-cluster-ip-range: two ranges have the same IP family; give at most one of each");
        }
        out.push(net);
    }
    Ok(out)
}

/// Reads the file that a flag names; an error names the flag.
pub(crate) fn read_file(flag: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("--{flag}: cannot read `{}`", path.display()))
}

fn static_tokens(path: &Path, bytes: &[u8]) -> Result<StaticTokens> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| anyhow!("--token-auth-file: `{}` is not UTF-8", path.display()))?;
    let (tokens, warnings) =
        StaticTokens::parse(&path.display().to_string(), text).context("--token-auth-file")?;
    for warning in warnings {
        tracing::warn!("--token-auth-file: {warning}");
    }
    Ok(tokens)
}

/// Reads `--tls-cert-file`, or the certificate in `--cert-dir`, which is created if it is missing.
fn serving_certificate(args: &Args, ranges: &[IpNet]) -> Result<Identity> {
    if let (Some(cert), Some(key)) = (&args.tls_cert_file, &args.tls_private_key_file) {
        let text = |flag: &str, path: &Path| {
            String::from_utf8(read_file(flag, path)?)
                .map_err(|_| anyhow!("--{flag}: `{}` is not PEM", path.display()))
        };
        return Ok(Identity {
            cert_pem: text("tls-cert-file", cert)?,
            key_pem: text("tls-private-key-file", key)?,
        });
    }
    let (cert, key) = (args.cert_dir.join("apiserver.crt"), args.cert_dir.join("apiserver.key"));
    if let (Ok(cert_pem), Ok(key_pem)) = (std::fs::read_to_string(&cert), std::fs::read_to_string(&key)) {
        return Ok(Identity { cert_pem, key_pem });
    }
    let now = unix_time();
    let authority = pki::authority("portcullis-ca", now)?;
    let mut ips = vec![args.advertise_address.unwrap_or(args.bind_address), IpAddr::from([127, 0, 0, 1])];
    ips.extend(ranges.first().and_then(|net| net.hosts().next()));
    let leaf = pki::serving(&authority, &dns_names(), &ips, now)?;
    let identity =
        Identity { cert_pem: format!("{}{}", leaf.cert_pem, authority.cert_pem), key_pem: leaf.key_pem };
    std::fs::create_dir_all(&args.cert_dir)
        .with_context(|| format!("--cert-dir: cannot create `{}`", args.cert_dir.display()))?;
    crate::up::write_private(&key, &identity.key_pem)?;
    crate::up::write_private(&cert, &identity.cert_pem)?;
    Ok(identity)
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

/// Reads a key file. If that fails, the error also has kube-apiserver's message, which begins with `prefix`.
fn read_key(flag: &'static str, path: &Path, prefix: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let shown = path.display();
        let text = error.to_string();
        let words = text.split(" (os error").next().unwrap_or_default().to_ascii_lowercase();
        let refused = ConfigError::flag(flag, format!("cannot read `{shown}`: {text}"));
        refused.in_kubernetes_words(format!("{prefix}open {shown}: {words}")).into()
    })
}

/// The configuration of service account tokens; `None` if no flag configures them.
fn token_config(args: &Args) -> Result<Option<TokenConfig>> {
    let Some(signing) = &args.service_account_signing_key_file else {
        if !args.service_account_key_file.is_empty() || !args.service_account_issuer.is_empty() {
            bail!(
                "--service-account-signing-key-file is required with --service-account-issuer and --service-account-key-file"
            );
        }
        return Ok(None);
    };
    let mut errors: Vec<String> = Vec::new();
    for (i, issuer) in args.service_account_issuer.iter().enumerate() {
        if issuer.is_empty() {
            errors.push("service-account-issuer should not be an empty string".to_owned());
        } else if args.service_account_issuer.iter().take(i).any(|earlier| earlier == issuer) {
            errors.push(format!("service-account-issuer {} is already specified", api::field::quote(issuer)));
        }
    }
    if let Some(uri) = args.service_account_jwks_uri.as_deref().filter(|uri| !uri.is_empty()) {
        match value::go::url::Url::parse(uri) {
            Err(error) => errors.push(format!("service-account-jwks-uri must be a valid URL: {error}")),
            Ok(url) if url.scheme != "https" => errors
                .push(format!("service-account-jwks-uri requires https scheme, parsed as: {}", url.text())),
            Ok(_) => {}
        }
    }
    let keys =
        args.service_account_key_file.iter().map(|path| read_key("service-account-key-file", path, ""));
    let nanos = api::time::parse_duration(&args.service_account_max_token_expiration)
        .map_err(|e| anyhow!("--service-account-max-token-expiration: {e}"))?;
    if nanos != 0 && !(3600 * 1_000_000_000..=(1 << 32) * 1_000_000_000).contains(&nanos) {
        bail!("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds");
    }
    if !errors.is_empty() {
        bail!("{}", api::field::aggregate(&errors));
    }
    Ok(Some(TokenConfig {
        issuers: args.service_account_issuer.iter().map(|i| i.as_str().into()).collect(),
        signing_key: read_key(
            "service-account-signing-key-file",
            signing,
            "failed to parse service-account-issuer-key-file: ",
        )?,
        keys: keys.collect::<Result<_>>()?,
        audiences: list_values(&args.api_audiences).iter().map(|a| a.as_str().into()).collect(),
        max_seconds: nanos / 1_000_000_000,
        extend: args.service_account_extend_token_expiration,
        jwks_uri: args.service_account_jwks_uri.clone().unwrap_or_default(),
        lookup: args.service_account_lookup,
    }))
}
