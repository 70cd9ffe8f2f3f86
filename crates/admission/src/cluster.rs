//! Read access to the cluster for plugins. The server implements it from memory; offline commands implement
//! it over files.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use api::{GroupResource, GroupVersionKind, Status, meta};
use authn::User;
use schema::Link;
use value::{Str, Value};

pub type AdmissionFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A resource in one of its served versions; Kubernetes' `meta.RESTMapping`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestMapping {
    pub resource: GroupResource,
    pub kind: GroupVersionKind,
    pub namespaced: bool,
}

/// A policy cannot be evaluated with its parameters.
#[derive(Debug)]
pub enum ParamError {
    /// The policy or its binding is invalid; its `failurePolicy` applies.
    Misconfigured(String),
    /// A stored parameter object or CRD is unreadable; the request fails regardless of the `failurePolicy`.
    Unreadable(Status),
}

impl From<String> for ParamError {
    fn from(why: String) -> Self {
        ParamError::Misconfigured(why)
    }
}

/// An object of a list that is decoded only when it is read.
pub struct UndecodedObject<'a> {
    /// The size of the object as it is stored.
    pub stored_bytes: usize,
    /// The storage key and the revision, which no other object has and no other state of this one. `None` if unknown.
    pub state: Option<(Arc<str>, u64)>,
    decode: Box<dyn Fn() -> Option<Arc<Value>> + Send + 'a>,
}

impl<'a> UndecodedObject<'a> {
    pub fn new(
        stored_bytes: usize,
        state: Option<(Arc<str>, u64)>,
        decode: impl Fn() -> Option<Arc<Value>> + Send + 'a,
    ) -> Self {
        UndecodedObject { stored_bytes, state, decode: Box::new(decode) }
    }

    /// Decodes the object; `None` if it is unreadable.
    pub fn read(&self) -> Option<Arc<Value>> {
        (self.decode)()
    }
}

impl fmt::Debug for UndecodedObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndecodedObject")
            .field("stored_bytes", &self.stored_bytes)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The cluster as plugins see it. Objects come from memory and are in the storage version unless noted
/// otherwise.
pub trait ClusterView: Send + Sync {
    /// The current state of an object of a built-in resource.
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// All objects of a built-in resource, sorted by namespace and name. An empty namespace means all
    /// namespaces.
    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>>;

    /// Like [`ClusterView::list`], for any resource. A custom resource can have the group and plural name of
    /// a built-in one; they differ in their versions.
    fn list_of(&self, rest_mapping: &RestMapping, namespace: &str) -> Vec<Arc<Value>> {
        self.list(&rest_mapping.resource.group, &rest_mapping.resource.resource, namespace)
    }

    /// Like [`ClusterView::list_of`], but decodes no object yet.
    fn list_undecoded(&self, rest_mapping: &RestMapping, namespace: &str) -> Vec<UndecodedObject<'_>> {
        let objects = self.list_of(rest_mapping, namespace).into_iter();
        let undecoded = |object: Arc<Value>| {
            let bytes = object.size_up_to(usize::MAX);
            UndecodedObject::new(bytes, None, move || Some(Arc::clone(&object)))
        };
        objects.map(undecoded).collect()
    }

    /// Must be awaited before synchronous work on so many bytes of stored objects: a server continues the request on its threads for
    /// large requests if they are many.
    fn prepare_for(&self, stored_bytes: usize) -> AdmissionFuture<'_, ()> {
        let _ = stored_bytes;
        Box::pin(std::future::ready(()))
    }

    /// Sorted names of the objects of any resource, in a namespace or cluster-scoped.
    fn names_of(&self, rest_mapping: &RestMapping, namespace: &str) -> Vec<Str> {
        self.list_of(rest_mapping, namespace).iter().map(|object| meta::name(object).into()).collect()
    }

    /// Reads an object as clients of `rest_mapping` do: a custom resource is pruned, defaulted and converted by
    /// its current CRD, not by the CRD that it was written with.
    fn read_as<'a>(
        &'a self,
        rest_mapping: &'a RestMapping,
        namespace: &'a str,
        name: &'a str,
    ) -> AdmissionFuture<'a, Result<Option<Arc<Value>>, ParamError>> {
        Box::pin(async move {
            let RestMapping { resource, kind, .. } = rest_mapping;
            let Some(object) = self.object(&resource.group, &resource.resource, namespace, name) else {
                return Ok(None);
            };
            Ok(Some(Arc::new(self.convert(&object, kind).await?)))
        })
    }

    /// Whether this version of the resource belongs to a CRD, even if group and plural name are those of a
    /// built-in resource.
    fn is_custom(&self, resource: &GroupResource, version: &str) -> bool {
        let _ = (resource, version);
        false
    }

    /// Like [`ClusterView::object`], but waits briefly for an object that is about to be created.
    fn wait_for_object<'a>(
        &'a self,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> AdmissionFuture<'a, Option<Arc<Value>>> {
        Box::pin(std::future::ready(self.object(group, resource, namespace, name)))
    }

    fn rest_mapping(&self, kind: &GroupVersionKind) -> Option<RestMapping>;

    /// Whether this version of a built-in kind is served. A CRD that has the same names does not count.
    fn serves_built_in(&self, kind: &GroupVersionKind) -> bool {
        self.rest_mapping(kind).is_some()
    }

    /// Finds the resource of a policy's `paramKind`. Fails if a stored CRD is unreadable, because the lookup
    /// could then find the resource of another CRD.
    fn param_rest_mapping(&self, kind: &GroupVersionKind) -> Result<Option<RestMapping>, Status> {
        Ok(self.rest_mapping(kind))
    }

    /// Finds resources by plural or singular name in a version, as clients look names up. An empty group
    /// means any group.
    fn rest_mappings_named(&self, group: &str, version: &str, name: &str) -> Vec<RestMapping>;

    /// Every group and version under which rules can name the same objects, served or not; the requested one
    /// comes first.
    fn equivalents(&self, resource: &GroupResource, version: &str) -> Vec<RestMapping>;

    /// Converts an object to `kind`, with the fields that Kubernetes writes even if they are empty. The error
    /// is a message.
    fn convert<'a>(
        &'a self,
        object: &'a Value,
        kind: &'a GroupVersionKind,
    ) -> AdmissionFuture<'a, Result<Value, String>>;

    /// The inverse of [`ClusterView::convert`]: decodes an object that a client of `kind` could have sent,
    /// applies defaults and converts it to `stored_kind`. Unknown fields are an error if `strict`, and are
    /// dropped otherwise. The error is the decoder's message.
    fn to_stored<'a>(
        &'a self,
        object: Value,
        kind: &'a GroupVersionKind,
        stored_kind: &'a GroupVersionKind,
        strict: bool,
    ) -> AdmissionFuture<'a, Result<Value, String>>;

    /// The schema of a built-in or custom kind. `stored_kind` is the storage version that the request works
    /// on, if known.
    fn schema(&self, kind: &GroupVersionKind, stored_kind: Option<&GroupVersionKind>) -> Option<Link>;

    fn is_past(&self, deadline: Instant) -> bool;

    /// Asks the authorizer chain.
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a authz::AuthorizationAttributes,
    ) -> AdmissionFuture<'a, authz::AuthorizerDecision>;
}
