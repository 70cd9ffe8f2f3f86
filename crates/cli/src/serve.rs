//! `portcullis serve`: kube-apiserver's flags.

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
use crate::flags::{Fate, KNOWN};
use crate::front_proxy::RequestHeaderArgs;
use crate::gates::{ADMIN_ACCESS, AUTHORIZATION_CONFIG, Emulated, Gates, STATIC_MANIFESTS, WEBHOOK_TOKENS};
use crate::limits::LimitArgs;
use crate::logging::{self, Format};

/// The flags that `serve` acts on.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// The folder the store lives in; created with mode 0700.
    #[arg(long, help_heading = "Storage")]
    data_dir: Option<PathBuf>,

    /// The port to listen on.
    #[arg(long, default_value_t = 6443, help_heading = "Serving")]
    secure_port: u16,
    /// The address to listen on.
    #[arg(long, default_value = "0.0.0.0", help_heading = "Serving")]
    bind_address: IpAddr,
    /// The address that members of the cluster are told; the one listened on if not given.
    #[arg(long, help_heading = "Serving")]
    advertise_address: Option<IpAddr>,
    /// Where a serving certificate is made when none is given.
    #[arg(long, default_value = "/var/run/kubernetes", help_heading = "Serving")]
    cert_dir: PathBuf,
    /// The serving certificate, with intermediates after it.
    #[arg(long, requires = "tls_private_key_file", help_heading = "Serving")]
    tls_cert_file: Option<PathBuf>,
    /// Its private key.
    #[arg(long, requires = "tls_cert_file", help_heading = "Serving")]
    tls_private_key_file: Option<PathBuf>,
    /// The lowest TLS version: VersionTLS12 or VersionTLS13.
    #[arg(long, help_heading = "Serving")]
    tls_min_version: Option<String>,
    /// The cipher suites for TLS 1.2, by Go's names.
    #[arg(long, value_delimiter = ',', help_heading = "Serving")]
    tls_cipher_suites: Vec<String>,

    #[command(flatten)]
    request_header: RequestHeaderArgs,
    /// Client certificates signed by an authority in this file name their user and groups.
    #[arg(long, help_heading = "Authentication")]
    client_ca_file: Option<PathBuf>,
    /// A CSV file of tokens: token,user,uid,"group,group".
    #[arg(long, help_heading = "Authentication")]
    token_auth_file: Option<PathBuf>,
    /// Whether requests without credentials are admitted as system:anonymous. The default is true, but false where everything
    /// is allowed.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Authentication")]
    anonymous_auth: Option<bool>,
    /// The issuer of service-account tokens.
    #[arg(long, help_heading = "Authentication")]
    service_account_issuer: Vec<String>,
    /// Keys that verify service-account tokens (PEM, public or private).
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    service_account_key_file: Vec<PathBuf>,
    /// The key that signs service-account tokens.
    #[arg(long, help_heading = "Authentication")]
    service_account_signing_key_file: Option<PathBuf>,
    /// The longest life of a token that may be asked for; 0 is no limit.
    #[arg(long, default_value = "0s", help_heading = "Authentication")]
    service_account_max_token_expiration: String,
    /// Whether tokens of pods that never learned to read them again live a year.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, help_heading = "Authentication")]
    service_account_extend_token_expiration: bool,
    /// Whether tokens that secrets hold are compared with the stored secret.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, help_heading = "Authentication")]
    service_account_lookup: bool,
    /// Where relying parties find the key set, if not here.
    #[arg(long, help_heading = "Authentication")]
    service_account_jwks_uri: Option<String>,
    /// The audiences of this API; the issuer if not given.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    api_audiences: Vec<String>,

    /// The file that configures the chain of authorizers; followed while the server runs.
    #[arg(long, visible_alias = "authorization-config-file", help_heading = "Authorization")]
    authorization_config: Option<String>,
    /// Who decides what callers may do, in order: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node.
    #[arg(long, value_delimiter = ',', help_heading = "Authorization")]
    authorization_mode: Option<Vec<String>>,
    /// The policies of mode ABAC, one JSON object a line.
    #[arg(long, help_heading = "Authorization")]
    authorization_policy_file: Option<String>,
    /// The kubeconfig that says where the webhook of mode Webhook is.
    #[arg(long, help_heading = "Authorization")]
    authorization_webhook_config_file: Option<String>,
    /// The version of the reviews that the webhook is sent; v1beta1 if not given.
    #[arg(long, help_heading = "Authorization")]
    authorization_webhook_version: Option<String>,
    /// How long an allow of the webhook is kept; 5m0s if not given.
    #[arg(long, help_heading = "Authorization")]
    authorization_webhook_cache_authorized_ttl: Option<String>,
    /// How long any other answer of the webhook is kept; 30s if not given.
    #[arg(long, help_heading = "Authorization")]
    authorization_webhook_cache_unauthorized_ttl: Option<String>,

    #[command(flatten)]
    aggregation: AggregationArgs,

    #[command(flatten)]
    audit: AuditArgs,

    /// Admission plugins to switch on besides the default ones.
    #[arg(long, value_delimiter = ',', help_heading = "Admission")]
    enable_admission_plugins: Vec<String>,
    /// Admission plugins to switch off.
    #[arg(long, value_delimiter = ',', help_heading = "Admission")]
    disable_admission_plugins: Vec<String>,
    /// The file that configures admission plugins.
    #[arg(long, help_heading = "Admission")]
    admission_control_config_file: Option<PathBuf>,
    /// Treat warnings about static manifests as errors, as `portcullis check --strict` does: at start the server ends, and later the last
    /// good manifests stay in force.
    #[arg(long, help_heading = "Admission", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    strict_manifests: bool,

    /// How long pods tolerate a node that is not ready, unless they say so themselves.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        allow_negative_numbers = true,
        help_heading = "Admission"
    )]
    default_not_ready_toleration_seconds: i64,

    /// How long pods tolerate a node that is not reachable, unless they say so themselves.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        allow_negative_numbers = true,
        help_heading = "Admission"
    )]
    default_unreachable_toleration_seconds: i64,

    /// API versions to switch on or off: GROUP/VERSION=true, api/beta=true, …
    #[arg(long, value_delimiter = ',', help_heading = "API")]
    runtime_config: Vec<String>,
    /// Feature gates: NAME=true|false.
    #[arg(long, value_delimiter = ',', help_heading = "API")]
    feature_gates: Vec<String>,
    /// The Kubernetes version, 1.34 to 1.37, whose feature gates can be set; everything else is as in 1.37.
    #[arg(long, help_heading = "API")]
    emulated_version: Option<String>,
    /// The ranges that services get their cluster IPs from, at most one of each family.
    #[arg(long, default_value = "10.0.0.0/24", help_heading = "API")]
    service_cluster_ip_range: String,
    /// Whether containers may be privileged.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "API")]
    allow_privileged: bool,
    /// Gives pods nodes with a small scheduler of its own; without it, that is a kube-scheduler's.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "API")]
    enable_scheduler: bool,
    /// How long events are kept after their last write, as 1h0m0s; 0 is for ever.
    #[arg(long, default_value = "1h0m0s", help_heading = "API")]
    event_ttl: String,

    #[command(flatten)]
    limits: LimitArgs,
    /// Queue requests fairly by FlowSchemas and PriorityLevelConfigurations; otherwise the two limits below apply each on its own.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set, help_heading = "Limits")]
    enable_priority_and_fairness: bool,
    /// The seats of API Priority and Fairness are this and --max-mutating-requests-inflight together; without it, the most reading requests at once, 0 for no limit.
    #[arg(long, default_value_t = 400, help_heading = "Limits")]
    max_requests_inflight: usize,
    /// See --max-requests-inflight; without API Priority and Fairness, the most mutating requests at once, 0 for no limit.
    #[arg(long, default_value_t = 200, help_heading = "Limits")]
    max_mutating_requests_inflight: usize,
    /// How long a request may take, as 1m0s; watches and the like excepted.
    #[arg(long, default_value = "1m0s", help_heading = "Limits")]
    request_timeout: String,

    /// Accepted for compatibility; there is no profiling page.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Logging")]
    profiling: Option<bool>,
    /// text or json.
    #[arg(long, default_value = "text", help_heading = "Logging")]
    logging_format: Format,
    /// How much is logged: 0 to 2 informs, 3 to 5 explains, more shows everything.
    #[arg(short = 'v', long = "v", default_value_t = 0, help_heading = "Logging")]
    verbosity: u8,
}

