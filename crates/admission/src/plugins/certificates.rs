//! CertificateApproval, CertificateSigning, ClusterTrustBundleAttest and CertificateSubjectRestriction: whoever approves, signs or
//! attests for a signer needs a right to that signer, and nobody gets a certificate for `system:masters` by asking for it.

use api::{Status, field};
use authn::User;
use value::{Str, Value};

use crate::{Attributes, Cluster, Later, Notes, Operation, Plugin, Seen, Stage};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Changes of a request's approval.
#[derive(Debug)]
pub struct CertificateApproval;

/// Certificates put into a request's status.
#[derive(Debug)]
pub struct CertificateSigning;

/// Trust bundles of a signer.
#[derive(Debug)]
pub struct ClusterTrustBundleAttest;

/// The subjects of client certificates.
#[derive(Debug)]
pub struct CertificateSubjectRestriction;

impl Stage for CertificateApproval {
    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        object: &'a Seen<'_>,
        cluster: &'a dyn Cluster,
        _: &'a mut Notes,
    ) -> Later<'a, Result<(), Status>> {
        let about = is_request(attributes, "approval") && attributes.operation == Operation::Update;
        let Some(old) = attributes.old_object.stored().filter(|_| about) else { return yes() };
        // The signer of the stored request counts: the one that was sent may name another.
        let signer = signer(old);
        Box::pin(async move {
            if may_for_signer(attributes.user, cluster, "approve", signer).await {
                return Ok(());
            }
            let why =
                format!("user not permitted to approve requests with signerName {}", field::quote(signer));
            Err(attributes.refuse(object.stored(), why))
        })
    }
}

impl Stage for CertificateSigning {
    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        object: &'a Seen<'_>,
        cluster: &'a dyn Cluster,
        _: &'a mut Notes,
    ) -> Later<'a, Result<(), Status>> {
        let about = is_request(attributes, "status") && attributes.operation == Operation::Update;
        let old = attributes.old_object.stored().filter(|_| about);
        let (Some(old), Some(new)) = (old, object.stored()) else { return yes() };
        let unchanged = |field| old.at(&["status", field]) == new.at(&["status", field]);
        if unchanged("certificate") && unchanged("conditions") {
            return yes();
        }
        let signer = signer(old);
        Box::pin(async move {
            if may_for_signer(attributes.user, cluster, "sign", signer).await {
                return Ok(());
            }
            let why = format!("user not permitted to sign requests with signerName {}", field::quote(signer));
            Err(attributes.refuse(Some(new), why))
        })
    }
}

impl Stage for ClusterTrustBundleAttest {
    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        object: &'a Seen<'_>,
        cluster: &'a dyn Cluster,
        _: &'a mut Notes,
    ) -> Later<'a, Result<(), Status>> {
        let about =
            attributes.resource.resource == "clustertrustbundles" && attributes.resource.group == GROUP;
        let Some(new) = object.stored().filter(|_| about) else { return yes() };
        let signer = signer(new);
        let old = attributes.old_object.stored();
        // The garbage collector and the migration of what is stored need no right to the signer.
        if signer.is_empty() || old.is_some_and(|old| super::only_garbage_collection(new, old)) {
            return yes();
        }
        Box::pin(async move {
            if may_for_signer(attributes.user, cluster, "attest", signer).await {
                return Ok(());
            }
            let why = format!("user not permitted to attest for signerName {}", field::quote(signer));
            Err(attributes.refuse(Some(new), why))
        })
    }
}

impl Plugin for CertificateSubjectRestriction {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        _: &dyn Cluster,
        _: &mut Notes,
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

fn yes<'a>() -> Later<'a, Result<(), Status>> {
    Box::pin(std::future::ready(Ok(())))
}

fn is_request(attributes: &Attributes<'_>, subresource: &str) -> bool {
    attributes.subresource == subresource
        && attributes.resource.resource == REQUESTS
        && attributes.resource.group == GROUP
}

fn signer(object: &Value) -> &str {
    object.str_at(&["spec", "signerName"]).unwrap_or_default()
}

/// Whether a user may do this for the signer, or for all signers of its domain. An error is no permission.
pub async fn may_for_signer(user: &User, cluster: &dyn Cluster, verb: &'static str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [Str::from(signer), value::format_smolstr!("{domain}/*")] {
        let question = authz::Attributes {
            name,
            ..authz::Attributes::resource(Str::new_static(verb), GROUP, "signers")
        };
        let answer = cluster.authorize(user, &question).await;
        if answer.error.is_none() && answer.decision == authz::Decision::Allow {
            return true;
        }
    }
    false
}
