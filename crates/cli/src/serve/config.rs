//! Turns the flags of `portcullis serve` into the server's [`Config`].

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use admission::PluginSelection;
use anyhow::{Context as _, Result, anyhow, bail};
use authn::{Anonymous, StaticTokens};
use authz::config::{CONFLICT, Flags};
use ipnet::IpNet;
use kinds::table::RuntimeConfig;
use runtime::files;
use server::addresses::{AddressesConfig, NodePortRange};
use server::tokens::TokenConfig;
use server::{Authorization, Config, ConfigError, EndpointReconciler, StorageBackend};
use transport::pki::{self, TlsIdentity};
use transport::tls::{self, TlsOptions};

use super::{Args, dns_names, list_values, read_file, unix_time};
use crate::duration::{self, NegativeDuration};
use crate::flags::{FlagSupport, UNSUPPORTED_FLAGS};
use crate::gates::{
    ADMIN_ACCESS, AUTHORIZATION_CONFIG, EmulatedVersion, FeatureGates, STATIC_MANIFESTS, WEBHOOK_TOKENS,
};

pub(super) fn config(args: &Args, unsupported: &[&'static str]) -> Result<Config> {
    check_unsupported(unsupported)?;
    let emulated = emulated_version(args)?;
    let gates = FeatureGates::parse(&args.feature_gates, emulated)
        .map_err(|errors| anyhow!(api::field::aggregate(&errors)))?;
    let authorization = authorization(args, &gates)?;
    let anonymous = anonymous(args, &authorization);
    let ranges = parse_service_ranges(&args.service_cluster_ip_range)?;
    let serving = serving_certificate(args, &ranges)?;
    let generated = Some(&serving).filter(|_| args.tls_cert_file.is_none());
    let root_ca = root_ca(args.root_ca_file.as_deref().map(Path::new), generated)?;
    let mut config = Config::new(SocketAddr::new(args.bind_address, args.secure_port), serving);
    config.advertise = args.advertise_address;
    config.endpoint_reconciler = endpoint_reconciler(&args.endpoint_reconciler_type, args.apiserver_count)?;
    config.storage.data = data(args)?;
    args.etcd.apply(&mut config.storage)?;
    config.addresses = AddressesConfig {
        cluster_ips: ranges,
        node_ports: NodePortRange::parse(&args.service_node_port_range)
            .map_err(|e| anyhow!("--service-node-port-range: {e}"))?,
    };
    set_authentication(args, &mut config)?;
    args.aggregation.apply(&mut config)?;
    config.authentication.anonymous = anonymous;
    config.authorization = authorization;
    config.serving.audit = args.audit.config()?;
    set_admission(args, &gates, &mut config)?;
    let runtime_config =
        RuntimeConfig::parse(&args.runtime_config.join(",")).map_err(|e| anyhow!("--runtime-config: {e}"))?;
    if args.enable_priority_and_fairness
        && let Some(conflict) = runtime_config.conflict_with_priority_and_fairness()
    {
        bail!("{conflict}");
    }
    config.apis.runtime_config = runtime_config;
    config.apis.features = gates.features();
    config.apis.allow_privileged = args.allow_privileged;
    config.apis.admin_access = gates.is_on(ADMIN_ACCESS);
    args.limits.apply(&mut config);
    set_serving(args, &mut config)?;
    args.serving.apply(&mut config)?;
    args.shutdown.apply(&mut config)?;
    config.controllers.event_ttl = duration::parse("event-ttl", &args.event_ttl, NegativeDuration::Zero)?;
    config.controllers.enabled = args.enable_controllers;
    config.controllers.root_ca = root_ca;
    config.controllers.scheduler = args.enable_scheduler;
    config.feature_gates = gates.all();
    config.emulated_minor = emulated.minor();
    if args.profiling == Some(true) {
        tracing::warn!(
            flag = "--profiling",
            reason = "there are no profiling endpoints",
            "the flag has no effect"
        );
    }
    config.authentication.tokens = token_config(args)?;
    Ok(config)
}

/// The store: exactly one of the two kinds.
fn data(args: &Args) -> Result<StorageBackend> {
    match (&args.data_dir, args.etcd.storage()?) {
        (Some(directory), None) => Ok(StorageBackend::Directory(directory.clone())),
        (None, Some(storage)) => Ok(StorageBackend::Etcd(Box::new(storage))),
        (None, None) => bail!(
            "--data-dir is required: set it to the directory of the embedded store, or set --etcd-servers to the URLs of etcd"
        ),
        (Some(_), Some(_)) => bail!(
            "--data-dir and --etcd-servers exclude each other: objects are stored either in the embedded store or in etcd; remove one of them"
        ),
    }
}

/// Warns about flags that are ignored; fails if one is rejected.
fn check_unsupported(given: &[&'static str]) -> Result<()> {
    let mut rejected = Vec::new();
    for flag in UNSUPPORTED_FLAGS.iter().filter(|flag| given.contains(&flag.name)) {
        match flag.support {
            FlagSupport::Ignored(reason) => {
                tracing::warn!(flag = %format_args!("--{}", flag.name), reason, "the flag has no effect");
            }
            FlagSupport::Rejected(reason) => rejected.push(format!("--{} ({reason})", flag.name)),
        }
    }
    if !rejected.is_empty() {
        bail!("cannot start with {}: ignoring this would be unsafe, so remove it", rejected.join(", "));
    }
    Ok(())
}

fn emulated_version(args: &Args) -> Result<EmulatedVersion> {
    let emulated = match args.emulated_version.as_deref() {
        None => EmulatedVersion::default(),
        Some(version) => EmulatedVersion::parse(version).map_err(|why| anyhow!(why))?,
    };
    if emulated != EmulatedVersion::default() {
        tracing::warn!(
            flag = "--emulated-version",
            minor = emulated.minor(),
            "the emulated version affects only the feature gate DRAAdminAccess; everything else is as in 1.37"
        );
    }
    Ok(emulated)
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
            // A negative duration disables the cache, as zero does.
            *ttl = duration::parse(flag, text, NegativeDuration::Zero)?;
        }
    }
    Ok(Authorization::Flags(flags))
}

