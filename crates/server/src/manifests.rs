//! Static manifests: the folders of `staticManifestsDir`, read with bounds, in force before the first request, and followed while
//! the server runs. What is in them is for [`admission::manifests`] to say.
//!
//! A folder is read, checked and compiled as a whole and then replaces the set before it in one step; on any failure the old set
//! stays. Nothing here asks the store.

mod metrics;
mod standing;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use admission::manifests::{self, File, Judged, Loaded, Refused, Set};
use admission::plugins::Settings;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::admission::configuration::PluginConfigurations;
use crate::config::ConfigError;
use crate::files::go_words;
use crate::hints::{Hints, Look};

pub(crate) use metrics::ManifestMetrics;
pub(crate) use standing::{Standing, Standings};

/// The most bytes that the files of one folder may have together.
const MAX_BYTES: usize = 256 << 20;
/// The most files of one folder.
const MAX_FILES: usize = 100_000;

/// Reads and checks a folder.
pub fn load(set: Set, folder: &Path) -> Result<Loaded, Refused> {
    manifests::load(set, &folder.display().to_string(), &read(set, folder)?)
}

/// The folders that a file of `--admission-control-config-file` names, or why the server would not start with it.
pub fn configured(path: &Path) -> Result<Vec<(Set, PathBuf)>, ConfigError> {
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

/// Why there are no files to use.
enum Unsettled {
    /// The folder cannot be read.
    Unreadable(Refused),
    /// It was different each time it was looked at: part of what is being written would be taken for all of it.
    StillWritten(Refused),
}

impl Unsettled {
    fn into_refused(self) -> Refused {
        match self {
            Unsettled::Unreadable(refused) | Unsettled::StillWritten(refused) => refused,
        }
    }
}

/// The files of a folder once nothing seems to write to it: they must be the same several times in a row. A folder that keeps changing is
/// refused, because a valid part of a set of policies must not be taken for the whole.
///
/// A file that is being written in place is empty for a moment, and an empty file is no policy at all: one that has just become
/// empty must stay so for longer.
fn settled(set: Set, folder: &Path, before: &[File]) -> Result<Vec<File>, Unsettled> {
    let shown = folder.display().to_string();
    let still_written = || {
        let what = format!(
            "manifest directory {} is still being written: it changed again and again for {} ms",
            api::field::quote(&shown),
            SETTLE.as_millis() * SETTLING as u128
        );
        Unsettled::StillWritten(Refused::folder(set, &shown, &what))
    };
    let mut read = || read(set, folder).map_err(Unsettled::Unreadable);
    settle(&mut read, || std::thread::sleep(SETTLE), before)?.ok_or_else(still_written)
}

/// Reads until what is read stays the same; nothing if it does not.
fn settle<E>(
    read: &mut impl FnMut() -> Result<Vec<File>, E>,
    mut pause: impl FnMut(),
    before: &[File],
) -> Result<Option<Vec<File>>, E> {
    let mut files = read()?;
    let mut calm = 0;
    for _ in 0..SETTLING {
        pause();
        let again = read()?;
        calm = if again == files { calm + 1 } else { 0 };
        files = again;
        let wanted = if files.iter().any(|file| is_emptied(file, before)) { EMPTY_FOR } else { QUIET_FOR };
        if calm >= wanted {
            return Ok(Some(files));
        }
    }
    Ok(None)
}

/// Whether nothing in a folder has changed for a while, so that it need not be looked at twice.
fn is_old(folder: &Path) -> bool {
    let now = SystemTime::now();
    let is_old = |path: &Path| {
        let changed = std::fs::metadata(path).and_then(|found| found.modified());
        changed.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > OLD))
    };
    is_old(folder)
        && std::fs::read_dir(folder)
            .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| is_old(&entry.path()))))
}

/// Whether a file is empty that was not, or that was not there.
fn is_emptied(file: &File, before: &[File]) -> bool {
    file.content.as_ref().is_ok_and(Vec::is_empty) && !before.contains(file)
}

