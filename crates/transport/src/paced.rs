//! A request body with a minimum rate: [`RATE`] bytes per second on average after the first [`GRACE`], and no
//! pause longer than [`PAUSE`] however much arrived before.
//!
//! Time counts from when the server first waits for the body.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// Time before the minimum rate applies.
pub const GRACE: Duration = Duration::from_secs(5);
/// Minimum average rate in bytes per second.
pub const RATE: u64 = 1024;
/// Longest time without any byte.
pub const PAUSE: Duration = Duration::from_secs(15);

/// Reason why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyReadError {
    /// Below the minimum rate, or paused too long.
    #[error("the request body arrived at less than {RATE} bytes per second")]
    TooSlow,
    /// The connection broke or carried invalid HTTP.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
}

/// A body with a minimum rate.
#[derive(Debug)]
pub struct Paced<B> {
    inner: B,
    received: u64,
    /// Time of the last frame that the server had to wait for.
    last: Option<Instant>,
    /// Set when the body is first waited for: that time, and a timer for the next byte.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<B> Paced<B> {
    pub fn new(inner: B) -> Self {
        Paced { inner, received: 0, last: None, waiting: None }
    }

    /// The time at which the client is too slow if no more bytes arrive.
    fn due(&self, began: Instant) -> Instant {
        let by_rate = began + GRACE + Duration::from_millis(self.received.saturating_mul(1000) / RATE);
        by_rate.min(self.last.unwrap_or(began) + PAUSE)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B>
where
    BodyReadError: From<B::Error>,
{
    type Data = Bytes;
    type Error = BodyReadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyReadError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
            self.received = self.received.saturating_add(data.map_or(0, |data| data.remaining() as u64));
            if self.waiting.is_some() {
                self.last = Some(Instant::now());
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyReadError::from)));
        }
        let began = self.waiting.as_ref().map_or_else(Instant::now, |(began, _)| *began);
        let due = self.due(began);
        let (_, late) = self.waiting.get_or_insert_with(|| (began, Box::pin(tokio::time::sleep_until(due))));
        if late.deadline() != due {
            late.as_mut().reset(due);
        }
        late.as_mut().poll(cx).map(|()| Some(Err(BodyReadError::TooSlow)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use bytes::Bytes;
    use http_body::{Body, Frame};
    use http_body_util::BodyExt as _;
    use tokio::sync::mpsc;

    use super::{BodyReadError, Paced};

    struct ChannelBody(mpsc::Receiver<usize>);

    impl Body for ChannelBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.poll_recv(cx).map(|sent| sent.map(|n| Ok(Frame::data(Bytes::from(vec![b' '; n])))))
        }
    }

    impl From<Infallible> for BodyReadError {
        fn from(never: Infallible) -> Self {
            match never {}
        }
    }

    /// Reads a body of `parts` frames of `bytes` bytes, sent at intervals of `every`.
    async fn read(parts: usize, bytes: usize, every: Duration) -> Result<usize, BodyReadError> {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            for _ in 0..parts {
                tokio::time::sleep(every).await;
                if sender.send(bytes).await.is_err() {
                    return;
                }
            }
        });
        Ok(Paced::new(ChannelBody(receiver)).collect().await?.to_bytes().len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_at_the_minimum_rate_is_read_to_its_end() {
        let second = Duration::from_secs(1);
        assert_eq!(read(60, 1024, second).await.unwrap(), 60 * 1024);
        assert_eq!(read(1, 1, 4 * second).await.unwrap(), 1, "anything goes for five seconds");
        assert_eq!(read(2, 20 * 1024, 4 * second).await.unwrap(), 40 * 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_minimum_rate_is_given_up() {
        let second = Duration::from_secs(1);
        for (parts, bytes, every) in
            [(60, 1000, 20 * second), (600, 1, second), (1, 100_000, 6 * second), (2, 100_000, 16 * second)]
        {
            let read = read(parts, bytes, every).await;
            assert!(matches!(read, Err(BodyReadError::TooSlow)), "{parts} of {bytes}: {read:?}");
        }
    }
}
