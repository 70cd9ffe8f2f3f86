//! The server under test: the built binary in a temporary folder, killed when dropped.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tempfile::TempDir;

use crate::client::{Client, Credentials, Trust};
use crate::etcd_process::EtcdProcess;
use crate::{Problem, Result};

/// The time limit for the start; generous, because test machines are busy.
const READY: Duration = Duration::from_secs(30);
/// The page that a started server is asked for.
const READY_PAGE: &str = "/readyz";

/// The users of the servers under test, as a token file.
pub const TOKENS: &str = "\
admintoken,admin,admin,system:masters
alicetoken,alice,alice-uid,\"devs,testers\"
bobtoken,bob,bob-uid
";

pub const ADMIN_TOKEN: &str = "admintoken";

/// The issuer of service account tokens.
const ISSUER: &str = "https://kubernetes.default.svc";

/// The binary under test: `PORTCULLIS_BIN`, or what cargo last built in the target folder of this test.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("PORTCULLIS_BIN") {
        return Ok(PathBuf::from(path));
    }
    let own = env::current_exe().map_err(|e| Problem::at("where this test is", e))?;
    own.ancestors().map(|folder| folder.join("portcullis")).find(|path| path.is_file()).ok_or_else(|| {
        Problem::new("no portcullis is built: run `cargo build -p cli`, or set PORTCULLIS_BIN")
    })
}

/// A program of Kubernetes in the directory `PORTCULLIS_KUBERNETES`; `None`, with a message, if the variable is not set: the set-up cannot
/// install such programs.
pub fn kubernetes_program(name: &str) -> Result<Option<PathBuf>> {
    let Some(directory) = env::var_os("PORTCULLIS_KUBERNETES") else {
        println!("left out: PORTCULLIS_KUBERNETES names no directory with {name}");
        return Ok(None);
    };
    let program = Path::new(&directory).join(name);
    if !program.is_file() {
        return Err(Problem::new(format!("PORTCULLIS_KUBERNETES has no `{name}`")));
    }
    Ok(Some(program))
}

/// A running server process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// The working folder. It is deleted with the server, unless the test passed it in.
    folder: DataFolder,
    log: Arc<Mutex<String>>,
    /// The base URL, `https://HOST:PORT`.
    pub url: String,
    /// The lines of standard output before the server was ready.
    pub greeting: Vec<String>,
    /// The time from start to ready.
    pub took: Duration,
}

#[derive(Debug)]
enum DataFolder {
    Own(TempDir),
    Given(PathBuf),
}

impl Server {
    /// Starts `portcullis serve` with the users of [`TOKENS`] and further flags, and with RBAC unless the flags choose
    /// authorizers.
    pub async fn serve(flags: &[&str]) -> Result<Self> {
        let own = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
        Self::serve_in(DataFolder::Own(own), "", flags, READY_PAGE).await
    }

    /// Like [`Server::serve`], from a shell that runs `first` before it, for resource limits that the process inherits.
    pub async fn serve_after(first: &str, flags: &[&str]) -> Result<Self> {
        let own = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
        Self::serve_in(DataFolder::Own(own), first, flags, READY_PAGE).await
    }

    /// Like [`Server::serve`], in a folder that outlives the server.
    pub async fn serve_at(folder: &Path, flags: &[&str]) -> Result<Self> {
        Self::serve_in(DataFolder::Given(folder.to_owned()), "", flags, READY_PAGE).await
    }

    /// Like [`Server::serve_at`], but waits until `page` answers 200, for a server whose `/readyz` fails.
    pub async fn serve_at_until(folder: &Path, flags: &[&str], page: &str) -> Result<Self> {
        Self::serve_in(DataFolder::Given(folder.to_owned()), "", flags, page).await
    }

