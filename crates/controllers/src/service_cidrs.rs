//! Protects ServiceCIDRs while cluster IPs depend on them, and sets their condition `Ready`.
//!
//! Every ServiceCIDR gets a finalizer. When it is deleted, servers stop allocating from its ranges; it goes once every IPAddress in them is
//! also in a range of another ServiceCIDR.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::labels::{IP_ADDRESS_MANAGED_BY, IP_ALLOCATOR};
use api::service_cidr::is_allocatable;
use api::time::Timestamp;
use api::validation::fields::Read as _;
use api::{Status, meta};
use ipnet::IpNet;
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, PatchBody, ResourceKind, WatchSource};
use crate::drive::{self, Controller, ReconcileOutcome};
use crate::events;

pub(crate) const NAME: &str = "service-cidrs-controller";

/// The name in events and in managed fields.
const COMPONENT: &str = "service-cidr-controller";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

/// Time after the deletion of a ServiceCIDR in which a server may still allocate from it.
const DELETION_GRACE: Duration = Duration::from_secs(10);

struct ServiceCidrProtection<A> {
    api: Arc<A>,
    cidrs: Arc<ResourceKind>,
    addresses: Arc<ResourceKind>,
}

/// The action that a ServiceCIDR needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CidrStep {
    /// Add the finalizer if it is missing, and set `Ready`.
    Protect,
    /// Addresses depend on it: report that in its status.
    Block,
    /// Nothing depends on it; look again after this time.
    Wait(Duration),
    Release,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, stop: watch::Receiver<bool>) {
    let kind = |name| api.kind("networking.k8s.io/v1", name);
    let (Some(cidrs), Some(addresses)) = (kind("ServiceCIDR"), kind("IPAddress")) else { return };
    let sources = vec![WatchSource::Kind(Arc::clone(&cidrs)), WatchSource::Kind(Arc::clone(&addresses))];
    let controller = ServiceCidrProtection { api: Arc::clone(&api), cidrs, addresses };
    drive::run(controller, api, sources, stop).await;
}

impl<A: Api> Controller for ServiceCidrProtection<A> {
    /// The name of a ServiceCIDR.
    type Key = Str;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 5;

    fn observe(&self, change: &ObjectChange) -> Vec<(Str, Duration)> {
        let now = |name: &str| (Str::from(name), Duration::ZERO);
        let stored = self.api.list(&self.cidrs, "").unwrap_or_default();
        if change.object_ref.kind == self.cidrs {
            let own = ranges(&change.object);
            let overlaps = |other: &&Value| {
                ranges(other).iter().any(|net| own.iter().any(|own| net.contains(own) || own.contains(net)))
            };
            let others = stored.iter().filter(overlaps).map(|cidr| now(meta::name(cidr)));
            return std::iter::once(now(&change.object_ref.name)).chain(others).collect();
        }
        // Only ServiceCIDRs that are being deleted depend on addresses.
        let Some(address) = managed_address(&change.object) else { return Vec::new() };
        let waits = |cidr: &&Value| meta::is_deleting(cidr) && contains(cidr, address);
        stored.iter().filter(waits).map(|cidr| now(meta::name(cidr))).collect()
    }

    async fn reconcile(&self, name: Str) -> Result<ReconcileOutcome<Str>, Status> {
        let object_ref = self.cidrs.object_ref("", &name);
        let Some(cidr) = self.api.get(&object_ref)? else { return Ok(ReconcileOutcome::Done) };
        let all = self.api.list(&self.cidrs, "")?;
        let addresses = || self.api.list(&self.addresses, "");
        match step(&cidr, &all, addresses, self.api.now())? {
            CidrStep::Protect => {
                if !has_finalizer(&cidr) {
                    let patch = finalizer_patch("finalizers");
                    self.api.patch(&object_ref, "", &PatchBody::Strategic(patch)).await?;
                }
                let outcome = self.set_ready(&cidr, "True", "", "Kubernetes Service CIDR is ready").await;
                if outcome.is_err() {
                    let message = "The ServiceCIDR Status can not be set to Ready=True";
                    events::warn(&*self.api, &cidr, "KubernetesServiceCIDRError", message, COMPONENT).await;
                }
                outcome?;
            }
            CidrStep::Block => {
                let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
                self.set_ready(&cidr, "False", "Terminating", message).await?;
            }
            CidrStep::Wait(time) => return Ok(ReconcileOutcome::After(time)),
            CidrStep::Release => {
                let patch = finalizer_patch("$deleteFromPrimitiveList/finalizers");
                match self.api.patch(&object_ref, "", &PatchBody::Strategic(patch)).await {
                    Err(status) if status.code() != 404 => return Err(status),
                    _ => {}
                }
            }
        }
        Ok(ReconcileOutcome::Done)
    }
}

