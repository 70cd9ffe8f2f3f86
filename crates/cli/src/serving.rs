//! Flags of the HTTP server: HTTP/2, time limits of watches, and headers for browsers.

use anyhow::{Result, anyhow, bail};
use server::Config;
use server::browsers::BrowserConfig;

use crate::serve::list_values;

/// Concurrent HTTP/2 streams per connection if `--http2-max-streams-per-connection` is 0, as in kube-apiserver.
const DEFAULT_STREAMS: u32 = 100;

/// kube-apiserver's help of `--cors-allowed-origins`, which its errors repeat.
const ORIGINS_HELP: &str = "List of allowed origins for CORS, comma separated. An allowed origin can be a regular expression to support subdomain matching. If this list is empty CORS will not be enabled. Please ensure each expression matches the entire hostname by anchoring to the start with '^' or including the '//' prefix, and by anchoring to the end with '$' or including the ':' port separator suffix. Examples of valid expressions are '//example\\.com(:|$)' and '^https://example\\.com(:|$)'";

#[derive(Debug, clap::Args)]
pub(crate) struct ServingArgs {
    /// Serve HTTP/1.1 only, not HTTP/2.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set, help_heading = "Serving")]
    disable_http2_serving: bool,
    /// Concurrent HTTP/2 requests per connection; 0 means 100.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true,
        help_heading = "Serving"
    )]
    http2_max_streams_per_connection: i64,
    /// Seconds that a watch lasts at least, unless its client sets timeoutSeconds; at most it lasts twice as long. 0 means a day.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1800,
        allow_negative_numbers = true,
        help_heading = "Serving"
    )]
    min_request_timeout: i64,
    /// Comma-separated regular expressions of origins whose pages may read responses in a browser, such as ^https://example[.]com(:|$).
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',', help_heading = "Serving")]
    cors_allowed_origins: Vec<String>,
    /// Comma-separated directives of the Strict-Transport-Security header: max-age=SECONDS, includeSubDomains, preload.
    #[arg(long, value_name = "DIRECTIVES", value_delimiter = ',', help_heading = "Serving")]
    strict_transport_security_directives: Vec<String>,
}

impl ServingArgs {
    /// The errors are those of kube-apiserver.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<()> {
        let streams = u32::try_from(self.http2_max_streams_per_connection).unwrap_or(0);
        config.serving.limits.streams = match (self.disable_http2_serving, streams) {
            (true, _) => 0,
            (false, 0) => DEFAULT_STREAMS,
            (false, streams) => streams,
        };
        config.serving.tls.http1_only = self.disable_http2_serving;
        let mut errors: Vec<String> = Vec::new();
        match u64::try_from(self.min_request_timeout) {
            Ok(seconds) => config.serving.min_watch_seconds = seconds,
            Err(_) => errors.push("--min-request-timeout can not be negative value".to_owned()),
        }
        let origins = list_values(&self.cors_allowed_origins);
        let directives = list_values(&self.strict_transport_security_directives);
        errors.extend(directives.iter().filter_map(|directive| directive_error(directive)));
        errors.extend(origins.iter().filter_map(|origin| origin_error(origin)));
        if !errors.is_empty() {
            bail!("{}", api::field::aggregate(&errors));
        }
        config.serving.browsers = BrowserConfig::new(origins, directives)
            .map_err(|why| anyhow!("--cors-allowed-origins: {why}"))?;
        Ok(())
    }
}

fn directive_error(directive: &str) -> Option<String> {
    if directive.trim().is_empty() {
        return Some("empty value in strict-transport-security-directives".to_owned());
    }
    let parts: Vec<&str> = directive.split('=').collect();
    let is_valid = matches!(parts[..], ["includeSubDomains" | "preload"] | ["max-age", _]);
    (!is_valid).then(|| "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information".to_owned())
}

/// A pattern that does not contain the start and the end of the host would allow other hosts.
fn origin_error(pattern: &str) -> Option<String> {
    if pattern.is_empty() {
        return Some(format!("empty value in --cors-allowed-origins, help: {ORIGINS_HELP}"));
    }
    let is_pinned = (pattern.contains('^') || pattern.contains("//")) && pattern.contains(['$', ':']);
    let why = match BrowserConfig::new(&[pattern.to_owned()], &[]) {
        Err(why) => why.to_string(),
        Ok(_) if !is_pinned => {
            "regular expression does not pin to start/end of host in the origin header".to_owned()
        }
        Ok(_) => return None,
    };
    Some(format!("--cors-allowed-origins has an invalid regular expression: {why}, help: {ORIGINS_HELP}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use server::Config;
    use transport::pki::TlsIdentity;

    use super::ServingArgs;

    #[derive(Debug, clap::Parser)]
    struct ServingFlags {
        #[command(flatten)]
        args: ServingArgs,
    }

    fn apply(flags: &[&str]) -> Result<Config, String> {
        let flags = ServingFlags::parse_from([&["test"], flags].concat());
        let identity = TlsIdentity { cert_pem: String::new(), key_pem: String::new() };
        let mut config = Config::new(([127, 0, 0, 1], 0).into(), identity);
        flags.args.apply(&mut config).map(|()| config).map_err(|error| error.to_string())
    }

    #[test]
    fn serving_flags_have_the_defaults_of_kubernetes() {
        let config = apply(&[]).unwrap();
        assert_eq!((config.serving.limits.streams, config.serving.min_watch_seconds), (100, 1800));
        assert!(!config.serving.tls.http1_only);
        let config = apply(&["--http2-max-streams-per-connection=42", "--min-request-timeout=0"]).unwrap();
        assert_eq!((config.serving.limits.streams, config.serving.min_watch_seconds), (42, 0));
        let config = apply(&["--disable-http2-serving"]).unwrap();
        assert!(config.serving.tls.http1_only && config.serving.limits.streams == 0);
        apply(&["--strict-transport-security-directives=max-age=31536000,includeSubDomains,preload"])
            .unwrap();
        apply(&[r"--cors-allowed-origins=//example\.com(:|$),^https://a\.b$"]).unwrap();
    }

    #[test]
    fn errors_of_serving_flags_are_those_of_kubernetes() {
        const DIRECTIVES: &str = "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see";
        const PIN: &str = "--cors-allowed-origins has an invalid regular expression: regular expression does not pin to start/end of host in the origin header, help: List of allowed origins for CORS";
        for (flag, error) in [
            ("--min-request-timeout=-1", "--min-request-timeout can not be negative value"),
            ("--strict-transport-security-directives=max-age", DIRECTIVES),
            ("--strict-transport-security-directives=preload,x", DIRECTIVES),
            (
                "--strict-transport-security-directives=preload,",
                "empty value in strict-transport-security-directives",
            ),
            ("--cors-allowed-origins=example.com", PIN),
            ("--cors-allowed-origins=//example.com", PIN),
            ("--cors-allowed-origins=^a$,", "empty value in --cors-allowed-origins, help: List of allowed"),
            (
                "--cors-allowed-origins=^(",
                "--cors-allowed-origins has an invalid regular expression: error parsing regexp: missing closing ): `^(`, help: ",
            ),
        ] {
            let found = apply(&[flag]).unwrap_err();
            assert!(found.starts_with(error), "{flag}: {found}");
        }
    }
}
