//! The socket of a connection: it is counted for as long as it is open, whoever has it by then, and closed if its client does not read
//! what is sent to it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::Open;
use crate::drain::{Drain, FORWARDED_PATIENCE, PATIENCE};

/// How many bytes that cannot be sent yet the kernel takes. It would take some megabytes, and say that there is room again only after
/// a third of them is gone: a slow client would look like one that does not read.
const UNSENT: u32 = 128 * 1024;

/// A socket, and its place in the table of connections.
pub(crate) struct Socket {
    stream: TcpStream,
    open: Open,
    drain: Drain,
    /// When it is too late for what the client does not take.
    late: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, open: Open) -> Self {
        // Where it cannot be set, a client must read faster.
        let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
        Socket { stream, open, drain: Drain::new(PATIENCE), late: None }
    }

    /// Passes on how a write ended, or that the client has been too slow.
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

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
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
