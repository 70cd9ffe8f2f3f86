use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::{MAX_BUFFERED, coalesce_writes};

/// A stream that records each write, accepts a limited number of bytes in total, and then blocks or fails.
#[derive(Default)]
struct Pipe {
    writes: Vec<usize>,
    room: usize,
    fails: bool,
}

impl Pipe {
    fn with_room(room: usize) -> Self {
        Pipe { room, ..Pipe::default() }
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let taken = buf.len().min(self.room);
        if self.fails {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if taken == 0 {
            return Poll::Pending;
        }
        self.room -= taken;
        self.writes.push(taken);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

type TurnResult = Result<(), io::Error>;

#[test]
fn frames_written_in_one_turn_are_sent_in_one_write() {
    let (mut below, above) = coalesce_writes(Pipe::with_room(1000));
    let mut turn = 0;
    let connection = pin!(poll_fn(move |cx| {
        turn += 1;
        for _ in 0..3 {
            assert!(pin!(below.write_all(b"frame")).poll(cx).is_ready());
            assert!(pin!(below.flush()).poll(cx).is_ready());
        }
        if turn == 3 { Poll::Ready(TurnResult::Ok(())) } else { Poll::Pending }
    }));
    let mut driven = pin!(above.turns(connection));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    assert!(driven.as_mut().poll(&mut cx).is_pending());
    assert!(super::locked(&above.0).stream.writes.is_empty(), "little is put off");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "but not forgotten");
    assert!(driven.as_mut().poll(&mut cx).is_pending());
    assert_eq!(super::locked(&above.0).stream.writes, [30]);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(driven.as_mut().poll(&mut cx).is_ready());
    assert_eq!(super::locked(&above.0).stream.writes, [30, 15], "the end is not put off");
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_write_waits_when_the_coalescing_buffer_is_full() {
    let (mut below, above) = coalesce_writes(Pipe::with_room(10));
    let connection = pin!(poll_fn(move |cx| {
        let large = vec![0; 3 * MAX_BUFFERED];
        assert!(pin!(below.write_all(&large)).poll(cx).is_pending());
        Poll::<TurnResult>::Pending
    }));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(above.turns(connection)).poll(&mut cx).is_pending());
    let inner = super::locked(&above.0);
    assert_eq!(inner.stream.writes, [10]);
    assert_eq!(inner.waiting.len(), MAX_BUFFERED);
}

#[test]
fn a_failed_write_ends_the_connection() {
    let (mut below, above) = coalesce_writes(Pipe { fails: true, ..Pipe::default() });
    let connection = pin!(poll_fn(move |cx| {
        assert!(pin!(below.write_all(b"frame")).poll(cx).is_ready());
        Poll::<TurnResult>::Pending
    }));
    let mut cx = Context::from_waker(Waker::noop());
    let mut driven = pin!(above.turns(connection));
    assert!(driven.as_mut().poll(&mut cx).is_pending());
    let Poll::Ready(Err(error)) = driven.poll(&mut cx) else { panic!("it goes on") };
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn an_upgraded_stream_sends_buffered_bytes_and_then_writes_directly() {
    let (mut below, above) = coalesce_writes(Pipe::default());
    let mut cx = Context::from_waker(Waker::noop());
    {
        let connection = pin!(poll_fn(|cx| {
            assert!(pin!(below.write_all(b"101 ")).poll(cx).is_ready());
            Poll::Ready(TurnResult::Ok(()))
        }));
        assert!(pin!(above.turns(connection)).poll(&mut cx).is_ready());
    }
    assert!(super::locked(&above.0).stream.writes.is_empty(), "there is no room yet");
    super::locked(&above.0).stream.room = 100;
    assert!(pin!(below.read(&mut [0; 8])).poll(&mut cx).is_ready());
    assert_eq!(super::locked(&above.0).stream.writes, [4]);
    assert!(pin!(below.write_all(b"hello")).poll(&mut cx).is_ready());
    assert!(pin!(below.flush()).poll(&mut cx).is_ready());
    assert_eq!(super::locked(&above.0).stream.writes, [4, 5]);
}
