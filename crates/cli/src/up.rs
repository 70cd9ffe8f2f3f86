//! `portcullis up`: starts a server on 127.0.0.1 without any configuration and creates the certificates, keys and kubeconfig it needs.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use admission::manifests::ManifestSet;
use anyhow::{Context as _, Result, bail};
use authn::front_proxy::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use authn::{Anonymous, FrontProxy};
use authz::config::Flags;
use server::tokens::TokenConfig;
use server::{Authorization, Config, StorageBackend};
use transport::pki::{self, TlsIdentity};

use crate::gates::{FeatureGates, WEBHOOK_TOKENS};
use crate::limits::LimitArgs;
use crate::logging::{self, LogFormat};
use crate::serve::{dns_names, runtime, unix_time, wait_for_signal};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for certificates, keys, kubeconfig and the store. Created with mode 0700 if it does not exist.
    #[arg(long, default_value = "./.portcullis")]
    data_dir: PathBuf,
    /// Port on 127.0.0.1; 0 selects a free port.
    #[arg(long, default_value_t = 6443)]
    secure_port: u16,
    /// Directory of static admission manifests: policies, bindings and webhook configurations. Reloaded when a file changes.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Treat warnings about static manifests as errors: the server does not start, and a reload keeps the previous manifests.
    #[arg(long)]
    strict_manifests: bool,
    /// Run the built-in scheduler; otherwise run kube-scheduler.
    #[arg(long)]
    enable_scheduler: bool,
    #[command(flatten)]
    limits: LimitArgs,
    /// Format of log lines.
    #[arg(long, default_value = "text")]
    logging_format: LogFormat,
    /// Log verbosity: 0 to 2 logs at level info, 3 to 5 at debug, 6 and above at trace.
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    verbosity: u8,
}

/// Unauthenticated clients can reach only these paths.
const HEALTH_PATHS: &[&str] = &["/healthz", "/livez", "/readyz"];

/// Runs the server until SIGTERM or SIGINT. `flags` are all flags with their values, for `/flagz`.
pub(crate) fn run(args: &Args, flags: Vec<(String, String)>) -> Result<()> {
    let _log = logging::start(args.logging_format, args.verbosity)?;
    let directory = &args.data_dir;
    create_private_directory(directory)?;
    let files = ClusterFiles::read_or_create(directory)?;
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut config = Config::new(SocketAddr::new(local, args.secure_port), files.serving);
    config.storage.data = StorageBackend::Directory(directory.join("store"));
    config.authentication.client_ca = Some(files.authority.cert_pem.clone().into_bytes());
    config.controllers.root_ca = Some(files.authority.cert_pem.clone());
    // Aggregated API servers trust identity headers from the holder of the proxy client certificate. They read its authority from the
    // ConfigMap `extension-apiserver-authentication`, which publishes what this server trusts itself.
    config.authentication.front_proxy =
        Some((files.proxy_authority.cert_pem.clone().into_bytes(), front_proxy()));
    config.apis.proxy_client = Some(files.proxy_client.clone());
    config.authentication.tokens = Some(TokenConfig {
        issuers: vec!["https://kubernetes.default.svc".into()],
        signing_key: files.signing_key.clone().into_bytes(),
        keys: Vec::new(),
        audiences: Vec::new(),
        max_seconds: 0,
        extend: true,
        jwks_uri: String::new(),
        lookup: true,
    });
    config.authentication.anonymous = Anonymous::Paths(HEALTH_PATHS.iter().map(|p| (*p).into()).collect());
    let modes = vec!["Node".to_owned(), "RBAC".to_owned()];
    config.authorization = Authorization::Flags(Flags { modes, ..Flags::default() });
    // The Node authorizer lets nodes create pods and request tokens; only this plugin restricts them to their own.
    config.admission.enable = vec!["NodeRestriction".to_owned()];
    args.limits.apply(&mut config);
    config.apis.allow_privileged = true;
    config.controllers.scheduler = args.enable_scheduler;
    config.flags = flags;
    // Off in `serve`, as in Kubernetes 1.37, for clusters that are upgraded. In a cluster of `up`, no webhook depends on calls without tokens.
    config.admission.webhook_tokens = true;
    config.admission.strict_manifests = args.strict_manifests;
    config.feature_gates = FeatureGates::default().with(WEBHOOK_TOKENS, true).all();
    config.admission.manifests.extend(args.policies.clone().map(|directory| (ManifestSet::Mixed, directory)));
    runtime()?.block_on(async move {
        let running = server::start(config).await?;
        let url = format!("https://{}", running.address);
        let kubeconfig = directory.join("kubeconfig");
        write_private(&kubeconfig, &pki::kubeconfig(&url, &files.authority.cert_pem, &files.admin))?;
        let shown = fs::canonicalize(&kubeconfig).unwrap_or(kubeconfig);
        let mut out = std::io::stdout().lock();
        let readiness =
            if running.is_ready() { "ready" } else { "serving, but not ready (see /readyz?verbose)," };
        let _ = writeln!(out, "Portcullis is {readiness} at {url}");
        let _ = writeln!(out, "export KUBECONFIG={}", shown.display());
        let _ = writeln!(
            out,
            "kubectl create configmap hello --from-literal=greeting=world && kubectl get configmaps"
        );
        drop(out);
        wait_for_signal().await?;
        running.stop().await;
        Ok(())
    })
}

