//! The file and the files it names, followed: a change is read, checked and built, and then replaces the chain in one step.
//!
//! Folders are watched rather than files, so that a rename onto a file and the swap of a link, as ConfigMap volumes do it, are
//! seen. A notification is only a hint: contents are compared, and everything is looked at again every minute in any case.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use authz::Chain;
use authz::config::{AuthorizerType, Configuration};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use super::{Loaded, Parts, Unusable, parse, read};
use crate::files;

/// How often everything is looked at without a hint.
const POLL: Duration = Duration::from_mins(1);
/// How long after a hint a file is left alone: whoever writes it may not be done.
const SETTLE: Duration = Duration::from_millis(50);

/// Files with their contents: what a chain was made of besides its own file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
}

impl Files {
    /// Adds files as they are now.
    pub(super) fn add(&mut self, paths: Vec<PathBuf>) {
        for path in paths {
            if !self.files.iter().any(|(known, _)| *known == path) {
                let content = files::read(&path).ok();
                self.files.push((path, content));
            }
        }
    }

    /// The same files as they are now.
    fn now(&self) -> Self {
        let files = self.files.iter().map(|(path, _)| (path.clone(), files::read(path).ok()));
        Files { files: files.collect() }
    }
}

/// What is followed, and what it was when it was last looked at.
struct Followed {
    path: PathBuf,
    parts: Parts,
    required: Vec<AuthorizerType>,
    read: Vec<u8>,
    configuration: Configuration,
    /// Whether the configuration above is the one in force: otherwise the files it names do not matter.
    stands: bool,
    files: Files,
}

/// Follows the file of a configuration until the server stops. Without a file there is nothing to follow but what it names.
pub(crate) fn follow(
    loaded: Loaded,
    parts: Parts,
    files: Files,
    chain: &Arc<ArcSwap<Chain>>,
    stopped: watch::Receiver<bool>,
) {
    let required = loaded.required();
    let (path, read) = match loaded.source {
        Some(source) => source,
        None if files.files.is_empty() => return,
        None => (PathBuf::new(), Vec::new()),
    };
    if !read.is_empty() {
        parts.metrics().in_force(&read);
    }
    let configuration = loaded.configuration;
    let followed = Followed { path, parts, required, read, configuration, stands: true, files };
    tokio::spawn(run(followed, Arc::clone(chain), stopped));
}

async fn run(mut followed: Followed, chain: Arc<ArcSwap<Chain>>, mut stopped: watch::Receiver<bool>) {
    let hint = Arc::new(Notify::new());
    let mut folders = Folders::new(&hint);
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !*stopped.borrow() {
        folders.watch(&followed);
        // The first tick comes at once: the file may have changed since it was read.
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
        let swap = Arc::clone(&chain);
        let looked = tokio::task::spawn_blocking(move || {
            followed.look(&swap);
            followed
        });
        match looked.await {
            Ok(back) => followed = back,
            Err(error) => {
                error!(%error, "the authorization configuration is no longer followed");
                return;
            }
        }
    }
}

impl Followed {
    /// Looks at everything, and replaces the chain if that is due.
    fn look(&mut self, chain: &ArcSwap<Chain>) {
        if !self.path.as_os_str().is_empty() {
            match read(&self.path) {
                Err(unusable) => return self.failed(&unusable),
                Ok(bytes) if bytes == self.read => {}
                Ok(bytes) => return self.changed(bytes, chain),
            }
        }
        let now = self.files.now();
        if self.stands && now != self.files {
            info!("a file that the authorization configuration names has changed");
            match self.parts.chain(&self.configuration) {
                Ok((made, files)) => {
                    chain.store(Arc::new(made));
                    self.files = files;
                    info!("reloaded the files of the authorization configuration");
                }
                Err(why) => {
                    // Not tried again before something changes again.
                    self.files = now;
                    self.failed(&Unusable::Unmade(why));
                }
            }
        }
    }

    /// The content of the file is another one.
    fn changed(&mut self, bytes: Vec<u8>, chain: &ArcSwap<Chain>) {
        info!("found new authorization config data");
        self.read = bytes;
        let configuration = match parse(&self.read, &self.required) {
            Ok(configuration) => configuration,
            Err(unusable) => return self.failed(&unusable),
        };
        if configuration == self.configuration {
            return;
        }
        info!("found new authorization config");
        self.configuration = configuration;
        match self.parts.chain(&self.configuration) {
            Ok((made, files)) => {
                chain.store(Arc::new(made));
                self.files = files;
                self.stands = true;
                self.parts.metrics().reloaded(true);
                self.parts.metrics().in_force(&self.read);
                info!("reloaded authz config");
            }
            Err(why) => {
                self.stands = false;
                self.failed(&Unusable::Unmade(why));
            }
        }
    }

    /// The last good chain stays.
    fn failed(&self, unusable: &Unusable) {
        for line in unusable.located(&self.path) {
            error!("reloading authorization config: {line}");
        }
        self.parts.metrics().reloaded(false);
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
    fn watch(&mut self, followed: &Followed) {
        let Some(watcher) = &mut self.watcher else { return };
        let mut wanted = BTreeSet::new();
        let files = followed.files.files.iter().map(|(path, _)| path.as_path());
        for path in std::iter::once(followed.path.as_path()).chain(files) {
            if path.as_os_str().is_empty() {
                continue;
            }
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
