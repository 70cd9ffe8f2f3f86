//! Limit flags that `serve` and `up` share, and the process limit on open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::Config;
use server::config::DEFAULT_STORE_QUOTA;
use transport::accept::ConnectionLimits;

#[derive(Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Size of all stored objects in bytes above which writes are rejected; 0 means 2 GiB, a negative number means no limit.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        allow_negative_numbers = true,
        help_heading = "Limits"
    )]
    quota_backend_bytes: i64,
    /// Maximum number of open connections per client IP address (IPv6: per /64 network); 0 means no limit. Do not set it behind a load
    /// balancer.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = "Limits")]
    max_connections_per_address: usize,
}

impl LimitArgs {
    /// Copies the limits to `config`, and raises the process limit on open files to its maximum, because the limit on connections depends
    /// on it.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.storage.quota = store_quota(self.quota_backend_bytes);
        let descriptors = raise_open_file_limit();
        config.serving.limits =
            descriptors.map_or_else(ConnectionLimits::default, ConnectionLimits::for_descriptors);
        config.serving.limits.connections_per_address = self.max_connections_per_address;
        tracing::info!(
            open_files = descriptors.unwrap_or_default(),
            connections = config.serving.limits.connections,
            "limit on connections derived from the limit on open files"
        );
    }
}

/// Reads the value as etcd does: 0 is the default, a negative number means no limit.
fn store_quota(bytes: i64) -> Option<u64> {
    match u64::try_from(bytes) {
        Ok(0) => Some(DEFAULT_STORE_QUOTA),
        Ok(bytes) => Some(bytes),
        Err(_) => None,
    }
}

/// Raises the soft limit on open files to the hard limit. Returns the resulting limit; `None` means unlimited.
fn raise_open_file_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, ?current, ?maximum, "cannot raise the limit on open files; the limit on connections stays lower");
            current
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_STORE_QUOTA, store_quota};

    #[test]
    fn zero_is_the_default_quota_and_negative_is_no_limit() {
        assert_eq!([-1, 0, 1].map(store_quota), [None, Some(DEFAULT_STORE_QUOTA), Some(1)]);
    }
}