/// The certificates and keys in the data directory.
struct ClusterFiles {
    authority: TlsIdentity,
    serving: TlsIdentity,
    admin: TlsIdentity,
    proxy_authority: TlsIdentity,
    proxy_client: TlsIdentity,
    signing_key: String,
}

/// Common name of the client certificate that this server presents to aggregated API servers.
const PROXY_CLIENT: &str = "front-proxy-client";

/// Accepts identity headers from the holder of that certificate.
fn front_proxy() -> FrontProxy {
    FrontProxy {
        allowed_names: vec![PROXY_CLIENT.into()],
        username_headers: vec![REMOTE_USER.into()],
        uid_headers: vec![REMOTE_UID.into()],
        group_headers: vec![REMOTE_GROUP.into()],
        extra_header_prefixes: vec![REMOTE_EXTRA_PREFIX.into()],
    }
}

impl ClusterFiles {
    /// Reads the files that exist and creates those that are missing.
    fn read_or_create(directory: &Path) -> Result<Self> {
        let now = unix_time();
        let authority = identity(directory, "ca", || pki::authority("portcullis-ca", now))?;
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let first = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let serving = identity(directory, "apiserver", || {
            pki::serving(&authority, &dns_names(), &[local, first], now)
        })?;
        let admin = identity(directory, "admin", || {
            pki::client(&authority, "kubernetes-admin", &[authn::names::MASTERS], now)
        })?;
        let proxy_authority =
            identity(directory, "front-proxy-ca", || pki::authority("front-proxy-ca", now))?;
        let proxy_client =
            identity(directory, PROXY_CLIENT, || pki::client(&proxy_authority, PROXY_CLIENT, &[], now))?;
        let path = directory.join("sa.key");
        let signing_key = if path.exists() {
            check_private(&path)?;
            fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?
        } else {
            let made = pki::signing_key()?;
            write_private(&path, &made)?;
            made
        };
        Ok(ClusterFiles { authority, serving, admin, proxy_authority, proxy_client, signing_key })
    }
}

/// Reads `NAME.crt` and `NAME.key`, or creates both if neither exists.
fn identity(
    directory: &Path,
    name: &str,
    make: impl FnOnce() -> Result<TlsIdentity, pki::Error>,
) -> Result<TlsIdentity> {
    let (cert, key) = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
    match (cert.exists(), key.exists()) {
        (true, true) => {
            check_private(&key)?;
            let read = |path: &Path| {
                fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
            };
            Ok(TlsIdentity { cert_pem: read(&cert)?, key_pem: read(&key)? })
        }
        (false, false) => {
            let made = make()?;
            write_private(&key, &made.key_pem)?;
            write_private(&cert, &made.cert_pem)?;
            Ok(made)
        }
        _ => bail!(
            "only one of `{}` and `{}` exists: restore the missing file, or remove the other one to create both again",
            cert.display(),
            key.display()
        ),
    }
}

/// Creates the directory, or checks that only the current user can access it.
fn create_private_directory(directory: &Path) -> Result<()> {
    if !directory.exists() {
        return fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("cannot create the data directory `{}`", directory.display()));
    }
    let metadata = fs::metadata(directory)
        .with_context(|| format!("cannot read the data directory `{}`", directory.display()))?;
    if !metadata.is_dir() {
        bail!("the data directory `{}` is not a directory", directory.display());
    }
    let me = fs::metadata("/proc/self").context("cannot read the user of this process")?.uid();
    if metadata.uid() != me {
        bail!(
            "the data directory `{}` belongs to another user, who could have put keys into it: use another directory",
            directory.display()
        );
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!(
            "the data directory `{}` has mode {mode:04o}, so other users can access it: run `chmod 700 {}`",
            directory.display(),
            directory.display()
        );
    }
    Ok(())
}

fn check_private(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!(
            "`{}` has mode {mode:04o}, so other users can read it: run `chmod 600 {}`",
            path.display(),
            path.display()
        );
    }
    Ok(())
}

/// Writes a file with mode 0600 and replaces an existing one atomically.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let temporary = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().with_context(|| format!("cannot write `{}`", path.display()))
}
