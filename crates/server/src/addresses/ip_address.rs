//! Reads, creates and deletes the IPAddress objects of the store.

use std::net::IpAddr;

use admission::AdmissionFuture;
use api::labels::{IP_ADDRESS_MANAGED_BY, IP_ALLOCATOR};
use api::selector::FactsRef;
use api::{Status, meta};
use catalog::encode;
use catalog::keys;
use kinds::strategy::service::AddressError;
use runtime::LogLimit;
use service_addresses::ServiceRef;
use service_addresses::ip_address::{object, parent};
use storage::Store;
use value::{Str, Value};

use super::Allocations;
use super::claims::ClaimedAddress;

const COLLECTION: &str = "/apis/networking.k8s.io/v1/ipaddresses";

/// The storage key of an address.
pub(super) fn key(address: IpAddr) -> String {
    keys::cluster_scoped(keys::IP_ADDRESSES, &address.to_string())
}

fn path(address: IpAddr) -> String {
    format!("{COLLECTION}/{address}")
}

/// The addresses of all cluster IPs that are allocated.
pub(super) fn managed(store: &Store) -> Vec<IpAddr> {
    let page = store.snapshot(keys::IP_ADDRESSES);
    let managed = page
        .entries
        .iter()
        .filter(|entry| FactsRef::new(&entry.facts).label(IP_ADDRESS_MANAGED_BY) == Some(IP_ALLOCATOR));
    managed.filter_map(|entry| address_of_key(&entry.key)).collect()
}

/// The address of an IPAddress with this storage key.
pub(super) fn address_of_key(key: &str) -> Option<IpAddr> {
    key.strip_prefix(keys::IP_ADDRESSES)?.parse().ok()
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
    ) -> AdmissionFuture<'a, Result<ClaimedAddress, AddressError>> {
        Box::pin(async move {
            let other = |status: Status| AddressError::Other(status.message().to_owned());
            let client = self.loopback.client("the server is stopping").map_err(other)?;
            match client.create(COLLECTION, &object(address, service)).await {
                Ok(created) => Ok(ClaimedAddress { address, uid: meta::uid(&created).into() }),
                #[cfg(feature = "planted-bugs")]
                Err(status)
                    if status.reason() == "AlreadyExists"
                        && etcd::planted::is_planted(etcd::planted::SHARED_ADDRESS) =>
                {
                    Ok(ClaimedAddress { address, uid: Str::default() })
                }
                Err(status) if status.reason() == "AlreadyExists" => Err(AddressError::Allocated),
                Err(status) => Err(other(status)),
            }
        })
    }

    /// Deletes the IPAddress of an address, if it still has this uid. A failure is only logged: the repair loop deletes it later.
    pub(super) fn delete_address<'a>(&'a self, address: IpAddr, uid: &'a str) -> AdmissionFuture<'a, ()> {
        static LOG: LogLimit = LogLimit::with_burst(20);
        Box::pin(async move {
            let deleted = self.try_delete_address(address, uid).await;
            if let Err(status) = deleted
                && let Some(unlogged) = LOG.due()
            {
                tracing::warn!(%address, error = status.message(), unlogged, "cannot release a cluster IP; the repair loop deletes its IPAddress later");
            }
        })
    }

    /// Deletes the IPAddress of an address. It is no error if it is gone or has another uid.
    pub(super) fn try_delete_address<'a>(
        &'a self,
        address: IpAddr,
        uid: &'a str,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
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
