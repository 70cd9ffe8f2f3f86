//! NamespaceLifecycle: rejects creations in missing or terminating namespaces, and the deletion of system
//! namespaces.

use api::{Status, StatusCause};
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

const SYSTEM_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public"];

#[derive(Debug)]
pub struct NamespaceLifecycle;

impl NamespaceLifecycle {
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
        if namespace.str_at(&["status", "phase"]) == Some("Terminating") {
            let name = &attributes.namespace;
            return Err(attributes.forbidden_because(
                format!("unable to create new content in namespace {name} because it is being terminated"),
                StatusCause {
                    reason: "NamespaceTerminating".into(),
                    message: format!("namespace {name} is being terminated"),
                    field: "metadata.namespace".to_owned(),
                },
            ));
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
