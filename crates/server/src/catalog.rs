//! The catalog: what is served under which path, made of the resource table and `--runtime-config`.

use std::collections::HashMap;
use std::sync::Arc;

use api::selector::Facts;
use api::{FieldErrors, GroupResource, GroupVersionKind, Status, meta};
use bytes::Bytes;
use resources::schema::Schema;
use resources::table::{self, Field, Fields, Resource, Served, Storage, Subresource};
use resources::validation::{self, Context, Rules};
use resources::{convert, print, scale, strategy};
use storage::{Entry, Record};
use value::{Str, Value};

use crate::call::Answer;
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
    /// The row of the table.
    pub row: &'static Resource,
    /// The kind in the version of the request.
    pub gvk: GroupVersionKind,
    /// The kind in the version it is stored in.
    pub stored: GroupVersionKind,
    /// The group and plural name.
    pub resource: GroupResource,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The schema of the version of the request.
    pub schema: &'static Schema,
    /// Where the version of the request has another shape than the stored one: there, and back.
    conversion: Option<(Convert, Convert)>,
    prefix: String,
    head: Vec<u8>,
    stored_head: Vec<u8>,
}

/// Everything that is served.
#[derive(Debug)]
pub struct Catalog {
    kinds: HashMap<(Str, Str, Str), Arc<Kind>>,
    served: Served,
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
        Catalog { kinds, served }
    }

    /// The kind under a path.
    pub fn find(&self, group: &Str, version: &Str, plural: &Str) -> Option<&Arc<Kind>> {
        self.kinds.get(&(group.clone(), version.clone(), plural.clone()))
    }

    /// The kind that an `apiVersion` and `kind` name.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let row = table::find_kind(group, version, kind)?;
        self.find(&row.group.into(), &version.into(), &row.plural.into())
    }

    /// Every version, of any group, in which the objects of a kind are served.
    pub fn equivalents<'a>(&'a self, kind: &'a Kind) -> impl Iterator<Item = &'a Arc<Kind>> {
        table::all()
            .flat_map(|row| self.served.versions(row).map(move |version| (row, version)))
            .filter_map(|(row, version)| self.find(&row.group.into(), &version.into(), &row.plural.into()))
            .filter(|other| other.prefix == kind.prefix)
    }

    /// Each stored kind once, in the version the group prefers, in the order of the table.
    pub fn stored_kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        table::all().filter(|row| matches!(row.storage, Storage::Own(_))).filter_map(|row| {
            let version = self.served.versions(row).next()?;
            self.find(&row.group.into(), &version.into(), &row.plural.into())
        })
    }

    /// Which versions are served.
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
            schema: row.schema(version)?,
            conversion: conversion(&gvk),
            resource: GroupResource::new(row.group, row.plural),
            namespaced: row.is_namespaced(),
            prefix: format!("/registry/{directory}/{}/", row.plural),
            head: encode::head(&gvk.api_version(), row.kind),
            stored_head: encode::head(&stored.api_version(), row.kind),
            row,
            gvk,
            stored,
        })
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
            self.row.plural,
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
    pub fn list_kind(&self) -> String {
        format!("{}List", self.gvk.kind)
    }

    /// The subresource called `name`.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.row.subresource(name)
    }

    /// Whether the version of the request has another shape than the stored one.
    pub fn needs_conversion(&self) -> bool {
        self.conversion.is_some()
    }

    /// Whether the version of the request is the stored one.
    pub fn is_stored_version(&self) -> bool {
        self.gvk == self.stored
    }

    /// Brings an object of the request's version into the stored shape, with defaults.
    pub fn to_stored(&self, object: Value) -> Value {
        let mut object = self.to_stored_shape(object);
        resources::defaults::apply(&self.stored.group_kind(), &mut object);
        object
    }

    /// The same, without defaults.
    pub fn to_stored_shape(&self, object: Value) -> Value {
        let mut object = match &self.conversion {
            Some((to_stored, _)) => to_stored(&object),
            None => object,
        };
        object.set_at(&["apiVersion"], self.stored.api_version());
        object
    }

    /// Brings a stored object into the shape of the request's version.
    pub fn from_stored(&self, object: Value) -> Value {
        let mut object = self.from_stored_shape(object);
        if self.conversion.is_some() {
            resources::decode::fill(&mut object, self.schema);
        }
        object
    }

    /// The same of an object that has not been stored yet.
    pub fn from_stored_shape(&self, object: Value) -> Value {
        let mut object = match &self.conversion {
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
        encode::record(&self.stored.api_version(), &self.stored.kind, object, facts)
    }

    fn fields(&self) -> &'static [Field] {
        const METADATA: &[Field] = &[Field::NAME, Field::NAMESPACE];
        match self.row.fields {
            Fields::Metadata => METADATA,
            Fields::These(fields) => fields,
        }
    }

    fn field_values<'a>(&self, object: &'a Value) -> Vec<(&'static str, std::borrow::Cow<'a, str>)> {
        self.fields().iter().map(|field| (field.label, field_value(field, object))).collect()
    }

    /// Kubernetes' refusal of a field that selectors do not know.
    pub fn check_field(&self, label: &str) -> Result<(), Status> {
        self.row.field(&self.gvk.version, label).map(|_| ()).map_err(Status::bad_request)
    }

    /// Whether a PUT of a name that does not exist creates it.
    pub fn creates_on_update(&self, facet: Facet) -> bool {
        facet == Facet::Whole && strategy::allow_create_on_update(&self.stored.group_kind())
    }

    /// The kind that admission is told.
    pub fn admission_kind(&self, facet: Facet) -> GroupVersionKind {
        match facet {
            Facet::Scale => GroupVersionKind::new("autoscaling", "v1", "Scale"),
            _ => self.gvk.clone(),
        }
    }

    /// The schema of what a facet takes.
    pub fn facet_schema(&self, facet: Facet) -> &'static Schema {
        match facet {
            Facet::Scale => resources::schema::of("autoscaling", "v1", "Scale").unwrap_or(self.schema),
            _ => self.schema,
        }
    }

    /// A stored object as a facet shows it, in the version of the request.
    pub fn view(&self, facet: Facet, object: &Value) -> Result<Value, Status> {
        match facet {
            Facet::Scale => Ok(scale::from_object(self.scaled()?, object)),
            _ => Ok(self.from_stored(object.clone())),
        }
    }

    fn scaled(&self) -> Result<scale::Scaled, Status> {
        scale::Scaled::of(&self.stored.group_kind()).ok_or_else(Status::no_such_resource)
    }

    /// The object that a change through a facet asks for.
    pub fn through(&self, facet: Facet, draft: Draft, old: &Value) -> Result<Draft, Status> {
        match facet {
            Facet::Scale => scale::apply(self.scaled()?, old, draft.object()).map(Draft::again),
            _ => Ok(draft),
        }
    }

    /// The rules of the kind: those of the group in the path, where they are stricter than the stored kind's (events).
    pub fn rules(&self) -> Option<&'static Rules> {
        validation::rules(&self.gvk.group_kind()).or_else(|| validation::rules(&self.stored.group_kind()))
    }

    /// The rules for a change through a facet.
    pub fn validate_update(&self, facet: Facet, new: &Value, old: &Value, context: &Context) -> FieldErrors {
        let Some(rules) = self.rules() else { return FieldErrors::new() };
        match facet {
            Facet::Whole | Facet::Scale => (rules.update)(new, old, context),
            Facet::Finalize => validation::core::namespace_finalize(new, old, context),
            Facet::Status => (rules.update_status)(new, old, context),
            Facet::Approval => validation::certificates::approval(new, old, context),
            Facet::EphemeralContainers => validation::pod::update_ephemeral_containers(new, old, context),
            Facet::Resize => validation::pod::update_resize(new, old, context),
        }
    }

    /// The answer for an entry through a facet.
    pub fn answer(&self, facet: Facet, code: u16, entry: Arc<Entry>) -> Result<Answer, Status> {
        match facet {
            Facet::Scale => Ok(Answer::Object(code, self.view(facet, &encode::tree(&entry)?)?)),
            _ => Ok(Answer::Entry(code, entry)),
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
        resources::decode::fill(&mut object, self.schema);
        object
    }

    /// The schema of the stored version.
    pub fn stored_schema(&self) -> &'static Schema {
        resources::schema::of(&self.stored.group, &self.stored.version, &self.stored.kind)
            .unwrap_or(self.schema)
    }

    /// How the kind is printed.
    pub fn table(&self) -> &'static print::TableDef {
        print::table(&self.gvk.group, &self.gvk.kind)
    }
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
