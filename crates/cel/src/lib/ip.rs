//! The IP library. Addresses are parsed and printed as in Go's `net/netip`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
            Ok(Val::Bool(text(ip) == written))
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
            Ext::Ip(ip) => Ok(Val::string(text(*ip))),
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
    let (ip, zoned) = parse_go(text).map_err(|error| {
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

/// True for IPv4-mapped IPv6 addresses.
pub(super) fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// Prints an address as Go does.
pub(crate) fn text(ip: IpAddr) -> String {
    // Go and Rust agree: the longest run of zeros is `::`, and IPv4-mapped addresses have dots.
    ip.to_string()
}

/// Parses an address as Go's `netip.ParseAddr`; also returns whether there was a zone.
pub(super) fn parse_go(text: &str) -> Result<(IpAddr, bool), String> {
    match text.bytes().find(|b| matches!(b, b'.' | b':' | b'%')) {
        Some(b'.') => {
            let octets = ipv4(text, text)?;
            Ok((IpAddr::V4(Ipv4Addr::from(octets)), false))
        }
        Some(b':') => ipv6(text),
        Some(_) => Err(failure(text, "missing IPv6 address", "")),
        None => Err(failure(text, "unable to parse IP", "")),
    }
}

fn failure(text: &str, message: &str, at: &str) -> String {
    if at.is_empty() {
        return format!("ParseAddr({}): {message}", quote(text));
    }
    format!("ParseAddr({}): {message} (at {})", quote(text), quote(at))
}

/// Parses the IPv4 address `part` of the text `whole`.
fn ipv4(whole: &str, part: &str) -> Result<[u8; 4], String> {
    let mut fields = [0u8; 4];
    let mut position = 0;
    let mut value: u32 = 0;
    let mut digits = 0;
    let bytes = part.as_bytes();
    let rest = |i: usize| part.get(i..).unwrap_or_default();
    for (i, &byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(failure(whole, "IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(failure(whole, "IPv4 field has value >255", ""));
                }
            }
            b'.' => {
                if i == 0 || i + 1 == bytes.len() || bytes.get(i - 1) == Some(&b'.') {
                    return Err(failure(whole, "IPv4 field must have at least one digit", rest(i)));
                }
                if position == 3 {
                    return Err(failure(whole, "IPv4 address too long", ""));
                }
                if let Some(field) = fields.get_mut(position) {
                    *field = u8::try_from(value).unwrap_or(u8::MAX);
                }
                position += 1;
                value = 0;
                digits = 0;
            }
            _ => return Err(failure(whole, "unexpected character", rest(i))),
        }
    }
    if position < 3 {
        return Err(failure(whole, "IPv4 address too short", ""));
    }
    if let Some(field) = fields.last_mut() {
        *field = u8::try_from(value).unwrap_or(u8::MAX);
    }
    Ok(fields)
}

fn ipv6(whole: &str) -> Result<(IpAddr, bool), String> {
    let (mut rest, zoned) = match whole.split_once('%') {
        Some((_, "")) => return Err(failure(whole, "zone must be a non-empty string", "")),
        Some((address, _)) => (address, true),
        None => (whole, false),
    };
    let mut groups: Vec<u8> = Vec::with_capacity(16);
    let mut ellipsis = None;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok((IpAddr::V6(Ipv6Addr::UNSPECIFIED), zoned));
        }
    }
    while groups.len() < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(failure(whole, "each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Err(failure(whole, "each colon-separated field must have at least one digit", rest));
        }
        let after = rest.get(digits..).unwrap_or_default();
        if after.starts_with('.') {
            if ellipsis.is_none() && groups.len() != 12 {
                return Err(failure(
                    whole,
                    "embedded IPv4 address must replace the final 2 fields of the address",
                    rest,
                ));
            }
            if groups.len() + 4 > 16 {
                return Err(failure(
                    whole,
                    "too many hex fields to fit an embedded IPv4 at the end of the address",
                    rest,
                ));
            }
            groups.extend(ipv4(whole, rest)?);
            rest = "";
            break;
        }
        let group = u16::from_str_radix(rest.get(..digits).unwrap_or_default(), 16).unwrap_or(0);
        groups.extend(group.to_be_bytes());
        rest = after;
        if rest.is_empty() {
            break;
        }
        if !rest.starts_with(':') {
            return Err(failure(whole, "unexpected character, want colon", rest));
        }
        if rest.len() == 1 {
            return Err(failure(whole, "colon must be followed by more characters", rest));
        }
        rest = rest.get(1..).unwrap_or_default();
        if rest.starts_with(':') {
            if ellipsis.is_some() {
                return Err(failure(whole, "multiple :: in address", rest));
            }
            ellipsis = Some(groups.len());
            rest = rest.get(1..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(failure(whole, "trailing garbage after address", rest));
    }
    if groups.len() < 16 {
        let Some(at) = ellipsis else { return Err(failure(whole, "address string too short", "")) };
        let missing = 16 - groups.len();
        groups.splice(at..at, std::iter::repeat_n(0, missing));
    } else if ellipsis.is_some() {
        return Err(failure(whole, "the :: must expand to at least one field of zeros", ""));
    }
    let bytes: [u8; 16] = groups.try_into().unwrap_or([0; 16]);
    Ok((IpAddr::V6(Ipv6Addr::from(bytes)), zoned))
}
