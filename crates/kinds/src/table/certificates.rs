//! `certificates.k8s.io`.

use super::{Field, Fields, Resource, Scope, SubresourceRow, verbs};

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
        fields: Fields::These(&[Field::NAME, SIGNER]),
        ..CLUSTER
    },
    Resource {
        kind: "ClusterTrustBundle",
        plural: "clustertrustbundles",
        singular: "clustertrustbundle",
        hashed_version: Some("v1beta1"),
        fields: Fields::These(&[Field::NAME, SIGNER]),
        ..CLUSTER
    },
    Resource {
        kind: "PodCertificateRequest",
        plural: "podcertificaterequests",
        singular: "podcertificaterequest",
        scope: Scope::Namespaced,
        hashed_version: Some("v1beta1"),
        subresources: &[SubresourceRow::status("PodCertificateRequest")],
        fields: Fields::These(&[
            Field::NAME,
            SIGNER,
            Field::new("spec.podName", &[&["spec", "podName"]]),
            Field::new("spec.nodeName", &[&["spec", "nodeName"]]),
        ]),
        ..CLUSTER
    },
];

const CLUSTER: Resource = Resource { group: "certificates.k8s.io", ..Resource::CLUSTER };
const SIGNER: Field = Field::new("spec.signerName", &[&["spec", "signerName"]]);
