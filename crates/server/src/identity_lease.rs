//! The Lease `kube-system/apiserver-…` that shows that this server runs, and the garbage collection of Leases of servers that do not.
//!
//! The Lease is renewed every [`RENEW_EVERY`] and deleted when the server stops. Servers on one host share it, as in kube-apiserver.

use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use api::{Status, meta};
use authn::InternalIdentity;
use runtime::identity;
use runtime::random;
use tracing::warn;
use value::Value;

use crate::client::LoopbackClient;
use crate::state::State;

pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// Marks the Leases of API servers; its value is the component.
const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";

const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Fraction of `RENEW_EVERY` that is added at random, so that servers do not write at the same time.
const JITTER: f64 = 0.04;
const DURATION_SECONDS: i64 = 3600;
const COLLECT_EVERY: Duration = Duration::from_hours(1);
/// Attempts to write the Lease before the next regular renewal.
const ATTEMPTS: usize = 5;
/// Time limit of writing the Lease and of deleting it.
const LIMIT: Duration = Duration::from_secs(10);

/// Keeps the Lease until the server drains, then deletes it.
pub(crate) async fn run(state: Arc<State>) {
    let lease = IdentityLease::of(&state);
    let mut draining = state.draining();
    // A Lease of an earlier process on this host, which may have had another address.
    lease.delete().await;
    // Its namespace is a bootstrap object.
    let _ = tokio::time::timeout(LIMIT, state.bootstrap.settled()).await;
    let mut latest = None;
    while !*draining.borrow() {
        let _ = tokio::time::timeout(LIMIT, lease.renew(&state, &mut latest)).await;
        let pause = RENEW_EVERY.mul_f64(1.0 + JITTER * random::fraction());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = draining.wait_for(|draining| *draining) => break,
        }
    }
    lease.delete().await;
}

/// Deletes the expired Leases of API servers, now and every [`COLLECT_EVERY`], until the server stops.
pub(crate) async fn collect_garbage(state: Arc<State>) {
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let mut stop = state.stopping();
    loop {
        if let Err(error) = collect(&state, &client).await {
            warn!(
                error = error.message(),
                "cannot delete expired Leases of API servers; retrying in an hour"
            );
        }
        tokio::select! {
            () = tokio::time::sleep(COLLECT_EVERY) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn collect(state: &State, client: &LoopbackClient) -> Result<(), Status> {
    let all = client.get(&format!("{LEASES}?labelSelector={IDENTITY_LABEL}={}", identity::COMPONENT)).await?;
    let expired = |lease: &&Value| is_expired(lease, state.now_micros());
    for lease in all.list_at(&["items"]).iter().filter(expired) {
        let mut options = Value::Null;
        options.set_at(&["preconditions", "uid"], meta::uid(lease));
        // Its server may have renewed it since.
        options.set_at(&["preconditions", "resourceVersion"], meta::resource_version(lease));
        match client.delete(&format!("{LEASES}/{}", meta::name(lease)), &options).await {
            Err(status) if !matches!(status.code(), 404 | 409) => return Err(status),
            _ => {}
        }
    }
    Ok(())
}

/// True if the holder has not renewed the Lease in its duration, or if the Lease does not say so. `now` is in microseconds since the
/// epoch.
fn is_expired(lease: &Value, now: i64) -> bool {
    let renewed = lease.str_at(&["spec", "renewTime"]).and_then(|time| Timestamp::parse_micro(time).ok());
    let duration = lease.int_at(&["spec", "leaseDurationSeconds"]);
    renewed.zip(duration).is_none_or(|(renewed, duration)| {
        renewed.micros().saturating_add(duration.saturating_mul(1_000_000)) < now
    })
}

/// The Lease of this server.
struct IdentityLease {
    client: LoopbackClient,
    name: String,
    host: String,
    /// Names this process, in contrast to earlier ones on the same host.
    holder: String,
    /// `host:port`, for other API servers.
    address: String,
}

impl IdentityLease {
    fn of(state: &Arc<State>) -> Self {
        let host = identity::host();
        let name = identity::id(&host);
        IdentityLease {
            client: LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer),
            holder: format!("{name}_{}", random::uid()),
            address: state.info.advertised.clone(),
            name,
            host,
        }
    }

    fn path(&self) -> String {
        format!("{LEASES}/{}", self.name)
    }

    /// Writes the current time into the Lease, or creates it. `latest` is the Lease as this server wrote it last, which saves a read.
    async fn renew(&self, state: &State, latest: &mut Option<Value>) {
        let mut failure = None;
        for _ in 0..ATTEMPTS {
            match self.write(state, latest.take()).await {
                Ok(written) => return *latest = Some(written),
                // Another server or a client changed or deleted it: read it again.
                Err(status) if matches!(status.code(), 404 | 409) => failure = Some(status),
                Err(status) => {
                    failure = Some(status);
                    break;
                }
            }
        }
        let error = failure.as_ref().map_or("", Status::message);
        warn!(
            lease = self.name,
            error, "cannot renew the identity Lease of this server; retrying in 10 seconds"
        );
    }

    async fn write(&self, state: &State, latest: Option<Value>) -> Result<Value, Status> {
        let stored = match latest {
            Some(lease) => Some(lease),
            None => match self.client.get(&self.path()).await {
                Ok(lease) => Some(lease),
                Err(status) if status.code() == 404 => None,
                Err(status) => return Err(status),
            },
        };
        let lease = self.renewed(stored.as_ref(), state.now_micros());
        match stored {
            Some(_) => self.client.update(&self.path(), &lease).await,
            None => self.client.create(LEASES, &lease).await,
        }
    }

    /// The Lease to write. The holder of a stored Lease stays, because servers on one host share it.
    fn renewed(&self, stored: Option<&Value>, now: i64) -> Value {
        let mut lease = stored.cloned().unwrap_or_else(|| {
            let mut lease = Value::map([("apiVersion", "coordination.k8s.io/v1"), ("kind", "Lease")]);
            meta::set(&mut lease, "name", self.name.as_str());
            meta::set(&mut lease, "namespace", api::namespaces::SYSTEM);
            lease.set_at(&["spec", "holderIdentity"], self.holder.as_str());
            lease
        });
        lease.set_at(&["spec", "leaseDurationSeconds"], DURATION_SECONDS);
        lease.set_at(&["spec", "renewTime"], Timestamp::from_micros(now).micro_time());
        lease.set_at(&["metadata", "labels", IDENTITY_LABEL], identity::COMPONENT);
        lease.set_at(&["metadata", "labels", "kubernetes.io/hostname"], self.host.as_str());
        lease.set_at(
            &["metadata", "annotations", "kubernetes.io/peer-advertise-address"],
            self.address.as_str(),
        );
        lease
    }

    async fn delete(&self) {
        let (path, options) = (self.path(), Value::map([("apiVersion", "v1"), ("kind", "DeleteOptions")]));
        match tokio::time::timeout(LIMIT, self.client.delete(&path, &options)).await {
            Ok(Err(status)) if status.code() != 404 => {
                warn!(
                    lease = self.name,
                    error = status.message(),
                    "cannot delete the identity Lease of this server; it stays until it expires, in an hour"
                );
            }
            Err(_) => warn!(
                lease = self.name,
                "cannot delete the identity Lease of this server in time; it stays until it expires, in an hour"
            ),
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
