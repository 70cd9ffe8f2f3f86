//! Sets up what the tests need from outside the repository: kubectl, etcd, the Python client, the CEL conformance data.
//!
//! Downloads go into the target folder. Tests whose tools are not available are left out with a line that says so; an installation
//! that fails is an error.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::{cargo, find, install, output, run as run_command};

/// The oldest minor version of kubectl that has everything the suite asks of it.
const KUBECTL_MINOR: u32 = 30;

/// The Python client, of the version of Kubernetes that is served.
const PYTHON_CLIENT: &str = "kubernetes>=34,<38";

/// The npm package with the CEL conformance data.
const CEL_SPEC: &str = "@bufbuild/cel-spec@0.6.1";

/// The oldest etcd that the server accepts.
const ETCD_VERSION: (u32, u32, u32) = (3, 5, 13);

/// The Debian release whose etcd package is used if none is installed.
const ETCD_SUITE: &str = "trixie";

/// The tools that were found, and the tests that are left out without theirs.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    /// Environment variables for the tests.
    pub(crate) env: Vec<(&'static str, String)>,
    /// Lines that name tests which are left out, and why.
    pub(crate) left_out: Vec<String>,
}

/// `cargo xtask setup`: prints the environment variables that the tests need.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tools = prepare(root)?;
    for (name, value) in &tools.env {
        println!("{name}={value}");
    }
    for line in &tools.left_out {
        println!("left out: {line}");
    }
    Ok(())
}

/// Finds or downloads all tools.
pub(crate) fn prepare(root: &Path) -> Result<Tools> {
    let target = target_folder(root)?;
    fs::create_dir_all(&target)?;
    let mut tools = Tools::default();
    kubectl(&mut tools)?;
    etcd(&target.join("etcd"), &mut tools);
    python(&target.join("python"), &mut tools)?;
    cel_spec(&target.join("cel-spec"), &mut tools)?;
    webhook_packages(&mut tools);
    if std::env::var_os("PORTCULLIS_KUBERNETES").is_none() {
        let what = "PORTCULLIS_KUBERNETES names no directory with kube-apiserver and kube-controller-manager";
        tools.left_out.push(format!("{what}: the tests beside them"));
    }
    Ok(tools)
}

/// Cargo's target folder, which may be outside the workspace.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf> {
    let metadata = output(cargo(root).args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let folder = metadata.get("target_directory").and_then(Value::as_str);
    Ok(PathBuf::from(folder.context("cargo metadata names no target folder")?))
}

fn kubectl(tools: &mut Tools) -> Result<()> {
    if find("kubectl").is_none() {
        install(&["kubernetes-client"])?;
    }
    let kubectl = find("kubectl").context("there is no kubectl on PATH")?;
    let version = output(Command::new(&kubectl).args(["version", "--client", "-o", "json"]))?;
    let version: Value = serde_json::from_str(&version).context("kubectl version is not JSON")?;
    let minor = minor(&version).context("kubectl says no version")?;
    println!("kubectl 1.{minor} at {}", kubectl.display());
    if minor < KUBECTL_MINOR {
        tools.left_out.push(format!(
            "kubectl 1.{minor} is older than 1.{KUBECTL_MINOR}: the steps that need a newer one are made by raw requests only"
        ));
    }
    tools.env.push(("PORTCULLIS_KUBECTL", kubectl.display().to_string()));
    tools.env.push(("PORTCULLIS_KUBECTL_MINOR", minor.to_string()));
    Ok(())
}

