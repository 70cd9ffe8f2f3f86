//! The permissions for signers that the plugins of `certificates.k8s.io` check.

use api::{Status, field, groups};
use authn::User;
use value::{Str, Value};

use crate::{AdmissionAttributes, AdmissionFuture, ClusterView};

const REQUESTS: &str = "certificatesigningrequests";

/// A permission for a signer, and how the error names it.
pub(super) struct SignerPermission<'a> {
    pub(super) verb: &'static str,
    pub(super) action: &'static str,
    pub(super) signer: &'a str,
}

impl SignerPermission<'_> {
    pub(super) async fn require(
        self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
    ) -> Result<(), Status> {
        if may_use_signer(attributes.user, cluster, self.verb, self.signer).await {
            return Ok(());
        }
        let (action, signer) = (self.action, field::quote(self.signer));
        Err(attributes.refuse(object, format!("user not permitted to {action} signerName {signer}")))
    }
}

pub(super) fn admit<'a>() -> AdmissionFuture<'a, Result<(), Status>> {
    Box::pin(std::future::ready(Ok(())))
}

pub(super) fn is_request(attributes: &AdmissionAttributes<'_>, subresource: &str) -> bool {
    attributes.subresource == subresource
        && attributes.resource.resource == REQUESTS
        && attributes.resource.group == groups::CERTIFICATES
}

pub(super) fn signer(object: &Value) -> &str {
    object.str_at(&["spec", "signerName"]).unwrap_or_default()
}

/// Whether the user may use the verb on this signer, or on all signers of its domain. An authorizer error
/// counts as no.
pub async fn may_use_signer(
    user: &User,
    cluster: &dyn ClusterView,
    verb: &'static str,
    signer: &str,
) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [Str::from(signer), value::format_smolstr!("{domain}/*")] {
        let question = authz::AuthorizationAttributes {
            name,
            ..authz::AuthorizationAttributes::resource(Str::new_static(verb), groups::CERTIFICATES, "signers")
        };
        let answer = cluster.authorize(user, &question).await;
        if answer.error.is_none() && answer.decision == authz::Decision::Allow {
            return true;
        }
    }
    false
}
