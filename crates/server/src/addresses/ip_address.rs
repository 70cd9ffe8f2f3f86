//! IPAddress objects: an address is allocated while its object exists.

use std::net::IpAddr;

use admission::BoxFuture;
use api::selector::FactsRef;
use api::validation::fields::Read as _;
use api::{Status, meta};
use catalog::encode;
use catalog::keys;
use kinds::strategy::service::AddressError;
use storage::Store;
use value::{Map, Str, Value};

use super::claims::{ClaimedAddress, ServiceRef};
use super::{Allocations, range};

const COLLECTION: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const FAMILY_LABEL: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGED_BY_LABEL: &str = "ipaddress.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY_LABEL`] of cluster IPs.
const MANAGER: &str = "ipallocator.k8s.io";

/// The storage key of an address.
pub(super) fn key(address: IpAddr) -> String {
    format!("{}{address}", keys::IP_ADDRESSES)
}

fn path(address: IpAddr) -> String {
    format!("{COLLECTION}/{address}")
}

fn labels(address: IpAddr) -> Value {
    let family = range::family_of(address).as_str();
    Value::map([(FAMILY_LABEL, family), (MANAGED_BY_LABEL, MANAGER)])
}

fn object(address: IpAddr, service: &ServiceRef) -> Value {
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

/// The addresses of all cluster IPs that are allocated.
pub(super) fn managed(store: &Store) -> Vec<IpAddr> {
    let page = store.snapshot(keys::IP_ADDRESSES);
    let managed = page
        .entries
        .iter()
        .filter(|entry| FactsRef::new(&entry.facts).label(MANAGED_BY_LABEL) == Some(MANAGER));
    managed.filter_map(|entry| address_of_key(&entry.key)).collect()
}

/// The address of an IPAddress with this storage key.
pub(super) fn address_of_key(key: &str) -> Option<IpAddr> {
    key.strip_prefix(keys::IP_ADDRESSES)?.parse().ok()
}

/// Returns true if the labels say that this server allocates the address for Services.
pub(super) fn is_managed(object: &Value) -> bool {
    object.part("metadata").part("labels").text(MANAGED_BY_LABEL) == MANAGER
}

/// Returns true if all labels are as the allocation sets them.
pub(super) fn has_labels(object: &Value, address: IpAddr) -> bool {
    let family = object.part("metadata").part("labels").text(FAMILY_LABEL);
    is_managed(object) && family == range::family_of(address).as_str()
}

/// The Service that an IPAddress refers to; `None` if it refers to something else.
pub(super) fn parent(object: &Value) -> Option<ServiceRef> {
    let parent = object.part("spec").part("parentRef");
    let is_service = parent.text("group").is_empty() && parent.text("resource") == "services";
    is_service
        .then(|| ServiceRef { namespace: parent.text("namespace").into(), name: parent.text("name").into() })
}

/// The uid of the IPAddress of this address, if it refers to the Service.
pub(super) fn uid_if_owned(store: &Store, address: IpAddr, service: &ServiceRef) -> Option<Str> {
    let object = encode::tree(&*store.get(&key(address))?).ok()?;
    (parent(&object).as_ref() == Some(service)).then(|| meta::uid(&object).into())
}

impl Allocations {
    /// Creates the IPAddress of an address. Fails with [`AddressError::Allocated`] if it exists. The future is boxed because the request
    /// passes the same write path as the Service that it is for.
    pub(super) fn create_address<'a>(
        &'a self,
        address: IpAddr,
        service: &'a ServiceRef,
    ) -> BoxFuture<'a, Result<ClaimedAddress, AddressError>> {
        Box::pin(async move {
            let other = |status: Status| AddressError::Other(status.message().to_owned());
            let client = self.loopback.client("the server is stopping").map_err(other)?;
            match client.create(COLLECTION, &object(address, service)).await {
                Ok(created) => Ok(ClaimedAddress { address, uid: meta::uid(&created).into() }),
                Err(status) if status.reason() == "AlreadyExists" => Err(AddressError::Allocated),
                Err(status) => Err(other(status)),
            }
        })
    }

    /// Deletes the IPAddress of an address, if it still has this uid. A failure is only logged: the repair loop deletes it later.
    pub(super) fn delete_address<'a>(&'a self, address: IpAddr, uid: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let deleted = self.try_delete_address(address, uid).await;
            if let Err(status) = deleted {
                tracing::warn!(%address, error = status.message(), "cannot release a cluster IP; the repair loop deletes its IPAddress later");
            }
        })
    }

    /// Deletes the IPAddress of an address. It is no error if it is gone or has another uid.
    pub(super) fn try_delete_address<'a>(
        &'a self,
        address: IpAddr,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let client = self.loopback.client("the server is stopping")?;
            let mut options = Value::map([("apiVersion", "v1"), ("kind", "DeleteOptions")]);
            options.set_at(&["preconditions", "uid"], uid);
            match client.delete(&path(address), &options).await {
                Err(status) if !matches!(status.code(), 404 | 409) => Err(status),
                _ => Ok(()),
            }
        })
    }
}
