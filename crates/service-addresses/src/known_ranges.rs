//! The ranges of all ServiceCIDRs at one moment.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::meta;
use api::validation::fields::Read as _;
use kinds::strategy::service::Family;
use value::Value;

use super::range::ServiceRange;

/// The ServiceCIDR that every cluster has.
pub const DEFAULT_CIDR: &str = "kubernetes";

/// The ranges of the stored ServiceCIDRs at one moment.
#[derive(Clone, Debug, Default)]
pub struct KnownRanges {
    /// Each range once, even if several ServiceCIDRs have it. The flag is true if addresses can be allocated from it.
    ranges: BTreeMap<ServiceRange, bool>,
    /// The ServiceCIDR `kubernetes` exists.
    pub has_default: bool,
}

impl KnownRanges {
    /// Reads the stored ServiceCIDRs. What is no range that addresses can be allocated from is left out.
    pub fn of<'a>(objects: impl Iterator<Item = &'a Value>) -> Self {
        let mut known = KnownRanges::default();
        for object in objects {
            let is_ready = is_ready(object);
            known.has_default |= meta::name(object) == DEFAULT_CIDR;
            for text in object.part("spec").texts("cidrs") {
                if let Some(range) = text.parse().ok().and_then(ServiceRange::new) {
                    *known.ranges.entry(range).or_default() |= is_ready;
                }
            }
        }
        known
    }

    /// The ranges of a family, and whether addresses can be allocated from each.
    pub fn of_family(&self, family: Family) -> impl Iterator<Item = (ServiceRange, bool)> + '_ {
        self.ranges
            .iter()
            .map(|(range, ready)| (*range, *ready))
            .filter(move |(range, _)| range.family() == family)
    }

    pub fn all(&self) -> impl Iterator<Item = ServiceRange> + '_ {
        self.ranges.keys().copied()
    }

    /// A ready range that contains the address.
    pub fn ready_range(&self, address: IpAddr) -> Option<ServiceRange> {
        self.ranges.iter().find(|(range, ready)| **ready && range.contains(address)).map(|(range, _)| *range)
    }

    /// Returns true if any range contains the address, ready or not.
    pub fn contains(&self, address: IpAddr) -> bool {
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
