//! Decides for the repair loop what is wrong with one cluster IP, from the Service that has it and from its IPAddress.

use std::net::IpAddr;

use api::validation::fields::Read as _;
use value::Value;

use super::{Lookup, Warning};
use crate::{ServiceRef, ip_address, range};

/// The state of a cluster IP of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceFinding {
    Fine,
    /// No ServiceCIDR contains the cluster IP.
    OutOfRange,
    /// The cluster IP has no IPAddress.
    NotAllocated,
    /// Its IPAddress refers to something that is not a Service.
    NotAService,
    /// Its IPAddress refers to a Service that does not exist, or not yet.
    MissingService,
    /// Its IPAddress refers to another Service that has the same cluster IP.
    Shared,
    /// Its IPAddress has wrong labels.
    WrongLabels,
}

/// The state of an IPAddress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFinding {
    /// The IPAddress is correct, or not that of an allocated cluster IP.
    Fine,
    /// The IPAddress was allocated for Services but refers to something else.
    NotAService,
    /// Its Service does not exist, or not yet.
    Leaked,
    /// Its Service does not have this cluster IP, or not yet.
    WrongReference,
}

/// The cluster IPs of a Service, as written. Empty for headless Services and those of type ExternalName.
pub fn cluster_ips(service: &Value) -> Vec<&str> {
    let spec = service.part("spec");
    let is_set = !matches!(spec.text("clusterIP"), "" | "None") && spec.text("type") != "ExternalName";
    let listed: Vec<&str> = spec.texts("clusterIPs").collect();
    match (is_set, listed.is_empty()) {
        (false, _) => Vec::new(),
        (true, false) => listed,
        // Services of old servers.
        (true, true) => vec![spec.text("clusterIP")],
    }
}

pub fn has_cluster_ip(service: &Value, address: IpAddr) -> bool {
    cluster_ips(service).iter().any(|text| api::names::parse_ip_sloppy(text) == Some(address))
}

/// Examines a cluster IP of `service`. `referenced` returns the Service that the IPAddress refers to.
pub fn examine_cluster_ip(
    service: &ServiceRef,
    address: IpAddr,
    is_in_range: bool,
    ip_address: &Lookup,
    referenced: impl FnOnce(&ServiceRef) -> Lookup,
) -> ServiceFinding {
    if !is_in_range {
        return ServiceFinding::OutOfRange;
    }
    let object = match ip_address {
        Lookup::Absent => return ServiceFinding::NotAllocated,
        Lookup::Unreadable => return ServiceFinding::Fine,
        Lookup::Object(object) => object,
    };
    match ip_address::parent(object) {
        None => ServiceFinding::NotAService,
        Some(parent) if parent == *service => {
            if ip_address::has_labels(object, address) {
                ServiceFinding::Fine
            } else {
                ServiceFinding::WrongLabels
            }
        }
        Some(parent) => match referenced(&parent) {
            Lookup::Absent => ServiceFinding::MissingService,
            Lookup::Object(other) if has_cluster_ip(&other, address) => ServiceFinding::Shared,
            // The examination of the IPAddress finds the wrong reference.
            Lookup::Object(_) | Lookup::Unreadable => ServiceFinding::Fine,
        },
    }
}

/// Examines an IPAddress. `referenced` returns the Service that it refers to.
pub fn examine_ip_address(
    object: &Value,
    address: IpAddr,
    referenced: impl FnOnce(&ServiceRef) -> Lookup,
) -> AddressFinding {
    if !ip_address::is_managed(object) {
        return AddressFinding::Fine;
    }
    let Some(parent) = ip_address::parent(object) else { return AddressFinding::NotAService };
    match referenced(&parent) {
        Lookup::Absent => AddressFinding::Leaked,
        Lookup::Object(service) if !has_cluster_ip(&service, address) => AddressFinding::WrongReference,
        Lookup::Object(_) | Lookup::Unreadable => AddressFinding::Fine,
    }
}

