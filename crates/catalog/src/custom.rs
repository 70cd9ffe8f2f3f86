//! The resources of the stored CRDs, by group: a change copies only its group, because there may be thousands of CRDs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use value::Str;

use super::schema_epoch::SchemaEpoch;
use super::served_resource::ServedResource;

#[derive(Clone, Debug, Default)]
pub struct CustomKinds {
    groups: BTreeMap<Str, Arc<CustomGroup>>,
}

#[derive(Clone, Debug, Default)]
struct CustomGroup {
    /// Keyed by version and plural name.
    kinds: HashMap<(Str, Str), Arc<ServedResource>>,
    /// Every readable CRD by name, established or not.
    crds: BTreeMap<Str, CatalogedCrd>,
    /// Name of the CRD that owns a kind or list kind.
    owners: HashMap<Str, Str>,
    /// Names of stored CRDs that cannot be read, so that their kinds are unknown.
    unreadable: BTreeSet<Str>,
}

/// A CRD with the revision at which it was stored.
#[derive(Clone, Debug)]
struct CatalogedCrd {
    crd: Arc<crd::CustomResourceDefinition>,
    revision: u64,
    epoch: Arc<SchemaEpoch>,
    /// Set if the CRD's status claims a kind that another CRD owns.
    lost_kind: bool,
}

impl CustomGroup {
    fn remove(&mut self, name: &str) {
        self.unreadable.remove(name);
        let Some(CatalogedCrd { crd: former, .. }) = self.crds.remove(name) else { return };
        for version in &former.versions {
            self.kinds.remove(&(version.name.clone(), former.names.plural.clone()));
        }
        for name in [&former.names.kind, &former.names.list_kind] {
            if self.owners.get(name) == Some(&former.name) {
                self.owners.remove(name);
            }
        }
    }

    /// Assigns the kind that the CRD's status claims; `false` if another CRD owns it, whatever both statuses say. Policies, webhooks and
    /// owner references name kinds: with two CRDs of one kind they would find the wrong objects.
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
    /// Replaces the CRD of this name with one stored at `revision`. A CRD that is not established serves no resources. Versions that are
    /// not served are included: objects may be stored in them, or converted to them for policies and webhooks.
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
        group.crds.insert(crd.name.clone(), CatalogedCrd { crd, revision, epoch, lost_kind });
    }

    /// Removes a CRD and its resources.
    pub fn remove(&mut self, name: &str) {
        let of = group_of(name);
        let Some(group) = self.groups.get_mut(of) else { return };
        let group = Arc::make_mut(group);
        group.remove(name);
        if group.crds.is_empty() && group.unreadable.is_empty() {
            self.groups.remove(of);
        }
    }

    /// Removes the resources of a CRD whose stored bytes cannot be read, and remembers its name.
    pub fn set_unreadable(&mut self, name: &str) {
        let group = Arc::make_mut(self.groups.entry(group_of(name).into()).or_default());
        group.remove(name);
        group.unreadable.insert(name.into());
    }

    /// Name of an unreadable CRD of a group. While there is one, the owner of a kind in this group is uncertain.
    pub fn unreadable(&self, group: &str) -> Option<&Str> {
        self.groups.get(group)?.unreadable.first()
    }

    /// Looks up a resource by group, version and plural name, served or not.
    pub(super) fn kind(&self, group: &str, version: &Str, plural: &Str) -> Option<&Arc<ServedResource>> {
        self.groups.get(group)?.kinds.get(&(version.clone(), plural.clone()))
    }

    /// The established CRDs, ordered by group and name.
    pub fn crds(&self) -> impl Iterator<Item = &Arc<crd::CustomResourceDefinition>> {
        let all = self.groups.values().flat_map(|group| group.crds.values());
        all.map(|cataloged| &cataloged.crd).filter(|crd| crd.established)
    }

    /// The CRDs of a group, established or not.
    pub fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<crd::CustomResourceDefinition>> {
        let crds = self.groups.get(group).into_iter().flat_map(|group| group.crds.values());
        crds.map(|cataloged| &cataloged.crd)
    }

    fn cataloged(&self, name: &str) -> Option<&CatalogedCrd> {
        self.groups.get(group_of(name))?.crds.get(name)
    }

    pub fn epoch(&self, name: &str) -> Option<Arc<SchemaEpoch>> {
        self.cataloged(name).map(|cataloged| Arc::clone(&cataloged.epoch))
    }

    /// Looks up a CRD by name, established or not.
    pub fn crd(&self, name: &str) -> Option<&Arc<crd::CustomResourceDefinition>> {
        self.cataloged(name).map(|cataloged| &cataloged.crd)
    }

    /// Reports whether the status of a CRD claims a kind that another CRD owns.
    pub fn lost_kind(&self, name: &str) -> bool {
        self.cataloged(name).is_some_and(|cataloged| cataloged.lost_kind)
    }

    /// Revision at which the CRD was stored.
    pub fn revision(&self, name: &str) -> Option<u64> {
        self.cataloged(name).map(|cataloged| cataloged.revision)
    }
}

/// The group in a CRD's name, which is `<plural>.<group>`.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}
