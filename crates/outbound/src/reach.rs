//! Restricts the addresses that this server connects to on behalf of objects in the cluster.
//!
//! Users who can write a Service or an EndpointSlice must not be able to direct this server to its own host
//! or local network segment: loopback, link-local (cloud metadata), unspecified, multicast and broadcast
//! addresses. The check applies to the resolved address of each connection, so DNS rebinding cannot bypass
//! it. Addresses that administrators configure, by a URL or a kubeconfig file, are not restricted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The source of a server's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// A URL set by an administrator: every address may be dialed.
    #[default]
    Configured,
    /// A Service or its EndpointSlices: only routable addresses may be dialed, and loopback ones if the host
    /// is named `localhost`, as in an `ExternalName` Service of a development cluster.
    Cluster,
}

impl Reach {
    /// True if a connection for `host` may use `address`, which `host` resolved to.
    pub(super) fn allows(self, host: &str, address: SocketAddr) -> bool {
        match self {
            Reach::Configured => true,
            Reach::Cluster => {
                let this_host = host.eq_ignore_ascii_case("localhost") && address.ip().is_loopback();
                this_host || is_routable(address.ip())
            }
        }
    }
}

/// True unless the address refers to this host, its local network segment or many hosts at once. An IPv6
/// address that embeds an IPv4 address (mapped, compatible, NAT64, 6to4) must be routable in both forms.
pub fn is_routable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_routable_v4(ip),
        IpAddr::V6(ip) => is_routable_v6(ip) && embedded_v4(ip).is_none_or(is_routable_v4),
    }
}

fn is_routable_v4(ip: Ipv4Addr) -> bool {
    // All of 0.0.0.0/8 means this host.
    let this_network = ip.octets().first() == Some(&0);
    !this_network && !ip.is_loopback() && !ip.is_link_local() && !ip.is_multicast() && !ip.is_broadcast()
}

fn is_routable_v6(ip: Ipv6Addr) -> bool {
    !ip.is_unspecified() && !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_multicast()
}

/// The IPv4 address embedded in an IPv6 address, in the forms that hosts and gateways translate.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let last = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match ip.segments() {
        // ::ffff:a.b.c.d (mapped), ::ffff:0:a.b.c.d (translated) and ::a.b.c.d (compatible).
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0 | 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => Some(last(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::{Reach, is_routable};

    #[test]
    fn addresses_of_this_host_and_its_wire_are_not_routable_in_any_spelling() {
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::127.0.0.1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(!is_routable(bad.parse::<IpAddr>().unwrap()), "{bad}");
        }
        for good in [
            "10.0.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "8.8.8.8",
            "fd00::1",
            "2001:db8::1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::1",
        ] {
            assert!(is_routable(good.parse::<IpAddr>().unwrap()), "{good}");
        }
    }

    #[test]
    fn cluster_targets_reach_loopback_only_as_localhost_and_configured_targets_any_address() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(Reach::Cluster.allows("localhost", at("127.0.0.1:1")));
        assert!(Reach::Cluster.allows("example.com", at("192.0.2.1:1")));
        assert!(!Reach::Cluster.allows("example.com", at("127.0.0.1:1")), "a name that was rebound");
        assert!(!Reach::Cluster.allows("127.0.0.1", at("127.0.0.1:1")));
        assert!(!Reach::Cluster.allows("localhost", at("169.254.169.254:1")));
        assert!(Reach::Configured.allows("example.com", at("127.0.0.1:1")));
    }
}
