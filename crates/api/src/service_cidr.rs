//! Ranges of cluster IPs, `spec.cidrs` of a ServiceCIDR.

use std::net::IpAddr;

use ipnet::IpNet;

/// Returns true for addresses of a range that can be allocated: not the network address, and not the broadcast address of IPv4.
pub fn is_allocatable(range: &IpNet, address: IpAddr) -> bool {
    range.contains(&address)
        && address != range.network()
        && !(address.is_ipv4() && address == range.broadcast())
}

#[cfg(test)]
mod tests {
    use super::is_allocatable;

    #[test]
    fn network_and_broadcast_addresses_cannot_be_allocated() {
        let check =
            |range: &str, address: &str| is_allocatable(&range.parse().unwrap(), address.parse().unwrap());
        assert!(check("10.0.0.0/24", "10.0.0.1") && check("10.0.0.0/24", "10.0.0.254"));
        assert!(!check("10.0.0.0/24", "10.0.0.0") && !check("10.0.0.0/24", "10.0.0.255"));
        assert!(!check("10.0.0.0/24", "10.0.1.1"));
        assert!(check("fd00::/120", "fd00::1") && check("fd00::/120", "fd00::ff"));
        assert!(!check("fd00::/120", "fd00::") && !check("fd00::/120", "10.0.0.1"));
    }
}
