//! `networking.k8s.io`.

use super::{Resource, SubresourceRow};

pub(super) const RESOURCES: &[Resource] = &[
    Resource { kind: "IngressClass", plural: "ingressclasses", singular: "ingressclass", ..CLUSTER },
    Resource {
        kind: "Ingress",
        plural: "ingresses",
        directory: Some("ingress"),
        singular: "ingress",
        short_names: &["ing"],
        subresources: &[SubresourceRow::status("Ingress")],
        ..NAMESPACED
    },
    Resource {
        kind: "IPAddress",
        plural: "ipaddresses",
        singular: "ipaddress",
        short_names: &["ip"],
        ..CLUSTER
    },
    Resource {
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        singular: "networkpolicy",
        short_names: &["netpol"],
        ..NAMESPACED
    },
    Resource {
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        singular: "servicecidr",
        subresources: &[SubresourceRow::status("ServiceCIDR")],
        ..CLUSTER
    },
];

const NAMESPACED: Resource = Resource { group: "networking.k8s.io", ..Resource::NAMESPACED };
const CLUSTER: Resource = Resource { group: "networking.k8s.io", ..Resource::CLUSTER };
