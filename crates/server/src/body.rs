//! The body of an answer: bytes that are there already, a list of stored objects, a stream of watch events, or what another server
//! sends.

use std::pin::Pin;
use std::task::{Context, Poll};

use api::Status;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::audit::Closing;
use crate::splice::Splice;
use crate::unsent::Payer;

/// How many bytes are handed over at a time. The rest is not yet in the buffers of the connection, where it could not be told from
/// what the client has read.
const PIECE: usize = 64 * 1024;

/// The body of an answer.
#[derive(Debug)]
pub struct Body {
    inner: Inner,
    /// Whom the parts that are made while the answer is sent are charged to.
    payer: Option<Payer>,
    /// Dropped with the body: the end of an answer that goes on is an event of its own.
    _end: Option<Closing>,
}

#[derive(Debug)]
enum Inner {
    Whole(Bytes),
    /// Bytes that the server has whether they are read or not.
    Shared(Bytes),
    Spliced(Splice),
    Stream(mpsc::Receiver<Bytes>),
    Forwarded(mpsc::Receiver<Part>),
}

/// A part of a body that another server sends.
#[derive(Debug)]
pub enum Part {
    /// What it sent.
    Frame(Frame<Bytes>),
    /// It sent all of it. A body without this was cut short.
    End,
}

/// A body that ended before its end: the connection must not look as if all of it had been sent.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut short")]
pub struct Cut;

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Body::of(Inner::Whole(Bytes::new()))
    }

    /// Bytes that the server keeps anyway: a stored object, a document that is made once.
    pub fn shared(bytes: Bytes) -> Self {
        Body::of(Inner::Shared(bytes))
    }

    /// A body that ends before its end.
    pub fn cut() -> Self {
        // Nobody sends an end.
        Body::of(Inner::Forwarded(mpsc::channel(1).1))
    }

    /// A list that is put together while it is sent.
    pub fn spliced(splice: Splice) -> Self {
        Body::of(Inner::Spliced(splice))
    }

    /// Whatever arrives, until the sender is dropped.
    pub fn stream(receiver: mpsc::Receiver<Bytes>) -> Self {
        Body::of(Inner::Stream(receiver))
    }

    /// Whatever another server sends, until its end.
    pub fn forwarded(receiver: mpsc::Receiver<Part>) -> Self {
        Body::of(Inner::Forwarded(receiver))
    }

    fn of(inner: Inner) -> Self {
        Body { inner, payer: None, _end: None }
    }

    /// This body, and a record that is completed when it ends.
    pub(crate) fn closing(self, end: Closing) -> Self {
        Body { _end: Some(end), ..self }
    }

    /// Charges the body until it is sent. Streams are charged by whoever sends into them.
    pub(crate) fn charge_to(&mut self, payer: Payer) -> Result<(), Status> {
        if let Inner::Whole(bytes) = &mut self.inner {
            match payer.charge(std::mem::take(bytes)) {
                Ok(charged) => *bytes = charged,
                Err((uncharged, status)) => {
                    *bytes = uncharged;
                    return Err(status);
                }
            }
        }
        self.payer = Some(payer);
        Ok(())
    }

    /// Whether another server sends it.
    pub(crate) fn is_forwarded(&self) -> bool {
        matches!(self.inner, Inner::Forwarded(_))
    }

    /// A copy of all bytes of a body that is not a stream.
    pub fn bytes(&self) -> Option<Bytes> {
        match &self.inner {
            Inner::Whole(bytes) | Inner::Shared(bytes) => Some(bytes.clone()),
            Inner::Spliced(splice) => Some(splice.clone().whole().into()),
            Inner::Stream(_) | Inner::Forwarded(_) => None,
        }
    }

    /// All bytes of a body that is not a stream.
    pub fn into_bytes(self) -> Option<Bytes> {
        match self.inner {
            Inner::Whole(bytes) | Inner::Shared(bytes) => Some(bytes),
            Inner::Spliced(splice) => Some(splice.whole().into()),
            Inner::Stream(_) | Inner::Forwarded(_) => None,
        }
    }

    /// The receiver of a streaming body.
    pub fn into_stream(self) -> Option<mpsc::Receiver<Bytes>> {
        match self.inner {
            Inner::Stream(receiver) => Some(receiver),
            Inner::Whole(_) | Inner::Shared(_) | Inner::Spliced(_) | Inner::Forwarded(_) => None,
        }
    }

    /// How many bytes there are, if that is known.
    pub fn len(&self) -> Option<u64> {
        match &self.inner {
            Inner::Whole(bytes) | Inner::Shared(bytes) => Some(bytes.len() as u64),
            Inner::Spliced(splice) => Some(splice.left()),
            Inner::Stream(_) | Inner::Forwarded(_) => None,
        }
    }

    /// Whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Body::of(Inner::Whole(bytes.into()))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let Body { inner, payer, .. } = &mut *self;
        match inner {
            Inner::Whole(bytes) | Inner::Shared(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Whole(bytes) | Inner::Shared(bytes) => {
                let piece = if bytes.len() > PIECE { bytes.split_to(PIECE) } else { std::mem::take(bytes) };
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Inner::Spliced(splice) => {
                let piece = splice.next().map(|piece| match payer {
                    Some(payer) => payer.charge_anyway(piece),
                    None => piece,
                });
                Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
            }
            Inner::Stream(receiver) => receiver.poll_recv(cx).map(|chunk| chunk.map(|c| Ok(Frame::data(c)))),
            Inner::Forwarded(receiver) => {
                let part = match receiver.poll_recv(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Part::Frame(frame))) => return Poll::Ready(Some(Ok(frame))),
                    Poll::Ready(part) => part,
                };
                self.inner = Inner::Whole(Bytes::new());
                Poll::Ready(part.is_none().then_some(Err(Cut)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.len().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
