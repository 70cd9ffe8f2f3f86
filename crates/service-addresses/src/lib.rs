//! Decides which cluster IPs and node ports Services get, and what is wrong with those that they have.
//!
//! - [`ServiceRange`] is one range of cluster IPs, and [`KnownRanges`] those of all stored ServiceCIDRs. [`PortBitmap`] has the allocated
//!   ports of a [`NodePortRange`], in the form in which every server of a cluster stores it.
//! - [`AllocationAttempt`] is one run of the rules of [`kinds::strategy::service`] with the answers so far, [`DryRunAllocator`] the
//!   allocator of dry runs.
//! - [`repair`] compares what Services have with what is allocated; [`ip_address`] reads and builds the IPAddress objects.
//!
//! The server reads and writes the objects (`addresses` in the crate `server`). Nothing here waits or reads a clock.
//!
//! ```
//! use service_addresses::{DEFAULT_NODE_PORTS, PortBitmap, ServiceRange};
//!
//! let range = ServiceRange::new("10.0.0.0/24".parse().unwrap()).unwrap();
//! assert_eq!(range.size(), 254);
//! assert_eq!(range.nth(0), Some("10.0.0.1".parse().unwrap()));
//!
//! let mut ports = PortBitmap::empty(DEFAULT_NODE_PORTS);
//! assert!(ports.set(30080, true));
//! assert_eq!(ports.to_data().len(), 11);
//! ```

mod attempt;
pub mod ip_address;
mod known_ranges;
mod port_bitmap;
mod range;
pub mod repair;
mod service_ref;

pub use attempt::{AddressAnswer, AllocationAttempt, AllocationRequest, DryRunAllocator, PortCounts};
pub use known_ranges::{DEFAULT_CIDR, KnownRanges};
pub use port_bitmap::{DEFAULT_NODE_PORTS, NodePortRange, PortBitmap};
pub use range::{ServiceRange, family_of};
pub use service_ref::ServiceRef;