/// The warning about a cluster IP, in kube-apiserver's words.
pub fn cluster_ip_warning(finding: ServiceFinding, service: &ServiceRef, address: IpAddr) -> Option<Warning> {
    let family = range::family_of(address).as_str();
    let ServiceRef { namespace, name } = service;
    let (reason, message) = match finding {
        ServiceFinding::Fine | ServiceFinding::WrongLabels => return None,
        ServiceFinding::OutOfRange => (
            "ClusterIPOutOfRange",
            format!(
                "Cluster IP [{family}]: {address} is not within any configured Service CIDR; please recreate service"
            ),
        ),
        ServiceFinding::NotAllocated => {
            ("ClusterIPNotAllocated", format!("Cluster IP [{family}]: {address} is not allocated; repairing"))
        }
        ServiceFinding::NotAService | ServiceFinding::MissingService => (
            "ClusterIPNotAllocated",
            format!(
                "the ClusterIP [{family}]: {address} for Service {namespace}/{name} has a wrong reference; repairing"
            ),
        ),
        ServiceFinding::Shared => (
            "ClusterIPAlreadyAllocated",
            format!(
                "Cluster IP [{family}]:{address} was assigned to multiple services; please recreate service"
            ),
        ),
    };
    Some(Warning { reason: reason.to_owned(), action: "ClusterIPAllocation", message })
}

/// The warning about a cluster IP that is not an address.
pub fn invalid_cluster_ip_warning() -> Warning {
    Warning {
        reason: "ClusterIPNotValid".to_owned(),
        action: "ClusterIPValidation",
        message: "Cluster IP <nil> is not a valid IP; please recreate Service".to_owned(),
    }
}

/// The warning about an IPAddress that is deleted, in kube-apiserver's words.
pub fn ip_address_warning(finding: AddressFinding, object: &Value) -> Option<Warning> {
    let name = api::meta::name(object);
    let parent = object.part("spec").part("parentRef");
    let (namespace, service) = (parent.text("namespace"), parent.text("name"));
    let (reason, message) = match finding {
        AddressFinding::Fine => return None,
        AddressFinding::NotAService => {
            let (group, resource) = (parent.text("group"), parent.text("resource"));
            let parent = format!(
                "&ParentReference{{Group:{group},Resource:{resource},Namespace:{namespace},Name:{service},}}"
            );
            (
                "IPAddressNotAllocated",
                format!(
                    "IPAddress {name} appears to have been modified, not referencing a Service {parent}: cleaning up"
                ),
            )
        }
        AddressFinding::Leaked => (
            "IPAddressNotAllocated",
            format!(
                "IPAddress: {name} for Service {namespace}/{service} appears to have leaked: cleaning up"
            ),
        ),
        AddressFinding::WrongReference => (
            "IPAddressWrongReference",
            format!("IPAddress: {name} for Service {namespace}/{service} has a wrong reference; cleaning up"),
        ),
    };
    Some(Warning { reason: reason.to_owned(), action: "IPAddressAllocation", message })
}

#[cfg(test)]
mod tests {
    use value::{Value, json};

    use super::{
        AddressFinding, Lookup, ServiceFinding, cluster_ip_warning, examine_cluster_ip, examine_ip_address,
        ip_address_warning,
    };
    use crate::ServiceRef;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn ip_address(parent: &str) -> Value {
        parse(&format!(
            r#"{{"metadata":{{"name":"10.0.0.9","labels":{{"ipaddress.kubernetes.io/ip-family":"IPv4",
            "ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}}}},"spec":{{"parentRef":{parent}}}}}"#
        ))
    }

