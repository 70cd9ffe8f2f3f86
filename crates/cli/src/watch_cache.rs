//! Flags of `serve` about the watch cache of kube-apiserver. Their values are checked; they have no effect.

use anyhow::{Result, bail};

use crate::serve::list_values;

/// Every server holds all objects in memory, so there is nothing to size or to disable.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchCacheArgs {
    /// Accepted for compatibility. All objects are always in memory.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set, help_heading = "Storage")]
    watch_cache: bool,
    /// Accepted for compatibility: RESOURCE[.GROUP]#SIZE, separated by commas. All objects are always in memory.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', help_heading = "Storage")]
    watch_cache_sizes: Vec<String>,
    /// Accepted for compatibility (deprecated in Kubernetes).
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 100,
        allow_negative_numbers = true,
        help_heading = "Storage"
    )]
    default_watch_cache_size: i64,
}

impl WatchCacheArgs {
    /// Refuses what kube-apiserver refuses, and warns about settings that have an effect there.
    pub(crate) fn check(&self) -> Result<()> {
        let sizes = list_values(&self.watch_cache_sizes);
        let mut disables_some = false;
        for size in sizes {
            disables_some |= parse_size(size)? == 0;
        }
        if !self.watch_cache || disables_some {
            tracing::warn!(
                "the watch cache cannot be disabled (--watch-cache, --watch-cache-sizes): all objects are in memory"
            );
        }
        Ok(())
    }
}

/// The size in `RESOURCE[.GROUP]#SIZE`, with kube-apiserver's errors.
fn parse_size(text: &str) -> Result<i64> {
    let Some((_, size)) = text.split_once('#').filter(|(_, size)| !size.contains('#')) else {
        bail!("--watch-cache-sizes: invalid value of watch cache size: {text}");
    };
    match size.parse::<i64>() {
        Ok(size) if size < 0 => bail!("--watch-cache-sizes: watch cache size cannot be negative: {text}"),
        Ok(size) => Ok(size),
        Err(_) => bail!("--watch-cache-sizes: invalid size of watch cache size: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_of_resources_are_accepted() {
        for (text, expected) in [("pods#100", 100), ("deployments.apps#0", 0), ("x#+5", 5)] {
            assert_eq!(parse_size(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn malformed_sizes_are_refused_as_in_kubernetes() {
        for (text, expected) in [
            ("pods", "invalid value of watch cache size: pods"),
            ("pods#1#2", "invalid value of watch cache size: pods#1#2"),
            ("pods#", "invalid size of watch cache size: pods#"),
            ("pods#many", "invalid size of watch cache size: pods#many"),
            ("pods#-1", "watch cache size cannot be negative: pods#-1"),
        ] {
            let error = parse_size(text).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{text}: {error}");
        }
    }
}
