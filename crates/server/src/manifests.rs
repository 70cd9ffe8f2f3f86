//! Static manifests: the folders of `staticManifestsDir`, read with bounds, in force before the first request, and followed while
//! the server runs. What is in them is for [`admission::manifests`] to say.
//!
//! A folder is read, checked and compiled as a whole and then replaces the set before it in one step; on any failure the old set
//! stays. Nothing here asks the store.

mod metrics;
mod read;
mod standing;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use admission::manifests::{
    self, AcceptedFiles, LoadError, LoadOptions, LoadedManifests, ManifestFile, ManifestProblem, ManifestSet,
};
use admission::plugins::Settings;
use admission::policy::TypeCheckKinds;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::admission::configuration::PluginConfigurations;
use crate::config::{ConfigError, Places};
use crate::file_watch::{FileWatch, Look};

pub(crate) use metrics::ManifestMetrics;
pub use read::read;
use read::{Unsettled, is_old, settled};
pub(crate) use standing::{Standing, Standings};

/// Reads and checks a folder.
pub fn load(set: ManifestSet, folder: &Path, rules: LoadOptions<'_>) -> Result<LoadedManifests, LoadError> {
    manifests::load(set, &folder.display().to_string(), &read(set, folder)?, rules)
}

/// The folders that a file of `--admission-control-config-file` names, or why the server would not start with it.
pub fn configured(path: &Path) -> Result<Vec<(ManifestSet, PathBuf)>, ConfigError> {
    let mut configurations = PluginConfigurations::read(Some(path))?;
    configurations.pod_security()?;
    configurations.webhook_credentials()?;
    let named = configurations.names();
    configurations.settings(Settings::default(), |plugin| named.contains(plugin))?;
    configurations.limited()?;
    configurations.image_policy(named.contains("ImagePolicyWebhook"))?;
    let folders = configurations.manifests(true, |_| true)?;
    configurations.finish();
    Ok(folders)
}

/// What learns how folders fare.
#[derive(Clone)]
struct Told {
    metrics: Arc<ManifestMetrics>,
    standings: Arc<Standings>,
}

impl Told {
    fn loaded(&self, set: ManifestSet, loaded: &LoadedManifests) {
        self.metrics.reloaded(set, true);
        self.metrics.in_force(set, loaded);
        self.standings.loaded(set, loaded);
    }

    /// The folder is again what is in force.
    fn recovered(&self, set: ManifestSet) {
        self.metrics.reloaded(set, true);
        self.standings.recovered(set);
    }

    fn failed(&self, set: ManifestSet, refused: &LoadError) {
        self.metrics.reloaded(set, false);
        self.standings.failed(set, &refused.to_string());
    }
}

/// Puts the objects of a folder in place of the ones before, all at once.
pub(crate) type Apply = Arc<dyn Fn(ManifestSet, &LoadedManifests) + Send + Sync>;

/// What folders are judged by and what becomes of them.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) apply: Apply,
    /// The kinds that expressions are checked against.
    pub(crate) kinds: Arc<dyn TypeCheckKinds + Send + Sync>,
    /// Whether warnings are errors.
    pub(crate) strict: bool,
}

impl Means {
    fn load(
        &self,
        kept: (ManifestSet, &Path),
        files: &[ManifestFile],
        judged: &mut AcceptedFiles,
    ) -> Result<LoadedManifests, LoadError> {
        let rules = LoadOptions { strict: self.strict, kinds: &*self.kinds };
        manifests::load_changed(kept.0, &kept.1.display().to_string(), files, rules, judged)
    }
}

/// A folder in force.
struct Kept {
    set: ManifestSet,
    path: PathBuf,
    hash: String,
    /// What is in force, by kind and name.
    objects: BTreeSet<(&'static str, String)>,
    warnings: Vec<ManifestProblem>,
    /// What was there when it was last looked at.
    seen: Vec<ManifestFile>,
    /// What of it need not be judged again.
    judged: AcceptedFiles,
    /// Whether the last look found the folder being written, which has been reported.
    still_written: bool,
    /// Whether the last reload failed.
    fails: bool,
}

impl Kept {
    /// Loads a folder and puts it in force, or says why the server must not start.
    fn start(set: ManifestSet, path: PathBuf, means: &Means, told: &Told) -> Result<Self, LoadError> {
        let files = if is_old(&path) {
            read(set, &path)?
        } else {
            settled(set, &path, &[]).map_err(Unsettled::into_refused)?
        };
        let mut judged = AcceptedFiles::default();
        let loaded = means.load((set, &path), &files, &mut judged)?;
        (means.apply)(set, &loaded);
        let mut kept = Kept {
            set,
            path,
            hash: String::new(),
            objects: BTreeSet::new(),
            warnings: Vec::new(),
            seen: files,
            judged,
            still_written: false,
            fails: false,
        };
        for (what, kinds) in [("webhook", WEBHOOK_KINDS), ("policy", POLICY_KINDS)] {
            if set.kinds().iter().any(|kind| kinds.contains(kind)) {
                let count: usize = kinds.iter().map(|kind| loaded.of_kind(kind).len()).sum();
                let (plugin, dir) = (kept.plugin(), kept.path.display());
                info!(plugin, %dir, count, "Loaded {count} manifest-based {what} configurations");
            }
        }
        kept.in_force(&loaded, told);
        Ok(kept)
    }

    /// The plugin of the folder, for the log; none if it is for all of them.
    fn plugin(&self) -> Option<&'static str> {
        (self.set != ManifestSet::Mixed).then(|| self.set.plugin())
    }

