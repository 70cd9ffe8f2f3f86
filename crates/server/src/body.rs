//! The body of a response: bytes, a list of stored objects, a stream of watch events, or a forwarded
//! response.

use std::pin::Pin;
use std::task::{Context, Poll};

use api::Status;
use audit::Closing;
use bytes::Bytes;
use catalog::splice::Splice;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;
use transport::accept::ResponseBody;
use transport::unsent::Payer;

/// Bytes handed over at a time. Once bytes are in the connection's buffers, the server cannot see whether the
/// client has read them.
const PIECE: usize = 64 * 1024;

#[derive(Debug)]
pub struct Body {
    inner: Inner,
    /// Account charged for parts that are produced while the response is sent.
    payer: Option<Payer>,
    /// Dropped with the body: the end of a long-running response is a separate audit event.
    _end: Option<Closing>,
}

#[derive(Debug)]
enum Inner {
    Whole(Bytes),
    /// Bytes that stay in memory anyway, and are therefore not charged.
    Shared(Bytes),
    Spliced(Splice),
    Stream(mpsc::Receiver<Bytes>),
    Forwarded(mpsc::Receiver<ForwardedPart>),
    /// Parts that this server produces while they are sent.
    Produced(mpsc::Receiver<ForwardedPart>),
}

/// A part of a body that marks its end explicitly.
#[derive(Debug)]
pub enum ForwardedPart {
    Frame(Frame<Bytes>),
    /// Marks a complete body. A body without it was cut short.
    End,
}

/// The body ended early; the connection must not signal a complete response.
#[derive(Debug, thiserror::Error)]
#[error("the response body ended early")]
pub struct Cut;

impl Body {
    pub fn empty() -> Self {
        Body::of(Inner::Whole(Bytes::new()))
    }

    /// Wraps bytes that stay in memory anyway: a stored object, or a document that is built once.
    pub fn shared(bytes: Bytes) -> Self {
        Body::of(Inner::Shared(bytes))
    }

    /// Returns a body that fails with [`Cut`] on the first poll.
    pub fn cut() -> Self {
        // The sender is dropped, so no [`ForwardedPart::End`] arrives.
        Body::of(Inner::Forwarded(mpsc::channel(1).1))
    }

    /// Assembles a list while it is sent.
    pub fn spliced(splice: Splice) -> Self {
        Body::of(Inner::Spliced(splice))
    }

    /// Sends chunks until the sender is dropped.
    pub fn stream(receiver: mpsc::Receiver<Bytes>) -> Self {
        Body::of(Inner::Stream(receiver))
    }

    /// Sends the parts of another server's response until [`ForwardedPart::End`].
    pub fn forwarded(receiver: mpsc::Receiver<ForwardedPart>) -> Self {
        Body::of(Inner::Forwarded(receiver))
    }

    /// Sends parts until [`ForwardedPart::End`], like [`Body::forwarded`], with the time limits of this server's own responses.
    pub fn produced(receiver: mpsc::Receiver<ForwardedPart>) -> Self {
        Body::of(Inner::Produced(receiver))
    }

    fn of(inner: Inner) -> Self {
        Body { inner, payer: None, _end: None }
    }

    /// Attaches an audit event that is completed when the body is dropped.
    pub(crate) fn closing(self, end: Closing) -> Self {
        Body { _end: Some(end), ..self }
    }

    /// Charges the body until it is sent. The senders of streams charge their own chunks.
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

    /// Copies all bytes; `None` for a stream.
    pub fn bytes(&self) -> Option<Bytes> {
        match &self.inner {
            Inner::Whole(bytes) | Inner::Shared(bytes) => Some(bytes.clone()),
            Inner::Spliced(splice) => Some(splice.clone().whole().into()),
            Inner::Stream(_) | Inner::Forwarded(_) | Inner::Produced(_) => None,
        }
    }

    /// Returns all bytes; `None` for a stream.
    pub fn into_bytes(self) -> Option<Bytes> {
        match self.inner {
            Inner::Whole(bytes) | Inner::Shared(bytes) => Some(bytes),
            Inner::Spliced(splice) => Some(splice.whole().into()),
            Inner::Stream(_) | Inner::Forwarded(_) | Inner::Produced(_) => None,
        }
    }

    /// Returns the receiver of a watch stream; `None` for other bodies.
    pub fn into_stream(self) -> Option<mpsc::Receiver<Bytes>> {
        match self.inner {
            Inner::Stream(receiver) => Some(receiver),
            Inner::Whole(_)
            | Inner::Shared(_)
            | Inner::Spliced(_)
            | Inner::Forwarded(_)
            | Inner::Produced(_) => None,
        }
    }

    /// Length in bytes; `None` for a stream.
    pub fn len(&self) -> Option<u64> {
        match &self.inner {
            Inner::Whole(bytes) | Inner::Shared(bytes) => Some(bytes.len() as u64),
            Inner::Spliced(splice) => Some(splice.left()),
            Inner::Stream(_) | Inner::Forwarded(_) | Inner::Produced(_) => None,
        }
    }

    /// False for streams, whose length is unknown.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Body::of(Inner::Whole(bytes.into()))
    }
}

impl ResponseBody for Body {
    fn is_forwarded(&self) -> bool {
        matches!(self.inner, Inner::Forwarded(_))
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
            Inner::Forwarded(receiver) | Inner::Produced(receiver) => {
                let part = match receiver.poll_recv(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(ForwardedPart::Frame(frame))) => return Poll::Ready(Some(Ok(frame))),
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
