//! The status of each directory of static manifests, for health checks and for `/debug/admission`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use admission::manifests::{LoadedManifests, ManifestProblem, ManifestSet};
use value::text::first_bytes;

use super::plugins;

#[derive(Clone, Debug)]
pub(crate) struct DirectoryStatus {
    pub(crate) set: ManifestSet,
    pub(crate) directory: String,
    /// `None` before the first load.
    pub(crate) in_force: Option<ManifestsInForce>,
    /// Time and reason of the last reload, if it failed.
    pub(crate) failure: Option<(SystemTime, String)>,
    /// False after the task that reloads the directory has failed.
    pub(crate) followed: bool,
}

/// The last valid content of a directory. It stays in force while the files of the directory are invalid.
#[derive(Clone, Debug)]
pub(crate) struct ManifestsInForce {
    pub(crate) since: SystemTime,
    pub(crate) hash: String,
    pub(crate) objects: usize,
    pub(crate) warnings: Vec<ManifestProblem>,
}

#[derive(Debug, Default)]
pub(crate) struct DirectoryStatuses(Mutex<Vec<DirectoryStatus>>);

/// Reasons of failures are truncated to this many bytes.
const LONGEST_REASON: usize = 4096;

impl DirectoryStatuses {
    /// The statuses before the directories are loaded.
    pub(crate) fn of(directories: &[(ManifestSet, PathBuf)]) -> Self {
        let status = |(set, directory): &(ManifestSet, PathBuf)| DirectoryStatus {
            set: *set,
            directory: directory.display().to_string(),
            in_force: None,
            failure: None,
            followed: true,
        };
        DirectoryStatuses(Mutex::new(directories.iter().map(status).collect()))
    }

    fn change(&self, set: ManifestSet, change: impl FnOnce(&mut DirectoryStatus)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = all.iter_mut().find(|status| status.set == set) {
            change(status);
        }
    }

    pub(crate) fn loaded(&self, set: ManifestSet, loaded: &LoadedManifests) {
        let in_force = ManifestsInForce {
            since: SystemTime::now(),
            hash: loaded.hash.clone(),
            objects: loaded.len(),
            warnings: loaded.warnings.clone(),
        };
        self.change(set, |status| {
            status.in_force = Some(in_force);
            status.failure = None;
        });
    }

    /// The content of the directory equals the manifests in force again.
    pub(crate) fn recovered(&self, set: ManifestSet) {
        self.change(set, |status| {
            status.failure = None;
            if let Some(in_force) = &mut status.in_force {
                in_force.since = SystemTime::now();
            }
        });
    }

    pub(crate) fn failed(&self, set: ManifestSet, why: &str) {
        let why = first_bytes(why, LONGEST_REASON).to_owned();
        self.change(set, |status| status.failure = Some((SystemTime::now(), why)));
    }

    /// Records that directories are no longer reloaded when they change.
    pub(crate) fn unfollowed(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().for_each(|status| status.followed = false);
    }

    /// The plugins that have a directory.
    pub(crate) fn plugins(&self) -> Vec<&'static str> {
        self.all().iter().flat_map(|status| plugins(status.set)).copied().collect()
    }

    pub(crate) fn of_plugin(&self, plugin: &str) -> Option<DirectoryStatus> {
        self.all().into_iter().find(|status| plugins(status.set).contains(&plugin))
    }

    /// The health check of a plugin: its directory is loaded, and is reloaded when it changes.
    pub(crate) fn check(&self, plugin: &str) -> Result<(), String> {
        match self.of_plugin(plugin) {
            Some(DirectoryStatus { in_force: None, .. }) => {
                Err("the manifests are not loaded yet".to_owned())
            }
            Some(DirectoryStatus { followed: false, .. }) => {
                Err("the manifests are no longer watched for changes; restart the server".to_owned())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn all(&self) -> Vec<DirectoryStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
