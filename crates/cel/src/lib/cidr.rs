//! The CIDR library. Networks are parsed and printed as in Go's `net/netip`.

use std::net::IpAddr;

use value::go::quote;

use super::{Ext, ext, ip, refuse, string};
use crate::env::Builder;
use crate::eval::{Error, EvalResult};
use crate::types::Type;
use crate::val::Val;

/// An address with a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address, host bits included.
    pub ip: IpAddr,
    /// Prefix length in bits.
    pub bits: u8,
}

/// Declares `cidr`, `isCIDR` and the methods of networks.
pub(crate) fn add(b: &mut Builder) {
    b.type_name(Type::opaque("net.CIDR"));
    b.function(
        "cidr",
        &[("string_to_cidr", "(string) -> net.CIDR", |_, args| {
            cidr_of(string(args, 0)?).map(|cidr| Val::ext(Ext::Cidr(cidr)))
        })],
    );
    b.function(
        "isCIDR",
        &[("is_cidr", "(string) -> bool", |_, args| Ok(Val::Bool(Cidr::parse(string(args, 0)?).is_ok())))],
    );
    b.function(
        "containsIP",
        &[
            ("cidr_contains_ip_string", "net.CIDR.(string) -> bool", |_, args| {
                // Kubernetes reports a string that is not an address as "no such overload".
                let ip = ip::parse(string(args, 1)?).map_err(|_| Error::no_such_overload())?;
                Ok(Val::Bool(cidr_at(args, 0)?.contains(ip)))
            }),
            ("cidr_contains_ip_ip", "net.CIDR.(net.IP) -> bool", |_, args| match ext(args, 1)? {
                Ext::Ip(ip) => Ok(Val::Bool(cidr_at(args, 0)?.contains(*ip))),
                _ => refuse(),
            }),
        ],
    );
    b.function(
        "containsCIDR",
        &[
            ("cidr_contains_cidr_string", "net.CIDR.(string) -> bool", |_, args| {
                let other = cidr_of(string(args, 1)?)?;
                Ok(Val::Bool(cidr_at(args, 0)?.covers(&other)))
            }),
            ("cidr_contains_cidr", "net.CIDR.(net.CIDR) -> bool", |_, args| {
                Ok(Val::Bool(cidr_at(args, 0)?.covers(&cidr_at(args, 1)?)))
            }),
        ],
    );
    b.function(
        "ip",
        &[("cidr_ip", "net.CIDR.() -> net.IP", |_, args| Ok(Val::ext(Ext::Ip(cidr_at(args, 0)?.ip))))],
    );
    b.function(
        "prefixLength",
        &[("cidr_prefix_length", "net.CIDR.() -> int", |_, args| {
            Ok(Val::Int(i64::from(cidr_at(args, 0)?.bits)))
        })],
    );
    b.function("masked", &[("cidr_masked", "net.CIDR.() -> net.CIDR", masked)]);
    b.function(
        "string",
        &[("cidr_to_string", "(net.CIDR) -> string", |_, args| Ok(Val::string(cidr_at(args, 0)?.text())))],
    );
}

fn cidr_of(text: &str) -> Result<Cidr, Error> {
    Cidr::parse(text).map_err(|error| {
        Error::new(format!("network address parse error during conversion from string: {error}"))
    })
}

fn cidr_at(args: &[Val<'_>], at: usize) -> Result<Cidr, Error> {
    match ext(args, at)? {
        Ext::Cidr(cidr) => Ok(*cidr),
        _ => Err(Error::no_such_overload()),
    }
}

fn masked<'a>(_: &crate::eval::CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let cidr = cidr_at(args, 0)?;
    Ok(Val::ext(Ext::Cidr(Cidr { ip: mask(cidr.ip, cidr.bits), bits: cidr.bits })))
}

/// Clears all bits after the first `bits`.
fn mask(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let network_mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & network_mask).into())
        }
        IpAddr::V6(ip) => {
            let network_mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(ip) & network_mask).into())
        }
    }
}

impl Cidr {
    /// Parses a network with Kubernetes' restrictions.
    pub(crate) fn parse(text: &str) -> Result<Cidr, String> {
        let cidr = Cidr::parse_go(text)
            .map_err(|error| format!("network address parse error during conversion from string: {error}"))?;
        if ip::is_mapped(cidr.ip) {
            return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
        }
        Ok(cidr)
    }

    fn parse_go(text: &str) -> Result<Cidr, String> {
        let fail = |message: String| format!("netip.ParsePrefix({}): {message}", quote(text));
        let (address, bits) = text.rsplit_once('/').ok_or_else(|| fail("no '/'".to_owned()))?;
        let (ip, zoned) = ip::parse_go(address).map_err(fail)?;
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
        Ok(Cidr { ip, bits: u8::try_from(number).unwrap_or(u8::MAX) })
    }

    pub(crate) fn text(&self) -> String {
        format!("{}/{}", ip::text(self.ip), self.bits)
    }

    fn contains(&self, ip: IpAddr) -> bool {
        self.ip.is_ipv4() == ip.is_ipv4() && mask(self.ip, self.bits) == mask(ip, self.bits)
    }

    fn covers(&self, other: &Cidr) -> bool {
        self.bits <= other.bits && self.contains(other.ip)
    }
}
