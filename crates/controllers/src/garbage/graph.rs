//! Who names whom as an owner.
//!
//! Only objects that have owners, or that wait for their dependents while they are deleted, are in it: the rest of the cluster costs
//! nothing here.

use std::collections::{BTreeMap, HashMap};

use api::meta::{self, OwnerReference};
use value::{Str, Value};

use super::{FOREGROUND, ORPHAN};
use crate::api::{Change, Place};

/// How an object is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    /// Not at all.
    No,
    /// It goes when others let it.
    Plainly,
    /// It waits for its dependents to go.
    Foreground,
    /// It waits for its dependents to forget it.
    Orphan,
}

impl Going {
    /// As an object's metadata says.
    pub(super) fn of(object: &Value) -> Self {
        let has = |finalizer: &str| meta::finalizers(object).any(|own| own == finalizer);
        if !meta::is_deleting(object) {
            Going::No
        } else if has(ORPHAN) {
            Going::Orphan
        } else if has(FOREGROUND) {
            Going::Foreground
        } else {
            Going::Plainly
        }
    }
}

/// An object with owners, or one that waits for its dependents.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) going: Going,
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Str, Node>,
    /// By the uid of an owner, whether that owner exists or not: its dependents, and whether each blocks the owner's foreground
    /// deletion. INVARIANT: exactly the owners that `nodes` name.
    dependents: HashMap<Str, BTreeMap<Str, bool>>,
    /// Counts the calls of [`Graph::restart`].
    generation: u64,
}

impl Graph {
    /// Forgets everything. A decision that began before must not read what is listed afterwards: see [`Graph::generation`].
    pub(super) fn restart(&mut self) {
        *self = Graph { generation: self.generation.wrapping_add(1), ..Graph::default() };
    }

    /// Two reads of the graph belong together only if this is the same for both.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The objects that name `uid` as an owner.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = (&Str, &Node)> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        dependents.filter_map(|(uid, _)| self.nodes.get_key_value(uid))
    }

    /// The dependents that hold up a foreground deletion of `uid`.
    pub(super) fn blocking(&self, uid: &str) -> impl Iterator<Item = (&Str, &Node)> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        dependents.filter(|(_, blocks)| **blocks).filter_map(|(uid, _)| self.nodes.get_key_value(uid))
    }

    /// Takes note of a change and says which objects must be looked at because of it.
    pub(super) fn observe(&mut self, change: &Change) -> Vec<Str> {
        let uid = meta::uid(&change.object);
        if uid.is_empty() {
            return Vec::new();
        }
        if change.deleted { self.gone(uid) } else { self.there(Str::from(uid), change) }
    }

    fn gone(&mut self, uid: &str) -> Vec<Str> {
        let mut concerned = Vec::new();
        if let Some(node) = self.nodes.remove(uid) {
            for owner in &node.owners {
                self.unlink(&owner.uid, uid);
                concerned.extend(self.waiting(&owner.uid));
            }
        }
        concerned.extend(self.dependents.get(uid).into_iter().flat_map(BTreeMap::keys).cloned());
        concerned
    }

    fn there(&mut self, uid: Str, change: &Change) -> Vec<Str> {
        let owners: Vec<OwnerReference> = meta::owner_references(&change.object).collect();
        let going = Going::of(&change.object);
        let (old_owners, was) =
            self.nodes.remove(&uid).map_or((Vec::new(), Going::No), |node| (node.owners, node.going));
        let mut concerned = Vec::new();
        // An object can name one owner many times and have tens of thousands of references: no list is searched for each of them.
        let blocking = blocking_by_owner(&owners);
        for old in &old_owners {
            let blocks = blocking.get(old.uid.as_str()).copied();
            if blocks.is_none() {
                self.unlink(&old.uid, &uid);
            }
            if old.block_owner_deletion && blocks != Some(true) {
                concerned.extend(self.waiting(&old.uid));
            }
        }
        for owner in &owners {
            let blocks = blocking.get(owner.uid.as_str()) == Some(&true);
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone(), blocks);
        }
        // Whether the owners are there is looked up once; afterwards their deletions are told.
        if !owners.is_empty() && owners != old_owners {
            concerned.push(uid.clone());
        }
        if going != was && matches!(going, Going::Foreground | Going::Orphan) {
            if going == Going::Foreground {
                concerned.extend(self.dependents.get(&uid).into_iter().flat_map(BTreeMap::keys).cloned());
            }
            concerned.push(uid.clone());
        }
        if !owners.is_empty() || matches!(going, Going::Foreground | Going::Orphan) {
            self.nodes.insert(uid, Node { place: change.place.clone(), owners, going });
        }
        concerned
    }

    /// `uid`, if it waits for its dependents to go.
    fn waiting(&self, uid: &Str) -> Option<Str> {
        self.nodes.get(uid).filter(|node| node.going == Going::Foreground).map(|_| uid.clone())
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

/// The uids of the owners, each with whether one of the references to it blocks its foreground deletion.
fn blocking_by_owner(owners: &[OwnerReference]) -> HashMap<&str, bool> {
    let mut blocking = HashMap::with_capacity(owners.len());
    for owner in owners {
        *blocking.entry(owner.uid.as_str()).or_default() |= owner.block_owner_deletion;
    }
    blocking
}
