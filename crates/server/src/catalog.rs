//! The catalog: what is served under which path, made of the resource table, `--runtime-config` and the stored definitions.
//!
//! The table's kinds are there from the start and never change. Those of custom resources are beside them, in a part that is
//! swapped as a whole when a definition changes ([`crate::definitions`]): a request takes the kind it is about once and keeps it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use api::selector::{Facts, FactsRef, Selection};
use api::{FieldErrors, GroupResource, GroupVersionKind, Status, meta};
use arc_swap::ArcSwap;
use bytes::Bytes;
use resources::custom::{self, Found};
use resources::schema::Schema;
use resources::table::{self, Field, Fields, Resource, Served, Storage, Subresource, Verb, verbs};
use resources::validation::{self, Context, Rules};
use resources::{convert, print, scale, strategy};
use storage::{Entry, Record};
use value::{Str, Value};

use crate::decode::Draft;
use crate::encode;

/// One shape into another.
type Convert = fn(&Value) -> Value;

/// The versions whose shape is not the stored one.
fn conversion(gvk: &GroupVersionKind) -> Option<(Convert, Convert)> {
    match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => {
            Some((convert::autoscaling::v1_to_v2, convert::autoscaling::v2_to_v1))
        }
        ("resource.k8s.io", "v1beta1", "ResourceClaim") => {
            Some((convert::resource::claim_to_v1, convert::resource::claim_from_v1))
        }
        ("resource.k8s.io", "v1beta1", "ResourceClaimTemplate") => {
            Some((convert::resource::template_to_v1, convert::resource::template_from_v1))
        }
        ("resource.k8s.io", "v1beta1", "ResourceSlice") => {
            Some((convert::resource::slice_to_v1, convert::resource::slice_from_v1))
        }
        ("events.k8s.io", "v1", "Event") => Some((convert::events::to_core, convert::events::from_core)),
        _ => None,
    }
}

/// Which face of an object a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facet {
    /// The object itself.
    Whole,
    /// `status`.
    Status,
    /// `scale`: another kind's view of the number of replicas.
    Scale,
    /// `namespaces/finalize`.
    Finalize,
    /// `certificatesigningrequests/approval`.
    Approval,
    /// `pods/ephemeralcontainers`.
    EphemeralContainers,
    /// `pods/resize`.
    Resize,
}

impl Facet {
    /// The facet that a subresource is, if it is one.
    pub fn of(subresource: &str) -> Option<Self> {
        Some(match subresource {
            "" => Facet::Whole,
            "status" => Facet::Status,
            "scale" => Facet::Scale,
            "finalize" => Facet::Finalize,
            "approval" => Facet::Approval,
            "ephemeralcontainers" => Facet::EphemeralContainers,
            "resize" => Facet::Resize,
            _ => return None,
        })
    }

    /// The subresource's name; empty for the object itself.
    pub fn subresource(self) -> &'static str {
        match self {
            Facet::Whole => "",
            Facet::Status => "status",
            Facet::Scale => "scale",
            Facet::Finalize => "finalize",
            Facet::Approval => "approval",
            Facet::EphemeralContainers => "ephemeralcontainers",
            Facet::Resize => "resize",
        }
    }
}

/// One kind in one version.
#[derive(Debug)]
pub struct Kind {
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
    nature: Nature,
    prefix: String,
    head: Vec<u8>,
    stored_head: Vec<u8>,
}

/// Where a kind comes from.
#[derive(Debug)]
enum Nature {
    /// A row of the table.
    BuiltIn(BuiltIn),
    /// A stored definition.
    Custom(Custom),
}

#[derive(Debug)]
struct BuiltIn {
    row: &'static Resource,
    schema: &'static Schema,
    /// Where the version of the request has another shape than the stored one: there, and back.
    conversion: Option<(Convert, Convert)>,
}

/// What is known of a custom kind.
#[derive(Debug)]
pub struct Custom {
    /// The definition.
    pub definition: Arc<custom::Definition>,
    /// The version of the request.
    pub version: Arc<custom::Version>,
    /// The version that objects are stored in.
    pub stored: Arc<custom::Version>,
    /// What was written after this revision was written by the schema as it is: its bytes are what a reader is shown.
    pub fresh_after: u64,
}

