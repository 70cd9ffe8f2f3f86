//! What the chain may know of the cluster. The server implements it; offline commands implement it over files.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use api::{GroupResource, GroupVersionKind, Status, meta};
use authn::User;
use schema::Link;
use value::{Str, Value};

/// An answer that may have to be waited for.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A resource in one of the versions it is served in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Group and plural name.
    pub resource: GroupResource,
    /// The kind, with its version.
    pub kind: GroupVersionKind,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// Why a policy cannot be evaluated with its parameters.
#[derive(Debug)]
pub enum ParamError {
    /// The policy or its binding cannot be used: what becomes of the request is up to the `failurePolicy`.
    Misconfigured(String),
    /// A stored object that it is evaluated with cannot be read: the request is refused, whatever the `failurePolicy` says.
    Unreadable(Status),
}

impl From<String> for ParamError {
    fn from(why: String) -> Self {
        ParamError::Misconfigured(why)
    }
}

/// The cluster as plugins see it: objects are answered from memory, in their stored shape unless said otherwise.
pub trait Cluster: Send + Sync {
    /// An object of a built-in resource as it is now; `None` if there is none.
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// Every object of a built-in resource, sorted by namespace and name; an empty namespace is all of them.
    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>>;

    /// Every object of any resource, as [`Cluster::list`]. A custom resource may have the group and plural name of a built-in one;
    /// they differ in their versions.
    fn list_of(&self, served: &Served, namespace: &str) -> Vec<Arc<Value>> {
        self.list(&served.resource.group, &served.resource.resource, namespace)
    }

    /// The names of the objects of any resource in a namespace, or of a cluster-scoped resource, sorted.
    fn names_of(&self, served: &Served, namespace: &str) -> Vec<Str> {
        self.list_of(served, namespace).iter().map(|object| meta::name(object).into()).collect()
    }

    /// An object of any resource as clients of `served` read it now: a custom resource is pruned, defaulted and converted by its
    /// CRD as that is now, whatever it was when the object was written. `None` if there is none.
    fn shown<'a>(
        &'a self,
        served: &'a Served,
        namespace: &'a str,
        name: &'a str,
    ) -> Later<'a, Result<Option<Arc<Value>>, ParamError>> {
        Box::pin(async move {
            let Served { resource, kind, .. } = served;
            let Some(object) = self.object(&resource.group, &resource.resource, namespace, name) else {
                return Ok(None);
            };
            Ok(Some(Arc::new(self.convert(&object, kind).await?)))
        })
    }

    /// Whether a resource is a custom one in this version, though its group and plural name may be those of a built-in one.
    fn is_custom(&self, resource: &GroupResource, version: &str) -> bool {
        let _ = (resource, version);
        false
    }

    /// As [`Cluster::object`], but waits a moment for one that somebody is about to make.
    fn appears<'a>(
        &'a self,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> Later<'a, Option<Arc<Value>>> {
        Box::pin(std::future::ready(self.object(group, resource, namespace, name)))
    }

    /// The resource that serves a kind.
    fn served(&self, kind: &GroupVersionKind) -> Option<Served>;

    /// The resource that serves the `paramKind` of a policy. The error is that of a stored CRD which cannot be read: what would be
    /// found without it may be the resource of another CRD.
    fn served_param(&self, kind: &GroupVersionKind) -> Result<Option<Served>, Status> {
        Ok(self.served(kind))
    }

    /// The kinds that a resource of this name, plural or singular, is in a version: of one group, or of any if none is named, as
    /// clients look names up.
    fn named(&self, group: &str, version: &str, name: &str) -> Vec<Served>;

    /// Every group and version in which rules can name the same objects, served or not, the asked one first.
    fn equivalents(&self, resource: &GroupResource, version: &str) -> Vec<Served>;

    /// An object in the shape in which clients of `kind` see it: converted, with what Kubernetes writes even when it is empty.
    /// The error says why not.
    fn convert<'a>(
        &'a self,
        object: &'a Value,
        kind: &'a GroupVersionKind,
    ) -> Later<'a, Result<Value, String>>;

    /// The way back: an object that a client of `kind` could have sent becomes one in its stored shape, with defaults. The request
    /// is worked on as `stored_kind`. Fields that
    /// the kind does not have are an error if `strict`, and dropped otherwise. The error is the decoder's.
    fn adopt<'a>(
        &'a self,
        object: Value,
        kind: &'a GroupVersionKind,
        stored_kind: &'a GroupVersionKind,
        strict: bool,
    ) -> Later<'a, Result<Value, String>>;

    /// The schema of a kind, built-in or custom; of objects of requests that are worked on as `stored_kind`, if that is known.
    fn schema(&self, kind: &GroupVersionKind, stored_kind: Option<&GroupVersionKind>) -> Option<Link>;

    /// Whether this moment has passed.
    fn is_past(&self, deadline: Instant) -> bool;

    /// What the authorization chain says.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a authz::Attributes)
    -> Later<'a, authz::Answer>;
}
