//! Rows of the `certificates.k8s.io` group.

use super::{
    KindBehavior, KindStorage, Resource, Scope, SelectableField, SelectableFields, SubresourceRow,
    VersionRow, verbs,
};
use crate::strategy::table as strategy;
use crate::{convert, defaults, print, validation};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        singular: "certificatesigningrequest",
        short_names: &["csr"],
        subresources: &[
            SubresourceRow::new("approval", "CertificateSigningRequest", verbs::GET_PATCH_UPDATE),
            SubresourceRow::status("CertificateSigningRequest"),
        ],
        fields: SelectableFields::These(&[SelectableField::NAME, SIGNER]),
        ..cluster(KindBehavior {
            defaults: None,
            rules: Some(validation::certificates::SIGNING_REQUEST),
            strategy: Some(strategy::CERTIFICATE_SIGNING_REQUEST),
            warnings: None,
            status_warnings: None,
            columns: Some(print::certificates::CERTIFICATE_SIGNING_REQUEST),
        })
    },
    Resource {
        kind: "ClusterTrustBundle",
        plural: "clustertrustbundles",
        singular: "clustertrustbundle",
        versions: &[
            VersionRow::new("v1"),
            VersionRow::deprecated(
                "v1beta1",
                "certificates.k8s.io/v1beta1 ClusterTrustBundle is deprecated in v1.37+, unavailable in v1.40+; \
                 use certificates.k8s.io/v1 ClusterTrustBundle",
            ),
        ],
        hashed_version: Some("v1beta1"),
        fields: SelectableFields::These(&[SelectableField::NAME, SIGNER]),
        ..cluster(KindBehavior {
            defaults: None,
            rules: Some(validation::certificates::TRUST_BUNDLE),
            strategy: Some(strategy::CLUSTER_TRUST_BUNDLE),
            warnings: None,
            status_warnings: None,
            columns: Some(print::certificates::CLUSTER_TRUST_BUNDLE),
        })
    },
    Resource {
        kind: "PodCertificateRequest",
        plural: "podcertificaterequests",
        singular: "podcertificaterequest",
        versions: &[
            VersionRow::new("v1").converted(Clone::clone, convert::certificates::request_to_v1),
            VersionRow::deprecated(
                "v1beta1",
                "certificates.k8s.io/v1beta1 PodCertificateRequest is deprecated in v1.37+, unavailable in v1.40+; \
                 use certificates.k8s.io/v1 PodCertificateRequest",
            ),
        ],
        scope: Scope::Namespaced,
        storage: KindStorage::Own("v1beta1"),
        subresources: &[SubresourceRow::status("PodCertificateRequest")],
        fields: SelectableFields::These(&[
            SelectableField::NAME,
            SIGNER,
            SelectableField::new("spec.podName", &[&["spec", "podName"]]),
            SelectableField::new("spec.nodeName", &[&["spec", "nodeName"]]),
        ]),
        ..cluster(KindBehavior {
            defaults: Some(defaults::cluster::pod_certificate_request),
            rules: Some(validation::pod_certificate_request::POD_CERTIFICATE_REQUEST),
            strategy: Some(strategy::POD_CERTIFICATE_REQUEST),
            warnings: None,
            status_warnings: None,
            columns: Some(print::certificates::POD_CERTIFICATE_REQUEST),
        })
    },
];

const fn cluster(behavior: KindBehavior) -> Resource {
    Resource { group: "certificates.k8s.io", ..Resource::cluster(behavior) }
}
const SIGNER: SelectableField = SelectableField::new("spec.signerName", &[&["spec", "signerName"]]);