/// Everything that is served.
#[derive(Debug)]
pub struct Catalog {
    kinds: HashMap<(Str, Str, Str), Arc<Kind>>,
    served: Served,
    custom: ArcSwap<CustomKinds>,
    /// Held while the custom part is changed: it is copied, changed and swapped, and none of two changes may be lost.
    changing: Mutex<()>,
}

/// The kinds of the stored definitions.
#[derive(Clone, Debug, Default)]
pub struct CustomKinds {
    kinds: HashMap<(Str, Str, Str), Arc<Kind>>,
    /// Every stored definition by its name, served or not.
    definitions: BTreeMap<Str, Known>,
}

/// A definition, and the revision at which it was stored so.
#[derive(Clone, Debug)]
struct Known {
    definition: Arc<custom::Definition>,
    revision: u64,
}

impl CustomKinds {
    /// Serves a definition, stored at `revision`, instead of what was served under its name. One that is not established serves
    /// nothing.
    pub fn set(&mut self, definition: Arc<custom::Definition>, revision: u64, fresh_after: u64) {
        self.remove(&definition.name);
        if let Some(stored) = definition.stored().filter(|_| definition.established) {
            for version in definition.versions.iter().filter(|version| version.served || version.storage) {
                let kind = Kind::custom(&definition, version, stored, fresh_after);
                let key = (definition.group.clone(), version.name.clone(), definition.names.plural.clone());
                self.kinds.insert(key, Arc::new(kind));
            }
        }
        self.definitions.insert(definition.name.clone(), Known { definition, revision });
    }

    /// Serves nothing of a definition any more.
    pub fn remove(&mut self, name: &str) {
        let Some(Known { definition: former, .. }) = self.definitions.remove(name) else { return };
        for version in &former.versions {
            self.kinds.remove(&(former.group.clone(), version.name.clone(), former.names.plural.clone()));
        }
    }

    /// The definitions that are served, by name.
    pub fn definitions(&self) -> impl Iterator<Item = &Arc<custom::Definition>> {
        self.all().filter(|definition| definition.established)
    }

    /// The definitions of a group, served or not.
    pub fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<custom::Definition>> {
        self.all().filter(move |definition| definition.group == group)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<custom::Definition>> {
        self.definitions.values().map(|known| &known.definition)
    }

    /// The kind of a definition in the version that is stored, whether or not that is served.
    pub fn storage_kind(&self, name: &str) -> Option<Arc<Kind>> {
        let definition = self.definition(name)?;
        let stored = definition.stored()?;
        let key = (definition.group.clone(), stored.name.clone(), definition.names.plural.clone());
        self.kinds.get(&key).cloned()
    }

    /// Since which revision objects of a definition are stored as its schema wants them.
    pub fn fresh_after(&self, name: &str) -> Option<u64> {
        self.storage_kind(name)?.as_custom().map(|custom| custom.fresh_after)
    }

    /// The definition called `name`, served or not.
    pub fn definition(&self, name: &str) -> Option<&Arc<custom::Definition>> {
        self.definitions.get(name).map(|known| &known.definition)
    }

    /// The revision of the definition called `name`.
    pub fn revision(&self, name: &str) -> Option<u64> {
        self.definitions.get(name).map(|known| known.revision)
    }
}

impl Catalog {
    /// Of the versions that are served.
    pub fn new(served: Served) -> Self {
        let mut kinds = HashMap::new();
        for row in table::all() {
            for version in served.versions(row) {
                let Some(kind) = Kind::new(row, version) else { continue };
                kinds.insert((row.group.into(), version.into(), row.plural.into()), Arc::new(kind));
            }
        }
        Catalog { kinds, served, custom: ArcSwap::default(), changing: Mutex::default() }
    }

    /// The kind under a path.
    pub fn find(&self, group: &Str, version: &Str, plural: &Str) -> Option<Arc<Kind>> {
        let key = (group.clone(), version.clone(), plural.clone());
        if let Some(kind) = self.kinds.get(&key) {
            return Some(Arc::clone(kind));
        }
        self.custom.load().kinds.get(&key).filter(|kind| kind.is_served()).cloned()
    }

    /// A custom kind in the version that is stored, whether or not that is served.
    pub fn find_stored(&self, group: &Str, version: &Str, plural: &Str) -> Option<Arc<Kind>> {
        self.custom.load().kinds.get(&(group.clone(), version.clone(), plural.clone())).cloned()
    }

