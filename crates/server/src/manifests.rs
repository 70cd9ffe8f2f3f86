//! Static manifests: the directories of `staticManifestsDir` are read within size limits, put in force before the first request, and
//! reloaded when they change. [`admission::manifests`] checks their content.
//!
//! A directory is read, checked and compiled as a whole and then replaces the previous manifests in one step. On any failure the previous
//! ones stay. The store is not used.

mod directory_status;
mod metrics;
mod read;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use admission::manifests::{
    self, AcceptedFiles, LoadError, LoadOptions, LoadedManifests, ManifestFile, ManifestProblem, ManifestSet,
};
use admission::plugins::PluginSettings;
use admission::policy::TypeCheckKinds;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::admission::configuration::PluginConfigurations;
use crate::config::{ConfigError, FileProblems};

pub(crate) use directory_status::{DirectoryStatus, DirectoryStatuses};
pub(crate) use metrics::ManifestMetrics;
pub use read::read;
use read::{Unsettled, is_old, settled};
use runtime::file_watch::{CheckReason, FileWatch};

/// Reads a directory and checks its manifests.
pub fn load(
    set: ManifestSet,
    directory: &Path,
    rules: LoadOptions<'_>,
) -> Result<LoadedManifests, LoadError> {
    manifests::load(set, &directory.display().to_string(), &read(set, directory)?, rules)
}

/// The manifest directories that an admission configuration file names. Also checks the rest of the file, as at the start of the server.
pub fn configured(path: &Path) -> Result<Vec<(ManifestSet, PathBuf)>, ConfigError> {
    let mut configurations = PluginConfigurations::read(Some(path))?;
    configurations.pod_security()?;
    configurations.webhook_credentials()?;
    let named = configurations.names();
    configurations.settings(PluginSettings::default(), |plugin| named.contains(plugin))?;
    configurations.limited()?;
    configurations.image_policy(named.contains("ImagePolicyWebhook"))?;
    let directories = configurations.manifests(true, |_| true)?;
    configurations.finish();
    Ok(directories)
}

/// The receivers of load results: metrics, health checks and `/debug/admission`.
#[derive(Clone)]
struct DirectoryReports {
    metrics: Arc<ManifestMetrics>,
    statuses: Arc<DirectoryStatuses>,
}

impl DirectoryReports {
    fn loaded(&self, set: ManifestSet, loaded: &LoadedManifests) {
        self.metrics.reloaded(set, true);
        self.metrics.in_force(set, loaded);
        self.statuses.loaded(set, loaded);
    }

    /// The content of the directory equals the manifests in force again.
    fn recovered(&self, set: ManifestSet) {
        self.metrics.reloaded(set, true);
        self.statuses.recovered(set);
    }

    fn failed(&self, set: ManifestSet, refused: &LoadError) {
        self.metrics.reloaded(set, false);
        self.statuses.failed(set, &refused.to_string());
    }
}

/// Replaces the objects of a directory in one step.
pub(crate) type ApplyManifests = Arc<dyn Fn(ManifestSet, &LoadedManifests) + Send + Sync>;

/// How a directory is checked and put in force.
#[derive(Clone)]
pub(crate) struct LoadContext {
    pub(crate) apply: ApplyManifests,
    /// The kinds that expressions are type-checked against.
    pub(crate) kinds: Arc<dyn TypeCheckKinds + Send + Sync>,
    /// Treats warnings about manifests as errors.
    pub(crate) strict: bool,
}

impl LoadContext {
    fn load(
        &self,
        (set, directory): (ManifestSet, &Path),
        files: &[ManifestFile],
        accepted_files: &mut AcceptedFiles,
    ) -> Result<LoadedManifests, LoadError> {
        let rules = LoadOptions { strict: self.strict, kinds: &*self.kinds };
        manifests::load_changed(set, &directory.display().to_string(), files, rules, accepted_files)
    }
}