/// The minor version in what `kubectl version --client -o json` prints: `32`, or `20+` of a distribution's build.
fn minor(version: &Value) -> Option<u32> {
    let text = version.get("clientVersion")?.get("minor")?.as_str()?;
    text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// Finds an etcd that is new enough, or unpacks the one of a Debian release without installing it.
fn etcd(folder: &Path, tools: &mut Tools) {
    let own = folder.join("usr/bin/etcd");
    let installed = find("etcd").filter(|etcd| etcd_version(etcd).is_some_and(|found| found >= ETCD_VERSION));
    let installed = installed.filter(|etcd| has_etcd_clients(etcd));
    let is_unpacked = own.is_file() && has_etcd_clients(&own);
    let unpacked = if installed.is_some() || is_unpacked { Ok(()) } else { unpack_etcd(folder) };
    if let Err(error) = unpacked {
        tools.left_out.push(format!("the tests with etcd: {error:#}"));
        tools.env.push(("PORTCULLIS_ETCD", "left-out".to_owned()));
        return;
    }
    let etcd = installed.unwrap_or(own);
    println!("etcd at {}", etcd.display());
    tools.env.push(("PORTCULLIS_ETCD", etcd.display().to_string()));
}

/// True if etcdctl and etcdutl, which the documentation uses, are beside etcd.
fn has_etcd_clients(etcd: &Path) -> bool {
    ["etcdctl", "etcdutl"].iter().all(|name| etcd.with_file_name(name).is_file())
}

/// The version that `etcd --version` prints: `etcd Version: 3.5.16`.
fn etcd_version(etcd: &Path) -> Option<(u32, u32, u32)> {
    let text = output(Command::new(etcd).arg("--version")).ok()?;
    let mut numbers = text.lines().next()?.rsplit(' ').next()?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

/// Downloads the packages from the archive that the machine's apt uses, with apt's verification, but with lists of its own.
fn unpack_etcd(folder: &Path) -> Result<()> {
    let targets = || {
        let mut apt = Command::new("apt-get");
        output(apt.args([
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
            "Origin: Debian",
        ]))
    };
    let archive = |targets: String| {
        let is_main = |line: &&str| !line.trim_end_matches('/').ends_with("security");
        targets.lines().find(is_main).map(ToOwned::to_owned)
    };
    let archive = match archive(targets()?) {
        Some(archive) => archive,
        None => {
            output(Command::new("apt-get").args(["update", "-qq"]))?;
            archive(targets()?).context("apt-get has no Debian archive; install etcd 3.5.13 or newer")?
        }
    };
    let (lists, cache) = (folder.join("lists"), folder.join("cache"));
    for folder in [lists.join("partial"), cache.join("archives/partial")] {
        fs::create_dir_all(folder)?;
    }
    let sources = folder.join("sources.list");
    fs::write(&sources, format!("deb {archive} {ETCD_SUITE} main\n"))?;
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.current_dir(folder)
            .arg("-qq")
            .arg("-o")
            .arg(format!("Dir::Etc::sourcelist={}", sources.display()));
        apt.args(["-o", "Dir::Etc::sourceparts=-"]);
        apt.arg("-o").arg(format!("Dir::State::lists={}", lists.display()));
        apt.arg("-o").arg(format!("Dir::Cache={}", cache.display()));
        output(apt.args(args))
    };
    apt(&["update"])?;
    apt(&["download", "etcd-server", "etcd-client"])?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let files = fs::read_dir(folder)?.filter_map(Result::ok).map(|file| file.path());
    for package in files.filter(is_package).collect::<Vec<_>>() {
        output(Command::new("dpkg").arg("-x").arg(&package).arg(folder))?;
        fs::remove_file(package)?;
    }
    for folder in [lists, cache] {
        fs::remove_dir_all(folder)?;
    }
    anyhow::ensure!(has_etcd_clients(&folder.join("usr/bin/etcd")), "the packages lack etcdctl or etcdutl");
    Ok(())
}

/// The Go and Python packages for webhook authors are tested only where their toolchains are installed.
fn webhook_packages(tools: &mut Tools) {
    let runs = |program: &str, args: &[&str]| output(Command::new(program).args(args)).is_ok();
    if !runs("go", &["version"]) {
        tools.left_out.push("there is no go: the tests of go/webhookauth".to_owned());
    }
    if !runs("python3", &["-c", "import cryptography"]) {
        tools
            .left_out
            .push("there is no python3 with cryptography: the tests of python/webhookauth".to_owned());
    }
}

fn python(folder: &Path, tools: &mut Tools) -> Result<()> {
    let Some(python) = find("python3") else {
        tools.left_out.push("there is no python3: the round with the Python client".to_owned());
        return Ok(());
    };
    let own = folder.join("bin/python");
    let stamp = folder.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == PYTHON_CLIENT) && own.is_file() {
        println!("Python client in {}", folder.display());
    } else {
        let venv = || output(Command::new(&python).args(["-m", "venv", "--clear"]).arg(folder));
        if venv().is_err() {
            // On Debian, `venv` needs a package of its own.
            install(&["python3-venv"])?;
            venv()?;
        }
        run_command(
            Command::new(&own)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .arg(PYTHON_CLIENT),
        )
        .context("cannot install the Python client")?;
        fs::write(&stamp, PYTHON_CLIENT)?;
        println!("Python client installed in {}", folder.display());
    }
    tools.env.push(("PORTCULLIS_PYTHON", own.display().to_string()));
    Ok(())
}

/// The conformance data is published as JavaScript modules of plain objects; Node.js converts them to one JSON file.
fn cel_spec(folder: &Path, tools: &mut Tools) -> Result<()> {
    let file = folder.join("cel-spec.json");
    let stamp = folder.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == CEL_SPEC) && file.is_file() {
        println!("CEL conformance data in {}", file.display());
    } else {
        if (find("node").is_none() || find("npm").is_none())
            && let Err(error) = install(&["nodejs", "npm"])
        {
            tools.left_out.push(format!("the CEL conformance data: {error:#}"));
            tools.env.push(("CEL_SPEC_JSON", "left-out".to_owned()));
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        run_command(
            Command::new("npm")
                .args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
                .arg(folder)
                .arg(CEL_SPEC),
        )
        .context("cannot fetch the CEL conformance data")?;
        let script = "\
            const fs = require('fs'), out = {};\
            (async () => {\
              for (const name of ['conformance', 'parsing', 'comprehension', 'checking'])\
                out[name] = (await import(process.argv[1] + '/' + name + '.js')).tests;\
              fs.writeFileSync(process.argv[2], JSON.stringify(out, (_, v) => typeof v === 'bigint' ? v.toString() : v));\
            })().catch(e => { console.error(e); process.exit(1); });";
        let modules = folder.join("node_modules/@bufbuild/cel-spec/dist/esm/testdata");
        run_command(Command::new("node").arg("-e").arg(script).arg(&modules).arg(&file))
            .context("cannot read the CEL conformance data")?;
        fs::write(&stamp, CEL_SPEC)?;
        println!("CEL conformance data written to {}", file.display());
    }
    tools.env.push(("CEL_SPEC_JSON", file.display().to_string()));
    Ok(())
}
