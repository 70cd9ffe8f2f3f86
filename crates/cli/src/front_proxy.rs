//! `--requestheader-*`: kube-apiserver's flags for an authenticating proxy, which passes the user in headers.

use std::path::PathBuf;

use anyhow::{Result, bail};
use authn::FrontProxy;
use authn::front_proxy::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use transport::trust::{Authority, ClientTrust};
use value::Str;

use crate::serve::{list_values, read_file};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "each field is named as its flag")]
pub(crate) struct RequestHeaderArgs {
    /// PEM file with the certificate authorities of authenticating proxies, whose identity headers are trusted. Reloaded when it changes.
    #[arg(long, help_heading = "Authentication")]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// Comma-separated common names allowed in the proxy's client certificate [default: any].
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_allowed_names: Vec<String>,
    /// Comma-separated headers with the user name; the first one that has a value is used.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_username_headers: Vec<String>,
    /// Comma-separated headers with the user's UID; the first one that has a value is used.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_uid_headers: Vec<String>,
    /// Comma-separated headers with the user's groups.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_group_headers: Vec<String>,
    /// Comma-separated prefixes of headers with extra attributes of the user.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_extra_headers_prefix: Vec<String>,
}

impl RequestHeaderArgs {
    /// The certificate authorities in PEM and the trusted headers; `None` without `--requestheader-client-ca-file`.
    pub(crate) fn front_proxy(&self, client_ca: Option<&[u8]>) -> Result<Option<(Vec<u8>, FrontProxy)>> {
        let lists = [
            (
                "requestheader-username-headers",
                list_values(&self.requestheader_username_headers),
                REMOTE_USER,
            ),
            ("requestheader-group-headers", list_values(&self.requestheader_group_headers), REMOTE_GROUP),
            (
                "requestheader-extra-headers-prefix",
                list_values(&self.requestheader_extra_headers_prefix),
                REMOTE_EXTRA_PREFIX,
            ),
            ("requestheader-allowed-names", list_values(&self.requestheader_allowed_names), ""),
            ("requestheader-uid-headers", list_values(&self.requestheader_uid_headers), REMOTE_UID),
        ];
        let mut errors: Vec<String> = Vec::new();
        for (flag, values, standard) in lists {
            if values.iter().any(|value| value.trim().is_empty()) {
                errors.push(format!("empty value in {}", api::field::quote(flag)));
            }
            let without =
                !values.is_empty() && !values.iter().any(|value| value.eq_ignore_ascii_case(standard));
            match flag {
                "requestheader-allowed-names" => {}
                "requestheader-uid-headers" if without => errors.push(format!(
                    "--{flag} is set without specifying the standard {standard} header - API aggregation will not work"
                )),
                _ if without => tracing::warn!(
                    "--{flag} is set without specifying the standard {standard} header - API aggregation will not work"
                ),
                _ => {}
            }
        }
        let Some(path) = &self.requestheader_client_ca_file else {
            return if errors.is_empty() { Ok(None) } else { bail!("{}", api::field::aggregate(&errors)) };
        };
        let pem = read_file("requestheader-client-ca-file", path)?;
        // A file without a certificate is reported later, when the server loads it.
        let trust = ClientTrust {
            clients: client_ca.and_then(|clients| Authority::from_pem(clients).ok()),
            proxies: Authority::from_pem(&pem).ok(),
        };
        if let Err(overlap) = trust.check(list_values(&self.requestheader_allowed_names).is_empty()) {
            errors.push(overlap);
        }
        if !errors.is_empty() {
            bail!("{}", api::field::aggregate(&errors));
        }
        let list = |values: &[String]| values.iter().map(|value| Str::from(value.trim())).collect();
        let proxy = FrontProxy {
            allowed_names: list_values(&self.requestheader_allowed_names).iter().map(Str::from).collect(),
            username_headers: list(list_values(&self.requestheader_username_headers)),
            uid_headers: list(list_values(&self.requestheader_uid_headers)),
            group_headers: list(list_values(&self.requestheader_group_headers)),
            extra_header_prefixes: list(list_values(&self.requestheader_extra_headers_prefix)),
        };
        Ok(Some((pem, proxy)))
    }
}