/// The flags known by name alone that were given, with their first value.
pub(crate) fn given(matches: &ArgMatches) -> Vec<&'static str> {
    KNOWN
        .iter()
        .filter(|flag| matches.value_source(flag.name) == Some(ValueSource::CommandLine))
        .map(|flag| flag.name)
        .collect()
}

/// Runs the server until it is told to stop.
pub(crate) fn run(args: &Args, known: &[&'static str], flags: Vec<(String, String)>) -> Result<()> {
    logging::start(args.logging_format, args.verbosity)?;
    let outcome = config(args, known).and_then(|config| serve(Config { flags, ..config }));
    let Err(error) = outcome else { return Ok(()) };
    let text = format!("{error:#}");
    let words = error.downcast_ref::<ConfigError>().and_then(ConfigError::kubernetes_words);
    // The form in which kube-apiserver reports why it does not start, for whoever reads logs for it.
    let in_log = |words: &str| eprintln!("\"command failed\" err={}", api::field::quote(words));
    if let Some(problems) = error.downcast_ref::<ConfigError>().and_then(ConfigError::file_problems) {
        // Nothing is said twice.
        in_log(&problems.words);
        eprintln!("{}", problems.locations.trim_start_matches('\n'));
        bail!(Reported);
    }
    in_log(words.unwrap_or(&text));
    Err(error)
}

/// An error that has been printed.
#[derive(Debug)]
pub(crate) struct Reported;

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server did not start")
    }
}

