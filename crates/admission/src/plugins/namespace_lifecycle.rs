//! NamespaceLifecycle: rejects creations in missing or terminating namespaces, and the deletion of system
//! namespaces.

use api::{GroupResource, Status, StatusCause, namespaces};
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

const SYSTEM_NAMESPACES: &[&str] = &[namespaces::DEFAULT, namespaces::SYSTEM, namespaces::PUBLIC];

#[derive(Debug)]
pub struct NamespaceLifecycle;

impl NamespaceLifecycle {
    /// 404 for a create in a namespace that does not exist.
    pub fn missing(namespace: &str) -> Status {
        Status::not_found(&GroupResource::new("", "namespaces"), namespace)
    }

    pub fn is_terminating(namespace: &Value) -> bool {
        namespace.str_at(&["status", "phase"]) == Some("Terminating")
    }

    /// 403 for the creation of the object `name` in a terminating namespace.
    pub fn terminating(resource: &GroupResource, name: &str, namespace: &str) -> Status {
        let cause = StatusCause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        };
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        Status::forbidden_with_cause(resource, name, why, cause)
    }

    fn check_deletion(attributes: &AdmissionAttributes<'_>) -> Result<(), Status> {
        let immortal = attributes.is_kind("", "Namespace")
            && attributes.operation == Operation::Delete
            && SYSTEM_NAMESPACES.contains(&attributes.name.as_str());
        if immortal { Err(attributes.forbidden("this namespace may not be deleted")) } else { Ok(()) }
    }

    fn check(attributes: &AdmissionAttributes<'_>, cluster: &dyn ClusterView) -> Result<(), Status> {
        if attributes.is_kind("", "Namespace") {
            return Ok(());
        }
        // An error about the namespace would reveal to the caller of an access review whether it exists.
        let review = attributes.is_kind("authorization.k8s.io", "LocalSubjectAccessReview");
        if attributes.operation != Operation::Create || attributes.namespace.is_empty() || review {
            return Ok(());
        }
        let namespace = super::namespace(attributes, cluster)?;
        if Self::is_terminating(&namespace) {
            return Err(Self::terminating(&attributes.resource, &attributes.name, &attributes.namespace));
        }
        Ok(())
    }
}

impl Plugin for NamespaceLifecycle {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        _: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        Self::check(attributes, cluster)
    }

    fn admit_deletion(&self, attributes: &AdmissionAttributes<'_>) -> Result<(), Status> {
        Self::check_deletion(attributes)
    }

    /// Checks again: the namespace may have become terminating since the mutating phase.
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        _: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        Self::check(attributes, cluster)
    }
}
