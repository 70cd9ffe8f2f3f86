//! The bash that runs the blocks of one page, in an empty folder with `portcullis` on its `PATH`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::expected_output::compare;
use super::programs::{python_with_client, search_path};
use crate::server::binary;
use crate::{Problem, Result};

/// The longest time that one block may take; generous, because machines that test are busy.
const BLOCK_TIMEOUT: Duration = Duration::from_mins(3);
/// How long a block is repeated until its output is as expected, and how long a server may take to be ready.
const RETRY_TIMEOUT: Duration = Duration::from_secs(45);
const POLL: Duration = Duration::from_millis(20);

/// Bash reads the names of blocks from its standard input. A block is `NAME.sh`; its output goes to `NAME.out`, and when it has ended,
/// `NAME.done` appears. Blocks that stop the page run in this very shell, so that variables, functions and jobs stay.
const LOOP: &str = r#"
exec 3<&0 </dev/null
set -uo pipefail
while IFS=' ' read -r mode name <&3; do
  case $mode in
    stop) set -e; source "$name.sh" >"$name.out" 2>&1 3<&-; set +e ;;
    continue) source "$name.sh" >"$name.out" 2>&1 3<&- ;;
    subshell) ( source "$name.sh" ) >"$name.out" 2>&1 3<&- ;;
    background) ( source "$name.sh" ) >"$name.out" 2>&1 3<&- & ;;
  esac
  : >"$name.done"
done
"#;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnFailure {
    Stop,
    Continue,
}

pub(super) struct PageShell {
    folder: TempDir,
    bash: Child,
    /// How many blocks were run.
    count: usize,
}

