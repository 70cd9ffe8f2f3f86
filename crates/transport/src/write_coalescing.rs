//! Coalesces the writes of a connection during one poll of its task.
//!
//! HTTP/2 writes and flushes each frame separately: a header of nine bytes, then data. Over TLS that costs
//! two records and a system call per frame, also for several small responses. Here the bytes are buffered
//! until the poll ends, fill whole TLS records, and leave in few calls. A poll that wrote little defers its
//! flush once, behind the tasks that are ready to run, since they often write other responses to the same
//! connection. Only [`StreamFlusher::turns`] flushes, so it must drive the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum bytes buffered before they are written, even within a poll: four TLS records.
const MAX_BUFFERED: usize = 64 * 1024;
/// With this many bytes the flush is not deferred: one TLS record.
const FLUSH_AT: usize = 16 * 1024;
/// Buffer capacity that an idle connection may retain.
const MAX_IDLE_CAPACITY: usize = 8 * 1024;

/// The stream as seen by the HTTP connection; buffers writes.
pub(crate) struct CoalescedStream<S>(Arc<Mutex<CoalescingState<S>>>);

/// The stream as seen by the task that drives the connection; flushes it.
pub(crate) struct StreamFlusher<S>(Arc<Mutex<CoalescingState<S>>>);

struct CoalescingState<S> {
    stream: S,
    waiting: Vec<u8>,
    /// Number of bytes of `waiting` already written.
    written: usize,
    /// True while `turns` drives the connection. After an upgrade the new owner of the stream flushes it.
    driven: bool,
}

/// Splits a stream into its buffered end and its flushing end.
pub(crate) fn coalesce_writes<S>(stream: S) -> (CoalescedStream<S>, StreamFlusher<S>) {
    let inner = CoalescingState { stream, waiting: Vec::new(), written: 0, driven: true };
    let inner = Arc::new(Mutex::new(inner));
    (CoalescedStream(Arc::clone(&inner)), StreamFlusher(inner))
}

fn locked<S>(inner: &Mutex<CoalescingState<S>>) -> MutexGuard<'_, CoalescingState<S>> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: AsyncWrite + Unpin> StreamFlusher<S> {
    /// Drives a connection to its end. A failed write to the stream ends it at once.
    pub(crate) async fn turns<T, E: From<io::Error>>(
        &self,
        mut connection: Pin<&mut impl Future<Output = Result<T, E>>>,
    ) -> Result<T, E> {
        let mut put_off = false;
        std::future::poll_fn(|cx| {
            let ended = connection.as_mut().poll(cx);
            let mut inner = locked(&self.0);
            inner.driven = ended.is_pending();
            put_off = !put_off && inner.driven && (1..FLUSH_AT).contains(&inner.waiting.len());
            if put_off {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match (ended, inner.flush(cx)) {
                (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error.into())),
                (ended, _) => ended,
            }
        })
        .await
    }
}

impl<S: AsyncWrite + Unpin> CoalescingState<S> {
    /// Writes all buffered bytes to the stream.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.waiting.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.waiting.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drain(cx))?;
        self.waiting.shrink_to(MAX_IDLE_CAPACITY);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.waiting.len() >= MAX_BUFFERED {
            ready!(self.drain(cx))?;
        }
        let before = self.waiting.len();
        for buf in bufs {
            let room = MAX_BUFFERED.saturating_sub(self.waiting.len());
            self.waiting.extend_from_slice(buf.get(..room.min(buf.len())).unwrap_or_default());
        }
        Poll::Ready(Ok(self.waiting.len() - before))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for CoalescedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = locked(&self.0);
        // After an upgrade, the reader may wait for a reply to the last bytes that the connection wrote.
        if !inner.driven
            && let Poll::Ready(Err(error)) = inner.flush(cx)
        {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut inner.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        locked(&self.0).write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        locked(&self.0).write(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = locked(&self.0);
        // `turns` flushes at the end of each poll.
        if inner.driven { Poll::Ready(Ok(())) } else { inner.flush(cx) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = locked(&self.0);
        ready!(inner.flush(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
