//! Issuing, denying or failing a PodCertificateRequest needs the permission to sign for its signer.

use admission::plugins::may_use_signer;
use api::FieldError;
use api::field::quote;
use api::validation::fields;
use catalog::ServedResource;
use value::{Path, Value};

use crate::call::Call;
use crate::state::State;

/// The error if the status changes and the user may not `sign` for the signer of the stored request. Call it only for valid changes.
pub(crate) async fn check_status(
    state: &State,
    call: &Call,
    kind: &ServedResource,
    new: &Value,
    old: &Value,
) -> Option<FieldError> {
    if kind.stored.group != api::groups::CERTIFICATES || kind.stored.kind != "PodCertificateRequest" {
        return None;
    }
    if fields::same(new.at(&["status"]), old.at(&["status"])) {
        return None;
    }
    let signer = old.str_at(&["spec", "signerName"]).unwrap_or_default();
    if may_use_signer(call.user(), state, "sign", signer).await {
        return None;
    }
    let user = quote(&call.user().name);
    let path = Path::root().field("spec").field("signerName");
    let why = format!("User {user} is not permitted to \"sign\" for signer {}", quote(signer));
    Some(FieldError::forbidden(&path, why))
}
