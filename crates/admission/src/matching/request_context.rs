//! A request while webhooks and policies are matched against it.

use std::sync::{Arc, OnceLock};

use api::{GroupResource, Status, meta};
use value::Value;

use super::MatchedResource;
use crate::expression::YieldPacer;
use crate::{AdmissionAttributes, ClusterView, Operation, RestMapping};

/// A request with cached lookups: each is done at most once.
pub struct RequestContext<'a> {
    pub attributes: &'a AdmissionAttributes<'a>,
    /// The new object in the storage version; `None` for a delete.
    pub object: Option<&'a Value>,
    pub cluster: &'a dyn ClusterView,
    own_match: OnceLock<MatchedResource>,
    namespace: OnceLock<Option<Arc<Value>>>,
    equivalents: OnceLock<Vec<RestMapping>>,
    pacer: YieldPacer,
}

impl<'a> RequestContext<'a> {
    pub fn new(
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a dyn ClusterView,
    ) -> Self {
        let (own_match, namespace, equivalents) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        RequestContext {
            attributes,
            object,
            cluster,
            own_match,
            namespace,
            equivalents,
            pacer: YieldPacer::default(),
        }
    }

    /// The match of rules that name the requested resource itself.
    pub fn own_match(&self) -> &MatchedResource {
        self.own_match.get_or_init(|| {
            let AdmissionAttributes { resource, version, kind, .. } = self.attributes;
            MatchedResource { resource: resource.clone(), version: version.clone(), kind: kind.clone() }
        })
    }

    /// The namespace. For a namespace this is its own name, as in Kubernetes' admission.
    pub fn namespace(&self) -> &'a str {
        let AdmissionAttributes { namespace, name, .. } = self.attributes;
        if namespace.is_empty() && self.is_namespace() { name } else { namespace }
    }

    /// The name that `resourceNames` is compared with. In a delete of a collection, each object is matched by
    /// its own name.
    pub(super) fn name(&self) -> &'a str {
        let AdmissionAttributes { name, operation, old_object, .. } = self.attributes;
        match old_object.stored() {
            Some(old) if name.is_empty() && *operation == Operation::Delete => meta::name(old),
            _ => name,
        }
    }

    /// Whether the request is for a namespace or a subresource of one.
    pub(super) fn is_namespace(&self) -> bool {
        let resource = &self.attributes.resource;
        resource.group.is_empty() && resource.resource == "namespaces"
    }

    /// The stored Namespace object of the request; `None` for cluster-scoped objects or if it does not exist.
    pub fn namespace_object(&self) -> Option<&Value> {
        let look = || {
            let name = self.namespace();
            if name.is_empty() { None } else { self.cluster.object("", "namespaces", "", name) }
        };
        self.namespace.get_or_init(look).as_deref()
    }

    /// The object whose labels a namespace selector is matched with. While a namespace is written, this is
    /// the new namespace.
    pub(super) fn selected_namespace(&self) -> Result<&Value, Status> {
        let written = self.attributes.operation.is_write();
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

    pub fn pacer(&self) -> &YieldPacer {
        &self.pacer
    }

    /// Yields if due, then checks the deadline.
    pub async fn yield_if_due(&self) -> Result<(), Status> {
        if self.pacer.is_due() {
            self.pacer.yield_now().await;
            self.check_deadline()?;
        }
        Ok(())
    }

    /// Fails with 504 after the request's deadline.
    pub fn check_deadline(&self) -> Result<(), Status> {
        let late = self.attributes.deadline.is_some_and(|deadline| self.cluster.is_past(deadline));
        if late { Err(Self::deadline_exceeded()) } else { Ok(()) }
    }

    pub fn deadline_exceeded() -> Status {
        Status::timeout("request did not complete within requested timeout", 0)
    }

    /// Every group and version under which rules can name the same objects.
    pub fn equivalents(&self) -> &[RestMapping] {
        self.equivalents.get_or_init(|| {
            let AdmissionAttributes { resource, version, .. } = self.attributes;
            self.cluster.equivalents(resource, version)
        })
    }
}
