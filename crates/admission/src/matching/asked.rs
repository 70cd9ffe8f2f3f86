//! A request on its way past webhooks and policies.

use std::sync::{Arc, OnceLock};

use api::{GroupResource, Status, meta};
use value::Value;

use super::Match;
use crate::expression::Pace;
use crate::{Attributes, Cluster, Operation, Served};

/// A request, and what is looked up about it, at most once.
pub struct Asked<'a> {
    /// What is asked.
    pub attributes: &'a Attributes<'a>,
    /// The new object in its stored shape; `None` where something is deleted.
    pub object: Option<&'a Value>,
    /// The cluster.
    pub cluster: &'a dyn Cluster,
    itself: OnceLock<Match>,
    namespace: OnceLock<Option<Arc<Value>>>,
    equivalents: OnceLock<Vec<Served>>,
    pace: Pace,
}

impl<'a> Asked<'a> {
    /// A request about `object`.
    pub fn new(attributes: &'a Attributes<'a>, object: Option<&'a Value>, cluster: &'a dyn Cluster) -> Self {
        let (itself, namespace, equivalents) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Asked { attributes, object, cluster, itself, namespace, equivalents, pace: Pace::default() }
    }

    /// What a request matches that matches as it was asked.
    pub fn itself(&self) -> &Match {
        self.itself.get_or_init(|| {
            let Attributes { resource, version, kind, .. } = self.attributes;
            Match { resource: resource.clone(), version: version.clone(), kind: kind.clone() }
        })
    }

    /// The namespace. A namespace is in itself, as Kubernetes tells it to admission.
    pub fn namespace(&self) -> &'a str {
        let Attributes { namespace, name, .. } = self.attributes;
        if namespace.is_empty() && self.is_namespace() { name } else { namespace }
    }

    /// The name that rules with `resourceNames` look at. A deletion of a collection has no name of its own, and each of its objects
    /// is looked at by the name that it has.
    pub(super) fn name(&self) -> &'a str {
        let Attributes { name, operation, old_object, .. } = self.attributes;
        match old_object.stored() {
            Some(old) if name.is_empty() && *operation == Operation::Delete => meta::name(old),
            _ => name,
        }
    }

    /// Whether the request is about a namespace or a subresource of one.
    pub(super) fn is_namespace(&self) -> bool {
        let resource = &self.attributes.resource;
        resource.group.is_empty() && resource.resource == "namespaces"
    }

    /// The namespace as it is stored.
    pub fn namespace_object(&self) -> Option<&Value> {
        let look = || {
            let name = self.namespace();
            if name.is_empty() { None } else { self.cluster.object("", "namespaces", "", name) }
        };
        self.namespace.get_or_init(look).as_deref()
    }

    /// The object whose labels a namespace selector looks at. While a namespace is written, that is what it will be.
    pub(super) fn selected_namespace(&self) -> Result<&Value, Status> {
        let written = matches!(self.attributes.operation, Operation::Create | Operation::Update);
        if written
            && self.attributes.resource.resource == "namespaces"
            && self.attributes.subresource.is_empty()
            && let Some(object) = self.object
        {
            return Ok(object);
        }
        self.namespace_object()
            .ok_or_else(|| Status::not_found(&GroupResource::new("", "namespaces"), self.namespace()))
    }

    /// How much was evaluated since others could run.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Lets others run if much was evaluated; refuses a request that is late.
    pub async fn rest(&self) -> Result<(), Status> {
        if self.pace.is_due() {
            self.pace.rest().await;
            self.in_time()?;
        }
        Ok(())
    }

    /// Refuses a request that is late.
    pub fn in_time(&self) -> Result<(), Status> {
        let late = self.attributes.deadline.is_some_and(|deadline| self.cluster.is_past(deadline));
        if late { Err(Self::too_late()) } else { Ok(()) }
    }

    /// What a request is told whose time is up.
    pub fn too_late() -> Status {
        Status::timeout("request did not complete within requested timeout", 0)
    }

    /// Every group and version in which rules can name the same objects.
    pub fn equivalents(&self) -> &[Served] {
        self.equivalents.get_or_init(|| {
            let Attributes { resource, version, .. } = self.attributes;
            self.cluster.equivalents(resource, version)
        })
    }
}
