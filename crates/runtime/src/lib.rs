//! Building blocks that the parts of the server that do I/O share.
//!
//! - [`MetricRegistry`] registers the metrics of a subsystem and lists them; [`ProcessMetrics`] are those of the process.
//! - [`SummaryMetric`] is a family of Prometheus summaries, with quantiles.
//! - [`LogQueue`] writes log lines on a thread of its own, and [`LogLimit`] limits the lines that clients can cause.
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
mod log_limit;
mod log_queue;
pub mod memory;
mod metric_bounds;
mod metric_registry;
mod process_metrics;
pub mod random;
mod retry_pause;
mod summary_metric;
pub mod truncate_remote;
pub mod url_credentials;
pub mod version;

pub use config_error::{ConfigError, FileProblems};
pub use log_limit::LogLimit;
pub use log_queue::{LogQueue, dropped_log_lines};
pub use metric_bounds::format_bounds_as_go;
pub use metric_registry::{MetricRegistry, RegisteredFamily, SeriesLabels};
pub use process_metrics::{ProcessMetrics, register_build_info};
pub use retry_pause::RetryPause;
pub use summary_metric::SummaryMetric;