impl PageShell {
    /// `ports` are free ones; a server that is started without a port listens on the first.
    pub(super) fn start(ports: &[String]) -> Result<Self> {
        let folder = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
        let root = folder.path();
        for name in ["bin", "blocks", "work"] {
            fs::create_dir(root.join(name)).map_err(|e| Problem::at("a folder", e))?;
        }
        let port = ports.first().map_or("0", String::as_str);
        let portcullis = format!(
            "#!/bin/sh\ncase \"$1 $*\" in\n  *--secure-port*) ;;\n  up*|serve*) command=$1; shift; set -- \"$command\" --secure-port={port} \"$@\" ;;\nesac\nexec '{}' \"$@\"\n",
            binary()?.display()
        );
        write_program(&root.join("bin/portcullis"), &portcullis)?;
        if let Some(python) = python_with_client() {
            let python = format!("#!/bin/sh\nexec '{python}' \"$@\"\n");
            write_program(&root.join("bin/python3"), &python)?;
        }
        let log = fs::File::create(root.join("shell.log")).map_err(|e| Problem::at("a file", e))?;
        let bash = Command::new("bash")
            .args(["-c", LOOP])
            .env("PATH", search_path(&root.join("bin")))
            .env("HOME", root)
            .env_remove("KUBECONFIG")
            .current_dir(root.join("work"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(|e| Problem::at("bash", e))?;
        Ok(PageShell { folder, bash, count: 0 })
    }

    pub(super) fn work_folder(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(super) fn write_file(&self, file: &str, text: &str) -> Result<()> {
        let path = self.work_folder().join(file);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| Problem::at(file, e))?;
        }
        fs::write(&path, text).map_err(|e| Problem::at(file, e))
    }

    /// Returns everything that the commands print.
    pub(super) fn run(&mut self, commands: &str, on_failure: OnFailure) -> Result<String> {
        let mode = if on_failure == OnFailure::Stop { "stop" } else { "continue" };
        self.run_in_mode(mode, commands)
    }

    /// Repeats the commands, in a subshell, until they print what is expected.
    pub(super) fn retry(&mut self, commands: &str, expected: &str) -> Result<()> {
        let end = Instant::now() + RETRY_TIMEOUT;
        loop {
            let printed = self.run_in_mode("subshell", commands)?;
            match compare(&printed, expected) {
                Err(problem) if Instant::now() > end => return Err(problem),
                Err(_) => std::thread::sleep(POLL),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Starts a server and waits until it prints what is expected, or else that it is ready.
    pub(super) fn run_in_background(&mut self, commands: &str, expected: Option<&str>) -> Result<()> {
        self.run_in_mode("background", commands)?;
        let end = Instant::now() + RETRY_TIMEOUT;
        loop {
            let printed = self.printed();
            let outcome = match expected {
                Some(expected) => compare(&printed, expected),
                None if printed
                    .lines()
                    .any(|line| line.ends_with("ready") || line.contains("is ready at")) =>
                {
                    Ok(())
                }
                None => Err(Problem::new(format!("the server is not ready:\n{printed}"))),
            };
            match outcome {
                Err(problem) if Instant::now() > end => return Err(problem),
                Err(_) => std::thread::sleep(POLL),
                Ok(()) => return Ok(()),
            }
        }
    }

    fn run_in_mode(&mut self, mode: &str, commands: &str) -> Result<String> {
        self.count += 1;
        let block = self.block();
        fs::write(block.with_extension("sh"), commands).map_err(|e| Problem::at("a file", e))?;
        let line = format!("{mode} {}\n", block.display());
        let input = self.bash.stdin.as_mut().ok_or_else(|| Problem::new("bash has no standard input"))?;
        input.write_all(line.as_bytes()).map_err(|e| Problem::at("bash", e))?;
        let end = Instant::now() + BLOCK_TIMEOUT;
        let done = block.with_extension("done");
        while !done.exists() {
            if let Some(status) = self.bash.try_wait().map_err(|e| Problem::at("bash", e))? {
                return Err(self.failure(&format!("a command fails ({status})"), commands));
            }
            if Instant::now() > end {
                return Err(
                    self.failure(&format!("the commands have not ended within {BLOCK_TIMEOUT:?}"), commands)
                );
            }
            std::thread::sleep(POLL);
        }
        Ok(self.printed())
    }

    fn block(&self) -> PathBuf {
        self.folder.path().join(format!("blocks/{}", self.count))
    }

    fn printed(&self) -> String {
        let bytes = fs::read(self.block().with_extension("out")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn failure(&self, what: &str, commands: &str) -> Problem {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let server_log = read(&self.work_folder().join("server.log"));
        let lines: Vec<&str> = server_log.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n");
        let shell_log = read(&self.folder.path().join("shell.log"));
        let printed = self.printed();
        Problem::new(format!("{what}:\n{commands}prints\n{printed}{shell_log}server.log ends with\n{tail}"))
    }
}

/// Ends everything that the page left running: bash leads a process group of its own.
impl Drop for PageShell {
    fn drop(&mut self) {
        let group = format!("kill -KILL -- -{} 2>/dev/null", self.bash.id());
        let _ = Command::new("bash").args(["-c", &group]).status();
        let _ = self.bash.wait();
    }
}

fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| Problem::at("a program", e))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(|e| Problem::at("a program", e))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{OnFailure, PageShell};

    #[test]
    fn blocks_share_one_shell_that_stops_at_the_first_error() {
        let mut shell = PageShell::start(&[]).unwrap();
        shell.run("A=1\nf() { echo $A; }\n", OnFailure::Stop).unwrap();
        assert_eq!(shell.run("false\nf\n", OnFailure::Continue).unwrap(), "1\n");
        assert_eq!(shell.run("f; f\n", OnFailure::Stop).unwrap(), "1\n1\n");
        let problem = shell.run("echo before\nfalse\necho after\n", OnFailure::Stop).unwrap_err().to_string();
        assert!(
            problem.contains("prints\nbefore\n") && !problem.contains("prints\nbefore\nafter"),
            "{problem}"
        );
    }

    #[test]
    fn a_block_is_repeated_until_its_output_is_as_expected() {
        let mut shell = PageShell::start(&[]).unwrap();
        shell.retry("echo x >> file; wc -l < file\n", "3\n").unwrap();
    }

    #[test]
    fn processes_that_a_page_leaves_running_are_ended() {
        let mut shell = PageShell::start(&[]).unwrap();
        let pid = shell.run("sleep 1000 &\necho $!\n", OnFailure::Stop).unwrap();
        let process = format!("/proc/{}/stat", pid.trim());
        assert!(std::fs::exists(&process).unwrap());
        drop(shell);
        let end = Instant::now() + Duration::from_secs(10);
        // Gone, or a zombie that its new parent has not collected yet.
        while std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < end, "{pid} still runs");
            std::thread::yield_now();
        }
    }
}
