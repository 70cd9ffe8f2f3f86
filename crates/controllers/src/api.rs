//! The interface between controllers and the server: [`ClusterReader`] reads the cluster state, [`Api`] adds watches and writes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use api::Status;
use value::{Str, Value};

/// A served resource together with the kind of its objects. Equality compares group, version and plural only.
#[derive(Clone, Debug)]
pub struct ResourceKind {
    /// Empty for the core group.
    pub group: Str,
    /// The version in which controllers read and write it.
    pub version: Str,
    /// Kind name, such as `Pod`.
    pub kind: Str,
    /// Resource name, such as `pods`.
    pub plural: Str,
    pub namespaced: bool,
    pub deletable: bool,
    pub deletes_collections: bool,
    pub stored_by: StoredBy,
}

/// The server that stores the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredBy {
    ThisServer,
    AggregatedServer,
}

/// Namespaced resources of the aggregated API servers.
#[derive(Clone, Debug, Default)]
pub struct AggregatedKinds {
    /// The kinds whose objects can be deleted, without duplicates.
    pub kinds: Vec<Arc<ResourceKind>>,
    /// Group versions whose discovery failed, so that their objects cannot be enumerated.
    pub unknown: Vec<FailedDiscovery>,
}

/// A group version whose aggregated API server answered discovery with an error or an unreadable document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailedDiscovery {
    /// Formatted as `group/version`, such as `metrics.k8s.io/v1beta1`.
    pub version: String,
    /// The discovery error, for messages.
    pub why: String,
}

impl PartialEq for ResourceKind {
    fn eq(&self, other: &Self) -> bool {
        self.group == other.group && self.version == other.version && self.plural == other.plural
    }
}

impl Eq for ResourceKind {}

impl Hash for ResourceKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.group, &self.version, &self.plural).hash(state);
    }
}

impl ResourceKind {
    /// The value of `apiVersion` in its objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Identifies an object by namespace and name; `namespace` is ignored for cluster-scoped kinds.
    pub fn object_ref(self: &Arc<Self>, namespace: &str, name: &str) -> TypedObjectRef {
        let namespace = if self.namespaced { Str::from(namespace) } else { Str::default() };
        TypedObjectRef { kind: Arc::clone(self), namespace, name: name.into() }
    }
}

/// Formats like Go's `GroupVersionResource`: `apps/v1, Resource=deployments`.
impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Resource={}", self.group, self.version, self.plural)
    }
}

/// Identifies one object: kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypedObjectRef {
    pub kind: Arc<ResourceKind>,
    /// Empty for cluster-scoped objects.
    pub namespace: Str,
    pub name: Str,
}

impl fmt::Display for TypedObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.plural, self.name)?;
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " in {}", self.namespace) }
    }
}

/// Reads of the current state. They come from memory and are at least as recent as the last event a watch has returned.
pub trait ClusterReader: Send + Sync {
    /// Looks up the kind for an `apiVersion` and a `kind`.
    fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<ResourceKind>>;

    /// Every kind that this server stores, once, in the preferred version of its group.
    fn kinds(&self) -> Vec<Arc<ResourceKind>>;

    /// Namespaced resources of the aggregated API servers.
    fn aggregated_kinds(&self) -> AggregatedKinds;