/// kube-apiserver disables anonymous requests, too, if flags select AlwaysAllow. AlwaysAllow in --authorization-config has no such
/// effect.
fn anonymous(args: &Args, authorization: &Authorization) -> Anonymous {
    let allows_all = match authorization {
        Authorization::Flags(flags) => flags.modes.iter().any(|mode| mode == "AlwaysAllow"),
        Authorization::File { .. } => false,
    };
    if allows_all {
        tracing::warn!(
            "authorization mode AlwaysAllow lets every authenticated user do everything; set --authorization-mode=Node,RBAC"
        );
    }
    if args.anonymous_auth == Some(true) && allows_all {
        tracing::warn!(
            flag = "--anonymous-auth",
            reason = "the authorization mode is AlwaysAllow, so anonymous requests are rejected",
            "the flag has no effect"
        );
    }
    if args.anonymous_auth.unwrap_or(true) && !allows_all { Anonymous::On } else { Anonymous::Off }
}

/// The methods that authenticate by a file (client certificates, static tokens and the front proxy), and bootstrap tokens.
fn set_authentication(args: &Args, config: &mut Config) -> Result<()> {
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
    config.authentication.bootstrap_tokens = args.enable_bootstrap_token_auth;
    config.controllers.bootstrap_tokens = args.enable_bootstrap_token_auth;
    Ok(())
}

fn set_admission(args: &Args, gates: &FeatureGates, config: &mut Config) -> Result<()> {
    config.admission.enable = list_values(&args.enable_admission_plugins).to_vec();
    config.admission.disable = list_values(&args.disable_admission_plugins).to_vec();
    if let Some(plugins) = &args.admission_control {
        if !args.enable_admission_plugins.is_empty() || !args.disable_admission_plugins.is_empty() {
            bail!(
                "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"
            );
        }
        (config.admission.enable, config.admission.disable) = only_plugins(list_values(plugins))?;
    }
    config.admission.configuration_file =
        args.admission_control_config_file.clone().filter(|path| !path.as_os_str().is_empty());
    config.admission.plugins.not_ready_toleration_seconds = args.default_not_ready_toleration_seconds;
    config.admission.plugins.unreachable_toleration_seconds = args.default_unreachable_toleration_seconds;
    config.admission.static_manifests = gates.is_on(STATIC_MANIFESTS);
    config.admission.strict_manifests = args.strict_manifests;
    config.admission.webhook_tokens = gates.is_on(WEBHOOK_TOKENS);
    Ok(())
}

