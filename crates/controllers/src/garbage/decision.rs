//! Decides what to do about one object, from the graph and the stored objects.
//!
//! A decision costs time linear in the size of the objects it reads, because users choose how many owner references an object has.
//! The graph is locked only to copy out of it, never while objects are read or parsed, and long decisions yield to other tasks.

mod lookup;

use std::collections::HashSet;
use std::sync::Mutex;

use api::Status;
use api::meta;
use value::{Str, Value};

use super::graph::{Going, Graph};
use super::{FOREGROUND, ORPHAN, lock, owners};
use crate::api::{ClusterReader, ObjectRef};
use lookup::{Owner, Owners, Turn};

/// The decision about an object.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// The object stays, or is already being deleted.
    Nothing,
    /// Perform these actions, in this order.
    Do(Vec<Action>),
    /// Reconcile these dependents, which block the foreground deletion.
    Attempt(Vec<Str>),
    /// The object is cluster-scoped and references a namespaced owner. Such an owner cannot be resolved, so the object is left alone.
    Impossible { dependent: ObjectRef, owner: Str },
    /// The object references an owner of a kind that is not served, which may exist.
    UnknownKind { dependent: ObjectRef, kind: String },
}

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Changes the owner references.
    Patch {
        object_ref: ObjectRef,
        patch: Value,
    },
    /// Removes a finalizer, after all earlier actions have completed.
    Release {
        object_ref: ObjectRef,
        patch: Value,
    },
    Delete(Deletion),
}

/// The deletion of an object, with the state in which it was decided.
#[derive(Debug, PartialEq)]
pub(super) struct Deletion {
    pub(super) object_ref: ObjectRef,
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
struct Subject<'a> {
    graph: &'a Mutex<Graph>,
    generation: u64,
    uid: &'a str,
    object_ref: ObjectRef,
}

impl Subject<'_> {
    /// Reads the graph again, under the lock; `None` if it was restarted meanwhile or no longer contains the object. Then no action is
    /// needed now: the object is reconciled again once it is listed.
    fn reread<T>(&self, read: impl FnOnce(&Graph) -> T) -> Option<T> {
        let graph = lock(self.graph);
        let same = graph.generation() == self.generation && graph.node(self.uid).is_some();
        same.then(|| read(&graph))
    }
}

/// Decides about the object with this UID.
pub(super) async fn decide(
    graph: &Mutex<Graph>,
    view: &impl ClusterReader,
    uid: &str,
) -> Result<Verdict, Status> {
    let read = |graph: &Graph| {
        let node = graph.node(uid).filter(|node| node.going != Going::Plainly)?;
        Some((graph.generation(), node.object_ref.clone()))
    };
    let Some((generation, object_ref)) = read(&lock(graph)) else { return Ok(Verdict::Nothing) };
    let subject = Subject { graph, generation, uid, object_ref };
    let Some(live) = view.metadata(&subject.object_ref)?.filter(|live| meta::uid(live) == uid) else {
        return Ok(Verdict::Nothing);
    };
    match Going::of(&live) {
        Going::Plainly => Ok(Verdict::Nothing),
        Going::Orphan => orphan(&subject, view, &live).await,
        Going::Foreground => Ok(foreground(&subject, &live)),
        Going::No => by_owners(&subject, view, &live).await,
    }
}

/// Removes the references of all dependents to this owner, then the owner's `orphan` finalizer.
async fn orphan(subject: &Subject<'_>, view: &impl ClusterReader, live: &Value) -> Result<Verdict, Status> {
    let copy = |graph: &Graph| -> Vec<(Str, ObjectRef)> {
        let dependents = graph.dependents(subject.uid);
        dependents.map(|(uid, node)| (uid.clone(), node.object_ref.clone())).collect()
    };
    let Some(dependents) = subject.reread(copy) else { return Ok(Verdict::Nothing) };
    let useless = HashSet::from([subject.uid]);
    let mut turn = Turn::default();
    let mut actions = Vec::new();
    for (uid, object_ref) in dependents {
        turn.read_object().await;
        let dependent = view.metadata(&object_ref)?.filter(|dependent| meta::uid(dependent) == uid);
        if let Some(dependent) = dependent {
            actions.extend(without_owners(&object_ref, &dependent, &useless));
        }
    }
    actions.push(release(&subject.object_ref, live, ORPHAN));
    Ok(Verdict::Do(actions))
}

