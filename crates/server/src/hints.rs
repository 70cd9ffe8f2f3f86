//! Hints that files may have changed.
//!
//! Folders are watched rather than files, so that a rename onto a file and the swap of a link, as ConfigMap volumes do it, are
//! seen. A notification is only a hint: whoever follows files compares contents, and looks at them every minute in any case.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tokio::time::{Interval, MissedTickBehavior};
use tracing::warn;

/// How often files are looked at without a hint.
const POLL: Duration = Duration::from_mins(1);

/// What tells when to look at files again.
pub(crate) struct Hints {
    hint: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    poll: Interval,
    /// How long after a hint files are left alone: whoever writes them may not be done.
    settle: Duration,
    stopped: watch::Receiver<bool>,
}

impl Hints {
    /// Hints until the server stops.
    pub(crate) fn new(settle: Duration, stopped: watch::Receiver<bool>) -> Self {
        let hint = Arc::new(Notify::new());
        let heard = {
            let hint = Arc::clone(&hint);
            move |event: notify::Result<notify::Event>| match event {
                // Reading is no change, and reading is what follows a hint.
                Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
                _ => hint.notify_one(),
            }
        };
        let watcher = notify::recommended_watcher(heard)
            .inspect_err(|error| warn!(%error, "files cannot be watched; they are looked at every minute"))
            .ok();
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Hints { hint, watcher, watched: BTreeSet::new(), poll, settle, stopped }
    }

    /// Watches the folders that these files are in, where their names say they are and where they really are, and no others.
    pub(crate) fn watch<'p>(&mut self, files: impl IntoIterator<Item = &'p Path>) {
        let Some(watcher) = &mut self.watcher else { return };
        let mut wanted = BTreeSet::new();
        for path in files {
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
