//! One kind in one version: its names and keys, and the shapes of its objects.

use std::borrow::Cow;
use std::sync::Arc;

use api::selector::Facts;
use api::{GroupKind, GroupResource, GroupVersionKind, meta};
use bytes::Bytes;
use kinds::print;
use kinds::strategy::Strategy;
use kinds::table::{self, Conversion, KindBehavior, Resource, Storage, SubresourceRow, Verb, verbs};
use schema::Schema;
use storage::{Entry, Record};

use super::schema_epoch::SchemaEpoch;
use super::shapes::StoredObject;
use crate::encode;
use crate::keys;

/// One kind in one version.
#[derive(Debug)]
pub struct ServedResource {
    /// The kind in the version of the request.
    pub gvk: GroupVersionKind,
    /// The kind in the version it is stored in.
    pub stored: GroupVersionKind,
    /// The group and plural name.
    pub resource: GroupResource,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: &'static [Verb],
    pub(super) nature: Nature,
    pub(super) prefix: String,
    head: Vec<u8>,
    stored_head: Vec<u8>,
}

/// Where a kind comes from.
#[derive(Debug)]
pub(super) enum Nature {
    /// A row of the table.
    BuiltIn(BuiltIn),
    /// A stored CRD.
    Custom(Custom),
}

#[derive(Debug)]
pub(super) struct BuiltIn {
    pub(super) row: &'static Resource,
    pub(super) schema: &'static Schema,
    /// The behavior of the stored kind.
    pub(super) behavior: &'static KindBehavior,
    /// Where objects of the requested version do not look like the stored ones.
    pub(super) conversion: Option<Conversion>,
}

/// What is known of a custom kind.
#[derive(Debug)]
pub struct Custom {
    /// The CRD.
    pub crd: Arc<crd::CustomResourceDefinition>,
    /// The version of the request.
    pub version: Arc<crd::Version>,
    /// The version that objects are stored in.
    pub stored: Arc<crd::Version>,
    /// What was written by the schema as it is: its bytes are what a reader is shown.
    pub epoch: Arc<SchemaEpoch>,
}

impl ServedResource {
    pub(super) fn new(row: &'static Resource, version: &'static str) -> Option<Self> {
        let gvk = GroupVersionKind::new(row.group, version, row.kind);
        let (stored_group, stored_version) = match row.storage {
            Storage::Own(stored) => (row.group, stored),
            Storage::With(group, stored) => (group, stored),
            Storage::Nowhere => (row.group, version),
        };
        let stored = GroupVersionKind::new(stored_group, stored_version, row.kind);
        Some(ServedResource {
            nature: Nature::BuiltIn(BuiltIn {
                row,
                schema: row.schema(version)?,
                behavior: table::behavior(&stored.group_kind()),
                conversion: row.version(version).and_then(|version| version.conversion),
            }),
            resource: GroupResource::new(row.group, row.plural),
            namespaced: row.is_namespaced(),
            verbs: row.verbs,
            // What is not stored is looked for where nothing is.
            prefix: keys::prefix(row).unwrap_or_else(|| format!("/virtual/{}/", row.plural)),
            head: encode::head(&gvk.api_version(), row.kind),
            stored_head: encode::head(&stored.api_version(), row.kind),
            gvk,
            stored,
        })
    }

    pub(super) fn custom(
        crd: &Arc<crd::CustomResourceDefinition>,
        version: &Arc<crd::Version>,
        stored: &Arc<crd::Version>,
        epoch: Arc<SchemaEpoch>,
    ) -> Self {
        let group = &crd.group;
        let names = &crd.names;
        let gvk = GroupVersionKind::new(group.clone(), version.name.clone(), names.kind.clone());
        let stored_gvk = GroupVersionKind::new(group.clone(), stored.name.clone(), names.kind.clone());
        ServedResource {
            resource: GroupResource::new(group.clone(), names.plural.clone()),
            namespaced: crd.namespaced,
            verbs: verbs::ALL,
            prefix: keys::custom_prefix(group, &names.plural),
            head: encode::sorted_head(&gvk.api_version(), &names.kind),
            stored_head: encode::sorted_head(&stored_gvk.api_version(), &names.kind),
            nature: Nature::Custom(Custom {
                crd: Arc::clone(crd),
                version: Arc::clone(version),
                stored: Arc::clone(stored),
                epoch,
            }),
            gvk,
            stored: stored_gvk,
        }
    }