    /// The files whose folders tell of changes: the folder's own, and where links in it lead. While the folder is missing, the one
    /// that it is in tells when it is back.
    fn watched(&self) -> Vec<PathBuf> {
        // A file that is no link is in the folder itself.
        let is_link = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let mut files: Vec<PathBuf> =
            self.seen.iter().map(|file| PathBuf::from(&file.path)).filter(is_link).collect();
        files.push(self.path.join("any"));
        if !self.path.is_dir() {
            files.push(self.path.clone());
        }
        files
    }

    /// Looks at the folder, and puts it in force if it has changed and can be used.
    fn look(&mut self, why: Look, means: &Means, told: &Told) {
        let (files, missing) = match settled(self.set, &self.path, &self.seen) {
            Ok(files) => (files, None),
            Err(Unsettled::Unreadable(refused)) => (Vec::new(), Some(refused)),
            Err(Unsettled::StillWritten(refused)) => {
                // What is being written is told of again and again: it is reported once, and then once a minute.
                if !self.still_written || why != Look::Hinted {
                    self.failed(&refused, told);
                }
                self.still_written = true;
                return;
            }
        };
        let settled_again = std::mem::take(&mut self.still_written);
        // What was refused is refused again only after it changed, or after a minute.
        let same = files == self.seen;
        self.seen = files;
        if same && why == Look::Hinted && !settled_again {
            return;
        }
        if let Some(refused) = missing {
            return self.failed(&refused, told);
        }
        let readable = self.seen.iter().all(|file| file.content.is_ok());
        let unchanged = readable && manifests::hash(&self.seen) == self.hash;
        // The list of expected objects is no part of the hash.
        if unchanged && same && !self.fails {
            return;
        }
        let loaded = match means.load((self.set, &self.path), &self.seen, &mut self.judged) {
            Ok(loaded) => loaded,
            Err(refused) => return self.failed(&refused, told),
        };
        if unchanged {
            if std::mem::take(&mut self.fails) {
                let (plugin, dir) = (self.plugin(), self.path.display());
                info!(plugin, %dir, count = loaded.len(), hash = loaded.hash, "Reloaded manifest-based configurations: they are the ones in force");
                told.recovered(self.set);
            }
            return;
        }
        (means.apply)(self.set, &loaded);
        let (plugin, dir) = (self.plugin(), self.path.display());
        info!(plugin, %dir, count = loaded.len(), hash = loaded.hash, "Reloaded manifest-based configurations");
        self.in_force(&loaded, told);
    }

    /// What is loaded has been put in force: reports what is gone and what is doubtful.
    fn in_force(&mut self, loaded: &LoadedManifests, told: &Told) {
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
            told.metrics.removed(&removed);
        }
        told.loaded(self.set, loaded);
        self.hash.clone_from(&loaded.hash);
        self.warnings.clone_from(&loaded.warnings);
        self.objects = objects;
        self.fails = false;
    }

    /// The last good set stays.
    fn failed(&mut self, refused: &LoadError, told: &Told) {
        let (plugin, dir) = (self.plugin(), self.path.display());
        for problem in refused.problems() {
            error!(plugin, %dir, problem = problem.one_line(), help = problem.hint, "manifests cannot be used; the last good ones stay in force");
        }
        self.fails = true;
        told.failed(self.set, refused);
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

/// The folders in force.
pub(crate) struct InForce {
    kept: Vec<Kept>,
    means: Means,
    told: Told,
}

impl InForce {
    /// Loads every folder and puts it in force, or says why the server must not start.
    pub(crate) fn start(
        folders: Vec<(ManifestSet, PathBuf)>,
        means: Means,
        metrics: Arc<ManifestMetrics>,
        standings: Arc<Standings>,
    ) -> Result<Self, ConfigError> {
        let told = Told { metrics, standings };
        let mut kept = Vec::new();
        let mut problems: Option<Places> = None;
        for (set, path) in folders {
            match Kept::start(set, path, &means, &told) {
                Ok(folder) => kept.push(folder),
                Err(refused) => {
                    let words = if set == ManifestSet::Mixed {
                        refused.to_string()
                    } else {
                        let plugin = set.plugin();
                        format!(
                            "failed to apply admission: failed to initialize admission plugin \"{plugin}\": {refused}"
                        )
                    };
                    let places = refused.report();
                    match &mut problems {
                        None => problems = Some(Places { words, places }),
                        Some(problems) => problems.places.extend(["\n\n", &words, &places]),
                    }
                }
            }
        }
        match problems {
            None => Ok(InForce { kept, means, told }),
            Some(problems) => Err(ConfigError::in_files(problems)),
        }
    }

    /// Follows the folders until the server stops.
    pub(crate) async fn follow(self, stopped: watch::Receiver<bool>) {
        let InForce { mut kept, means, told } = self;
        if kept.is_empty() {
            return;
        }
        let mut hints = FileWatch::new(Duration::ZERO, stopped);
        let mut watched: Vec<PathBuf> = kept.iter().flat_map(Kept::watched).collect();
        loop {
            hints.watch(watched.iter().map(PathBuf::as_path));
            let Some(why) = hints.next().await else { return };
            let (means, teller) = (means.clone(), told.clone());
            let looked = tokio::task::spawn_blocking(move || {
                for folder in &mut kept {
                    folder.look(why, &means, &teller);
                }
                let watched = kept.iter().flat_map(Kept::watched).collect();
                (kept, watched)
            });
            match looked.await {
                Ok(back) => (kept, watched) = back,
                Err(error) => {
                    error!(%error, "static manifests are no longer followed; what is in force stays");
                    told.standings.unfollowed();
                    return;
                }
            }
        }
    }
}

/// The plugins that a folder is for.
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
