//! A child process that can be paused, killed and started again.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use conformance::{Problem, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A process that can be started again after its end. It is killed on drop.
#[derive(Debug, Default)]
pub struct Process {
    child: Option<Child>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    /// Starts the process, after the end of an earlier one. Its output is appended to a file.
    pub(crate) fn start(&mut self, command: &mut Command, log: &Path) -> Result<()> {
        self.kill();
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |error| Problem::at(&format!("cannot start `{name}`"), error);
        let file = File::options().create(true).append(true).open(log).map_err(failed)?;
        let errors = file.try_clone().map_err(failed)?;
        let child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn().map_err(failed)?;
        self.child = Some(child);
        Ok(())
    }

    /// Sends SIGKILL and waits for the end. Also ends a paused process.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?));
        if let Some(pid) = pid {
            // A process that has ended meanwhile needs no signal.
            let _ = kill_process(pid, signal);
        }
    }
}