/// The bytes of a file, or why not, as Go says it: `open PATH: no such file or directory`.
fn read_file(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let shown = path.display();
    // Opening a pipe would wait for somebody to write to it.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Err(format!("read {shown}: it is no regular file"));
    }
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

/// How long it is between two looks at a folder.
const SETTLE: Duration = Duration::from_millis(15);
/// How often in a row a folder must be found unchanged: somewhat more than a tenth of a second.
const QUIET_FOR: usize = 7;
/// The same for a file that has just become empty.
const EMPTY_FOR: usize = 15;
/// How often a folder that keeps changing is read again before it is refused.
const SETTLING: usize = 80;
/// What was last written longer ago than this is not being written.
const OLD: Duration = Duration::from_secs(2);

/// What learns how folders fare.
#[derive(Clone)]
struct Told {
    metrics: Arc<ManifestMetrics>,
    standings: Arc<Standings>,
}

impl Told {
    fn loaded(&self, set: Set, loaded: &Loaded) {
        self.metrics.reloaded(set, true);
        self.metrics.in_force(set, &loaded.hash);
        self.standings.loaded(set, &loaded.hash, loaded.len());
    }

    fn failed(&self, set: Set, refused: &Refused) {
        self.metrics.reloaded(set, false);
        self.standings.failed(set, &refused.to_string());
    }
}

/// A folder in force.
struct Kept {
    set: Set,
    path: PathBuf,
    hash: String,
    count: usize,
    /// What was there when it was last looked at.
    seen: Vec<File>,
    /// What of it need not be judged again.
    judged: Judged,
    /// Whether the last look found the folder being written, which has been reported.
    still_written: bool,
}

/// What becomes of the objects of a folder: they replace the ones before, all at once.
pub(crate) type Apply = Arc<dyn Fn(Set, &Loaded) + Send + Sync>;

