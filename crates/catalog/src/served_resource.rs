//! One resource in one version: its names and storage keys, and the encoding of its objects.

use std::borrow::Cow;
use std::sync::Arc;

use api::selector::SelectorFacts;
use api::{GroupKind, GroupResource, GroupVersionKind, meta};
use bytes::Bytes;
use kinds::print;
use kinds::strategy::Strategy;
use kinds::table::{self, Conversion, KindBehavior, KindStorage, Resource, SubresourceRow, Verb, verbs};
use schema::Schema;
use storage::{Record, StoredEntry};

use super::schema_epoch::SchemaEpoch;
use super::shapes::StoredObject;
use super::subresource::Subresource;
use crate::encode;
use crate::keys;

/// One resource in one version, built-in or custom.
#[derive(Debug)]
pub struct ServedResource {
    /// Kind in the version of the request.
    pub gvk: GroupVersionKind,
    /// Kind in the storage version.
    pub stored: GroupVersionKind,
    pub resource: GroupResource,
    pub namespaced: bool,
    pub verbs: &'static [Verb],
    pub(super) origin: ResourceOrigin,
    pub(super) prefix: String,
    head: Vec<u8>,
    stored_head: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum ResourceOrigin {
    /// A row of the resource table.
    BuiltIn(BuiltIn),
    /// One version of a stored CRD.
    Custom(CustomResourceVersion),
}

#[derive(Debug)]
pub(super) struct BuiltIn {
    pub(super) row: &'static Resource,
    pub(super) schema: &'static Schema,
    /// Behavior of the stored kind, which may be in another group.
    pub(super) behavior: &'static KindBehavior,
    /// Set if the requested version differs in shape from the storage version.
    pub(super) conversion: Option<Conversion>,
}

#[derive(Debug)]
pub struct CustomResourceVersion {
    pub crd: Arc<crd::CustomResourceDefinition>,
    pub version: Arc<crd::CrdVersion>,
    pub stored: Arc<crd::CrdVersion>,
    /// Decides which stored bytes conform to the current schema and can be sent unchanged.
    pub epoch: Arc<SchemaEpoch>,
}

impl ServedResource {
    /// The resource of a row in one of its versions, served or not.
    pub fn of_row(row: &'static Resource, version: &str) -> Option<Self> {
        ServedResource::new(row, row.version(version)?.name)
    }

    pub(super) fn new(row: &'static Resource, version: &'static str) -> Option<Self> {
        let gvk = GroupVersionKind::new(row.group, version, row.kind);
        let (stored_group, stored_version) = match row.storage {
            KindStorage::Own(stored) => (row.group, stored),
            KindStorage::With(group, stored) => (group, stored),
            KindStorage::Nowhere => (row.group, version),
        };
        let stored = GroupVersionKind::new(stored_group, stored_version, row.kind);
        Some(ServedResource {
            origin: ResourceOrigin::BuiltIn(BuiltIn {
                row,
                schema: row.schema(version)?,
                behavior: table::behavior(&stored.group_kind()),
                conversion: row.version(version).and_then(|version| version.conversion),
            }),
            resource: GroupResource::new(row.group, row.plural),
            namespaced: row.is_namespaced(),
            verbs: row.verbs,
            // Virtual resources get a prefix that is always empty.
            prefix: keys::prefix(row).unwrap_or_else(|| format!("/virtual/{}/", row.plural)),
            head: encode::head(&gvk.api_version(), row.kind),
            stored_head: encode::head(&stored.api_version(), row.kind),
            gvk,
            stored,
        })
    }

    pub(super) fn custom(
        crd: &Arc<crd::CustomResourceDefinition>,
        version: &Arc<crd::CrdVersion>,
        stored: &Arc<crd::CrdVersion>,
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
            origin: ResourceOrigin::Custom(CustomResourceVersion {
                crd: Arc::clone(crd),
                version: Arc::clone(version),
                stored: Arc::clone(stored),
                epoch,
            }),
            gvk,
            stored: stored_gvk,
        }
    }

    /// Kind in whose shape an object is processed between decoding and storing: the stored kind for a built-in resource; for a custom one
    /// the kind of the request, whose schema validates it.
    pub fn working(&self) -> &GroupVersionKind {
        match &self.origin {
            ResourceOrigin::BuiltIn(_) => &self.stored,
            ResourceOrigin::Custom(_) => &self.gvk,
        }
    }

