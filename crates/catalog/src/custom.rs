//! The resources of the stored CRDs, by group: a change copies only its group, because there may be thousands of CRDs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::GroupResource;
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
    /// The established CRDs whose status claims a kind or list kind, in the order of their creation. The first one owns it.
    claims: HashMap<Str, BTreeSet<(u64, Str)>>,
    /// Names of stored CRDs that cannot be read, so that their kinds are unknown.
    unreadable: BTreeSet<Str>,
}

/// The revisions of a stored CRD.
#[derive(Clone, Copy, Debug)]
pub struct CrdRevisions {
    pub created: u64,
    /// The revision of its last change.
    pub changed: u64,
}

/// A CRD with the revisions at which it was stored.
#[derive(Clone, Debug)]
struct CatalogedCrd {
    /// Without its kind if it has lost that.
    crd: Arc<crd::CustomResourceDefinition>,
    stored: Arc<crd::CustomResourceDefinition>,
    revisions: CrdRevisions,
    epoch: Arc<SchemaEpoch>,
    /// Set if the CRD's status claims a kind that another CRD owns.
    lost_kind: bool,
}

impl CatalogedCrd {
    /// The kind and list kind that an established CRD claims.
    fn claimed(&self) -> impl Iterator<Item = &Str> {
        let names = [&self.stored.names.kind, &self.stored.names.list_kind];
        names.into_iter().filter(|name| self.stored.established && !name.is_empty())
    }
}

impl CustomGroup {
    fn remove(&mut self, name: &str) {
        let was_unreadable = self.unreadable.remove(name);
        let former = self.crds.remove(name);
        if let Some(former) = &former {
            self.remove_kinds(&former.stored);
        }
        let claimed: Vec<Str> = match &former {
            _ if was_unreadable => self.claims.keys().cloned().collect(),
            Some(former) => former.claimed().cloned().collect(),
            None => return,
        };
        let mut rivals = BTreeSet::new();
        for kind in claimed {
            let Some(claimants) = self.claims.get_mut(&kind) else { continue };
            claimants.retain(|(_, claimant)| claimant != name);
            rivals.extend(claimants.iter().map(|(_, rival)| rival.clone()));
            if claimants.is_empty() {
                self.claims.remove(&kind);
            }
        }
        self.reassign(rivals);
    }

    /// Serves no resources of a CRD that cannot be read, and lets no other have its kind.
    fn set_unreadable(&mut self, name: &str) {
        if let Some(former) = self.crds.remove(name) {
            self.remove_kinds(&former.stored);
        }
        self.unreadable.insert(name.into());
    }

    fn set(&mut self, cataloged: CatalogedCrd) {
        let name = cataloged.stored.name.clone();
        self.remove(&name);
        let mut rivals = BTreeSet::new();
        for kind in cataloged.claimed() {
            let claimants = self.claims.entry(kind.clone()).or_default();
            rivals.extend(claimants.iter().map(|(_, rival)| rival.clone()));
            claimants.insert((cataloged.revisions.created, name.clone()));
        }
        self.crds.insert(name.clone(), cataloged);
        self.assign(&name);
        self.reassign(rivals);
    }

    /// Decides again for CRDs that claim a kind whose claimants have changed.
    fn reassign(&mut self, rivals: BTreeSet<Str>) {
        for rival in rivals {
            if self.crds.get(&rival).is_some_and(|known| known.lost_kind != self.loses_kind(known)) {
                self.assign(&rival);
            }
        }
    }

    /// Reports whether an older CRD claims the kind of this one, whatever both statuses say. Policies, webhooks and owner references name
    /// kinds: with two CRDs of one kind they would find the wrong objects. Every server decides this in the same way, because it depends
    /// only on what is stored.
    fn loses_kind(&self, cataloged: &CatalogedCrd) -> bool {
        cataloged.claimed().any(|kind| {
            let first = self.claims.get(kind).and_then(BTreeSet::first);
            first.is_some_and(|(_, owner)| *owner != cataloged.stored.name)
        })
    }

    /// Serves the resources of a CRD that is established and has its kind, and no resources of another.
    fn assign(&mut self, name: &Str) {
        let Some(mut cataloged) = self.crds.remove(name) else { return };
        cataloged.lost_kind = self.loses_kind(&cataloged);
        cataloged.crd = Arc::clone(&cataloged.stored);
        if cataloged.lost_kind {
            Arc::make_mut(&mut cataloged.crd).lose_kind();
        }
        self.remove_kinds(&cataloged.stored);
        let crd = &cataloged.crd;
        if let Some(stored) = crd.stored().filter(|_| crd.established) {
            for version in &crd.versions {
                let kind = ServedResource::custom(crd, version, stored, Arc::clone(&cataloged.epoch));
                let key = (version.name.clone(), crd.names.plural.clone());
                self.kinds.insert(key, Arc::new(kind));
            }
        }
        self.crds.insert(name.clone(), cataloged);
    }

    fn remove_kinds(&mut self, crd: &crd::CustomResourceDefinition) {
        for version in &crd.versions {
            self.kinds.remove(&(version.name.clone(), crd.names.plural.clone()));
        }
    }
}

impl CustomKinds {
    /// Replaces the CRD of this name with a stored one. A CRD that is not established serves no resources. Versions that are not served
    /// are included: objects may be stored in them, or converted to them for policies and webhooks.
    pub fn set(
        &mut self,
        crd: crd::CustomResourceDefinition,
        revisions: CrdRevisions,
        epoch: Arc<SchemaEpoch>,
    ) {
        let group = Arc::make_mut(self.groups.entry(crd.group.clone()).or_default());
        let stored = Arc::new(crd);
        let crd = Arc::clone(&stored);
        group.set(CatalogedCrd { crd, stored, revisions, epoch, lost_kind: false });
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
        group.set_unreadable(name);
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

    /// The resources of all CRDs, established or not, with the storage version, which is empty if the CRD cannot be read.
    pub(super) fn stored(&self) -> Vec<(GroupResource, Str)> {
        let of_group = |(group, custom): (&Str, &Arc<CustomGroup>)| {
            let readable = custom.crds.iter().map(|(name, cataloged)| {
                (name, cataloged.stored.stored().map(|version| version.name.clone()).unwrap_or_default())
            });
            let unreadable = custom.unreadable.iter().map(|name| (name, Str::default()));
            // The name of a CRD starts with the plural name of its resource.
            let resource = |(name, version): (&Str, Str)| {
                let plural = name.split_once('.').map_or(name.as_str(), |(plural, _)| plural);
                (GroupResource::new(group.clone(), plural), version)
            };
            readable.chain(unreadable).map(resource).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(of_group).collect()
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
        self.cataloged(name).map(|cataloged| cataloged.revisions.changed)
    }
}

/// The group in a CRD's name, which is `<plural>.<group>`.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

#[cfg(test)]
mod tests;
