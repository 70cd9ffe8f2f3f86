//! Static manifests: the folders of `staticManifestsDir`, read with bounds, in force before the first request, and followed while
//! the server runs. What is in them is for [`admission::manifests`] to say.
//!
//! A folder is read, checked and compiled as a whole and then replaces the set before it in one step; on any failure the old set
//! stays. Nothing here asks the store.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admission::manifests::{self, File, Loaded, Refused, Set};
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::config::ConfigError;
use crate::files::go_words;
use crate::hints::{Hints, Look};

/// The most bytes that the files of one folder may have together.
const MAX_BYTES: usize = 256 << 20;
/// The most files of one folder.
const MAX_FILES: usize = 100_000;

/// Reads and checks a folder.
pub fn load(set: Set, folder: &Path) -> Result<Loaded, Refused> {
    manifests::load(set, &folder.display().to_string(), &read(set, folder)?)
}

/// The files of a folder, by name: its direct children with the right endings. A file that cannot be read is one that says why.
pub fn read(set: Set, folder: &Path) -> Result<Vec<File>, Refused> {
    let shown = folder.display().to_string();
    let refused = |why: String| {
        let what = format!("failed to read manifest directory {}: {why}", api::field::quote(&shown));
        Refused::folder(set, &shown, &what)
    };
    let entries =
        std::fs::read_dir(folder).map_err(|e| refused(format!("open {shown}: {}", go_words(&e))))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| refused(go_words(&e)))?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name();
        if !is_folder && name.to_str().is_some_and(manifests::is_manifest) {
            names.push(name);
        }
        if names.len() > MAX_FILES {
            return Err(refused(format!("it has more than {MAX_FILES} files")));
        }
    }
    names.sort();
    let mut left = MAX_BYTES;
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let path = folder.join(name);
        let content = read_file(&path, left);
        if let Ok(content) = &content {
            left = left.saturating_sub(content.len());
        }
        files.push(File { path: path.display().to_string(), content });
    }
    Ok(files)
}

/// The files of a folder once nobody seems to write to it: a file that is being written in place is empty for a moment, and an
/// empty file is no policy at all. After a while they are taken as they are.
fn settled(set: Set, folder: &Path) -> Result<Vec<File>, Refused> {
    let mut files = read(set, folder)?;
    for _ in 0..SETTLING {
        std::thread::sleep(SETTLE);
        let again = read(set, folder)?;
        if again == files {
            break;
        }
        files = again;
    }
    Ok(files)
}

/// The bytes of a file, or why not, as Go says it: `open PATH: no such file or directory`.
fn read_file(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let file = std::fs::File::open(path).map_err(|e| format!("open {shown}: {}", go_words(&e)))?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|e| format!("read {shown}: {}", go_words(&e)))?;
    if bytes.len() > most {
        return Err(format!(
            "read {shown}: the files of the folder are longer than {MAX_BYTES} bytes together"
        ));
    }
    Ok(bytes)
}

/// How long a folder must stay the same to be read.
const SETTLE: Duration = Duration::from_millis(25);
/// How often a folder that keeps changing is read again before it is taken as it is.
const SETTLING: usize = 20;

/// A folder in force.
struct Kept {
    set: Set,
    path: PathBuf,
    hash: String,
    count: usize,
    /// What was there when it was last looked at.
    seen: Vec<File>,
}

/// What becomes of the objects of a folder: they replace the ones before, all at once.
pub(crate) type Apply = Arc<dyn Fn(Set, &Loaded) + Send + Sync>;

impl Kept {
    /// Loads a folder and puts it in force, or says why the server must not start.
    fn start(set: Set, path: PathBuf, apply: &Apply, metrics: &ManifestMetrics) -> Result<Self, Refused> {
        let files = read(set, &path)?;
        let loaded = manifests::load(set, &path.display().to_string(), &files)?;
        apply(set, &loaded);
        let count = loaded.len();
        info!(plugin = set.plugin(), dir = %path.display(), count, "Loaded {count} manifest-based {}", what(set));
        metrics.reloaded(set, true);
        metrics.in_force(set, &loaded.hash);
        Ok(Kept { set, path, hash: loaded.hash, count, seen: files })
    }

