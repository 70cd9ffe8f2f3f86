//! Structured logs, as text or JSON, to standard error.

use std::io::{self, Write};

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
        Format::Text => {
            builder.with_ansi(false).with_writer(|| OneLine(std::io::stderr())).finish().try_init()
        }
        Format::Json => builder.json().finish().try_init(),
    };
    if let Err(error) = started {
        bail!("cannot start logging: {error}");
    }
    Ok(())
}

/// Writes every event as one line: control characters, which clients may have put into names and messages, are escaped. Events in JSON
/// have none.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// Takes an event with its line feed, as the formatter hands it over.
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

/// Line and paragraph separators end lines for some readers; directional marks show text in another order than it has.
fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &str) -> String {
        let mut out = Vec::new();
        OneLine(&mut out).write_all(event.as_bytes()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        assert_eq!(written("INFO ready owner=\"\u{e4}\" \\ x\n"), "INFO ready owner=\"\u{e4}\" \\ x\n");
        assert_eq!(written("WARN owner=a\nINFO b\r\t\u{1b}[2K\n"), "WARN owner=a\\nINFO b\\r\\t\\u{1b}[2K\n");
        assert_eq!(
            written("a\u{7f}\u{85}\u{2028}\u{202e}\0\n\n"),
            "a\\u{7f}\\u{85}\\u{2028}\\u{202e}\\0\\n\n"
        );
    }
}