    fn service(spec: &str) -> Lookup {
        Lookup::Object(parse(&format!(r#"{{"metadata":{{"name":"b","namespace":"n"}},"spec":{spec}}}"#)))
    }

    const OWN: &str = r#"{"resource":"services","namespace":"n","name":"a"}"#;
    const OTHER: &str = r#"{"resource":"services","namespace":"n","name":"b"}"#;
    const GATEWAY: &str = r#"{"group":"g","resource":"gateways","namespace":"n","name":"a"}"#;
    const HAS_IT: &str = r#"{"clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9"]}"#;
    const HAS_NOT: &str = r#"{"clusterIP":"10.0.0.8","clusterIPs":["10.0.0.8"]}"#;

    #[test]
    fn a_cluster_ip_must_have_an_ip_address_that_refers_to_its_service() {
        let own = ServiceRef { namespace: "n".into(), name: "a".into() };
        let address = "10.0.0.9".parse().unwrap();
        let mut unlabeled = ip_address(OWN);
        unlabeled.remove_at(&["metadata", "labels"]);
        for (ip_address, other, expected) in [
            (Lookup::Object(ip_address(OWN)), Lookup::Absent, ServiceFinding::Fine),
            (Lookup::Object(unlabeled), Lookup::Absent, ServiceFinding::WrongLabels),
            (Lookup::Absent, Lookup::Absent, ServiceFinding::NotAllocated),
            (Lookup::Unreadable, Lookup::Absent, ServiceFinding::Fine),
            (Lookup::Object(ip_address(GATEWAY)), Lookup::Absent, ServiceFinding::NotAService),
            (Lookup::Object(ip_address(OTHER)), Lookup::Absent, ServiceFinding::MissingService),
            (Lookup::Object(ip_address(OTHER)), service(HAS_IT), ServiceFinding::Shared),
            (Lookup::Object(ip_address(OTHER)), service(HAS_NOT), ServiceFinding::Fine),
            (Lookup::Object(ip_address(OTHER)), Lookup::Unreadable, ServiceFinding::Fine),
        ] {
            let found = examine_cluster_ip(&own, address, true, &ip_address, |_| other.clone());
            assert_eq!(found, expected, "{ip_address:?} {other:?}");
            let outside = examine_cluster_ip(&own, address, false, &ip_address, |_| other.clone());
            assert_eq!(outside, ServiceFinding::OutOfRange);
        }
        let warning = cluster_ip_warning(ServiceFinding::Shared, &own, address).unwrap();
        assert_eq!(
            warning.message,
            "Cluster IP [IPv4]:10.0.0.9 was assigned to multiple services; please recreate service"
        );
    }

    #[test]
    fn an_ip_address_must_refer_to_a_service_that_has_it() {
        let address = "10.0.0.9".parse().unwrap();
        let mut foreign = ip_address(OTHER);
        foreign.set_at(&["metadata", "labels", "ipaddress.kubernetes.io/managed-by"], "me");
        for (object, service, expected) in [
            (foreign, Lookup::Absent, AddressFinding::Fine),
            (ip_address(GATEWAY), Lookup::Absent, AddressFinding::NotAService),
            (ip_address(OTHER), Lookup::Absent, AddressFinding::Leaked),
            (ip_address(OTHER), Lookup::Unreadable, AddressFinding::Fine),
            (ip_address(OTHER), service(HAS_IT), AddressFinding::Fine),
            (ip_address(OTHER), service(HAS_NOT), AddressFinding::WrongReference),
            (
                ip_address(OTHER),
                service(r#"{"clusterIP":"None","clusterIPs":["None"]}"#),
                AddressFinding::WrongReference,
            ),
            (ip_address(OTHER), service(r#"{"type":"ExternalName"}"#), AddressFinding::WrongReference),
        ] {
            let found = examine_ip_address(&object, address, |_| service.clone());
            assert_eq!(found, expected, "{object:?} {service:?}");
        }
        let warning = ip_address_warning(AddressFinding::NotAService, &ip_address(GATEWAY)).unwrap();
        assert_eq!(
            warning.message,
            "IPAddress 10.0.0.9 appears to have been modified, not referencing a Service &ParentReference{Group:g,Resource:gateways,Namespace:n,Name:a,}: cleaning up"
        );
    }
}
