//! Types of the resource table: a row ([`Resource`]) and its parts.

use api::features::Feature;
use schema::Schema;
use value::Value;

use super::KindBehavior;
use crate::convert::events;

/// A built-in kind as a REST resource.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The preferred version comes first.
    pub versions: &'static [VersionRow],
    pub kind: &'static str,
    /// Plural name as used in URLs, for example `pods`.
    pub plural: &'static str,
    pub singular: &'static str,
    /// Short names that kubectl accepts, for example `po`.
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: Scope,
    pub verbs: &'static [Verb],
    /// Subresources, sorted by name.
    pub subresources: &'static [SubresourceRow],
    pub storage: KindStorage,
    /// Storage directory where it differs from the plural name. See [`Resource::directory`].
    pub directory: Option<&'static str>,
    /// Storage version of Kubernetes 1.37 where ours differs; discovery's storage version hash is computed from it.
    pub hashed_version: Option<&'static str>,
    pub fields: SelectableFields,
    /// True if a completed deletion returns the object instead of a `Status`, in every version.
    pub returns_deleted: bool,
    /// The feature without which no version is served.
    pub feature: Option<Feature>,
    pub behavior: KindBehavior,
}

/// Conversion between a version and the storage version, for versions whose fields differ.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    pub to_stored: fn(&Value) -> Value,
    pub from_stored: fn(&Value) -> Value,
}

#[derive(Clone, Copy, Debug)]
pub struct VersionRow {
    pub name: &'static str,
    /// Warning header sent with responses of this version.
    pub deprecation: Option<&'static str>,
    /// True if a completed deletion returns the object in this version but a `Status` in others.
    pub returns_deleted: bool,
    /// `None` where objects have the fields of the storage version.
    pub conversion: Option<Conversion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// Request verbs as discovery and authorization name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

#[derive(Clone, Copy, Debug)]
pub struct SubresourceRow {
    /// Last segment of the URL, for example `status`.
    pub name: &'static str,
    /// Kind of the request and response bodies, or of the options if `connect` is set.
    pub kind: &'static str,
    /// Group and version of that kind, where they differ from the parent's.
    pub group_version: Option<(&'static str, &'static str)>,
    pub verbs: &'static [Verb],
    /// True for subresources that forward the connection (`exec`, `proxy`); admission sees them as CONNECT.
    pub connect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindStorage {
    /// In the kind's own directory, in this version.
    Own(&'static str),
    /// In the directory of another group, in the form of that group and version.
    With(&'static str, &'static str),
    /// Requests are answered and not stored.
    Nowhere,
}

/// Fields that field selectors support.
#[derive(Clone, Copy, Debug)]
pub enum SelectableFields {
    /// Only `metadata.name` and `metadata.namespace`.
    Metadata,
    These(&'static [SelectableField]),
}

/// A field that field selectors support.
#[derive(Clone, Copy, Debug)]
pub struct SelectableField {
    /// Name in the selector.
    pub label: &'static str,
    /// Paths of the value in the object; the first path that exists wins. A list on a path stands for its first item.
    pub paths: &'static [&'static [&'static str]],
    /// Value if none of the paths exists.
    pub default: &'static str,
}

/// Common sets of verbs.
pub mod verbs {
    use crate::table::row::Verb;

    pub const ALL: &[Verb] = &[
        Verb::Create,
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ];
    pub const ALL_BUT_DELETE_COLLECTION: &[Verb] =
        &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
    pub const GET_PATCH_UPDATE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
    pub const CREATE: &[Verb] = &[Verb::Create];
    pub const GET: &[Verb] = &[Verb::Get];
    pub const GET_LIST: &[Verb] = &[Verb::Get, Verb::List];
    pub const UPDATE: &[Verb] = &[Verb::Update];
    /// Verbs of streaming subresources: GET, or POST for clients that cannot upgrade a GET.
    pub const CREATE_GET: &[Verb] = &[Verb::Create, Verb::Get];
    /// Verbs of `proxy` subresources, which accept every method.
    pub const PROXY: &[Verb] = &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update];
}

impl Verb {
    /// Name in discovery and authorization.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }
}

impl VersionRow {
    pub const fn new(name: &'static str) -> Self {
        VersionRow { name, deprecation: None, returns_deleted: false, conversion: None }
    }

    /// A version whose responses carry a deprecation warning.
    pub const fn deprecated(name: &'static str, warning: &'static str) -> Self {
        VersionRow { name, deprecation: Some(warning), returns_deleted: false, conversion: None }
    }

    /// First release that no longer serves the version, read from its warning (for example `1.39`). Empty if unknown.
    pub fn removed_release(&self) -> &'static str {
        let rest = self.deprecation.and_then(|warning| warning.split_once("unavailable in v"));
        rest.and_then(|(_, rest)| rest.split_once('+')).map_or("", |(release, _)| release)
    }

    /// Makes completed deletions in this version return the object instead of a `Status`.
    #[must_use]
    pub const fn returning_deleted(self) -> Self {
        VersionRow { returns_deleted: true, ..self }
    }

    /// Declares the conversion between this version and the storage version.
    #[must_use]
    pub const fn converted(self, to_stored: fn(&Value) -> Value, from_stored: fn(&Value) -> Value) -> Self {
        VersionRow { conversion: Some(Conversion { to_stored, from_stored }), ..self }
    }
}

impl SubresourceRow {
    /// The `status` subresource, which has the kind of its parent.
    pub const fn status(kind: &'static str) -> Self {
        SubresourceRow::new("status", kind, verbs::GET_PATCH_UPDATE)
    }

    /// The `scale` subresource, whose kind is `autoscaling/v1` Scale.
    pub const fn scale() -> Self {
        SubresourceRow {
            group_version: Some(("autoscaling", "v1")),
            ..SubresourceRow::new("scale", "Scale", verbs::GET_PATCH_UPDATE)
        }
    }

    /// A subresource whose kind is in the parent's group and version.
    pub const fn new(name: &'static str, kind: &'static str, verbs: &'static [Verb]) -> Self {
        SubresourceRow { name, kind, group_version: None, verbs, connect: false }
    }

    /// A subresource that forwards the connection.
    pub const fn connect(name: &'static str, options: &'static str, verbs: &'static [Verb]) -> Self {
        SubresourceRow { connect: true, ..SubresourceRow::new(name, options, verbs) }
    }
}

impl SelectableField {
    /// A field that is empty when its paths do not exist.
    pub const fn new(label: &'static str, paths: &'static [&'static [&'static str]]) -> Self {
        SelectableField { label, paths, default: "" }
    }

    pub const NAME: SelectableField = SelectableField::new("metadata.name", &[&["metadata", "name"]]);
    pub const NAMESPACE: SelectableField =
        SelectableField::new("metadata.namespace", &[&["metadata", "namespace"]]);
}

const V1: &[VersionRow] = &[VersionRow::new("v1")];

impl Resource {
    /// Returns true if a completed deletion in this version returns the object instead of a `Status`.
    pub fn returns_deleted_in(&self, version: &str) -> bool {
        self.returns_deleted || self.versions.iter().any(|one| one.name == version && one.returns_deleted)
    }

