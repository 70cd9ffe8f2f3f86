//! `--requestheader-*`: kube-apiserver's flags for a proxy that says in headers who is calling.

use std::path::PathBuf;

use anyhow::{Result, bail};
use authn::FrontProxy;
use server::trust::{Authority, Trust};
use value::Str;

use crate::serve::{listed, read};

/// The flags that say which proxies are believed, and what they may say.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "each field is named as its flag")]
pub(crate) struct RequestHeaderArgs {
    /// Proxies whose certificates are signed by an authority in this file may say in headers who is calling.
    #[arg(long, help_heading = "Authentication")]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// The common names that a proxy's certificate may have; any if none is given.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_allowed_names: Vec<String>,
    /// The headers that carry the name; the first with a value counts.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_username_headers: Vec<String>,
    /// The headers that carry the uid; the first with a value counts.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_uid_headers: Vec<String>,
    /// The headers that carry groups.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_group_headers: Vec<String>,
    /// The beginnings of headers that carry extra attributes.
    #[arg(long, value_delimiter = ',', help_heading = "Authentication")]
    requestheader_extra_headers_prefix: Vec<String>,
}

impl RequestHeaderArgs {
    /// What the flags say; nobody is believed without a file of authorities.
    pub(crate) fn front_proxy(&self, client_ca: Option<&[u8]>) -> Result<Option<(Vec<u8>, FrontProxy)>> {
        let lists = [
            ("requestheader-username-headers", listed(&self.requestheader_username_headers), "X-Remote-User"),
            ("requestheader-group-headers", listed(&self.requestheader_group_headers), "X-Remote-Group"),
            (
                "requestheader-extra-headers-prefix",
                listed(&self.requestheader_extra_headers_prefix),
                "X-Remote-Extra-",
            ),
            ("requestheader-allowed-names", listed(&self.requestheader_allowed_names), ""),
            ("requestheader-uid-headers", listed(&self.requestheader_uid_headers), "X-Remote-Uid"),
        ];
        let mut errors: Vec<String> = Vec::new();
        for (flag, values, usual) in lists {
            if values.iter().any(|value| value.trim().is_empty()) {
                errors.push(format!("empty value in {}", api::field::quote(flag)));
            }
            let without = !values.is_empty() && !values.iter().any(|value| value.eq_ignore_ascii_case(usual));
            match flag {
                "requestheader-allowed-names" => {}
                "requestheader-uid-headers" if without => errors.push(format!(
                    "--{flag} is set without specifying the standard {usual} header - API aggregation will not work"
                )),
                _ if without => tracing::warn!(
                    "--{flag} is set without specifying the standard {usual} header - API aggregation will not work"
                ),
                _ => {}
            }
        }
        let Some(path) = &self.requestheader_client_ca_file else {
            return if errors.is_empty() { Ok(None) } else { bail!("{}", api::field::aggregate(&errors)) };
        };
        let pem = read("requestheader-client-ca-file", path)?;
        // A file that is no authority is told of where it is used.
        let trust = Trust {
            clients: client_ca.and_then(|clients| Authority::from_pem(clients).ok()),
            proxies: Authority::from_pem(&pem).ok(),
        };
        if let Err(overlap) = trust.check(listed(&self.requestheader_allowed_names).is_empty()) {
            errors.push(overlap);
        }
        if !errors.is_empty() {
            bail!("{}", api::field::aggregate(&errors));
        }
        let list = |values: &[String]| values.iter().map(|value| Str::from(value.trim())).collect();
        let proxy = FrontProxy {
            allowed_names: listed(&self.requestheader_allowed_names).iter().map(Str::from).collect(),
            username_headers: list(listed(&self.requestheader_username_headers)),
            uid_headers: list(listed(&self.requestheader_uid_headers)),
            group_headers: list(listed(&self.requestheader_group_headers)),
            extra_header_prefixes: list(listed(&self.requestheader_extra_headers_prefix)),
        };
        Ok(Some((pem, proxy)))
    }
}
