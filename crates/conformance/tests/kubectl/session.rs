//! Runs kubectl in a namespace of the test.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use conformance::Server;
use tempfile::TempDir;

/// A server, kubectl, and a namespace that only this test uses.
pub(crate) struct Session {
    /// Stops the server at the end of the test.
    server: Option<Server>,
    program: PathBuf,
    kubeconfig: PathBuf,
    pub(crate) namespace: String,
    pub(crate) folder: TempDir,
    minor: u32,
}

/// The output of a command and its success.
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Session {
    pub(crate) async fn start() -> Session {
        Self::start_with(&[]).await
    }

    /// A session with a server that has further flags.
    pub(crate) async fn start_with(flags: &[&str]) -> Session {
        let (server, kubeconfig) = if let Some(path) = env::var_os("PORTCULLIS_KUBECONFIG") {
            (None, PathBuf::from(path))
        } else {
            let server = Server::up_with(flags).await.unwrap();
            let kubeconfig = server.kubeconfig().unwrap();
            (Some(server), kubeconfig)
        };
        let program =
            env::var_os("PORTCULLIS_KUBECTL").map_or_else(|| PathBuf::from("kubectl"), PathBuf::from);
        let minor =
            env::var("PORTCULLIS_KUBECTL_MINOR").ok().and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
        let folder = TempDir::new().unwrap();
        let unique = folder.path().file_name().unwrap().to_string_lossy().to_lowercase();
        let namespace = format!("k{}", unique.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()));
        let session = Session { server, program, kubeconfig, namespace, folder, minor };
        session.ok(&["create", "namespace", &session.namespace]);
        session
    }

    /// Whether kubectl has this minor version; the behavior of older versions is tested instead if not.
    pub(crate) fn has(&self, minor: u32) -> bool {
        self.minor >= minor
    }

    /// Whether kubectl has this minor version; prints a line if not.
    pub(crate) fn since(&self, minor: u32, what: &str) -> bool {
        if self.minor < minor {
            println!("left out: {what}, which kubectl has since 1.{minor} and 1.{} has not", self.minor);
        }
        self.minor >= minor
    }

    /// Whether controllers run beside the API server, as they always do in the built binary.
    pub(crate) fn has_controllers(&self) -> bool {
        self.server.is_some()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .args(["--namespace", &self.namespace])
            .args(args)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        said(&self.command(args).output().unwrap())
    }

    pub(crate) fn run_with(&self, args: &[&str], input: &str) -> CommandOutput {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        said(&child.wait_with_output().unwrap())
    }

    /// Runs a command with `sed` as the editor.
    pub(crate) fn edit(&self, args: &[&str], script: &str) -> CommandOutput {
        let editor = format!("sed -i {script}");
        said(&self.command(args).env("KUBE_EDITOR", editor).output().unwrap())
    }

    /// The output of a command that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!(said.code, 0, "kubectl {}: {}{}", args.join(" "), said.out, said.err);
        said.out
    }

    /// The output of a command with input that must succeed.
    #[track_caller]
    pub(crate) fn ok_with(&self, args: &[&str], input: &str) -> String {
        let said = self.run_with(args, input);
        assert_eq!(said.code, 0, "kubectl {}: {}{}", args.join(" "), said.out, said.err);
        said.out
    }

    /// The error output of a command that must fail.
    #[track_caller]
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_ne!(said.code, 0, "kubectl {} succeeded: {}", args.join(" "), said.out);
        said.err
    }

    /// Starts a command whose output is read line by line.
    pub(crate) fn watch(&self, args: &[&str]) -> Watching {
        let mut child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Watching { child, lines }
    }

    /// Repeats the command until `check` accepts its output.
    #[track_caller]
    pub(crate) fn eventually(&self, args: &[&str], check: impl Fn(&CommandOutput) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let said = self.run(args);
            if check(&said) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "kubectl {} still says: {} {}{}",
                args.join(" "),
                said.code,
                said.out,
                said.err
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A command that is still running.
pub(crate) struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    /// The next line that contains `text`.
    #[track_caller]
    pub(crate) fn sees(&self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(text) => return line,
                Ok(_) => {}
                Err(error) => panic!("never saw `{text}`: {error}"),
            }
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &Output) -> CommandOutput {
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Fails unless `whole` contains every text.
#[track_caller]
pub(crate) fn contains(whole: &str, texts: &[&str]) {
    for text in texts {
        assert!(whole.contains(text), "`{text}` is not in:\n{whole}");
    }
}
