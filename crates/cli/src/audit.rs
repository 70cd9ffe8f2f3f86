//! `--audit-*`: kube-apiserver's flags for the audit log.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use server::audit::{AuditConfig, Batch, Format, LogConfig, Mode, Policy, Rotation};

/// The flags that say what is recorded of requests, and where.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "each field is named as its flag")]
pub(crate) struct AuditArgs {
    /// The audit policy: which requests are recorded, and how much of them.
    #[arg(long, help_heading = "Audit")]
    audit_policy_file: Option<PathBuf>,
    /// Where events are written; - is standard output.
    #[arg(long, help_heading = "Audit")]
    audit_log_path: Option<PathBuf>,
    /// The form of events: json or legacy.
    #[arg(long, default_value = "json", help_heading = "Audit")]
    audit_log_format: String,
    /// The API version of events.
    #[arg(long, default_value = "audit.k8s.io/v1", help_heading = "Audit")]
    audit_log_version: String,
    /// Whether requests wait for their events: blocking, blocking-strict or batch. Only batch may lose events, and counts them.
    #[arg(long, default_value = "blocking", help_heading = "Audit")]
    audit_log_mode: String,
    /// For how many days old files are kept; 0 is for ever.
    #[arg(long, default_value_t = 366, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_maxage: i64,
    /// How many old files are kept; 0 is all.
    #[arg(long, default_value_t = 100, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_maxbackup: i64,
    /// How large a file becomes before it is put aside, in megabytes; 0 is without bounds.
    #[arg(long, default_value_t = 100, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_maxsize: i64,
    /// Whether old files are compressed.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "Audit")]
    audit_log_compress: bool,
    /// How many events wait at most; in batch mode.
    #[arg(long, default_value_t = 10000, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_batch_buffer_size: i64,
    /// How many events are written at once; in batch mode.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_batch_max_size: i64,
    /// How long a batch waits to become full; in batch mode.
    #[arg(long, default_value = "0s", help_heading = "Audit")]
    audit_log_batch_max_wait: String,
    /// Whether batches are throttled; in batch mode.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "Audit")]
    audit_log_batch_throttle_enable: bool,
    /// How many batches are written in a second, in the long run; in batch mode.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_batch_throttle_qps: f32,
    /// How many batches are written at once when there was nothing to write before; in batch mode.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_batch_throttle_burst: i64,
    /// Whether events that are too large are cut.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "Audit")]
    audit_log_truncate_enabled: bool,
    /// The most bytes of a batch.
    #[arg(long, default_value_t = 10_485_760, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_truncate_max_batch_size: i64,
    /// The most bytes of an event.
    #[arg(long, default_value_t = 102_400, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_truncate_max_event_size: i64,
}

impl AuditArgs {
    /// What the flags say; nothing is recorded without both a policy and a place for the log.
    pub(crate) fn config(&self) -> Result<Option<AuditConfig>> {
        let log = self.log()?;
        let policy = self.policy()?;
        match (policy, log) {
            (Some(policy), Some(log)) => Ok(Some(AuditConfig { policy, log })),
            (None, Some(_)) => {
                tracing::warn!("No audit policy file provided, no events will be recorded for log backend");
                Ok(None)
            }
            (Some(_), None) => {
                tracing::warn!("--audit-policy-file without --audit-log-path: no events will be recorded");
                Ok(None)
            }
            (None, None) => Ok(None),
        }
    }

    fn policy(&self) -> Result<Option<Policy>> {
        let Some(path) = &self.audit_policy_file else { return Ok(None) };
        let shown = path.display();
        let bytes = std::fs::read(path)
            .map_err(|e| anyhow!("loading audit policy file: failed to read file path \"{shown}\": {e}"))?;
        let policy = Policy::parse(&bytes)
            .map_err(|why| anyhow!("loading audit policy file: {why}: from file {shown}"))?;
        Ok(Some(policy))
    }

    /// Every rule that is broken is reported, in Kubernetes' words.
    fn log(&self) -> Result<Option<LogConfig>> {
        let Some(path) = self.audit_log_path.clone().filter(|p| !p.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let mut errors: Vec<String> = Vec::new();
        let mode = self.mode().unwrap_or_else(|why| {
            errors.push(why);
            Mode::Blocking
        });
        let (event, batch) = (self.audit_log_truncate_max_event_size, self.audit_log_truncate_max_batch_size);
        if event <= 0 {
            errors.push(format!(
                "invalid audit truncate log max event size {event}, must be a positive number"
            ));
        } else if batch < event {
            errors.push(format!(
                "invalid audit truncate log max batch size {batch}, must be greater than max event size ({event})"
            ));
        }
        if self.audit_log_version != "audit.k8s.io/v1" {
            errors.push("invalid group version, allowed versions are [\"audit.k8s.io/v1\"]".to_owned());
        }
        let format = match self.audit_log_format.as_str() {
            "legacy" => Format::Legacy,
            "json" => Format::Json,
            other => {
                errors.push(format!("invalid audit log format {other}, allowed formats are \"legacy,json\""));
                Format::Json
            }
        };
        let mut positive = |flag: &str, value: i64| {
            u64::try_from(value).unwrap_or_else(|_| {
                errors.push(format!("--audit-log-{flag} {value} can't be a negative number"));
                0
            })
        };
        let max_days = positive("maxage", self.audit_log_maxage);
        let max_backups = positive("maxbackup", self.audit_log_maxbackup);
        let max_megabytes = positive("maxsize", self.audit_log_maxsize);
        if !errors.is_empty() {
            bail!("{}", api::field::aggregate(&errors));
        }
        Ok(Some(LogConfig {
            path: (path.as_os_str() != "-").then_some(path),
            rotation: Rotation {
                max_megabytes,
                max_days,
                max_backups: usize::try_from(max_backups).unwrap_or(usize::MAX),
                compress: self.audit_log_compress,
            },
            format,
            mode,
            max_event: self.audit_log_truncate_enabled.then(|| usize::try_from(event).unwrap_or(usize::MAX)),
        }))
    }

    fn mode(&self) -> Result<Mode, String> {
        match self.audit_log_mode.as_str() {
            "blocking" => return Ok(Mode::Blocking),
            "blocking-strict" => return Ok(Mode::BlockingStrict),
            "batch" => {}
            other => {
                return Err(format!(
                    "invalid audit log mode {other}, allowed modes are \"batch,blocking,blocking-strict\""
                ));
            }
        }
        let positive = |what: &str, value: i64| {
            usize::try_from(value)
                .ok()
                .filter(|v| *v > 0)
                .ok_or(format!("invalid audit batch log {what} {value}, must be a positive number"))
        };
        let buffer = positive("buffer size", self.audit_log_batch_buffer_size)?;
        let max_size = positive("max batch size", self.audit_log_batch_max_size)?;
        let throttle = if self.audit_log_batch_throttle_enable {
            let qps = self.audit_log_batch_throttle_qps;
            if qps.is_nan() || qps <= 0.0 {
                return Err(format!("invalid audit batch log throttle QPS {qps}, must be a positive number"));
            }
            let burst = positive("throttle burst", self.audit_log_batch_throttle_burst)?;
            let every = Duration::try_from_secs_f32(1.0 / qps).unwrap_or(Duration::from_hours(24));
            Some((every, u32::try_from(burst).unwrap_or(u32::MAX)))
        } else {
            None
        };
        let nanos = api::time::parse_duration(&self.audit_log_batch_max_wait)
            .map_err(|e| format!("--audit-log-batch-max-wait: {e}"))?;
        let max_wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
        Ok(Mode::Batch(Batch { buffer, max_size, max_wait, throttle }))
    }
}
