//! What a row of the table says.

use schema::Schema;
use value::Value;

use super::KindBehavior;

/// A kind as a REST resource.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The versions it exists in, the preferred one first.
    pub versions: &'static [Version],
    /// `Pod`.
    pub kind: &'static str,
    /// `pods`, as in URLs.
    pub plural: &'static str,
    /// `pod`.
    pub singular: &'static str,
    /// What kubectl also accepts.
    pub short_names: &'static [&'static str],
    /// The sets it belongs to, as `all`.
    pub categories: &'static [&'static str],
    /// Whether its objects live in namespaces.
    pub scope: Scope,
    /// What can be done with it.
    pub verbs: &'static [Verb],
    /// What is below its objects, sorted by name.
    pub subresources: &'static [SubresourceRow],
    /// Where its objects are kept.
    pub storage: Storage,
    /// The storage directory, where it is not the plural name: see [`Resource::directory`].
    pub directory: Option<&'static str>,
    /// The version Kubernetes 1.37 keeps it in, where that is not ours: discovery's storage hash is made of it.
    pub hashed_version: Option<&'static str>,
    /// The fields that field selectors know.
    pub fields: Fields,
    /// Whether the answer to a completed deletion is the object, not a `Status`.
    pub returns_deleted: bool,
    /// Defaults, rules, strategy, warnings and columns.
    pub behavior: KindBehavior,
}

/// How a version whose objects do not look like the stored ones is converted.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    /// From this version to the stored one.
    pub to_stored: fn(&Value) -> Value,
    /// From the stored version to this one.
    pub from_stored: fn(&Value) -> Value,
}

/// A version of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// `v1`.
    pub name: &'static str,
    /// The warning that use of it brings.
    pub deprecation: Option<&'static str>,
    /// Whether the answer to a completed deletion is the object in this version, though it is a `Status` in others.
    pub returns_deleted: bool,
    /// `None` where objects have the fields of the stored version.
    pub conversion: Option<Conversion>,
}

/// Where a kind's objects live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Once in the cluster.
    Cluster,
    /// In namespaces.
    Namespaced,
}

/// What can be done with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// POST.
    Create,
    /// DELETE of one.
    Delete,
    /// DELETE of many.
    DeleteCollection,
    /// GET of one.
    Get,
    /// GET of many.
    List,
    /// PATCH.
    Patch,
    /// PUT.
    Update,
    /// GET of changes.
    Watch,
}

/// Something below an object's URL.
#[derive(Clone, Copy, Debug)]
pub struct SubresourceRow {
    /// `status`, as in URLs.
    pub name: &'static str,
    /// The kind it takes and answers.
    pub kind: &'static str,
    /// The group and version of that kind, where they are not the parent's.
    pub group_version: Option<(&'static str, &'static str)>,
    /// What can be done with it.
    pub verbs: &'static [Verb],
    /// Whether requests are connected through to somewhere else (`exec`, `proxy`): they are admitted as CONNECT.
    pub connect: bool,
}

/// Where a kind's objects are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In a directory of its own, in this version.
    Own(&'static str),
    /// With the objects of another group, in the shape of that group and version.
    With(&'static str, &'static str),
    /// Nowhere: a request is answered and forgotten.
    Nowhere,
}

/// The fields that field selectors know.
#[derive(Clone, Copy, Debug)]
pub enum Fields {
    /// `metadata.name` and `metadata.namespace`.
    Metadata,
    /// Exactly these.
    These(&'static [Field]),
}

/// A field that field selectors know.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name in the selector.
    pub label: &'static str,
    /// Where its value is in the object; the first path that leads to something counts. A list on the way stands for its first item.
    pub paths: &'static [&'static [&'static str]],
    /// The value when none of the paths leads to something.
    pub default: &'static str,
}

/// Sets of verbs.
pub mod verbs {
    use crate::table::row::Verb;

    /// Everything.
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
    /// Everything but deleting many.
    pub const ALL_BUT_DELETE_COLLECTION: &[Verb] =
        &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
    /// Reading and changing what is there.
    pub const GET_PATCH_UPDATE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
    /// Only creating.
    pub const CREATE: &[Verb] = &[Verb::Create];
    /// Only reading one.
    pub const GET: &[Verb] = &[Verb::Get];
    /// Only reading.
    pub const GET_LIST: &[Verb] = &[Verb::Get, Verb::List];
    /// Only changing.
    pub const UPDATE: &[Verb] = &[Verb::Update];
    /// A stream: GET, or POST for clients that cannot upgrade a GET.
    pub const CREATE_GET: &[Verb] = &[Verb::Create, Verb::Get];
    /// A proxy: every method.
    pub const PROXY: &[Verb] = &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update];
}

