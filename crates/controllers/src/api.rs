//! What controllers need from outside: [`View`] to look, [`Api`] to be told and to change.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use api::Status;
use value::{Str, Value};

/// A kind of object that is served.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The group; empty for the core group.
    pub group: Str,
    /// The version under which it is read and written here.
    pub version: Str,
    /// `Pod`.
    pub kind: Str,
    /// `pods`.
    pub plural: Str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether its objects can be deleted.
    pub deletable: bool,
    /// Whether they can be deleted all at once.
    pub deletes_collections: bool,
    /// Who keeps them.
    pub home: Home,
}

/// Who keeps the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// This server.
    Here,
    /// Another API server, behind this one.
    Elsewhere,
}

/// What other API servers keep in namespaces.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere {
    /// The kinds whose objects can be deleted, once each.
    pub kinds: Vec<Arc<Kind>>,
    /// The versions of groups of which it is not known what they keep.
    pub unknown: Vec<Unknown>,
}

/// A version of a group whose server does not say what it serves, or nothing that could be understood.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unknown {
    /// `group/version`.
    pub version: String,
    /// What is wrong.
    pub why: String,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.group == other.group && self.version == other.version && self.plural == other.plural
    }
}

impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.group, &self.version, &self.plural).hash(state);
    }
}

impl Kind {
    /// The text of its objects' `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Where the object called `name` is; the namespace counts only for kinds that live in one.
    pub fn place(self: &Arc<Self>, namespace: &str, name: &str) -> Place {
        let namespace = if self.namespaced { Str::from(namespace) } else { Str::default() };
        Place { kind: Arc::clone(self), namespace, name: name.into() }
    }
}

/// As Go prints a resource: `apps/v1, Resource=deployments`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Resource={}", self.group, self.version, self.plural)
    }
}

/// Where one object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its kind.
    pub kind: Arc<Kind>,
    /// Its namespace; empty if it has none.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.plural, self.name)?;
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " in {}", self.namespace) }
    }
}

/// What there is now. Reads come from memory and are never older than the last change a watch has told.
pub trait View: Send + Sync {
    /// The kind that an `apiVersion` and `kind` name.
    fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>>;

    /// Every kind whose objects are stored, once, in the version its group prefers.
    fn kinds(&self) -> Vec<Arc<Kind>>;

    /// What other API servers keep in namespaces.
    fn elsewhere(&self) -> Elsewhere;

    /// An object.
    fn get(&self, place: &Place) -> Result<Option<Value>, Status>;

    /// An object's metadata alone: `{"metadata": …}`.
    fn metadata(&self, place: &Place) -> Result<Option<Value>, Status>;

    /// The objects of a kind in a namespace, or in all of them if it is empty.
    fn list(&self, kind: &Kind, namespace: &str) -> Result<Vec<Value>, Status>;

    /// The objects of a kind, in all namespaces, that a field selector `field=value` chooses.
    fn list_by_field(&self, kind: &Kind, field: &str, value: &str) -> Result<Vec<Value>, Status>;

    /// How many objects of a kind there are in a namespace.
    fn count(&self, kind: &Kind, namespace: &str) -> usize;

    /// Seconds since the epoch.
    fn now(&self) -> i64;

    /// A uid that nothing has yet.
    fn fresh_uid(&self) -> String;
}

/// Which changes to be told of.
#[derive(Clone, Debug)]
pub enum What {
    /// Those of one kind.
    Kind(Arc<Kind>),
    /// Those of objects of one kind that have this name, in every namespace.
    Named(Arc<Kind>, Str),
    /// Those of all kinds but events that can matter to owners and dependents, with nothing but the metadata: an object that
    /// has or had owners, one that is on its way out, and every one that is gone.
    Owners,
}

/// An object as a watch tells of it.
#[derive(Clone, Debug)]
pub struct Change {
    /// Where it is.
    pub place: Place,
    /// The object, or its last state; where only metadata was asked for, that.
    pub object: Value,
    /// Whether it is gone.
    pub deleted: bool,
}

/// What a watch says.
#[derive(Debug)]
pub enum Event {
    /// Something changed.
    Change(Change),
    /// Changes were missed: list and watch anew.
    Lost,
    /// The server stops.
    Closed,
}

/// Changes in the order they happened.
pub trait Watch: Send + 'static {
    /// The next event. Dropping the future loses nothing.
    fn next(&mut self) -> impl Future<Output = Event> + Send;
}

/// How a patch is meant.
#[derive(Clone, Debug)]
pub enum Patch {
    /// JSON merge patch.
    Merge(Value),
    /// Strategic merge patch.
    Strategic(Value),
}

/// Reads, and writes under the controller's own identity.
pub trait Api: View + 'static {
    /// What [`Api::watch`] hands out.
    type Watch: Watch;

    /// What there is, and what happens to it from then on.
    fn watch(&self, what: &What) -> (Vec<Change>, Self::Watch);

    /// Creates an object.
    fn create(
        &self,
        kind: &Kind,
        namespace: &str,
        object: &Value,
    ) -> impl Future<Output = Result<Value, Status>> + Send;

    /// Replaces an object through a subresource; an empty one is the object itself.
    fn update(
        &self,
        place: &Place,
        subresource: &str,
        object: &Value,
    ) -> impl Future<Output = Result<Value, Status>> + Send;

    /// Patches an object through a subresource; an empty one is the object itself.
    fn patch(
        &self,
        place: &Place,
        subresource: &str,
        patch: &Patch,
    ) -> impl Future<Output = Result<Value, Status>> + Send;

    /// The objects of a kind that another API server keeps in a namespace.
    fn list_elsewhere(
        &self,
        kind: &Kind,
        namespace: &str,
    ) -> impl Future<Output = Result<Vec<Value>, Status>> + Send;

    /// Deletes an object with `DeleteOptions`.
    fn delete(&self, place: &Place, options: &Value) -> impl Future<Output = Result<(), Status>> + Send;

    /// Deletes every object of a kind in a namespace with `DeleteOptions`.
    fn delete_collection(
        &self,
        kind: &Kind,
        namespace: &str,
        options: &Value,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

/// Something that is gone already is as good as deleted or changed.
pub(crate) fn unless_gone<T>(outcome: Result<T, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code() != 404 => Err(status),
        _ => Ok(()),
    }
}

/// An object of a kind in a namespace.
pub(crate) fn object(kind: &Kind, namespace: &str, name: &str) -> Value {
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
