//! The catalog: what is served under which path, made of the resource table, `--runtime-config` and the stored CRDs.
//!
//! The table's kinds are there from the start and never change. Those of custom resources are beside them, in a part that is
//! swapped as a whole when a CRD changes ([`crate::crd_controller`]): a request takes the kind it is about once and keeps it.

mod custom;
mod rules;
mod schema_epoch;
mod selects;
mod served_resource;
mod shapes;
mod subresource;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::GroupVersionKind;
use arc_swap::ArcSwap;
use crd::CustomResourceDefinition;
use kinds::table::{self, Resource, Served, Storage};
use value::Str;

pub use custom::CustomKinds;
pub use schema_epoch::{SchemaEpoch, SchemaWriter};
pub use served_resource::{Custom, ServedResource};
pub use shapes::{Sent, StoredObject, Working};
pub use subresource::Subresource;

/// Everything that is served.
#[derive(Debug)]
pub struct Catalog {
    kinds: HashMap<(Str, Str, Str), Arc<ServedResource>>,
    /// The built-in ones in versions that are not served.
    unserved: HashMap<(Str, Str, Str), Arc<ServedResource>>,
    /// The built-in ones, in every version, by where their objects are kept, in the order of the table: every request that policies or webhooks may
    /// concern asks for them.
    by_prefix: HashMap<String, Vec<Arc<ServedResource>>>,
    served: Served,
    custom: ArcSwap<CustomKinds>,
    /// Held while the custom part is changed: it is copied, changed and swapped, and none of two changes may be lost.
    changing: Mutex<()>,
}

impl Catalog {
    /// Of the versions that are served.
    pub fn new(served: Served) -> Self {
        let (mut kinds, mut unserved) = (HashMap::new(), HashMap::new());
        let mut by_prefix: HashMap<String, Vec<Arc<ServedResource>>> = HashMap::new();
        for row in table::all() {
            for version in row.versions.iter().map(|version| version.name) {
                let Some(kind) = ServedResource::new(row, version).map(Arc::new) else { continue };
                by_prefix.entry(kind.prefix.clone()).or_default().push(Arc::clone(&kind));
                let is_served = served.is_served(row.group, version);
                let map = if is_served { &mut kinds } else { &mut unserved };
                map.insert((row.group.into(), version.into(), row.plural.into()), kind);
            }
        }
        Catalog { kinds, unserved, by_prefix, served, custom: ArcSwap::default(), changing: Mutex::default() }
    }

    /// The kind under a path.
    pub fn find(&self, group: &Str, version: &Str, plural: &Str) -> Option<Arc<ServedResource>> {
        let key = (group.clone(), version.clone(), plural.clone());
        if let Some(kind) = self.kinds.get(&key) {
            return Some(Arc::clone(kind));
        }
        self.custom.load().kind(group, version, plural).filter(|kind| kind.is_served()).cloned()
    }

    /// The kind under a path; of a custom kind, in any version of its CRD, whether or not that is served.
    pub fn find_in_any_version(
        &self,
        group: &Str,
        version: &Str,
        plural: &Str,
    ) -> Option<Arc<ServedResource>> {
        let found = self.find(group, version, plural);
        found.or_else(|| self.custom.load().kind(group, version, plural).cloned())
    }

