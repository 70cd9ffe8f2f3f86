//! The programs that pages use: where they are, and which this machine lacks.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::{Problem, Result};

/// The programs of etcd. They are in one folder, which `PORTCULLIS_ETCD` locates.
const ETCD_PROGRAMS: [&str; 3] = ["etcd", "etcdctl", "etcdutl"];

/// The location of etcd by `PORTCULLIS_ETCD`, which `cargo xtask test` sets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EtcdLocation {
    /// `left-out`: `cargo xtask setup` found no etcd and has reported it.
    LeftOut,
    Folder(PathBuf),
    /// The variable is not set.
    SearchPath,
}

impl EtcdLocation {
    fn of_setting(setting: Option<&str>) -> Self {
        match setting {
            None => EtcdLocation::SearchPath,
            Some("left-out") => EtcdLocation::LeftOut,
            Some(etcd) => EtcdLocation::Folder(Path::new(etcd).parent().unwrap_or(Path::new("")).to_owned()),
        }
    }
}

/// How programs are found.
struct ProgramSearch {
    etcd: EtcdLocation,
    path: OsString,
}

impl ProgramSearch {
    /// As the environment of this process says.
    fn current() -> Self {
        ProgramSearch {
            etcd: EtcdLocation::of_setting(env::var("PORTCULLIS_ETCD").ok().as_deref()),
            path: env::var_os("PATH").unwrap_or_default(),
        }
    }

    /// `PATH` with `first` and the folder of etcd before it.
    fn folders(&self, first: Option<&Path>) -> OsString {
        let etcd = if let EtcdLocation::Folder(folder) = &self.etcd { Some(folder.as_path()) } else { None };
        let before = first.into_iter().chain(etcd).map(Path::to_owned);
        env::join_paths(before.chain(env::split_paths(&self.path))).unwrap_or_else(|_| self.path.clone())
    }

    /// Fails if a program of etcd is missing, unless etcd is left out: a page must not pass because a variable is not set.
    fn missing<'p>(&self, programs: &'p [String]) -> Result<Vec<&'p str>> {
        let is_left_out = self.etcd == EtcdLocation::LeftOut;
        let folders = self.folders(None);
        let exists = |program: &str| match program {
            "python3-kubernetes" => python_with_client().is_some(),
            _ if is_left_out && ETCD_PROGRAMS.contains(&program) => false,
            _ => env::split_paths(&folders).any(|folder| folder.join(program).is_file()),
        };
        let missing: Vec<&str> =
            programs.iter().map(String::as_str).filter(|program| !exists(program)).collect();
        match missing.iter().find(|program| ETCD_PROGRAMS.contains(program)) {
            Some(program) if !is_left_out => Err(Problem::new(format!(
                "there is no `{program}`: set PORTCULLIS_ETCD to the path of etcd, with etcdctl and etcdutl in the same folder, or to left-out"
            ))),
            _ => Ok(missing),
        }
    }
}

/// The programs among these that this machine lacks. `python3-kubernetes` is Python with the Kubernetes client.
pub(super) fn missing_programs(programs: &[String]) -> Result<Vec<&str>> {
    ProgramSearch::current().missing(programs)
}

/// The search path of a page: `first`, the folder of etcd, and this process's own.
pub(super) fn search_path(first: &Path) -> OsString {
    ProgramSearch::current().folders(Some(first))
}

/// Python with the Kubernetes client: `PORTCULLIS_PYTHON`, which `cargo xtask test` sets, or `python3`.
pub(super) fn python_with_client() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let own = env::var("PORTCULLIS_PYTHON").ok();
        let python = own.or_else(|| {
            let path = Command::new("sh").args(["-c", "command -v python3"]).output().ok()?;
            Some(String::from_utf8_lossy(&path.stdout).trim().to_owned())
        })?;
        let imports = Command::new(&python).args(["-c", "import kubernetes"]).stderr(Stdio::null()).status();
        imports.is_ok_and(|status| status.success()).then_some(python)
    });
    found.as_deref()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use super::{EtcdLocation, ProgramSearch};

    /// A machine without any program on its search path.
    fn search(etcd: Option<&str>) -> ProgramSearch {
        ProgramSearch { etcd: EtcdLocation::of_setting(etcd), path: OsString::from("/nonexistent") }
    }

    fn names(programs: &[&str]) -> Vec<String> {
        programs.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn programs_of_etcd_are_found_beside_the_one_that_the_variable_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["etcd", "etcdctl", "etcdutl"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = search(folder.path().join("etcd").to_str());
        assert_eq!(found.missing(&names(&["etcd", "etcdctl", "etcdutl"])).unwrap(), Vec::<&str>::new());
        let path = found.folders(None).into_string().unwrap();
        assert_eq!(path, format!("{}:/nonexistent", folder.path().display()));
        fs::remove_file(folder.path().join("etcdutl")).unwrap();
        let problem = found.missing(&names(&["etcd", "etcdutl"])).unwrap_err().to_string();
        assert!(problem.starts_with("there is no `etcdutl`: set PORTCULLIS_ETCD"), "{problem}");
    }

    #[test]
    fn a_page_that_needs_etcd_is_left_out_only_if_the_variable_says_so() {
        let programs = names(&["etcd", "haproxy"]);
        assert_eq!(search(Some("left-out")).missing(&programs).unwrap(), ["etcd", "haproxy"]);
        let problem = search(None).missing(&programs).unwrap_err().to_string();
        assert!(problem.starts_with("there is no `etcd`: set PORTCULLIS_ETCD"), "{problem}");
        assert_eq!(search(None).missing(&names(&["haproxy"])).unwrap(), ["haproxy"]);
    }
}
