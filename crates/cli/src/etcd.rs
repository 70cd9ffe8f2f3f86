//! Flags of `serve` about etcd.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use catalog::etcd_values::StorageMediaType;
use server::config::{EtcdOverride, EtcdStorage, ProbeTimeouts, StorageConfig};
use server::{DEFAULT_ETCD_PREFIX, TlsFiles};

use crate::duration::{self, NegativeDuration};
use crate::serve::list_values;
use crate::watch_cache::WatchCacheArgs;

/// The keys and the TLS files of connections to etcd, for every command that uses it.
#[expect(clippy::struct_field_names, reason = "each field is named as its flag")]
#[derive(Debug, clap::Args)]
pub(crate) struct EtcdConnectionArgs {
    /// The first part of all keys in etcd.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_ETCD_PREFIX)]
    pub(crate) etcd_prefix: String,
    /// PEM file with the certificate authorities of the etcd members.
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// PEM file with the client certificate for etcd.
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// PEM file with the private key of the client certificate.
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
}

impl EtcdConnectionArgs {
    pub(crate) fn tls(&self) -> TlsFiles {
        TlsFiles {
            ca: self.etcd_cafile.clone(),
            certificate: self.etcd_certfile.clone(),
            key: self.etcd_keyfile.clone(),
        }
    }
}

/// With these flags the server stores its objects in etcd, where other servers can share them.
#[derive(Debug, clap::Args)]
pub(crate) struct EtcdArgs {
    /// URLs of the etcd members, separated by commas. Objects are stored there, as kube-apiserver stores them, instead of in --data-dir.
    #[arg(long, value_name = "URL", value_delimiter = ',', help_heading = "Storage")]
    etcd_servers: Vec<String>,
    #[command(flatten, next_help_heading = "Storage")]
    connection: EtcdConnectionArgs,
    /// Interval of requests to etcd to discard old revisions; 0 disables them.
    #[arg(long, value_name = "DURATION", default_value = "5m0s", help_heading = "Storage")]
    etcd_compaction_interval: String,
    /// Time limit of the health check `etcd`.
    #[arg(long, value_name = "DURATION", default_value = "2s", help_heading = "Storage")]
    etcd_healthcheck_timeout: String,
    /// Time limit of the health check `etcd-readiness`.
    #[arg(long, value_name = "DURATION", default_value = "2s", help_heading = "Storage")]
    etcd_readycheck_timeout: String,
    /// Resources that are stored in other etcd clusters: GROUP/RESOURCE#URL;URL, separated by commas, such as /events#https://etcd4:2379.
    /// Only for built-in resources; GROUP/* means all resources of a group.
    #[arg(long, value_name = "OVERRIDE", value_delimiter = ',', help_heading = "Storage")]
    etcd_servers_overrides: Vec<String>,
    /// 0 removes the metrics with the number of objects. Other values have no effect: the numbers are always current.
    #[arg(long, value_name = "DURATION", default_value = "1m0s", help_heading = "Storage")]
    etcd_count_metric_poll_period: String,
    /// 0 removes the metric with the size of the database. Other values have no effect: the size is read with the metrics.
    #[arg(long, value_name = "DURATION", default_value = "30s", help_heading = "Storage")]
    etcd_db_metric_poll_interval: String,
    /// Time after which the server logs that it still loads the objects. It becomes ready when they are loaded.
    #[arg(long, value_name = "DURATION", default_value = "1m0s", help_heading = "Storage")]
    storage_initialization_timeout: String,
    /// Seconds for which a lease of etcd is used for further keys, such as events.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Storage")]
    lease_reuse_duration_seconds: u64,
    /// Kind of the external store; only `etcd3`.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        help_heading = "Storage"
    )]
    storage_backend: String,
    /// Encoding of built-in resources in etcd: application/vnd.kubernetes.protobuf, application/json or application/yaml.
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "application/vnd.kubernetes.protobuf",
        help_heading = "Storage"
    )]
    storage_media_type: String,
    #[command(flatten)]
    watch_cache: WatchCacheArgs,
}

impl EtcdArgs {
    /// Sets what applies to every kind of store.
    pub(crate) fn apply(&self, storage: &mut StorageConfig) -> Result<()> {
        self.watch_cache.check()?;
        let period = duration("etcd-count-metric-poll-period", &self.etcd_count_metric_poll_period)?;
        storage.counts_objects = !period.is_zero();
        let interval = duration("etcd-db-metric-poll-interval", &self.etcd_db_metric_poll_interval)?;
        storage.measures_database = !interval.is_zero();
        storage.initialization_timeout =
            duration("storage-initialization-timeout", &self.storage_initialization_timeout)?;
        Ok(())
    }

