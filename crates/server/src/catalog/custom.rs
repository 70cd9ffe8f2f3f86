//! The kinds of the stored CRDs, by group: a change copies the group it is about and not all of them, of which there may be
//! thousands.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use value::Str;

use super::schema_epoch::SchemaEpoch;
use super::served_resource::ServedResource;

/// The kinds of the stored CRDs.
#[derive(Clone, Debug, Default)]
pub struct CustomKinds {
    groups: BTreeMap<Str, Arc<Group>>,
}

/// What is known of one group.
#[derive(Clone, Debug, Default)]
struct Group {
    /// By version and plural name.
    kinds: HashMap<(Str, Str), Arc<ServedResource>>,
    /// Every stored CRD by its name, served or not.
    crds: BTreeMap<Str, Known>,
    /// The name of the CRD that a kind or list kind belongs to.
    owners: HashMap<Str, Str>,
    /// The names of the stored CRDs that cannot be read. Which kinds they have is not known.
    unreadable: BTreeSet<Str>,
}

/// A CRD, and the revision at which it was stored so.
#[derive(Clone, Debug)]
struct Known {
    crd: Arc<crd::CustomResourceDefinition>,
    revision: u64,
    epoch: Arc<SchemaEpoch>,
    /// Whether its status claims a kind that another CRD has.
    lost_kind: bool,
}

impl Group {
    fn remove(&mut self, name: &str) {
        self.unreadable.remove(name);
        let Some(Known { crd: former, .. }) = self.crds.remove(name) else { return };
        for version in &former.versions {
            self.kinds.remove(&(version.name.clone(), former.names.plural.clone()));
        }
        for name in [&former.names.kind, &former.names.list_kind] {
            if self.owners.get(name) == Some(&former.name) {
                self.owners.remove(name);
            }
        }
    }

    /// Gives a CRD the kind that its status claims; `false` if another CRD has that kind, whatever both statuses say.
    /// Policies, webhooks and owner references name kinds: with two CRDs of one kind they would find the wrong objects.
    fn claim_kind(&mut self, crd: &crd::CustomResourceDefinition) -> bool {
        let names = [&crd.names.kind, &crd.names.list_kind];
        let names = names.into_iter().filter(|name| !name.is_empty());
        if names.clone().any(|name| self.owners.contains_key(name)) {
            return false;
        }
        self.owners.extend(names.map(|name| (name.clone(), crd.name.clone())));
        true
    }
}

impl CustomKinds {
    /// Serves a CRD, stored at `revision`, instead of what was served under its name. One that is not established serves
    /// nothing. Versions that are not served have kinds, too: objects are stored in them, or shown in them to policies and webhooks.
    pub fn set(&mut self, mut crd: crd::CustomResourceDefinition, revision: u64, epoch: Arc<SchemaEpoch>) {
        let group = Arc::make_mut(self.groups.entry(crd.group.clone()).or_default());
        group.remove(&crd.name);
        let lost_kind = crd.established && !group.claim_kind(&crd);
        if lost_kind {
            crd.lose_kind();
        }
        let crd = Arc::new(crd);
        if let Some(stored) = crd.stored().filter(|_| crd.established) {
            for version in &crd.versions {
                let kind = ServedResource::custom(&crd, version, stored, Arc::clone(&epoch));
                let key = (version.name.clone(), crd.names.plural.clone());
                group.kinds.insert(key, Arc::new(kind));
            }
        }
        group.crds.insert(crd.name.clone(), Known { crd, revision, epoch, lost_kind });
    }

    /// Serves nothing of a CRD any more.
    pub fn remove(&mut self, name: &str) {
        let of = group_of(name);
        let Some(group) = self.groups.get_mut(of) else { return };
        let group = Arc::make_mut(group);
        group.remove(name);
        if group.crds.is_empty() && group.unreadable.is_empty() {
            self.groups.remove(of);
        }
    }

    /// Serves nothing of a CRD any more, because what is stored of it cannot be read.
    pub fn set_unreadable(&mut self, name: &str) {
        let group = Arc::make_mut(self.groups.entry(group_of(name).into()).or_default());
        group.remove(name);
        group.unreadable.insert(name.into());
    }

    /// The name of a CRD of a group that is stored and cannot be read. While there is one, it is not known which kinds of
    /// the group are whose.
    pub fn unreadable(&self, group: &str) -> Option<&Str> {
        self.groups.get(group)?.unreadable.first()
    }

    /// The kind under a group, version and plural name, served or not.
    pub(super) fn kind(&self, group: &str, version: &Str, plural: &Str) -> Option<&Arc<ServedResource>> {
        self.groups.get(group)?.kinds.get(&(version.clone(), plural.clone()))
    }

    /// The CRDs that are served, by group and name.
    pub fn crds(&self) -> impl Iterator<Item = &Arc<crd::CustomResourceDefinition>> {
        let all = self.groups.values().flat_map(|group| group.crds.values());
        all.map(|known| &known.crd).filter(|crd| crd.established)
    }

    /// The CRDs of a group, served or not.
    pub fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<crd::CustomResourceDefinition>> {
        let known = self.groups.get(group).into_iter().flat_map(|group| group.crds.values());
        known.map(|known| &known.crd)
    }

    fn known(&self, name: &str) -> Option<&Known> {
        self.groups.get(group_of(name))?.crds.get(name)
    }

    /// Since when objects of a CRD are stored as its schema wants them.
    pub fn epoch(&self, name: &str) -> Option<Arc<SchemaEpoch>> {
        self.known(name).map(|known| Arc::clone(&known.epoch))
    }

    /// The CRD called `name`, served or not.
    pub fn crd(&self, name: &str) -> Option<&Arc<crd::CustomResourceDefinition>> {
        self.known(name).map(|known| &known.crd)
    }

    /// Whether the status of a CRD claims a kind that another CRD has.
    pub fn lost_kind(&self, name: &str) -> bool {
        self.known(name).is_some_and(|known| known.lost_kind)
    }

    /// The revision of the CRD called `name`.
    pub fn revision(&self, name: &str) -> Option<u64> {
        self.known(name).map(|known| known.revision)
    }
}

/// The group in the name of a CRD, which is its plural name and its group.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}
