//! Time limits for clients that do not read their responses.
//!
//! Time counts only while bytes wait for the client. A client starts with [`PATIENCE`], loses the time that
//! bytes wait, and regains a second per [`RATE`] bytes read, up to [`PATIENCE`]. So no client can pause for
//! longer, and one that reads at [`RATE`] is never too slow. The limit applies to each connection's socket
//! ([`crate::connections::Socket`]) and to each HTTP/2 stream ([`StreamGuard`]), whose flow control window
//! may be closed while the socket still accepts bytes.

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

/// How long a client may leave a response unread.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Limit for forwarded responses, which may be long and interactive: the reader may be a pager.
pub const FORWARDED_PATIENCE: Duration = Duration::from_mins(5);
/// Minimum read rate, in bytes per second.
pub const RATE: u64 = 16 * 1024;

/// The time that a client has left to read pending bytes.
#[derive(Debug)]
pub struct Drain {
    most: Duration,
    left: Duration,
    waiting_since: Option<Instant>,
}

impl Drain {
    /// Starts with the full `patience`.
    pub fn new(patience: Duration) -> Self {
        Drain { most: patience, left: patience, waiting_since: None }
    }

    /// Changes the limit; if it differs, the client gets all of it again.
    pub fn set_patience(&mut self, patience: Duration) {
        if self.most != patience {
            (self.most, self.left) = (patience, patience);
        }
    }

    /// Records that bytes are waiting. Returns the time at which the client is too slow.
    pub fn waits(&mut self, now: Instant) -> Instant {
        *self.waiting_since.get_or_insert(now) + self.left
    }

    /// Records that the client took `bytes`.
    pub fn took(&mut self, bytes: u64) {
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        if self.left < self.most {
            let gained = Duration::from_micros(bytes.saturating_mul(1_000_000) / RATE);
            self.left = self.left.saturating_add(gained).min(self.most);
        }
    }

    /// The time at which the client is too slow; `None` if no bytes wait.
    pub fn due(&self) -> Option<Instant> {
        self.waiting_since.map(|since| since + self.left)
    }
}

tokio::task_local! {
    /// State of the HTTP/2 stream that this task serves, and the size of the frame handed over last.
    static STREAM: RefCell<(Drain, u64)>;
}

/// Records that a frame of this task's stream waits, until [`stream_is_ready`].
pub fn stream_waits(bytes: usize, patience: Duration) {
    let _ = STREAM.try_with(|stream| {
        let (drain, waiting) = &mut *stream.borrow_mut();
        drain.set_patience(patience);
        drain.waits(Instant::now());
        *waiting = bytes as u64;
    });
}

/// Records that the waiting frame is being sent.
pub fn stream_is_ready() {
    let _ = STREAM.try_with(|stream| {
        let (drain, waiting) = &mut *stream.borrow_mut();
        if drain.due().is_some() {
            drain.took(std::mem::take(waiting));
        }
    });
}

/// Spawns the HTTP/2 streams of a connection, and resets those whose clients do not read.
#[derive(Clone, Debug)]
pub struct StreamGuard {
    metrics: Arc<ConnectionMetrics>,
}

impl StreamGuard {
    /// `metrics` counts the streams that are reset.
    pub fn new(metrics: ConnectionMetrics) -> Self {
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
                    warn!(unlogged, "resetting an HTTP/2 stream whose client does not read the response");
                }
            }
        }));
    }
}

/// Rate limit for the log, shared by all connections.
static LOG: LogLimit = LogLimit::new();

/// The client of a stream does not read in time.
struct Stalled;

/// Runs a stream; drops it, which resets it, when its client is too slow.
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
    async fn only_clients_that_read_below_the_minimum_rate_miss_the_deadline() {
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
    async fn bytes_read_earlier_do_not_extend_the_stall_deadline() {
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
