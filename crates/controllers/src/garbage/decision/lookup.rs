//! Resolves owner references, reading each stored object once per decision.

use std::collections::HashMap;
use std::sync::Arc;

use api::Status;
use api::finalizers::FOREGROUND;
use api::meta::{self, OwnerReference};
use value::Str;

use crate::api::{ClusterReader, ResourceKind, TypedObjectRef};

/// The state of a referenced owner.
pub(super) enum Owner {
    There,
    /// The owner exists and is in foreground deletion.
    Waiting,
    /// No object has this name and UID.
    Gone,
    /// The dependent is cluster-scoped, but the owner's kind is namespaced.
    Impossible,
    /// The kind is not served.
    UnknownKind,
}

/// The fields of a stored owner that decide about references to it.
struct StoredOwner {
    uid: Str,
    /// True if the owner is in foreground deletion.
    waits: bool,
}

/// Resolves the owners of one dependent. References to one object with different UIDs share one read of it.
pub(super) struct Owners<'a, V> {
    view: &'a V,
    dependent: &'a TypedObjectRef,
    /// By `apiVersion` and `kind`; `None` if the kind is not served.
    kinds: HashMap<(Str, Str), Option<Arc<ResourceKind>>>,
    /// By group, plural and name. The version is left out: all served versions of a resource are the same stored object.
    stored: HashMap<(Str, Str, Str), Option<StoredOwner>>,
    yield_budget: YieldBudget,
}

impl<'a, V: ClusterReader> Owners<'a, V> {
    pub(super) fn new(view: &'a V, dependent: &'a TypedObjectRef) -> Self {
        Owners {
            view,
            dependent,
            kinds: HashMap::new(),
            stored: HashMap::new(),
            yield_budget: YieldBudget::default(),
        }
    }

    pub(super) async fn owner(&mut self, reference: &OwnerReference) -> Result<Owner, Status> {
        self.yield_budget.compare_reference().await;
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
            self.yield_budget.read_object().await;
            let stored = self.read(&kind.object_ref(&self.dependent.namespace, &reference.name))?;
            self.stored.insert(key.clone(), stored);
        }
        let stored = self.stored.get(&key).and_then(Option::as_ref);
        Ok(match stored.filter(|stored| stored.uid == reference.uid) {
            None => Owner::Gone,
            Some(StoredOwner { waits: true, .. }) => Owner::Waiting,
            Some(_) => Owner::There,
        })
    }

    fn read(&self, object_ref: &TypedObjectRef) -> Result<Option<StoredOwner>, Status> {
        let found = self.view.metadata(object_ref)?;
        Ok(found.map(|owner| StoredOwner {
            uid: meta::uid(&owner).into(),
            waits: meta::is_deleting(&owner) && meta::finalizers(&owner).any(|f| f == FOREGROUND),
        }))
    }
}

/// Yields to other tasks after a fixed amount of work. No lock may be held across its methods.
#[derive(Default)]
pub(super) struct YieldBudget {
    work: u32,
}

impl YieldBudget {
    /// Work between two yields, in comparisons of one reference.
    const LENGTH: u32 = 256;
    /// Cost of a read: it parses the object's metadata, which may be more than a megabyte.
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
