//! Policies in force, kept at what is stored.
//!
//! Each stored policy is compiled once, when it changes. Changes that come together make one snapshot, which replaces the last one
//! as a whole; a writer waits for it, so that whoever has created a policy finds it in force.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use admission::policy::{
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
            ValidatingPolicy::compile,
            move |snapshot| validating.replace(snapshot),
        )?;
        let mutating = keep(
            store,
            ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
            MutatingPolicy::compile,
            move |snapshot| mutating.replace(snapshot),
        )?;
        Ok(Followers { validating, mutating })
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

/// What is stored of one kind of policies.
struct Table<P> {
    policies: BTreeMap<Str, Arc<P>>,
    bindings: BTreeMap<Str, Arc<Binding>>,
    /// Counts the changes.
    heard: watch::Sender<u64>,
}

type Shared<P> = Arc<(Mutex<Table<P>>, Notify)>;

fn keep<P: Policies + 'static>(
    store: &Store,
    resources: [&str; 2],
    compile: fn(&Value) -> P,
    replace: impl Fn(Snapshot<P>) + Send + 'static,
) -> Result<Kept, ConfigError> {
    let (heard, heard_of) = watch::channel(0);
    let table = Table { policies: BTreeMap::new(), bindings: BTreeMap::new(), heard };
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
            Some(policy) => drop(table.policies.insert(name, policy)),
            None => drop(table.policies.remove(&name)),
        });
    })?;
    let hear = Arc::clone(&shared);
    let bindings = follow(store, &bindings, move |old, new| {
        let read = new.map(|new| Arc::new(Binding::read(new)));
        change(&hear, old.or(new), |table, name| match read {
            Some(binding) => drop(table.bindings.insert(name, binding)),
            None => drop(table.bindings.remove(&name)),
        });
    })?;
    let (first, snapshot) = build(&shared);
    replace(snapshot);
    let (sender, built) = watch::channel(first);
    tokio::spawn(async move {
        loop {
            shared.1.notified().await;
            let (version, snapshot) = build(&shared);
            replace(snapshot);
            let _ = sender.send(version);
        }
    });
    Ok(Kept { followed: [policies, bindings], heard: heard_of, built })
}

fn change<P>(shared: &Shared<P>, object: Option<&Value>, apply: impl FnOnce(&mut Table<P>, Str)) {
    let Some(object) = object else { return };
    let mut table = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    apply(&mut table, api::meta::name(object).into());
    table.heard.send_modify(|version| *version += 1);
    shared.1.notify_one();
}

fn build<P: Policies>(shared: &Shared<P>) -> (u64, Snapshot<P>) {
    let table = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let snapshot = Snapshot::new([(Source::Api, &table.policies, &table.bindings)]);
    (*table.heard.borrow(), snapshot)
}
