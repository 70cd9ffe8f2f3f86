//! CertificateSubjectRestriction: a client certificate for `system:masters` cannot be requested.

use api::{Status, signers};
use value::Value;

use super::certificates::{is_request, signer};
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

/// Checks the subjects of client certificate requests.
#[derive(Debug)]
pub struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let about = is_request(attributes, "") && attributes.operation == Operation::Create;
        let Some(request) = object.filter(|_| about) else { return Ok(()) };
        if signer(request) != signers::CLIENT {
            return Ok(());
        }
        let pem = request.str_at(&["spec", "request"]).unwrap_or_default();
        let parsed = kinds::validation::certificates::certificate_request(pem)
            .map_err(|why| attributes.refuse(object, format!("failed to parse CSR: {why}")))?;
        if parsed.subject.organizations.iter().any(|group| group == authn::names::MASTERS) {
            let why = format!("use of {} signer with system:masters group is not allowed", signers::CLIENT);
            return Err(attributes.refuse(object, why));
        }
        Ok(())
    }
}
