//! IP addresses and networks as Go parses them: strictly, with the errors of `net/netip`, or in the lenient forms that old
//! fields of Kubernetes accept. [`IpAddr`] prints them as `net/netip` does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::quote;

/// Parses an address as Go's `netip.ParseAddr`; also returns whether there was a zone.
pub fn parse_addr(text: &str) -> Result<(IpAddr, bool), String> {
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

/// Parses a network as Go's `netip.ParsePrefix`: the address, host bits included, and the prefix length.
pub fn parse_prefix(text: &str) -> Result<(IpAddr, u8), String> {
    let fail = |message: String| format!("netip.ParsePrefix({}): {message}", quote(text));
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| fail("no '/'".to_owned()))?;
    let (ip, zoned) = parse_addr(address).map_err(fail)?;
    if zoned {
        return Err(fail("IPv6 zones cannot be present in a prefix".to_owned()));
    }
    let bad = || fail(format!("bad bits after slash: {}", quote(bits)));
    if bits.len() > 1 && !bits.starts_with(|c: char| ('1'..='9').contains(&c)) {
        return Err(bad());
    }
    let number: i64 = bits.parse().map_err(|_| bad())?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    if !(0..=most).contains(&number) {
        return Err(fail("prefix length out of range".to_owned()));
    }
    Ok((ip, u8::try_from(number).unwrap_or(u8::MAX)))
}

/// First address of a network: clears all bits after the first `bits`.
pub fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    IpNet::new(ip, bits).map_or(ip, |network| network.network())
}

/// True for IPv4-mapped IPv6 addresses.
pub fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Parses an address in any form Kubernetes ever accepted: octets and groups may have leading zeros.
pub fn parse_ip_sloppy(text: &str) -> Option<IpAddr> {
    if text.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.') {
        return text.parse().ok().or_else(|| plain_numbers(text).parse().ok());
    }
    None
}

/// Removes leading zeros from the numbers in `text`.
fn plain_numbers(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for part in text.split_inclusive([':', '.']) {
        let number = part.trim_end_matches([':', '.']);
        let trimmed = number.trim_start_matches('0');
        plain.push_str(if trimmed.is_empty() && !number.is_empty() { "0" } else { trimmed });
        plain.extend(part.chars().last().filter(|c| matches!(c, ':' | '.')));
    }
    plain
}

/// Parses a CIDR in any form Kubernetes ever accepted. The address keeps its host bits.
pub fn parse_cidr_sloppy(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let ip = parse_ip_sloppy(address)?;
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits: u8 = bits
        .trim_start_matches('0')
        .parse()
        .or_else(|e| if bits.bytes().all(|b| b == b'0') { Ok(0) } else { Err(e) })
        .ok()?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    (bits <= most).then_some((ip, bits))
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