impl std::error::Error for Reported {}

/// Starts a server and waits for a signal.
pub(crate) fn serve(config: Config) -> Result<()> {
    runtime()?.block_on(async move {
        let running = server::start(config).await?;
        wait_for_signal().await?;
        running.stop().await;
        Ok(())
    })
}

/// The runtime that the server runs on.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
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
    tracing::info!("stopping");
    Ok(())
}

fn config(args: &Args, known: &[&'static str]) -> Result<Config> {
    check_known(known)?;
    let emulated = match args.emulated_version.as_deref() {
        None => Emulated::default(),
        Some(version) => Emulated::read(version).map_err(|why| anyhow!(why))?,
    };
    if emulated != Emulated::default() {
        tracing::warn!(
            "--emulated-version=1.{}: only the feature gate DRAAdminAccess follows it; everything else is as in 1.37",
            emulated.minor()
        );
    }
    let gates = Gates::read(&args.feature_gates, emulated)
        .map_err(|errors| anyhow!(api::field::aggregate(&errors)))?;
    let authorization = authorization(args, &gates)?;
    let allows_all = match &authorization {
        Authorization::Flags(flags) => flags.modes.iter().any(|mode| mode == "AlwaysAllow"),
        Authorization::File { .. } => false,
    };
    if allows_all {
        tracing::warn!(
            "authorization mode AlwaysAllow: every authenticated caller may do everything; set --authorization-mode=RBAC"
        );
    }
    // Where the flags allow everything, nobody is let in without a name. A file that says AlwaysAllow means it, as in Kubernetes.
    if args.anonymous_auth == Some(true) && allows_all {
        tracing::warn!(
            "AlwaysAllow would open the server to everybody, so anonymous requests are not admitted"
        );
    }
    let admits_anonymous = args.anonymous_auth.unwrap_or(true) && !allows_all;
    let anonymous = if admits_anonymous { Anonymous::On } else { Anonymous::Off };
    let ranges = ranges(&args.service_cluster_ip_range)?;
    let serving = serving(args, &ranges)?;
    let mut config = Config::new(SocketAddr::new(args.bind_address, args.secure_port), serving);
    config.advertise = args.advertise_address;
    config.storage.data = match &args.data_dir {
        Some(folder) => Data::Folder(folder.clone()),
        None => bail!("--data-dir is required: the folder in which objects are kept"),
    };
    config.serving.tls = TlsOptions {
        min_version: args.tls_min_version.clone(),
        cipher_suites: listed(&args.tls_cipher_suites).to_vec(),
    };
    config.authentication.client_ca =
        args.client_ca_file.as_deref().map(|path| read("client-ca-file", path)).transpose()?;
    config.files.client_ca.clone_from(&args.client_ca_file);
    if let Some(path) = args.token_auth_file.as_deref() {
        let bytes = read("token-auth-file", path)?;
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
    config.admission.enable = listed(&args.enable_admission_plugins).to_vec();
    config.admission.disable = listed(&args.disable_admission_plugins).to_vec();
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
        tracing::warn!("--profiling: there is no profiling page");
    }
    config.authentication.tokens = tokens(args)?;
    Ok(config)
}

fn check_known(given: &[&'static str]) -> Result<()> {
    let mut refused = Vec::new();
    for flag in KNOWN.iter().filter(|flag| given.contains(&flag.name)) {
        match flag.fate {
            Fate::Ignored(reason) => tracing::warn!("--{} has no effect: {reason}", flag.name),
            Fate::Refused(what) => refused.push(format!("--{}: {what}", flag.name)),
        }
    }
    if !refused.is_empty() {
        bail!(
            "{}; leaving this out silently would be unsafe, so the server does not start",
            refused.join("; ")
        );
    }
    Ok(())
}

fn authorization(args: &Args, gates: &Gates) -> Result<Authorization> {
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
                "the feature gate {gate} is off; turn it on, or configure authorization with --authorization-mode"
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
            // One that is negative keeps nothing, as zero does.
            *ttl = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
        }
    }
    Ok(Authorization::Flags(flags))
}

