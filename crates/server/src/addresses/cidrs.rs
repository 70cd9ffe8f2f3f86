//! The ranges that cluster IPs are allocated from: those of the stored ServiceCIDRs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use api::meta;
use api::validation::fields::Read as _;
use catalog::keys;
use catalog::unreadable::Unreadable;
use kinds::strategy::service::Family;
use storage::Store;
use tokio::sync::watch;
use value::Value;

use super::range::ServiceRange;
use crate::informer::{InformerProgress, Notes, start_informer};

/// The ServiceCIDR that every cluster has.
pub(crate) const DEFAULT_NAME: &str = "kubernetes";

/// The ranges of the stored ServiceCIDRs, kept up to date by an informer.
#[derive(Clone)]
pub(crate) struct ServiceCidrs {
    known: watch::Receiver<Arc<KnownRanges>>,
    progress: InformerProgress,
}

/// The ranges at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownRanges {
    /// Each range once, even if several ServiceCIDRs have it. The flag is true if addresses can be allocated from it.
    ranges: BTreeMap<ServiceRange, bool>,
    /// The ServiceCIDR `kubernetes` exists.
    pub(crate) has_default: bool,
}

impl ServiceCidrs {
    pub(crate) fn start(store: &Store, unreadable: &Arc<Unreadable>) -> Self {
        let (update, known) = watch::channel(Arc::new(KnownRanges::default()));
        let objects = Mutex::new(BTreeMap::new());
        let progress =
            start_informer(store, keys::SERVICE_CIDRS, Notes::hints(unreadable), move |old, new| {
                let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(old) = old {
                    objects.remove(meta::name(old));
                }
                if let Some(new) = new {
                    objects.insert(meta::name(new).to_owned(), new.clone());
                }
                let _ = update.send(Arc::new(KnownRanges::of(objects.values())));
            });
        ServiceCidrs { known, progress }
    }

    pub(crate) fn now(&self) -> Arc<KnownRanges> {
        Arc::clone(&self.known.borrow())
    }

    /// Waits until the ServiceCIDR `kubernetes` exists.
    pub(crate) async fn has_default(&self) {
        let _ = self.known.clone().wait_for(|known| known.has_default).await;
    }

    /// Waits until the writes of ServiceCIDRs up to `revision` are in force.
    pub(crate) async fn reached(&self, revision: u64) {
        self.progress.reached(revision).await;
    }
}

impl KnownRanges {
    fn of<'a>(objects: impl Iterator<Item = &'a Value>) -> Self {
        let mut known = KnownRanges::default();
        for object in objects {
            let is_ready = is_ready(object);
            known.has_default |= meta::name(object) == DEFAULT_NAME;
            for text in object.part("spec").texts("cidrs") {
                if let Some(range) = text.parse().ok().and_then(ServiceRange::new) {
                    *known.ranges.entry(range).or_default() |= is_ready;
                }
            }
        }
        known
    }

    /// The ranges of a family, and whether addresses can be allocated from each.
    pub(crate) fn of_family(&self, family: Family) -> impl Iterator<Item = (ServiceRange, bool)> + '_ {
        self.ranges
            .iter()
            .map(|(range, ready)| (*range, *ready))
            .filter(move |(range, _)| range.family() == family)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = ServiceRange> + '_ {
        self.ranges.keys().copied()
    }

    /// A ready range that contains the address.
    pub(crate) fn ready_range(&self, address: IpAddr) -> Option<ServiceRange> {
        self.ranges.iter().find(|(range, ready)| **ready && range.contains(address)).map(|(range, _)| *range)
    }

    /// Returns true if any range contains the address, ready or not.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.ranges.keys().any(|range| range.contains(address))
    }
}

/// Returns true if addresses can be allocated from the ranges of this ServiceCIDR: it is not being deleted, and its condition `Ready` is
/// true or absent, because no controller may be running that sets it.
fn is_ready(cidr: &Value) -> bool {
    let conditions = cidr.list_at(&["status", "conditions"]);
    let ready = conditions.iter().find(|condition| condition.text("type") == "Ready");
    !meta::is_deleting(cidr) && ready.is_none_or(|ready| ready.text("status") == "True")
}

#[cfg(test)]
mod tests {
    use value::{Value, json};

    use super::KnownRanges;

    fn cidr(name: &str, rest: &str) -> Value {
        json::parse(format!(r#"{{"metadata":{{"name":"{name}"}},{rest}}}"#).as_bytes()).unwrap()
    }

    const READY: &str = r#""status":{"conditions":[{"type":"Ready","status":"True"}]}"#;
    const NOT_READY: &str = r#""status":{"conditions":[{"type":"Ready","status":"False"}]}"#;

    #[test]
    fn a_range_is_usable_if_one_of_its_service_cidrs_is_ready() {
        let spec = r#""spec":{"cidrs":["10.0.0.0/24"]}"#;
        let address = "10.0.0.9".parse().unwrap();
        let known = |objects: &[Value]| KnownRanges::of(objects.iter());
        assert!(known(&[cidr("a", spec)]).ready_range(address).is_some(), "without a condition");
        assert!(known(&[cidr("a", &format!("{spec},{READY}"))]).ready_range(address).is_some());
        let off = known(&[cidr("a", &format!("{spec},{NOT_READY}"))]);
        assert!(off.ready_range(address).is_none() && off.contains(address));
        let both = [cidr("a", &format!("{spec},{NOT_READY}")), cidr("b", spec)];
        assert!(known(&both).ready_range(address).is_some());
        let mut deleting = cidr("a", &format!("{spec},{READY}"));
        deleting.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        assert!(known(&[deleting]).ready_range(address).is_none());
    }

    #[test]
    fn the_default_service_cidr_is_found_by_its_name() {
        let spec = r#""spec":{"cidrs":["10.0.0.0/24","fd00::/32","nonsense"]}"#;
        let known = KnownRanges::of([cidr("kubernetes", spec)].iter());
        assert!(known.has_default);
        assert_eq!(
            known.all().count(),
            1,
            "the other two are not ranges that addresses can be allocated from"
        );
        assert!(!KnownRanges::of([cidr("other", spec)].iter()).has_default);
    }
}
