//! Stored objects that cannot be decoded, and the requests that are denied because of them.
//!
//! This server never writes objects it cannot decode. They come from elsewhere: another version of the server, another writer to the same
//! store, a damaged disk. All objects are checked when the server starts, and those found later are recorded here as well. Reading one
//! returns 500 with its key. Requests that depend on it are denied, because ignoring it could bypass a policy, a quota or a CRD: see
//! [`Concern`]. The same requests are denied once an informer has failed, because then this server no longer follows the objects.
//! `portcullis store delete-key` removes it while no server is running.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Status;
use storage::{Store, StoredEntry};
use tracing::error;
use value::Str;

use crate::encode;
use crate::keys::{self, ROOT};

/// The decisions that depend on an object, and are denied while it cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// Roles, bindings, and objects the Node authorizer reads. All of them only grant access: without the object, the access it grants is
    /// denied.
    Authorization,
    /// Policies, policy bindings, webhook configurations, and cluster-scoped objects that admission reads: every write is denied.
    Admission,
    /// Namespaced objects that admission reads (quotas, limit ranges, service accounts, the namespace itself): every write in that
    /// namespace is denied.
    AdmissionIn(Str),
    /// A parameter of policies: every write that matches such a policy is denied, in all namespaces.
    Parameter,
    /// A CRD: requests for its resource are denied.
    CustomResourceDefinition,
    /// An APIService: requests for its group and version are denied.
    Registration,
    /// A Service, whose cluster IPs and node ports are unknown: writes that allocate addresses or ports are denied.
    Addresses,
}

/// Keys whose values a shared backend could not decode, found while it feeds the store.
#[derive(Debug, Default)]
pub struct DecodeFailures {
    any: AtomicBool,
    /// The revision of each key's last such value.
    keys: Mutex<BTreeMap<Arc<str>, u64>>,
}

