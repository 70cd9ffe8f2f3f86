//! How folders of manifests stand, told to whoever asks.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use admission::manifests::{LoadedManifests, ManifestProblem, ManifestSet};

use super::plugins;

/// How a folder stands: for health checks, and for whoever looks at `/debug/admission`.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) set: ManifestSet,
    pub(crate) folder: String,
    /// What is in force since when; nothing before the first load.
    pub(crate) in_force: Option<Good>,
    /// When the last reload failed, and why; nothing if it did not.
    pub(crate) failure: Option<(SystemTime, String)>,
    /// Whether somebody sees changes.
    pub(crate) followed: bool,
}

/// A set that is in force.
#[derive(Clone, Debug)]
pub(crate) struct Good {
    pub(crate) since: SystemTime,
    pub(crate) hash: String,
    pub(crate) objects: usize,
    pub(crate) warnings: Vec<ManifestProblem>,
}

/// How the folders stand.
#[derive(Debug, Default)]
pub(crate) struct Standings(Mutex<Vec<Standing>>);

/// The longest reason that is kept of a failure.
const LONGEST_REASON: usize = 4096;

impl Standings {
    /// Of folders that are yet to be loaded.
    pub(crate) fn of(folders: &[(ManifestSet, PathBuf)]) -> Self {
        let standing = |(set, folder): &(ManifestSet, PathBuf)| Standing {
            set: *set,
            folder: folder.display().to_string(),
            in_force: None,
            failure: None,
            followed: true,
        };
        Standings(Mutex::new(folders.iter().map(standing).collect()))
    }

    fn change(&self, set: ManifestSet, change: impl FnOnce(&mut Standing)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(standing) = all.iter_mut().find(|standing| standing.set == set) {
            change(standing);
        }
    }

    pub(crate) fn loaded(&self, set: ManifestSet, loaded: &LoadedManifests) {
        let good = Good {
            since: SystemTime::now(),
            hash: loaded.hash.clone(),
            objects: loaded.len(),
            warnings: loaded.warnings.clone(),
        };
        self.change(set, |standing| {
            standing.in_force = Some(good);
            standing.failure = None;
        });
    }

    /// The folder is again what is in force.
    pub(crate) fn recovered(&self, set: ManifestSet) {
        self.change(set, |standing| {
            standing.failure = None;
            if let Some(good) = &mut standing.in_force {
                good.since = SystemTime::now();
            }
        });
    }

    pub(crate) fn failed(&self, set: ManifestSet, why: &str) {
        let end = (0..=LONGEST_REASON.min(why.len())).rev().find(|end| why.is_char_boundary(*end));
        let why = why.get(..end.unwrap_or(0)).unwrap_or_default().to_owned();
        self.change(set, |standing| standing.failure = Some((SystemTime::now(), why)));
    }

    /// Nobody sees changes any more.
    pub(crate) fn unfollowed(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().for_each(|standing| standing.followed = false);
    }

    /// The plugins that have folders.
    pub(crate) fn plugins(&self) -> Vec<&'static str> {
        self.all().iter().flat_map(|standing| plugins(standing.set)).copied().collect()
    }

    /// How the folder of a plugin stands.
    pub(crate) fn of_plugin(&self, plugin: &str) -> Option<Standing> {
        self.all().into_iter().find(|standing| plugins(standing.set).contains(&plugin))
    }

    /// Whether what is in the folder of a plugin is in force and stays so.
    pub(crate) fn check(&self, plugin: &str) -> Result<(), String> {
        match self.of_plugin(plugin) {
            Some(Standing { in_force: None, .. }) => Err("the manifests are not loaded yet".to_owned()),
            Some(Standing { followed: false, .. }) => Err("the manifests are no longer followed".to_owned()),
            Some(_) | None => Ok(()),
        }
    }

    fn all(&self) -> Vec<Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
