//! The attributes of a request that admission plugins see.

use std::sync::OnceLock;
use std::time::Instant;

use api::attestation;
use api::{GroupResource, GroupVersionKind, Status, StatusCause};
use authn::User;
use value::{Budget, Str, Value, steps};

use crate::{AdmissionSnapshot, ClusterView};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Creates an object, or posts to a subresource.
    Create,
    Update,
    Delete,
    /// Opens a connection to a node, pod or service.
    Connect,
}

impl Operation {
    /// The value of `operation` in rules and reviews: `CREATE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    /// True for the operations that write an object: create and update.
    pub fn is_write(self) -> bool {
        matches!(self, Operation::Create | Operation::Update)
    }
}

/// The request attributes of admission. Compare `authz::AuthorizationAttributes`, which authorization sees.
#[derive(Clone, Debug)]
pub struct AdmissionAttributes<'a> {
    pub user: &'a User,
    pub operation: Operation,
    /// The kind of the object in the version of the request.
    pub kind: GroupVersionKind,
    /// The kind in the version in which plugins see the object, which is the storage version.
    pub stored_kind: GroupVersionKind,
    pub resource: GroupResource,
    pub version: Str,
    /// Empty if the request is for the object itself.
    pub subresource: Str,
    /// Empty for cluster-scoped objects.
    pub namespace: Str,
    /// Empty as long as a name is still to be generated.
    pub name: Str,
    /// The stored object before an update or delete.
    pub old_object: VersionedObject<'a>,
    /// The request options (`CreateOptions`, …); null if the request has none.
    pub options: &'a Value,
    pub dry_run: bool,
    /// The request's arrival time in seconds since the Unix epoch.
    pub now: i64,
    /// The time by which the request must be answered; `None` without a timeout.
    pub deadline: Option<Instant>,
    /// The steps that the request may still take. Every synchronous plugin runs within it.
    pub budget: Budget,
    /// The policies and webhooks that decide this request.
    pub snapshot: AdmissionSnapshot,
}

impl AdmissionAttributes<'_> {
    /// Runs synchronous work of a plugin, and takes its accesses to trees from the request's budget. The error is the answer to the
    /// request whose budget has ended.
    pub fn within_budget(&self, work: impl FnOnce() -> Result<(), Status>) -> Result<(), Status> {
        steps::within(&self.budget, work).unwrap_or_else(|ended| Err(Status::of_ended_budget(ended)))
    }

    /// 403 for the object named in the request.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> Status {
        Status::forbidden(&self.resource, &self.name, why)
    }

    /// 403 for `object`. An object without a name is identified by its `generateName`, as kube-apiserver
    /// does.
    pub fn refuse(&self, object: Option<&Value>, why: impl std::fmt::Display) -> Status {
        if !self.name.is_empty() {
            return self.forbidden(why);
        }
        let field =
            |field| object.map(|object| api::meta::text(object, field)).filter(|text| !text.is_empty());
        let name = field("name").or_else(|| field("generateName")).unwrap_or("Unknown");
        Status::forbidden(&self.resource, name, why)
    }

    /// 403 with one cause in its details.
    pub fn forbidden_because(&self, why: impl std::fmt::Display, cause: StatusCause) -> Status {
        Status::forbidden_with_cause(&self.resource, &self.name, why, cause)
    }

    /// Whether the request's object is of this group and kind, in any version.
    pub fn is_kind(&self, group: &str, kind: &str) -> bool {
        self.kind.group == group && self.kind.kind == kind
    }

    /// Whether this is the server's own TokenRequest for a token that it sends to a webhook.
    pub fn is_for_own_token(&self) -> bool {
        self.resource.group.is_empty()
            && self.resource.resource == "serviceaccounts"
            && self.subresource == "token"
            && self.namespace == attestation::ACCOUNT_NAMESPACE
            && self.name == attestation::ACCOUNT_NAME
            && self.user.name == authn::names::API_SERVER
    }

    /// Whether the request is for this resource itself, not a subresource of it.
    pub fn is_resource(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource && self.subresource.is_empty()
    }

    /// Whether the request creates an object of this resource.
    pub fn creates(&self, group: &str, resource: &str) -> bool {
        self.operation == Operation::Create && self.is_resource(group, resource)
    }

    /// Whether the request creates or updates an object of this resource, not through a subresource.
    pub fn writes(&self, group: &str, resource: &str) -> bool {
        self.operation.is_write() && self.is_resource(group, resource)
    }
}

/// An object in the storage version, with the conversion to the request's version computed at most once.
#[derive(Clone, Debug, Default)]
pub struct VersionedObject<'a> {
    object: Option<&'a Value>,
    in_version: OnceLock<Result<Value, String>>,
}

impl<'a> VersionedObject<'a> {
    pub fn absent() -> Self {
        VersionedObject::default()
    }

    /// `object` is in the storage version.
    pub fn new(object: Option<&'a Value>) -> Self {
        VersionedObject { object, in_version: OnceLock::new() }
    }

    /// The object in the storage version.
    pub fn stored(&self) -> Option<&'a Value> {
        self.object
    }

    /// The object converted to `kind`. The first conversion is cached, so all calls must name the same kind.
    pub async fn in_version(
        &self,
        kind: &GroupVersionKind,
        cluster: &dyn ClusterView,
    ) -> Result<Option<&Value>, String> {
        let Some(object) = self.object else { return Ok(None) };
        let in_version = match self.in_version.get() {
            Some(in_version) => in_version,
            None => {
                let converted = cluster.convert(object, kind).await;
                self.in_version.get_or_init(|| converted)
            }
        };
        in_version.as_ref().map(Some).map_err(Clone::clone)
    }
}