    /// The kind that an `apiVersion` and `kind` name.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Kind>> {
        if let Some(row) = table::find_kind(group, version, kind) {
            return self.find(&row.group.into(), &version.into(), &row.plural.into());
        }
        let custom = self.custom.load();
        let mut of_group = custom.definitions().filter(|definition| definition.group == group);
        let definition = of_group.find(|definition| definition.names.kind == kind)?;
        self.find(&definition.group, &version.into(), &definition.names.plural)
    }

    /// Every version, of any group, in which the objects of a kind are served.
    pub fn equivalents(&self, kind: &Kind) -> Vec<Arc<Kind>> {
        if let Some(custom) = kind.as_custom() {
            let definition = &custom.definition;
            let served = definition.versions.iter().filter(|version| version.served);
            return served
                .filter_map(|v| self.find(&definition.group, &v.name, &definition.names.plural))
                .collect();
        }
        table::all()
            .flat_map(|row| self.served.versions(row).map(move |version| (row, version)))
            .filter_map(|(row, version)| self.find(&row.group.into(), &version.into(), &row.plural.into()))
            .filter(|other| other.prefix == kind.prefix)
            .collect()
    }

    /// Each stored kind once, in the version the group prefers: those of the table in its order, then the custom ones.
    pub fn stored_kinds(&self) -> Vec<Arc<Kind>> {
        let own = table::all().filter(|row| matches!(row.storage, Storage::Own(_))).filter_map(|row| {
            let version = self.served.versions(row).next()?;
            self.find(&row.group.into(), &version.into(), &row.plural.into())
        });
        let custom = self.custom.load();
        let custom = custom.definitions().filter_map(|definition| self.preferred(definition));
        own.chain(custom).collect()
    }

    /// A definition's kind in the served version that clients prefer.
    fn preferred(&self, definition: &custom::Definition) -> Option<Arc<Kind>> {
        let served = definition.versions.iter().filter(|version| version.served);
        let best = served.min_by(|a, b| resources::discovery::compare_versions(&a.name, &b.name))?;
        self.find(&definition.group, &best.name, &definition.names.plural)
    }

    /// The custom kind whose objects are kept under a group and plural name, in the version that clients prefer.
    pub fn custom_resource(&self, group: &str, plural: &str) -> Option<Arc<Kind>> {
        let custom = self.custom.load();
        let definition = custom.definition(&format!("{plural}.{group}")).filter(|found| found.established)?;
        self.preferred(definition)
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
        self.custom.load().definitions().any(|definition| definition.group == group)
    }

    /// Which versions of the table are served.
    pub fn served(&self) -> &Served {
        &self.served
    }
}

/// Whether a kind exists at all, served or not.
pub fn is_known(gvk: &GroupVersionKind) -> bool {
    resources::schema::of(&gvk.group, &gvk.version, &gvk.kind).is_some()
}

impl Kind {
    fn new(row: &'static Resource, version: &'static str) -> Option<Self> {
        let gvk = GroupVersionKind::new(row.group, version, row.kind);
        let (stored_group, stored_version) = match row.storage {
            Storage::Own(stored) => (row.group, stored),
            Storage::With(group, stored) => (group, stored),
            Storage::Nowhere => (row.group, version),
        };
        let stored = GroupVersionKind::new(stored_group, stored_version, row.kind);
        let directory = if stored_group.is_empty() { "core" } else { stored_group };
        Some(Kind {
            nature: Nature::BuiltIn(BuiltIn {
                row,
                schema: row.schema(version)?,
                conversion: conversion(&gvk),
            }),
            resource: GroupResource::new(row.group, row.plural),
            namespaced: row.is_namespaced(),
            verbs: row.verbs,
            prefix: format!("/registry/{directory}/{}/", row.plural),
            head: encode::head(&gvk.api_version(), row.kind),
            stored_head: encode::head(&stored.api_version(), row.kind),
            gvk,
            stored,
        })
    }