impl DecodeFailures {
    /// Adds a key whose value at `revision` cannot be decoded, before the store has it.
    pub fn add(&self, key: &str, revision: u64) {
        self.lock().insert(key.into(), revision);
        self.any.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, u64>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Removes and returns the keys that the store has reached.
    fn take_reached(&self, store: &Store) -> Vec<Arc<str>> {
        let mut keys = self.lock();
        let is_reached = |(key, at): &(&Arc<str>, &u64)| **at <= store.of(key).revision();
        let reached: Vec<Arc<str>> = keys.iter().filter(is_reached).map(|(key, _)| Arc::clone(key)).collect();
        for key in &reached {
            keys.remove(key);
        }
        self.any.store(!keys.is_empty(), Ordering::Release);
        reached
    }
}

/// The stored objects that cannot be decoded.
#[derive(Debug)]
pub struct Unreadable {
    store: Store,
    /// Objects whose decoding failed since the start and that are not in `objects` yet.
    failures: Arc<DecodeFailures>,
    /// True once an unreadable object has been found. Usually there is none, and `objects` is never locked.
    any: AtomicBool,
    objects: Mutex<BTreeMap<Arc<str>, UnreadableObject>>,
    /// Concerns whose objects are no longer followed until the server is restarted, with the error for clients.
    unfollowed: Mutex<BTreeMap<Concern, Status>>,
}

#[derive(Debug)]
struct UnreadableObject {
    revision: u64,
    why: Status,
    concerns: BTreeSet<Concern>,
}

impl Unreadable {
    /// Decodes every object in the store once, in parallel.
    pub fn scan(store: &Store, failures: Arc<DecodeFailures>) -> Self {
        let found = Unreadable {
            store: store.clone(),
            failures,
            any: AtomicBool::new(false),
            objects: Mutex::default(),
            unfollowed: Mutex::default(),
        };
        for (entry, why) in check(store) {
            found.note(&entry, &why, None);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, UnreadableObject>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an object that cannot be decoded, and the decision that depends on it. Logs each revision once.
    pub fn note(&self, entry: &StoredEntry, why: &Status, concern: Option<Concern>) {
        let mut objects = self.lock();
        let known = objects.get(&entry.key).is_some_and(|found| found.revision == entry.revision);
        if !known {
            // In etcd the value may be what another server can read, such as an encrypted one: it is not to be deleted.
            let advice = if self.store.is_shared() {
                "do not delete it from etcd before you know that no other server can read it, for example because it encrypted the value"
            } else {
                "stop the server and remove it with `portcullis store delete-key`"
            };
            error!(key = %entry.key, error = why.message(), advice, "cannot decode a stored object; requests that need it are refused");
            let found =
                UnreadableObject { revision: entry.revision, why: why.clone(), concerns: BTreeSet::new() };
            objects.insert(Arc::clone(&entry.key), found);
        }
        if let Some((found, concern)) = objects.get_mut(&entry.key).zip(concern) {
            found.concerns.insert(concern);
        }
        drop(objects);
        self.any.store(true, Ordering::Release);
    }

    /// Records that changes of the objects below `scope` are no longer applied, because applying one panicked: every decision with this
    /// concern is denied until the server is restarted.
    pub fn note_unfollowed(&self, scope: &str, concern: Concern) {
        error!(
            scope,
            ?concern,
            "changes of stored objects are no longer applied, because applying one panicked; requests that depend on them are denied; restart the server and report the panic"
        );
        let why = Status::internal(format!("this server no longer follows the objects in {scope}"));
        self.unfollowed.lock().unwrap_or_else(PoisonError::into_inner).insert(concern, why);
        self.any.store(true, Ordering::Release);
    }

    /// The error of the first matching concern whose objects are no longer followed.
    fn first_unfollowed(&self, is_meant: impl Fn(&Concern) -> bool) -> Option<Status> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let unfollowed = self.unfollowed.lock().unwrap_or_else(PoisonError::into_inner);
        unfollowed.iter().find(|(concern, _)| is_meant(concern)).map(|(_, why)| why.clone())
    }

    /// Records what the backend could not decode.
    fn note_failures(&self) {
        if self.failures.is_empty() {
            return;
        }
        for key in self.failures.take_reached(&self.store) {
            if let Some(entry) = self.store.get(&key)
                && let Err(why) = encode::tree(&entry)
            {
                self.note(&entry, &why, None);
            }
        }
    }

    /// The keys and errors of all objects found so far, possibly including some that were changed or deleted since.
    pub fn errors_by_key(&self) -> Vec<(Arc<str>, Status)> {
        self.lock().iter().map(|(key, found)| (Arc::clone(key), found.why.clone())).collect()
    }

    /// The error of the first object that matches `is_meant`. Objects that were changed or deleted in the meantime are dropped.
    fn first(&self, is_meant: impl Fn(&str, &UnreadableObject) -> bool) -> Option<Status> {
        self.note_failures();
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut objects = self.lock();
        objects
            .retain(|key, found| self.store.get(key).is_some_and(|entry| entry.revision == found.revision));
        objects.iter().find(|(key, found)| is_meant(key, found)).map(|(_, found)| found.why.clone())
    }

    /// Fails if an object in the scope cannot be decoded. The scope is a key prefix that ends with `/`, or a single key.
    pub fn check_scope(&self, scope: &str) -> Result<(), Status> {
        let is_in = |key: &str| if scope.ends_with('/') { key.starts_with(scope) } else { key == scope };
        self.first(|key, _| is_in(key)).map_or(Ok(()), Err)
    }

    /// Fails if an object with this concern cannot be decoded.
    pub fn check(&self, concern: &Concern) -> Result<(), Status> {
        let unfollowed = self.first_unfollowed(|of| of == concern);
        unfollowed.or_else(|| self.first(|_, found| found.concerns.contains(concern))).map_or(Ok(()), Err)
    }

    /// Fails if an object that admission reads for this namespace cannot be decoded. An empty namespace stands for cluster scope.
    pub fn check_admission(&self, namespace: &str) -> Result<(), Status> {
        let is_meant = |concern: &Concern| match concern {
            Concern::Admission => true,
            Concern::AdmissionIn(name) => name == namespace,
            _ => false,
        };
        let unfollowed = self.first_unfollowed(is_meant);
        unfollowed.or_else(|| self.first(|_, found| found.concerns.iter().any(is_meant))).map_or(Ok(()), Err)
    }

    /// Fails if the object with this name and this concern cannot be decoded, or no object with this concern is followed.
    pub fn check_named(&self, concern: &Concern, name: &str) -> Result<(), Status> {
        let is_meant =
            |key: &str, found: &UnreadableObject| found.concerns.contains(concern) && keys::name(key) == name;
        self.first_unfollowed(|of| of == concern).or_else(|| self.first(is_meant)).map_or(Ok(()), Err)
    }

    /// Fails if an object with any concern cannot be decoded, or is no longer followed; the readiness check depends on it.
    pub fn check_decisive(&self) -> Result<(), String> {
        let unfollowed = self.first_unfollowed(|_| true);
        let decisive = unfollowed.or_else(|| self.first(|_, found| !found.concerns.is_empty()));
        decisive.map_or(Ok(()), |why| Err(why.message().to_owned()))
    }
}

/// Every object in the store that cannot be decoded, with its error.
pub fn check(store: &Store) -> Vec<(Arc<StoredEntry>, Status)> {
    let entries: Vec<Arc<StoredEntry>> =
        store.snapshot(ROOT).entries.iter().filter(|entry| keys::is_object(&entry.key)).cloned().collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let part = entries.len().div_ceil(cores).max(SMALL);
    let look = |entries: &[Arc<StoredEntry>]| -> Vec<(Arc<StoredEntry>, Status)> {
        let unreadable = |entry: &Arc<StoredEntry>| Some((Arc::clone(entry), encode::tree(entry).err()?));
        entries.iter().filter_map(unreadable).collect()
    };
    if entries.len() <= part {
        return look(&entries);
    }
    std::thread::scope(|scope| {
        let parts: Vec<_> = entries.chunks(part).map(|part| scope.spawn(move || look(part))).collect();
        // If a thread panicked, check its part again on this thread.
        let done = parts.into_iter().zip(entries.chunks(part));
        done.flat_map(|(thread, part)| thread.join().unwrap_or_else(|_| look(part))).collect()
    })
}

/// Minimum number of objects per thread.
const SMALL: usize = 1024;
