//! Compares the cluster IPs and node ports of Services with those that are allocated, for the repair loops.

pub mod cluster_ips;
pub mod ports;

use value::Value;

/// The Service or IPAddress that is stored at a key.
#[derive(Clone, Debug)]
pub enum Lookup {
    Absent,
    Object(Value),
    /// The object exists but cannot be decoded; nothing is decided from it.
    Unreadable,
}

/// A warning about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub reason: String,
    /// Empty for events of the core group, which have none.
    pub action: &'static str,
    pub message: String,
}
