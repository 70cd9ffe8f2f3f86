//! The graph of owner references.
//!
//! It contains only objects that have owners, or whose deletion waits for their dependents; other objects cost no memory here.

use std::collections::{BTreeMap, HashMap};

use api::finalizers::{FOREGROUND, ORPHAN};
use api::meta::{self, OwnerReference};
use value::{Str, Value};

use crate::api::{ObjectChange, TypedObjectRef};

/// The deletion state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletionState {
    NotDeleting,
    /// In deletion, but not waiting for dependents.
    Deleting,
    /// In foreground deletion: waits until its blocking dependents are deleted.
    Foreground,
    /// In orphaning deletion: waits until no dependent references it.
    Orphan,
}

impl DeletionState {
    /// Reads the state from an object's metadata.
    pub(super) fn of(object: &Value) -> Self {
        let has = |finalizer: &str| meta::finalizers(object).any(|own| own == finalizer);
        if !meta::is_deleting(object) {
            DeletionState::NotDeleting
        } else if has(ORPHAN) {
            DeletionState::Orphan
        } else if has(FOREGROUND) {
            DeletionState::Foreground
        } else {
            DeletionState::Deleting
        }
    }
}

/// An object with owners, or one whose deletion waits for its dependents.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) object_ref: TypedObjectRef,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) deletion: DeletionState,
}

#[derive(Debug, Default)]
pub(super) struct OwnerGraph {
    nodes: HashMap<Str, Node>,
    /// Dependents by the UID of their owner, which need not exist, each with whether it blocks the owner's foreground deletion.
    /// INVARIANT: the keys are exactly the owners that `nodes` reference.
    dependents: HashMap<Str, BTreeMap<Str, bool>>,
    /// Counts calls of [`OwnerGraph::restart`].
    generation: u64,
}

impl OwnerGraph {
    /// Clears the graph. A decision that began before must not use what is listed afterwards: see [`OwnerGraph::generation`].
    pub(super) fn restart(&mut self) {
        *self = OwnerGraph { generation: self.generation.wrapping_add(1), ..OwnerGraph::default() };
    }

    /// Two reads of the graph are consistent only if this value is equal for both.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The objects that reference `uid` as an owner.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = (&Str, &Node)> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        dependents.filter_map(|(uid, _)| self.nodes.get_key_value(uid))
    }

    /// The dependents that block a foreground deletion of `uid`.
    pub(super) fn blocking(&self, uid: &str) -> impl Iterator<Item = (&Str, &Node)> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        dependents.filter(|(_, blocks)| **blocks).filter_map(|(uid, _)| self.nodes.get_key_value(uid))
    }

    /// Applies a change and returns the UIDs of the objects to reconcile because of it.
    pub(super) fn observe(&mut self, change: &ObjectChange) -> Vec<Str> {
        let uid = meta::uid(&change.object);
        if uid.is_empty() {
            return Vec::new();
        }
        if change.deleted { self.observe_deletion(uid) } else { self.observe_object(Str::from(uid), change) }
    }

    fn observe_deletion(&mut self, uid: &str) -> Vec<Str> {
        let mut affected = Vec::new();
        if let Some(node) = self.nodes.remove(uid) {
            for owner in &node.owners {
                self.unlink(&owner.uid, uid);
                affected.extend(self.if_in_foreground_deletion(&owner.uid));
            }
        }
        affected.extend(self.dependents.get(uid).into_iter().flat_map(BTreeMap::keys).cloned());
        affected
    }

    fn observe_object(&mut self, uid: Str, change: &ObjectChange) -> Vec<Str> {
        let owners: Vec<OwnerReference> = meta::owner_references(&change.object).collect();
        let deletion = DeletionState::of(&change.object);
        let (old_owners, was) = self
            .nodes
            .remove(&uid)
            .map_or((Vec::new(), DeletionState::NotDeleting), |node| (node.owners, node.deletion));
        let mut affected = Vec::new();
        // An object may reference one owner many times and have tens of thousands of references: never search a list for each of them.
        let blocking = blocking_by_owner(&owners);
        for old in &old_owners {
            let blocks = blocking.get(old.uid.as_str()).copied();
            if blocks.is_none() {
                self.unlink(&old.uid, &uid);
            }
            if old.block_owner_deletion && blocks != Some(true) {
                affected.extend(self.if_in_foreground_deletion(&old.uid));
            }
        }
        for owner in &owners {
            let blocks = blocking.get(owner.uid.as_str()) == Some(&true);
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone(), blocks);
        }
        // Look up the owners once; later their deletions arrive as changes.
        if !owners.is_empty() && owners != old_owners {
            affected.push(uid.clone());
        }
        if deletion != was && matches!(deletion, DeletionState::Foreground | DeletionState::Orphan) {
            if deletion == DeletionState::Foreground {
                affected.extend(self.dependents.get(&uid).into_iter().flat_map(BTreeMap::keys).cloned());
            }
            affected.push(uid.clone());
        }
        if !owners.is_empty() || matches!(deletion, DeletionState::Foreground | DeletionState::Orphan) {
            self.nodes.insert(uid, Node { object_ref: change.object_ref.clone(), owners, deletion });
        }
        affected
    }

    fn if_in_foreground_deletion(&self, uid: &Str) -> Option<Str> {
        self.nodes.get(uid).filter(|node| node.deletion == DeletionState::Foreground).map(|_| uid.clone())
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

/// The UIDs of the owners, each with whether any reference to it blocks its foreground deletion.
fn blocking_by_owner(owners: &[OwnerReference]) -> HashMap<&str, bool> {
    let mut blocking = HashMap::with_capacity(owners.len());
    for owner in owners {
        *blocking.entry(owner.uid.as_str()).or_default() |= owner.block_owner_deletion;
    }
    blocking
}
