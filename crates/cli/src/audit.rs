//! `--audit-*`: kube-apiserver's flags for the audit log.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use audit::{AuditBatch, AuditConfig, AuditLogFormat, AuditLogMode, AuditPolicy, LogConfig, Rotation};

use crate::duration::{self, NegativeDuration};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "each field is named as its flag")]
pub(crate) struct AuditArgs {
    /// audit.k8s.io/v1 Policy file: which requests are recorded, and at which level.
    #[arg(long, help_heading = "Audit")]
    audit_policy_file: Option<PathBuf>,
    /// File for audit events; - is standard output. Without it, no events are recorded.
    #[arg(long, help_heading = "Audit")]
    audit_log_path: Option<PathBuf>,
    /// Format of audit events: json, or legacy for one line of text.
    #[arg(long, default_value = "json", help_heading = "Audit")]
    audit_log_format: String,
    /// API group and version of audit events; only audit.k8s.io/v1 is supported.
    #[arg(long, default_value = "audit.k8s.io/v1", help_heading = "Audit")]
    audit_log_version: String,
    /// When events are written: blocking (before the response), blocking-strict (and a failed write fails the request) or batch (in the
    /// background; events are dropped and counted if the buffer is full).
    #[arg(long, default_value = "blocking", help_heading = "Audit")]
    audit_log_mode: String,
    /// Days that rotated files are kept; 0 means forever.
    #[arg(long, default_value_t = 366, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_maxage: i64,
    /// Number of rotated files that are kept; 0 means all.
    #[arg(long, default_value_t = 100, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_maxbackup: i64,
    /// Size in megabytes at which the file is rotated; 0 means never.
    #[arg(long, default_value_t = 100, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_maxsize: i64,
    /// Compress rotated files with gzip.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "Audit")]
    audit_log_compress: bool,
    /// Number of events that are buffered, in batch mode.
    #[arg(long, default_value_t = 10000, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_batch_buffer_size: i64,
    /// Maximum number of events in a batch, in batch mode.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_batch_max_size: i64,
    /// Time after which a batch is written even if it is not full, in batch mode.
    #[arg(long, default_value = "0s", help_heading = "Audit")]
    audit_log_batch_max_wait: String,
    /// Limit the rate of batches, in batch mode.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "Audit")]
    audit_log_batch_throttle_enable: bool,
    /// Average number of batches per second, if throttling is enabled.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_batch_throttle_qps: f32,
    /// Number of batches that may exceed the average rate, if throttling is enabled.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_batch_throttle_burst: i64,
    /// Shorten events that exceed --audit-log-truncate-max-event-size.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, help_heading = "Audit")]
    audit_log_truncate_enabled: bool,
    /// Maximum size of a batch in bytes, if truncation is enabled.
    #[arg(long, default_value_t = 10_485_760, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_truncate_max_batch_size: i64,
    /// Maximum size of an event in bytes, if truncation is enabled.
    #[arg(long, default_value_t = 102_400, allow_negative_numbers = true, help_heading = "Audit")]
    audit_log_truncate_max_event_size: i64,
}

impl AuditArgs {
    /// `None` unless both a policy and a log path are set: without either, nothing is recorded.
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
                tracing::warn!(
                    "--audit-policy-file is set without --audit-log-path, so no audit events are recorded; set --audit-log-path"
                );
                Ok(None)
            }
            (None, None) => Ok(None),
        }
    }

    fn policy(&self) -> Result<Option<AuditPolicy>> {
        let Some(path) = &self.audit_policy_file else { return Ok(None) };
        let shown = path.display();
        let bytes = std::fs::read(path)
            .map_err(|e| anyhow!("loading audit policy file: failed to read file path \"{shown}\": {e}"))?;
        let policy = AuditPolicy::parse(&bytes)
            .map_err(|why| anyhow!("loading audit policy file: {why}: from file {shown}"))?;
        Ok(Some(policy))
    }

    /// Reports all invalid flags at once, with kube-apiserver's messages.
    fn log(&self) -> Result<Option<LogConfig>> {
        let Some(path) = self.audit_log_path.clone().filter(|p| !p.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let mut errors: Vec<String> = Vec::new();
        let mode = self.mode().unwrap_or_else(|why| {
            errors.push(why);
            AuditLogMode::Blocking
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
            "legacy" => AuditLogFormat::Legacy,
            "json" => AuditLogFormat::Json,
            other => {
                errors.push(format!("invalid audit log format {other}, allowed formats are \"legacy,json\""));
                AuditLogFormat::Json
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

    fn mode(&self) -> Result<AuditLogMode, String> {
        match self.audit_log_mode.as_str() {
            "blocking" => return Ok(AuditLogMode::Blocking),
            "blocking-strict" => return Ok(AuditLogMode::BlockingStrict),
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
        let max_wait = duration::parse(
            "audit-log-batch-max-wait",
            &self.audit_log_batch_max_wait,
            NegativeDuration::Zero,
        )
        .map_err(|error| error.to_string())?;
        Ok(AuditLogMode::Batch(AuditBatch { buffer, max_size, max_wait, throttle }))
    }
}