impl Verb {
    /// The word in discovery and authorization.
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

impl Version {
    /// A version that brings no warning.
    pub const fn new(name: &'static str) -> Self {
        Version { name, deprecation: None, returns_deleted: false, conversion: None }
    }

    /// A version that brings a warning.
    pub const fn deprecated(name: &'static str, warning: &'static str) -> Self {
        Version { name, deprecation: Some(warning), returns_deleted: false, conversion: None }
    }

    /// The first release that no longer serves it, which its warning names: `1.39`. Empty where that is not known.
    pub fn removed_release(&self) -> &'static str {
        let rest = self.deprecation.and_then(|warning| warning.split_once("unavailable in v"));
        rest.and_then(|(_, rest)| rest.split_once('+')).map_or("", |(release, _)| release)
    }

    /// The same, whose deletions are answered with the object.
    #[must_use]
    pub const fn returning_deleted(self) -> Self {
        Version { returns_deleted: true, ..self }
    }

    /// Declares the conversion between this version and the stored one.
    #[must_use]
    pub const fn converted(self, to_stored: fn(&Value) -> Value, from_stored: fn(&Value) -> Value) -> Self {
        Version { conversion: Some(Conversion { to_stored, from_stored }), ..self }
    }
}

impl SubresourceRow {
    /// `status`, for the kind it belongs to.
    pub const fn status(kind: &'static str) -> Self {
        SubresourceRow::new("status", kind, verbs::GET_PATCH_UPDATE)
    }

    /// `scale`.
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

    /// A subresource that is connected through.
    pub const fn connect(name: &'static str, options: &'static str, verbs: &'static [Verb]) -> Self {
        SubresourceRow { connect: true, ..SubresourceRow::new(name, options, verbs) }
    }
}

impl Field {
    /// A field whose label is its path.
    pub const fn new(label: &'static str, paths: &'static [&'static [&'static str]]) -> Self {
        Field { label, paths, default: "" }
    }

    /// `metadata.name`.
    pub const NAME: Field = Field::new("metadata.name", &[&["metadata", "name"]]);
    /// `metadata.namespace`.
    pub const NAMESPACE: Field = Field::new("metadata.namespace", &[&["metadata", "namespace"]]);
}

/// The versions of most kinds.
const V1: &[Version] = &[Version::new("v1")];

impl Resource {
    /// Whether the answer to a completed deletion is the object, not a `Status`, in this version.
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
            storage: Storage::Own("v1"),
            directory: None,
            hashed_version: None,
            fields: Fields::Metadata,
            returns_deleted: false,
            behavior,
        }
    }

    /// A cluster-scoped kind with every verb, stored as `v1`.
    pub const fn cluster(behavior: KindBehavior) -> Resource {
        Resource { scope: Scope::Cluster, ..Resource::namespaced(behavior) }
    }

    /// A cluster-scoped kind whose objects are answered and not stored.
    pub const fn unstored(behavior: KindBehavior) -> Resource {
        Resource { verbs: verbs::CREATE, storage: Storage::Nowhere, ..Resource::cluster(behavior) }
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// The version called `name`.
    pub fn version(&self, name: &str) -> Option<&'static Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The subresource called `name`, if it exists in `version`.
    pub fn subresource(&self, name: &str) -> Option<&'static SubresourceRow> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Whether the status is changed apart from the rest.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Whether `verb` can be done with it.
    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The field that selectors call `label`; the error is Kubernetes' for one that is not known.
    pub fn field(&self, version: &str, label: &str) -> Result<Field, String> {
        match self.fields {
            Fields::Metadata => match label {
                "metadata.name" => Ok(Field::NAME),
                "metadata.namespace" => Ok(Field::NAMESPACE),
                _ => Err(format!(
                    r#""{label}" is not a known field selector: only "metadata.name", "metadata.namespace""#
                )),
            },
            Fields::These(fields) => {
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

    /// The schema of the kind in a version.
    pub fn schema(&self, version: &str) -> Option<&'static Schema> {
        schema::of(self.group, version, self.kind)
    }
}