impl<A: Api> ServiceCidrProtection<A> {
    /// Sets the condition `Ready`, unless it is already so. The message of a ServiceCIDR that is ready is left alone: the server has set that of
    /// the ServiceCIDR `kubernetes`.
    async fn set_ready(&self, cidr: &Value, status: &str, reason: &str, message: &str) -> Result<(), Status> {
        let conditions = cidr.list_at(&["status", "conditions"]);
        let is_so = |condition: &&Value| {
            condition.text("type") == "Ready"
                && condition.text("status") == status
                && (status == "True"
                    || condition.text("reason") == reason && condition.text("message") == message)
        };
        if conditions.iter().any(|condition| is_so(&condition)) {
            return Ok(());
        }
        let time = Timestamp::from_seconds(self.api.now()).time();
        let condition = Value::map([
            ("type", "Ready"),
            ("status", status),
            ("reason", reason),
            ("message", message),
            ("lastTransitionTime", time.as_str()),
        ]);
        let name = meta::name(cidr);
        let mut configuration = crate::api::object(&self.cidrs, "", name);
        configuration.set_at(&["status", "conditions"], Value::List(vec![condition]));
        let apply = PatchBody::Apply(configuration, COMPONENT);
        self.api.patch(&self.cidrs.object_ref("", name), "status", &apply).await.map(drop)
    }
}

fn finalizer_patch(field: &str) -> Value {
    let mut patch = Value::Null;
    patch.set_at(&["metadata", field], Value::list([FINALIZER]));
    patch
}

fn has_finalizer(cidr: &Value) -> bool {
    cidr.list_at(&["metadata", "finalizers"]).iter().any(|finalizer| finalizer.as_str() == Some(FINALIZER))
}

/// Decides about a ServiceCIDR. `all` has every ServiceCIDR, `addresses` returns every IPAddress, `now` is in seconds since the epoch.
fn step(
    cidr: &Value,
    all: &[Value],
    addresses: impl FnOnce() -> Result<Vec<Value>, Status>,
    now: i64,
) -> Result<CidrStep, Status> {
    if !meta::is_deleting(cidr) {
        return Ok(CidrStep::Protect);
    }
    if !has_finalizer(cidr) {
        return Ok(CidrStep::Wait(DELETION_GRACE));
    }
    let others: Vec<&Value> = all.iter().filter(|other| meta::name(other) != meta::name(cidr)).collect();
    let is_contained =
        |net: &IpNet| others.iter().any(|other| ranges(other).iter().any(|wider| wider.contains(net)));
    if !ranges(cidr).iter().all(is_contained) {
        let depends =
            |address: IpAddr| contains(cidr, address) && !others.iter().any(|other| contains(other, address));
        if addresses()?.iter().filter_map(managed_address).any(depends) {
            return Ok(CidrStep::Block);
        }
    }
    let deleted = Timestamp::parse(meta::text(cidr, "deletionTimestamp"));
    let since = deleted.map_or(i64::MAX, |time| now.saturating_sub(time.micros() / 1_000_000));
    let left = DELETION_GRACE.saturating_sub(Duration::from_secs(u64::try_from(since).unwrap_or(0)));
    Ok(if left.is_zero() { CidrStep::Release } else { CidrStep::Wait(left) })
}

fn ranges(cidr: &Value) -> Vec<IpNet> {
    cidr.part("spec").texts("cidrs").filter_map(|text| text.parse().ok()).collect()
}

/// The address of an IPAddress that was allocated for a Service.
fn managed_address(object: &Value) -> Option<IpAddr> {
    let is_managed = object.part("metadata").part("labels").text(IP_ADDRESS_MANAGED_BY) == IP_ALLOCATOR;
    is_managed.then(|| meta::name(object).parse().ok()).flatten()
}

/// Returns true if the address can be allocated from a range of the ServiceCIDR.
fn contains(cidr: &Value, address: IpAddr) -> bool {
    ranges(cidr).iter().any(|range| is_allocatable(range, address))
}

#[cfg(test)]
mod tests;
