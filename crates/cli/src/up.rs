//! `portcullis up`: a server with no configuration at all.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use admission::manifests::ManifestSet;
use anyhow::{Context as _, Result, bail};
use authn::{Anonymous, FrontProxy};
use authz::config::Flags;
use server::pki::{self, Identity};
use server::tokens::TokenConfig;
use server::{Authorization, Config, Data};

use crate::gates::{Gates, WEBHOOK_TOKENS};
use crate::limits::LimitArgs;
use crate::logging::{self, Format};
use crate::serve::{dns_names, now, runtime, wait_for_signal};

/// The flags of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder that everything is kept in; created with mode 0700.
    #[arg(long, default_value = "./.portcullis")]
    data_dir: PathBuf,
    /// The port to listen on, on 127.0.0.1 only; 0 takes any free one.
    #[arg(long, default_value_t = 6443)]
    secure_port: u16,
    /// A folder of static admission manifests, of any of the six kinds: in force before the first request, and read again when
    /// it changes.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Treat warnings about static manifests as errors, as `portcullis check --strict` does.
    #[arg(long)]
    strict_manifests: bool,
    /// Gives pods nodes with a small scheduler of its own.
    #[arg(long)]
    enable_scheduler: bool,
    #[command(flatten)]
    limits: LimitArgs,
    /// text or json.
    #[arg(long, default_value = "text")]
    logging_format: Format,
    /// How much is logged: 0 to 2 informs, 3 to 5 explains, more shows everything.
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    verbosity: u8,
}

/// Paths of health, which callers without credentials may ask for.
const HEALTH: &[&str] = &["/healthz", "/livez", "/readyz"];

/// Runs the server until it is told to stop.
pub(crate) fn run(args: &Args, flags: Vec<(String, String)>) -> Result<()> {
    logging::start(args.logging_format, args.verbosity)?;
    let folder = &args.data_dir;
    private_folder(folder)?;
    let files = Files::prepare(folder)?;
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut config = Config::new(SocketAddr::new(local, args.secure_port), files.serving);
    config.data = Data::Folder(folder.join("store"));
    config.client_ca = Some(files.authority.cert_pem.clone().into_bytes());
    config.root_ca = Some(files.authority.cert_pem.clone());
    // API servers behind this one believe whoever shows this certificate; so does this server.
    config.front_proxy = Some((files.proxy_authority.cert_pem.clone().into_bytes(), front_proxy()));
    config.proxy_client = Some(files.proxy_client.clone());
    config.tokens = Some(TokenConfig {
        issuers: vec!["https://kubernetes.default.svc".into()],
        signing_key: files.signing_key.clone().into_bytes(),
        keys: Vec::new(),
        audiences: Vec::new(),
        max_seconds: 0,
        extend: true,
        jwks_uri: String::new(),
        lookup: true,
    });
    config.anonymous = Anonymous::Paths(HEALTH.iter().map(|p| (*p).into()).collect());
    let modes = vec!["Node".to_owned(), "RBAC".to_owned()];
    config.authorization = Authorization::Flags(Flags { modes, ..Flags::default() });
    // The Node authorizer lets nodes create pods and ask for tokens; only this plugin restricts them to their own.
    config.enable_admission = vec!["NodeRestriction".to_owned()];
    args.limits.apply(&mut config);
    config.allow_privileged = true;
    config.scheduler = args.enable_scheduler;
    config.flags = flags;
    // No cluster is being upgraded here, so webhooks are told who asks them.
    config.webhook_tokens = true;
    config.strict_manifests = args.strict_manifests;
    config.feature_gates = Gates::default().with(WEBHOOK_TOKENS, true).all();
    config.manifests.extend(args.policies.clone().map(|folder| (ManifestSet::Mixed, folder)));
    runtime()?.block_on(async move {
        let running = server::start(config).await?;
        let url = format!("https://{}", running.address);
        let kubeconfig = folder.join("kubeconfig");
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

/// What `up` keeps besides the store.
struct Files {
    authority: Identity,
    serving: Identity,
    admin: Identity,
    proxy_authority: Identity,
    proxy_client: Identity,
    signing_key: String,
}

/// The name of the certificate by which API servers behind this one recognise it.
const PROXY_CLIENT: &str = "front-proxy-client";

/// What the holder of that certificate may say about callers.
fn front_proxy() -> FrontProxy {
    FrontProxy {
        allowed_names: vec![PROXY_CLIENT.into()],
        username_headers: vec!["X-Remote-User".into()],
        uid_headers: vec!["X-Remote-Uid".into()],
        group_headers: vec!["X-Remote-Group".into()],
        extra_header_prefixes: vec!["X-Remote-Extra-".into()],
    }
}

impl Files {
    /// Reads what is there and makes what is missing.
    fn prepare(folder: &Path) -> Result<Self> {
        let now = now();
        let authority = identity(folder, "ca", || pki::authority("portcullis-ca", now))?;
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let first = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let serving =
            identity(folder, "apiserver", || pki::serving(&authority, &dns_names(), &[local, first], now))?;
        let admin = identity(folder, "admin", || {
            pki::client(&authority, "kubernetes-admin", &[authn::names::MASTERS], now)
        })?;
        let proxy_authority = identity(folder, "front-proxy-ca", || pki::authority("front-proxy-ca", now))?;
        let proxy_client =
            identity(folder, PROXY_CLIENT, || pki::client(&proxy_authority, PROXY_CLIENT, &[], now))?;
        let path = folder.join("sa.key");
        let signing_key = if path.exists() {
            check_private(&path)?;
            fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?
        } else {
            let made = pki::signing_key()?;
            write_private(&path, &made)?;
            made
        };
        Ok(Files { authority, serving, admin, proxy_authority, proxy_client, signing_key })
    }
}

/// The certificate and key called `name`, made if neither is there.
fn identity(
    folder: &Path,
    name: &str,
    make: impl FnOnce() -> Result<Identity, pki::Error>,
) -> Result<Identity> {
    let (cert, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    match (cert.exists(), key.exists()) {
        (true, true) => {
            check_private(&key)?;
            let read = |path: &Path| {
                fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
            };
            Ok(Identity { cert_pem: read(&cert)?, key_pem: read(&key)? })
        }
        (false, false) => {
            let made = make()?;
            write_private(&key, &made.key_pem)?;
            write_private(&cert, &made.cert_pem)?;
            Ok(made)
        }
        _ => bail!(
            "of `{}` and `{}` only one is there: restore the other, or remove this one to have both made anew",
            cert.display(),
            key.display()
        ),
    }
}

/// Makes the folder, or checks that nobody else can look into it.
fn private_folder(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot create the data folder `{}`", folder.display()));
    }
    let metadata = fs::metadata(folder)
        .with_context(|| format!("cannot read the data folder `{}`", folder.display()))?;
    if !metadata.is_dir() {
        bail!("the data folder `{}` is not a folder", folder.display());
    }
    let me = fs::metadata("/proc/self").context("cannot tell who runs this process")?.uid();
    if metadata.uid() != me {
        bail!(
            "the data folder `{}` belongs to another user, who could have put keys into it",
            folder.display()
        );
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!(
            "the data folder `{}` has mode {mode:04o}, so others can look into it: run `chmod 700 {}`",
            folder.display(),
            folder.display()
        );
    }
    Ok(())
}

fn check_private(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!(
            "`{}` has mode {mode:04o}, so others can read it: run `chmod 600 {}`",
            path.display(),
            path.display()
        );
    }
    Ok(())
}

/// Writes a file that only its owner can read, in one step: a reader sees the old one or the new one.
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
