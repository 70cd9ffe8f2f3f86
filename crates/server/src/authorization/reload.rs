//! The file and the files it names, followed: a change is read, checked and built, and then replaces the chain in one step.
//!
//! Folders are watched rather than files, so that a rename onto a file and the swap of a link, as ConfigMap volumes do it, are
//! seen. A notification is only a hint: contents are compared, and everything is looked at again every minute in any case.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use authz::Chain;
use authz::config::{AuthorizerType, Configuration};
use tokio::sync::watch;
use tracing::{error, info};

use super::{LoadedAuthorization, Parts, Unusable, parse, read, warn};
use crate::file_watch::FileWatch;
use crate::files;

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

/// A configuration with the files it names, as they were when it was last tried.
struct Tried {
    configuration: Configuration,
    files: Files,
}

/// What is followed, and what it was when it was last looked at.
struct Followed {
    path: PathBuf,
    parts: Parts,
    required: Vec<AuthorizerType>,
    read: Vec<u8>,
    /// What the chain in force is made of. Its files are followed whatever becomes of the file: certificates run out.
    in_force: Tried,
    /// The last configuration that was right in itself, whatever became of it: the same one again is no change.
    loaded: Configuration,
    /// A configuration that is right but cannot be made of the files it names: tried again when they change.
    waiting: Option<Tried>,
    /// Whether the last reload failed. Metrics show the failure until a reload succeeds, or until the files say again what is in
    /// force.
    has_failed: bool,
    /// Whether the content of the file is a valid configuration.
    is_valid: bool,
    /// Whether the files that the chain in force names could not be used when they last changed.
    files_failed: bool,
}

/// Follows the file of a configuration until the server stops. Without a file there is nothing to follow but what it names.
pub(crate) fn follow(
    loaded: LoadedAuthorization,
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
    let in_force = Tried { configuration: loaded.configuration.clone(), files };
    let followed = Followed {
        path,
        parts,
        required,
        read,
        in_force,
        loaded: loaded.configuration,
        waiting: None,
        has_failed: false,
        is_valid: true,
        files_failed: false,
    };
    tokio::spawn(run(followed, Arc::clone(chain), stopped));
}

async fn run(mut followed: Followed, chain: Arc<ArcSwap<Chain>>, stopped: watch::Receiver<bool>) {
    let mut hints = FileWatch::new(SETTLE, stopped);
    loop {
        hints.watch(followed.paths());
        if hints.next().await.is_none() {
            return;
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
    /// Every file that is looked at.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let own = Some(self.path.as_path()).filter(|path| !path.as_os_str().is_empty());
        let tried = std::iter::once(&self.in_force).chain(&self.waiting);
        own.into_iter()
            .chain(tried.flat_map(|tried| tried.files.files.iter().map(|(path, _)| path.as_path())))
    }

    /// Looks at everything, and replaces the chain if that is due.
    fn look(&mut self, chain: &ArcSwap<Chain>) {
        let mut is_readable = true;
        if !self.path.as_os_str().is_empty() {
            match read(&self.path) {
                Err(unusable) => {
                    is_readable = false;
                    self.failed(&unusable);
                }
                Ok(bytes) if bytes == self.read => {}
                Ok(bytes) => self.changed(bytes, chain),
            }
        }
        if self.in_force.files != self.in_force.files.now() {
            info!("a file that the authorization configuration names has changed");
            let (made, files) = self.parts.chain(&self.in_force.configuration);
            // What does not work is not tried again before something changes again.
            self.in_force.files = files;
            self.files_failed = made.is_err();
            match made {
                Ok(made) => {
                    chain.store(Arc::new(made));
                    info!("reloaded the files of the authorization configuration");
                }
                Err(why) => self.failed(&Unusable::Unmade(why)),
            }
        }
        if let Some(waiting) = self.waiting.take_if(|waiting| waiting.files != waiting.files.now()) {
            self.replace(waiting.configuration, chain);
        }
        if is_readable {
            self.recover();
        }
    }

    /// Clears the failure state once the files say again what is in force: that replaces nothing, so nothing else reports it.
    fn recover(&mut self) {
        let is_in_force =
            self.is_valid && self.waiting.is_none() && self.loaded == self.in_force.configuration;
        if self.has_failed && !self.files_failed && is_in_force {
            self.has_failed = false;
            self.parts.metrics().reloaded(true);
            if !self.path.as_os_str().is_empty() {
                self.parts.metrics().in_force(&self.read);
            }
            info!("the authorization config is valid again; the chain in force is unchanged");
        }
    }

    /// The content of the file is another one.
    fn changed(&mut self, bytes: Vec<u8>, chain: &ArcSwap<Chain>) {
        info!("found new authorization config data");
        self.read = bytes;
        let waited = self.waiting.take();
        let parsed = parse(&self.read, &self.required);
        self.is_valid = parsed.is_ok();
        let configuration = match parsed {
            Ok(checked) => {
                warn(&checked, &self.path);
                checked.configuration
            }
            Err(unusable) => return self.failed(&unusable),
        };
        let known = waited.as_ref().unwrap_or(&self.in_force);
        if configuration == self.loaded && configuration == known.configuration {
            self.waiting = waited;
            return;
        }
        info!("found new authorization config");
        self.loaded = configuration.clone();
        self.replace(configuration, chain);
    }

    /// Makes the chain of a configuration and puts it in force, if it can be made.
    fn replace(&mut self, configuration: Configuration, chain: &ArcSwap<Chain>) {
        let (made, files) = self.parts.chain(&configuration);
        let tried = Tried { configuration, files };
        match made {
            Ok(made) => {
                chain.store(Arc::new(made));
                self.in_force = tried;
                self.has_failed = false;
                self.files_failed = false;
                self.parts.metrics().reloaded(true);
                self.parts.metrics().in_force(&self.read);
                info!("reloaded authz config");
            }
            Err(why) => {
                self.waiting = Some(tried);
                self.failed(&Unusable::Unmade(why));
            }
        }
    }

    /// The last good chain stays.
    fn failed(&mut self, unusable: &Unusable) {
        self.has_failed = true;
        for line in unusable.located(&self.path) {
            error!("reloading authorization config: {line}");
        }
        self.parts.metrics().reloaded(false);
    }
}
