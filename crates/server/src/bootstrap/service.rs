//! The `kubernetes` Service, through which pods reach the server, and its endpoints.

use std::net::IpAddr;

use value::Value;

use super::object;
use crate::restore_deleted::ObjectAt;
use crate::state::State;

/// Fields that are reset at every start, even if an earlier server or a user changed them.
pub(super) const RECONCILED: &[&[&str]] =
    &[&["spec", "ports"], &["spec", "type"], &["subsets"], &["endpoints"], &["ports"]];

/// The Service, and its Endpoints and EndpointSlice if `advertise` is reachable from outside.
pub(super) fn objects(state: &State, port: u16, advertise: IpAddr) -> Vec<ObjectAt> {
    let Some(address) = state.storage.addresses.first() else { return Vec::new() };
    let mut objects = vec![service(address, port)];
    // Clients on other machines cannot reach a loopback address, and the API rejects it in endpoints.
    if !advertise.is_loopback() && !advertise.is_unspecified() {
        objects.extend([endpoints(port, advertise), slice(port, advertise)]);
    }
    objects
}

fn service(address: IpAddr, port: u16) -> ObjectAt {
    let mut service = object("v1", "Service", "default", "kubernetes");
    for (key, value) in [("component", "apiserver"), ("provider", "kubernetes")] {
        service.set_at(&["metadata", "labels", key], value);
    }
    service.set_at(&["spec", "clusterIP"], address.to_string());
    service.set_at(&["spec", "ipFamilyPolicy"], "SingleStack");
    service.set_at(&["spec", "sessionAffinity"], "None");
    service.set_at(&["spec", "type"], "ClusterIP");
    let mut entry = https(443);
    entry.set_at(&["targetPort"], port);
    service.set_at(&["spec", "ports"], Value::List(vec![entry]));
    ("/api/v1/namespaces/default/services".to_owned(), service)
}

fn endpoints(port: u16, advertise: IpAddr) -> ObjectAt {
    let mut endpoints = object("v1", "Endpoints", "default", "kubernetes");
    // The EndpointSlice is written here, so the mirroring controller must not create one.
    endpoints.set_at(&["metadata", "labels", "endpointslice.kubernetes.io/skip-mirror"], "true");
    let mut subset = Value::Null;
    subset.set_at(&["addresses"], Value::list([Value::map([("ip", advertise.to_string())])]));
    subset.set_at(&["ports"], Value::list([https(port)]));
    endpoints.set_at(&["subsets"], Value::List(vec![subset]));
    ("/api/v1/namespaces/default/endpoints".to_owned(), endpoints)
}

fn slice(port: u16, advertise: IpAddr) -> ObjectAt {
    let mut slice = object("discovery.k8s.io/v1", "EndpointSlice", "default", "kubernetes");
    slice.set_at(&["metadata", "labels", "kubernetes.io/service-name"], "kubernetes");
    slice.set_at(&["addressType"], if advertise.is_ipv4() { "IPv4" } else { "IPv6" });
    let mut endpoint = Value::map([("addresses", Value::list([advertise.to_string()]))]);
    endpoint.set_at(&["conditions", "ready"], true);
    slice.set_at(&["endpoints"], Value::List(vec![endpoint]));
    slice.set_at(&["ports"], Value::List(vec![https(port)]));
    ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices".to_owned(), slice)
}

fn https(port: u16) -> Value {
    Value::map([
        ("name", Value::from("https")),
        ("port", Value::from(port)),
        ("protocol", Value::from("TCP")),
    ])
}
