//! NamespaceExists: rejects writes in missing namespaces. Off by default.

use api::Status;
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

/// Rejects all writes in missing namespaces.
#[derive(Debug)]
pub struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        _: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let connects = attributes.operation == Operation::Connect;
        if connects || attributes.namespace.is_empty() || attributes.is_kind("", "Namespace") {
            return Ok(());
        }
        super::namespace(attributes, cluster).map(drop)
    }
}
