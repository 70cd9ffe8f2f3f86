//! The store, and the state that is derived from all of it at start.

use std::sync::Arc;

use storage::Store;

use crate::addresses::Addresses;
use crate::unreadable::Unreadable;

/// The storage subsystem.
pub struct Storage {
    pub store: Store,
    /// The stored objects that cannot be decoded. Decisions that would need one of them are refused.
    pub(crate) unreadable: Arc<Unreadable>,
    /// The cluster IPs and node ports that stored Services hold.
    pub addresses: Addresses,
}