/// A directory whose manifests are in force.
struct LoadedDirectory {
    set: ManifestSet,
    path: PathBuf,
    hash: String,
    /// The kind and the name of each object in force.
    objects: BTreeSet<(&'static str, String)>,
    warnings: Vec<ManifestProblem>,
    /// The files at the last check.
    seen: Vec<ManifestFile>,
    /// Accepted files, which are not checked again while they stay the same.
    accepted_files: AcceptedFiles,
    /// The last check found the directory still being written, and reported that.
    still_written: bool,
    /// The last reload failed.
    fails: bool,
}

impl LoadedDirectory {
    /// Loads a directory and puts it in force. The server must not start after an error.
    fn start(
        set: ManifestSet,
        path: PathBuf,
        context: &LoadContext,
        reports: &DirectoryReports,
    ) -> Result<Self, LoadError> {
        let files = if is_old(&path) {
            read(set, &path)?
        } else {
            settled(set, &path, &[]).map_err(Unsettled::into_refused)?
        };
        let mut accepted_files = AcceptedFiles::default();
        let loaded = context.load((set, &path), &files, &mut accepted_files)?;
        (context.apply)(set, &loaded);
        let mut directory = LoadedDirectory {
            set,
            path,
            hash: String::new(),
            objects: BTreeSet::new(),
            warnings: Vec::new(),
            seen: files,
            accepted_files,
            still_written: false,
            fails: false,
        };
        for (what, kinds) in [("webhook", WEBHOOK_KINDS), ("policy", POLICY_KINDS)] {
            if set.kinds().iter().any(|kind| kinds.contains(kind)) {
                let count: usize = kinds.iter().map(|kind| loaded.of_kind(kind).len()).sum();
                let (plugin, dir) = (directory.plugin(), directory.path.display());
                info!(plugin, %dir, count, "Loaded {count} manifest-based {what} configurations");
            }
        }
        directory.in_force(&loaded, reports);
        Ok(directory)
    }

    /// The plugin of the directory, for the log; `None` if the directory is for all plugins.
    fn plugin(&self) -> Option<&'static str> {
        (self.set != ManifestSet::Mixed).then(|| self.set.plugin())
    }

    /// The paths to watch: the directory, and the targets of links in it. While the directory is missing, its parent is watched.
    fn watched(&self) -> Vec<PathBuf> {
        // Other files are covered by the watch of the directory.
        let is_link = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let mut files: Vec<PathBuf> =
            self.seen.iter().map(|file| PathBuf::from(&file.path)).filter(is_link).collect();
        files.push(self.path.join("any"));
        if !self.path.is_dir() {
            files.push(self.path.clone());
        }
        files
    }

    /// Reads the directory again, and puts it in force if it has changed and is valid.
    fn check(&mut self, why: CheckReason, context: &LoadContext, reports: &DirectoryReports) {
        let (files, missing) = match settled(self.set, &self.path, &self.seen) {
            Ok(files) => (files, None),
            Err(Unsettled::Unreadable(refused)) => (Vec::new(), Some(refused)),
            Err(Unsettled::StillWritten(refused)) => {
                // A directory that is being written causes many notifications: it is reported once, and then once a minute.
                if !self.still_written || why != CheckReason::Notified {
                    self.failed(&refused, reports);
                }
                self.still_written = true;
                return;
            }
        };
        let settled_again = std::mem::take(&mut self.still_written);
        // Invalid content is reported again only after a change or after a minute.
        let same = files == self.seen;
        self.seen = files;
        if same && why == CheckReason::Notified && !settled_again {
            return;
        }
        if let Some(refused) = missing {
            return self.failed(&refused, reports);
        }
        let readable = self.seen.iter().all(|file| file.content.is_ok());
        let unchanged = readable && manifests::hash(&self.seen) == self.hash;
        // `same` is needed because the hash does not cover the list of expected objects.
        if unchanged && same && !self.fails {
            return;
        }
        let loaded = match context.load((self.set, &self.path), &self.seen, &mut self.accepted_files) {
            Ok(loaded) => loaded,
            Err(refused) => return self.failed(&refused, reports),
        };
        if unchanged {
            if std::mem::take(&mut self.fails) {
                let (plugin, dir) = (self.plugin(), self.path.display());
                info!(plugin, %dir, count = loaded.len(), hash = loaded.hash, "manifests can be read again; they equal those in force, so nothing changes");
                reports.recovered(self.set);
            }
            return;
        }
        (context.apply)(self.set, &loaded);
        let (plugin, dir) = (self.plugin(), self.path.display());
        info!(plugin, %dir, count = loaded.len(), hash = loaded.hash, "Reloaded manifest-based configurations");
        self.in_force(&loaded, reports);
    }

