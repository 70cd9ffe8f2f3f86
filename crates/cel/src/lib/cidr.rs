//! The CIDR library. Networks are parsed and printed as in Go's `net/netip`.

use std::net::IpAddr;

use value::go::netip::{is_mapped, masked, parse_prefix};
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
    b.function("masked", &[("cidr_masked", "net.CIDR.() -> net.CIDR", masked_cidr)]);
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

fn masked_cidr<'a>(_: &crate::eval::CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let cidr = cidr_at(args, 0)?;
    Ok(Val::ext(Ext::Cidr(Cidr { ip: masked(cidr.ip, cidr.bits), bits: cidr.bits })))
}

impl Cidr {
    /// Parses a network with Kubernetes' restrictions.
    pub(crate) fn parse(text: &str) -> Result<Cidr, String> {
        let (ip, bits) = parse_prefix(text)
            .map_err(|error| format!("network address parse error during conversion from string: {error}"))?;
        if is_mapped(ip) {
            return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
        }
        Ok(Cidr { ip, bits })
    }

    pub(crate) fn text(&self) -> String {
        format!("{}/{}", self.ip, self.bits)
    }

    fn contains(&self, ip: IpAddr) -> bool {
        self.ip.is_ipv4() == ip.is_ipv4() && masked(self.ip, self.bits) == masked(ip, self.bits)
    }

    fn covers(&self, other: &Cidr) -> bool {
        self.bits <= other.bits && self.contains(other.ip)
    }
}
