//! Structured logs, as text or JSON, to standard error.

use anyhow::{Result, bail};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// `--logging-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging. `verbosity` is kube-apiserver's `-v`: 0 to 2 informs, 3 to 5 explains, more shows everything.
pub(crate) fn start(format: Format, verbosity: u8) -> Result<()> {
    let level = match verbosity {
        0..=2 => "info",
        3..=5 => "debug",
        _ => "trace",
    };
    // Libraries stay quiet unless everything was asked for.
    let filter = EnvFilter::new(if level == "trace" {
        "trace".to_owned()
    } else {
        format!("warn,server={level},portcullis={level},storage={level},controllers={level}")
    });
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match format {
        Format::Text => builder.with_ansi(false).finish().try_init(),
        Format::Json => builder.json().finish().try_init(),
    };
    if let Err(error) = started {
        bail!("cannot start logging: {error}");
    }
    Ok(())
}
