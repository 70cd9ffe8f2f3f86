//! kube-apiserver's flags for aggregated API servers.

use std::path::PathBuf;

use anyhow::{Result, bail};
use server::{Config, Redirects};
use transport::pki::TlsIdentity;

use crate::serve::read_file;

#[derive(Debug, clap::Args)]
pub(crate) struct AggregationArgs {
    /// PEM file with the client certificate for aggregated API servers, which then trust the identity headers of this server.
    /// Reloaded when it changes.
    #[arg(long, help_heading = "API aggregation")]
    proxy_client_cert_file: Option<PathBuf>,
    /// PEM file with the private key of --proxy-client-cert-file. Reloaded when it changes.
    #[arg(long, help_heading = "API aggregation")]
    proxy_client_key_file: Option<PathBuf>,
    /// Reject redirects from aggregated API servers instead of passing them to the client.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set, help_heading = "API aggregation")]
    aggregator_reject_forwarding_redirect: bool,
    /// Accepted for compatibility. Services are always reached at their endpoints, never at their cluster IPs.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set, help_heading = "API aggregation")]
    enable_aggregator_routing: bool,
}

impl AggregationArgs {
    pub(crate) fn apply(&self, config: &mut Config) -> Result<()> {
        if !self.aggregator_reject_forwarding_redirect {
            config.apis.redirects = Redirects::PassedOn;
        }
        if !self.enable_aggregator_routing {
            tracing::warn!(
                flag = "--enable-aggregator-routing",
                reason = "services are always reached at their endpoints",
                "the flag has no effect"
            );
        }
        let (cert, key) = match (&self.proxy_client_cert_file, &self.proxy_client_key_file) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) => return Ok(()),
            _ => bail!("set both --proxy-client-cert-file and --proxy-client-key-file, or neither"),
        };
        let text = |flag: &str, path: &PathBuf| -> Result<String> {
            match String::from_utf8(read_file(flag, path)?) {
                Ok(text) => Ok(text),
                Err(_) => bail!("--{flag}: `{}` is not PEM", path.display()),
            }
        };
        config.apis.proxy_client = Some(TlsIdentity {
            cert_pem: text("proxy-client-cert-file", cert)?,
            key_pem: text("proxy-client-key-file", key)?,
        });
        config.files.proxy_client = Some((cert.clone(), key.clone()));
        Ok(())
    }
}