    fn custom(
        definition: &Arc<custom::Definition>,
        version: &Arc<custom::Version>,
        stored: &Arc<custom::Version>,
        fresh_after: u64,
    ) -> Self {
        let group = &definition.group;
        let names = &definition.names;
        let gvk = GroupVersionKind::new(group.clone(), version.name.clone(), names.kind.clone());
        let stored_gvk = GroupVersionKind::new(group.clone(), stored.name.clone(), names.kind.clone());
        Kind {
            resource: GroupResource::new(group.clone(), names.plural.clone()),
            namespaced: definition.namespaced,
            verbs: verbs::ALL,
            prefix: format!("/registry/{group}/{}/", names.plural),
            head: encode::sorted_head(&gvk.api_version(), &names.kind),
            stored_head: encode::sorted_head(&stored_gvk.api_version(), &names.kind),
            nature: Nature::Custom(Custom {
                definition: Arc::clone(definition),
                version: Arc::clone(version),
                stored: Arc::clone(stored),
                fresh_after,
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

    /// What is known of a custom kind.
    pub fn as_custom(&self) -> Option<&Custom> {
        match &self.nature {
            Nature::BuiltIn(_) => None,
            Nature::Custom(custom) => Some(custom),
        }
    }

    /// Whether the version is served, and not only stored.
    fn is_served(&self) -> bool {
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

    /// Whether requests are answered and forgotten.
    pub fn is_virtual(&self) -> bool {
        self.row().is_some_and(|row| row.storage == Storage::Nowhere)
    }

    /// Whether the answer to a completed deletion is the object, not a `Status`.
    pub fn returns_deleted(&self) -> bool {
        self.row().is_some_and(|row| row.returns_deleted)
    }

    /// Where an object is kept.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{}{namespace}/{name}", self.prefix)
        } else {
            format!("{}{name}", self.prefix)
        }
    }

    /// The part of the key space that a request is about; an empty namespace is all of them.
    pub fn scope(&self, namespace: &str) -> String {
        if self.namespaced && !namespace.is_empty() {
            format!("{}{namespace}/", self.prefix)
        } else {
            self.prefix.clone()
        }
    }

    /// The namespace in a key.
    pub fn namespace_of<'k>(&self, key: &'k str) -> &'k str {
        let rest = key.strip_prefix(self.prefix.as_str()).unwrap_or_default();
        if self.namespaced { rest.split('/').next().unwrap_or_default() } else { "" }
    }

    /// The key under which etcd would have the object, as some of Kubernetes' messages show it.
    pub fn etcd_key(&self, key: &str) -> String {
        format!(
            "/registry/{}/{}",
            match &self.nature {
                Nature::BuiltIn(built_in) => built_in.row.plural.to_owned(),
                Nature::Custom(_) => format!("{}/{}", self.resource.group, self.resource.resource),
            },
            key.strip_prefix(self.prefix.as_str()).unwrap_or_default()
        )
    }

    /// Why a write that names a uid does not apply, in the words of Kubernetes' storage.
    pub fn uid_mismatch(&self, key: &str, wanted: &str, found: &str) -> String {
        format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            self.etcd_key(key)
        )
    }

