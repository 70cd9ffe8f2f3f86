//! What an admission plugin is told about a request.

use api::{Cause, Details, GroupResource, GroupVersionKind, Status};
use authn::User;
use value::{Str, Value};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The kind of the object.
    pub kind: GroupVersionKind,
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
    pub old_object: Option<&'a Value>,
    /// The options of the request (`CreateOptions`, …).
    pub options: &'a Value,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

impl Attributes<'_> {
    /// 403 in the words of an admission plugin.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> Status {
        Status::forbidden(&self.resource, &self.name, why)
    }

    /// 403 with a cause.
    pub fn forbidden_because(&self, why: impl std::fmt::Display, cause: Cause) -> Status {
        let details = Details {
            name: self.name.to_string(),
            group: self.resource.group.clone(),
            kind: self.resource.resource.clone(),
            causes: vec![cause],
            ..Details::default()
        };
        self.forbidden(why).with_details(details)
    }

    /// Whether the object is of a kind of a group, in any version.
    pub fn is_kind(&self, group: &str, kind: &str) -> bool {
        self.kind.group == group && self.kind.kind == kind
    }
}
