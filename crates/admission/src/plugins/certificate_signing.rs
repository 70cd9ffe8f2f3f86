//! CertificateSigning: issuing a certificate requires a permission for its signer.

use api::Status;

use super::certificates::{SignerPermission, admit, is_request, signer};
use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AsyncPlugin, ClusterView, Operation,
    VersionedObject,
};

/// Checks changes of `status.certificate`.
#[derive(Debug)]
pub struct CertificateSigning;

impl AsyncPlugin for CertificateSigning {
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        _: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let about = is_request(attributes, "status") && attributes.operation == Operation::Update;
        let old = attributes.old_object.stored().filter(|_| about);
        let (Some(old), Some(new)) = (old, object.stored()) else { return admit() };
        let unchanged = |field| old.at(&["status", field]) == new.at(&["status", field]);
        if unchanged("certificate") && unchanged("conditions") {
            return admit();
        }
        let signer = signer(old);
        let permission = SignerPermission { verb: "sign", action: "sign requests with", signer };
        Box::pin(permission.require(attributes, Some(new), cluster))
    }
}
