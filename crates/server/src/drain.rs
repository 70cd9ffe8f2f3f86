//! Clients that do not read their answers: how long one may keep bytes waiting.
//!
//! Time counts only while bytes wait that the client does not take. A client has [`PATIENCE`] for that, loses what it uses of it, and
//! gains a second for every [`RATE`] bytes that it takes, up to [`PATIENCE`] again. So nobody may pause for longer, and whoever reads at
//! [`RATE`] is never too slow. The limit is kept in two places: for the socket of each connection
//! ([`crate::connections::Socket`]), and for each HTTP/2 stream, whose window may be closed while the socket takes everything
//! ([`StreamGuard`]).

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep};
use tracing::warn;

use crate::connections::{ConnectionMetrics, LogLimit};

/// How long a client may leave an answer unread.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The same where an answer is another server's and may go on for long: its reader may be a pager.
pub(crate) const FORWARDED_PATIENCE: Duration = Duration::from_mins(5);
/// Bytes a second.
pub(crate) const RATE: u64 = 16 * 1024;

/// What a client has left of its time.
#[derive(Debug)]
pub(crate) struct Drain {
    most: Duration,
    left: Duration,
    waiting_since: Option<Instant>,
}

impl Drain {
    /// A client that may pause for so long.
    pub(crate) fn new(patience: Duration) -> Self {
        Drain { most: patience, left: patience, waiting_since: None }
    }

    /// Changes how long the client may pause. It has all of it.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        if self.most != patience {
            (self.most, self.left) = (patience, patience);
        }
    }

    /// Bytes wait that the client does not take. Gives when it is too late for them.
    pub(crate) fn waits(&mut self, now: Instant) -> Instant {
        *self.waiting_since.get_or_insert(now) + self.left
    }

    /// The client took this many bytes.
    pub(crate) fn took(&mut self, bytes: u64) {
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        if self.left < self.most {
            let gained = Duration::from_micros(bytes.saturating_mul(1_000_000) / RATE);
            self.left = self.left.saturating_add(gained).min(self.most);
        }
    }

    /// When it is too late for the bytes that wait, if any do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting_since.map(|since| since + self.left)
    }
}

tokio::task_local! {
    /// The HTTP/2 stream that a task serves, and the bytes that were handed over for it last.
    static STREAM: RefCell<(Drain, u64)>;
}

/// The answer of this task's stream has bytes: they wait until [`stream_is_ready`].
pub(crate) fn stream_waits(bytes: usize, patience: Duration) {
    let _ = STREAM.try_with(|stream| {
        let (drain, waiting) = &mut *stream.borrow_mut();
        drain.set_patience(patience);
        drain.waits(Instant::now());
        *waiting = bytes as u64;
    });
}

/// What waited is on its way.
pub(crate) fn stream_is_ready() {
    let _ = STREAM.try_with(|stream| {
        let (drain, waiting) = &mut *stream.borrow_mut();
        if drain.due().is_some() {
            drain.took(std::mem::take(waiting));
        }
    });
}

/// Runs the HTTP/2 streams of a connection, and resets those whose clients do not read.
#[derive(Clone, Debug)]
pub(crate) struct StreamGuard {
    metrics: Arc<ConnectionMetrics>,
}

impl StreamGuard {
    /// Counts the streams that it resets.
    pub(crate) fn new(metrics: ConnectionMetrics) -> Self {
        StreamGuard { metrics: Arc::new(metrics) }
    }
}

impl<F> Executor<F> for StreamGuard
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let metrics = Arc::clone(&self.metrics);
        let state = RefCell::new((Drain::new(PATIENCE), 0));
        tokio::spawn(STREAM.scope(state, async move {
            if run(stream).await.is_err() {
                metrics.stream_stalled();
                if let Some(unlogged) = LOG.due() {
                    warn!(unlogged, "an answer was not read: resetting its HTTP/2 stream");
                }
            }
        }));
    }
}

/// For streams that are reset, whatever their connection.
static LOG: LogLimit = LogLimit::new();

/// The client of a stream does not read.
struct Stalled;

/// Drops the stream, which resets it, when its client is too slow.
async fn run(stream: impl Future) -> Result<(), Stalled> {
    let mut stream = pin!(stream);
    let mut late: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let Ok(Some(due)) = STREAM.try_with(|stream| stream.borrow().0.due()) else {
            late = None;
            return Poll::Pending;
        };
        let late = late.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if late.deadline() != due {
            late.as_mut().reset(due);
        }
        late.as_mut().poll(cx).map(|()| Err(Stalled))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_at_the_rate_is_never_late_and_a_slower_one_is() {
        for (bytes, in_time) in [(RATE * 20, true), (RATE * 16, false), (1, false)] {
            let mut drain = Drain::new(PATIENCE);
            let mut is_late = false;
            for _ in 0..100 {
                let due = drain.waits(Instant::now());
                tokio::time::advance(Duration::from_secs(20)).await;
                is_late |= due < Instant::now();
                drain.took(bytes);
            }
            assert_eq!(!is_late, in_time, "{bytes} bytes every 20 seconds");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_before_does_not_allow_for_a_longer_pause() {
        let mut drain = Drain::new(PATIENCE);
        drain.took(u64::MAX);
        let began = Instant::now();
        assert_eq!(drain.waits(began), began + PATIENCE);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(drain.waits(Instant::now()), began + PATIENCE, "a second try is the same wait");
        drain.took(RATE);
        let again = Instant::now();
        assert_eq!(drain.waits(again), again + Duration::from_secs(21));
        drain.set_patience(FORWARDED_PATIENCE);
        assert_eq!(drain.due(), Some(again + FORWARDED_PATIENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_stream_that_waits_for_its_client_is_dropped() {
        let guarded = |stalls: bool| {
            STREAM.scope(RefCell::new((Drain::new(PATIENCE), 0)), async move {
                let work = run(async move {
                    stream_waits(1, PATIENCE);
                    if !stalls {
                        stream_is_ready();
                    }
                    tokio::time::sleep(Duration::from_hours(1)).await;
                });
                work.await.is_err()
            })
        };
        assert!(guarded(true).await);
        assert!(!guarded(false).await);
    }
}
