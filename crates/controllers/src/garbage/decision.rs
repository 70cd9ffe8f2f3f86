//! What is to be done about one object, by who is there.

use api::Status;
use api::meta::{self, OwnerReference};
use value::{Str, Value};

use super::graph::{Going, Graph, Node};
use super::{FOREGROUND, ORPHAN, owners};
use crate::api::{Place, View};

/// What the collector makes of an object.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is as it should be, or on its way.
    Nothing,
    /// These, in this order.
    Do(Vec<Action>),
    /// These block it: they must be looked at.
    Attempt(Vec<Str>),
    /// It lives outside of namespaces and names an owner that lives in one. No such owner can be found, so it is left alone.
    Impossible { dependent: Place, owner: Str },
    /// It names an owner of a kind that is not served, which may be there.
    UnknownKind { dependent: Place, kind: String },
}

/// One write.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Changes the owner references.
    Patch { place: Place, patch: Value },
    /// Takes a finalizer off, once everything before is done.
    Release { place: Place, patch: Value },
    /// Deletes.
    Delete(Deletion),
}

/// The deletion of an object in the state in which it was judged.
#[derive(Debug, PartialEq)]
pub(super) struct Deletion {
    pub(super) place: Place,
    pub(super) uid: Str,
    pub(super) revision: Str,
    pub(super) owners: Vec<Value>,
    pub(super) policy: &'static str,
}

impl Deletion {
    /// Its options; `exact` is for the object as it was judged, otherwise it may have changed.
    pub(super) fn options(&self, exact: bool) -> Value {
        let mut options = Value::map([("propagationPolicy", self.policy)]);
        options.set_at(&["preconditions", "uid"], self.uid.clone());
        if exact {
            options.set_at(&["preconditions", "resourceVersion"], self.revision.clone());
        }
        options
    }
}

/// Judges the object with this uid.
pub(super) fn decide(graph: &Graph, view: &impl View, uid: &str) -> Result<Verdict, Status> {
    let Some(node) = graph.node(uid) else { return Ok(Verdict::Nothing) };
    if node.going == Going::Plainly {
        return Ok(Verdict::Nothing);
    }
    let Some(live) = view.metadata(&node.place)?.filter(|live| meta::uid(live) == uid) else {
        return Ok(Verdict::Nothing);
    };
    match Going::of(&live) {
        Going::Plainly => Ok(Verdict::Nothing),
        Going::Orphan => orphan(graph, view, uid, &node.place, &live),
        Going::Foreground => Ok(foreground(graph, uid, &node.place, &live)),
        Going::No => by_owners(graph, view, uid, node, &live),
    }
}

/// Every dependent forgets its owner; then the owner is let go.
fn orphan(
    graph: &Graph,
    view: &impl View,
    uid: &str,
    place: &Place,
    live: &Value,
) -> Result<Verdict, Status> {
    let mut actions = Vec::new();
    for (dependent_uid, node) in graph.dependents(uid) {
        let dependent = view.metadata(&node.place)?.filter(|d| meta::uid(d) == dependent_uid);
        if let Some(dependent) = dependent {
            actions.extend(without_owners(&node.place, &dependent, &[uid]));
        }
    }
    actions.push(release(place, live, ORPHAN));
    Ok(Verdict::Do(actions))
}

/// The owner is let go when no dependent blocks it.
fn foreground(graph: &Graph, uid: &str, place: &Place, live: &Value) -> Verdict {
    let mut blocking = graph.blocking(uid).peekable();
    if blocking.peek().is_none() {
        return Verdict::Do(vec![release(place, live, FOREGROUND)]);
    }
    let idle = blocking.filter(|(_, node)| node.going == Going::No).map(|(uid, _)| uid.clone());
    Verdict::Attempt(idle.collect())
}