    /// The files whose folders tell of changes: the folder's own, and where links in it lead. The folder that it is in tells when
    /// it is a link itself, or missing.
    fn watched(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.seen.iter().map(|file| PathBuf::from(&file.path)).collect();
        files.push(self.path.join("any"));
        if !std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_dir()) {
            files.push(self.path.clone());
        }
        files
    }

    /// Looks at the folder, and puts it in force if it has changed and can be used.
    fn look(&mut self, why: Look, apply: &Apply, metrics: &ManifestMetrics) {
        let (files, missing) = match settled(self.set, &self.path) {
            Ok(files) => (files, None),
            Err(refused) => (Vec::new(), Some(refused)),
        };
        // What was refused is refused again only after it changed, or after a minute.
        let same = files == self.seen;
        self.seen = files;
        if same && why == Look::Hinted {
            return;
        }
        if let Some(refused) = missing {
            return self.failed(&refused, metrics);
        }
        let readable = self.seen.iter().all(|file| file.content.is_ok());
        if readable && manifests::hash(&self.seen) == self.hash {
            return;
        }
        let loaded = match manifests::load(self.set, &self.path.display().to_string(), &self.seen) {
            Ok(loaded) => loaded,
            Err(refused) => return self.failed(&refused, metrics),
        };
        apply(self.set, &loaded);
        let (dir, plugin, count) = (self.path.display(), self.set.plugin(), loaded.len());
        if loaded.is_empty() && self.count > 0 {
            warn!(plugin, %dir, removed = self.count, "a manifest folder is empty now: {} manifest-based {} are no longer in force", self.count, what(self.set));
        }
        info!(plugin, %dir, count, hash = loaded.hash, "Reloaded {count} manifest-based {}", what(self.set));
        metrics.reloaded(self.set, true);
        metrics.in_force(self.set, &loaded.hash);
        (self.hash, self.count) = (loaded.hash, count);
    }

    /// The last good set stays.
    fn failed(&self, refused: &Refused, metrics: &ManifestMetrics) {
        for problem in refused.problems() {
            error!(plugin = self.set.plugin(), dir = %self.path.display(), "manifests cannot be used; the last good ones stay in force\n{problem}");
        }
        metrics.reloaded(self.set, false);
    }
}

fn what(set: Set) -> &'static str {
    match set {
        Set::ValidatingWebhooks | Set::MutatingWebhooks => "admission webhook configurations",
        Set::ValidatingPolicies | Set::MutatingPolicies => "admission policy configurations",
        Set::Mixed => "admission configurations",
    }
}

/// The folders in force.
pub(crate) struct InForce {
    kept: Vec<Kept>,
    apply: Apply,
    metrics: Arc<ManifestMetrics>,
}

impl InForce {
    /// Loads every folder and puts it in force, or says why the server must not start.
    pub(crate) fn start(
        folders: Vec<(Set, PathBuf)>,
        apply: Apply,
        metrics: Arc<ManifestMetrics>,
    ) -> Result<Self, ConfigError> {
        let mut kept = Vec::new();
        let mut first = None;
        for (set, path) in folders {
            match Kept::start(set, path, &apply, &metrics) {
                Ok(folder) => kept.push(folder),
                Err(refused) => {
                    for problem in refused.problems() {
                        error!(plugin = set.plugin(), "\n{problem}");
                    }
                    first.get_or_insert((set, refused));
                }
            }
        }
        match first {
            None => Ok(InForce { kept, apply, metrics }),
            Some((Set::Mixed, refused)) => Err(ConfigError::other(refused)),
            Some((set, refused)) => Err(ConfigError::other(format!(
                "failed to apply admission: failed to initialize admission plugin \"{}\": {refused}",
                set.plugin()
            ))),
        }
    }

    /// Follows the folders until the server stops.
    pub(crate) async fn follow(self, stopped: watch::Receiver<bool>) {
        let InForce { mut kept, apply, metrics } = self;
        if kept.is_empty() {
            return;
        }
        let mut hints = Hints::new(SETTLE, stopped);
        loop {
            let watched: Vec<PathBuf> = kept.iter().flat_map(Kept::watched).collect();
            hints.watch(watched.iter().map(PathBuf::as_path));
            let Some(why) = hints.next().await else { return };
            let (apply, metrics) = (Arc::clone(&apply), Arc::clone(&metrics));
            let looked = tokio::task::spawn_blocking(move || {
                for folder in &mut kept {
                    folder.look(why, &apply, &metrics);
                }
                kept
            });
            match looked.await {
                Ok(back) => kept = back,
                Err(error) => {
                    error!(%error, "static manifests are no longer followed; what is in force stays");
                    return;
                }
            }
        }
    }
}

