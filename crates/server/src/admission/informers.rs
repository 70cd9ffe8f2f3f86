//! The compiled admission policies in force, from stored objects and from manifest files.
//!
//! A stored policy is compiled when its spec changes. Changes that arrive together make one snapshot, which replaces the previous one
//! as a whole. Writes wait for it, so a client that has created a policy finds it in force.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::admission::inventory::InventoryEntry;
use ::admission::manifests::{LoadedManifests, Manifest};
use ::admission::policy::{
    AnyPolicy, MutatingPolicies, MutatingPolicy, PolicyBinding, PolicySnapshot, PolicySource,
    ValidatingPolicies, ValidatingPolicy,
};
use catalog::keys;
use catalog::unreadable::{Concern, Unreadable};
use storage::Store;
use tokio::sync::{Notify, watch};
use value::{Str, Value};

use crate::informer::{InformerProgress, UnreadableConcern, start_informer};

/// The informers of both kinds of policies.
pub(crate) struct Informers {
    validating: PolicyInformer,
    mutating: PolicyInformer,
}

impl Informers {
    /// Puts the stored policies in force and starts to follow their changes.
    pub(crate) fn start(
        store: &Store,
        unreadable: &Arc<Unreadable>,
        validating: Arc<ValidatingPolicies>,
        mutating: Arc<MutatingPolicies>,
    ) -> Self {
        let notes = UnreadableConcern::of(unreadable, Concern::Admission);
        let validating = start_policy_informer(
            store,
            &notes,
            [keys::VALIDATING_POLICIES, keys::VALIDATING_BINDINGS],
            ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
            ValidatingPolicy::compile,
            move |snapshot| validating.replace(snapshot),
        );
        let mutating = start_policy_informer(
            store,
            &notes,
            [keys::MUTATING_POLICIES, keys::MUTATING_BINDINGS],
            ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
            MutatingPolicy::compile,
            move |snapshot| mutating.replace(snapshot),
        );
        Informers { validating, mutating }
    }

    /// Compiles the validating policies of manifest files. Calling the result puts them in force.
    pub(crate) fn fix_validating(&self, loaded: &LoadedManifests) -> PutInForce {
        (self.validating.fix)(loaded)
    }

    /// Compiles the mutating policies of manifest files. Calling the result puts them in force.
    pub(crate) fn fix_mutating(&self, loaded: &LoadedManifests) -> PutInForce {
        (self.mutating.fix)(loaded)
    }

    /// All validating policies, bound or not, in the order of evaluation.
    pub(crate) fn list_validating(&self) -> Vec<ListedPolicy> {
        (self.validating.list)()
    }

    /// All mutating policies, bound or not, in the order of evaluation.
    pub(crate) fn list_mutating(&self) -> Vec<ListedPolicy> {
        (self.mutating.list)()
    }

    /// Waits until the write at `revision` is in force. Returns at once for resources other than policies and bindings.
    pub(crate) async fn reached(&self, resource: &str, revision: u64) {
        let (informer, which) = match resource {
            "validatingadmissionpolicies" => (&self.validating, 0),
            "validatingadmissionpolicybindings" => (&self.validating, 1),
            "mutatingadmissionpolicies" => (&self.mutating, 0),
            "mutatingadmissionpolicybindings" => (&self.mutating, 1),
            _ => return,
        };
        informer.reached(which, revision).await;
    }
}

/// Puts the compiled policies of a directory in force.
pub(crate) type PutInForce = Box<dyn FnOnce() + Send>;

/// A policy as `/debug/admission` shows it.
pub(crate) struct ListedPolicy {
    pub(crate) name: Str,
    pub(crate) from: PolicyOrigin,
    pub(crate) fails_closed: bool,
    pub(crate) inventory: Arc<InventoryEntry>,
    /// Without bindings the policy is not in force.
    pub(crate) bindings: Vec<ListedBinding>,
}

/// A binding as `/debug/admission` shows it.
pub(crate) struct ListedBinding {
    pub(crate) from: PolicyOrigin,
    pub(crate) binding: Arc<PolicyBinding>,
}

/// The origin of a policy or binding, and how long it took to compile.
#[derive(Clone, Debug)]
pub(crate) struct PolicyOrigin {
    /// File and line of a static manifest; `None` for a stored object.
    pub(crate) manifest_position: Option<(Str, usize)>,
    pub(crate) compiled_in: Duration,
}

