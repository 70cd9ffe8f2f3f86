//! Who names whom as an owner.
//!
//! Only objects that have owners, or that wait for their dependents while they are deleted, are in it: the rest of the cluster costs
//! nothing here.

use std::collections::{BTreeSet, HashMap};

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
    /// By the uid of an owner, whether it is there or not. INVARIANT: exactly the owners that `nodes` name.
    dependents: HashMap<Str, BTreeSet<Str>>,
}

impl Graph {
    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The objects that name `uid` as an owner.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = (&Str, &Node)> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| self.nodes.get_key_value(uid))
    }

    /// The dependents that hold up a foreground deletion of `uid`.
    pub(super) fn blocking(&self, uid: &str) -> impl Iterator<Item = (&Str, &Node)> {
        self.dependents(uid).filter(move |(_, node)| blocks(&node.owners, uid))
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
        concerned.extend(self.dependents.get(uid).into_iter().flatten().cloned());
        concerned
    }

    fn there(&mut self, uid: Str, change: &Change) -> Vec<Str> {
        let owners: Vec<OwnerReference> = meta::owner_references(&change.object).collect();
        let going = Going::of(&change.object);
        let (old_owners, was) =
            self.nodes.remove(&uid).map_or((Vec::new(), Going::No), |node| (node.owners, node.going));
        let mut concerned = Vec::new();
        for old in &old_owners {
            if !owners.iter().any(|owner| owner.uid == old.uid) {
                self.unlink(&old.uid, &uid);
            }
            if old.block_owner_deletion && !blocks(&owners, &old.uid) {
                concerned.extend(self.waiting(&old.uid));
            }
        }
        for owner in &owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        // Whether the owners are there is looked up once; afterwards their deletions are told.
        if !owners.is_empty() && owners != old_owners {
            concerned.push(uid.clone());
        }
        if going != was && matches!(going, Going::Foreground | Going::Orphan) {
            if going == Going::Foreground {
                concerned.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
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

fn blocks(owners: &[OwnerReference], uid: &str) -> bool {
    owners.iter().any(|owner| owner.uid == uid && owner.block_owner_deletion)
}
