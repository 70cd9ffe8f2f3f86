//! Keeps the endpoints of the `kubernetes` Service: the addresses of the servers that run.
//!
//! Where servers share a store, each keeps a key `/registry/masterleases/<ip>`, which expires if its server does not refresh it, as in
//! kube-apiserver; every server writes the addresses of all keys. A server with a store of its own writes its address. A server adds its
//! address when it is ready and removes it when it begins to shut down.

mod reconcile;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Status, meta};
use authn::InternalIdentity;
use catalog::encode;
use catalog::keys::{self, ServerKey};
use requests::request_info::Query;
use storage::{CommitError, Expect, Store};
use tracing::{info, warn};
use value::Value;

use crate::client::LoopbackClient;
use crate::consistent_reads;
use crate::state::State;
use crate::write;
use reconcile::{Ports, SliceAction};

pub(crate) use reconcile::https;

/// How the servers of a cluster find out which of them run (`--endpoint-reconciler-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointReconciler {
    /// By keys that expire.
    #[default]
    Lease,
    /// By the number of servers (`--apiserver-count`): addresses beyond it leave.
    MasterCount(usize),
    /// The servers do not find each other: something else writes the endpoints.
    None,
}

const INTERVAL: Duration = Duration::from_secs(10);
/// How long a key lives without a refresh.
const LEASE_TTL: Duration = Duration::from_secs(15);
/// How long a server that shuts down tries to remove its address.
const REMOVE_LIMIT: Duration = Duration::from_secs(20);
const READY_POLL: Duration = Duration::from_millis(100);
/// Attempts to refresh a key that another process writes at the same time.
const ATTEMPTS: usize = 5;

const NAME: &str = "kubernetes";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Keeps the endpoints from when the server is ready until it drains, then removes this server's address. `advertised` is its address
/// for clients on other machines; with a loopback address there are no endpoints.
pub(crate) async fn run(state: Arc<State>, advertised: SocketAddr, reconciler: EndpointReconciler) {
    let ip = advertised.ip();
    if reconciler == EndpointReconciler::None || ip.is_loopback() || ip.is_unspecified() {
        return;
    }
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let own = OwnEndpoint { state: &state, client, ip: ip.to_string(), port: advertised.port(), reconciler };
    let mut draining = state.draining();
    if own.remove_stale().await {
        info!(address = own.ip, "removed the address of an earlier process that did not shut down");
    }
    while !is_ready(&state) {
        tokio::select! {
            () = tokio::time::sleep(READY_POLL) => {}
            _ = draining.wait_for(|draining| *draining) => return,
        }
    }
    loop {
        if let Err(error) = own.reconcile().await {
            warn!(
                error = error.message(),
                "cannot write the endpoints of the kubernetes Service; retrying in 10 seconds"
            );
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = draining.wait_for(|draining| *draining) => break,
        }
    }
    match tokio::time::timeout(REMOVE_LIMIT, own.remove()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            warn!(
                error = error.message(),
                "cannot remove this server from the endpoints of the kubernetes Service; clients may be sent to it until another server removes it"
            );
        }
        Err(_) => warn!(
            "cannot remove this server from the endpoints of the kubernetes Service in time; clients may be sent to it until another server removes it"
        ),
    }
}

fn is_ready(state: &State) -> bool {
    state.serving.health.page("/readyz", &Query::default(), false).is_some_and(|(code, _)| code == 200)
}

/// The address of this server in the endpoints.
struct OwnEndpoint<'a> {
    state: &'a Arc<State>,
    client: LoopbackClient,
    ip: String,
    port: u16,
    reconciler: EndpointReconciler,
}