impl Kept {
    /// Loads a folder and puts it in force, or says why the server must not start.
    fn start(set: Set, path: PathBuf, apply: &Apply, told: &Told) -> Result<Self, Refused> {
        let files = if is_old(&path) {
            read(set, &path)?
        } else {
            settled(set, &path, &[]).map_err(Unsettled::into_refused)?
        };
        let mut judged = Judged::default();
        let loaded = manifests::load_changes(set, &path.display().to_string(), &files, &mut judged)?;
        apply(set, &loaded);
        let count = loaded.len();
        info!(plugin = set.plugin(), dir = %path.display(), count, "Loaded {count} manifest-based {}", what(set));
        told.loaded(set, &loaded);
        Ok(Kept { set, path, hash: loaded.hash, count, seen: files, judged, still_written: false })
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
    fn look(&mut self, why: Look, apply: &Apply, told: &Told) {
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
        self.still_written = false;
        // What was refused is refused again only after it changed, or after a minute.
        let same = files == self.seen;
        self.seen = files;
        if same && why == Look::Hinted {
            return;
        }
        if let Some(refused) = missing {
            return self.failed(&refused, told);
        }
        let readable = self.seen.iter().all(|file| file.content.is_ok());
        if readable && manifests::hash(&self.seen) == self.hash {
            return;
        }
        let folder = self.path.display().to_string();
        let loaded = match manifests::load_changes(self.set, &folder, &self.seen, &mut self.judged) {
            Ok(loaded) => loaded,
            Err(refused) => return self.failed(&refused, told),
        };
        apply(self.set, &loaded);
        let (dir, plugin, count) = (self.path.display(), self.set.plugin(), loaded.len());
        if loaded.is_empty() && self.count > 0 {
            warn!(plugin, %dir, removed = self.count, "a manifest folder is empty now: {} manifest-based {} are no longer in force", self.count, what(self.set));
        }
        info!(plugin, %dir, count, hash = loaded.hash, "Reloaded {count} manifest-based {}", what(self.set));
        told.loaded(self.set, &loaded);
        (self.hash, self.count) = (loaded.hash, count);
    }

    /// The last good set stays.
    fn failed(&self, refused: &Refused, told: &Told) {
        for problem in refused.problems() {
            error!(plugin = self.set.plugin(), dir = %self.path.display(), "manifests cannot be used; the last good ones stay in force\n{problem}");
        }
        told.failed(self.set, refused);
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
    told: Told,
}

impl InForce {
    /// Loads every folder and puts it in force, or says why the server must not start.
    pub(crate) fn start(
        folders: Vec<(Set, PathBuf)>,
        apply: Apply,
        metrics: Arc<ManifestMetrics>,
        standings: Arc<Standings>,
    ) -> Result<Self, ConfigError> {
        let told = Told { metrics, standings };
        let mut kept = Vec::new();
        let mut first = None;
        for (set, path) in folders {
            match Kept::start(set, path, &apply, &told) {
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
            None => Ok(InForce { kept, apply, told }),
            Some((Set::Mixed, refused)) => Err(ConfigError::other(refused)),
            Some((set, refused)) => Err(ConfigError::other(format!(
                "failed to apply admission: failed to initialize admission plugin \"{}\": {refused}",
                set.plugin()
            ))),
        }
    }

    /// Follows the folders until the server stops.
    pub(crate) async fn follow(self, stopped: watch::Receiver<bool>) {
        let InForce { mut kept, apply, told } = self;
        if kept.is_empty() {
            return;
        }
        let mut hints = Hints::new(Duration::ZERO, stopped);
        let mut watched: Vec<PathBuf> = kept.iter().flat_map(Kept::watched).collect();
        loop {
            hints.watch(watched.iter().map(PathBuf::as_path));
            let Some(why) = hints.next().await else { return };
            let (apply, teller) = (Arc::clone(&apply), told.clone());
            let looked = tokio::task::spawn_blocking(move || {
                for folder in &mut kept {
                    folder.look(why, &apply, &teller);
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

#[cfg(test)]
mod tests {
    use super::{EMPTY_FOR, File, QUIET_FOR, SETTLING, settle};

    fn file(text: &str) -> Vec<File> {
        vec![File { path: "a.yaml".to_owned(), content: Ok(text.as_bytes().to_vec()) }]
    }

    /// Reads these in turn, the last again and again; says what comes of it and how many reads it took.
    fn settles(turns: &[&str], before: &str) -> (Option<Vec<File>>, usize) {
        let mut reads = 0;
        let mut read = || {
            let text = turns.get(reads).or(turns.last()).copied().unwrap_or_default();
            reads += 1;
            Ok::<_, ()>(file(text))
        };
        let settled = settle(&mut read, || {}, &file(before)).unwrap();
        (settled, reads)
    }

    #[test]
    fn what_stays_the_same_is_taken_and_what_keeps_changing_never_is() {
        assert_eq!(settles(&["a"], "b"), (Some(file("a")), QUIET_FOR + 1));
        assert_eq!(settles(&["a", "ab", "abc"], "b"), (Some(file("abc")), QUIET_FOR + 3));
        let endless: Vec<String> = (0..=SETTLING).map(|n| "x".repeat(n + 1)).collect();
        let endless: Vec<&str> = endless.iter().map(String::as_str).collect();
        assert_eq!(settles(&endless, "b"), (None, SETTLING + 1), "a prefix is never the whole");
    }

    #[test]
    fn a_file_that_has_just_become_empty_must_stay_so_for_longer() {
        assert_eq!(settles(&[""], "b"), (Some(file("")), EMPTY_FOR + 1));
        assert_eq!(settles(&[""], ""), (Some(file("")), QUIET_FOR + 1), "it was empty before");
        assert_eq!(settles(&["", "", "a"], "b").0, Some(file("a")));
    }
}
