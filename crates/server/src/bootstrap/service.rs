//! The `kubernetes` Service, through which pods reach the servers. [`crate::endpoints`] keeps its endpoints.

use std::net::IpAddr;

use value::Value;

use super::object;
use crate::endpoints::https;
use crate::restore_deleted::ObjectAt;
use crate::state::State;

/// The Service; `None` if there is no range of cluster IPs. Once it exists, its fields are left alone.
pub(super) fn kubernetes_service(state: &State, port: u16) -> Option<ObjectAt> {
    state.addresses.first().map(|address| service(address, port))
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