    /// The kind in whose shape an object is worked on, from decoding to storing: the stored one, and for custom kinds that of
    /// the request, whose schema judges it.
    pub fn working(&self) -> &GroupVersionKind {
        match &self.nature {
            Nature::BuiltIn(_) => &self.stored,
            Nature::Custom(_) => &self.gvk,
        }
    }

    /// The row of the table, unless it is a custom kind.
    pub fn row(&self) -> Option<&'static Resource> {
        match &self.nature {
            Nature::BuiltIn(built_in) => Some(built_in.row),
            Nature::Custom(_) => None,
        }
    }

    /// How objects of the stored kind behave. Custom resources have none of it, whatever their group and kind are called.
    pub fn behavior(&self) -> &'static KindBehavior {
        match &self.nature {
            Nature::BuiltIn(built_in) => built_in.behavior,
            Nature::Custom(_) => &KindBehavior::NONE,
        }
    }

    /// The strategy of the stored kind.
    pub fn strategy(&self) -> Option<&'static Strategy> {
        self.behavior().strategy.as_ref()
    }

    /// The group and kind by which the rules of built-in resources are found: strategies, escalation, what must be waited for. A
    /// custom resource has none of them, whatever its group and kind are called.
    pub fn built_in_kind(&self) -> GroupKind {
        match &self.nature {
            Nature::BuiltIn(_) => self.stored.group_kind(),
            Nature::Custom(_) => GroupKind::new("", ""),
        }
    }

    /// Whether it is the built-in resource of this group, stored as this kind.
    pub fn is_built_in(&self, group: &str, kind: &str) -> bool {
        self.row().is_some() && self.stored.group == group && self.stored.kind == kind
    }

    /// What is known of a custom kind.
    pub fn as_custom(&self) -> Option<&Custom> {
        match &self.nature {
            Nature::BuiltIn(_) => None,
            Nature::Custom(custom) => Some(custom),
        }
    }

    /// Whether the version is served, and not only stored.
    pub(super) fn is_served(&self) -> bool {
        self.as_custom().is_none_or(|custom| custom.version.served)
    }

    /// The schema of the version of the request.
    pub fn schema(&self) -> &Schema {
        match &self.nature {
            Nature::BuiltIn(built_in) => built_in.schema,
            Nature::Custom(custom) => custom.version.compiled().schema(),
        }
    }

    /// The warning that use of the version brings.
    pub fn deprecation(&self) -> Option<&str> {
        match &self.nature {
            Nature::BuiltIn(built_in) => {
                built_in.row.version(&self.gvk.version).and_then(|version| version.deprecation)
            }
            Nature::Custom(custom) => custom.version.deprecation.as_deref(),
        }
    }

    /// The first release that no longer serves the version; empty where that is not known.
    pub fn removed_release(&self) -> &'static str {
        let version = self.row().and_then(|row| row.version(&self.gvk.version));
        version.map_or("", |version| version.removed_release())
    }

    /// Whether requests are answered and forgotten.
    pub fn is_virtual(&self) -> bool {
        self.row().is_some_and(|row| row.storage == Storage::Nowhere)
    }

    /// Whether the answer to a completed deletion is the object, not a `Status`.
    pub fn returns_deleted(&self) -> bool {
        self.row().is_some_and(|row| row.returns_deleted_in(&self.gvk.version))
    }

    /// Where an object is kept.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            keys::namespaced(&self.prefix, namespace, name)
        } else {
            format!("{}{name}", self.prefix)
        }
    }

    /// The part of the key space that a request is about; an empty namespace is all of them.
    pub fn scope(&self, namespace: &str) -> String {
        keys::in_namespace(&self.prefix, if self.namespaced { namespace } else { "" })
    }

    /// The namespace in a key.
    pub fn namespace_of<'k>(&self, key: &'k str) -> &'k str {
        let rest = key.strip_prefix(self.prefix.as_str()).unwrap_or_default();
        if self.namespaced { rest.split('/').next().unwrap_or_default() } else { "" }
    }

    /// Why a write that names a uid does not apply, in the words of Kubernetes' storage.
    pub fn uid_mismatch(key: &str, wanted: &str, found: &str, dry_run: bool) -> String {
        Self::precondition_failed(key, "UID", wanted, found, dry_run)
    }

    /// Why a write that names a resource version does not apply, in the words of Kubernetes' storage.
    pub fn version_mismatch(key: &str, wanted: &str, found: &str, dry_run: bool) -> String {
        Self::precondition_failed(key, "ResourceVersion", wanted, found, dry_run)
    }

    fn precondition_failed(key: &str, what: &str, wanted: &str, found: &str, dry_run: bool) -> String {
        // A dry run of Kubernetes does not come as far as the store, which adds the root of all keys.
        let key = if dry_run { keys::below_root(key) } else { key };
        format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
        )
    }

    /// `PodList`.
    pub fn list_kind(&self) -> Cow<'_, str> {
        match &self.nature {
            Nature::BuiltIn(_) => Cow::Owned(format!("{}List", self.gvk.kind)),
            Nature::Custom(custom) => Cow::Borrowed(&custom.crd.names.list_kind),
        }
    }

    /// The subresource called `name`.
    pub fn subresource(&self, name: &str) -> Option<&'static SubresourceRow> {
        const STATUS: SubresourceRow = SubresourceRow::status("");
        const SCALE: SubresourceRow = SubresourceRow::scale();
        match (&self.nature, name) {
            (Nature::BuiltIn(built_in), _) => built_in.row.subresource(name),
            (Nature::Custom(custom), "status") => custom.version.status.then_some(&STATUS),
            (Nature::Custom(custom), "scale") => custom.version.scale.as_ref().map(|_| &SCALE),
            (Nature::Custom(_), _) => None,
        }
    }

    /// Whether the bytes of this entry are not what the version of the request shows.
    pub fn must_convert(&self, entry: &Entry) -> bool {
        match &self.nature {
            Nature::BuiltIn(built_in) => built_in.conversion.is_some(),
            Nature::Custom(custom) => {
                !custom.epoch.has(entry.revision)
                    || !self.is_stored_version()
                    || !entry.body.starts_with(&self.stored_head)
            }
        }
    }

    /// Whether the version of the request is the stored one.
    pub fn is_stored_version(&self) -> bool {
        self.gvk == self.stored
    }

    /// The kind in another version that is kept in the same place, served or not.
    pub fn in_version(&self, version: &api::GroupVersion) -> Option<ServedResource> {
        let row = table::find_kind(&version.group, &version.version, &self.gvk.kind)?;
        let version = row.versions.iter().find(|known| known.name == version.version)?;
        ServedResource::new(row, version.name).filter(|kind| kind.stored == self.stored)
    }

    /// How long the head of a stored body is.
    pub fn stored_head_len(&self) -> usize {
        self.stored_head.len()
    }

    /// The bytes of an entry in a version of the same shape.
    pub fn bytes(&self, entry: &Entry) -> Bytes {
        if self.is_stored_version() {
            entry.body.clone()
        } else {
            encode::with_head(entry, self.stored_head.len(), &self.head)
        }
    }

    /// The record of the store for an object.
    pub fn record(&self, object: &StoredObject) -> Record {
        let fields = self.field_values(object);
        let facts =
            Facts::encode(meta::labels(object), fields.iter().map(|(label, value)| (*label, value.as_ref())));
        encode::record(&self.stored_head, object, facts)
    }

    /// The schema of the stored version.
    pub fn stored_schema(&self) -> &Schema {
        match &self.nature {
            Nature::BuiltIn(_) => schema::of(&self.stored.group, &self.stored.version, &self.stored.kind)
                .unwrap_or_else(|| self.schema()),
            Nature::Custom(custom) => custom.stored.compiled().schema(),
        }
    }

    /// How the kind is printed.
    pub fn table(&self) -> &'static print::TableDef {
        table::behavior(&self.gvk.group_kind()).table()
    }
}