    /// A namespaced kind with every verb, stored as `v1`.
    pub const fn namespaced(behavior: KindBehavior) -> Resource {
        Resource {
            group: "",
            versions: V1,
            kind: "",
            plural: "",
            singular: "",
            short_names: &[],
            categories: &[],
            scope: Scope::Namespaced,
            verbs: verbs::ALL,
            subresources: &[],
            storage: KindStorage::Own("v1"),
            directory: None,
            hashed_version: None,
            fields: SelectableFields::Metadata,
            returns_deleted: false,
            feature: None,
            behavior,
        }
    }

    /// A cluster-scoped kind with every verb, stored as `v1`.
    pub const fn cluster(behavior: KindBehavior) -> Resource {
        Resource { scope: Scope::Cluster, ..Resource::namespaced(behavior) }
    }

    /// A cluster-scoped kind that can only be created and is not stored.
    pub const fn unstored(behavior: KindBehavior) -> Resource {
        Resource { verbs: verbs::CREATE, storage: KindStorage::Nowhere, ..Resource::cluster(behavior) }
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn version(&self, name: &str) -> Option<&'static VersionRow> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub fn subresource(&self, name: &str) -> Option<&'static SubresourceRow> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Returns true if the kind has a `status` subresource.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The row in whose form the objects are stored: another one for resources that share their objects with it.
    pub fn storing_row(&'static self) -> &'static Resource {
        match self.storage {
            KindStorage::With(group, version) => super::find_kind(group, version, self.kind).unwrap_or(self),
            _ => self,
        }
    }

    /// The name of a selectable field in the stored object, if it differs.
    pub fn stored_field(&self, label: &str) -> Option<String> {
        match (self.storage, self.kind) {
            (KindStorage::With("", _), "Event") => events::core_field(label),
            _ => None,
        }
    }

    /// Finds a field selector's field by its label. The error for an unknown label is kube-apiserver's message.
    pub fn field(&self, version: &str, label: &str) -> Result<SelectableField, String> {
        match self.fields {
            SelectableFields::Metadata => match label {
                "metadata.name" => Ok(SelectableField::NAME),
                "metadata.namespace" => Ok(SelectableField::NAMESPACE),
                _ => Err(format!(
                    r#""{label}" is not a known field selector: only "metadata.name", "metadata.namespace""#
                )),
            },
            SelectableFields::These(fields) => {
                fields.iter().copied().find(|field| field.label == label).ok_or_else(|| {
                    if self.kind == "ResourceSlice" {
                        format!(
                            "field label not supported for {}/{version}, Kind={}: {label}",
                            self.group, self.kind
                        )
                    } else if self.kind == "Job" {
                        format!("field label {} not supported for Job", api::field::quote(label))
                    } else {
                        format!("field label not supported: {label}")
                    }
                })
            }
        }
    }

    pub fn schema(&self, version: &str) -> Option<&'static Schema> {
        schema::of(self.group, version, self.kind)
    }
}
