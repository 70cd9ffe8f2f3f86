//! Decides what to do about one object, from the graph and the stored objects.
//!
//! A decision costs time linear in the size of the objects it reads, because users choose how many owner references an object has.
//! The graph is locked only to copy out of it, never while objects are read or parsed, and long decisions yield to other tasks.

mod lookup;

use std::collections::HashSet;
use std::sync::Mutex;

use api::Status;
use api::finalizers::{FOREGROUND, ORPHAN};
use api::meta;
use value::{Str, Value};

use super::graph::{DeletionState, OwnerGraph};
use super::{lock, owners};
use crate::api::{ClusterReader, TypedObjectRef};
use lookup::{Owner, Owners, YieldBudget};

/// The decision about an object.
#[derive(Debug, PartialEq)]
pub(super) enum GarbageDecision {
    /// The object stays, or is already being deleted.
    Nothing,
    /// Perform these actions, in this order.
    Do(Vec<DependentAction>),
    /// Reconcile these dependents, which block the foreground deletion.
    Attempt(Vec<Str>),
    /// The object is cluster-scoped and references a namespaced owner. Such an owner cannot be resolved, so the object is left alone.
    Impossible { dependent: TypedObjectRef, owner: Str },
    /// The object references an owner of a kind that is not served, which may exist.
    UnknownKind { dependent: TypedObjectRef, kind: String },
}

#[derive(Debug, PartialEq)]
pub(super) enum DependentAction {
    /// Changes the owner references.
    Patch {
        object_ref: TypedObjectRef,
        patch: Value,
    },
    /// Removes a finalizer, after all earlier actions have completed.
    Release {
        object_ref: TypedObjectRef,
        patch: Value,
    },
    Delete(Deletion),
}

/// The deletion of an object, with the state in which it was decided.
#[derive(Debug, PartialEq)]
pub(super) struct Deletion {
    pub(super) object_ref: TypedObjectRef,
    pub(super) uid: Str,
    pub(super) revision: Str,
    pub(super) owners: Vec<Value>,
    pub(super) policy: &'static str,
}

impl Deletion {
    /// The `DeleteOptions`; `exact` adds the precondition that the object has not changed since the decision.
    pub(super) fn options(&self, exact: bool) -> Value {
        let mut options = Value::map([("propagationPolicy", self.policy)]);
        options.set_at(&["preconditions", "uid"], self.uid.clone());
        if exact {
            options.set_at(&["preconditions", "resourceVersion"], self.revision.clone());
        }
        options
    }
}

/// The graph's entry for the object to decide about, with access to the graph for later reads.
struct DecisionTarget<'a> {
    graph: &'a Mutex<OwnerGraph>,
    generation: u64,
    uid: &'a str,
    object_ref: TypedObjectRef,
}

impl DecisionTarget<'_> {
    /// Reads the graph again, under the lock; `None` if it was restarted meanwhile or no longer contains the object. Then no action is
    /// needed now: the object is reconciled again once it is listed.
    fn reread<T>(&self, read: impl FnOnce(&OwnerGraph) -> T) -> Option<T> {
        let graph = lock(self.graph);
        let same = graph.generation() == self.generation && graph.node(self.uid).is_some();
        same.then(|| read(&graph))
    }
}

/// Decides about the object with this UID.
pub(super) async fn decide(
    graph: &Mutex<OwnerGraph>,
    view: &impl ClusterReader,
    uid: &str,
) -> Result<GarbageDecision, Status> {
    let read = |graph: &OwnerGraph| {
        let node = graph.node(uid).filter(|node| node.deletion != DeletionState::Deleting)?;
        Some((graph.generation(), node.object_ref.clone()))
    };
    let Some((generation, object_ref)) = read(&lock(graph)) else { return Ok(GarbageDecision::Nothing) };
    let target = DecisionTarget { graph, generation, uid, object_ref };
    let Some(live) = view.metadata(&target.object_ref)?.filter(|live| meta::uid(live) == uid) else {
        return Ok(GarbageDecision::Nothing);
    };
    match DeletionState::of(&live) {
        DeletionState::Deleting => Ok(GarbageDecision::Nothing),
        DeletionState::Orphan => orphan(&target, view, &live).await,
        DeletionState::Foreground => Ok(foreground(&target, &live)),
        DeletionState::NotDeleting => by_owners(&target, view, &live).await,
    }
}

