//! The catalog of served resources, built from the resource table, `--runtime-config` and the stored CRDs; the layout of storage keys; and
//! the encodings of stored objects.
//!
//! - [`Catalog`] finds a [`ServedResource`]. Built-in resources never change after startup. Custom resources are in a separate part that is
//!   swapped as a whole when a CRD changes: a request looks up its resource once and uses that snapshot until it ends.
//! - [`Sent`], [`Working`] and [`StoredObject`] are the shapes of an object. [`Shapes`] converts between them, and [`encode`] converts the
//!   last one to the bytes of the store.
//! - [`WriteRules`] prepares and validates written objects.
//! - [`keys`] is the only module that makes storage keys; [`unreadable`] tracks stored objects that cannot be decoded.
//! - [`etcd_values`] converts records of the store to the values that kube-apiserver stores in etcd, and back.
//!
//! ```
//! use catalog::Catalog;
//! use kinds::table::Served;
//!
//! let catalog = Catalog::new(Served::default());
//! let pods = catalog.find(&"".into(), &"v1".into(), &"pods".into()).expect("pods are served");
//! assert!(pods.namespaced);
//! ```

mod custom;
pub mod encode;
pub mod etcd_config;
pub mod etcd_values;
pub mod keys;
mod managed_fields;
mod rules;
mod schema_epoch;
mod selects;
mod served_resource;
mod shapes;
pub mod splice;
mod subresource;
pub mod unreadable;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::{GroupResource, GroupVersionKind};
use arc_swap::ArcSwap;
use crd::CustomResourceDefinition;
use kinds::table::{self, KindStorage, Resource, Served};
use value::Str;

pub use custom::{CrdRevisions, CustomKinds};
pub use rules::WriteRules;
pub use schema_epoch::{SchemaEpoch, SchemaWriter};
pub use served_resource::{CustomResourceVersion, ServedResource};
pub use shapes::{Sent, Shapes, StoredObject, Working};
pub use subresource::Subresource;

/// All served resources, indexed by group, version and plural name.
#[derive(Debug)]
pub struct Catalog {
    kinds: HashMap<(Str, Str, Str), Arc<ServedResource>>,
    /// Built-in resources in versions that are not served.
    unserved: HashMap<(Str, Str, Str), Arc<ServedResource>>,
    /// Built-in resources in every version by storage prefix, in the order of the table. Read by every request that policies or webhooks
    /// may match.
    by_prefix: HashMap<String, Vec<Arc<ServedResource>>>,
    served: Served,
    custom: ArcSwap<CustomKinds>,
    /// Serializes changes of `custom`, which is copied, changed and swapped, so that no concurrent change is lost.
    changing: Mutex<()>,
}

/// How internal requests reach the objects of a CRD.
#[derive(Clone, Debug)]
pub enum ObjectReach {
    /// Through this version, served or not; the storage version if possible.
    Through(Arc<ServedResource>),
    /// No request reaches them: built-in resources have the paths of all its versions.
    Hidden,
    /// The catalog does not have the CRD, or it is not established.
    Unknown,
}

impl Catalog {
    /// A catalog without custom resources.
    pub fn new(served: Served) -> Self {
        let (mut kinds, mut unserved) = (HashMap::new(), HashMap::new());
        let mut by_prefix: HashMap<String, Vec<Arc<ServedResource>>> = HashMap::new();
        for row in table::all() {
            for version in row.versions.iter().map(|version| version.name) {
                let Some(kind) = ServedResource::new(row, version).map(Arc::new) else { continue };
                by_prefix.entry(kind.prefix.clone()).or_default().push(Arc::clone(&kind));
                let is_served = served.is_resource_served(row, version);
                let map = if is_served { &mut kinds } else { &mut unserved };
                map.insert((row.group.into(), version.into(), row.plural.into()), kind);
            }
        }
        Catalog { kinds, unserved, by_prefix, served, custom: ArcSwap::default(), changing: Mutex::default() }
    }

    /// Looks up a served resource by its path.
    pub fn find(&self, group: &Str, version: &Str, plural: &Str) -> Option<Arc<ServedResource>> {
        let key = (group.clone(), version.clone(), plural.clone());
        if let Some(kind) = self.kinds.get(&key) {
            return Some(Arc::clone(kind));
        }
        self.custom.load().kind(group, version, plural).filter(|kind| kind.is_served()).cloned()
    }

    /// Like [`Catalog::find`], but also returns a custom resource in a version of its CRD that is not served.
    pub fn find_in_any_version(
        &self,
        group: &Str,
        version: &Str,
        plural: &Str,
    ) -> Option<Arc<ServedResource>> {
        let found = self.find(group, version, plural);
        found.or_else(|| self.custom.load().kind(group, version, plural).cloned())
    }

