//! Hints that files may have changed.
//!
//! Folders are watched rather than files, so that a rename onto a file and the swap of a link, as ConfigMap volumes do it, are
//! seen; so are the folders of every link on the way to a file, wherever it leads. A notification is only a hint: whoever follows
//! files compares contents, and looks at them every minute in any case.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tokio::time::{Interval, MissedTickBehavior};
use tracing::warn;

/// How often files are looked at without a hint.
const POLL: Duration = Duration::from_mins(1);
/// How many links are followed on the way to a file: as many as the system follows.
const MAX_LINKS: usize = 40;

/// What tells when to look at files again.
pub(crate) struct FileWatch {
    hint: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    watched_paths: Arc<Mutex<WatchedPaths>>,
    poll: Interval,
    /// How long after a hint files are left alone: whoever writes them may not be done.
    settle: Duration,
    stopped: watch::Receiver<bool>,
}

/// What happens where is a hint.
#[derive(Debug, Default, PartialEq, Eq)]
struct WatchedPaths {
    /// Whatever happens in these folders.
    folders: BTreeSet<PathBuf>,
    /// What happens to these links; much else may be in the folders that they are in.
    links: BTreeSet<PathBuf>,
}

impl WatchedPaths {
    /// What matters to who follows these files.
    fn of<'p>(files: impl IntoIterator<Item = &'p Path>) -> Self {
        let mut watched_paths = WatchedPaths::default();
        for file in files {
            watched_paths.add(file);
        }
        watched_paths
    }

    /// The folder that a file's name says it is in, the one it really is in, and the links on the way there.
    fn add(&mut self, file: &Path) {
        let Ok(file) = std::path::absolute(file) else { return };
        self.folders.extend(file.parent().map(Path::to_owned));
        let mut place = PathBuf::new();
        let mut ahead: Vec<OsString> = steps(&file);
        let mut followed = 0;
        while let Some(step) = ahead.pop() {
            let next = place.join(&step);
            match std::fs::read_link(&next) {
                Ok(target) if followed < MAX_LINKS => {
                    followed += 1;
                    self.links.insert(next);
                    if target.is_absolute() {
                        place = PathBuf::new();
                    }
                    ahead.extend(steps(&target));
                }
                Ok(_) => return,
                // No links are behind, so that the folder above is the one that the name says.
                Err(_) if step == ".." => {
                    place.pop();
                }
                Err(_) => place = next,
            }
        }
        self.folders.extend(place.parent().map(Path::to_owned));
    }

    /// The folders to watch for it.
    fn watched(&self) -> BTreeSet<PathBuf> {
        let around = self.links.iter().filter_map(|link| link.parent());
        self.folders.iter().map(PathBuf::as_path).chain(around).map(Path::to_owned).collect()
    }

    /// Whether something that happened to a path is a hint.
    fn has(&self, path: &Path) -> bool {
        let is_within = path.parent().is_some_and(|folder| self.folders.contains(folder));
        is_within || self.folders.contains(path) || self.links.contains(path)
    }
}

/// The steps of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let is_step = |step: &Component<'_>| !matches!(step, Component::CurDir);
    path.components().rev().filter(is_step).map(|step| step.as_os_str().to_owned()).collect()
}

impl FileWatch {
    /// Hints until the server stops.
    pub(crate) fn new(settle: Duration, stopped: watch::Receiver<bool>) -> Self {
        let hint = Arc::new(Notify::new());
        let watched_paths = Arc::new(Mutex::new(WatchedPaths::default()));
        let heard = {
            let (hint, watched_paths) = (Arc::clone(&hint), Arc::clone(&watched_paths));
            move |event: notify::Result<notify::Event>| match event {
                // Reading is no change, and reading is what follows a hint.
                Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
                Ok(event) if !event.paths.is_empty() => {
                    let watched_paths = watched_paths.lock().unwrap_or_else(PoisonError::into_inner);
                    if event.paths.iter().any(|path| watched_paths.has(path)) {
                        hint.notify_one();
                    }
                }
                // Some may have been lost.
                _ => hint.notify_one(),
            }
        };
        let watcher = notify::recommended_watcher(heard)
            .inspect_err(|error| warn!(%error, "files cannot be watched; they are looked at every minute"))
            .ok();
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        FileWatch { hint, watcher, watched: BTreeSet::new(), watched_paths, poll, settle, stopped }
    }

    /// Watches for what may change these files, and for nothing else.
    pub(crate) fn watch<'p>(&mut self, files: impl IntoIterator<Item = &'p Path>) {
        let Some(watcher) = &mut self.watcher else { return };
        let watched_paths = WatchedPaths::of(files);
        let wanted = watched_paths.watched();
        *self.watched_paths.lock().unwrap_or_else(PoisonError::into_inner) = watched_paths;
        for gone in self.watched.difference(&wanted) {
            let _ = watcher.unwatch(gone);
        }
        // Watched again each time: a folder may have been replaced by another of the same name.
        self.watched = wanted
            .into_iter()
            .filter(|folder| watcher.watch(folder, RecursiveMode::NonRecursive).is_ok())
            .collect();
    }

    /// Waits until it is time to look; the first time is at once, because a file may have changed since it was read. `None` when
    /// the server stops.
    pub(crate) async fn next(&mut self) -> Option<Look> {
        loop {
            if *self.stopped.borrow() {
                return None;
            }
            tokio::select! {
                changed = self.stopped.changed() => changed.ok()?,
                _ = self.poll.tick() => return Some(Look::InAnyCase),
                () = self.hint.notified() => {
                    tokio::time::sleep(self.settle).await;
                    return Some(Look::Hinted);
                }
            }
        }
    }
}

/// Why it is time to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Something happened in one of the folders; perhaps nothing that matters.
    Hinted,
    /// A minute has passed.
    InAnyCase,
}

#[cfg(test)]
mod tests;
