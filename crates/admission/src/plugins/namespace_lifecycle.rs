//! NamespaceLifecycle: nothing is created in a namespace that is missing or going away, and the system's own stay.

use api::{GroupResource, Status, StatusCause};
use value::Value;

use crate::{Attributes, Cluster, Notes, Operation, Plugin};

/// The namespaces that cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// See the module.
#[derive(Debug)]
pub struct NamespaceLifecycle;

impl NamespaceLifecycle {
    fn check_deletion(attributes: &Attributes<'_>) -> Result<(), Status> {
        let immortal = attributes.is_kind("", "Namespace")
            && attributes.operation == Operation::Delete
            && IMMORTAL.contains(&attributes.name.as_str());
        if immortal { Err(attributes.forbidden("this namespace may not be deleted")) } else { Ok(()) }
    }

    fn check(attributes: &Attributes<'_>, cluster: &dyn Cluster) -> Result<(), Status> {
        if attributes.is_kind("", "Namespace") {
            return Ok(());
        }
        // An answer about the namespace would tell the caller of an access review what exists.
        let review = attributes.is_kind("authorization.k8s.io", "LocalSubjectAccessReview");
        if attributes.operation != Operation::Create || attributes.namespace.is_empty() || review {
            return Ok(());
        }
        let Some(namespace) = cluster.object("", "namespaces", "", &attributes.namespace) else {
            return Err(Status::not_found(&GroupResource::new("", "namespaces"), &attributes.namespace));
        };
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
        attributes: &Attributes<'_>,
        _: &mut Value,
        cluster: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        Self::check(attributes, cluster)
    }

    fn admit_deletion(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        Self::check_deletion(attributes)
    }

    /// The namespace may have begun to go away since the mutating phase.
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        _: Option<&Value>,
        cluster: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        Self::check(attributes, cluster)
    }
}
