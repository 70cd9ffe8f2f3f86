//! CertificateApproval, CertificateSigning, ClusterTrustBundleAttest and CertificateSubjectRestriction:
//! approving, signing or attesting for a signer requires a permission for that signer, and a client
//! certificate for `system:masters` cannot be requested.

use api::{Status, field, meta};
use authn::User;
use value::{Str, Value};

use crate::{
    AdmissionAttributes, AdmissionNotes, AsyncPlugin, BoxFuture, ClusterView, Operation, Plugin,
    VersionedObject,
};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Checks changes of the `approval` subresource.
#[derive(Debug)]
pub struct CertificateApproval;

/// Checks changes of `status.certificate`.
#[derive(Debug)]
pub struct CertificateSigning;

/// Checks trust bundles that name a signer.
#[derive(Debug)]
pub struct ClusterTrustBundleAttest;

/// Checks the subjects of client certificate requests.
#[derive(Debug)]
pub struct CertificateSubjectRestriction;

impl AsyncPlugin for CertificateApproval {
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        _: &'a mut AdmissionNotes,
    ) -> BoxFuture<'a, Result<(), Status>> {
        let about = is_request(attributes, "approval") && attributes.operation == Operation::Update;
        let Some(old) = attributes.old_object.stored().filter(|_| about) else { return admit() };
        // The signer of the stored request counts: the update could name another.
        let signer = signer(old);
        let permission = SignerPermission { verb: "approve", action: "approve requests with", signer };
        Box::pin(permission.require(attributes, object.stored(), cluster))
    }
}

impl AsyncPlugin for CertificateSigning {
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        _: &'a mut AdmissionNotes,
    ) -> BoxFuture<'a, Result<(), Status>> {
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

impl AsyncPlugin for ClusterTrustBundleAttest {
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        _: &'a mut AdmissionNotes,
    ) -> BoxFuture<'a, Result<(), Status>> {
        let about =
            attributes.resource.resource == "clustertrustbundles" && attributes.resource.group == GROUP;
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
        if signer(request) != CLIENT_SIGNER {
            return Ok(());
        }
        let pem = request.str_at(&["spec", "request"]).unwrap_or_default();
        let parsed = kinds::validation::certificates::certificate_request(pem)
            .map_err(|why| attributes.refuse(object, format!("failed to parse CSR: {why}")))?;
        if parsed.subject.organizations.iter().any(|group| group == authn::names::MASTERS) {
            let why = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
            return Err(attributes.refuse(object, why));
        }
        Ok(())
    }
}

/// A permission for a signer, and how the error names it.
struct SignerPermission<'a> {
    verb: &'static str,
    action: &'static str,
    signer: &'a str,
}

impl SignerPermission<'_> {
    async fn require(
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

fn admit<'a>() -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(std::future::ready(Ok(())))
}

fn is_request(attributes: &AdmissionAttributes<'_>, subresource: &str) -> bool {
    attributes.subresource == subresource
        && attributes.resource.resource == REQUESTS
        && attributes.resource.group == GROUP
}

fn signer(object: &Value) -> &str {
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
            ..authz::AuthorizationAttributes::resource(Str::new_static(verb), GROUP, "signers")
        };
        let answer = cluster.authorize(user, &question).await;
        if answer.error.is_none() && answer.decision == authz::Decision::Allow {
            return true;
        }
    }
    false
}