impl OwnEndpoint<'_> {
    fn uses_leases(&self) -> bool {
        self.reconciler == EndpointReconciler::Lease && self.store().is_shared()
    }

    fn store(&self) -> &Store {
        &self.state.storage.store
    }

    /// Removes the key of an earlier process with this address, so that no client is sent here before the server is ready.
    async fn remove_stale(&self) -> bool {
        let is_stale =
            self.uses_leases() && remove_lease(self.store(), &self.ip).await.is_ok_and(|removed| removed);
        if is_stale {
            // Without other servers the address stays: it is refused to erase all of them.
            let _ = self.write(Ports::Reset, |addresses| !addresses.is_empty()).await;
        }
        is_stale
    }

    async fn reconcile(&self) -> Result<(), Status> {
        if self.uses_leases() {
            refresh_lease(self.store(), &self.ip)
                .await
                .map_err(|error| Status::internal(error.to_string()))?;
        }
        self.write(Ports::Keep, |addresses| !addresses.is_empty()).await
    }

    async fn remove(&self) -> Result<(), Status> {
        if self.uses_leases() {
            remove_lease(self.store(), &self.ip)
                .await
                .map_err(|error| Status::internal(error.to_string()))?;
        }
        for _ in 1..ATTEMPTS {
            match self.write(Ports::Reset, |_| true).await {
                Err(status) if status.code() == 409 => {}
                outcome => return outcome,
            }
        }
        self.write(Ports::Reset, |_| true).await
    }

    /// The addresses of the servers that run.
    async fn addresses(&self, stored: Option<&Value>) -> Result<BTreeSet<String>, Status> {
        let is_leaving = *self.state.draining().borrow();
        let mut addresses = match self.reconciler {
            _ if self.uses_leases() => return leases(self.store()).await,
            EndpointReconciler::MasterCount(count) => reconcile::counted(stored, &self.ip, count),
            EndpointReconciler::Lease | EndpointReconciler::None => BTreeSet::from([self.ip.clone()]),
        };
        if is_leaving {
            addresses.remove(&self.ip);
        }
        Ok(addresses)
    }

    /// Writes the Endpoints, then the EndpointSlice. `may_write` decides about a set of addresses.
    async fn write(&self, ports: Ports, may_write: impl Fn(&BTreeSet<String>) -> bool) -> Result<(), Status> {
        let path = format!("{ENDPOINTS}/{NAME}");
        let stored = none_if_missing(self.client.get(&path).await)?;
        if stored.is_none() && *self.state.draining().borrow() {
            return Ok(());
        }
        let addresses = self.addresses(stored.as_ref()).await?;
        if !may_write(&addresses) {
            return Err(Status::internal(
                "no API server IP addresses were listed in storage, refusing to erase all endpoints for the kubernetes Service",
            ));
        }
        let endpoints = match (reconcile::endpoints_of(stored.as_ref(), &addresses, self.port, ports), stored)
        {
            (None, stored) => stored.unwrap_or_default(),
            (Some(wanted), Some(_)) => self.client.update(&path, &wanted).await?,
            (Some(wanted), None) => self.client.create(ENDPOINTS, &wanted).await?,
        };
        self.write_slice(&reconcile::slice_of(&endpoints)).await
    }

    async fn write_slice(&self, wanted: &Value) -> Result<(), Status> {
        let path = format!("{SLICES}/{NAME}");
        let stored = none_if_missing(self.client.get(&path).await)?;
        match reconcile::slice_action(stored.as_ref(), wanted) {
            SliceAction::Keep => {}
            SliceAction::Create => drop(self.client.create(SLICES, wanted).await?),
            SliceAction::Recreate => {
                let options = Value::map([("apiVersion", "v1"), ("kind", "DeleteOptions")]);
                self.client.delete(&path, &options).await?;
                self.client.create(SLICES, wanted).await?;
            }
            SliceAction::Update(updated) => drop(self.client.update(&path, &updated).await?),
        }
        Ok(())
    }
}

/// The object of a response; `None` if the status is 404.
fn none_if_missing(response: Result<Value, Status>) -> Result<Option<Value>, Status> {
    match response {
        Ok(object) => Ok(Some(object)),
        Err(status) if status.code() == 404 => Ok(None),
        Err(status) => Err(status),
    }
}

fn object(api_version: &str, kind: &str) -> Value {
    let mut object = Value::map([("apiVersion", api_version), ("kind", kind)]);
    meta::set(&mut object, "name", NAME);
    meta::set(&mut object, "namespace", "default");
    object
}

/// The addresses of all keys that have not expired, by what the backend has: memory that is behind may have keys of servers that no longer
/// run.
async fn leases(store: &Store) -> Result<BTreeSet<String>, Status> {
    let entries = consistent_reads::entries(store, keys::MASTER_LEASES).await?;
    let leases = entries.iter().filter_map(|entry| encode::tree(entry).ok());
    let address_of = |lease: Value| {
        let address = lease.list_at(&["subsets"]).first()?.list_at(&["addresses"]).first()?;
        address.str_at(&["ip"]).filter(|ip| !ip.is_empty()).map(str::to_owned)
    };
    Ok(leases.filter_map(address_of).collect())
}

/// Writes the key of an address, which then lives for [`LEASE_TTL`].
async fn refresh_lease(store: &Store, ip: &str) -> Result<(), CommitError> {
    let key = lease_key(ip)?;
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        let stored = store.get(key.as_str());
        let generation =
            stored.as_ref().and_then(|entry| encode::tree(entry).ok()?.int_at(&["metadata", "generation"]));
        // The value must differ from the stored one.
        let mut lease = Value::Null;
        lease.set_at(&["metadata", "generation"], generation.unwrap_or(0).saturating_add(1));
        let subset = Value::map([("addresses", Value::list([Value::map([("ip", ip)])]))]);
        lease.set_at(&["subsets"], Value::List(vec![subset]));
        let record = encode::record(&encode::head("v1", "Endpoints"), &lease, Vec::new());
        let expect = stored.map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
        outcome = write::put_server_data(store, &key, expect, record, Some(LEASE_TTL)).await.map(drop);
        if !matches!(outcome, Err(CommitError::Conflict { .. })) {
            break;
        }
    }
    outcome
}

/// Deletes the key of an address. False if there was none.
async fn remove_lease(store: &Store, ip: &str) -> Result<bool, CommitError> {
    write::remove_server_data(store, &lease_key(ip)?).await
}

fn lease_key(ip: &str) -> Result<ServerKey, CommitError> {
    ServerKey::master_lease(ip).ok_or_else(|| CommitError::Invalid(format!("`{ip}` is not an IP address")))
}

#[cfg(test)]
mod tests;