    async fn serve_in(folder: DataFolder, first: &str, flags: &[&str], page: &str) -> Result<Self> {
        let mut command = if first.is_empty() {
            Command::new(binary()?)
        } else {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("{first}\nexec \"$0\" \"$@\"")).arg(binary()?);
            shell
        };
        command.args(["serve", "--enable-controllers"]).args(default_root_ca(flags));
        command.args(default_store(flags, &folder.path().join("data")));
        Self::start(command, folder, flags, page).await
    }

    /// Starts a real kube-apiserver on this etcd, with the users of [`TOKENS`] and RBAC; `None` if such tests are left out.
    pub async fn kube_apiserver(etcd: &EtcdProcess, flags: &[&str]) -> Result<Option<Self>> {
        let Some(program) = kubernetes_program("kube-apiserver")? else { return Ok(None) };
        let own = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
        let (private, public) = signing_keys()?;
        write_private(&own.path().join("sa.key"), &private)?;
        write_private(&own.path().join("sa.pub"), &public)?;
        let mut command = Command::new(program);
        command.arg(format!("--etcd-servers={}", etcd.url));
        Self::start(command, DataFolder::Own(own), flags, READY_PAGE).await.map(Some)
    }

    /// Adds the flags that kube-apiserver and `portcullis serve` have in common, starts the server and waits until `page` answers 200.
    async fn start(mut command: Command, folder: DataFolder, flags: &[&str], page: &str) -> Result<Self> {
        let path = folder.path().to_owned();
        let tokens = path.join("tokens.csv");
        write_private(&tokens, TOKENS)?;
        let signing = path.join("sa.key");
        if !signing.exists() {
            write_private(&signing, &signing_key()?)?;
        }
        // kube-apiserver does not read the public key from such a private key.
        let verifying =
            Some(path.join("sa.pub")).filter(|file| file.exists()).unwrap_or_else(|| signing.clone());
        let (port, port_guard) = free_port()?;
        command
            .args(["--bind-address=127.0.0.1", "--allow-privileged=true"])
            .args(default_authorization(flags))
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", path.join("certs").display()))
            .arg(format!("--token-auth-file={}", tokens.display()))
            .arg(format!("--service-account-issuer={ISSUER}"))
            .arg(format!("--service-account-signing-key-file={}", signing.display()))
            .arg(format!("--service-account-key-file={}", verifying.display()))
            .args(flags);
        drop(port_guard);
        let started = Instant::now();
        let (child, log) = spawn(command)?;
        let url = format!("https://127.0.0.1:{port}");
        let mut server = Server { child, folder, log, url, greeting: Vec::new(), took: Duration::ZERO };
        let client = server.client()?;
        loop {
            if let Some(status) = server.ended()? {
                return Err(Problem::new(format!("the server ended ({status}): {}", server.log())));
            }
            if client.get(page).await.is_ok_and(|answer| answer.code == 200) {
                break;
            }
            if started.elapsed() > READY {
                return Err(Problem::new(format!("the server is not ready in {READY:?}: {}", server.log())));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.took = started.elapsed();
        Ok(server)
    }

    /// Starts `portcullis up` in a temporary folder.
    pub async fn up() -> Result<Self> {
        let own = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
        Self::up_in(DataFolder::Own(own), 0, &[]).await
    }

    /// Like [`Server::up`], with further flags.
    pub async fn up_with(flags: &[&str]) -> Result<Self> {
        let own = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
        Self::up_in(DataFolder::Own(own), 0, flags).await
    }

    /// Starts `portcullis up` in this folder, which outlives the server and is the base of relative paths in flags.
    pub async fn up_in_folder(folder: &Path, flags: &[&str]) -> Result<Self> {
        Self::up_in(DataFolder::Given(folder.to_owned()), 0, flags).await
    }

    /// Starts `portcullis up` with its data below a folder that outlives the server.
    pub async fn up_at(folder: &Path) -> Result<Self> {
        Self::up_in(DataFolder::Given(folder.to_owned()), 0, &[]).await
    }

    /// Like [`Server::up_at`], on this port.
    pub async fn up_at_port(folder: &Path, port: u16) -> Result<Self> {
        Self::up_in(DataFolder::Given(folder.to_owned()), port, &[]).await
    }

    async fn up_in(folder: DataFolder, port: u16, flags: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary()?);
        command
            .arg("up")
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .args(["--secure-port", &port.to_string()])
            .args(flags)
            .current_dir(folder.path())
            .stdout(Stdio::piped());
        let started = Instant::now();
        let (mut child, log) = spawn(command)?;
        let stdout = child.stdout.take().ok_or_else(|| Problem::new("no standard output"))?;
        // The server prints three lines when it is ready. A thread reads them, so that waiting for a silent server can time out.
        let reading = tokio::task::spawn_blocking(move || {
            BufReader::new(stdout).lines().take(3).map_while(std::result::Result::ok).collect::<Vec<_>>()
        });
        let greeting = tokio::time::timeout(READY, reading).await;
        let took = started.elapsed();
        let greeting = greeting.ok().and_then(std::result::Result::ok).unwrap_or_default();
        let mut server = Server { child, folder, log, url: String::new(), greeting, took };
        if server.greeting.len() < 3 {
            let _ = server.child.kill();
            let status = server.child.wait().map_err(|e| Problem::at("waiting", e))?;
            return Err(Problem::new(format!(
                "`portcullis up` did not say that it is ready ({status}): {:?} {}",
                server.greeting,
                server.log()
            )));
        }
        let url = server.greeting.iter().find_map(|line| line.split_once("https://")).map(|(_, rest)| rest);
        server.url = format!("https://{}", url.unwrap_or_default().trim());
        Ok(server)
    }

    /// A client with the administrator's credentials.
    pub fn client(&self) -> Result<Client> {
        let data = self.folder.path().join("data");
        if self.greeting.is_empty() {
            return Client::new(&self.url, Trust::Anything, Credentials::Token(ADMIN_TOKEN.to_owned()));
        }
        let read = |name: &str| fs::read(data.join(name)).map_err(|e| Problem::at(name, e));
        let credentials = Credentials::Certificate(read("admin.crt")?, read("admin.key")?);
        Client::new(&self.url, Trust::Authorities(read("ca.crt")?), credentials)
    }

    /// The folder with the server's data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The kubeconfig of the administrator; created if the server did not write one.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        let own = self.data().join("kubeconfig");
        if own.is_file() {
            return Ok(own);
        }
        let path = self.folder.path().join("kubeconfig");
        write_private(&path, &kubeconfig(&self.url, ADMIN_TOKEN))?;
        Ok(path)
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn resident_kib(&self) -> Option<u64> {
        resident_kib(self.pid())
    }

    /// The most resident memory that the process has had.
    pub fn peak_resident_kib(&self) -> Option<u64> {
        status_kib(self.pid(), "VmHWM:")
    }

    /// The log output so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills the process without a chance to clean up, and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().map_err(|e| Problem::at("cannot kill the server", e))?;
        self.child.wait().map_err(|e| Problem::at("waiting", e))?;
        Ok(())
    }

    /// Sends SIGTERM, as a service manager does.
    pub fn terminate(&self) -> Result<()> {
        let status = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(Problem::new(format!("cannot send a signal: {other:?}"))),
        }
    }

    /// Waits for the end of the process.
    pub async fn wait(&mut self, time: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + time;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(Problem::new(format!(
                    "the server has not ended within {time:?}: {}",
                    self.log()
                )));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|e| Problem::at("waiting", e))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl DataFolder {
    fn path(&self) -> &Path {
        match self {
            DataFolder::Own(folder) => folder.path(),
            DataFolder::Given(path) => path,
        }
    }
}

