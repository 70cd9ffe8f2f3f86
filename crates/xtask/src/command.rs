//! Runs cargo and other programs, and turns their failures into errors.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The cargo that runs this command, in the workspace root.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a program to its end and shows its output. An exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    let status = command.status().with_context(|| format!("cannot run `{line}`"))?;
    if status.success() { Ok(()) } else { bail!("`{line}` failed ({status})") }
}

/// Runs a program to its end and returns its standard output. An exit code other than 0 is an error with its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The path of `program`, if it is in PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Installs Debian packages. Without apt-get or root, the error says which packages to install.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    if find("apt-get").is_none() {
        bail!("please install {names}: there is no apt-get here");
    }
    if output(Command::new("id").arg("-u"))?.trim() != "0" {
        bail!("please install {names} (`apt-get install {names}` as root)");
    }
    println!("installing {names}");
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        command
    };
    run(apt().args(["update", "-qq"]))?;
    run(apt().args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages))
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
