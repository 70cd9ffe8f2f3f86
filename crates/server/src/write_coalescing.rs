//! What a connection writes during one turn of its task leaves together.
//!
//! HTTP/2 writes and flushes each frame by itself: a header of nine bytes, then data. Over TLS that makes two records and a system
//! call of every frame, and of every one of several small answers. Here the bytes wait until the turn is over, fill whole records,
//! and leave in few calls. A turn with little to write is put off once, behind the tasks that are ready to run: they are likely to
//! be other answers on the same connection. Nobody else flushes, so whoever drives the connection does it with [`StreamFlusher::turns`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many bytes may wait before they are written, turn or not: four records of TLS.
const MOST: usize = 64 * 1024;
/// With so many there is no use in waiting for more: a record.
const ENOUGH: usize = 16 * 1024;
/// What an idle connection may keep of its buffer.
const KEPT: usize = 8 * 1024;

/// The stream below a connection, as the connection sees it.
pub(crate) struct CoalescedStream<S>(Arc<Mutex<Inner<S>>>);

/// The same stream, as the one who drives the connection sees it.
pub(crate) struct StreamFlusher<S>(Arc<Mutex<Inner<S>>>);

struct Inner<S> {
    stream: S,
    waiting: Vec<u8>,
    /// How many of them have been written.
    written: usize,
    /// Whether somebody ends turns; who takes the stream over from the connection must flush it himself.
    driven: bool,
}

/// Both ends of a stream.
pub(crate) fn coalesce_writes<S>(stream: S) -> (CoalescedStream<S>, StreamFlusher<S>) {
    let inner = Inner { stream, waiting: Vec::new(), written: 0, driven: true };
    let inner = Arc::new(Mutex::new(inner));
    (CoalescedStream(Arc::clone(&inner)), StreamFlusher(inner))
}

fn locked<S>(inner: &Mutex<Inner<S>>) -> MutexGuard<'_, Inner<S>> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: AsyncWrite + Unpin> StreamFlusher<S> {
    /// Drives a connection to its end. A stream that cannot be written to ends it at once.
    pub(crate) async fn turns<T, E: From<io::Error>>(
        &self,
        mut connection: Pin<&mut impl Future<Output = Result<T, E>>>,
    ) -> Result<T, E> {
        let mut put_off = false;
        std::future::poll_fn(|cx| {
            let ended = connection.as_mut().poll(cx);
            let mut inner = locked(&self.0);
            inner.driven = ended.is_pending();
            put_off = !put_off && inner.driven && (1..ENOUGH).contains(&inner.waiting.len());
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

impl<S: AsyncWrite + Unpin> Inner<S> {
    /// Hands everything that waits to the stream.
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
        self.waiting.shrink_to(KEPT);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.waiting.len() >= MOST {
            ready!(self.drain(cx))?;
        }
        let before = self.waiting.len();
        for buf in bufs {
            let room = MOST.saturating_sub(self.waiting.len());
            self.waiting.extend_from_slice(buf.get(..room.min(buf.len())).unwrap_or_default());
        }
        Poll::Ready(Ok(self.waiting.len() - before))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for CoalescedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = locked(&self.0);
        // Who took the stream over may wait for an answer to what the connection wrote last.
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
        // The end of the turn does it.
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
