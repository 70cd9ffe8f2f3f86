//! Arithmetic of one range of cluster IPs: which of its addresses can be allocated, and in which order they are tried.

use std::net::IpAddr;

use api::service_cidr::is_allocatable;
use ipnet::IpNet;
use kinds::strategy::service::Family;

/// A range of cluster IPs (`spec.cidrs[i]` of a ServiceCIDR).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceRange {
    net: IpNet,
}

impl ServiceRange {
    /// `None` for IPv6 ranges with a prefix shorter than 64 bits, from which Kubernetes does not allocate.
    pub fn new(net: IpNet) -> Option<Self> {
        let range = ServiceRange { net: net.trunc() };
        (range.family() == Family::V4 || net.prefix_len() >= 64).then_some(range)
    }

    pub fn net(&self) -> IpNet {
        self.net
    }

    pub fn family(&self) -> Family {
        family_of(self.net.addr())
    }

    /// Returns true for addresses that can be allocated.
    pub fn contains(&self, address: IpAddr) -> bool {
        is_allocatable(&self.net, address)
    }

    /// Number of addresses that can be allocated.
    pub fn size(&self) -> u64 {
        let host_bits = u32::from(self.net.max_prefix_len() - self.net.prefix_len());
        let Some(all) = 1_u64.checked_shl(host_bits) else { return u64::MAX };
        all.saturating_sub(if self.family() == Family::V4 { 2 } else { 1 })
    }

    /// Number of addresses at the start of the range that are allocated last, because they are meant for explicit requests: a sixteenth
    /// of the range, at least 16 and at most 256. Ranges of up to 16 addresses have no such part.
    fn lower_band(&self) -> u64 {
        let host_bits = u32::from(self.net.max_prefix_len() - self.net.prefix_len());
        let all = 1_u64.checked_shl(host_bits).unwrap_or(u64::MAX);
        if all <= 16 { 0 } else { (all / 16).clamp(16, 256) }
    }

    /// All addresses that can be allocated, in the order in which they are tried: first those above the lower band, then the lower band, each
    /// from an address that `random` chooses. `random(n)` returns a number below `n`.
    pub fn candidates(&self, random: fn(u64) -> u64) -> impl Iterator<Item = IpAddr> + use<> {
        let (size, lower) = (self.size(), self.lower_band());
        let upper = size.saturating_sub(lower);
        let lower = lower.min(size);
        let start = |count: u64| if count == 0 { 0 } else { random(count) };
        let (upper_start, lower_start) = (start(upper), start(lower));
        let range = *self;
        let band = move |first: u64, count: u64, start: u64| {
            (start..count).chain(0..start).filter_map(move |offset| range.nth(first.checked_add(offset)?))
        };
        band(lower, upper, upper_start).chain(band(0, lower, lower_start))
    }

    /// The address with this index among those that can be allocated.
    pub fn nth(&self, index: u64) -> Option<IpAddr> {
        if index >= self.size() {
            return None;
        }
        match self.net.network() {
            IpAddr::V4(base) => {
                let offset = u32::try_from(index).ok()?.checked_add(1)?;
                Some(IpAddr::V4(u32::from(base).checked_add(offset)?.into()))
            }
            IpAddr::V6(base) => {
                let offset = u128::from(index).checked_add(1)?;
                Some(IpAddr::V6(u128::from(base).checked_add(offset)?.into()))
            }
        }
    }
}

pub fn family_of(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::ServiceRange;

    fn range(text: &str) -> ServiceRange {
        ServiceRange::new(text.parse().unwrap()).unwrap()
    }

    #[test]
    fn network_and_broadcast_addresses_cannot_be_allocated() {
        let small = range("10.0.0.0/29");
        let found: Vec<String> = small.candidates(|_| 0).map(|address| address.to_string()).collect();
        assert_eq!(found, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert!(!small.contains("10.0.0.0".parse().unwrap()));
        assert!(!small.contains("10.0.0.7".parse().unwrap()));
        assert!(small.contains("10.0.0.6".parse().unwrap()));
        let six = range("fd00::/126");
        assert_eq!(six.size(), 3);
        assert!(six.contains("fd00::3".parse().unwrap()), "IPv6 has no broadcast address");
        assert!(!six.contains("fd00::".parse().unwrap()));
    }

    #[test]
    fn ranges_without_room_have_no_candidates() {
        for text in ["10.0.0.0/32", "10.0.0.0/31", "fd00::/128"] {
            assert_eq!(range(text).candidates(|_| 0).count(), 0, "{text}");
        }
    }

    #[test]
    fn the_lower_band_is_a_sixteenth_of_the_whole_range_and_comes_last() {
        for (text, first, last) in [
            ("10.0.0.0/24", "10.0.0.17", "10.0.0.16"),
            ("10.0.0.0/27", "10.0.0.17", "10.0.0.16"),
            ("10.0.0.0/28", "10.0.0.1", "10.0.0.14"),
            ("10.0.0.0/23", "10.0.0.33", "10.0.0.32"),
            ("10.0.0.0/16", "10.0.1.1", "10.0.1.0"),
            ("fd00::/120", "fd00::11", "fd00::10"),
        ] {
            let found: Vec<_> = range(text).candidates(|_| 0).collect();
            assert_eq!(found.first().unwrap().to_string(), first, "{text}");
            assert_eq!(found.last().unwrap().to_string(), last, "{text}");
            let all: HashSet<_> = found.iter().collect();
            assert_eq!(all.len() as u64, range(text).size(), "{text}: every address once");
        }
    }

    #[test]
    fn each_band_starts_anywhere_and_wraps() {
        let found: Vec<String> =
            range("10.0.0.0/29").candidates(|count| count - 1).map(|a| a.to_string()).collect();
        assert_eq!(found, ["10.0.0.6", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]);
    }

    #[test]
    fn a_prefix_of_64_bits_is_the_largest_ipv6_range() {
        assert_eq!(ServiceRange::new("fd00::/63".parse().unwrap()), None);
        let large = range("fd00::/64");
        assert_eq!(large.size(), u64::MAX);
        assert_eq!(large.candidates(|_| 0).next().unwrap().to_string(), "fd00::101");
        let end = large.candidates(|count| count - 1).next().unwrap().to_string();
        assert_eq!(end, "fd00::ffff:ffff:ffff:ffff");
    }
}