/// Removes the `foregroundDeletion` finalizer when no dependent blocks the deletion.
fn foreground(subject: &Subject<'_>, live: &Value) -> Verdict {
    // Outer `None`: the graph cannot be read again; inner `None`: no dependent blocks.
    let copy = |graph: &Graph| {
        let mut blocking = graph.blocking(subject.uid).peekable();
        blocking.peek()?;
        let idle = blocking.filter(|(_, node)| node.going == Going::No);
        Some(idle.map(|(uid, _)| uid.clone()).collect())
    };
    match subject.reread(copy) {
        None => Verdict::Nothing,
        Some(None) => Verdict::Do(vec![release(&subject.object_ref, live, FOREGROUND)]),
        Some(Some(idle)) => Verdict::Attempt(idle),
    }
}

/// Decides about an object that is not being deleted, from the state of its owners.
async fn by_owners(
    subject: &Subject<'_>,
    view: &impl ClusterReader,
    live: &Value,
) -> Result<Verdict, Status> {
    let object_ref = &subject.object_ref;
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
                return Ok(Verdict::Impossible { dependent: object_ref.clone(), owner: reference.name });
            }
            Owner::UnknownKind => {
                let kind = format!("{} {}", reference.api_version, reference.kind);
                return Ok(Verdict::UnknownKind { dependent: object_ref.clone(), kind });
            }
        }
    }
    if solid {
        let useless: HashSet<&str> = dangling.iter().chain(&waiting).map(Str::as_str).collect();
        return Ok(match without_owners(object_ref, live, &useless) {
            Some(action) => Verdict::Do(vec![action]),
            None => Verdict::Nothing,
        });
    }
    if dangling.is_empty() && waiting.is_empty() {
        return Ok(Verdict::Nothing);
    }
    let deletion = |policy| {
        Action::Delete(Deletion {
            object_ref: object_ref.clone(),
            uid: subject.uid.into(),
            revision: meta::resource_version(live).into(),
            owners: owners(live).to_vec(),
            policy,
        })
    };
    // Outer `None`: the graph cannot be read again; inner `None`: no dependents.
    let circle = |graph: &Graph| {
        let mut dependents = graph.dependents(subject.uid).peekable();
        dependents.peek()?;
        Some(dependents.any(|(_, node)| node.going == Going::Foreground))
    };
    let circle = if waiting.is_empty() { Some(None) } else { subject.reread(circle) };
    let Some(circle) = circle else { return Ok(Verdict::Nothing) };
    if let Some(circle) = circle {
        // An owner waits for this object, so it is deleted in the foreground and waits for its own dependents in turn. If one of those is
        // already waiting, there may be a cycle, which is broken by no longer blocking the owners.
        let unblock = if circle { unblocked(object_ref, live) } else { None };
        if let Some(unblock) = unblock {
            // The change of the references queues the object again, which then deletes it.
            return Ok(Verdict::Do(vec![unblock]));
        }
        return Ok(Verdict::Do(vec![deletion("Foreground")]));
    }
    let has = |finalizer: &str| meta::finalizers(live).any(|own| own == finalizer);
    let policy = if has(ORPHAN) {
        "Orphan"
    } else if has(FOREGROUND) {
        "Foreground"
    } else {
        "Background"
    };
    Ok(Verdict::Do(vec![deletion(policy)]))
}

/// Removes the references to these owners; `None` if there are none.
fn without_owners(object_ref: &ObjectRef, live: &Value, uids: &HashSet<&str>) -> Option<Action> {
    let named = |reference: &&Value| reference.str_at(&["uid"]).is_some_and(|uid| uids.contains(uid));
    let remaining: Vec<Value> = owners(live).iter().filter(|reference| !named(reference)).cloned().collect();
    (remaining.len() < owners(live).len()).then(|| with_owners(object_ref, live, remaining))
}

/// Clears `blockOwnerDeletion` in all references; `None` if it is set in none.
fn unblocked(object_ref: &ObjectRef, live: &Value) -> Option<Action> {
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

fn with_owners(object_ref: &ObjectRef, live: &Value, references: Vec<Value>) -> Action {
    let references = if references.is_empty() { Value::Null } else { Value::List(references) };
    Action::Patch { object_ref: object_ref.clone(), patch: patch(live, "ownerReferences", references) }
}

fn release(object_ref: &ObjectRef, live: &Value, finalizer: &str) -> Action {
    let others: Vec<Value> =
        meta::finalizers(live).filter(|own| *own != finalizer).map(Value::from).collect();
    let others = if others.is_empty() { Value::Null } else { Value::List(others) };
    Action::Release { object_ref: object_ref.clone(), patch: patch(live, "finalizers", others) }
}

/// A merge patch of one metadata field that applies only to this resource version of the object.
fn patch(live: &Value, field: &str, value: Value) -> Value {
    let mut patch = Value::default();
    patch.set_at(&["metadata", "resourceVersion"], meta::resource_version(live));
    patch.set_at(&["metadata", "uid"], meta::uid(live));
    patch.set_at(&["metadata", field], value);
    patch
}
