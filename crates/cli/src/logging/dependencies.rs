//! Limits the log lines of dependencies.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use runtime::LogLimit;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::LOGGING_CRATES;

/// Logs each warning and error of a dependency at most once every ten seconds. Clients that are not even authenticated can cause some of
/// them once per connection, such as the one about reset HTTP/2 streams. The workspace's own lines have limits where they are logged.
#[derive(Debug, Default)]
pub(super) struct DependencyLogLimit {
    /// By the statement that logs, of which there are only some.
    limits: Mutex<HashMap<Identifier, Arc<LogLimit>>>,
}

impl DependencyLogLimit {
    fn of(&self, metadata: &Metadata<'_>) -> Arc<LogLimit> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(limits.entry(metadata.callsite()).or_default())
    }
}

impl<S: Subscriber> Layer<S> for DependencyLogLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // The levels below are logged on demand only.
        if *metadata.level() > Level::WARN || is_own(metadata.target()) {
            return true;
        }
        let Some(unlogged) = self.of(metadata).due() else { return false };
        if unlogged > 0 {
            let module = metadata.target();
            tracing::warn!(module, unlogged, "lines of a dependency like the next one were not logged");
        }
        true
    }
}

/// Whether a crate of the workspace logs an event.
fn is_own(target: &str) -> bool {
    target.split("::").next().is_some_and(|name| LOGGING_CRATES.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(line)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_lines_of_dependencies_are_limited() {
        let lines = Lines::default();
        let output = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(Level::DEBUG)
            .with_writer(move || output.clone())
            .finish()
            .with(DependencyLogLimit::default());
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                tracing::warn!(target: "h2::proto::streams::recv", "a stream was reset");
                tracing::error!(target: "h2::proto::streams::recv", "another line");
                tracing::debug!(target: "h2::proto::streams::recv", "logged on demand");
                tracing::warn!(target: "transport::accept", "an own line");
            }
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let count = |words: &str| text.matches(words).count();
        let counts = ["a stream was reset", "another line", "logged on demand", "an own line"].map(count);
        assert_eq!(counts, [1, 1, 3, 3], "{text}");
    }
}