    /// Looks up a served resource by `apiVersion` and `kind`.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<ServedResource>> {
        self.find_kind_in_any_version(group, version, kind).filter(|kind| kind.is_served())
    }

    /// Like [`Catalog::find_kind`], but also returns a custom resource in a version that is not served: policies and webhooks may need
    /// objects in such a version.
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

    /// Looks up a built-in resource by `apiVersion` and `kind`, whether or not the version is served.
    pub fn built_in_kind(&self, gvk: &GroupVersionKind) -> Option<Arc<ServedResource>> {
        let row = table::find_kind(&gvk.group, &gvk.version, &gvk.kind)?;
        let unserved =
            || self.unserved.get(&(row.group.into(), gvk.version.clone(), row.plural.into())).cloned();
        self.built_in(row, &gvk.version).or_else(unserved)
    }

    /// A row of the resource table in a served version.
    fn built_in(&self, row: &Resource, version: &str) -> Option<Arc<ServedResource>> {
        self.kinds.get(&(row.group.into(), version.into(), row.plural.into())).cloned()
    }

    /// A custom resource in a version of its CRD, served or not. `None` if a built-in resource has the same path and takes its requests.
    fn custom_version(&self, crd: &CustomResourceDefinition, version: &Str) -> Option<Arc<ServedResource>> {
        let (group, plural) = (&crd.group, &crd.names.plural);
        if self.kinds.contains_key(&(group.clone(), version.clone(), plural.clone())) {
            return None;
        }
        self.custom.load().kind(group, version, plural).cloned()
    }

    /// How internal requests reach the objects of the CRD of this name.
    pub fn reach(&self, name: &str) -> ObjectReach {
        // One snapshot for all decisions: a CRD that is removed meanwhile must not count as one without paths.
        let custom = self.custom.load();
        let Some(crd) = custom.crd(name).filter(|crd| crd.established) else { return ObjectReach::Unknown };
        let (group, plural) = (&crd.group, &crd.names.plural);
        let own = |version: &Str| !self.kinds.contains_key(&(group.clone(), version.clone(), plural.clone()));
        let mut versions: Vec<_> = crd.versions.iter().filter(|version| own(&version.name)).collect();
        if versions.is_empty() && !crd.versions.is_empty() {
            return ObjectReach::Hidden;
        }
        versions.sort_by_key(|version| !version.storage);
        let mut kinds = versions.into_iter().filter_map(|version| custom.kind(group, &version.name, plural));
        kinds.next().map_or(ObjectReach::Unknown, |kind| ObjectReach::Through(Arc::clone(kind)))
    }

    /// Every resource of which objects may be stored, served or not, with one of its versions: the built-in ones, sorted by storage directory,
    /// and those of all CRDs, also of the ones that are not established. The version of an unreadable CRD is empty.
    pub fn stored_in_any_version(&self) -> Vec<(GroupResource, Str)> {
        let mut built_in: Vec<_> = self.by_prefix.values().filter_map(|versions| versions.first()).collect();
        built_in.retain(|kind| kind.row().is_some_and(|row| row.storage != KindStorage::Nowhere));
        built_in.sort_by(|a, b| a.prefix.cmp(&b.prefix));
        let built_in = built_in.into_iter().map(|kind| (kind.resource.clone(), kind.gvk.version.clone()));
        built_in.chain(self.custom.load().stored()).collect()
    }

    /// Served resources with this version and plural or singular name, in one group, or in all groups if `group` is empty.
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

    /// Every version, in any group, by which rules of policies and webhooks can match the objects of a kind. Includes versions that are not
    /// served, so that a rule still matches after its version is no longer served.
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

    /// Every served resource with a storage directory of its own, once, in the served version that clients prefer: built-in resources in
    /// the order of the table, then custom ones.
    pub fn stored_in_preferred_version(&self) -> Vec<Arc<ServedResource>> {
        let own = table::all().filter(|row| matches!(row.storage, KindStorage::Own(_))).filter_map(|row| {
            let version = self.served.versions(row).next()?;
            self.built_in(row, version)
        });
        let custom = self.custom.load();
        let custom = custom.crds().filter_map(|crd| self.preferred(crd));
        own.chain(custom).collect()
    }

    /// The kind of a CRD in the served version that clients prefer.
    fn preferred(&self, crd: &CustomResourceDefinition) -> Option<Arc<ServedResource>> {
        let served = crd.versions.iter().filter(|version| version.served);
        let kinds = served.filter_map(|version| self.custom_version(crd, &version.name));
        kinds.min_by(|a, b| api::gvk::compare_versions(&a.gvk.version, &b.gvk.version))
    }

    /// The custom resource with this group and plural name, in the served version that clients prefer.
    pub fn custom_resource(&self, group: &str, plural: &str) -> Option<Arc<ServedResource>> {
        let custom = self.custom.load();
        let crd = custom.crd(&format!("{plural}.{group}")).filter(|found| found.established)?;
        self.preferred(crd)
    }

    /// Looks up a resource with `find` and pins its schema until the guard is dropped.
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

    /// A snapshot of the custom resources.
    pub fn custom(&self) -> Arc<CustomKinds> {
        self.custom.load_full()
    }

    /// Applies `change` to a copy of the custom resources and publishes the copy if `change` returns true. Changes are serialized.
    pub fn change_custom(&self, change: impl FnOnce(&mut CustomKinds) -> bool) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut custom = (*self.custom.load_full()).clone();
        if change(&mut custom) {
            self.custom.store(Arc::new(custom));
        }
    }

    /// True while [`Catalog::change_custom`] runs on another thread, so that a call would block this one.
    pub fn is_changing(&self) -> bool {
        self.changing.try_lock().is_err()
    }

    /// Reports whether an established CRD has this group.
    pub fn has_custom_group(&self, group: &str) -> bool {
        self.custom.load().of_group(group).any(|crd| crd.established)
    }

    /// The served versions of built-in resources.
    pub fn served(&self) -> &Served {
        &self.served
    }
}

/// Reports whether a built-in kind exists, served or not.
pub fn is_known(gvk: &GroupVersionKind) -> bool {
    schema::of(&gvk.group, &gvk.version, &gvk.kind).is_some()
}
