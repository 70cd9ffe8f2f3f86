//! The load run: HTTP/2 over TLS, [`CONNECTIONS`] connections with [`STREAMS`] requests each at a time, one client thread.
//!
//! It measures the built binary and, when a reference is named, the reference beside it, and prints a table with the ratio.
//! Absolute figures move with the machine; the ratio, measured in one run, is what counts.

pub mod authorization;
mod crds;
mod etcd;
mod fairness;
mod measure;
mod overhead;
pub mod policies;
mod registered;
mod requests;
mod store_targets;
mod table;

pub use crds::crds;
pub use etcd::{reference_on_etcd, stores};
pub use fairness::fairness;
pub use measure::{Figures, MeasuredServer, run, webhook_rate};
pub use overhead::overhead;
pub use registered::registered;
pub use requests::{CONNECTIONS, STREAMS};
pub use store_targets::print_store_targets;
pub use table::print;
