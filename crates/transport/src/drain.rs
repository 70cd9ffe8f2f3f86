//! Time limits for clients that do not read their responses.
//!
//! Time counts only while bytes wait for the client. A client starts with [`PATIENCE`], loses the time that
//! bytes wait, and regains a second per [`RATE`] bytes read, up to [`PATIENCE`]. So no client can pause for
//! longer, and one that reads at [`RATE`] is never too slow. The limit applies to each connection's socket
//! ([`crate::connections::Socket`]) and to each HTTP/2 stream ([`StreamGuard`]), whose flow control window
//! may be closed while the socket still accepts bytes. A stream whose response must end has [`END_WITHIN`] for that.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use runtime::LogLimit;
use tokio::time::{Instant, Sleep};
use tracing::warn;

use crate::connections::ConnectionMetrics;
use crate::long_running::{END_WITHIN, EndSignal};

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
    /// Tells this task that the response of its stream must end.
    static END: RefCell<Option<EndSignal>>;
}

/// Lets this task's stream be reset if its response has not ended [`END_WITHIN`] after the signal: a response whose client opens no window
/// is not polled, so it cannot end itself. Has no effect on HTTP/1, whose socket has its own limit.
pub fn stream_ends_with(signal: EndSignal) {
    let _ = END.try_with(|end| *end.borrow_mut() = Some(signal));
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
        let stream = END.scope(RefCell::new(None), async move {
            if run(stream).await.is_err() {
                metrics.stream_stalled();
                if let Some(unlogged) = LOG.due() {
                    warn!(unlogged, "resetting an HTTP/2 stream whose client does not read the response");
                }
            }
        });
        tokio::spawn(STREAM.scope(state, stream));
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
    let mut ends: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if ends.is_none() && must_end(cx) {
            ends = Some(Box::pin(tokio::time::sleep(END_WITHIN)));
        }
        if let Some(ends) = &mut ends
            && ends.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(Stalled));
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

/// Takes the signal that the response of this task's stream must end, if it has arrived.
fn must_end(cx: &mut Context<'_>) -> bool {
    let take = |end: &RefCell<Option<EndSignal>>| {
        let mut end = end.borrow_mut();
        let has_arrived = end.as_mut().is_some_and(|signal| signal.poll_ended(cx).is_ready());
        if has_arrived {
            *end = None;
        }
        has_arrived
    };
    END.try_with(take).unwrap_or_default()
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

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_does_not_end_when_it_must_is_dropped() {
        use authn::User;

        use crate::accept::ConnectionLimits;
        use crate::byte_budget::BudgetAccount;
        use crate::long_running::{LongRunningKind, LongRunningRequests};

        let limits = ConnectionLimits::default();
        let requests = LongRunningRequests::new(&runtime::MetricRegistry::new(), &limits).unwrap();
        let kind = LongRunningKind { is_watch: true, is_proxied: false };
        let account = BudgetAccount::of(&User::named("alice"), "10.0.0.1".parse().unwrap());
        let mut running = requests.begin(&account, 1, kind, 0).unwrap();
        let signal = running.take_end_signal().unwrap();
        let stream = END.scope(RefCell::new(None), async move {
            let work = run(async move {
                stream_ends_with(signal);
                // The client opens no window: nothing polls the response, which would end itself.
                std::future::pending::<()>().await;
                drop(running);
            });
            work.await.is_err()
        });
        let stream = tokio::spawn(stream);
        tokio::time::advance(Duration::from_hours(1)).await;
        tokio::task::yield_now().await;
        assert!(!stream.is_finished(), "it need not end yet");
        assert_eq!(requests.end_on_connections(1), [1]);
        let began = Instant::now();
        assert!(stream.await.unwrap());
        assert_eq!(began.elapsed(), END_WITHIN);
    }
}