/// Runs the binary to its end and returns its exit code and output. It is killed after a time limit.
pub async fn run_to_end(args: &[&str], time: Duration) -> Result<(Option<i32>, String)> {
    let mut command = tokio::process::Command::new(binary()?);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(time, command.output()).await;
    let output = output
        .map_err(|_| Problem::new(format!("`portcullis {}` has not ended within {time:?}", args.join(" "))))?
        .map_err(|e| Problem::at("cannot run the binary", e))?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((output.status.code(), said))
}

/// No ConfigMap `kube-root-ca.crt` unless the flags ask for it, so that ConfigMaps can be counted.
fn default_root_ca(flags: &[&str]) -> Option<&'static str> {
    let is_given = flags.iter().any(|flag| flag.starts_with("--root-ca-file"));
    (!is_given).then_some("--root-ca-file=")
}

/// The flag for RBAC, unless `flags` choose the authorizers.
fn default_authorization(flags: &[&str]) -> Option<&'static str> {
    let chosen = flags.iter().any(|flag| flag.starts_with("--authorization-"));
    (!chosen).then_some("--authorization-mode=RBAC")
}

/// The flag for an embedded store, unless `flags` choose etcd.
fn default_store(flags: &[&str], data: &Path) -> Option<String> {
    let chosen = flags.iter().any(|flag| flag.starts_with("--etcd-servers"));
    (!chosen).then(|| format!("--data-dir={}", data.display()))
}

