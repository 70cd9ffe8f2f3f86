//! Flags that decide how a server hands its clients over to other servers.

use anyhow::{Result, bail};
use server::Config;
use server::config::ShutdownConfig;

use crate::duration::{self, NegativeDuration};

#[derive(Debug, clap::Args)]
pub(crate) struct ShutdownArgs {
    /// Time that a server that shuts down still serves requests while /readyz fails, so that load balancers can notice.
    #[arg(long, value_name = "DURATION", default_value = "0s", help_heading = "Serving")]
    shutdown_delay_duration: String,
    /// After the delay, answer new requests with 429 and Retry-After until running requests are done, instead of refusing connections.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "Serving")]
    shutdown_send_retry_after: bool,
    /// Time over which the ends of watches are spread when the server shuts down; 0 ends all at once.
    #[arg(long, value_name = "DURATION", default_value = "0s", help_heading = "Serving")]
    shutdown_watch_termination_grace_period: String,
    /// Probability, 0 to 0.02, that an HTTP/2 request makes its client connect again, maybe to another server (GOAWAY).
    #[arg(
        long,
        value_name = "PROBABILITY",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Serving"
    )]
    goaway_chance: f64,
}

impl ShutdownArgs {
    /// The errors are those of kube-apiserver.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<()> {
        if !(0.0..=0.02).contains(&self.goaway_chance) {
            bail!("--goaway-chance can not be less than 0 or greater than 0.02");
        }
        config.serving.limits.goaway_chance = self.goaway_chance;
        config.serving.shutdown = ShutdownConfig {
            delay: duration::parse(
                "shutdown-delay-duration",
                &self.shutdown_delay_duration,
                NegativeDuration::Rejected,
            )?,
            send_retry_after: self.shutdown_send_retry_after,
            watch_grace: duration::parse(
                "shutdown-watch-termination-grace-period",
                &self.shutdown_watch_termination_grace_period,
                NegativeDuration::RejectedWith(
                    "shutdown-watch-termination-grace-period, if provided, can not be a negative value",
                ),
            )?,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;
    use server::Config;
    use transport::pki::TlsIdentity;

    use super::ShutdownArgs;

    #[derive(Debug, clap::Parser)]
    struct ShutdownFlags {
        #[command(flatten)]
        args: ShutdownArgs,
    }

    fn apply(flags: &[&str]) -> Result<Config, String> {
        let flags = ShutdownFlags::parse_from([&["test"], flags].concat());
        let identity = TlsIdentity { cert_pem: String::new(), key_pem: String::new() };
        let mut config = Config::new(([127, 0, 0, 1], 0).into(), identity);
        flags.args.apply(&mut config).map(|()| config).map_err(|error| error.to_string())
    }

    #[test]
    fn shutdown_flags_have_the_defaults_and_limits_of_kubernetes() {
        let config = apply(&[]).unwrap();
        assert_eq!(config.serving.shutdown, server::config::ShutdownConfig::default());
        let config = apply(&[
            "--shutdown-delay-duration=1m10s",
            "--shutdown-send-retry-after",
            "--shutdown-watch-termination-grace-period=5s",
            "--goaway-chance=0.02",
        ])
        .unwrap();
        let shutdown = config.serving.shutdown;
        assert_eq!((shutdown.delay, shutdown.watch_grace), (Duration::from_secs(70), Duration::from_secs(5)));
        assert!(shutdown.send_retry_after && config.serving.limits.goaway_chance > 0.019);
        for (flag, error) in [
            ("--goaway-chance=0.03", "--goaway-chance can not be less than 0 or greater than 0.02"),
            ("--goaway-chance=-1", "--goaway-chance can not be less than 0 or greater than 0.02"),
            ("--shutdown-delay-duration=-1s", "--shutdown-delay-duration can not be negative value"),
            (
                "--shutdown-watch-termination-grace-period=-1s",
                "shutdown-watch-termination-grace-period, if provided, can not be a negative value",
            ),
        ] {
            assert_eq!(apply(&[flag]).unwrap_err(), error);
        }
    }
}
