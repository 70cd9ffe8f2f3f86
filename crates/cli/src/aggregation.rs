//! kube-apiserver's flags about API servers behind this one.

use std::path::PathBuf;

use anyhow::{Result, bail};
use server::pki::Identity;
use server::{Config, Redirects};

use crate::serve::read;

/// The flags.
#[derive(Debug, clap::Args)]
pub(crate) struct AggregationArgs {
    /// The certificate with which this server proves itself to API servers behind it, so that they believe what it says in
    /// headers about callers.
    #[arg(long, help_heading = "API aggregation")]
    proxy_client_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, help_heading = "API aggregation")]
    proxy_client_key_file: Option<PathBuf>,
    /// Whether answers of API servers behind this one that redirect the client elsewhere are refused.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set, help_heading = "API aggregation")]
    aggregator_reject_forwarding_redirect: bool,
    /// Whether services are reached at the addresses of their endpoints. They always are: nothing here makes their cluster IPs lead
    /// anywhere.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set, help_heading = "API aggregation")]
    enable_aggregator_routing: bool,
}

impl AggregationArgs {
    /// Takes over what the flags say.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<()> {
        if !self.aggregator_reject_forwarding_redirect {
            config.apis.redirects = Redirects::PassedOn;
        }
        if !self.enable_aggregator_routing {
            tracing::warn!(
                "--enable-aggregator-routing=false has no effect: services are always reached at their endpoints"
            );
        }
        let (cert, key) = match (&self.proxy_client_cert_file, &self.proxy_client_key_file) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) => return Ok(()),
            _ => bail!(
                "--proxy-client-cert-file and --proxy-client-key-file belong together: one of them is missing"
            ),
        };
        let text = |flag: &str, path: &PathBuf| -> Result<String> {
            match String::from_utf8(read(flag, path)?) {
                Ok(text) => Ok(text),
                Err(_) => bail!("--{flag}: `{}` is not PEM", path.display()),
            }
        };
        config.apis.proxy_client = Some(Identity {
            cert_pem: text("proxy-client-cert-file", cert)?,
            key_pem: text("proxy-client-key-file", key)?,
        });
        config.files.proxy_client = Some((cert.clone(), key.clone()));
        Ok(())
    }
}
