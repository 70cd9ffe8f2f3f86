//! Notifications that files may have changed.
//!
//! Directories are watched rather than files, so that a rename onto a file and the swap of a symbolic link, as in ConfigMap volumes, are
//! noticed; so are the directories of all symbolic links on the path to a file. A notification is only a hint: its receiver compares
//! contents. In addition, a check is due every minute.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tokio::task::JoinError;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::warn;

/// Interval of checks without a notification.
const POLL: Duration = Duration::from_mins(1);
/// A check that takes longer is logged, again and again until it ends.
const SLOW_CHECK: Duration = Duration::from_secs(30);
/// Maximum number of symbolic links that are followed to a file, as in Linux.
const MAX_LINKS: usize = 40;

/// Signals when files should be checked for changes.
pub struct FileWatch {
    hint: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    watched_paths: Arc<Mutex<WatchedPaths>>,
    poll: Interval,
    /// Delay between a notification and the signal, because the writer of a file may not have finished.
    settle: Duration,
    stopped: watch::Receiver<bool>,
}

/// The paths whose events count as notifications.
#[derive(Debug, Default, PartialEq, Eq)]
struct WatchedPaths {
    /// Any event in these directories counts.
    directories: BTreeSet<PathBuf>,
    /// Only events of the symbolic links themselves count; their directories may contain unrelated files.
    links: BTreeSet<PathBuf>,
}

impl WatchedPaths {
    /// All paths that can affect the content of `files`.
    fn of<'p>(files: impl IntoIterator<Item = &'p Path>) -> Self {
        let mut watched_paths = WatchedPaths::default();
        for file in files {
            watched_paths.add(file);
        }
        watched_paths
    }

    /// Adds the directory in the file's path, the directory it resolves to, and the symbolic links in between.
    fn add(&mut self, file: &Path) {
        let Ok(file) = std::path::absolute(file) else { return };
        self.directories.extend(file.parent().map(Path::to_owned));
        let mut resolved = PathBuf::new();
        let mut ahead: Vec<OsString> = steps(&file);
        let mut followed = 0;
        while let Some(step) = ahead.pop() {
            let next = resolved.join(&step);
            match std::fs::read_link(&next) {
                Ok(target) if followed < MAX_LINKS => {
                    followed += 1;
                    self.links.insert(next);
                    if target.is_absolute() {
                        resolved = PathBuf::new();
                    }
                    ahead.extend(steps(&target));
                }
                Ok(_) => return,
                // The path so far contains no symbolic links, so `..` leads to its parent.
                Err(_) if step == ".." => {
                    resolved.pop();
                }
                Err(_) => resolved = next,
            }
        }
        self.directories.extend(resolved.parent().map(Path::to_owned));
    }

    /// The directories to watch, including those of symbolic links.
    fn watched(&self) -> BTreeSet<PathBuf> {
        let around = self.links.iter().filter_map(|link| link.parent());
        self.directories.iter().map(PathBuf::as_path).chain(around).map(Path::to_owned).collect()
    }

    /// Whether an event at this path counts as a notification.
    fn has(&self, path: &Path) -> bool {
        let is_within = path.parent().is_some_and(|directory| self.directories.contains(directory));
        is_within || self.directories.contains(path) || self.links.contains(path)
    }
}

/// The components of a path in reverse order, without `.`.
fn steps(path: &Path) -> Vec<OsString> {
    let is_step = |step: &Component<'_>| !matches!(step, Component::CurDir);
    path.components().rev().filter(is_step).map(|step| step.as_os_str().to_owned()).collect()
}

impl FileWatch {
    /// Signals until the server stops. No file is watched before [`FileWatch::follow`].
    pub fn new(settle: Duration, stopped: watch::Receiver<bool>) -> Self {
        let hint = Arc::new(Notify::new());
        let watched_paths = Arc::new(Mutex::new(WatchedPaths::default()));
        let on_event = {
            let (hint, watched_paths) = (Arc::clone(&hint), Arc::clone(&watched_paths));
            move |event: notify::Result<notify::Event>| match event {
                // Checking files causes access events; those must not trigger another check.
                Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
                Ok(event) if !event.paths.is_empty() => {
                    let watched_paths = watched_paths.lock().unwrap_or_else(PoisonError::into_inner);
                    if event.paths.iter().any(|path| watched_paths.has(path)) {
                        hint.notify_one();
                    }
                }
                // An error, or an event without paths: notifications may have been lost.
                _ => hint.notify_one(),
            }
        };
        let watcher = notify::recommended_watcher(on_event)
            .inspect_err(
                |error| warn!(%error, "cannot watch files for changes; checking them every minute instead"),
            )
            .ok();
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        FileWatch { hint, watcher, watched: BTreeSet::new(), watched_paths, poll, settle, stopped }
    }

    /// Replaces the set of watched files. Returns true if a directory is watched now that was not before.
    fn watch(&mut self, files: &[PathBuf]) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        let watched_paths = WatchedPaths::of(files.iter().map(PathBuf::as_path));
        let directories = watched_paths.watched();
        *self.watched_paths.lock().unwrap_or_else(PoisonError::into_inner) = watched_paths;
        for gone in self.watched.difference(&directories) {
            let _ = watcher.unwatch(gone);
        }
        // Watch all directories again, because a directory may have been replaced by another of the same name.
        let watched: BTreeSet<PathBuf> = directories
            .into_iter()
            .filter(|directory| watcher.watch(directory, RecursiveMode::NonRecursive).is_ok())
            .collect();
        let is_larger = !watched.is_subset(&self.watched);
        self.watched = watched;
        is_larger
    }

    /// Calls `look` on a blocking thread, now and then and whenever one of `paths` changes, until the server stops. Fails if `look` panics.
    pub async fn follow<T: Send + 'static>(
        mut self,
        mut followed: T,
        paths: fn(&T) -> Vec<PathBuf>,
        look: impl Fn(&mut T, CheckReason) + Clone + Send + 'static,
    ) -> Result<(), JoinError> {
        let mut watched = paths(&followed);
        self.watch(&watched);
        while let Some(why) = self.next().await {
            // A directory may have been replaced: the new one is watched before it is read, so that no later change is missed.
            self.watch(&watched);
            let look = look.clone();
            let mut looked = tokio::task::spawn_blocking(move || {
                look(&mut followed, why);
                let watched = paths(&followed);
                (followed, watched)
            });
            (followed, watched) = loop {
                match tokio::time::timeout(SLOW_CHECK, &mut looked).await {
                    Ok(looked) => break looked?,
                    Err(_) => warn!(
                        files = ?watched,
                        "a check of watched files takes very long; changes of these files are not noticed until it ends; is their file system reachable?"
                    ),
                }
            };
            if self.watch(&watched) {
                // What is watched only now may have changed after it was read.
                self.hint.notify_one();
            }
        }
        Ok(())
    }

    /// Waits until files should be checked. The first call returns at once, because a file may have changed since it was read. `None` when
    /// the server stops.
    async fn next(&mut self) -> Option<CheckReason> {
        loop {
            if *self.stopped.borrow() {
                return None;
            }
            tokio::select! {
                changed = self.stopped.changed() => changed.ok()?,
                _ = self.poll.tick() => return Some(CheckReason::PollInterval),
                () = self.hint.notified() => {
                    tokio::time::sleep(self.settle).await;
                    return Some(CheckReason::Notified);
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckReason {
    /// A watched directory or link changed, possibly without affecting the files.
    Notified,
    /// The polling interval has passed.
    PollInterval,
}

#[cfg(test)]
mod tests;