    /// The kind that an `apiVersion` and `kind` name, if it is served.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<ServedResource>> {
        self.find_kind_in_any_version(group, version, kind).filter(|kind| kind.is_served())
    }

    /// The same, of a custom kind also in a version that is not served: policies and webhooks are shown objects in it.
    pub fn find_kind_in_any_version(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Option<Arc<ServedResource>> {
        if let Some(row) = table::find_kind(group, version, kind)
            && let Some(found) = self.built_in(row, version)
        {
            return Some(found);
        }
        let custom = self.custom.load();
        let mut of_group = custom.of_group(group).filter(|crd| crd.established);
        let crd = of_group.find(|crd| crd.names.kind == kind)?;
        self.custom_version(crd, &version.into())
    }

    /// The built-in kind that an `apiVersion` and `kind` name, whether or not the version is served.
    pub fn built_in_kind(&self, gvk: &GroupVersionKind) -> Option<Arc<ServedResource>> {
        let row = table::find_kind(&gvk.group, &gvk.version, &gvk.kind)?;
        let unserved =
            || self.unserved.get(&(row.group.into(), gvk.version.clone(), row.plural.into())).cloned();
        self.built_in(row, &gvk.version).or_else(unserved)
    }

    /// A row of the table in a version that is served.
    fn built_in(&self, row: &Resource, version: &str) -> Option<Arc<ServedResource>> {
        self.kinds.get(&(row.group.into(), version.into(), row.plural.into())).cloned()
    }

    /// A custom kind in a version of its CRD, served or not. Where a built-in resource has the same path, requests go there.
    fn custom_version(&self, crd: &CustomResourceDefinition, version: &Str) -> Option<Arc<ServedResource>> {
        let (group, plural) = (&crd.group, &crd.names.plural);
        if self.kinds.contains_key(&(group.clone(), version.clone(), plural.clone())) {
            return None;
        }
        self.custom.load().kind(group, version, plural).cloned()
    }

    /// A path under which an internal request reaches the objects of a CRD, whether or not its version is served: one that
    /// is not that of a built-in resource. The stored version is the first choice.
    pub fn reachable(&self, crd: &CustomResourceDefinition) -> Option<Arc<ServedResource>> {
        let (group, plural) = (&crd.group, &crd.names.plural);
        let mut versions: Vec<_> = crd.versions.iter().collect();
        versions.sort_by_key(|version| !version.storage);
        let custom = self.custom.load();
        let own = |version: &Str| !self.kinds.contains_key(&(group.clone(), version.clone(), plural.clone()));
        let mut reachable = versions.into_iter().filter(|version| own(&version.name));
        reachable.find_map(|version| custom.kind(group, &version.name, plural).cloned())
    }

    /// The kinds that are served in a version under a plural or singular name, in one group, or in any if none is named.
    pub fn named(&self, group: &str, version: &str, name: &str) -> Vec<Arc<ServedResource>> {
        let version = Str::from(version);
        let wanted = |of: &str, plural: &str, singular: &str| {
            (group.is_empty() || of == group) && (plural == name || singular == name)
        };
        let rows = table::all().filter(|row| wanted(row.group, row.plural, row.singular));
        let built_in = rows.filter_map(|row| self.built_in(row, &version));
        let custom = self.custom.load();
        let crds = custom.crds().filter(|crd| {
            let names = &crd.names;
            crd.established && wanted(&crd.group, &names.plural, &names.singular)
        });
        let custom = crds.filter_map(|of| self.custom_version(of, &version));
        let custom = custom.filter(|kind| kind.is_served());
        built_in.chain(custom).collect()
    }

    /// Every version, of any group, in which rules of policies and webhooks can name the objects of a kind, served or not, so that
    /// a rule outlasts the version that it names.
    pub fn equivalents(&self, kind: &ServedResource) -> Vec<Arc<ServedResource>> {
        if let Some(custom) = kind.as_custom() {
            let crd = &custom.crd;
            return crd
                .versions
                .iter()
                .filter_map(|version| self.custom_version(crd, &version.name))
                .collect();
        }
        self.by_prefix.get(&kind.prefix).cloned().unwrap_or_default()
    }

    /// Each stored kind once, in the version the group prefers: those of the table in its order, then the custom ones.
    pub fn stored_kinds(&self) -> Vec<Arc<ServedResource>> {
        let own = table::all().filter(|row| matches!(row.storage, Storage::Own(_))).filter_map(|row| {
            let version = self.served.versions(row).next()?;
            self.built_in(row, version)
        });
        let custom = self.custom.load();
        let custom = custom.crds().filter_map(|crd| self.preferred(crd));
        own.chain(custom).collect()
    }

    /// A CRD's kind in the served version that clients prefer.
    fn preferred(&self, crd: &CustomResourceDefinition) -> Option<Arc<ServedResource>> {
        let served = crd.versions.iter().filter(|version| version.served);
        let kinds = served.filter_map(|version| self.custom_version(crd, &version.name));
        kinds.min_by(|a, b| api::gvk::compare_versions(&a.gvk.version, &b.gvk.version))
    }

    /// The custom kind whose objects are kept under a group and plural name, in the version that clients prefer.
    pub fn custom_resource(&self, group: &str, plural: &str) -> Option<Arc<ServedResource>> {
        let custom = self.custom.load();
        let crd = custom.crd(&format!("{plural}.{group}")).filter(|found| found.established)?;
        self.preferred(crd)
    }

    /// What `find` finds for a write, and that somebody writes by its schema, which is not changed under the writer then.
    pub fn find_to_write(
        &self,
        find: impl Fn(&Self) -> Option<Arc<ServedResource>>,
    ) -> (Option<Arc<ServedResource>>, Option<SchemaWriter>) {
        let mut found = find(self);
        loop {
            let Some(custom) = found.as_ref().and_then(|kind| kind.as_custom()) else { return (found, None) };
            let writing = custom.epoch.write();
            let now = find(self);
            let same = now.as_ref().and_then(|kind| kind.as_custom());
            if same.is_some_and(|now| Arc::ptr_eq(&now.epoch, &custom.epoch)) {
                return (now, Some(writing));
            }
            found = now;
        }
    }

    /// The custom kinds as they are now.
    pub fn custom(&self) -> Arc<CustomKinds> {
        self.custom.load_full()
    }

    /// Changes what is served of custom kinds, if `change` says that it did. Changes come one after the other.
    pub fn change_custom(&self, change: impl FnOnce(&mut CustomKinds) -> bool) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut custom = (*self.custom.load_full()).clone();
        if change(&mut custom) {
            self.custom.store(Arc::new(custom));
        }
    }

    /// Whether some custom kind is served in a group.
    pub fn has_custom_group(&self, group: &str) -> bool {
        self.custom.load().of_group(group).any(|crd| crd.established)
    }

    /// Which versions of the table are served.
    pub fn served(&self) -> &Served {
        &self.served
    }
}

/// Whether a kind exists at all, served or not.
pub fn is_known(gvk: &GroupVersionKind) -> bool {
    schema::of(&gvk.group, &gvk.version, &gvk.kind).is_some()
}
