//! Rows of the `networking.k8s.io` group.

use super::{KindBehavior, Resource, SubresourceRow};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "IngressClass",
        plural: "ingressclasses",
        singular: "ingressclass",
        ..cluster(KindBehavior {
            defaults: Some(defaults::networking::ingress_class),
            rules: Some(validation::ingress::INGRESS_CLASS),
            strategy: Some(strategy::INGRESS_CLASS),
            warnings: None,
            status_warnings: None,
            columns: Some(print::networking::INGRESS_CLASS),
        })
    },
    Resource {
        kind: "Ingress",
        plural: "ingresses",
        directory: Some("ingress"),
        singular: "ingress",
        short_names: &["ing"],
        subresources: &[SubresourceRow::status("Ingress")],
        ..namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::ingress::INGRESS),
            strategy: Some(strategy::INGRESS),
            warnings: Some(warnings::ingress),
            status_warnings: Some(warnings::load_balancer_status),
            columns: Some(print::networking::INGRESS),
        })
    },
    Resource {
        kind: "IPAddress",
        plural: "ipaddresses",
        singular: "ipaddress",
        short_names: &["ip"],
        ..cluster(KindBehavior {
            defaults: None,
            rules: Some(validation::service_cidr::IP_ADDRESS),
            strategy: Some(strategy::IP_ADDRESS),
            warnings: None,
            status_warnings: None,
            columns: Some(print::networking::IP_ADDRESS),
        })
    },
    Resource {
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        singular: "networkpolicy",
        short_names: &["netpol"],
        ..namespaced(KindBehavior {
            defaults: Some(defaults::networking::network_policy),
            rules: Some(validation::network_policy::NETWORK_POLICY),
            strategy: Some(strategy::NETWORK_POLICY),
            warnings: Some(warnings::network_policy),
            status_warnings: None,
            columns: Some(print::networking::NETWORK_POLICY),
        })
    },
    Resource {
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        singular: "servicecidr",
        subresources: &[SubresourceRow::status("ServiceCIDR")],
        ..cluster(KindBehavior {
            defaults: None,
            rules: Some(validation::service_cidr::SERVICE_CIDR),
            strategy: Some(strategy::SERVICE_CIDR),
            warnings: None,
            status_warnings: None,
            columns: Some(print::networking::SERVICE_CIDR),
        })
    },
];

const fn namespaced(behavior: KindBehavior) -> Resource {
    Resource { group: "networking.k8s.io", ..Resource::namespaced(behavior) }
}
const fn cluster(behavior: KindBehavior) -> Resource {
    Resource { group: "networking.k8s.io", ..Resource::cluster(behavior) }
}
