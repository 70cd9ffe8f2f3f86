//! The IP library. Addresses are parsed and printed as in Go's `net/netip`.

use std::net::{IpAddr, Ipv4Addr};

use value::go::netip::{is_mapped, parse_addr};
use value::go::quote;

use super::{Ext, ext, refuse, string};
use crate::env::Builder;
use crate::eval::{Error, EvalResult};
use crate::types::Type;
use crate::val::Val;

/// Declares `ip`, `isIP` and the methods of addresses.
pub(crate) fn add(b: &mut Builder) {
    b.type_name(Type::opaque("net.IP"));
    b.function(
        "ip",
        &[("string_to_ip", "(string) -> net.IP", |_, args| {
            parse(string(args, 0)?).map(|ip| Val::ext(Ext::Ip(ip))).map_err(Error::new)
        })],
    );
    b.function(
        "isIP",
        &[("is_ip", "(string) -> bool", |_, args| Ok(Val::Bool(parse(string(args, 0)?).is_ok())))],
    );
    b.function(
        "ip.isCanonical",
        &[("ip_is_canonical", "(string) -> bool", |_, args| {
            let written = string(args, 0)?;
            let ip = parse(written).map_err(Error::new)?;
            Ok(Val::Bool(ip.to_string() == written))
        })],
    );
    b.function(
        "family",
        &[("ip_family", "net.IP.() -> int", |_, args| match ext(args, 0)? {
            Ext::Ip(IpAddr::V4(_)) => Ok(Val::Int(4)),
            Ext::Ip(IpAddr::V6(_)) => Ok(Val::Int(6)),
            _ => refuse(),
        })],
    );
    b.function(
        "isUnspecified",
        &[("ip_is_unspecified", "net.IP.() -> bool", |_, args| test(args, |ip| ip.is_unspecified()))],
    );
    b.function(
        "isLoopback",
        &[("ip_is_loopback", "net.IP.() -> bool", |_, args| test(args, |ip| ip.is_loopback()))],
    );
    b.function(
        "isLinkLocalMulticast",
        &[("ip_is_link_local_multicast", "net.IP.() -> bool", |_, args| test(args, link_local_multicast))],
    );
    b.function(
        "isLinkLocalUnicast",
        &[("ip_is_link_local_unicast", "net.IP.() -> bool", |_, args| test(args, link_local_unicast))],
    );
    b.function(
        "isGlobalUnicast",
        &[("ip_is_global_unicast", "net.IP.() -> bool", |_, args| test(args, global_unicast))],
    );
    b.function(
        "string",
        &[("ip_to_string", "(net.IP) -> string", |_, args| match ext(args, 0)? {
            Ext::Ip(ip) => Ok(Val::string(ip.to_string())),
            _ => refuse(),
        })],
    );
}

fn test<'a>(args: &[Val<'a>], holds: fn(IpAddr) -> bool) -> EvalResult<'a> {
    match ext(args, 0)? {
        Ext::Ip(ip) => Ok(Val::Bool(holds(*ip))),
        _ => refuse(),
    }
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => matches!(ip.octets(), [224, 0, 0, _]),
        IpAddr::V6(ip) => ip.segments().first().is_some_and(|s| s & 0xff0f == 0xff02),
    }
}

fn link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments().first().is_some_and(|s| s & 0xffc0 == 0xfe80),
    }
}

fn global_unicast(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(Ipv4Addr::BROADCAST));
    !broadcast && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !link_local_unicast(ip)
}

/// Parses an address with Kubernetes' restrictions: no zone, no IPv4-mapped IPv6 address.
pub(crate) fn parse(text: &str) -> Result<IpAddr, String> {
    let (ip, zoned) = parse_addr(text).map_err(|error| {
        format!("IP Address {} parse error during conversion from string: {error}", quote(text))
    })?;
    if zoned {
        return Err(format!("IP address {} with zone value is not allowed", quote(text)));
    }
    if is_mapped(ip) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
    }
    Ok(ip)
}
