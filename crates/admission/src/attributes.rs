//! What an admission plugin is told about a request.

use std::sync::OnceLock;
use std::time::Instant;

use api::attestation;
use api::{GroupResource, GroupVersionKind, Status, StatusCause, StatusDetails};
use authn::User;
use value::{Str, Value};

use crate::{Cluster, InForce};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new object, or a subresource that is posted to.
    Create,
    /// A changed object.
    Update,
    /// An object is deleted.
    Delete,
    /// A connection to a node or pod is opened.
    Connect,
}

impl Operation {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// A request as admission sees it.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// What for.
    pub operation: Operation,
    /// The kind of the object, in the version of the request.
    pub kind: GroupVersionKind,
    /// The kind in whose version plugins get the object: the one it is stored in.
    pub stored_kind: GroupVersionKind,
    /// The resource in the request's path.
    pub resource: GroupResource,
    /// The version in the request's path.
    pub version: Str,
    /// The subresource, empty for the object itself.
    pub subresource: Str,
    /// The namespace, empty for cluster-wide objects.
    pub namespace: Str,
    /// The name; empty before a generated one is known.
    pub name: Str,
    /// The object before the change.
    pub old_object: Seen<'a>,
    /// The options of the request (`CreateOptions`, …); null where it has none.
    pub options: &'a Value,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// When the request came in, in seconds since the epoch.
    pub now: i64,
    /// When it must be answered, if there is a limit.
    pub deadline: Option<Instant>,
    /// The policies and webhooks that decide it.
    pub in_force: InForce,
}

impl Attributes<'_> {
    /// 403 in the words of an admission plugin.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> Status {
        Status::forbidden(&self.resource, &self.name, why)
    }

    /// 403 in the words of an admission plugin that has the object before it: one that has no name yet is known by the
    /// beginning of the name that it will have.
    pub fn refuse(&self, object: Option<&Value>, why: impl std::fmt::Display) -> Status {
        if !self.name.is_empty() {
            return self.forbidden(why);
        }
        let field =
            |field| object.map(|object| api::meta::text(object, field)).filter(|text| !text.is_empty());
        let name = field("name").or_else(|| field("generateName")).unwrap_or("Unknown");
        Status::forbidden(&self.resource, name, why)
    }

    /// 403 with a cause.
    pub fn forbidden_because(&self, why: impl std::fmt::Display, cause: StatusCause) -> Status {
        let details = StatusDetails {
            name: self.name.to_string(),
            group: self.resource.group.clone(),
            kind: self.resource.resource.clone(),
            causes: vec![cause],
            ..StatusDetails::default()
        };
        self.forbidden(why).with_details(details)
    }

    /// Whether the object is of a kind of a group, in any version.
    pub fn is_kind(&self, group: &str, kind: &str) -> bool {
        self.kind.group == group && self.kind.kind == kind
    }

    /// Whether the server itself asks for a token that it wants to show to a webhook.
    pub fn is_for_own_token(&self) -> bool {
        self.resource.group.is_empty()
            && self.resource.resource == "serviceaccounts"
            && self.subresource == "token"
            && self.namespace == attestation::ACCOUNT_NAMESPACE
            && self.name == attestation::ACCOUNT_NAME
            && self.user.name == authn::names::API_SERVER
    }

    /// Whether the request is about this resource itself, not a subresource.
    pub fn is_resource(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource && self.subresource.is_empty()
    }
}

/// An object as the server has it, and as clients of the request's version see it; the second is made once, when asked for.
#[derive(Clone, Debug, Default)]
pub struct Seen<'a> {
    object: Option<&'a Value>,
    shown: OnceLock<Result<Value, String>>,
}

impl<'a> Seen<'a> {
    /// Nothing.
    pub fn nothing() -> Self {
        Seen::default()
    }

    /// This object, in its stored shape.
    pub fn new(object: Option<&'a Value>) -> Self {
        Seen { object, shown: OnceLock::new() }
    }

    /// The object in its stored shape.
    pub fn stored(&self) -> Option<&'a Value> {
        self.object
    }

    /// The object as clients of `kind` see it. All calls on one `Seen` must name one kind.
    pub async fn shown(
        &self,
        kind: &GroupVersionKind,
        cluster: &dyn Cluster,
    ) -> Result<Option<&Value>, String> {
        let Some(object) = self.object else { return Ok(None) };
        let shown = match self.shown.get() {
            Some(shown) => shown,
            None => {
                let converted = cluster.convert(object, kind).await;
                self.shown.get_or_init(|| converted)
            }
        };
        shown.as_ref().map(Some).map_err(Clone::clone)
    }
}