/// Removes the references of all dependents to this owner, then the owner's `orphan` finalizer.
async fn orphan(
    target: &DecisionTarget<'_>,
    view: &impl ClusterReader,
    live: &Value,
) -> Result<GarbageDecision, Status> {
    let copy = |graph: &OwnerGraph| -> Vec<(Str, TypedObjectRef)> {
        let dependents = graph.dependents(target.uid);
        dependents.map(|(uid, node)| (uid.clone(), node.object_ref.clone())).collect()
    };
    let Some(dependents) = target.reread(copy) else { return Ok(GarbageDecision::Nothing) };
    let useless = HashSet::from([target.uid]);
    let mut yield_budget = YieldBudget::default();
    let mut actions = Vec::new();
    for (uid, object_ref) in dependents {
        yield_budget.read_object().await;
        let dependent = view.metadata(&object_ref)?.filter(|dependent| meta::uid(dependent) == uid);
        if let Some(dependent) = dependent {
            actions.extend(without_owners(&object_ref, &dependent, &useless));
        }
    }
    actions.push(release(&target.object_ref, live, ORPHAN));
    Ok(GarbageDecision::Do(actions))
}

/// Removes the `foregroundDeletion` finalizer when no dependent blocks the deletion.
fn foreground(target: &DecisionTarget<'_>, live: &Value) -> GarbageDecision {
    // Outer `None`: the graph cannot be read again; inner `None`: no dependent blocks.
    let copy = |graph: &OwnerGraph| {
        let mut blocking = graph.blocking(target.uid).peekable();
        blocking.peek()?;
        let idle = blocking.filter(|(_, node)| node.deletion == DeletionState::NotDeleting);
        Some(idle.map(|(uid, _)| uid.clone()).collect())
    };
    match target.reread(copy) {
        None => GarbageDecision::Nothing,
        Some(None) => GarbageDecision::Do(vec![release(&target.object_ref, live, FOREGROUND)]),
        Some(Some(idle)) => GarbageDecision::Attempt(idle),
    }
}