/// The informers of one kind of policies and of its bindings.
struct PolicyInformer {
    /// Compiles the policies of manifest files. Calling the result puts them in force.
    fix: Box<dyn Fn(&LoadedManifests) -> PutInForce + Send + Sync>,
    list: Box<dyn Fn() -> Vec<ListedPolicy> + Send + Sync>,
    followed: [InformerProgress; 2],
    changes: watch::Receiver<u64>,
    built: watch::Receiver<u64>,
}

impl PolicyInformer {
    async fn reached(&self, which: usize, revision: u64) {
        if let Some(followed) = self.followed.get(which) {
            followed.reached(revision).await;
        }
        let changes = *self.changes.borrow();
        let _ = self.built.clone().wait_for(|built| *built >= changes).await;
    }
}

/// All policies and bindings of one kind: stored ones, and `fixed` ones of manifest files.
struct PolicyTable<P> {
    stored: SourcePolicies<P>,
    fixed: SourcePolicies<P>,
    /// Counts the changes of stored objects.
    changes: watch::Sender<u64>,
}

/// Policies and bindings of one source by name, with the origin of each.
struct SourcePolicies<P> {
    policies: BTreeMap<Str, Arc<P>>,
    bindings: BTreeMap<Str, Arc<PolicyBinding>>,
    policies_from: BTreeMap<Str, PolicyOrigin>,
    bindings_from: BTreeMap<Str, PolicyOrigin>,
}

impl<P> Default for SourcePolicies<P> {
    fn default() -> Self {
        SourcePolicies {
            policies: BTreeMap::new(),
            bindings: BTreeMap::new(),
            policies_from: BTreeMap::new(),
            bindings_from: BTreeMap::new(),
        }
    }
}

impl<P: AnyPolicy> SourcePolicies<P> {
    /// Lists policies in the order of evaluation: by name.
    fn list(&self) -> impl Iterator<Item = ListedPolicy> {
        let from = |all: &BTreeMap<Str, PolicyOrigin>, name: &Str| {
            all.get(name)
                .cloned()
                .unwrap_or(PolicyOrigin { manifest_position: None, compiled_in: Duration::ZERO })
        };
        let mut bound: BTreeMap<&Str, Vec<ListedBinding>> = BTreeMap::new();
        for (name, binding) in &self.bindings {
            let listed =
                ListedBinding { from: from(&self.bindings_from, name), binding: Arc::clone(binding) };
            bound.entry(&binding.policy).or_default().push(listed);
        }
        self.policies.iter().map(move |(name, policy)| {
            let policy = policy.policy();
            ListedPolicy {
                name: name.clone(),
                from: from(&self.policies_from, name),
                fails_closed: policy.fails_closed,
                inventory: Arc::clone(&policy.inventory),
                bindings: bound.remove(name).unwrap_or_default(),
            }
        })
    }
}

type SharedPolicyTable<P> = Arc<(Mutex<PolicyTable<P>>, Notify)>;

