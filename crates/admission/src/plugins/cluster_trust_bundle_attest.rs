//! ClusterTrustBundleAttest: writing the trust bundle of a signer requires a permission for that signer.

use api::{Status, meta};

use super::certificates::{SignerPermission, admit, signer};
use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AsyncPlugin, ClusterView, VersionedObject,
};

/// Checks trust bundles that name a signer.
#[derive(Debug)]
pub struct ClusterTrustBundleAttest;

impl AsyncPlugin for ClusterTrustBundleAttest {
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        _: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let about = attributes.resource.resource == "clustertrustbundles"
            && attributes.resource.group == api::groups::CERTIFICATES;
        let Some(new) = object.stored().filter(|_| about) else { return admit() };
        let signer = signer(new);
        let old = attributes.old_object.stored();
        // Updates by the garbage collector or the storage version migrator need no permission for the signer.
        if signer.is_empty() || old.is_some_and(|old| meta::differ_only_in_gc_fields(new, old)) {
            return admit();
        }
        let permission = SignerPermission { verb: "attest", action: "attest for", signer };
        Box::pin(permission.require(attributes, Some(new), cluster))
    }
}
