//! Finds the owners that references name, reading each stored object once per decision.

use std::collections::HashMap;
use std::sync::Arc;

use api::Status;
use api::meta::{self, OwnerReference};
use value::Str;

use super::super::FOREGROUND;
use crate::api::{Kind, Place, View};

/// The state of the owner that a reference names.
pub(super) enum Owner {
    There,
    /// It exists, and its foreground deletion waits for its dependents.
    Waiting,
    /// No object has the name and uid.
    Gone,
    /// The dependent is cluster-scoped and the owner's kind is namespaced.
    Impossible,
    /// The kind is not served.
    UnknownKind,
}

/// The part of a stored owner that decides about references to it.
struct Stored {
    uid: Str,
    /// Whether it is being deleted in the foreground.
    waits: bool,
}

/// Looks up the owners of one dependent. References that name the same object by different uids share one read of it.
pub(super) struct Owners<'a, V> {
    view: &'a V,
    dependent: &'a Place,
    /// By `apiVersion` and `kind`; `None` is a kind that is not served.
    kinds: HashMap<(Str, Str), Option<Arc<Kind>>>,
    /// By group, plural and name. The version does not count: all served versions of a resource are the same stored object.
    stored: HashMap<(Str, Str, Str), Option<Stored>>,
    turn: Turn,
}

impl<'a, V: View> Owners<'a, V> {
    pub(super) fn new(view: &'a V, dependent: &'a Place) -> Self {
        Owners { view, dependent, kinds: HashMap::new(), stored: HashMap::new(), turn: Turn::default() }
    }

    pub(super) async fn owner(&mut self, reference: &OwnerReference) -> Result<Owner, Status> {
        self.turn.compare_reference().await;
        let named = (reference.api_version.clone(), reference.kind.clone());
        let kind = self
            .kinds
            .entry(named)
            .or_insert_with(|| self.view.kind(&reference.api_version, &reference.kind))
            .clone();
        let Some(kind) = kind else { return Ok(Owner::UnknownKind) };
        if kind.namespaced && self.dependent.namespace.is_empty() {
            return Ok(Owner::Impossible);
        }
        let key = (kind.group.clone(), kind.plural.clone(), reference.name.clone());
        if !self.stored.contains_key(&key) {
            self.turn.read_object().await;
            let stored = self.read(&kind.place(&self.dependent.namespace, &reference.name))?;
            self.stored.insert(key.clone(), stored);
        }
        let stored = self.stored.get(&key).and_then(Option::as_ref);
        Ok(match stored.filter(|stored| stored.uid == reference.uid) {
            None => Owner::Gone,
            Some(Stored { waits: true, .. }) => Owner::Waiting,
            Some(_) => Owner::There,
        })
    }

    fn read(&self, place: &Place) -> Result<Option<Stored>, Status> {
        let found = self.view.metadata(place)?;
        Ok(found.map(|owner| Stored {
            uid: meta::uid(&owner).into(),
            waits: meta::is_deleting(&owner) && meta::finalizers(&owner).any(|f| f == FOREGROUND),
        }))
    }
}

/// Yields to other tasks at regular amounts of work. No lock may be held across its methods.
#[derive(Default)]
pub(super) struct Turn {
    work: u32,
}

impl Turn {
    /// How much work is done without yielding, in comparisons of one reference.
    const LENGTH: u32 = 256;
    /// What a read counts: the object's metadata is parsed, which may be more than a megabyte.
    const READ: u32 = 64;

    pub(super) async fn compare_reference(&mut self) {
        self.spend(1).await;
    }

    pub(super) async fn read_object(&mut self) {
        self.spend(Self::READ).await;
    }

    async fn spend(&mut self, work: u32) {
        self.work += work;
        if self.work >= Self::LENGTH {
            self.work = 0;
            tokio::task::yield_now().await;
        }
    }
}