/// The plugins to enable and to disable so that exactly these run (`--admission-control`).
fn only_plugins(names: &[String]) -> Result<(Vec<String>, Vec<String>)> {
    tracing::warn!(
        "--admission-control is deprecated; use --enable-admission-plugins and --disable-admission-plugins"
    );
    let is_known = |name: &String| PluginSelection::known_plugins().any(|known| known == name);
    let unknown = names.iter().filter(|name| !is_known(name));
    let errors: Vec<String> = unknown
        .map(|name| format!("admission-control plugin {} is unknown", api::field::quote(name)))
        .collect();
    if !errors.is_empty() {
        bail!("{}", api::field::aggregate(&errors));
    }
    let others = PluginSelection::known_plugins().filter(|known| !names.iter().any(|name| name == known));
    Ok((names.to_vec(), others.map(str::to_owned).collect()))
}

fn set_serving(args: &Args, config: &mut Config) -> Result<()> {
    config.files.serving = args.tls_cert_file.clone().zip(args.tls_private_key_file.clone());
    config.serving.tls = TlsOptions {
        min_version: args.tls_min_version.clone(),
        cipher_suites: list_values(&args.tls_cipher_suites).to_vec(),
        ..TlsOptions::default()
    };
    config.serving.priority_and_fairness = args.enable_priority_and_fairness;
    config.serving.max_in_flight = args.max_requests_inflight;
    config.serving.max_mutating_in_flight = args.max_mutating_requests_inflight;
    let timeout = duration::parse("request-timeout", &args.request_timeout, NegativeDuration::Zero)?;
    config.serving.request_timeout = timeout.max(Duration::from_millis(1));
    Ok(())
}

fn endpoint_reconciler(kind: &str, count: i64) -> Result<EndpointReconciler> {
    let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
        bail!("--apiserver-count should be a positive number, but value '{count}' provided");
    };
    Ok(match kind {
        "lease" => EndpointReconciler::Lease,
        "master-count" => EndpointReconciler::MasterCount(count),
        "none" => EndpointReconciler::None,
        _ => bail!("--endpoint-reconciler-type: `{kind}` is not one of master-count, lease, none"),
    })
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

fn static_tokens(path: &Path, bytes: &[u8]) -> Result<StaticTokens> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| anyhow!("--token-auth-file: `{}` is not UTF-8", path.display()))?;
    let (tokens, warnings) =
        StaticTokens::parse(&path.display().to_string(), text).context("--token-auth-file")?;
    server::log_token_file_warnings(&warnings);
    Ok(tokens)
}

/// Reads `--tls-cert-file`, or the certificate in `--cert-dir`, which is created if it is missing.
fn serving_certificate(args: &Args, ranges: &[IpNet]) -> Result<TlsIdentity> {
    if let (Some(cert), Some(key)) = (&args.tls_cert_file, &args.tls_private_key_file) {
        let text = |flag: &str, path: &Path| {
            String::from_utf8(read_file(flag, path)?)
                .map_err(|_| anyhow!("--{flag}: `{}` is not PEM", path.display()))
        };
        return Ok(TlsIdentity {
            cert_pem: text("tls-cert-file", cert)?,
            key_pem: text("tls-private-key-file", key)?,
        });
    }
    let (cert, key) = (args.cert_dir.join("apiserver.crt"), args.cert_dir.join("apiserver.key"));
    if let (Ok(cert_pem), Ok(key_pem)) = (std::fs::read_to_string(&cert), std::fs::read_to_string(&key)) {
        return Ok(TlsIdentity { cert_pem, key_pem });
    }
    let now = unix_time();
    let authority = pki::authority("portcullis-ca", now)?;
    let mut ips = vec![args.advertise_address.unwrap_or(args.bind_address), IpAddr::from([127, 0, 0, 1])];
    ips.extend(ranges.first().and_then(|net| net.hosts().next()));
    let leaf = pki::serving(&authority, &dns_names(), &ips, now)?;
    let identity =
        TlsIdentity { cert_pem: format!("{}{}", leaf.cert_pem, authority.cert_pem), key_pem: leaf.key_pem };
    std::fs::create_dir_all(&args.cert_dir)
        .with_context(|| format!("--cert-dir: cannot create `{}`", args.cert_dir.display()))?;
    crate::up::write_private(&key, &identity.key_pem)?;
    crate::up::write_private(&cert, &identity.cert_pem)?;
    Ok(identity)
}