/// What happens to folders, counted under the names of Kubernetes and of KEP-5793.
#[derive(Debug)]
pub(crate) struct ManifestMetrics {
    id_hash: String,
    reloads: IntCounterVec,
    times: GaugeVec,
    info: IntGaugeVec,
    /// The hash that is shown of each plugin.
    hashes: Mutex<BTreeMap<&'static str, String>>,
    kep_reloads: IntCounterVec,
    kep_times: GaugeVec,
}

impl ManifestMetrics {
    /// Registers the families. `id_hash` is the hash of the server's identity.
    pub(crate) fn new(registry: &Registry, id_hash: String) -> Result<Arc<Self>, prometheus::Error> {
        const RELOADS: &str = "Total number of automatic reloads of admission manifest configuration split by status, plugin, and apiserver identity.";
        const TIMES: &str = "Timestamp of the last automatic reload of admission manifest configuration split by status, plugin, and apiserver identity.";
        let labels = &["apiserver_id_hash", "plugin", "status"];
        let counter = |name: &str, help: String, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let gauge = |name: &str, help: String, labels: &[&str]| {
            let metric = GaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let info = IntGaugeVec::new(
            Opts::new(
                "apiserver_manifest_admission_config_controller_last_config_info",
                "[ALPHA] Information about the last applied admission manifest configuration with hash as label, split by plugin and apiserver identity.",
            ),
            &["apiserver_id_hash", "hash", "plugin"],
        )?;
        registry.register(Box::new(info.clone()))?;
        Ok(Arc::new(ManifestMetrics {
            id_hash,
            info,
            hashes: Mutex::default(),
            reloads: counter(
                "apiserver_manifest_admission_config_controller_automatic_reloads_total",
                format!("[ALPHA] {RELOADS}"),
                labels,
            )?,
            times: gauge(
                "apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds",
                format!("[ALPHA] {TIMES}"),
                labels,
            )?,
            kep_reloads: counter(
                "apiserver_admission_manifest_config_automatic_reloads_total",
                format!("[ALPHA] {RELOADS}"),
                &["plugin", "status"],
            )?,
            kep_times: gauge(
                "apiserver_admission_manifest_config_automatic_reload_last_timestamp_seconds",
                format!("[ALPHA] {TIMES}"),
                &["plugin", "status"],
            )?,
        }))
    }

    fn reloaded(&self, set: Set, ok: bool) {
        let status = if ok { "success" } else { "failure" };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        for plugin in plugins(set) {
            self.reloads.with_label_values(&[self.id_hash.as_str(), plugin, status]).inc();
            self.times.with_label_values(&[self.id_hash.as_str(), plugin, status]).set(now);
            self.kep_reloads.with_label_values(&[plugin, status]).inc();
            self.kep_times.with_label_values(&[plugin, status]).set(now);
        }
    }

    fn in_force(&self, set: Set, hash: &str) {
        for plugin in plugins(set) {
            let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(before) = hashes.insert(plugin, hash.to_owned()) {
                let _ = self.info.remove_label_values(&[self.id_hash.as_str(), &before, plugin]);
            }
            self.info.with_label_values(&[self.id_hash.as_str(), hash, plugin]).set(1);
        }
    }
}

/// The plugins that a folder is for.
fn plugins(set: Set) -> &'static [&'static str] {
    match set {
        Set::ValidatingWebhooks => &["ValidatingAdmissionWebhook"],
        Set::MutatingWebhooks => &["MutatingAdmissionWebhook"],
        Set::ValidatingPolicies => &["ValidatingAdmissionPolicy"],
        Set::MutatingPolicies => &["MutatingAdmissionPolicy"],
        Set::Mixed => &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionWebhook",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionWebhook",
        ],
    }
}