/// What a list says: a flag with nothing behind it says nothing.
pub(crate) fn listed(values: &[String]) -> &[String] {
    match values {
        [only] if only.is_empty() => &[],
        values => values,
    }
}

fn ranges(texts: &str) -> Result<Vec<IpNet>> {
    let mut out: Vec<IpNet> = Vec::new();
    for text in texts.split(',') {
        let net: IpNet = text.parse().map_err(|_| {
            anyhow!("--service-cluster-ip-range: `{text}` is not a range such as 10.0.0.0/24")
        })?;
        if out.iter().any(|other| other.addr().is_ipv4() == net.addr().is_ipv4()) {
            bail!("--service-cluster-ip-range: two ranges of the same family");
        }
        out.push(net);
    }
    Ok(out)
}

pub(crate) fn read(flag: &str, path: &Path) -> Result<Vec<u8>> {
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

/// The serving certificate: the one given, or one made in `--cert-dir` and found there again.
fn serving(args: &Args, ranges: &[IpNet]) -> Result<Identity> {
    if let (Some(cert), Some(key)) = (&args.tls_cert_file, &args.tls_private_key_file) {
        let text = |flag: &str, path: &Path| {
            String::from_utf8(read(flag, path)?)
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
    let now = now();
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

/// The names by which members of a cluster know the server.
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

/// Seconds since the epoch.
pub(crate) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(0)
}

/// A file with keys; where there is none, kube-apiserver's words begin with `before`.
fn key(flag: &'static str, path: &Path, before: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let shown = path.display();
        let text = error.to_string();
        let words = text.split(" (os error").next().unwrap_or_default().to_ascii_lowercase();
        let refused = ConfigError::flag(flag, format!("cannot read `{shown}`: {text}"));
        refused.in_kubernetes_words(format!("{before}open {shown}: {words}")).into()
    })
}

/// What the flags say about service-account tokens; nothing where none is given.
fn tokens(args: &Args) -> Result<Option<TokenConfig>> {
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
    if let Some(uri) = args.service_account_jwks_uri.as_deref().filter(|uri| !uri.is_empty())
        && !uri.get(..8).is_some_and(|head| head.eq_ignore_ascii_case("https://"))
    {
        errors.push(if uri.starts_with(':') {
            let quoted = api::field::quote(uri);
            format!("service-account-jwks-uri must be a valid URL: parse {quoted}: missing protocol scheme")
        } else {
            format!("service-account-jwks-uri requires https scheme, parsed as: {uri}")
        });
    }
    let keys = args.service_account_key_file.iter().map(|path| key("service-account-key-file", path, ""));
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
        signing_key: key(
            "service-account-signing-key-file",
            signing,
            "failed to parse service-account-issuer-key-file: ",
        )?,
        keys: keys.collect::<Result<_>>()?,
        audiences: listed(&args.api_audiences).iter().map(|a| a.as_str().into()).collect(),
        max_seconds: nanos / 1_000_000_000,
        extend: args.service_account_extend_token_expiration,
        jwks_uri: args.service_account_jwks_uri.clone().unwrap_or_default(),
        lookup: args.service_account_lookup,
    }))
}
