//! Flags about limits that `serve` and `up` share, and the limit on open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::Config;
use server::accept::Limits;
use server::config::DEFAULT_STORE_QUOTA;

/// The limits that both commands have.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Bytes of stored objects above which writes are refused; 0 is the default, 2 GiB; a negative number is no limit.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        allow_negative_numbers = true,
        help_heading = "Limits"
    )]
    quota_backend_bytes: i64,
    /// Open connections of one IP address (IPv6: one /64 network); 0 is no limit. Not for use behind a load balancer.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = "Limits")]
    max_connections_per_address: usize,
}

impl LimitArgs {
    /// Sets the limits, and raises the one on open files as far as the system allows.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.storage.quota = quota(self.quota_backend_bytes);
        let descriptors = raise_descriptors();
        config.serving.limits = descriptors.map_or_else(Limits::default, Limits::for_descriptors);
        config.serving.limits.connections_per_address = self.max_connections_per_address;
        tracing::info!(
            open_files = descriptors.unwrap_or_default(),
            connections = config.serving.limits.connections,
            "limit on connections derived from the limit on open files"
        );
    }
}

/// As etcd reads it: 0 is the default, and a negative number no limit.
fn quota(bytes: i64) -> Option<u64> {
    match u64::try_from(bytes) {
        Ok(0) => Some(DEFAULT_STORE_QUOTA),
        Ok(bytes) => Some(bytes),
        Err(_) => None,
    }
}

/// Raises the soft limit on open files to the hard one. Gives the limit in force; `None` is no limit.
fn raise_descriptors() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, ?current, ?maximum, "the limit on open files cannot be raised");
            current
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_STORE_QUOTA, quota};

    #[test]
    fn the_quota_is_read_as_etcd_reads_it() {
        assert_eq!([-1, 0, 1].map(quota), [None, Some(DEFAULT_STORE_QUOTA), Some(1)]);
    }
}
