//! `portcullis migrate`: copies all data between the embedded store and etcd.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use maintenance::migrate::{MigrationDirection, MigrationOptions, migrate};
use server::config::{EtcdStorage, ProbeTimeouts};

use crate::etcd::{EtcdConnectionArgs, duration, media_type};
use crate::serve::{list_values, runtime};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(group = clap::ArgGroup::new("source").required(true))]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub(crate) struct Args {
    /// Data directory to copy from, as for `portcullis serve` or `portcullis up`; the server must be stopped.
    #[arg(long, value_name = "DIR", group = "source", conflicts_with = "to_data_dir")]
    from_data_dir: Option<PathBuf>,
    /// URLs of the etcd members to copy from, separated by commas; all servers that use them must be stopped.
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        group = "source",
        conflicts_with = "to_etcd_servers"
    )]
    from_etcd_servers: Vec<String>,
    /// Directory to create and copy to: as --data-dir of `portcullis serve`, or the subdirectory `store` of that of `portcullis up`.
    #[arg(long, value_name = "DIR", group = "target")]
    to_data_dir: Option<PathBuf>,
    /// URLs of the etcd members to copy to, separated by commas.
    #[arg(long, value_name = "URL", value_delimiter = ',', group = "target")]
    to_etcd_servers: Vec<String>,
    #[command(flatten)]
    connection: EtcdConnectionArgs,
    /// Encoding of built-in resources in the target etcd: application/vnd.kubernetes.protobuf, application/json or application/yaml.
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf")]
    storage_media_type: String,
    /// Time to live in the target etcd of Events whose remaining time the source does not know; 0 means forever.
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s")]
    event_ttl: String,
    /// Raise the revision of the target etcd above the source's before copying, if it is lower by at most 1000000, by writing a key that
    /// no server reads.
    #[arg(long, conflicts_with = "to_data_dir")]
    advance_revision: bool,
    /// Copy to an etcd whose revision is lower than the source's. All clients and controllers must be restarted, because the
    /// resourceVersions that they know are not valid there.
    #[arg(long, conflicts_with_all = ["to_data_dir", "advance_revision"])]
    allow_revision_rollback: bool,
    /// Leave out keys of resources that this version does not know, and list them; without it such keys are an error.
    #[arg(long)]
    leave_out_unknown_keys: bool,
    /// Read and check everything, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    fn etcd(&self, servers: &[String], flag: &str) -> Result<Box<EtcdStorage>> {
        let servers = list_values(servers).to_vec();
        if servers.is_empty() {
            bail!("--{flag} names no member of etcd");
        }
        Ok(Box::new(EtcdStorage {
            servers,
            prefix: self.connection.etcd_prefix.clone(),
            tls: self.connection.tls(),
            compaction_interval: std::time::Duration::ZERO,
            lease_reuse: std::time::Duration::ZERO,
            media_type: media_type(&self.storage_media_type)?,
            probe_timeouts: ProbeTimeouts::default(),
            overrides: Vec::new(),
        }))
    }

    fn direction(&self) -> Result<MigrationDirection> {
        match (&self.from_data_dir, &self.to_data_dir) {
            (Some(from), None) => Ok(MigrationDirection::ToEtcd {
                from: from.clone(),
                to: self.etcd(&self.to_etcd_servers, "to-etcd-servers")?,
            }),
            (None, Some(to)) => Ok(MigrationDirection::ToDirectory {
                from: self.etcd(&self.from_etcd_servers, "from-etcd-servers")?,
                to: to.clone(),
            }),
            // INVARIANT: clap demands a source and a target, and not twice of a kind.
            _ => bail!("name a data directory and an etcd: one as the source, the other as the target"),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let direction = args.direction()?;
    let options = MigrationOptions {
        command: command_line(std::env::args().skip(1)),
        allow_revision_rollback: args.allow_revision_rollback,
        advance_revision: args.advance_revision,
        leave_out_unknown: args.leave_out_unknown_keys,
        event_ttl: duration("event-ttl", &args.event_ttl)?,
        dry_run: args.dry_run,
    };
    let mut out = std::io::stdout().lock();
    let mut unwritten = None;
    runtime()?.block_on(migrate(&direction, &options, &mut |step| {
        // A reader that has gone does not end the migration.
        if let Err(error) = writeln!(out, "{step}") {
            unwritten = Some(error);
        }
    }))?;
    unwritten.map_or(Ok(()), |error| bail!("migrated, but the output cannot be written: {error}"))
}

/// The command line of this process, quoted for a shell.
fn command_line(args: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    let quoted = args.map(|arg| {
        if !arg.is_empty() && arg.chars().all(is_plain) {
            arg
        } else {
            format!("'{}'", arg.replace('\'', r"'\''"))
        }
    });
    std::iter::once("portcullis".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};
    use maintenance::migrate::MigrationDirection;

    use super::{Args, command_line};

    fn parse(words: &[&str]) -> Result<Args, String> {
        let command = Args::augment_args(Command::new("migrate").no_binary_name(true));
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        Args::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn a_directory_and_an_etcd_are_required() {
        let to_etcd = parse(&["--from-data-dir=a", "--to-etcd-servers=http://x:1,http://y:1"]).unwrap();
        let MigrationDirection::ToEtcd { from, to } = to_etcd.direction().unwrap() else {
            panic!("direction")
        };
        assert_eq!((from.to_str(), to.servers.len()), (Some("a"), 2));
        let back = parse(&["--from-etcd-servers=http://x:1", "--to-data-dir=a", "--etcd-prefix=/p"]).unwrap();
        let MigrationDirection::ToDirectory { from, .. } = back.direction().unwrap() else {
            panic!("direction")
        };
        assert_eq!(from.prefix, "/p");
        for wrong in [
            &[][..],
            &["--from-data-dir=a"],
            &["--to-etcd-servers=http://x:1"],
            &["--from-data-dir=a", "--to-data-dir=b"],
            &["--from-etcd-servers=http://x:1", "--to-etcd-servers=http://y:1"],
            &["--from-data-dir=a", "--from-etcd-servers=http://x:1", "--to-data-dir=b"],
            &["--from-etcd-servers=http://x:1", "--to-data-dir=a", "--allow-revision-rollback"],
            &[
                "--from-data-dir=a",
                "--to-etcd-servers=http://x:1",
                "--advance-revision",
                "--allow-revision-rollback",
            ],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_empty_list_of_members_and_an_unknown_media_type_name_their_flag() {
        let error = |words: &[&str]| parse(words).unwrap().direction().unwrap_err().to_string();
        assert!(error(&["--from-data-dir=a", "--to-etcd-servers="]).contains("--to-etcd-servers"));
        let typed = ["--from-data-dir=a", "--to-etcd-servers=http://x:1", "--storage-media-type=text/plain"];
        assert!(error(&typed).contains("--storage-media-type"));
    }

    #[test]
    fn the_command_is_quoted_for_a_shell() {
        let args = ["migrate", "--from-data-dir", "my data", "it's"].map(str::to_owned);
        assert_eq!(command_line(args.into_iter()), r"portcullis migrate --from-data-dir 'my data' 'it'\''s'");
    }
}