/// What the owner references say about an object that nobody has asked to delete.
fn by_owners(
    graph: &Graph,
    view: &impl View,
    uid: &str,
    node: &Node,
    live: &Value,
) -> Result<Verdict, Status> {
    let place = &node.place;
    let mut solid = false;
    let mut dangling: Vec<Str> = Vec::new();
    let mut waiting: Vec<Str> = Vec::new();
    for reference in meta::owner_references(live) {
        match owner(view, place, &reference)? {
            Owner::There => solid = true,
            Owner::Waiting => waiting.push(reference.uid),
            Owner::Gone => dangling.push(reference.uid),
            Owner::Impossible => {
                return Ok(Verdict::Impossible { dependent: place.clone(), owner: reference.name });
            }
            Owner::UnknownKind => {
                let kind = format!("{} {}", reference.api_version, reference.kind);
                return Ok(Verdict::UnknownKind { dependent: place.clone(), kind });
            }
        }
    }
    if solid {
        let useless: Vec<&str> = dangling.iter().chain(&waiting).map(Str::as_str).collect();
        return Ok(match without_owners(place, live, &useless) {
            Some(action) => Verdict::Do(vec![action]),
            None => Verdict::Nothing,
        });
    }
    if dangling.is_empty() && waiting.is_empty() {
        return Ok(Verdict::Nothing);
    }
    let deletion = |policy| {
        Action::Delete(Deletion {
            place: place.clone(),
            uid: uid.into(),
            revision: meta::resource_version(live).into(),
            owners: owners(live).to_vec(),
            policy,
        })
    };
    let mut dependents = graph.dependents(uid).peekable();
    if !waiting.is_empty() && dependents.peek().is_some() {
        // Its owner waits for it, so it waits for its own dependents in turn. Where one of those waits as well, there may be a
        // circle, which is broken by no longer blocking the owners.
        let circle = dependents.any(|(_, node)| node.going == Going::Foreground);
        let unblock = if circle { unblocked(place, live) } else { None };
        if let Some(unblock) = unblock {
            // The change of the references brings the object back, then to be deleted.
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

/// What a reference leads to.
enum Owner {
    There,
    /// There, but waiting for its dependents to go.
    Waiting,
    Gone,
    Impossible,
    UnknownKind,
}

fn owner(view: &impl View, dependent: &Place, reference: &OwnerReference) -> Result<Owner, Status> {
    let Some(kind) = view.kind(&reference.api_version, &reference.kind) else {
        return Ok(Owner::UnknownKind);
    };
    if kind.namespaced && dependent.namespace.is_empty() {
        return Ok(Owner::Impossible);
    }
    let found = view.metadata(&kind.place(&dependent.namespace, &reference.name))?;
    Ok(match found.filter(|owner| meta::uid(owner) == reference.uid) {
        None => Owner::Gone,
        Some(owner) => {
            let waits = meta::is_deleting(&owner) && meta::finalizers(&owner).any(|f| f == FOREGROUND);
            if waits { Owner::Waiting } else { Owner::There }
        }
    })
}

/// Takes references to these owners off, if there are any.
fn without_owners(place: &Place, live: &Value, uids: &[&str]) -> Option<Action> {
    let named = |reference: &&Value| reference.str_at(&["uid"]).is_some_and(|uid| uids.contains(&uid));
    let kept: Vec<Value> = owners(live).iter().filter(|reference| !named(reference)).cloned().collect();
    (kept.len() < owners(live).len()).then(|| with_owners(place, live, kept))
}

/// Makes every reference one that does not block, if one does.
fn unblocked(place: &Place, live: &Value) -> Option<Action> {
    let mut references = owners(live).to_vec();
    let mut changed = false;
    for reference in &mut references {
        if reference.bool_at(&["blockOwnerDeletion"]) == Some(true) {
            reference.set_at(&["blockOwnerDeletion"], false);
            changed = true;
        }
    }
    changed.then(|| with_owners(place, live, references))
}

fn with_owners(place: &Place, live: &Value, references: Vec<Value>) -> Action {
    let references = if references.is_empty() { Value::Null } else { Value::List(references) };
    Action::Patch { place: place.clone(), patch: patch(live, "ownerReferences", references) }
}

fn release(place: &Place, live: &Value, finalizer: &str) -> Action {
    let others: Vec<Value> =
        meta::finalizers(live).filter(|own| *own != finalizer).map(Value::from).collect();
    let others = if others.is_empty() { Value::Null } else { Value::List(others) };
    Action::Release { place: place.clone(), patch: patch(live, "finalizers", others) }
}

/// A merge patch of one field of the metadata, for the object in exactly this state.
fn patch(live: &Value, field: &str, value: Value) -> Value {
    let mut patch = Value::default();
    patch.set_at(&["metadata", "resourceVersion"], meta::resource_version(live));
    patch.set_at(&["metadata", "uid"], meta::uid(live));
    patch.set_at(&["metadata", field], value);
    patch
}