/// The certificate authorities that pods verify this server with: those of `--root-ca-file`, or the one that
/// [`serving_certificate`] appended to a generated certificate.
fn root_ca(file: Option<&Path>, generated: Option<&TlsIdentity>) -> Result<Option<String>> {
    let Some(path) = file else {
        let pem = generated.map_or("", |identity| identity.cert_pem.as_str());
        let after_leaf = x509::pem::certificates(pem.as_bytes()).skip(1);
        return Ok(after_leaf.last().map(|authority| x509::pem::encode("CERTIFICATE", &authority)));
    };
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let shown = path.display();
    let failed = |why: String| anyhow!("error parsing root-ca-file at {shown}: {why}");
    let bytes =
        std::fs::read(path).map_err(|error| failed(format!("open {shown}: {}", files::go_words(&error))))?;
    let pem = String::from_utf8(bytes).ok().filter(|pem| tls::certificates(pem.as_bytes()).is_ok());
    let invalid = || failed("data does not contain any valid RSA or ECDSA certificates".to_owned());
    pem.map(Some).ok_or_else(invalid)
}

/// Reads a key file. If that fails, the error also has kube-apiserver's message, which begins with `prefix`.
fn read_key(flag: &'static str, path: &Path, prefix: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let shown = path.display();
        let refused = ConfigError::flag(flag, format!("cannot read `{shown}`: {error}"));
        refused.in_kubernetes_words(format!("{prefix}open {shown}: {}", files::go_words(&error))).into()
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
    let max_expiration = max_token_expiration(&args.service_account_max_token_expiration)?;
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
        max_seconds: i64::try_from(max_expiration.as_secs()).unwrap_or(i64::MAX),
        extend: args.service_account_extend_token_expiration,
        jwks_uri: args.service_account_jwks_uri.clone().unwrap_or_default(),
        lookup: args.service_account_lookup,
    }))
}

/// Zero means no maximum.
fn max_token_expiration(text: &str) -> Result<Duration> {
    const RANGE: &str = "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds";
    let flag = "service-account-max-token-expiration";
    let max = duration::parse(flag, text, NegativeDuration::RejectedWith(RANGE))?;
    if !max.is_zero() && !(Duration::from_hours(1)..=Duration::from_secs(1 << 32)).contains(&max) {
        bail!("{RANGE}");
    }
    Ok(max)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use server::EndpointReconciler;
    use transport::pki::{self, TlsIdentity};

    use super::{endpoint_reconciler, only_plugins, root_ca};

    #[test]
    fn admission_control_disables_all_other_plugins() {
        let names = ["AlwaysAdmit".to_owned(), "NamespaceLifecycle".to_owned()];
        let (enabled, disabled) = only_plugins(&names).unwrap();
        assert_eq!(enabled, names);
        assert!(disabled.iter().any(|name| name == "ServiceAccount"));
        assert!(!disabled.contains(&names[1]));
        let unknown = only_plugins(&["x".to_owned(), "y".to_owned()]).unwrap_err().to_string();
        let words = "[admission-control plugin \"x\" is unknown, admission-control plugin \"y\" is unknown]";
        assert_eq!(unknown, words);
    }

    #[test]
    fn the_published_authority_is_that_of_a_generated_certificate_or_of_the_file() {
        let authority = pki::authority("portcullis-ca", 0).unwrap();
        let leaf = pki::serving(&authority, &["a.example".to_owned()], &[], 0).unwrap();
        let chain = format!("{}{}", leaf.cert_pem, authority.cert_pem);
        let generated = TlsIdentity { cert_pem: chain, key_pem: leaf.key_pem.clone() };
        assert_eq!(root_ca(None, Some(&generated)).unwrap(), Some(authority.cert_pem.clone()));
        assert_eq!(root_ca(None, None).unwrap(), None);
        assert_eq!(root_ca(Some(Path::new("")), Some(&generated)).unwrap(), None);
        // A certificate that another program wrote to --cert-dir, without its authority.
        assert_eq!(root_ca(None, Some(&leaf)).unwrap(), None);
        let missing = root_ca(Some(Path::new("/does/not/exist")), Some(&generated)).unwrap_err().to_string();
        let words =
            "error parsing root-ca-file at /does/not/exist: open /does/not/exist: no such file or directory";
        assert_eq!(missing, words);
    }

    #[test]
    fn endpoint_reconcilers_have_the_names_of_kubernetes() {
        let parsed = |kind, count| endpoint_reconciler(kind, count).map_err(|error| error.to_string());
        assert_eq!(parsed("lease", 1), Ok(EndpointReconciler::Lease));
        assert_eq!(parsed("none", 1), Ok(EndpointReconciler::None));
        assert_eq!(parsed("master-count", 3), Ok(EndpointReconciler::MasterCount(3)));
        assert!(parsed("ncr", 1).unwrap_err().contains("`ncr`"));
        assert_eq!(
            parsed("lease", 0),
            Err("--apiserver-count should be a positive number, but value '0' provided".to_owned())
        );
    }
}