    /// The configuration of the store in etcd; `None` without `--etcd-servers`. All values are checked in any case.
    pub(crate) fn storage(&self) -> Result<Option<EtcdStorage>> {
        if !["", "etcd3"].contains(&self.storage_backend.as_str()) {
            bail!(
                "--storage-backend invalid, allowed values: etcd3. If not specified, it will default to 'etcd3'"
            );
        }
        let media_type = media_type(&self.storage_media_type)?;
        let servers = list_values(&self.etcd_servers).to_vec();
        let storage = EtcdStorage {
            prefix: self.connection.etcd_prefix.clone(),
            tls: self.connection.tls(),
            compaction_interval: duration("etcd-compaction-interval", &self.etcd_compaction_interval)?,
            lease_reuse: Duration::from_secs(self.lease_reuse_duration_seconds),
            media_type,
            probe_timeouts: ProbeTimeouts {
                live: duration("etcd-healthcheck-timeout", &self.etcd_healthcheck_timeout)?,
                ready: duration("etcd-readycheck-timeout", &self.etcd_readycheck_timeout)?,
            },
            overrides: parse_overrides(list_values(&self.etcd_servers_overrides))?,
            servers,
        };
        if storage.servers.is_empty() {
            return match self.first_given() {
                Some(flag) => bail!("--{flag} needs --etcd-servers, which names the members of etcd"),
                None => Ok(None),
            };
        }
        Ok(Some(storage))
    }

    /// A flag that has no meaning without `--etcd-servers` and protects the connection or selects the data.
    fn first_given(&self) -> Option<&'static str> {
        let files = [
            ("etcd-cafile", &self.connection.etcd_cafile),
            ("etcd-certfile", &self.connection.etcd_certfile),
            ("etcd-keyfile", &self.connection.etcd_keyfile),
        ];
        let file = files.into_iter().find(|(_, file)| file.is_some()).map(|(flag, _)| flag);
        let has_overrides = !list_values(&self.etcd_servers_overrides).is_empty();
        file.or((self.connection.etcd_prefix != DEFAULT_ETCD_PREFIX).then_some("etcd-prefix"))
            .or(has_overrides.then_some("etcd-servers-overrides"))
    }
}

/// The value of `--storage-media-type`.
pub(crate) fn media_type(text: &str) -> Result<StorageMediaType> {
    let found = StorageMediaType::ALL.into_iter().find(|(name, _)| *name == text);
    match found {
        Some((_, media_type)) => Ok(media_type),
        None => {
            let names = StorageMediaType::ALL.map(|(name, _)| name);
            bail!("--storage-media-type {text:?} invalid, allowed values: {}", names.join(", "))
        }
    }
}

/// Reads `GROUP/RESOURCE#URL;URL`, with kube-apiserver's error.
fn parse_overrides(overrides: &[String]) -> Result<Vec<EtcdOverride>> {
    let parse = |text: &String| {
        let (resource, servers) = text.split_once('#').filter(|(_, servers)| !servers.contains('#'))?;
        let (group, resource) = resource.split_once('/').filter(|(_, resource)| !resource.contains('/'))?;
        let servers: Vec<String> = servers.split(';').map(str::to_owned).collect();
        let is_valid = servers.iter().all(|server| !server.is_empty());
        is_valid.then(|| EtcdOverride { group: group.to_owned(), resource: resource.to_owned(), servers })
    };
    let parsed: Option<Vec<EtcdOverride>> = overrides.iter().map(parse).collect();
    parsed.ok_or_else(|| {
        anyhow!(
            "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"
        )
    })
}