    /// Row of the resource table; `None` for a custom resource.
    pub fn row(&self) -> Option<&'static Resource> {
        match &self.origin {
            ResourceOrigin::BuiltIn(built_in) => Some(built_in.row),
            ResourceOrigin::Custom(_) => None,
        }
    }

    /// Behavior of the stored kind. A custom resource has none, even if its group and kind are those of a built-in one.
    pub fn behavior(&self) -> &'static KindBehavior {
        match &self.origin {
            ResourceOrigin::BuiltIn(built_in) => built_in.behavior,
            ResourceOrigin::Custom(_) => &KindBehavior::NONE,
        }
    }

    pub fn strategy(&self) -> Option<&'static Strategy> {
        self.behavior().strategy.as_ref()
    }

    /// Group and kind to look up the rules of built-in resources: strategies, escalation checks, which writes must be waited for. Empty for
    /// a custom resource, even if its group and kind are those of a built-in one.
    pub fn built_in_kind(&self) -> GroupKind {
        match &self.origin {
            ResourceOrigin::BuiltIn(_) => self.stored.group_kind(),
            ResourceOrigin::Custom(_) => GroupKind::new("", ""),
        }
    }

    /// Reports whether this is a built-in resource that is stored as this group and kind.
    pub fn is_built_in(&self, group: &str, kind: &str) -> bool {
        self.row().is_some() && self.stored.group == group && self.stored.kind == kind
    }

    pub fn as_custom(&self) -> Option<&CustomResourceVersion> {
        match &self.origin {
            ResourceOrigin::BuiltIn(_) => None,
            ResourceOrigin::Custom(custom) => Some(custom),
        }
    }

    /// Always true for a built-in resource; a custom one may be in a version that its CRD does not serve.
    pub(super) fn is_served(&self) -> bool {
        self.as_custom().is_none_or(|custom| custom.version.served)
    }

    pub fn schema(&self) -> &Schema {
        match &self.origin {
            ResourceOrigin::BuiltIn(built_in) => built_in.schema,
            ResourceOrigin::Custom(custom) => custom.version.compiled().schema(),
        }
    }

    /// Warning for clients that use this version, if it is deprecated.
    pub fn deprecation(&self) -> Option<&str> {
        match &self.origin {
            ResourceOrigin::BuiltIn(built_in) => {
                built_in.row.version(&self.gvk.version).and_then(|version| version.deprecation)
            }
            ResourceOrigin::Custom(custom) => custom.version.deprecation.as_deref(),
        }
    }

    /// First release that no longer serves the version; empty if unknown.
    pub fn removed_release(&self) -> &'static str {
        let version = self.row().and_then(|row| row.version(&self.gvk.version));
        version.map_or("", |version| version.removed_release())
    }

    /// Reports whether objects are never stored, as those of reviews.
    pub fn is_virtual(&self) -> bool {
        self.row().is_some_and(|row| row.storage == KindStorage::Nowhere)
    }

    /// Reports whether a completed deletion returns the object instead of a `Status`.
    pub fn returns_deleted(&self) -> bool {
        self.row().is_some_and(|row| row.returns_deleted_in(&self.gvk.version))
    }

    /// Storage key of an object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            keys::namespaced(&self.prefix, namespace, name)
        } else {
            format!("{}{name}", self.prefix)
        }
    }

    /// Key prefix of a request; an empty namespace means all namespaces.
    pub fn scope(&self, namespace: &str) -> String {
        keys::in_namespace(&self.prefix, if self.namespaced { namespace } else { "" })
    }

    /// The namespace in a storage key; empty for a cluster-scoped resource.
    pub fn namespace_of<'k>(&self, key: &'k str) -> &'k str {
        let rest = key.strip_prefix(self.prefix.as_str()).unwrap_or_default();
        if self.namespaced { rest.split('/').next().unwrap_or_default() } else { "" }
    }

    /// Error text for a failed uid precondition, as Kubernetes' storage words it.
    pub fn uid_mismatch(key: &str, wanted: &str, found: &str, dry_run: bool) -> String {
        Self::precondition_failed(key, "UID", wanted, found, dry_run)
    }

    /// Error text for a failed resource version precondition, as Kubernetes' storage words it.
    pub fn version_mismatch(key: &str, wanted: &str, found: &str, dry_run: bool) -> String {
        Self::precondition_failed(key, "ResourceVersion", wanted, found, dry_run)
    }

    fn precondition_failed(key: &str, what: &str, wanted: &str, found: &str, dry_run: bool) -> String {
        // In kube-apiserver a dry run does not reach the storage layer that prepends the root of all keys.
        let key = if dry_run { keys::below_root(key) } else { key };
        format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
        )
    }

    /// Kind of a list, such as `PodList`.
    pub fn list_kind(&self) -> Cow<'_, str> {
        match &self.origin {
            ResourceOrigin::BuiltIn(_) => Cow::Owned(format!("{}List", self.gvk.kind)),
            ResourceOrigin::Custom(custom) => Cow::Borrowed(&custom.crd.names.list_kind),
        }
    }

    /// Looks up a subresource that this version serves.
    pub fn subresource(&self, name: &str) -> Option<&'static SubresourceRow> {
        const STATUS: SubresourceRow = SubresourceRow::status("");
        const SCALE: SubresourceRow = SubresourceRow::scale();
        match (&self.origin, name) {
            (ResourceOrigin::BuiltIn(built_in), _) => built_in.row.subresource(name),
            (ResourceOrigin::Custom(custom), "status") => custom.version.status.then_some(&STATUS),
            (ResourceOrigin::Custom(custom), "scale") => custom.version.scale.as_ref().map(|_| &SCALE),
            (ResourceOrigin::Custom(_), _) => None,
        }
    }

    /// Kind of the object that admission receives.
    pub fn admission_kind(&self, subresource: Subresource) -> GroupVersionKind {
        match subresource {
            Subresource::Scale => GroupVersionKind::new("autoscaling", "v1", "Scale"),
            _ => self.gvk.clone(),
        }
    }

    /// Schema of the object that clients send to a subresource.
    pub fn subresource_schema(&self, subresource: Subresource) -> &Schema {
        match subresource {
            Subresource::Scale => schema::of("autoscaling", "v1", "Scale").unwrap_or_else(|| self.schema()),
            _ => self.schema(),
        }
    }

    /// Reports whether the stored bytes cannot be sent in the version of the request, not even with another head.
    pub fn must_convert(&self, entry: &StoredEntry) -> bool {
        match &self.origin {
            // An older release of this server may have stored the object in another version.
            ResourceOrigin::BuiltIn(built_in) => {
                built_in.conversion.is_some() || !entry.body.starts_with(&self.stored_head)
            }
            ResourceOrigin::Custom(custom) => {
                !custom.epoch.has(entry.revision)
                    || !self.is_stored_version()
                    || !entry.body.starts_with(&self.stored_head)
            }
        }
    }

    pub fn is_stored_version(&self) -> bool {
        self.gvk == self.stored
    }

    /// The built-in resource in another version with the same storage, served or not.
    pub fn in_version(&self, version: &api::GroupVersion) -> Option<ServedResource> {
        let row = table::find_kind(&version.group, &version.version, &self.gvk.kind)?;
        let version = row.versions.iter().find(|known| known.name == version.version)?;
        ServedResource::new(row, version.name).filter(|kind| kind.stored == self.stored)
    }

    /// Length in bytes of the head of a stored body: see [`encode::head`].
    pub fn stored_head_len(&self) -> usize {
        self.stored_head.len()
    }

    /// The body of an entry in the version of the request, which must have the same shape as the stored one.
    pub fn bytes(&self, entry: &StoredEntry) -> Bytes {
        if self.is_stored_version() {
            entry.body.clone()
        } else {
            encode::with_head(entry, self.stored_head.len(), &self.head)
        }
    }

    /// Encodes an object for the store, with the labels and fields that selectors compare.
    pub fn record(&self, object: &StoredObject) -> Record {
        self.record_with(object, None)
    }

    /// The record of an object whose stored value has another form than this server would write. It differs from every record that is
    /// written, so that an update which changes nothing is written nevertheless: in this way clients migrate stored values.
    pub fn record_of_other_form(&self, object: &StoredObject) -> Record {
        /// No field has this name.
        const OTHER_FORM: (&str, &str) = ("", "other form");
        self.record_with(object, Some(OTHER_FORM))
    }

    fn record_with(&self, object: &StoredObject, mark: Option<(&str, &str)>) -> Record {
        let fields = self.field_values(object);
        let fields = fields.iter().map(|(label, value)| (*label, value.as_ref()));
        let facts = SelectorFacts::encode(meta::labels(object), fields.chain(mark));
        encode::record(&self.stored_head, object, facts)
    }

    /// Encodes a custom resource whose CRD is unknown, with its labels and metadata for selectors.
    pub fn custom_record(head: &[u8], object: &StoredObject) -> Record {
        let fields = [("metadata.name", meta::name(object)), ("metadata.namespace", meta::namespace(object))];
        encode::record(head, object, SelectorFacts::encode(meta::labels(object), fields))
    }

    pub fn stored_schema(&self) -> &Schema {
        match &self.origin {
            ResourceOrigin::BuiltIn(_) => {
                schema::of(&self.stored.group, &self.stored.version, &self.stored.kind)
                    .unwrap_or_else(|| self.schema())
            }
            ResourceOrigin::Custom(custom) => custom.stored.compiled().schema(),
        }
    }

    /// Table columns of a built-in kind.
    pub fn table(&self) -> &'static print::TableDef {
        table::behavior(&self.gvk.group_kind()).table()
    }
}

#[cfg(test)]
mod tests;