/// Decides about an object that is not being deleted, from the state of its owners.
async fn by_owners(
    target: &DecisionTarget<'_>,
    view: &impl ClusterReader,
    live: &Value,
) -> Result<GarbageDecision, Status> {
    let object_ref = &target.object_ref;
    let mut lookup = Owners::new(view, object_ref);
    let mut solid = false;
    let mut dangling: Vec<Str> = Vec::new();
    let mut waiting: Vec<Str> = Vec::new();
    for reference in meta::owner_references(live) {
        match lookup.owner(&reference).await? {
            Owner::There => solid = true,
            Owner::Waiting => waiting.push(reference.uid),
            Owner::Gone => dangling.push(reference.uid),
            Owner::Impossible => {
                return Ok(GarbageDecision::Impossible {
                    dependent: object_ref.clone(),
                    owner: reference.name,
                });
            }
            Owner::UnknownKind => {
                let kind = format!("{} {}", reference.api_version, reference.kind);
                return Ok(GarbageDecision::UnknownKind { dependent: object_ref.clone(), kind });
            }
        }
    }
    if solid {
        let useless: HashSet<&str> = dangling.iter().chain(&waiting).map(Str::as_str).collect();
        return Ok(match without_owners(object_ref, live, &useless) {
            Some(action) => GarbageDecision::Do(vec![action]),
            None => GarbageDecision::Nothing,
        });
    }
    if dangling.is_empty() && waiting.is_empty() {
        return Ok(GarbageDecision::Nothing);
    }
    let deletion = |policy| {
        DependentAction::Delete(Deletion {
            object_ref: object_ref.clone(),
            uid: target.uid.into(),
            revision: meta::resource_version(live).into(),
            owners: owners(live).to_vec(),
            policy,
        })
    };
    // Outer `None`: the graph cannot be read again; inner `None`: no dependents.
    let circle = |graph: &OwnerGraph| {
        let mut dependents = graph.dependents(target.uid).peekable();
        dependents.peek()?;
        Some(dependents.any(|(_, node)| node.deletion == DeletionState::Foreground))
    };
    let circle = if waiting.is_empty() { Some(None) } else { target.reread(circle) };
    let Some(circle) = circle else { return Ok(GarbageDecision::Nothing) };
    if let Some(circle) = circle {
        // An owner waits for this object, so it is deleted in the foreground and waits for its own dependents in turn. If one of those is
        // already waiting, there may be a cycle, which is broken by no longer blocking the owners.
        let unblock = if circle { unblocked(object_ref, live) } else { None };
        if let Some(unblock) = unblock {
            // The change of the references queues the object again, which then deletes it.
            return Ok(GarbageDecision::Do(vec![unblock]));
        }
        return Ok(GarbageDecision::Do(vec![deletion("Foreground")]));
    }
    let has = |finalizer: &str| meta::finalizers(live).any(|own| own == finalizer);
    let policy = if has(ORPHAN) {
        "Orphan"
    } else if has(FOREGROUND) {
        "Foreground"
    } else {
        "Background"
    };
    Ok(GarbageDecision::Do(vec![deletion(policy)]))
}

/// Removes the references to these owners; `None` if there are none.
fn without_owners(
    object_ref: &TypedObjectRef,
    live: &Value,
    uids: &HashSet<&str>,
) -> Option<DependentAction> {
    let named = |reference: &&Value| reference.str_at(&["uid"]).is_some_and(|uid| uids.contains(uid));
    let remaining: Vec<Value> = owners(live).iter().filter(|reference| !named(reference)).cloned().collect();
    (remaining.len() < owners(live).len()).then(|| with_owners(object_ref, live, remaining))
}

/// Clears `blockOwnerDeletion` in all references; `None` if it is set in none.
fn unblocked(object_ref: &TypedObjectRef, live: &Value) -> Option<DependentAction> {
    let mut references = owners(live).to_vec();
    let mut changed = false;
    for reference in &mut references {
        if reference.bool_at(&["blockOwnerDeletion"]) == Some(true) {
            reference.set_at(&["blockOwnerDeletion"], false);
            changed = true;
        }
    }
    changed.then(|| with_owners(object_ref, live, references))
}

fn with_owners(object_ref: &TypedObjectRef, live: &Value, references: Vec<Value>) -> DependentAction {
    let references = if references.is_empty() { Value::Null } else { Value::List(references) };
    DependentAction::Patch {
        object_ref: object_ref.clone(),
        patch: patch(live, "ownerReferences", references),
    }
}

fn release(object_ref: &TypedObjectRef, live: &Value, finalizer: &str) -> DependentAction {
    let others: Vec<Value> =
        meta::finalizers(live).filter(|own| *own != finalizer).map(Value::from).collect();
    let others = if others.is_empty() { Value::Null } else { Value::List(others) };
    DependentAction::Release { object_ref: object_ref.clone(), patch: patch(live, "finalizers", others) }
}

/// A merge patch of one metadata field that applies only to this resource version of the object.
fn patch(live: &Value, field: &str, value: Value) -> Value {
    let mut patch = Value::default();
    patch.set_at(&["metadata", "resourceVersion"], meta::resource_version(live));
    patch.set_at(&["metadata", "uid"], meta::uid(live));
    patch.set_at(&["metadata", field], value);
    patch
}