/// A kubeconfig with a token that does not verify the server's certificate.
pub fn kubeconfig(url: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: \"{url}\", insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{token: {token}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    )
}

/// The resident memory of a process in KiB.
pub fn resident_kib(pid: u32) -> Option<u64> {
    status_kib(pid, "VmRSS:")
}

fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// The CPU time of all threads of a process, to the nanosecond. A thread that ends takes its time with it.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_thread = |thread: PathBuf| {
        let line = fs::read_to_string(thread.join("schedstat")).ok()?;
        line.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    let times: Vec<Duration> = threads.filter_map(|thread| of_thread(thread.ok()?.path())).collect();
    (!times.is_empty()).then(|| times.into_iter().sum())
}

/// A free port, reserved until the guard is dropped.
pub fn free_port() -> Result<(u16, TcpListener)> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| Problem::at("a free port", e))?;
    let port = listener.local_addr().map_err(|e| Problem::at("a free port", e))?.port();
    Ok((port, listener))
}

/// A key for service account tokens in PEM format.
pub fn signing_key() -> Result<String> {
    Ok(signing_keys()?.0)
}

/// A private key for service account tokens and its public key in PEM format.
fn signing_keys() -> Result<(String, String)> {
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let document = document.map_err(|e| Problem::at("a key", e))?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref());
    let pair = pair.map_err(|e| Problem::at("a key", e))?;
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(|e| Problem::at("a key", e))?;
    Ok((pem("PRIVATE KEY", document.as_ref()), pem("PUBLIC KEY", public.as_ref())))
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<String> =
        text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Writes an audit policy with these `rules` into a folder; the flags for it and for `audit.log` in that folder.
pub fn audit_flags(folder: &Path, rules: &str) -> Result<[String; 2]> {
    let policy = folder.join("policy.yaml");
    write_private(&policy, &format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}"))?;
    let log = folder.join("audit.log");
    Ok([format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())])
}

/// Writes a file that only its owner can read, and creates its folder.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|e| Problem::at("a folder", e))?;
    }
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = file.map_err(|e| Problem::at(&path.display().to_string(), e))?;
    std::io::Write::write_all(&mut file, text.as_bytes())
        .map_err(|e| Problem::at(&path.display().to_string(), e))
}

/// Starts a process whose standard error is collected in a buffer.
fn spawn(mut command: Command) -> Result<(Child, Arc<Mutex<String>>)> {
    let mut child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Problem::at(&format!("cannot start `{}`", command.get_program().display()), e))?;
    let log = Arc::new(Mutex::new(String::new()));
    if let Some(mut stderr) = child.stderr.take() {
        let log = Arc::clone(&log);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length) = stderr.read(&mut chunk) {
                let Some(said) = chunk.get(..length).filter(|said| !said.is_empty()) else { break };
                log.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(said));
            }
        });
    }
    Ok((child, log))
}