/// A duration that must not be negative.
pub(crate) fn duration(flag: &str, text: &str) -> Result<Duration> {
    duration::parse(flag, text, NegativeDuration::Rejected)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use clap::Parser as _;
    use server::config::StorageConfig;

    use super::{EtcdArgs, media_type, parse_overrides};

    #[derive(clap::Parser)]
    struct OnlyEtcd {
        #[command(flatten)]
        etcd: EtcdArgs,
    }

    fn args(flags: &[&str]) -> EtcdArgs {
        let flags = ["serve", "--etcd-servers=http://a:1"].iter().chain(flags);
        OnlyEtcd::try_parse_from(flags).unwrap().etcd
    }

    #[test]
    fn each_time_limit_of_the_health_checks_is_that_of_its_flag() {
        let limits = |flags: &[&str]| {
            let timeouts = args(flags).storage().unwrap().unwrap().probe_timeouts;
            [timeouts.live, timeouts.ready].map(|limit| limit.as_millis())
        };
        assert_eq!(limits(&[]), [2000, 2000]);
        assert_eq!(limits(&["--etcd-healthcheck-timeout=700ms"]), [700, 2000]);
        assert_eq!(limits(&["--etcd-readycheck-timeout=5s"]), [2000, 5000]);
        for flag in ["--etcd-healthcheck-timeout=-1s", "--etcd-readycheck-timeout=soon"] {
            args(&[flag]).storage().unwrap_err();
        }
    }

    #[test]
    fn intervals_and_the_time_to_report_a_slow_start_are_those_of_their_flags() {
        let applied = |flags: &[&str]| {
            let mut storage = StorageConfig::default();
            args(flags).apply(&mut storage).unwrap();
            (storage.counts_objects, storage.measures_database, storage.initialization_timeout)
        };
        let minute = Duration::from_mins(1);
        assert_eq!(applied(&[]), (true, true, minute));
        assert_eq!(applied(&["--etcd-count-metric-poll-period=0"]), (false, true, minute));
        assert_eq!(applied(&["--etcd-db-metric-poll-interval=0s"]), (true, false, minute));
        assert_eq!(applied(&["--storage-initialization-timeout=3s"]), (true, true, Duration::from_secs(3)));
    }

    #[test]
    fn the_store_on_etcd_has_the_values_of_its_flags() {
        let stored = |flags: &[&str]| args(flags).storage().unwrap().unwrap();
        let defaults = stored(&[]);
        assert_eq!(
            (defaults.servers.as_slice(), defaults.prefix.as_str()),
            (&["http://a:1".to_owned()][..], "/registry")
        );
        assert_eq!(
            (defaults.compaction_interval, defaults.lease_reuse),
            (Duration::from_mins(5), Duration::from_mins(1))
        );
        assert_eq!(defaults.media_type, media_type("application/vnd.kubernetes.protobuf").unwrap());
        assert!(defaults.overrides.is_empty() && defaults.tls.ca.is_none());

        let set = stored(&[
            "--etcd-prefix=/other",
            "--etcd-cafile=ca.pem",
            "--etcd-certfile=client.pem",
            "--etcd-keyfile=client.key",
            "--etcd-compaction-interval=0",
            "--lease-reuse-duration-seconds=7",
            "--storage-media-type=application/json",
            "--etcd-servers-overrides=/events#http://b:2",
        ]);
        assert_eq!((set.prefix.as_str(), set.compaction_interval), ("/other", Duration::ZERO));
        assert_eq!(set.lease_reuse, Duration::from_secs(7));
        assert_eq!(set.media_type, media_type("application/json").unwrap());
        assert_ne!(set.media_type, defaults.media_type);
        let files = [set.tls.ca, set.tls.certificate, set.tls.key].map(Option::unwrap);
        assert_eq!(files, ["ca.pem", "client.pem", "client.key"].map(PathBuf::from));
        assert_eq!(set.overrides.len(), 1);
    }

    #[test]
    fn flags_that_need_etcd_and_unknown_encodings_are_refused() {
        for flags in [&["--storage-media-type=text/plain"][..], &["--etcd-compaction-interval=-1s"]] {
            args(flags).storage().unwrap_err();
        }
        for flag in
            ["--etcd-prefix=/other", "--etcd-cafile=ca.pem", "--etcd-servers-overrides=/events#http://b:2"]
        {
            let args = OnlyEtcd::try_parse_from(["serve", flag]).unwrap().etcd;
            let refused = args.storage().unwrap_err().to_string();
            assert!(refused.contains("needs --etcd-servers"), "{refused}");
        }
    }

    fn parsed(texts: &[&str]) -> Option<Vec<String>> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let show =
            |o: &server::config::EtcdOverride| format!("{}|{}|{}", o.group, o.resource, o.servers.join(" "));
        parse_overrides(&texts).ok().map(|overrides| overrides.iter().map(show).collect())
    }

    #[test]
    fn overrides_name_a_resource_and_its_servers() {
        assert_eq!(parsed(&[]), Some(Vec::new()));
        assert_eq!(
            parsed(&["/events#http://a:1;http://b:2", "apps/deployments#https://c:3", "batch/*#http://d:4"]),
            Some(vec![
                "|events|http://a:1 http://b:2".to_owned(),
                "apps|deployments|https://c:3".to_owned(),
                "batch|*|http://d:4".to_owned()
            ])
        );
    }

    #[test]
    fn malformed_overrides_are_refused() {
        for text in [
            "",
            "/events",
            "/events/http://a:1",
            "events#http://a:1",
            "/events#",
            "/events#http://a:1;",
            "/events#http://a:1#x",
            "a/b/c#http://a:1",
        ] {
            assert_eq!(parsed(&["/pods#http://a:1", text]), None, "{text}");
        }
    }
}