    fn get(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status>;

    /// Reads only an object's metadata: `{"metadata": …}`.
    fn metadata(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status>;

    /// Lists the objects of a kind in a namespace; an empty namespace means all of them.
    fn list(&self, kind: &ResourceKind, namespace: &str) -> Result<Vec<Value>, Status>;

    /// Lists the objects of a kind, in all namespaces, that the field selector `field=value` matches.
    fn list_by_field(&self, kind: &ResourceKind, field: &str, value: &str) -> Result<Vec<Value>, Status>;

    /// Lists only the names of the objects of a kind in a namespace, without decoding them.
    fn names(&self, kind: &ResourceKind, namespace: &str) -> Vec<Str>;

    /// Number of objects of a kind in a namespace.
    fn count(&self, kind: &ResourceKind, namespace: &str) -> usize;

    /// Seconds since the Unix epoch.
    fn now(&self) -> i64;

    /// Generates a new UID that no object has.
    fn fresh_uid(&self) -> String;
}

/// Selects the changes that a watch delivers.
#[derive(Clone, Debug)]
pub enum WatchSource {
    /// All objects of one kind.
    Kind(Arc<ResourceKind>),
    /// Objects of one kind with this name, in every namespace.
    Named(Arc<ResourceKind>, Str),
    /// Metadata of objects of all kinds except events, where it matters for garbage collection: objects that have or had owners,
    /// objects that are being deleted, and every deletion.
    Owners,
}

/// A change of one object, as delivered by a watch.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    pub object_ref: TypedObjectRef,
    /// The object, or its last state if it was deleted; only its metadata for [`WatchSource::Owners`].
    pub object: Value,
    pub deleted: bool,
}

#[derive(Debug)]
pub enum ObjectEvent {
    /// An object was added, modified or deleted.
    Change(ObjectChange),
    /// Changes were missed: the caller must list and watch again.
    Lost,
    /// The server is shutting down.
    Closed,
}

/// A stream of changes in the order they happened.
pub trait ChangeStream: Send + 'static {
    /// Waits for the next event. Cancel safe: dropping the future loses no event.
    fn next(&mut self) -> impl Future<Output = ObjectEvent> + Send;
}

#[derive(Clone, Debug)]
pub enum PatchBody {
    /// JSON merge patch (RFC 7386).
    Merge(Value),
    /// Strategic merge patch of Kubernetes.
    Strategic(Value),
    /// Server-side apply by this field manager, which takes over fields of other managers.
    Apply(Value, &'static str),
}

/// Reads, watches, and writes under the controller's own identity.
pub trait Api: ClusterReader + 'static {
    type Watch: ChangeStream;

    /// Lists the current objects and watches from that point on, without a gap.
    fn watch(&self, what: &WatchSource) -> (Vec<ObjectChange>, Self::Watch);

    /// Creates an object and returns it as stored.
    fn create(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        object: &Value,
    ) -> impl Future<Output = Result<Value, Status>> + Send;

    /// Creates an object unless one of its name exists.
    fn create_if_absent(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        object: &Value,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        async move {
            match self.create(kind, namespace, object).await {
                Err(status) if status.reason() != "AlreadyExists" => Err(status),
                _ => Ok(()),
            }
        }
    }

    /// Replaces an object through a subresource; an empty subresource means the object itself.
    fn update(
        &self,
        object_ref: &TypedObjectRef,
        subresource: &str,
        object: &Value,
    ) -> impl Future<Output = Result<Value, Status>> + Send;

    /// Patches an object through a subresource; an empty subresource means the object itself.
    fn patch(
        &self,
        object_ref: &TypedObjectRef,
        subresource: &str,
        patch: &PatchBody,
    ) -> impl Future<Output = Result<Value, Status>> + Send;

    /// Lists the objects of a kind in a namespace from the aggregated API server that stores them.
    fn list_aggregated(
        &self,
        kind: &ResourceKind,
        namespace: &str,
    ) -> impl Future<Output = Result<Vec<Value>, Status>> + Send;

    /// Deletes an object; `options` is a `DeleteOptions`.
    fn delete(
        &self,
        object_ref: &TypedObjectRef,
        options: &Value,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// Deletes every object of a kind in a namespace; `options` is a `DeleteOptions`.
    fn delete_collection(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        options: &Value,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

/// Treats 404 as success, for deletions and changes of an object that may already be gone.
pub(crate) fn unless_gone<T>(outcome: Result<T, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code() != 404 => Err(status),
        _ => Ok(()),
    }
}

/// Builds an object that has only `apiVersion`, `kind`, name and namespace.
pub(crate) fn object(kind: &ResourceKind, namespace: &str, name: &str) -> Value {
    let mut object = Value::map([
        ("apiVersion", Value::from(kind.api_version())),
        ("kind", Value::from(kind.kind.clone())),
    ]);
    object.set_at(&["metadata", "name"], name);
    if !namespace.is_empty() {
        object.set_at(&["metadata", "namespace"], namespace);
    }
    object
}
