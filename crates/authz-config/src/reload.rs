//! Reloads the authorization configuration: a changed file is read and checked, and the new chain replaces the old one in one step.
//!
//! Directories are watched rather than files, to notice a rename onto a file and a swapped symlink, as in ConfigMap volumes. A
//! notification is only a hint: contents are compared, and all files are read again every minute in any case.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use authz::AuthorizerChain;
use authz::config::{AuthorizationConfiguration, AuthorizerType};
use runtime::file_watch::FileWatch;
use runtime::files;
use tokio::sync::watch;
use tracing::{error, info};

use super::{AuthorizerParts, LoadedAuthorization, Unusable, parse, read, warn};

/// Delay between a notification and reading the files, because their writer may not be done.
const SETTLE: Duration = Duration::from_millis(50);

/// The files that a chain was built from besides the configuration file, with their contents; `None` if unreadable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferencedFiles {
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
}

impl ReferencedFiles {
    /// Reads and adds the files that are not in the list yet.
    pub(super) fn add(&mut self, paths: Vec<PathBuf>) {
        for path in paths {
            if !self.files.iter().any(|(known, _)| *known == path) {
                let content = files::read(&path).ok();
                self.files.push((path, content));
            }
        }
    }

    /// Reads all files again.
    fn now(&self) -> Self {
        let files = self.files.iter().map(|(path, _)| (path.clone(), files::read(path).ok()));
        ReferencedFiles { files: files.collect() }
    }
}

/// A configuration with the files that it names, as they were when its chain was last built.
struct TriedConfiguration {
    configuration: AuthorizationConfiguration,
    files: ReferencedFiles,
}

/// The watched files and their state at the last check.
struct WatchedAuthorization {
    path: PathBuf,
    parts: AuthorizerParts,
    required: Vec<AuthorizerType>,
    read: Vec<u8>,
    /// The configuration of the chain in force. Its files are watched even while the configuration file is invalid, because
    /// certificates expire.
    in_force: TriedConfiguration,
    /// The last valid configuration, whether or not its chain could be built. Reading an equal one again is not a change.
    loaded: AuthorizationConfiguration,
    /// A valid configuration whose chain could not be built. It is tried again when the files that it names change.
    waiting: Option<TriedConfiguration>,
    /// Whether the last reload failed. Metrics show the failure until a reload succeeds, or until the files match the chain in force
    /// again.
    has_failed: bool,
    /// Whether the content of the file is a valid configuration.
    is_valid: bool,
    /// Whether the files that the chain in force names could not be used when they last changed.
    files_failed: bool,
}

/// Watches the configuration file and the files that it names until the server stops. With flags instead of a configuration file,
/// only the files that they name are watched.
pub fn follow(
    loaded: LoadedAuthorization,
    parts: AuthorizerParts,
    files: ReferencedFiles,
    chain: &Arc<ArcSwap<AuthorizerChain>>,
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
    let in_force = TriedConfiguration { configuration: loaded.configuration.clone(), files };
    let followed = WatchedAuthorization {
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

async fn run(
    followed: WatchedAuthorization,
    chain: Arc<ArcSwap<AuthorizerChain>>,
    stopped: watch::Receiver<bool>,
) {
    let look = move |followed: &mut WatchedAuthorization, _| followed.look(&chain);
    let watch = FileWatch::new(SETTLE, stopped);
    if let Err(error) = watch.follow(followed, WatchedAuthorization::paths, look).await {
        error!(%error, "stopped watching the authorization configuration; restart the server to load changes");
    }
}

impl WatchedAuthorization {
    /// All files to watch.
    fn paths(&self) -> Vec<PathBuf> {
        let own = Some(self.path.as_path()).filter(|path| !path.as_os_str().is_empty());
        let tried = std::iter::once(&self.in_force).chain(&self.waiting);
        own.into_iter()
            .chain(tried.flat_map(|tried| tried.files.files.iter().map(|(path, _)| path.as_path())))
            .map(Path::to_owned)
            .collect()
    }

    /// Reads all files, and replaces the chain if they have changed and can be used.
    fn look(&mut self, chain: &ArcSwap<AuthorizerChain>) {
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
            // A chain that cannot be built is not tried again before a file changes.
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

    /// Clears the failure state once the files match the chain in force again. No chain is replaced then, so no other code reports
    /// the recovery.
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

    /// Handles new content of the configuration file.
    fn changed(&mut self, bytes: Vec<u8>, chain: &ArcSwap<AuthorizerChain>) {
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

    /// Builds the chain of a configuration and puts it in force. If that fails, the configuration becomes [`WatchedAuthorization::waiting`].
    fn replace(&mut self, configuration: AuthorizationConfiguration, chain: &ArcSwap<AuthorizerChain>) {
        let (made, files) = self.parts.chain(&configuration);
        let tried = TriedConfiguration { configuration, files };
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

    /// Logs and counts a failed reload. The chain in force stays.
    fn failed(&mut self, unusable: &Unusable) {
        self.has_failed = true;
        for line in unusable.located(&self.path) {
            error!("reloading authorization config: {line}");
        }
        self.parts.metrics().reloaded(false);
    }
}