fn start_policy_informer<P: AnyPolicy + 'static>(
    store: &Store,
    notes: &UnreadableConcern,
    [policies, bindings]: [&str; 2],
    kinds: [&'static str; 2],
    compile: fn(&Value) -> P,
    replace: impl Fn(PolicySnapshot<P>) + Send + Sync + 'static,
) -> PolicyInformer {
    let (changes, changes_seen) = watch::channel(0);
    let table = PolicyTable { stored: SourcePolicies::default(), fixed: SourcePolicies::default(), changes };
    let shared: SharedPolicyTable<P> = Arc::new((Mutex::new(table), Notify::new()));
    let for_change = Arc::clone(&shared);
    let policies = start_informer(store, policies, notes.clone(), move |old, new| {
        // Only the spec matters here. Compiling is expensive, so changes of metadata or status are skipped.
        let same = old.zip(new).is_some_and(|(old, new)| old.get("spec") == new.get("spec"));
        if same {
            return;
        }
        let begun = Instant::now();
        let compiled = new.map(|new| Arc::new(compile(new)));
        let from = PolicyOrigin { manifest_position: None, compiled_in: begun.elapsed() };
        change(&for_change, old.or(new), |table, name| {
            if let Some(policy) = compiled {
                table.stored.policies_from.insert(name.clone(), from);
                table.stored.policies.insert(name, policy);
            } else {
                table.stored.policies_from.remove(&name);
                table.stored.policies.remove(&name);
            }
        });
    });
    let for_change = Arc::clone(&shared);
    let bindings = start_informer(store, bindings, notes.clone(), move |old, new| {
        let read = new.map(|new| Arc::new(PolicyBinding::read(new)));
        change(&for_change, old.or(new), |table, name| match read {
            Some(binding) => drop(table.stored.bindings.insert(name, binding)),
            None => drop(table.stored.bindings.remove(&name)),
        });
    });
    let replace = Arc::new(replace);
    let (sender, built) = watch::channel(build(&shared, &*replace));
    let fix = {
        let (shared, replace) = (Arc::clone(&shared), Arc::clone(&replace));
        move |loaded: &LoadedManifests| {
            let before = lock(&shared).fixed.policies.clone();
            let fixed = compile_all(loaded, kinds, &before, compile);
            let (shared, replace) = (Arc::clone(&shared), Arc::clone(&replace));
            let fixed: PutInForce = Box::new(move || {
                lock(&shared).fixed = fixed;
                build(&shared, &*replace);
            });
            fixed
        }
    };
    let list = {
        let shared = Arc::clone(&shared);
        move || {
            let table = lock(&shared);
            table.fixed.list().chain(table.stored.list()).collect()
        }
    };
    tokio::spawn(async move {
        loop {
            shared.1.notified().await;
            let _ = sender.send(build(&shared, &*replace));
        }
    });
    PolicyInformer {
        fix: Box::new(fix),
        list: Box::new(list),
        followed: [policies, bindings],
        changes: changes_seen,
        built,
    }
}

fn change<P>(
    shared: &SharedPolicyTable<P>,
    object: Option<&Value>,
    apply: impl FnOnce(&mut PolicyTable<P>, Str),
) {
    let Some(object) = object else { return };
    let mut table = lock(shared);
    apply(&mut table, api::meta::name(object).into());
    table.changes.send_modify(|version| *version += 1);
    shared.1.notify_one();
}

fn lock<P>(shared: &SharedPolicyTable<P>) -> MutexGuard<'_, PolicyTable<P>> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compiles the policies and bindings of a directory. A policy with an unchanged spec is taken from `before`, with its counters, because
/// compiling is expensive.
fn compile_all<P: AnyPolicy>(
    loaded: &LoadedManifests,
    kinds: [&str; 2],
    before: &BTreeMap<Str, Arc<P>>,
    compile: fn(&Value) -> P,
) -> SourcePolicies<P> {
    let [policies, bindings] = kinds.map(|kind| loaded.of_kind(kind));
    let mut made = SourcePolicies::default();
    for Manifest { object, file, line } in policies {
        let name = Str::from(api::meta::name(object));
        let begun = Instant::now();
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let same = before.get(&name).filter(|old| old.policy().inventory.was_compiled_from(spec));
        let policy = same.map_or_else(|| Arc::new(compile(object)), Arc::clone);
        let manifest_position = Some((file.clone(), *line));
        made.policies_from
            .insert(name.clone(), PolicyOrigin { manifest_position, compiled_in: begun.elapsed() });
        made.policies.insert(name, policy);
    }
    for Manifest { object, file, line } in bindings {
        let name = Str::from(api::meta::name(object));
        let manifest_position = Some((file.clone(), *line));
        made.bindings_from
            .insert(name.clone(), PolicyOrigin { manifest_position, compiled_in: Duration::ZERO });
        made.bindings.insert(name, Arc::new(PolicyBinding::read(object)));
    }
    made
}

/// Puts the content of the table in force and returns how many changes that includes. The table stays locked meanwhile, so that an
/// older snapshot never replaces a newer one.
fn build<P: AnyPolicy>(shared: &SharedPolicyTable<P>, replace: &impl Fn(PolicySnapshot<P>)) -> u64 {
    let table = lock(shared);
    replace(PolicySnapshot::new([
        (PolicySource::Manifest, &table.fixed.policies, &table.fixed.bindings),
        (PolicySource::Api, &table.stored.policies, &table.stored.bindings),
    ]));
    *table.changes.borrow()
}
