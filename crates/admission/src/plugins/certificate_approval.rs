//! CertificateApproval: approving a certificate request requires a permission for its signer.

use api::Status;

use super::certificates::{SignerPermission, admit, is_request, signer};
use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AsyncPlugin, ClusterView, Operation,
    VersionedObject,
};

/// Checks changes of the `approval` subresource.
#[derive(Debug)]
pub struct CertificateApproval;

impl AsyncPlugin for CertificateApproval {
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        _: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let about = is_request(attributes, "approval") && attributes.operation == Operation::Update;
        let Some(old) = attributes.old_object.stored().filter(|_| about) else { return admit() };
        // The signer of the stored request counts: the update could name another.
        let signer = signer(old);
        let permission = SignerPermission { verb: "approve", action: "approve requests with", signer };
        Box::pin(permission.require(attributes, object.stored(), cluster))
    }
}
