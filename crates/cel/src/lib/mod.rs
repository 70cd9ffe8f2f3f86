//! The function libraries, one file each. [`crate::env`] lists them with the versions that have them.

pub mod authz;
pub(crate) mod cidr;
pub(crate) mod comprehensions;
pub(crate) mod format_string;
pub(crate) mod ip;
pub(crate) mod jsonpatch;
pub(crate) mod lists;
pub(crate) mod lists_kubernetes;
pub(crate) mod messages;
pub(crate) mod named_format;
pub(crate) mod optional;
pub(crate) mod pattern;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod standard;
pub(crate) mod strings;
pub(crate) mod timestamps;
pub(crate) mod url;

use std::fmt;
use std::net::IpAddr;

use value::quantity::Quantity;

use crate::eval::{Error, EvalResult};
use crate::val::Val;

/// A value of a library type.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ext {
    /// A quantity. Arithmetic results are marked, because they are only allowed on the left side of `==`, as in
    /// Kubernetes.
    Quantity {
        /// The number with its format.
        quantity: Quantity,
        /// True for results of arithmetic.
        computed: bool,
    },
    /// A value of the IP library.
    Ip(IpAddr),
    /// A value of the CIDR library.
    Cidr(cidr::Cidr),
    /// A value of the URL library.
    Url(value::go::url::Url),
    /// A value of the semver library.
    Semver(semver::Semver),
    /// A value of the format library.
    Format(&'static named_format::NamedFormat),
    /// The `authorizer` variable, or a result of its methods.
    Authz(authz::AuthzVal),
}

impl Ext {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Ext::Quantity { .. } => "kubernetes.Quantity",
            Ext::Ip(_) => "net.IP",
            Ext::Cidr(_) => "net.CIDR",
            Ext::Url(_) => "kubernetes.URL",
            Ext::Semver(_) => "kubernetes.Semver",
            Ext::Format(_) => "kubernetes.NamedFormat",
            Ext::Authz(val) => val.type_name(),
        }
    }

    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Ext::Quantity { computed: false, .. } => "cel.Quantity",
            Ext::Quantity { computed: true, .. } => "*cel.Quantity",
            Ext::Ip(_) => "cel.IP",
            Ext::Cidr(_) => "cel.CIDR",
            Ext::Url(_) => "cel.URL",
            Ext::Semver(_) => "cel.Semver",
            Ext::Format(_) => "cel.Format",
            Ext::Authz(_) => "library.authorizerVal",
        }
    }

    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Ext::Ip(IpAddr::V4(_)) => Some(4),
            Ext::Ip(IpAddr::V6(_)) => Some(16),
            Ext::Cidr(cidr) => Some(usize::from(cidr.bits.div_ceil(8))),
            _ => None,
        }
    }

    /// Bytes that a function reads if it uses all of this value. Digits count more, because arithmetic copies them.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Ext::Quantity { quantity, .. } => quantity.digit_count().saturating_mul(16),
            Ext::Url(url) => url.byte_count(),
            Ext::Semver(semver) => semver.byte_count(),
            Ext::Ip(_) | Ext::Cidr(_) | Ext::Format(_) | Ext::Authz(_) => 0,
        }
    }

    /// Equality with another value; most library values return an error for other types.
    pub(crate) fn equal(&self, other: &Val<'_>) -> Result<bool, Error> {
        let Val::Ext(other) = other else { return Err(Error::no_such_overload()) };
        match (self, &**other) {
            (Ext::Quantity { quantity: a, .. }, Ext::Quantity { quantity: b, computed: false }) => Ok(a == b),
            (Ext::Ip(a), Ext::Ip(b)) => Ok(a == b),
            (Ext::Cidr(a), Ext::Cidr(b)) => Ok(a == b),
            (Ext::Url(a), Ext::Url(b)) => Ok(a.text() == b.text()),
            (Ext::Semver(a), Ext::Semver(b)) => Ok(a.compare(b).is_eq()),
            (Ext::Format(a), Ext::Format(b)) => Ok(a.name == b.name),
            _ => Err(Error::no_such_overload()),
        }
    }

    /// The value's string conversion, if it has one.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Ext::Ip(ip) => Some(ip.to_string()),
            Ext::Cidr(cidr) => Some(cidr.text()),
            _ => None,
        }
    }
}

impl fmt::Display for Ext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ext::Quantity { quantity, .. } => write!(f, "{quantity}"),
            Ext::Ip(ip) => write!(f, "{ip}"),
            Ext::Cidr(cidr) => f.write_str(&cidr.text()),
            Ext::Url(url) => f.write_str(&url.text()),
            Ext::Semver(semver) => write!(f, "{semver}"),
            Ext::Format(format) => f.write_str(format.name),
            Ext::Authz(val) => f.write_str(val.type_name()),
        }
    }
}

/// Upper bound of strings that functions create. The cost is charged afterwards, so this bounds memory.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// Upper bound of lists that functions create from existing lists.
const MAX_LIST_LENGTH: usize = 1 << 20;

/// Fails if a string of `length` bytes is too long to create.
pub(crate) fn check_text_length(length: usize) -> Result<(), Error> {
    if length > MAX_TEXT_BYTES { Err(Error::new("the resulting string is too long")) } else { Ok(()) }
}

/// Fails if a list of `length` elements is too long to create.
pub(crate) fn check_list_length(length: usize) -> Result<(), Error> {
    if length > MAX_LIST_LENGTH { Err(Error::new("the resulting list is too long")) } else { Ok(()) }
}

/// The argument at `at` as a string.
pub(crate) fn string<'v>(args: &'v [Val<'_>], at: usize) -> Result<&'v str, Error> {
    args.get(at).and_then(Val::as_str).ok_or_else(Error::no_such_overload)
}

/// The argument at `at` as an integer.
pub(crate) fn int(args: &[Val<'_>], at: usize) -> Result<i64, Error> {
    args.get(at).and_then(Val::as_int).ok_or_else(Error::no_such_overload)
}

/// The argument at `at` as a boolean.
pub(crate) fn bool(args: &[Val<'_>], at: usize) -> Result<bool, Error> {
    args.get(at).and_then(Val::as_bool).ok_or_else(Error::no_such_overload)
}

/// The argument at `at` as a list.
pub(crate) fn list<'v, 'a>(args: &'v [Val<'a>], at: usize) -> Result<&'v crate::val::ListVal<'a>, Error> {
    args.get(at).and_then(Val::as_list).ok_or_else(Error::no_such_overload)
}

/// The argument at `at` as a library value.
pub(crate) fn ext<'v>(args: &'v [Val<'_>], at: usize) -> Result<&'v Ext, Error> {
    match args.get(at) {
        Some(Val::Ext(ext)) => Ok(ext),
        _ => Err(Error::no_such_overload()),
    }
}

/// Converts a size to CEL's `int`.
pub(crate) fn count<'a>(size: usize) -> Val<'a> {
    Val::Int(i64::try_from(size).unwrap_or(i64::MAX))
}

/// The error for arguments of unsupported types.
pub(crate) fn refuse<'a>() -> EvalResult<'a> {
    Err(Error::no_such_overload())
}
