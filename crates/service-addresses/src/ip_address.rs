//! IPAddress objects: an address is allocated while its object exists.

use std::net::IpAddr;

use api::labels::{IP_ADDRESS_MANAGED_BY, IP_ALLOCATOR};
use api::validation::fields::Read as _;
use value::{Map, Str, Value};

use super::{ServiceRef, range};

const FAMILY_LABEL: &str = "ipaddress.kubernetes.io/ip-family";

fn labels(address: IpAddr) -> Value {
    let family = range::family_of(address).as_str();
    Value::map([(FAMILY_LABEL, family), (IP_ADDRESS_MANAGED_BY, IP_ALLOCATOR)])
}

/// The object that allocates an address to a Service.
pub fn object(address: IpAddr, service: &ServiceRef) -> Value {
    let mut object = Value::Map(Map::new());
    object.set_at(&["apiVersion"], "networking.k8s.io/v1");
    object.set_at(&["kind"], "IPAddress");
    object.set_at(&["metadata", "name"], address.to_string());
    object.set_at(&["metadata", "labels"], labels(address));
    let parent = Value::map([
        ("resource", Str::from("services")),
        ("namespace", service.namespace.clone()),
        ("name", service.name.clone()),
    ]);
    object.set_at(&["spec", "parentRef"], parent);
    object
}

/// Returns true if the labels say that this server allocates the address for Services.
pub fn is_managed(object: &Value) -> bool {
    object.part("metadata").part("labels").text(IP_ADDRESS_MANAGED_BY) == IP_ALLOCATOR
}

/// Returns true if all labels are as the allocation sets them.
pub fn has_labels(object: &Value, address: IpAddr) -> bool {
    let family = object.part("metadata").part("labels").text(FAMILY_LABEL);
    is_managed(object) && family == range::family_of(address).as_str()
}

/// The Service that an IPAddress refers to; `None` if it refers to something else.
pub fn parent(object: &Value) -> Option<ServiceRef> {
    let parent = object.part("spec").part("parentRef");
    let is_service = parent.text("group").is_empty() && parent.text("resource") == "services";
    is_service
        .then(|| ServiceRef { namespace: parent.text("namespace").into(), name: parent.text("name").into() })
}
