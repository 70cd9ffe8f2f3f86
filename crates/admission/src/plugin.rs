//! The two interfaces of admission plugins: synchronous and asynchronous.

use api::Status;
use value::Value;

use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AdmissionSnapshot, ClusterView, Reinvocation,
    VersionedObject,
};

/// A built-in plugin that decides synchronously, from memory. It runs within the budget of the request
/// ([`AdmissionAttributes::budget`]), which may interrupt it at any access to a tree.
pub trait Plugin: Send + Sync {
    /// May change or reject `object`, which is in the storage version. Not called for deletes.
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let _ = (attributes, object, cluster, notes);
        Ok(())
    }

    /// May reject a delete in the mutating phase, before webhooks are called.
    fn admit_deletion(&self, attributes: &AdmissionAttributes<'_>) -> Result<(), Status> {
        let _ = attributes;
        Ok(())
    }

    /// The stored bytes that `validate` may decode besides single objects. If they are many, the request continues on the threads for
    /// large requests.
    fn stored_bytes_to_validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
    ) -> usize {
        let _ = (attributes, object, cluster);
        0
    }

    /// May reject. `object` is `None` for a delete.
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let _ = (attributes, object, cluster, notes);
        Ok(())
    }
}

pub struct MutatingRequest<'a, 'r> {
    pub attributes: &'a AdmissionAttributes<'r>,
    pub cluster: &'a dyn ClusterView,
    pub notes: &'a mut AdmissionNotes,
    pub reinvocation: &'a mut Reinvocation,
}

/// A plugin that may wait: policies (for authorizer checks), webhooks, quota.
pub trait AsyncPlugin: Send + Sync {
    /// Pins the policies or webhooks that are in force now, for a request that enters admission.
    fn pin_snapshot(&self, snapshot: &AdmissionSnapshot) {
        let _ = snapshot;
    }

    /// May change or reject `object`, which is in the storage version and `None` for a delete.
    fn mutate<'a>(
        &'a self,
        request: &'a mut MutatingRequest<'_, '_>,
        object: Option<&'a mut Value>,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let _ = (request, object);
        Box::pin(std::future::ready(Ok(())))
    }

    /// May reject. The object is absent for a delete.
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        notes: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let _ = (attributes, object, cluster, notes);
        Box::pin(std::future::ready(Ok(())))
    }
}
