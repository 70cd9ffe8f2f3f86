//! Limits the bytes of answers of other servers that this process holds at once.
//!
//! An answer of at most [`SMALL`] bytes is not limited. A larger one first reserves what it may become at most, so that answers that wait for
//! each other hold almost nothing; meanwhile its server cannot send more. The bytes are released when the last clone of the answer's
//! [`Bytes`] is dropped. An answer waits within the time limit of its call.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Answers of up to this many bytes are not limited.
const SMALL: usize = 64 << 10;
/// The bytes of one permit.
const UNIT: usize = 4 << 10;
/// Bytes of all larger answers together.
const ALL_ANSWERS: usize = 256 << 20;
/// Bytes of the larger answers of one server. A single answer may be this large.
const ANSWERS_OF_ONE: usize = 64 << 20;

static ALL: Semaphore = Semaphore::const_new(ALL_ANSWERS / UNIT);

/// The limit for the answers of one server.
#[derive(Clone, Debug)]
pub struct AnswerLimit(Arc<Semaphore>);

impl Default for AnswerLimit {
    fn default() -> Self {
        AnswerLimit(Arc::new(Semaphore::new(ANSWERS_OF_ONE / UNIT)))
    }
}

/// Reason why an answer was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum UnreadAnswer<E> {
    #[error("the response is longer than {0} bytes")]
    TooLong(usize),
    #[error(transparent)]
    Broken(E),
}

impl AnswerLimit {
    /// Reads an answer of at most `longest` bytes. The caller must set a time limit.
    pub async fn read<B>(&self, body: B, longest: usize) -> Result<Bytes, UnreadAnswer<B::Error>>
    where
        B: Body<Data = Bytes>,
    {
        let declared = body.size_hint().upper().and_then(|most| usize::try_from(most).ok());
        let most = declared.map_or(longest, |declared| declared.min(longest));
        let mut body = std::pin::pin!(body);
        let (mut first, mut rest, mut room) = (Bytes::new(), BytesMut::new(), None);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(UnreadAnswer::Broken)?.into_data() else { continue };
            let length = first.len().saturating_add(rest.len()).saturating_add(data.len());
            if length > longest {
                return Err(UnreadAnswer::TooLong(longest));
            }
            if length > SMALL && room.is_none() {
                room = self.reserve(most).await;
            }
            // Many answers arrive in one frame, which is not copied.
            if length == data.len() {
                first = data;
            } else {
                rest.extend_from_slice(&std::mem::take(&mut first));
                rest.extend_from_slice(&data);
            }
        }
        let bytes = if rest.is_empty() { first } else { rest.freeze() };
        Ok(match room {
            None => bytes,
            Some(mut room) => {
                room.shrink_to(bytes.len());
                Bytes::from_owner(LimitedAnswer { bytes, _room: room })
            }
        })
    }

    /// Waits until this many bytes fit. First into the limit of the server, so that one server does not hold the room of others while it waits.
    async fn reserve(&self, bytes: usize) -> Option<Room> {
        let permits = u32::try_from(bytes.min(ANSWERS_OF_ONE).div_ceil(UNIT)).ok()?;
        // The semaphores are never closed.
        let of_server = Arc::clone(&self.0).acquire_many_owned(permits).await.ok()?;
        let of_all = ALL.acquire_many(permits).await.ok()?;
        Some(Room { of_server, of_all })
    }
}

struct Room {
    of_server: OwnedSemaphorePermit,
    of_all: tokio::sync::SemaphorePermit<'static>,
}

impl Room {
    fn shrink_to(&mut self, bytes: usize) {
        let unused = self.of_all.num_permits().saturating_sub(bytes.div_ceil(UNIT));
        drop(self.of_server.split(unused));
        drop(self.of_all.split(unused));
    }
}

struct LimitedAnswer {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for LimitedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll};

    use http_body_util::Full;
    use hyper::body::Frame;

    use super::*;

    fn full(length: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b'x'; length]))
    }

    /// A body without a declared length, in this many frames of 1 MiB.
    struct Streamed(usize);

    impl Body for Streamed {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Some(left) = self.0.checked_sub(1) else { return Poll::Ready(None) };
            self.0 = left;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; 1 << 20])))))
        }
    }

    async fn is_pending<T>(work: &mut std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
        poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn large_answers_of_one_server_wait_for_each_other_and_delay_no_others() {
        let limit = AnswerLimit::default();
        let longest = ANSWERS_OF_ONE;
        let held = limit.read(full(40 << 20), longest).await.unwrap();
        assert_eq!(held.len(), 40 << 20);
        // 24 MiB are left.
        let mut waiting = pin!(limit.read(full(30 << 20), longest));
        assert!(is_pending(&mut waiting).await);
        limit.read(full(SMALL), longest).await.unwrap();
        AnswerLimit::default().read(full(30 << 20), longest).await.unwrap();
        let clone = held.clone();
        drop(held);
        assert!(is_pending(&mut waiting).await, "a clone still holds the bytes");
        drop(clone);
        assert_eq!(waiting.await.unwrap().len(), 30 << 20);
    }

    #[tokio::test]
    async fn an_answer_without_a_length_reserves_what_it_may_become() {
        let limit = AnswerLimit::default();
        let held = limit.read(Streamed(2), 50 << 20).await.unwrap();
        assert_eq!(held.len(), 2 << 20);
        // It returned what it did not use.
        let second = limit.read(Streamed(60), 60 << 20).await.unwrap();
        let mut waiting = pin!(limit.read(Streamed(1), 10 << 20));
        assert!(is_pending(&mut waiting).await);
        drop(second);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn answers_that_are_too_long_are_refused() {
        let limit = AnswerLimit::default();
        assert!(matches!(limit.read(full(1001), 1000).await, Err(UnreadAnswer::TooLong(1000))));
        assert!(matches!(limit.read(Streamed(3), 2 << 20).await, Err(UnreadAnswer::TooLong(_))));
        assert_eq!(limit.read(full(1000), 1000).await.unwrap().len(), 1000);
        assert_eq!(limit.0.available_permits(), ANSWERS_OF_ONE / UNIT);
    }
}
