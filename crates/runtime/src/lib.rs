//! Building blocks that the parts of the server that do I/O share.
//!
//! - [`MetricRegistry`] registers the metrics of a subsystem and lists them.
//! - [`RetryPause`] is the pause between the attempts of a background task.
//! - [`FileWatch`](file_watch::FileWatch) signals when configuration files may have changed.
//! - [`ConfigError`] says why a server cannot start with its configuration.
//! - [`random`] has uids, suffixes of names and other random values.
//!
//! ```
//! # fn main() -> Result<(), prometheus::Error> {
//! let registry = runtime::MetricRegistry::new();
//! let requests = registry.counter("example_requests_total", "Number of requests.")?;
//! requests.inc();
//! assert_eq!(registry.families()[0].name, "example_requests_total");
//! # Ok(())
//! # }
//! ```

pub mod clock;
mod config_error;
pub mod file_watch;
pub mod files;
pub mod identity;
mod metric_registry;
pub mod random;
mod retry_pause;
pub mod truncate_remote;
pub mod version;

pub use config_error::{ConfigError, FileProblems};
pub use metric_registry::{MetricRegistry, RegisteredFamily};
pub use retry_pause::RetryPause;
