//! Structured logs to standard error, as text or JSON.

mod dependencies;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::time::Duration;

use anyhow::{Result, bail};
use dependencies::DependencyLogLimit;
use runtime::{LogLimit, LogQueue};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text per event
    Text,
    /// One JSON object per event
    Json,
}

/// The crates of the workspace that log, by the names of their modules.
const LOGGING_CRATES: [&str; 12] = [
    "audit",
    "authz_config",
    "catalog",
    "controllers",
    "etcd",
    "grpc",
    "outbound",
    "portcullis",
    "runtime",
    "server",
    "storage",
    "transport",
];

/// Installs the logger of the process, which never waits for the reader of the log. `verbosity` is kube-apiserver's `-v`: 0 to 2 is level
/// info, 3 to 5 debug, more trace.
pub(crate) fn start(format: LogFormat, verbosity: u8) -> Result<LogFlush> {
    let level = match verbosity {
        0..=2 => "info",
        3..=5 => "debug",
        _ => "trace",
    };
    // Below trace, dependencies log warnings only.
    let filter = EnvFilter::new(if level == "trace" {
        "trace".to_owned()
    } else {
        LOGGING_CRATES.iter().fold("warn".to_owned(), |filter, name| format!("{filter},{name}={level}"))
    });
    let queue = LogQueue::start(io::stderr(), |dropped| {
        tracing::warn!(dropped, "log lines were dropped, because standard error was not read in time");
    })?;
    let flush = LogFlush(queue.clone());
    let line = move || QueuedLine(queue.clone());
    // The subscriber would report its own errors with `eprintln!`, which panics if standard error fails.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_target(false).log_internal_errors(false);
    let limit = DependencyLogLimit::default();
    let started = match format {
        LogFormat::Text => builder
            .with_ansi(false)
            .with_writer(move || EscapeControls(line()))
            .finish()
            .with(limit)
            .try_init(),
        LogFormat::Json => builder.with_writer(line).json().finish().with(limit).try_init(),
    };
    if let Err(error) = started {
        bail!("cannot start logging: {error}");
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(flush)
}

/// Logs a panic. The standard library would write it to standard error itself, and wait for its reader.
fn log_panic(panic: &PanicHookInfo<'_>) {
    static LOG: LogLimit = LogLimit::with_burst(20);
    let Some(unlogged) = LOG.due() else { return };
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let reason = panic.payload_as_str().unwrap_or("unknown");
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(location, reason, backtrace, unlogged, "a thread panicked");
}

/// Waits for the log lines of the process when it is dropped, so that the last ones are not lost.
pub(crate) struct LogFlush(LogQueue);

impl LogFlush {
    /// The longest wait. A log that is not read must not keep the process from ending.
    const PATIENCE: Duration = Duration::from_secs(1);
}

impl Drop for LogFlush {
    fn drop(&mut self) {
        self.0.flush(Self::PATIENCE);
    }
}

/// Queues each event as a line.
struct QueuedLine(LogQueue);

impl Write for QueuedLine {
    /// The formatter passes one whole event with its final newline per call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.push(event);
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes control characters, which clients can put into names and messages, so that every event is one line. JSON escapes them
/// itself.
struct EscapeControls<W>(W);

impl<W: Write> Write for EscapeControls<W> {
    /// The formatter passes one whole event with its final newline per call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        if line.contains(is_escaped) {
            let mut escaped = String::with_capacity(text.len() + 16);
            for c in line.chars() {
                if is_escaped(c) { escaped.extend(c.escape_debug()) } else { escaped.push(c) }
            }
            escaped.push('\n');
            self.0.write_all(escaped.as_bytes())?;
        } else {
            self.0.write_all(event)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Some programs end a line at line and paragraph separators; directional marks change the order in which text is displayed.
fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &str) -> String {
        let mut out = Vec::new();
        EscapeControls(&mut out).write_all(event.as_bytes()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_crate_of_the_server_that_logs_is_listed() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found: Vec<String> = std::fs::read_dir(crates)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| {
                let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap_or_default();
                manifest.lines().any(|line| line.starts_with("tracing.") || line.starts_with("tracing "))
            })
            .map(|entry| entry.file_name().into_string().unwrap().replace('-', "_"))
            .filter(|name| name != "webhook_auth")
            .map(|name| if name == "cli" { "portcullis".to_owned() } else { name })
            .collect();
        found.sort_unstable();
        assert_eq!(found, LOGGING_CRATES);
    }

    #[test]
    fn control_characters_in_an_event_are_escaped() {
        assert_eq!(written("INFO ready owner=\"\u{e4}\" \\ x\n"), "INFO ready owner=\"\u{e4}\" \\ x\n");
        assert_eq!(written("WARN owner=a\nINFO b\r\t\u{1b}[2K\n"), "WARN owner=a\\nINFO b\\r\\t\\u{1b}[2K\n");
        assert_eq!(
            written("a\u{7f}\u{85}\u{2028}\u{202e}\0\n\n"),
            "a\\u{7f}\\u{85}\\u{2028}\\u{202e}\\0\\n\n"
        );
    }
}