    /// Reports new warnings and removed objects after `loaded` was put in force.
    fn in_force(&mut self, loaded: &LoadedManifests, reports: &DirectoryReports) {
        let (plugin, dir) = (self.plugin(), self.path.display().to_string());
        for warning in loaded.warnings.iter().filter(|warning| !self.warnings.contains(warning)) {
            warn!(
                plugin,
                dir,
                warning = warning.one_line(),
                "a manifest-based configuration is valid, but probably not what was meant"
            );
        }
        let objects: BTreeSet<(&'static str, String)> = loaded
            .objects
            .iter()
            .flat_map(|(kind, list)| list.iter().map(|m| (*kind, api::meta::name(&m.object).to_owned())))
            .collect();
        let removed: Vec<&(&'static str, String)> = self.objects.difference(&objects).collect();
        if !removed.is_empty() {
            let names: Vec<String> =
                removed.iter().take(MOST_NAMED).map(|(kind, name)| format!("{kind}/{name}")).collect();
            warn!(
                plugin,
                dir,
                removed = removed.len(),
                left = objects.len(),
                objects = names.join(" "),
                "a reload removed manifest-based objects, which are no longer in force"
            );
            reports.metrics.removed(&removed);
        }
        reports.loaded(self.set, loaded);
        self.hash.clone_from(&loaded.hash);
        self.warnings.clone_from(&loaded.warnings);
        self.objects = objects;
        self.fails = false;
    }

    /// Reports a failed reload. The manifests in force stay.
    fn failed(&mut self, refused: &LoadError, reports: &DirectoryReports) {
        let (plugin, dir) = (self.plugin(), self.path.display());
        for problem in refused.problems() {
            error!(plugin, %dir, problem = problem.one_line(), help = problem.hint, "manifests cannot be used; the last good ones stay in force");
        }
        self.fails = true;
        reports.failed(self.set, refused);
    }
}

/// The most objects that the log names when a reload removes them.
const MOST_NAMED: usize = 20;

const WEBHOOK_KINDS: &[&str] = &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
const POLICY_KINDS: &[&str] = &[
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// The directories of static manifests, all of them loaded.
pub(crate) struct ManifestDirectories {
    directories: Vec<LoadedDirectory>,
    context: LoadContext,
    reports: DirectoryReports,
}

impl ManifestDirectories {
    /// Loads every directory and puts it in force. The error lists the problems of all directories; the server must not start after it.
    pub(crate) fn start(
        directories: Vec<(ManifestSet, PathBuf)>,
        context: LoadContext,
        metrics: Arc<ManifestMetrics>,
        statuses: Arc<DirectoryStatuses>,
    ) -> Result<Self, ConfigError> {
        let reports = DirectoryReports { metrics, statuses };
        let mut loaded_directories = Vec::new();
        let mut problems: Option<FileProblems> = None;
        for (set, path) in directories {
            match LoadedDirectory::start(set, path, &context, &reports) {
                Ok(directory) => loaded_directories.push(directory),
                Err(refused) => {
                    let words = if set == ManifestSet::Mixed {
                        refused.to_string()
                    } else {
                        let plugin = set.plugin();
                        format!(
                            "failed to apply admission: failed to initialize admission plugin \"{plugin}\": {refused}"
                        )
                    };
                    let locations = refused.report();
                    match &mut problems {
                        None => problems = Some(FileProblems { words, locations }),
                        Some(problems) => problems.locations.extend(["\n\n", &words, &locations]),
                    }
                }
            }
        }
        match problems {
            None => Ok(ManifestDirectories { directories: loaded_directories, context, reports }),
            Some(problems) => Err(ConfigError::in_files(problems)),
        }
    }

    /// Reloads directories when they change, until the server stops.
    pub(crate) async fn follow(self, stopped: watch::Receiver<bool>) {
        let ManifestDirectories { directories, context, reports } = self;
        if directories.is_empty() {
            return;
        }
        let paths = |directories: &Vec<LoadedDirectory>| {
            directories.iter().flat_map(LoadedDirectory::watched).collect()
        };
        let reporter = reports.clone();
        let look = move |directories: &mut Vec<LoadedDirectory>, why| {
            for directory in directories {
                directory.check(why, &context, &reporter);
            }
        };
        if let Err(error) = FileWatch::new(Duration::ZERO, stopped).follow(directories, paths, look).await {
            error!(%error, "stopped watching static manifests; those in force stay, restart the server to load changes");
            reports.statuses.unfollowed();
        }
    }
}

/// The plugins that evaluate the manifests of a set.
fn plugins(set: ManifestSet) -> &'static [&'static str] {
    match set {
        ManifestSet::ValidatingWebhooks => &["ValidatingAdmissionWebhook"],
        ManifestSet::MutatingWebhooks => &["MutatingAdmissionWebhook"],
        ManifestSet::ValidatingPolicies => &["ValidatingAdmissionPolicy"],
        ManifestSet::MutatingPolicies => &["MutatingAdmissionPolicy"],
        ManifestSet::Mixed => &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionWebhook",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionWebhook",
        ],
    }
}

/// The plugin that evaluates objects of a kind.
fn plugin_of(kind: &str) -> &'static str {
    match kind {
        "MutatingAdmissionPolicy" | "MutatingAdmissionPolicyBinding" => "MutatingAdmissionPolicy",
        "MutatingWebhookConfiguration" => "MutatingAdmissionWebhook",
        "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => "ValidatingAdmissionPolicy",
        _ => "ValidatingAdmissionWebhook",
    }
}
