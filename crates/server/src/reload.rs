//! Files that are read again while the server runs: certificates, authorities, tokens.
//!
//! Folders are watched rather than files, so that a rename onto a file and the swap of a link, as ConfigMap volumes do it, are
//! seen. A notification is only a hint: contents are compared, and everything is looked at again every minute in any case. A
//! file that cannot be used changes nothing: the last good one stays in force, and that is logged and counted.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use crate::metrics::AuthenticationMetrics;

/// How often everything is looked at without a hint.
const POLL: Duration = Duration::from_mins(1);
/// How long after a hint files are left alone: whoever writes them may not be done.
const SETTLE: Duration = Duration::from_millis(50);
/// Files that are longer than this are refused: none of these is.
const MAX_FILE: u64 = 8 << 20;

/// What becomes of new contents: in force, or refused for a reason.
type Apply = Box<dyn FnMut(&[Vec<u8>]) -> Result<(), String> + Send>;

/// Files that belong together, as a certificate and its key do.
pub(crate) struct Watched {
    /// The flag that names them.
    flag: &'static str,
    paths: Vec<PathBuf>,
    /// What they held when they were last looked at.
    seen: Result<Vec<Vec<u8>>, String>,
    apply: Apply,
}

impl Watched {
    /// Files that are in force as they are now in `held`.
    pub(crate) fn new(
        flag: &'static str,
        paths: Vec<PathBuf>,
        held: Vec<Vec<u8>>,
        apply: impl FnMut(&[Vec<u8>]) -> Result<(), String> + Send + 'static,
    ) -> Self {
        Watched { flag, paths, seen: Ok(held), apply: Box::new(apply) }
    }

    /// Looks at the files, and puts them in force if they have changed.
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
            Ok(()) => info!(flag = self.flag, "a changed file is in force"),
            Err(why) => error!(
                flag = self.flag,
                why, "a changed file cannot be used; the last good one stays in force"
            ),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let fail = |error: std::io::Error| format!("`{}`: {error}", path.display());
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(fail)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("`{}`: longer than {MAX_FILE} bytes", path.display()));
    }
    Ok(bytes)
}

/// Follows files until the server stops.
pub(crate) async fn follow(
    mut followed: Vec<Watched>,
    metrics: Arc<AuthenticationMetrics>,
    mut stopped: watch::Receiver<bool>,
) {
    if followed.is_empty() {
        return;
    }
    let hint = Arc::new(Notify::new());
    let mut folders = Folders::new(&hint);
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !*stopped.borrow() {
        folders.watch(followed.iter().flat_map(|f| f.paths.iter().map(PathBuf::as_path)));
        // The first tick comes at once: a file may have changed since it was read.
        let hinted = tokio::select! {
            stopped = stopped.changed() => match stopped {
                Ok(()) => continue,
                Err(_) => return,
            },
            _ = poll.tick() => false,
            () = hint.notified() => true,
        };
        if hinted {
            tokio::time::sleep(SETTLE).await;
        }
        let counted = Arc::clone(&metrics);
        let looked = tokio::task::spawn_blocking(move || {
            for files in &mut followed {
                files.look(&counted);
            }
            followed
        });
        match looked.await {
            Ok(back) => followed = back,
            Err(error) => {
                error!(%error, "files are no longer followed");
                return;
            }
        }
    }
}

/// The folders that are watched.
struct Folders {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

impl Folders {
    fn new(hint: &Arc<Notify>) -> Self {
        let hint = Arc::clone(hint);
        let heard = move |event: notify::Result<notify::Event>| match event {
            // Reading is no change, and reading is what follows a hint.
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
            _ => hint.notify_one(),
        };
        let watcher = notify::recommended_watcher(heard)
            .inspect_err(|error| warn!(%error, "files cannot be watched; they are looked at every minute"))
            .ok();
        Folders { watcher, watched: BTreeSet::new() }
    }

    /// Watches the folders of every file, where its name says it is and where it really is.
    fn watch<'p>(&mut self, paths: impl Iterator<Item = &'p Path>) {
        let Some(watcher) = &mut self.watcher else { return };
        let mut wanted = BTreeSet::new();
        for path in paths {
            wanted.extend(path.parent().map(|folder| {
                if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
            }));
            wanted.extend(path.canonicalize().ok().and_then(|real| real.parent().map(Path::to_owned)));
        }
        for gone in self.watched.difference(&wanted) {
            let _ = watcher.unwatch(gone);
        }
        // Watched again each time: a folder may have been replaced by another of the same name.
        self.watched = wanted
            .into_iter()
            .filter(|folder| match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => true,
                Err(error) => {
                    warn!(folder = %folder.display(), %error, "a folder cannot be watched; its files are looked at every minute");
                    false
                }
            })
            .collect();
    }
}

#[cfg(test)]
mod tests;
