//! Policies in force, kept at what is stored and at what is in manifest files.
//!
//! Each stored policy is compiled once, when it changes. Changes that come together make one snapshot, which replaces the last one
//! as a whole; a writer waits for it, so that whoever has created a policy finds it in force.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::admission::manifests::{Loaded, Manifest};
use ::admission::policy::{
    Binding, Mutating, MutatingPolicy, Policies, Snapshot, Source, Validating, ValidatingPolicy,
};
use storage::Store;
use tokio::sync::{Notify, watch};
use value::{Str, Value};

use crate::config::ConfigError;
use crate::follow::{Followed, follow};

/// The API group of policies.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// The followers of both kinds of policies.
pub(crate) struct Followers {
    validating: Kept,
    mutating: Kept,
}

impl Followers {
    /// Puts the stored policies in force and keeps them so.
    pub(crate) fn start(
        store: &Store,
        validating: Arc<Validating>,
        mutating: Arc<Mutating>,
    ) -> Result<Self, ConfigError> {
        let validating = keep(
            store,
            ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
            ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
            ValidatingPolicy::compile,
            move |snapshot| validating.replace(snapshot),
        )?;
        let mutating = keep(
            store,
            ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
            ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
            MutatingPolicy::compile,
            move |snapshot| mutating.replace(snapshot),
        )?;
        Ok(Followers { validating, mutating })
    }

    /// Replaces the validating policies of manifest files; they are in force when this returns.
    pub(crate) fn fix_validating(&self, loaded: &Loaded) {
        (self.validating.fix)(loaded);
    }

    /// Replaces the mutating policies of manifest files; they are in force when this returns.
    pub(crate) fn fix_mutating(&self, loaded: &Loaded) {
        (self.mutating.fix)(loaded);
    }

    /// Waits until what was written at `revision` to a resource is in force.
    pub(crate) async fn reached(&self, resource: &str, revision: u64) {
        let (kept, which) = match resource {
            "validatingadmissionpolicies" => (&self.validating, 0),
            "validatingadmissionpolicybindings" => (&self.validating, 1),
            "mutatingadmissionpolicies" => (&self.mutating, 0),
            "mutatingadmissionpolicybindings" => (&self.mutating, 1),
            _ => return,
        };
        kept.reached(which, revision).await;
    }
}

/// How far one kind of policies has come.
struct Kept {
    /// Puts those of manifest files in force.
    fix: Box<dyn Fn(&Loaded) + Send + Sync>,
    followed: [Followed; 2],
    heard: watch::Receiver<u64>,
    built: watch::Receiver<u64>,
}

impl Kept {
    async fn reached(&self, which: usize, revision: u64) {
        if let Some(followed) = self.followed.get(which) {
            followed.reached(revision).await;
        }
        let heard = *self.heard.borrow();
        let _ = self.built.clone().wait_for(|built| *built >= heard).await;
    }
}

/// What there is of one kind of policies.
struct Table<P> {
    stored: Policied<P>,
    fixed: Policied<P>,
    /// Counts the changes.
    heard: watch::Sender<u64>,
}

/// Policies and bindings of one source.
struct Policied<P> {
    policies: BTreeMap<Str, Arc<P>>,
    bindings: BTreeMap<Str, Arc<Binding>>,
}

impl<P> Default for Policied<P> {
    fn default() -> Self {
        Policied { policies: BTreeMap::new(), bindings: BTreeMap::new() }
    }
}

type Shared<P> = Arc<(Mutex<Table<P>>, Notify)>;

fn keep<P: Policies + 'static>(
    store: &Store,
    resources: [&str; 2],
    kinds: [&'static str; 2],
    compile: fn(&Value) -> P,
    replace: impl Fn(Snapshot<P>) + Send + Sync + 'static,
) -> Result<Kept, ConfigError> {
    let (heard, heard_of) = watch::channel(0);
    let table = Table { stored: Policied::default(), fixed: Policied::default(), heard };
    let shared: Shared<P> = Arc::new((Mutex::new(table), Notify::new()));
    let [policies, bindings] = resources.map(|resource| format!("/registry/{GROUP}/{resource}/"));
    let hear = Arc::clone(&shared);
    let policies = follow(store, &policies, move |old, new| {
        // A change of metadata or status changes nothing here, and compiling is the costly part.
        let same = old.zip(new).is_some_and(|(old, new)| old.get("spec") == new.get("spec"));
        if same {
            return;
        }
        let compiled = new.map(|new| Arc::new(compile(new)));
        change(&hear, old.or(new), |table, name| match compiled {
            Some(policy) => drop(table.stored.policies.insert(name, policy)),
            None => drop(table.stored.policies.remove(&name)),
        });
    })?;
    let hear = Arc::clone(&shared);
    let bindings = follow(store, &bindings, move |old, new| {
        let read = new.map(|new| Arc::new(Binding::read(new)));
        change(&hear, old.or(new), |table, name| match read {
            Some(binding) => drop(table.stored.bindings.insert(name, binding)),
            None => drop(table.stored.bindings.remove(&name)),
        });
    })?;
    let replace = Arc::new(replace);
    let (sender, built) = watch::channel(build(&shared, &*replace));
    let fix = {
        let (shared, replace) = (Arc::clone(&shared), Arc::clone(&replace));
        move |loaded: &Loaded| {
            let fixed = compile_all(loaded, kinds, compile);
            lock(&shared).fixed = fixed;
            build(&shared, &*replace);
        }
    };
    tokio::spawn(async move {
        loop {
            shared.1.notified().await;
            let _ = sender.send(build(&shared, &*replace));
        }
    });
    Ok(Kept { fix: Box::new(fix), followed: [policies, bindings], heard: heard_of, built })
}

fn change<P>(shared: &Shared<P>, object: Option<&Value>, apply: impl FnOnce(&mut Table<P>, Str)) {
    let Some(object) = object else { return };
    let mut table = lock(shared);
    apply(&mut table, api::meta::name(object).into());
    table.heard.send_modify(|version| *version += 1);
    shared.1.notify_one();
}

fn lock<P>(shared: &Shared<P>) -> MutexGuard<'_, Table<P>> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The policies and bindings of a folder, ready to run.
fn compile_all<P>(loaded: &Loaded, kinds: [&str; 2], compile: fn(&Value) -> P) -> Policied<P> {
    let [policies, bindings] = kinds.map(|kind| loaded.of_kind(kind));
    let name = |manifest: &Manifest| Str::from(api::meta::name(&manifest.object));
    Policied {
        policies: policies.iter().map(|m| (name(m), Arc::new(compile(&m.object)))).collect(),
        bindings: bindings.iter().map(|m| (name(m), Arc::new(Binding::read(&m.object)))).collect(),
    }
}

/// Puts everything in force that there is now, and says how many changes that covers. The table stays locked meanwhile, so that
/// an older snapshot never replaces a newer one.
fn build<P: Policies>(shared: &Shared<P>, replace: &impl Fn(Snapshot<P>)) -> u64 {
    let table = lock(shared);
    replace(Snapshot::new([
        (Source::Manifest, &table.fixed.policies, &table.fixed.bindings),
        (Source::Api, &table.stored.policies, &table.stored.bindings),
    ]));
    *table.heard.borrow()
}
