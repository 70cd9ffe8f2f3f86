//! The socket of a connection: counted as open until it is dropped, also after an upgrade, and closed if the
//! client does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::OpenConnection;
use crate::drain::{Drain, FORWARDED_PATIENCE, PATIENCE};

/// Limit of unsent bytes in the kernel's send buffer. The default buffer takes megabytes and becomes writable
/// only after a third of it is sent, so a slow client would look like one that does not read.
const UNSENT: u32 = 128 * 1024;

/// A TCP stream that owns its entry in the connection table.
pub struct TrackedSocket {
    stream: TcpStream,
    open: OpenConnection,
    drain: Drain,
    /// Fires when the client has used up its time to take pending bytes.
    late: Option<Pin<Box<Sleep>>>,
}

impl TrackedSocket {
    pub fn new(stream: TcpStream, open: OpenConnection) -> Self {
        // Where the option is not supported, clients have to read faster.
        let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
        TrackedSocket { stream, open, drain: Drain::new(PATIENCE), late: None }
    }

    /// Returns the result of a write, or a timeout error if the client has been too slow to read.
    fn wrote(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(bytes)) => {
                self.drain.took(bytes as u64);
                self.late = None;
                wrote
            }
            Poll::Ready(Err(_)) => wrote,
            Poll::Pending => {
                if self.open.connection.is_upgraded.load(Ordering::Relaxed) {
                    self.drain.set_patience(FORWARDED_PATIENCE);
                }
                let due = self.drain.waits(Instant::now());
                let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
                if late.deadline() != due {
                    late.as_mut().reset(due);
                }
                if late.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.open.stalled();
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncRead for TrackedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TrackedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
