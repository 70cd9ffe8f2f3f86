//! Stored objects that cannot be read, and what is refused because of them.
//!
//! This server writes nothing that it cannot read. Objects become unreadable by other means: another version of the server, another
//! writer of the same store, a damaged disk. Everything is looked at once when the server starts, and whoever meets such an object
//! later notes it here. Reads of it answer 500 with its key. What it decides about is refused, because to go on without it would be
//! to skip a policy, a quota or a CRD: see [`Concern`]. `portcullis store delete-key` removes it while no server runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Status;
use storage::{Entry, Store};
use tracing::error;
use value::Str;

use crate::encode;
use crate::keys::ROOT;

/// What decides by an object, and so is refused when the object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Concern {
    /// Roles, bindings, and what the Node authorizer looks at. All of them only ever allow: without the object, what it allows
    /// is denied.
    Authorization,
    /// Policies, their bindings, webhook configurations, and cluster-scoped objects that admission looks at: every write is denied.
    Admission,
    /// What admission looks at in a namespace (quotas, limits, service accounts, the namespace itself): every write
    /// in that namespace is denied.
    AdmissionIn(Str),
    /// A parameter of policies: every write that such a policy is about is denied, in any namespace.
    Parameter,
    /// A CustomResourceDefinition: requests for its resource are denied.
    CustomResourceDefinition,
    /// An APIService: requests for its group and version are denied.
    Registration,
    /// A Service, whose addresses and ports are not known: writes that take addresses or ports are denied.
    Addresses,
}

/// The stored objects that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    store: Store,
    /// Whether there ever was one: as good as always there was none, and then nobody takes the lock.
    any: AtomicBool,
    objects: Mutex<BTreeMap<Arc<str>, Found>>,
}

#[derive(Debug)]
struct Found {
    revision: u64,
    why: Status,
    concerns: BTreeSet<Concern>,
}

impl Unreadable {
    /// Looks at everything in a store, on all cores.
    pub(crate) fn scan(store: &Store) -> Self {
        let found =
            Unreadable { store: store.clone(), any: AtomicBool::new(false), objects: Mutex::default() };
        for (entry, why) in check(store) {
            found.note(&entry, &why, None);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Found>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an object that cannot be read, and what decides by it.
    pub(crate) fn note(&self, entry: &Entry, why: &Status, concern: Option<Concern>) {
        let mut objects = self.lock();
        let known = objects.get(&entry.key).is_some_and(|found| found.revision == entry.revision);
        if !known {
            error!(key = %entry.key, error = why.message(), "a stored object cannot be read; stop the server and remove it with `portcullis store delete-key`");
            let found = Found { revision: entry.revision, why: why.clone(), concerns: BTreeSet::new() };
            objects.insert(Arc::clone(&entry.key), found);
        }
        if let Some((found, concern)) = objects.get_mut(&entry.key).zip(concern) {
            found.concerns.insert(concern);
        }
        drop(objects);
        self.any.store(true, Ordering::Release);
    }

    /// The keys of all that were found so far, and why each cannot be read.
    pub(crate) fn found(&self) -> Vec<(Arc<str>, Status)> {
        self.lock().iter().map(|(key, found)| (Arc::clone(key), found.why.clone())).collect()
    }

    /// The first object for which `is_meant`, among those that are still stored as they were found.
    fn first(&self, is_meant: impl Fn(&str, &Found) -> bool) -> Option<Status> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut objects = self.lock();
        objects
            .retain(|key, found| self.store.get(key).is_some_and(|entry| entry.revision == found.revision));
        objects.iter().find(|(key, found)| is_meant(key, found)).map(|(_, found)| found.why.clone())
    }

    /// Whether every object in a scope, a directory or one key, can be read.
    pub(crate) fn check_scope(&self, scope: &str) -> Result<(), Status> {
        let is_in = |key: &str| if scope.ends_with('/') { key.starts_with(scope) } else { key == scope };
        self.first(|key, _| is_in(key)).map_or(Ok(()), Err)
    }

    /// Whether everything can be read that decides about what a concern names.
    pub(crate) fn check(&self, concern: &Concern) -> Result<(), Status> {
        self.first(|_, found| found.concerns.contains(concern)).map_or(Ok(()), Err)
    }

    /// Whether everything can be read that admission decides by in a namespace, or in none.
    pub(crate) fn check_admission(&self, namespace: &str) -> Result<(), Status> {
        let is_meant = |concern: &Concern| match concern {
            Concern::Admission => true,
            Concern::AdmissionIn(name) => name == namespace,
            _ => false,
        };
        self.first(|_, found| found.concerns.iter().any(is_meant)).map_or(Ok(()), Err)
    }

    /// Whether the object called `name` among those of a concern can be read.
    pub(crate) fn check_named(&self, concern: &Concern, name: &str) -> Result<(), Status> {
        let is_meant = |key: &str, found: &Found| {
            found.concerns.contains(concern) && key.rsplit('/').next() == Some(name)
        };
        self.first(is_meant).map_or(Ok(()), Err)
    }

    /// Whether everything can be read that anything is decided by: what readiness depends on.
    pub(crate) fn check_decisive(&self) -> Result<(), String> {
        let decisive = self.first(|_, found| !found.concerns.is_empty());
        decisive.map_or(Ok(()), |why| Err(why.message().to_owned()))
    }
}

/// Every object in a store that cannot be read, and why.
pub(crate) fn check(store: &Store) -> Vec<(Arc<Entry>, Status)> {
    let entries: Vec<Arc<Entry>> = store.snapshot(ROOT).entries.iter().cloned().collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let part = entries.len().div_ceil(cores).max(SMALL);
    let look = |entries: &[Arc<Entry>]| -> Vec<(Arc<Entry>, Status)> {
        let unreadable = |entry: &Arc<Entry>| Some((Arc::clone(entry), encode::tree(entry).err()?));
        entries.iter().filter_map(unreadable).collect()
    };
    if entries.len() <= part {
        return look(&entries);
    }
    std::thread::scope(|scope| {
        let parts: Vec<_> = entries.chunks(part).map(|part| scope.spawn(move || look(part))).collect();
        // A part whose thread did not come to its end was not looked at: look again, here.
        let done = parts.into_iter().zip(entries.chunks(part));
        done.flat_map(|(thread, part)| thread.join().unwrap_or_else(|_| look(part))).collect()
    })
}

/// So few objects are not worth a thread.
const SMALL: usize = 1024;
