//! Reloads certificates, CA bundles and tokens when their files change.
//!
//! Directories are watched rather than files, so that a rename onto a file and the swap of a symbolic link, as in ConfigMap volumes, are
//! noticed. A notification is only a hint: contents are compared, and all files are checked every minute in any case. Invalid content
//! changes nothing: the last valid content stays in force, and the failure is logged and counted.

mod config_files;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runtime::file_watch::FileWatch;
use runtime::files;
use tokio::sync::watch;
use tracing::{error, info};

use crate::metrics::AuthenticationMetrics;

pub(crate) use config_files::ConfigFiles;
pub use config_files::log_token_file_warnings;

/// Delay between a notification and reading the files, because their writer may not have finished.
const SETTLE: Duration = Duration::from_millis(50);

/// Puts new contents in force, or returns why they are invalid.
type ApplyContents = Box<dyn FnMut(&[Vec<u8>]) -> Result<(), String> + Send>;

/// Files that are reloaded together, such as a certificate and its key.
pub(crate) struct Watched {
    /// The flag that names them, for logs and metrics.
    flag: &'static str,
    paths: Vec<PathBuf>,
    /// The contents, or the read error, at the last check.
    seen: Result<Vec<Vec<u8>>, String>,
    apply: ApplyContents,
}

impl Watched {
    /// `held` are the contents that are already in force, in the order of `paths`.
    pub(crate) fn new(
        flag: &'static str,
        paths: Vec<PathBuf>,
        held: Vec<Vec<u8>>,
        apply: impl FnMut(&[Vec<u8>]) -> Result<(), String> + Send + 'static,
    ) -> Self {
        Watched { flag, paths, seen: Ok(held), apply: Box::new(apply) }
    }

    /// Reads the files, and applies their contents if they have changed.
    fn look(&mut self, metrics: &AuthenticationMetrics) {
        let now: Result<Vec<Vec<u8>>, String> = self.paths.iter().map(|path| read(path)).collect();
        if now == self.seen {
            return;
        }
        let applied = match &now {
            Ok(contents) => (self.apply)(contents),
            Err(why) => Err(why.clone()),
        };
        self.seen = now;
        metrics.reloaded(self.flag, applied.is_ok());
        match applied {
            Ok(()) => info!(flag = self.flag, "loaded changed files"),
            Err(why) => error!(
                flag = self.flag,
                error = why,
                "cannot load changed files; the previous contents stay in force"
            ),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    files::read(path).map_err(|why| format!("`{}`: {why}", path.display()))
}

/// Reloads files until the server stops.
pub(crate) async fn follow(
    followed: Vec<Watched>,
    metrics: Arc<AuthenticationMetrics>,
    stopped: watch::Receiver<bool>,
) {
    if followed.is_empty() {
        return;
    }
    let paths = |followed: &Vec<Watched>| followed.iter().flat_map(|f| f.paths.clone()).collect();
    let look = move |followed: &mut Vec<Watched>, _| {
        for files in followed {
            files.look(&metrics);
        }
    };
    if let Err(error) = FileWatch::new(SETTLE, stopped).follow(followed, paths, look).await {
        error!(%error, "stopped watching configuration files; restart the server to load changes");
    }
}

#[cfg(test)]
mod tests;