    /// `PodList`.
    pub fn list_kind(&self) -> Cow<'_, str> {
        match &self.nature {
            Nature::BuiltIn(_) => Cow::Owned(format!("{}List", self.gvk.kind)),
            Nature::Custom(custom) => Cow::Borrowed(&custom.definition.names.list_kind),
        }
    }

    /// The subresource called `name`.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        const STATUS: Subresource = Subresource::status("");
        const SCALE: Subresource = Subresource::scale();
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
                entry.revision <= custom.fresh_after
                    || !self.is_stored_version()
                    || !entry.body.starts_with(&self.stored_head)
            }
        }
    }

    /// Whether the version of the request is the stored one.
    pub fn is_stored_version(&self) -> bool {
        self.gvk == self.stored
    }

    /// Brings an object of the request's version into the shape in which it is worked on, with defaults: the stored shape, and
    /// for custom kinds that of the request.
    pub fn to_stored(&self, object: Value) -> Value {
        if let Nature::Custom(custom) = &self.nature {
            let mut object = object;
            custom.version.compiled().default(&mut object);
            return object;
        }
        let mut object = self.to_stored_shape(object);
        resources::defaults::apply(&self.stored.group_kind(), &mut object);
        object
    }

    /// The same, without defaults.
    pub fn to_stored_shape(&self, object: Value) -> Value {
        let Nature::BuiltIn(built_in) = &self.nature else { return object };
        let mut object = match &built_in.conversion {
            Some((to_stored, _)) => to_stored(&object),
            None => object,
        };
        object.set_at(&["apiVersion"], self.stored.api_version());
        object
    }

    /// Brings an object from the shape in which it is worked on into that of the request's version.
    pub fn from_stored(&self, object: Value) -> Value {
        let mut object = self.from_stored_shape(object);
        if let Nature::BuiltIn(built_in) = &self.nature
            && built_in.conversion.is_some()
        {
            resources::decode::fill(&mut object, built_in.schema);
        }
        object
    }

    /// The same of an object that has not been stored yet.
    pub fn from_stored_shape(&self, object: Value) -> Value {
        let Nature::BuiltIn(built_in) = &self.nature else { return object };
        let mut object = match &built_in.conversion {
            Some((_, from_stored)) => from_stored(&object),
            None => object,
        };
        object.set_at(&["apiVersion"], self.gvk.api_version());
        object
    }

    /// The kind in another version that is kept in the same place, served or not.
    pub fn in_version(&self, version: &api::GroupVersion) -> Option<Kind> {
        let row = table::find_kind(&version.group, &version.version, &self.gvk.kind)?;
        let version = row.versions.iter().find(|known| known.name == version.version)?;
        Kind::new(row, version.name).filter(|kind| kind.stored == self.stored)
    }

    /// An object of the kind with nothing in it but what is always written.
    pub fn nothing(&self) -> Value {
        self.empty_with(Value::map([
            ("apiVersion", self.gvk.api_version()),
            ("kind", self.gvk.kind.to_string()),
        ]))
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

    /// What is stored for an object in the stored shape.
    pub fn record(&self, object: &Value) -> Record {
        let fields = self.field_values(object);
        let facts =
            Facts::encode(meta::labels(object), fields.iter().map(|(label, value)| (*label, value.as_ref())));
        encode::record(&self.stored_head, object, facts)
    }

    fn fields(&self) -> &'static [Field] {
        const METADATA: &[Field] = &[Field::NAME, Field::NAMESPACE];
        match self.row().map(|row| &row.fields) {
            None | Some(Fields::Metadata) => METADATA,
            Some(Fields::These(fields)) => fields,
        }
    }

    fn field_values<'a>(&self, object: &'a Value) -> Vec<(&'static str, std::borrow::Cow<'a, str>)> {
        self.fields().iter().map(|field| (field.label, field_value(field, object))).collect()
    }

    /// Whether an entry is selected; `None` where that depends on the object as the version of the request shows it, which it has
    /// to be converted to first.
    pub fn selects(&self, selection: &Selection, entry: &Entry) -> Option<bool> {
        if selection.is_everything() {
            return Some(true);
        }
        let facts = FactsRef::new(&entry.facts);
        let own = self.as_custom().is_some_and(|custom| !custom.version.selectable.is_empty());
        if !own || !selection.fields.requirements().iter().any(is_below_metadata) {
            return Some(selection.matches(facts));
        }
        if !selection.labels.matches(&facts) {
            return Some(false);
        }
        if self.must_convert(entry) {
            return None;
        }
        Some(encode::tree(entry).is_ok_and(|object| self.selects_fields(selection, entry, &object)))
    }

    /// Whether the fields of an object, in the version of the request, are those selected. Which fields of a custom resource can
    /// be is up to its definition and may change, so they are read from the object.
    pub fn selects_fields(&self, selection: &Selection, entry: &Entry, object: &Value) -> bool {
        let facts = FactsRef::new(&entry.facts);
        let compiled = self.as_custom().map(|custom| custom.version.compiled());
        selection.fields.requirements().iter().all(|requirement| {
            let own = compiled.and_then(|compiled| compiled.selectable(&requirement.field, object));
            let value = own.unwrap_or_else(|| facts.field(&requirement.field).to_owned());
            (value == requirement.value.as_str()) == requirement.equals
        })
    }

    /// Kubernetes' refusal of a field that selectors do not know.
    pub fn check_field(&self, label: &str) -> Result<(), Status> {
        let custom = match &self.nature {
            Nature::BuiltIn(built_in) => {
                return built_in.row.field(&self.gvk.version, label).map(|_| ()).map_err(Status::bad_request);
            }
            Nature::Custom(custom) => custom,
        };
        let known = match label {
            "metadata.name" => true,
            "metadata.namespace" => self.namespaced,
            label => custom.version.selectable.iter().any(|known| known == label),
        };
        if known { Ok(()) } else { Err(Status::bad_request(format!("field label not supported: {label}"))) }
    }

    /// Whether a PUT of a name that does not exist creates it.
    pub fn creates_on_update(&self, facet: Facet) -> bool {
        facet == Facet::Whole
            && self.row().is_some()
            && strategy::allow_create_on_update(&self.stored.group_kind())
    }

    /// The kind that admission is told.
    pub fn admission_kind(&self, facet: Facet) -> GroupVersionKind {
        match facet {
            Facet::Scale => GroupVersionKind::new("autoscaling", "v1", "Scale"),
            _ => self.gvk.clone(),
        }
    }

    /// The schema of what a facet takes.
    pub fn facet_schema(&self, facet: Facet) -> &Schema {
        match facet {
            Facet::Scale => {
                resources::schema::of("autoscaling", "v1", "Scale").unwrap_or_else(|| self.schema())
            }
            _ => self.schema(),
        }
    }

    /// A stored object as a facet shows it, in the version of the request.
    pub fn view(&self, facet: Facet, object: &Value) -> Result<Value, Status> {
        match (facet, &self.nature) {
            (Facet::Scale, Nature::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                custom::scale::from_object(paths, object).map(|(scale, _)| scale).map_err(Status::plain)
            }
            (Facet::Scale, Nature::BuiltIn(_)) => Ok(scale::from_object(self.scaled()?, object)),
            _ => Ok(self.from_stored(object.clone())),
        }
    }

    fn scaled(&self) -> Result<scale::Scaled, Status> {
        scale::Scaled::of(&self.stored.group_kind()).ok_or_else(Status::no_such_resource)
    }

    /// The object that a change through a facet asks for.
    pub fn through(&self, facet: Facet, draft: Draft, old: &Value) -> Result<Draft, Status> {
        match (facet, &self.nature) {
            (Facet::Scale, Nature::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                custom::scale::apply(paths, old, draft.object()).map(Draft::again)
            }
            (Facet::Scale, Nature::BuiltIn(_)) => {
                scale::apply(self.scaled()?, old, draft.object()).map(Draft::again)
            }
            _ => Ok(draft),
        }
    }

    /// The rules of the kind: those of the group in the path, where they are stricter than the stored kind's (events).
    pub fn rules(&self) -> Option<&'static Rules> {
        self.row()?;
        validation::rules(&self.gvk.group_kind()).or_else(|| validation::rules(&self.stored.group_kind()))
    }

    /// Makes an object a new one: what a create does to it before anybody judges it.
    pub fn prepare_create(&self, object: &mut Value, context: &strategy::Context) {
        match &self.nature {
            Nature::BuiltIn(_) => strategy::prepare_create(&self.stored.group_kind(), object, context),
            Nature::Custom(custom) => custom.version.compiled().prepare_create(object),
        }
    }

    /// Makes an object the successor of `old` through a facet.
    pub fn prepare_update(&self, facet: Facet, new: &mut Value, old: &Value, context: &strategy::Context) {
        let kind = self.stored.group_kind();
        match (&self.nature, facet) {
            (Nature::Custom(custom), Facet::Status) => custom.version.compiled().prepare_status(new, old),
            (Nature::Custom(custom), _) => custom.version.compiled().prepare_update(new, old),
            (_, Facet::Whole | Facet::Scale) => strategy::prepare_update(&kind, new, old, context),
            (_, Facet::Status) => strategy::prepare_update_status(&kind, new, old, context),
            (_, Facet::Finalize) => strategy::prepare_namespace_finalize(new, old),
            (_, Facet::Approval) => strategy::prepare_approval(new, old, context),
            (_, Facet::EphemeralContainers) => strategy::prepare_ephemeral_containers(new, old),
            (_, Facet::Resize) => strategy::prepare_resize(new, old),
        }
    }

    /// What is wrong with a new object, and what a client is told about one that is right.
    pub fn validate_create(&self, object: &Value, context: &Context) -> Found {
        if let Nature::Custom(custom) = &self.nature {
            return custom.version.compiled().validate_create(object);
        }
        let errors = match self.rules() {
            Some(rules) => (rules.create)(object, context),
            None => FieldErrors::new(),
        };
        Found { errors, warnings: validation::warnings(&self.stored.group_kind(), object, None) }
    }

    /// What is wrong with a change through a facet, and what a client is told about one that is right.
    pub fn validate_update(&self, facet: Facet, new: &Value, old: &Value, context: &Context) -> Found {
        if let Nature::Custom(custom) = &self.nature {
            let compiled = custom.version.compiled();
            return match facet {
                Facet::Status => compiled.validate_status(new, old),
                _ => compiled.validate_update(new, old),
            };
        }
        let errors = match self.rules() {
            None => FieldErrors::new(),
            Some(rules) => match facet {
                Facet::Whole | Facet::Scale => (rules.update)(new, old, context),
                Facet::Finalize => validation::core::namespace_finalize(new, old, context),
                Facet::Status => (rules.update_status)(new, old, context),
                Facet::Approval => validation::certificates::approval(new, old, context),
                Facet::EphemeralContainers => validation::pod::update_ephemeral_containers(new, old, context),
                Facet::Resize => validation::pod::update_resize(new, old, context),
            },
        };
        Found { errors, warnings: validation::warnings(&self.stored.group_kind(), new, Some(old)) }
    }

    /// Whether an update without a revision replaces whatever is there.
    pub fn allows_unconditional_update(&self) -> bool {
        self.row().is_some() && strategy::allow_unconditional_update(&self.stored.group_kind())
    }

    /// Drops the fields that are only written out, so that what was sent and what is stored compare.
    pub fn normalise(&self, object: &mut Value) {
        if self.row().is_some() {
            resources::decode::normalise(object, self.stored_schema());
        }
    }

    /// The same of an object in the version of the request.
    pub fn fill_shown(&self, object: &mut Value) {
        if let Nature::BuiltIn(built_in) = &self.nature {
            resources::decode::fill(object, built_in.schema);
        }
    }

    /// Adds the fields that are written out even when they are empty.
    pub fn fill(&self, object: &mut Value) {
        if self.row().is_some() {
            resources::decode::fill(object, self.stored_schema());
        }
    }

    /// A dry run's object as a facet shows it.
    pub fn answer_object(&self, facet: Facet, object: Value) -> Result<Value, Status> {
        match facet {
            Facet::Scale => self.view(facet, &object),
            _ => Ok(self.from_stored(object)),
        }
    }

    /// An object with nothing but metadata, as bookmarks carry it: what Go writes even when it is empty is there.
    pub fn empty_with(&self, mut object: Value) -> Value {
        if let Nature::BuiltIn(built_in) = &self.nature {
            resources::decode::fill(&mut object, built_in.schema);
        }
        object
    }

    /// The schema of the stored version.
    pub fn stored_schema(&self) -> &Schema {
        match &self.nature {
            Nature::BuiltIn(_) => {
                resources::schema::of(&self.stored.group, &self.stored.version, &self.stored.kind)
                    .unwrap_or_else(|| self.schema())
            }
            Nature::Custom(custom) => custom.stored.compiled().schema(),
        }
    }

    /// How the kind is printed.
    pub fn table(&self) -> &'static print::TableDef {
        print::table(&self.gvk.group, &self.gvk.kind)
    }
}

/// Whether a requirement is about anything but name and namespace.
fn is_below_metadata(requirement: &api::selector::FieldRequirement) -> bool {
    !matches!(requirement.field.as_str(), "metadata.name" | "metadata.namespace")
}

/// The text that a field selector compares.
fn field_value<'a>(field: &Field, object: &'a Value) -> std::borrow::Cow<'a, str> {
    let found = field.paths.iter().find_map(|path| {
        let mut here = object;
        for key in *path {
            if let Value::List(list) = here {
                here = list.first()?;
            }
            here = here.get(key)?;
        }
        match here {
            Value::String(s) if s.is_empty() => None,
            Value::String(s) => Some(std::borrow::Cow::Borrowed(s.as_str())),
            Value::Bool(b) => Some(std::borrow::Cow::Borrowed(if *b { "true" } else { "false" })),
            Value::Int(i) => Some(std::borrow::Cow::Owned(i.to_string())),
            _ => None,
        }
    });
    found.unwrap_or(std::borrow::Cow::Borrowed(field.default))
}
